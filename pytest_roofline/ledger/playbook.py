"""Predicted-against-measured lines that agents have written as free text into a playbook.

They stand under a heading such as "Roofline prior calibration (predicted vs measured)", a list item a pair, as in
AMD-AGI/GEAK's e2e_workflow/knowledge/backend_playbook.md. An item is read only when it says one prediction and one
measurement in the words below; any other, and any that calls its own outcome undefined, is left alone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from roofline_engine.fields import BOUND_TYPES, CONFIDENCES
from roofline_engine.kernels import classify

from .pair import Figure, Pair


class Notes(NamedTuple):
    """The pairs that were understood, and the lines on which the other items begin."""

    pairs: tuple[Pair, ...]
    skipped: tuple[int, ...]


_HEADING = re.compile(r"#{1,6}\s.*\bcalibration\b.*\bpredicted\b", re.IGNORECASE)
_ITEM = re.compile(r"[-*+]\s+")
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_RANGE = rf"({_NUMBER}(?:\s*[-\u2013]\s*{_NUMBER})?)"
_SIGNED = rf"([+-]?{_NUMBER})"

_DATE = re.compile(r"\s*([0-9]{4}-[0-9]{2}-[0-9]{2})\b")
_DEVICE = re.compile(r"\b(gfx[0-9]+[0-9a-f]*)\b")
_SAME = re.compile(r"\bsame (?:run|rig)\b", re.IGNORECASE)
_UNDEFINED = re.compile(r"\bundefined\b|\bunresolvable\b|\bnot yet measured\b|\bpending\b|\bneither confirmed\b", re.IGNORECASE)
_MEASURED = re.compile(r"\bmeasured\b", re.IGNORECASE)
_PREDICTED = re.compile(r"\bpredicted\b", re.IGNORECASE)

_ATTAINABLE = re.compile(rf"\battainable(?:_speedup)?[\s=~\u2248]*{_RANGE}")
_PCT = re.compile(rf"\broofline_pct[\s=~\u2248]*{_RANGE}")
_E2E_PREDICTED = re.compile(rf"\bexpected_e2e(?:_gain_pct)?[\s=~\u2248]*{_SIGNED}")
_CONFIDENCE = re.compile(rf"\bconf(?:idence)?:?\s+({'|'.join(CONFIDENCES)})\b", re.IGNORECASE)
_BOUND = re.compile(rf"\bbound(?:_type)?:?\s+({'|'.join(BOUND_TYPES)})\b|\b({'|'.join(BOUND_TYPES)})-bound\b", re.IGNORECASE)
_ISOLATED = re.compile(rf"\b(?:iso(?:lated)?|weighted_speedup)[\s:=~\u2248]*{_RANGE}")
_E2E_MEASURED = re.compile(rf"\be2e[\s:=~\u2248]*([+-]{_NUMBER})\s*%|([+-]{_NUMBER})\s*%\s+e2e\b")
_CODE = re.compile(r"`([^`]+)`")
_FIELD = re.compile(r"(?:attainable|roofline_pct|expected_e2e|bound_type|confidence|headroom)")
_UNIT = re.compile(r"\bpredicted the (.{1,80}?) at\b", re.IGNORECASE)


def parse(text: str, label: str) -> Notes:
    """The pairs in the calibration lists of ``text``; ``label`` names the file in their ``source``."""
    pairs: list[Pair] = []
    skipped: list[int] = []
    device = stack = ""
    for line, item in _items(text):
        found = _device(item)
        device, stack = found if found[0] or not _SAME.search(item) else (device, stack)
        pair = _pair(item, device, stack, f"{label}:{line} (free text)")
        if pair is None:
            skipped.append(line)
        else:
            pairs.append(pair)
    return Notes(tuple(pairs), tuple(skipped))


def _items(text: str) -> list[tuple[int, str]]:
    """The list items under calibration headings: the line each begins on, and its text on one line."""
    items: list[tuple[int, list[str]]] = []
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("#"):
            inside = _HEADING.match(line) is not None
        elif inside and _ITEM.match(line):
            items.append((number, [_ITEM.sub("", line, count=1)]))
        elif inside and items and line[:1].isspace() and line.strip():
            items[-1][1].append(line.strip())
    return [(number, " ".join(lines)) for number, lines in items]


def _device(item: str) -> tuple[str, str]:
    """gfx and the words around it that name the stack: all between the date and the first code span, bracket or colon."""
    found = _DEVICE.search(item)
    if found is None:
        return "", ""
    head = re.split(r"[(`:]|\*\*", item[found.end() :], maxsplit=1)[0]
    return found[1], " ".join(head.strip(" \u00b7,").split())


def _pair(item: str, device: str, stack: str, source: str) -> Pair | None:
    if _UNDEFINED.search(item):
        return None
    first = _MEASURED.search(item)
    if first is None:
        return None
    before, after = item[: first.start()].replace("**", ""), item[first.start() :].replace("**", "")
    plain, result = before.replace("`", ""), after.replace("`", "")
    predicted = _PREDICTED.search(plain)
    if predicted is None:
        return None
    attainable, pct, gain = (_one(form, plain) for form in (_ATTAINABLE, _PCT, _E2E_PREDICTED))
    isolated, end_to_end = _one(_ISOLATED, result), _one(_E2E_MEASURED, result)
    if (attainable is None and gain is None) or (isolated is None and end_to_end is None):
        return None
    date, bound, confidence = _DATE.match(item), _BOUND.search(plain), _CONFIDENCE.search(plain)
    kernel = _kernel(before, plain) or stack or "unnamed"
    try:
        return Pair(
            kernel=kernel,
            op=classify(kernel).op,
            bound_type=(bound[1] or bound[2]).lower() if bound else "unknown",
            device=device,
            stack=stack,
            attainable=attainable,
            predicted_pct=pct,
            predicted_e2e_pct=gain,
            confidence=confidence[1].lower() if confidence else "",
            measured=isolated,
            measured_e2e_pct=end_to_end,
            date=date[1] if date else "",
            source=source,
        )
    except ValueError:
        return None


def _one(form: re.Pattern[str], text: str) -> Figure | None:
    found = form.search(text)
    if found is None:
        return None
    try:
        return Figure.parse(next(group for group in found.groups() if group), "figure")
    except ValueError:
        return None


def _kernel(marked: str, plain: str) -> str:
    """The first code span that is no field of a prediction, else the unit that was predicted."""
    for span in _CODE.findall(marked):
        if not _FIELD.match(span):
            return str(span)
    unit = _UNIT.search(plain)
    return unit[1] if unit else ""
