"""How large operands must be to come from memory on this machine, and how large they may be to stay an example."""

from pytest_roofline.ceilings.machine import available_bytes, this_machine
from roofline_engine.roofline import LARGEST_CACHE

#: So that every round reads from memory what the round before left in the cache (the rule of McCalpin's STREAM).
OVER_CACHE = 4
#: Of memory that can be had now; 1 GiB keeps each test to seconds. Caches of over half of it give no verdict, and say so.
SHARE, MOST = 4, 2**30


def working_set() -> int:
    """Bytes of all operands of one kernel together; where the system does not tell its cache, those for the largest known."""
    wanted = OVER_CACHE * (this_machine().cache_bytes or LARGEST_CACHE)
    room = available_bytes() or MOST
    return min(wanted, MOST, room // SHARE)
