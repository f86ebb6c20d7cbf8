"""Writing files whole: a reader sees the old file or the new one, whenever the writer is killed."""

from __future__ import annotations

import json
import math
import os

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
#: What the encoder writes for these, at a tenth of the cost of starting it; a finite float it writes as repr does.
_WORDS = {None: "null", True: "true", False: "false"}


def _fields(value: object, indent: str) -> str:
    """``value`` with a field a line down to the entries' own fields, which stay on their line."""
    if isinstance(value, float) and value - value == 0:
        return repr(value)
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    inner = indent + " "
    if isinstance(value, dict) and value and len(indent) < 3:
        body = [f"{inner}{_encode(str(key))}: {_fields(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(body) + f"\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], dict) and len(indent) < 2:
        return "[\n" + ",\n".join([inner + _fields(item, inner) for item in value]) + f"\n{indent}]"
    return _encode(value)


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
