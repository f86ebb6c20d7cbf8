"""Names of tests and kernels for people: the shortest that tell rows apart, and cuts that keep what differs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from roofline_engine.units import printable

#: The longest name that is shown whole: a C++ template may have thousands of characters.
LONGEST = 120
#: Characters that a name keeps of its beginning, and before the first difference, when only its difference is shown.
_HEAD, _BEFORE = 8, 5
#: Combining marks beyond the third on one letter: no language needs them, and they would cover the line above.
_PILED = re.compile("([\u0300-\u036f]{3})[\u0300-\u036f]+")


def short_name(nodeid: str) -> str:
    """Return a test's own name with its arguments, which may contain ``::``."""
    return _parts(nodeid)[-1]


def row_names(nodeids: Iterable[str]) -> dict[str, str]:
    """Name each row by its test alone; add the class, then the file, then folders where two rows would share a name."""
    names: dict[str, str] = {}
    alike: dict[str, list[str]] = {}
    for nodeid in nodeids:
        alike.setdefault(short_name(nodeid), []).append(nodeid)
    for short, group in alike.items():
        count = 1
        candidates = dict.fromkeys(group, short)
        while len(set(candidates.values())) < len(candidates) and any(candidates[nodeid] != nodeid for nodeid in candidates):
            count += 1
            candidates = {nodeid: _last_parts(nodeid, count) for nodeid in candidates}
        names.update(candidates)
    return names


def _parts(nodeid: str) -> list[str]:
    """Split a nodeid into folders, file, classes and the test with its arguments."""
    path, colons, rest = nodeid.partition("::")
    head, bracket, arguments = (rest if colons else path).partition("[")
    classes = head.split("::")
    return [*(path.split("/") if colons else ()), *classes[:-1], classes[-1] + bracket + arguments]


def _last_parts(nodeid: str, count: int) -> str:
    """Join the last parts of a nodeid again: folders and file by ``/``, classes and test by ``::``."""
    parts = _parts(nodeid)[-count:]
    files = max(0, len(parts) - nodeid.partition("[")[0].count("::"))
    return "::".join([*(["/".join(parts[:files])] if files else ()), *parts[files:]])


def shorten(name: str, longest: int = LONGEST, mark: str = "…") -> str:
    """Escape control characters and replace the middle of a long name with ``mark``."""
    name = printable(name[: 4 * longest] + name[-longest:] if len(name) > 5 * longest else name)
    if not name.isascii():
        name = _PILED.sub(r"\1", name)
    if len(name) <= longest:
        return name
    head = (longest - len(mark)) * 2 // 3
    return f"{name[:head]}{mark}{name[len(name) - (longest - len(mark) - head) :]}"


def distinct_labels(
    names: Iterable[str], longest: int, mark: str = "…", label: Callable[[str], str] | None = None
) -> dict[str, str]:
    """Label each name in at most ``longest`` characters; names whose labels would be equal show the part that differs.

    label: how a name is shortened; ``shorten`` by default.
    """
    labels = {name: label(name) if label is not None else shorten(name, longest, mark) for name in names}
    ends: dict[str, tuple[str, str]] = {}
    for name, text in labels.items():
        first, last = ends.get(text, (name, name))
        ends[text] = min(first, name), max(last, name)
    differs = {text: _common_prefix(*both) for text, both in ends.items() if both[0] != both[1] and mark in text}
    size = longest - _HEAD - 2 * len(mark)
    for name, text in labels.items():
        if text in differs:
            begin = max(_HEAD, min(differs[text] - _BEFORE, len(name) - size))
            part = name[begin : begin + size]
            labels[name] = f"{text[:_HEAD]}{mark}{part}{mark if begin + len(part) < len(name) else ''}"
    return labels


def _common_prefix(one: str, other: str) -> int:
    """Count the characters that two names share at their beginning."""
    return next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
