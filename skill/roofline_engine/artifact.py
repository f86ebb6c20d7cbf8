"""Writing files whole: a reader sees the old file or the new one, whenever the writer is killed."""

from __future__ import annotations

import json
import math
import os

from .record import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ARTIFACT_NAME = "profile_roofline.json"
REPORT_NAME = "profile_roofline.md"


def write_whole(path: str, content: str | bytes) -> None:
    """Write ``content``, text as UTF-8, to a temporary sibling and rename it onto ``path``.

    Raises:
        OSError: when the folder cannot be written, or ``path`` is a directory or a symbolic link, which are not ours.
    """
    if os.path.islink(path) or os.path.isdir(path):
        kind = "symbolic link" if os.path.islink(path) else "directory"
        raise OSError(f"{path} is a {kind}, it is not overwritten")
    temporary = f"{path}.{os.urandom(4).hex()}.tmp"
    try:
        with open(temporary, "xb") as handle:
            handle.write(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def to_json(document: dict[str, object]) -> str:
    """One JSON document in ASCII, so that no name carries a terminal escape or half a surrogate pair into a pipe.

    Indented, as people read it; with more entries than that, an entry a line: only the encoder without ``indent`` is in C,
    five times as fast. A number that JSON cannot hold becomes null rather than an unreadable file.
    """
    long = any(isinstance(value, list) and len(value) > _INDENTED for value in document.values())
    encode = json.JSONEncoder(allow_nan=False, check_circular=False, indent=None if long else 1).encode  # it has no cycles
    write = _lines if long else _whole
    try:
        return write(document, encode)
    except ValueError:
        return write({key: _finite(value) for key, value in document.items()}, encode)


#: A list of the document is indented up to this length.
_INDENTED = 200


def _whole(document: dict[str, object], encode: Callable[[object], str]) -> str:
    return encode(document) + "\n"


def _lines(document: dict[str, object], encode: Callable[[object], str]) -> str:
    parts: list[str] = []  # joined once: each copy of a long document takes its time and its memory
    for key, value in document.items():
        parts.append(f"{',' if parts else '{'}\n{encode(key)}: ")
        if isinstance(value, list) and value and isinstance(value[0], dict):
            parts.append("[\n")
            for item in value:
                parts += (encode(item), ",\n")
            parts[-1] = "\n]"
        else:
            parts.append(encode(value))
    return "".join((*parts, "\n}\n"))


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
