"""The ``key: value`` lines of gpu-mode's evaluators (POPCORN), times in ns.

``benchmark.0.spec: m: 1024; n: 1536; k: 7168; seed: 1`` with ``benchmark.0.mean``, taken by device events. ``check`` is of the
whole run. A spec names sizes; a dtype is only sometimes among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .row import RecordRow
from .source import RefusedError, Sample, Source
from .values import label, timed, work_of

NAME = "POPCORN lines"

_LINE = re.compile(r"(?m)^(?:benchmark|test)\.(\d{1,9})\.(spec|runs|mean|std|err|best|worst|status|error)\s*:[ \t]*([^\r\n]*)")
_BENCHMARK = re.compile(_LINE.pattern.replace("(?:benchmark|test)", "benchmark").replace("(?m)", ""))
_CHECK = re.compile(r"check\s*:\s*(\w+)\s*")


def matches(sample: Sample) -> bool:
    """Lines of numbered benchmarks or tests."""
    return _LINE.search(sample.text) is not None


def read(source: Source) -> Iterator[RecordRow]:
    """A row per benchmark.

    Raises:
        RefusedError: where there is none.
    """
    runs: dict[int, dict[str, str]] = {}
    passed: bool | None = None
    for line in source.text().split("\n"):
        found, check = _BENCHMARK.match(line), _CHECK.fullmatch(line)
        if found:
            runs.setdefault(int(found[1]), {})[found[2]] = found[3].strip()
        elif check:
            passed = {"pass": True, "fail": False}.get(check[1].lower())
    if not runs:
        raise RefusedError(f"{source.label}: no benchmark lines; tests have no times")
    for at, run in sorted(runs.items()):
        yield _row(run, f"benchmark.{at}", passed)


def _row(run: Mapping[str, str], where: str, passed: bool | None) -> RecordRow:
    spec = run.get("spec", "")
    name = label(spec)
    if run.get("status", "pass").lower() == "fail" or "error" in run:
        return RecordRow(
            row=where, name=name, correct=False, refused=f"it failed: {label(run.get('error')) or 'no reason given'}"
        )
    work, why = work_of(_params(spec))
    runs = run.get("runs", "")
    return timed(
        where,
        _figure(run.get("mean")),
        f"{where}.mean",
        "ns",
        name=name,
        work=work,
        no_work=why,
        clock="device-event",
        rounds=int(runs) if re.fullmatch(r"[1-9]\d{0,8}", runs) else None,
        correct=passed,
        notes=("a mean",),
    )


def _params(spec: str) -> dict[str, Any]:
    """``m: 1024; n: 1536`` as a mapping."""
    pairs = (part.partition(":") for part in spec.split(";"))
    return {key.strip(): _figure(value.strip()) for key, colon, value in pairs if colon}


def _figure(text: str | None) -> Any:
    """The number that a text is, or the text."""
    if text is None or "_" in text:
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
