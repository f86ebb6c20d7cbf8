"""Profiles as profilers write them: each reader returns the one form that ``analyze`` continues from.

A reader is a function of a path that returns a ``form.Profile``; ``find_reader`` chooses it by the start of the file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ..files import READ_ERRORS, open_binary

if TYPE_CHECKING:
    from .form import Profile

#: Bytes of a file that decide what it is.
_START = 1 << 16


class Reader(NamedTuple):
    """A format of profiles."""

    name: str  # for people
    module: str  # of this package; it has ``read(path) -> Profile``, and loads when a file is of this format
    fits: Callable[[str, bytes], bool]  # of a file's name and its first bytes, unpacked

    def read(self, path: str, shapes_from: str | None = None) -> Profile:
        """Read a profile.

        shapes_from: another file with the shapes of kernels that were replayed from a graph, where the format has such files.

        Raises:
            ValueError: with one line that names the file, where it cannot be used.
        """
        options = {"shapes_from": shapes_from} if shapes_from else {}
        profile: Profile = import_module("." + self.module, __package__).read(path, **options)
        return profile


def _is_chrome_trace(name: str, start: bytes) -> bool:
    """Return whether a file is a Chrome trace: its events come first, or keys that only torch's profiler writes."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] == b"[":
        return b'"ph"' in text[:4096]
    return text[:1] == b"{" and (b'"traceEvents"' in text or (b'"schemaVersion"' in text and b'"deviceProperties"' in text))


#: The formats, in the order in which they are tried.
READERS = (Reader("torch profiler trace", "torch_trace", _is_chrome_trace),)


def find_reader(path: str) -> Reader | None:
    """Return what reads this file; None where it is not a profile, or cannot be opened."""
    if not os.path.isfile(path):
        return None
    try:
        with open_binary(path, sys.maxsize) as stream:
            start = stream.read(_START)
    except READ_ERRORS:
        return None
    name = os.path.basename(path).lower()
    return next((reader for reader in READERS if reader.fits(name, start)), None)
