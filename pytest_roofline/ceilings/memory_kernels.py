"""Bandwidth alone, by the C library's block functions: what can be measured where numpy is not installed.

A foreign call releases the GIL, so all cores take part. Bytes as in ``numpy_kernels``: a store counts once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from .machine import Machine
from .parallel import Team, array_bytes, teams
from .rounds import Kernel


def streams(machine: Machine, available: int | None = None) -> tuple[list[Kernel], list[str]]:
    """copy, and read where the C library has ``memcmp``; and notes on what is not as it should be."""
    nbytes, note = array_bytes(machine, 2, available)
    source, target = ((ctypes.c_char * nbytes).from_buffer(bytearray(nbytes)) for _ in range(2))
    for block in (source, target):  # a page that was never written is the kernel's one page of zeros, in the cache
        ctypes.memset(block, 1, nbytes)
    found = [kernel for team in teams(machine) for kernel in _streams(team, source, target)]
    return found, [note] if note else []


def _streams(team: Team, source: ctypes.Array[ctypes.c_char], target: ctypes.Array[ctypes.c_char]) -> list[Kernel]:
    start, end = ctypes.addressof(source), ctypes.addressof(target)
    shares = [(share.start, share.stop - share.start) for share in team.cut(len(source))]

    def copy(at: int) -> None:
        offset, size = shares[at]
        ctypes.memmove(end + offset, start + offset, size)

    def kernel(name: str, share: Callable[[int], None]) -> Kernel:
        def call() -> object:
            team.run(share)
            return source, target  # addresses do not keep the blocks alive, this does

        return Kernel(
            name=name, kind="bandwidth", level="DRAM", dtype="u8", threads=team.threads, work=2 * len(source), call=call
        )

    found = [kernel("copy", copy)]
    compare = _memcmp()
    if compare is not None:

        def read(at: int) -> None:
            offset, size = shares[at]
            compare(end + offset, start + offset, size)

        found.append(kernel("read", read))
    return found


def _memcmp() -> Callable[[int, int, int], int] | None:
    """The C library's, which reads two equal blocks to their end; None where it is not to be had by this way (Windows)."""
    try:
        compare = ctypes.CDLL(None).memcmp
    except (OSError, AttributeError, TypeError):
        return None
    compare.argtypes, compare.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), ctypes.c_int
    return lambda left, right, size: int(compare(left, right, size))
