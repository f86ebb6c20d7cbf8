"""Checks an artifact against itself: arithmetic, closed sets, rankings. It recomputes from bytes, FLOPs, times and peaks.

A figure passes when it agrees within the digits it was printed with, since hand-written artifacts round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from .entry import PEAK_CONFIDENCES, PEAK_SOURCES, STAGES
from .validate_entry import EntryCheck, closed, plain


def validate(document: object) -> list[str]:
    """One line for each inconsistency of a profile_roofline document; empty when there is none."""
    if not isinstance(document, Mapping):
        return [f"the artifact is {type(document).__name__}, expected an object"]
    found: list[str] = []
    for key in ("skill", "skill_version", "peaks", "stage", "entries", "ranking_by_pct", "ranking_by_expected_gain"):
        if key not in document:
            found.append(f"{key} is missing")
    if document.get("skill", "roofline") != "roofline":
        found.append(f"skill is {document['skill']!r:.40}, expected 'roofline'")
    for key in ("degraded", "skill_errors"):
        if not isinstance(document.get(key, []), list):
            found.append(f"{key} is not a list")
    peaks = document.get("peaks", {})
    if not isinstance(peaks, Mapping):
        found.append("peaks is not an object")
        peaks = {}
    for key, value in peaks.items():
        if key in ("hbm_bw_bytes_s", "l2_bytes", "mall_bytes"):
            _rate(found, f"peaks.{key}", value)
        elif key in ("flops", "vector"):
            if not isinstance(value, Mapping):
                found.append(f"peaks.{key} is {value!r:.40}, expected an object of dtypes")
            else:
                for dtype, rate in value.items():
                    _rate(found, f"peaks.{key}.{dtype}", rate)
    closed(found, "peaks.source", peaks.get("source"), PEAK_SOURCES)
    closed(found, "peaks.confidence", peaks.get("confidence"), PEAK_CONFIDENCES)
    closed(found, "stage", document.get("stage"), STAGES)
    entries = document.get("entries")
    if not isinstance(entries, list):
        return [*found, "entries is not a list"]
    for index, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping):
            found.append(f"entry {index} is {type(entry).__name__}, expected an object")
            continue
        name = str(entry.get("short_name") or entry.get("name") or "no name")[:60]
        found += [f"entry {index} ({name}): {line}" for line in EntryCheck(entry, peaks).check()]
    entries = [entry for entry in entries if isinstance(entry, Mapping)]
    stages = [entry.get("stage", document.get("stage")) for entry in entries]
    lowest = min((stage for stage in stages if stage in STAGES), default=document.get("stage"), key=STAGES.index)
    if lowest != document.get("stage"):
        found.append(f"stage is {document.get('stage')}, but the lowest of the entries is {lowest}")
    for key in ("ranking_by_pct", "ranking_by_expected_gain"):
        found += _ranking(key, document.get(key), entries)
    return found + _selection(document, entries)


def _rate(found: list[str], what: str, value: object) -> None:
    rate = plain(value)
    if value is not None and (rate is None or rate <= 0):
        found.append(f"{what} is {value!r:.40}, expected a number above 0 or null")


def _selection(document: Mapping[str, object], entries: list[Mapping[str, object]]) -> list[str]:
    """Entries under the head, and unmodelled ones that ``degraded`` does not explain."""
    found = []
    head, degraded = plain(document.get("head_pct")), document.get("degraded")
    explained = [item.get("name") for item in degraded if isinstance(item, Mapping)] if isinstance(degraded, list) else None
    for index, entry in enumerate(entries, 1):
        share = plain(entry.get("pct_gpu_time"))
        if head is not None and share is not None and share < head:
            found.append(f"entry {index}: {share:g} % is under the head of {head:g} %, expected to be absent")
        silent = explained is not None and entry.get("name") not in explained
        if silent and entry.get("modeled") is False and "unknown_reason" in entry:
            found.append(f"entry {index}: not modelled, and degraded does not say why")
    return found


def _ranking(key: str, listed: object, entries: list[Mapping[str, object]]) -> list[str]:
    if not isinstance(listed, list):
        return [f"{key} is not a list"]
    names = Counter(str(entry.get("name")) for entry in entries)
    shorts = Counter(str(entry.get("short_name")) for entry in entries)
    given = Counter(str(item) for item in listed)
    if given not in (names, shorts):
        missing = [name[:60] for name in (names - given) if name not in given][:3]
        return [f"{key} is no permutation of the entries" + (f" (missing {', '.join(missing)})" if missing else "")]
    label = "name" if given == names else "short_name"
    best_first = sorted(entries, key=lambda entry: _standing(key, entry))
    order = []
    for item in listed:  # rows that share a name take their places in the best order
        entry = next(entry for entry in best_first if str(entry.get(label)) == str(item))
        best_first = [other for other in best_first if other is not entry]
        order.append(entry)
    if key == "ranking_by_pct":
        values = [plain(entry.get("pct_gpu_time")) or 0.0 for entry in order]
        return [] if values == sorted(values, reverse=True) else [f"{key} is not in the order of pct_gpu_time"]
    if not all("rankable" in entry for entry in order):
        return []  # an artifact from before rankable was a field
    rankable = [bool(entry["rankable"]) for entry in order]
    if rankable != sorted(rankable, reverse=True):
        return [f"{key} puts an entry that is not rankable before one that is"]
    gains = [plain(entry.get("expected_e2e_gain_pct")) or 0.0 for entry in order if entry["rankable"]]
    shares = [plain(entry.get("pct_gpu_time")) or 0.0 for entry in order if not entry["rankable"]]
    if gains != sorted(gains, reverse=True) or shares != sorted(shares, reverse=True):
        return [f"{key} is not in the order of gain, then of pct_gpu_time"]
    return []


def _standing(key: str, entry: Mapping[str, object]) -> tuple[bool, float]:
    share = plain(entry.get("pct_gpu_time")) or 0.0
    if key == "ranking_by_pct" or not entry.get("rankable"):
        return key != "ranking_by_pct", -share
    return False, -(plain(entry.get("expected_e2e_gain_pct")) or 0.0)
