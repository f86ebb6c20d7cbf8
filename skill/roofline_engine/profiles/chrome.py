"""The events of a Chrome trace, read in pieces: a trace of a gigabyte is never held whole.

An object with ``traceEvents``, or a bare array of events; packed with gzip or not; cut off at the end or not. Most events of a
trace are Python frames and flow arrows, which are dropped by their first bytes before anything is parsed. ``orjson`` or
``msgspec`` parse the rest where one is installed, else the standard library does.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from operator import attrgetter
from typing import Any

from ..files import READ_ERRORS, open_binary
from ..units import printable

#: Bytes that are read at once.
_CHUNK = 1 << 21
#: Bytes of one call that reads: a gzip that ends early loses none of them.
_PART = 1 << 17
#: Bytes in which the first two events are.
_FIRST_EVENTS = 1 << 20
#: The longest event; more is no trace.
_LONGEST = 1 << 26
#: The largest file: it is read in pieces, so time bounds it, not memory.
LARGEST_TRACE = 1 << 38
#: A gzip may unpack to this, or to this many times its size. Traces pack to a tenth to a thirtieth.
_SMALL, _RATIO = 1 << 30, 64
#: Events that tell nothing of a kernel: Python frames, and all but complete events: arrows, counters, names of threads.
#: Operations that make a view or allocate, which launch nothing; they are half of all operations.
_VIEWS = (
    b"as_strided slice view _unsafe_view _reshape_alias t transpose permute expand unsqueeze squeeze select narrow detach "
    b"alias split unbind chunk empty empty_like empty_strided result_type resolve_conj resolve_neg"
)
#: Matches the start of an event after its first quote, in every layout that torch writes: phase, category, name.
_DROP = re.compile(
    rb'ph":\s*"(?:[^X]|X",\s*"cat":\s*"(?:python_function"|cpu_op",\s*"name":\s*"aten::(?:'
    + b"|".join(_VIEWS.split())
    + rb')"))'
)
_OPENING = re.compile(rb'\s*\{\s*"')
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
#: Seconds of reading after which progress is printed.
_PATIENCE_S = 1.0


class Trace:
    """One file: iterate over its events in batches; ``metadata`` and ``problems`` are whole afterwards.

    Raises:
        ValueError: with one line that names the file, where it cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.path, self.label = path, printable(os.path.basename(path))
        self.metadata: dict[str, Any] = {}
        self.problems: list[str] = []
        self.unreadable = 0  # events
        self._size = os.path.getsize(path)
        self._read = 0  # bytes, unpacked
        self._is_cut = False
        self._started, self._shown = time.monotonic(), 0.0
        self._parse: Callable[[bytes], Any] = _fast_parser(self._size) or _parse

    def batches(self) -> Iterator[list[Any]]:
        """Yield the events in their order, many at a time, without those of the kinds that are dropped."""
        try:
            with open_binary(self.path, LARGEST_TRACE, max(_SMALL, _RATIO * self._size)) as stream:
                yield from self._batches(stream)
        except READ_ERRORS as error:
            raise ValueError(f"{self.label}: {getattr(error, 'strerror', None) or error}") from None
        finally:
            if self._shown:
                print(f"\r{self.label}: {self._read >> 20} MiB read", file=sys.stderr)
        if self.unreadable:
            self.problems.append(f"{self.label}: {self.unreadable} events are not JSON: left out")

    def _fill(self, stream: Any) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            while not self._is_cut and size < _CHUNK:
                part = stream.read1(_PART)
                if not part:
                    break
                parts.append(part)
                size += len(part)
        except (EOFError, zlib.error) as error:  # cut off, or damaged
            if not self._read and not parts:
                raise
            self._is_cut = True
            self.problems.append(f"{self.label}: it ends early ({error}): the events before that are used")
        chunk = b"".join(parts)
        self._read += size
        now = time.monotonic()
        if chunk and now - self._started > _PATIENCE_S and now - self._shown > _PATIENCE_S:
            self._shown = now
            print(f"\r{self.label}: {self._read >> 20} MiB read", end="", file=sys.stderr, flush=True)
        return chunk

    def _batches(self, stream: Any) -> Iterator[list[Any]]:
        data = self._begin(stream)
        separator = _separator(data)
        is_last = False
        while not is_last:
            chunk = self._fill(stream)
            is_last = not chunk
            data += chunk
            pieces = data.split(separator) if separator else [data]
            data = pieces.pop()
            if pieces:
                data = b'{"' + data  # what the separator cut off
                pieces[0] = _OPENING.sub(b"", pieces[0], count=1)
            if is_last:
                yield self._parse_pieces(pieces)
                yield from self._end(data)
                return
            if len(data) > _LONGEST:
                raise ValueError(f"{self.label}: one event is longer than {_LONGEST >> 20} MiB, which is no trace")
            yield self._parse_pieces(pieces)

    def _begin(self, stream: Any) -> bytes:
        """Read to the first event; what is before it is metadata."""
        data = self._fill(stream)
        start = re.match(rb"(?:\xef\xbb\xbf)?\s*\[", data)
        while not start:
            start = _EVENTS.search(data)
            if start:
                self._take_metadata(data[: start.start()].rstrip().rstrip(b",") + b"}")
                break
            chunk = self._fill(stream)
            if not chunk:
                raise ValueError(f"{self.label}: no traceEvents in it, expected a Chrome trace")
            data += chunk
            if len(data) > _LONGEST:
                raise ValueError(f"{self.label}: no traceEvents in its first {_LONGEST >> 20} MiB, expected a Chrome trace")
        return data[start.end() :]

    def _take_metadata(self, text: bytes) -> None:
        try:
            found = _parse(text)
        except (ValueError, RecursionError):
            self.problems.append(f"{self.label}: what is around its events is not JSON: the device may be unknown")
            return
        if isinstance(found, dict):
            self.metadata.update(found)

    def _parse_pieces(self, pieces: list[bytes]) -> list[Any]:
        """Parse events, whose opening and closing braces the separator took."""
        # A piece with events spaced in another way has several.
        kept = [piece for piece in pieces if not _DROP.match(piece) or piece.count(b'ph":') > 1]
        if not kept:
            return []
        try:
            return list(self._parse(b'[{"' + b'},{"'.join(kept) + b"}]"))
        except (ValueError, RecursionError):
            pass
        events: list[Any] = []
        at = 0
        while at < len(kept):  # one event is broken, or the separator occurs inside of one
            for end in range(at + 1, min(at + 8, len(kept)) + 1):
                try:
                    events.append(_parse(b'{"' + b'},{"'.join(kept[at:end]) + b"}"))
                    at = end
                    break
                except (ValueError, RecursionError):
                    continue
            else:
                self.unreadable += 1
                at += 1
        return events

    def _end(self, text: bytes) -> Iterator[list[Any]]:
        """Parse the last event, and the metadata after the array."""
        decoder = json.JSONDecoder(strict=False)
        rest = text.decode("utf-8", "replace").lstrip()
        events = []
        while rest.startswith("{"):
            try:
                event, end = decoder.raw_decode(rest)
            except (ValueError, RecursionError):
                self.problems.append(f"{self.label}: it ends within an event: the events before that are used")
                rest = ""
                break
            events.append(event)
            rest = rest[end:].lstrip().lstrip(",").lstrip()
        yield events
        if rest.startswith("]"):
            tail = rest[1:].lstrip().lstrip(",").strip()
            if tail.strip("}] \n"):
                self._take_metadata(b"{" + tail.encode())
        elif rest:
            self.problems.append(f"{self.label}: it ends within its events: the events before that are used")


def _separator(data: bytes) -> bytes:
    """Return the bytes between two events, from the closing brace to the first quote; empty with fewer than two events."""
    decoder = json.JSONDecoder(strict=False)
    text = data[:_FIRST_EVENTS].decode("utf-8", "replace")
    start = len(text) - len(text.lstrip())
    try:
        _, end = decoder.raw_decode(text, start)
    except (ValueError, RecursionError):
        return b""
    between = re.match(r'\s*,\s*\{\s*"', text[end : end + 200])
    return b"}" + between.group().encode() if between else b""


def _parse(text: bytes) -> Any:
    """Parse JSON as profilers write it: control characters in names, bytes that are not UTF-8, NaN."""
    return json.loads(text.decode("utf-8", "replace"), strict=False)


def _fast_parser(size: int) -> Callable[[bytes], Any] | None:
    """Return the parser of an installed package; small files are not worth the import."""
    if size < 1 << 18:
        return None
    for package, path in _PARSERS:
        try:
            return attrgetter(path)(import_module(package))  # type: ignore[no-any-return]
        except ImportError:
            continue
    return None


#: Faster parsers, the fastest first.
_PARSERS = (("orjson", "loads"), ("msgspec.json", "decode"))
