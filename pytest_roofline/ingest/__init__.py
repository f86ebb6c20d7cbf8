"""Records that other tools write, each format an adapter of its own, told apart by content.

An adapter is a module or object with ``NAME``, ``matches(sample)`` and ``read(source)``; ``pytest_roofline_ingest`` adds more.
"""

from __future__ import annotations

import codecs
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from roofline_engine.units import printable

from .record import Record, RefusedError

__all__ = ["Adapter", "Record", "RefusedError", "Sample", "Source", "adapters", "open_source"]

#: Of the file's start, what an adapter may look at.
SAMPLE = 65_536
#: A line longer than this is no record; a file is read line by line, so memory stays bounded.
LONGEST_LINE = 8_000_000
#: The largest JSON document that is parsed whole.
LARGEST_DOCUMENT = 256_000_000
#: What may come out of a gzip.
LARGEST_EXPANDED = 2_000_000_000


class Sample:
    """The start of a file for ``matches``: its text, its first line, the suffix of its name."""

    def __init__(self, text: str, suffix: str) -> None:
        self.text, self.suffix = text, suffix
        self.first = next((line for line in text.splitlines() if line.strip()), "")


class Source:
    """A file to read. ``lines()`` streams it, ``text()`` is the whole of a document; both are bounded and UTF-8.

    label: its name for messages. path: itself; files beside it (a definition, a baseline) may be looked up from there.
    """

    def __init__(self, path: Path, stream: io.BufferedIOBase, longest: int | None = None) -> None:
        self.path, self.label = path, printable(path.name)
        self._stream, self._longest = stream, longest

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def start(self, size: int) -> str:
        """The first ``size`` bytes as text, for ``matches``; they are read again afterwards.

        Raises:
            RefusedError: for a gzip that is none, and for UTF-16.
        """
        try:
            data = self._stream.read(size)
            self._stream.seek(0)
        except _UNREADABLE as error:
            raise RefusedError(f"{self.label}: {error}") from None
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise RefusedError(f"{self.label}: UTF-16 text, as some shells redirect to a file: save it as UTF-8")
        return data.decode("utf-8-sig", errors="replace")

    def position(self) -> int:
        """Bytes read so far."""
        return self._stream.tell()

    def lines(self) -> Iterator[str]:
        """The lines without their ends.

        Raises:
            RefusedError: for a line over the bound and for bytes that are no UTF-8.
        """
        number = size = 0
        read, encoding = self._stream.readline, "utf-8-sig"
        try:
            while line := read(LONGEST_LINE + 1):
                number, size = number + 1, size + len(line)
                if self._longest is not None and size > self._longest:
                    raise RefusedError(f"{self.label}: more than {self._longest} bytes come out of it")
                if len(line) > LONGEST_LINE:
                    raise RefusedError(f"{self.label}: line {number} is longer than {LONGEST_LINE} bytes")
                yield line.decode(encoding).rstrip("\r\n")
                encoding = "utf-8"
        except UnicodeDecodeError as error:
            raise RefusedError(f"{self.label}: line {number}: not UTF-8 text (byte {error.start})") from None
        except _UNREADABLE as error:
            raise RefusedError(f"{self.label}: {error}") from None

    def text(self) -> str:
        """The whole file.

        Raises:
            RefusedError: when it is larger than the bound or no UTF-8.
        """
        data = self._read(self._stream.read, LARGEST_DOCUMENT + 1)
        if len(data) > LARGEST_DOCUMENT:
            raise RefusedError(f"{self.label}: larger than {LARGEST_DOCUMENT} bytes, too large to be one document")
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise RefusedError(f"{self.label}: not UTF-8 text (byte {error.start})") from None

    def _read(self, how: Callable[[int], bytes], size: int) -> bytes:
        try:
            return how(size)
        except _UNREADABLE as error:
            raise RefusedError(f"{self.label}: {error}") from None


_UNREADABLE = (OSError, EOFError, zlib.error)


class Adapter(Protocol):
    """One format."""

    NAME: str

    def matches(self, sample: Sample) -> bool:
        """Whether a file that starts so is of this format, told by content alone."""

    def read(self, source: Source) -> Iterable[Record]:
        """The rows, as they come; a row that cannot be used is given as refused, never left out.

        Raises:
            RefusedError: when the file as a whole cannot be read.
        """


def adapters() -> Sequence[Adapter]:
    """Those of this package, the narrower formats first."""
    from . import registry

    return registry.ADAPTERS


def open_source(path: Path) -> Source:
    """Open a file, also a gzip of it, whose expansion is bounded as well.

    Raises:
        RefusedError: when it cannot be opened.
    """
    import gzip

    try:
        stream: io.BufferedIOBase = path.open("rb")
        if stream.peek(2)[:2] == b"\x1f\x8b":  # type: ignore[attr-defined]  # a BufferedReader
            return Source(path, gzip.GzipFile(fileobj=stream), LARGEST_EXPANDED)
    except OSError as error:
        raise RefusedError(f"{printable(str(path))}: {error.strerror or error}") from None
    return Source(path, stream)


def choose(source_start: str, suffix: str, more: Iterable[Adapter] = ()) -> Adapter | None:
    """The first adapter that knows the start of a file; those of hooks are asked before ours."""
    sample = Sample(source_start, suffix)
    return next((adapter for adapter in (*more, *adapters()) if adapter.matches(sample)), None)
