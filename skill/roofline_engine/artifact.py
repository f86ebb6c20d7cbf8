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


def to_json(document: object) -> str:
    """One JSON document in ASCII, so that no name carries a terminal escape or half a surrogate pair into a pipe.

    A number that JSON cannot hold becomes null rather than an unreadable file.
    """
    try:
        return json.dumps(document, indent=1, allow_nan=False) + "\n"
    except ValueError:
        return json.dumps(_finite(document), indent=1, allow_nan=False) + "\n"


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
