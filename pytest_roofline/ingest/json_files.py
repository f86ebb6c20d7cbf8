"""JSON as other tools write it: parsed within bounds, and told apart by the keys at its start."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from . import RefusedError, Source

#: Keys below this level tell no format apart.
_LEVELS = 4
#: A string, closed or cut off by the end of the sample, with the colon that makes it a key; or a bracket.
_TOKEN = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)(?:"(\s*:)?|\\?\Z)|([{}\[\]])', re.DOTALL)


def document(source: Source) -> Any:
    """The file as one JSON value. NaN and Infinity are read as such: what holds one is refused where it is used.

    Raises:
        RefusedError: one line naming the file and the place.
    """
    return parse(source.text(), source.label)


def benchmarks(source: Source) -> tuple[dict[str, Any], list[Any]]:
    """A document with a list ``benchmarks``, and the list.

    Raises:
        RefusedError: for what is no JSON or has no such list.
    """
    whole = document(source)
    listed = whole.get("benchmarks") if isinstance(whole, dict) else None
    if not isinstance(listed, list):
        raise RefusedError(f"{source.label}: no list 'benchmarks' in it")
    return whole, listed


def parse(text: str, where: str) -> Any:
    """One JSON value.

    Raises:
        RefusedError: for what is no JSON, nested too deep, or holds an integer too long to convert.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise RefusedError(f"{where}: not JSON: line {error.lineno} column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise RefusedError(f"{where}: nested too deep to read") from None
    except ValueError:
        raise RefusedError(f"{where}: not JSON: an integer of thousands of digits") from None


def each_line(source: Source) -> Iterator[tuple[int, Any]]:
    """(line number, value) of JSON lines, one at a time; in place of a value the RefusedError of a line that is no JSON."""
    for number, line in enumerate(source.lines(), 1):
        if line.strip():
            try:
                yield number, parse(line, f"line {number}")
            except RefusedError as error:
                yield number, error


@lru_cache(maxsize=4)
def outline(text: str) -> frozenset[str]:
    """The paths of the keys in the start of a JSON text, such as ``.benchmarks[].stats``; the text may be cut off anywhere."""
    if text.lstrip("\ufeff \t\r\n")[:1] not in ("{", "["):
        return frozenset()
    found: set[str] = set()
    levels: list[str] = []
    value = ""  # the path of the value that comes next
    for token in _TOKEN.finditer(text):
        key, colon, bracket = token.groups()
        if bracket and bracket in "{[":
            value += "[]" if bracket == "[" and len(levels) < _LEVELS else ""
            levels.append(value)
        elif bracket:
            del levels[-1:]
            value = levels[-1] if levels else ""
        elif colon:
            value = levels[-1] if levels else ""
            if len(levels) <= _LEVELS:
                value += "." + key[:80]
                found.add(value)
    return frozenset(found)
