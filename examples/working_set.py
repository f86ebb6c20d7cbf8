"""The size of the operands: large enough to come from memory on this machine, small enough for an example."""

import os

from pytest_roofline.ceilings.machine import available_bytes, this_machine
from roofline_engine.roofline import LARGEST_CACHE

#: Times the last-level cache, so that each round reads from memory (the rule of McCalpin's STREAM).
OVER_CACHE = 4
#: Part of the memory that is free now.
SHARE = 4
#: 1 GiB keeps each test to seconds. On a machine with a cache of over half of it the rows have no verdict.
MOST = 2**30


def working_set() -> int:
    """Return the bytes of all operands of one kernel; if the cache is unknown, enough for the largest known cache.

    ROOFLINE_EXAMPLE_BYTES overrides it for a run whose figures do not matter, such as one without ``--roofline``.
    """
    override = os.environ.get("ROOFLINE_EXAMPLE_BYTES")
    if override:
        return int(override)
    wanted = OVER_CACHE * (this_machine().cache_bytes or LARGEST_CACHE)
    room = available_bytes() or MOST
    return min(wanted, MOST, room // SHARE)
