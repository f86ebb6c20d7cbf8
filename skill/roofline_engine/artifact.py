"""Writing files whole: a reader sees the old file or the new one, whenever the writer is killed."""

from __future__ import annotations

import json
import math
import os
from functools import lru_cache

ARTIFACT_NAME = "profile_roofline.json"
REPORT_NAME = "profile_roofline.md"


def write_whole(path: str, text: str) -> None:
    """Write ``text`` to a temporary sibling and rename it onto ``path``.

    Raises:
        OSError: when the folder cannot be written, or ``path`` is a directory or a symbolic link, which are not ours.
    """
    if os.path.islink(path) or os.path.isdir(path):
        kind = "symbolic link" if os.path.islink(path) else "directory"
        raise OSError(f"{path} is a {kind}, it is not overwritten")
    temporary = f"{path}.{os.urandom(4).hex()}.tmp"
    try:
        with open(temporary, "x", encoding="utf-8", newline="\n") as handle:
            handle.write(text)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def to_json(document: dict[str, object]) -> str:
    """One JSON document in ASCII, so that no name carries a terminal escape or half a surrogate pair into a pipe.

    A field a line, two levels deep, values on the line. (``indent`` would do more and takes the encoder that is not in C:
    five times the time on a long profile.) A number that JSON cannot hold becomes null rather than an unreadable file.
    """
    try:
        return _fields(document, "") + "\n"
    except ValueError:
        return _fields(_finite(document), "") + "\n"


_encode = json.JSONEncoder(allow_nan=False).encode
#: Parts the items of a list by what no JSON string holds unescaped, so that one call encodes the values of many fields.
_parted = json.JSONEncoder(allow_nan=False, separators=("\n", ": ")).encode


def _fields(value: object, indent: str) -> str:
    """``value`` with a field a line down to the entries' own fields, which stay on their line."""
    inner = indent + " "
    if isinstance(value, dict) and value and len(indent) < 3:
        nested = [(at, item) for at, item in enumerate(value.values()) if isinstance(item, (dict, list))]
        plain = list(value.values())
        for at, _ in nested:
            plain[at] = None
        texts = _split(plain)
        for at, item in nested:
            texts[at] = _fields(item, inner)
        body = f",\n{inner}".join([f"{key}: {text}" for key, text in zip(_keys(tuple(value)), texts)])
        return f"{{\n{inner}{body}\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], dict) and len(indent) < 2:
        return "[\n" + ",\n".join([inner + _fields(item, inner) for item in value]) + f"\n{indent}]"
    return _encode(value)


@lru_cache(maxsize=16)  # every entry has the same keys
def _keys(keys: tuple[object, ...]) -> list[str]:
    return _split([str(key) for key in keys])


def _split(values: list[object]) -> list[str]:
    return _parted(values)[1:-1].split("\n")


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
