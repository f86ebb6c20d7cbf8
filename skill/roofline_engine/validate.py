"""Checks an artifact against itself: arithmetic, closed sets, rankings. It recomputes from bytes, FLOPs, times and peaks.

A figure passes when it agrees within the digits it was printed with, since hand-written artifacts round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from .entry import CLOSED_SETS, PEAK_CONFIDENCES, PEAK_SOURCES, STAGES
from .metrics import DISPATCH_FLOOR_S, LATENCY_THRESHOLD, MODERATE_BAND, SATURATED_BAND, headroom, time_saved_pct
from .units import number

_RELATIVE = 2e-3


def validate(document: object) -> list[str]:
    """One line for each inconsistency of a profile_roofline document; empty when there is none."""
    if not isinstance(document, Mapping):
        return [f"the artifact is {type(document).__name__}, expected an object"]
    found: list[str] = []
    for key in ("skill", "skill_version", "peaks", "stage", "entries", "ranking_by_pct", "ranking_by_expected_gain"):
        if key not in document:
            found.append(f"{key} is missing")
    peaks = document.get("peaks")
    peaks = peaks if isinstance(peaks, Mapping) else {}
    _closed(found, "peaks.source", peaks.get("source"), PEAK_SOURCES)
    _closed(found, "peaks.confidence", peaks.get("confidence"), PEAK_CONFIDENCES)
    _closed(found, "stage", document.get("stage"), STAGES)
    entries = document.get("entries")
    if not isinstance(entries, list):
        return [*found, "entries is not a list"]
    for index, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping):
            found.append(f"entry {index} is {type(entry).__name__}, expected an object")
            continue
        name = str(entry.get("short_name") or entry.get("name") or "no name")[:60]
        found += [f"entry {index} ({name}): {line}" for line in _Entry(entry, peaks).check()]
    entries = [entry for entry in entries if isinstance(entry, Mapping)]
    stages = [entry.get("stage", document.get("stage")) for entry in entries]
    lowest = min((stage for stage in stages if stage in STAGES), default=document.get("stage"), key=STAGES.index)
    if lowest != document.get("stage"):
        found.append(f"stage is {document.get('stage')}, but the lowest of the entries is {lowest}")
    for key in ("ranking_by_pct", "ranking_by_expected_gain"):
        found += _ranking(key, document.get(key), entries)
    return found


def _closed(found: list[str], key: str, value: object, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        found.append(f"{key} is {value!r}, expected one of {', '.join(allowed)}")


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
        values = [_plain(entry.get("pct_gpu_time")) or 0.0 for entry in order]
        return [] if values == sorted(values, reverse=True) else [f"{key} is not in the order of pct_gpu_time"]
    if not all("rankable" in entry for entry in order):
        return []  # an artifact from before rankable was a field
    rankable = [bool(entry["rankable"]) for entry in order]
    if rankable != sorted(rankable, reverse=True):
        return [f"{key} puts an entry that is not rankable before one that is"]
    gains = [_plain(entry.get("expected_e2e_gain_pct")) or 0.0 for entry in order if entry["rankable"]]
    shares = [_plain(entry.get("pct_gpu_time")) or 0.0 for entry in order if not entry["rankable"]]
    if gains != sorted(gains, reverse=True) or shares != sorted(shares, reverse=True):
        return [f"{key} is not in the order of gain, then of pct_gpu_time"]
    return []


def _standing(key: str, entry: Mapping[str, object]) -> tuple[bool, float]:
    share = _plain(entry.get("pct_gpu_time")) or 0.0
    if key == "ranking_by_pct" or not entry.get("rankable"):
        return key != "ranking_by_pct", -share
    return False, -(_plain(entry.get("expected_e2e_gain_pct")) or 0.0)


def _plain(value: object) -> float | None:
    """A number of the artifact, or None."""
    if isinstance(value, str):
        return None
    try:
        return float(number(value, "value"))
    except ValueError:
        return None


def _agrees(shown: float, exact: float) -> bool:
    """Within the printed digits of ``shown`` (at most ten), or a thousandth or two of the value."""
    decimals = len(repr(shown).partition(".")[2]) if "e" not in repr(shown) else 10
    return abs(shown - exact) <= 0.5 * 10.0 ** -min(decimals, 10) + _RELATIVE * abs(exact)


class _Entry:
    """One entry and the peaks it is judged by."""

    def __init__(self, entry: Mapping[str, object], peaks: Mapping[str, object]) -> None:
        self.entry, self.found = entry, []  # type: Mapping[str, object], list[str]
        self.bandwidth = _plain(peaks.get("hbm_bw_bytes_s"))
        self.flops = self._peak_flops(peaks)

    def value(self, key: str) -> float | None:
        return _plain(self.entry.get(key))

    def _peak_flops(self, peaks: Mapping[str, object]) -> float | None:
        """The dtype's peak by the ridge point where it is given, else by the peaks' table."""
        ridge = self.value("ridge_point")
        if ridge is not None and self.bandwidth:
            return ridge * self.bandwidth
        rates = peaks.get("flops")
        return _plain(rates.get(self.entry.get("dtype"))) if isinstance(rates, Mapping) else None

    def check(self) -> list[str]:
        for key, allowed in CLOSED_SETS.items():
            if key != "regime":  # the published artifacts describe the regime in words
                _closed(self.found, key, self.entry.get(key), allowed)
        if self.entry.get("regime") is not None and str(self.entry["regime"]).split()[:1] not in (["decode"], ["prefill"]):
            _closed(self.found, "regime", self.entry["regime"], CLOSED_SETS["regime"])
        share = self.value("pct_gpu_time")
        if share is None or not 0 <= share <= 100.5:
            self.found.append(f"pct_gpu_time is {self.entry.get('pct_gpu_time')!r}, expected a percentage")
        self._rates()
        self._ratio()
        self._verdict()
        return self.found

    def _same(self, key: str, exact: float | None, how: str) -> None:
        shown = self.value(key)
        if shown is not None and exact is not None and not _agrees(shown, exact):
            self.found.append(f"{key} is {shown:g}, but {how} gives {exact:.6g}")

    def _rates(self) -> None:
        t_ms, launches = self.value("t_ms"), self.value("launches_per_unit")
        unit = self.value("t_unit_ms")
        if unit is not None and t_ms is not None and launches is not None:
            self._same("t_unit_ms", t_ms * launches, "t_ms x launches_per_unit")
        t_s = (unit if unit is not None else t_ms or 0.0) / 1e3
        nbytes, flops = self.value("bytes_est"), self.value("flops_est")
        self.bw = self.rate = self.hbm_util = self.compute_util = None  # type: float | None
        if t_s > 0 and nbytes is not None:
            self.bw = nbytes / t_s
            self._same("achieved_bw_bytes_s", self.bw, "bytes_est / time")
            if self.bandwidth:
                self.hbm_util = self.bw / self.bandwidth
                self._same("hbm_util", self.hbm_util, "achieved / peak bandwidth")
                self._same("bytes_upper_bound", self.bandwidth * t_s, "peak bandwidth x time")
        if t_s > 0 and flops is not None:
            self.rate = flops / t_s
            self._same("achieved_flops", self.rate, "flops_est / time")
            if self.flops:
                self.compute_util = self.rate / self.flops
                self._same("compute_util", self.compute_util, "achieved / peak FLOP/s")
        if nbytes and flops is not None:
            self._same("arithmetic_intensity", flops / nbytes, "flops_est / bytes_est")

    def _ratio(self) -> None:
        intensity, ridge = self.value("arithmetic_intensity"), self.value("ridge_point")
        self.axis = self.entry.get("roof_axis")
        if intensity is not None and ridge is not None:
            axis = "compute" if intensity > ridge else "memory"
            if self.axis is not None and self.axis != axis and abs(intensity / ridge - 1) > _RELATIVE:
                self.found.append(f"roof_axis is {self.axis}, but intensity {intensity:g} against ridge {ridge:g} is {axis}")
            self.axis = self.axis or axis
        exact = self.compute_util if self.axis == "compute" else self.hbm_util
        raw = self.value("roofline_pct_raw")
        self._same("roofline_pct_raw", exact, f"utilisation on the {self.axis} axis")
        shown = self.value("roofline_pct")
        self.raw = exact if exact is not None else raw if raw is not None else shown
        if shown is not None and shown > 1:
            self.found.append(f"roofline_pct is {shown:g}, expected a fraction of at most 1")
        elif exact is not None:
            self._same("roofline_pct", min(exact, 1.0), f"utilisation on the {self.axis} axis")
        if self.raw is not None and self.raw > 1 + _RELATIVE and not self.entry.get("suspect"):
            self.found.append(f"the ratio {self.raw:.4g} is over 1 and suspect is not set")
        bound = self.entry.get("bound_type")
        dispatch = self.entry.get("unknown_reason") == "dispatch_bound"
        if self.hbm_util is not None and self.compute_util is not None and not self.entry.get("suspect") and not dispatch:
            near = [value for value in (self.hbm_util, self.compute_util) if abs(value - LATENCY_THRESHOLD) < 5e-3]
            latency = max(self.hbm_util, self.compute_util) < LATENCY_THRESHOLD
            expected = "latency" if latency else self.axis
            if bound not in (None, expected) and not near:
                self.found.append(f"bound_type is {bound}, but the utilisations give {expected}")

    def _verdict(self) -> None:
        target, attainable = self.value("target_eff"), self.value("attainable_speedup")
        share, gain = self.value("pct_gpu_time"), self.value("expected_e2e_gain_pct")
        t_ms = self.value("t_ms")
        if attainable is not None and attainable < 1:
            self.found.append(f"attainable_speedup is {attainable:g}, expected at least 1")
        if attainable is not None and target and self.raw and self.raw > 0:
            exact = max(1.0, target / self.raw)
            cap = t_ms / 1e3 / DISPATCH_FLOOR_S if t_ms else None
            if not _agrees(attainable, exact) and not (cap and cap < exact and _agrees(attainable, max(1.0, cap))):
                self.found.append(f"attainable_speedup is {attainable:g}, but target_eff / roofline_pct gives {exact:.4g}")
        if gain is not None and attainable and attainable >= 1 and share is not None:
            exact = time_saved_pct(share, attainable)
            # The speedup is printed rounded, so the gain may differ by what its last digit is worth.
            slack = share * 0.5 * 10.0 ** -min(len(repr(attainable).partition(".")[2]), 10) / attainable**2
            if not _agrees(gain, exact) and abs(gain - exact) > slack + 0.005:
                self.found.append(f"expected_e2e_gain_pct is {gain:g}, but pct_gpu_time x (1 - 1/attainable) gives {exact:.4g}")
        verdict = self.entry.get("headroom_class")
        if verdict not in (None, "unknown"):
            if self.entry.get("confidence") == "low":
                self.found.append(f"headroom_class is {verdict} at low confidence, expected unknown")
            if self.entry.get("suspect"):
                self.found.append(f"headroom_class is {verdict} on a suspect ratio, expected unknown")
            if self.entry.get("modeled") is False:
                self.found.append(f"headroom_class is {verdict} without a model, expected unknown")
            exact_class = headroom(self.raw, target) if target and self.raw else verdict
            if exact_class != verdict and target and self.raw and not _near_band(self.raw, target):
                self.found.append(f"headroom_class is {verdict}, but {self.raw:.3g} against {target:g} is {exact_class}")
        elif verdict == "unknown" and "unknown_reason" in self.entry and self.entry["unknown_reason"] is None:
            self.found.append("headroom_class is unknown without an unknown_reason")
        if self.entry.get("rankable") and verdict in (None, "unknown"):
            self.found.append("rankable without a headroom_class")


def _near_band(raw: float, target: float) -> bool:
    """Whether rounding alone could have moved the class."""
    return any(abs(raw / (band * target) - 1) < _RELATIVE for band in (MODERATE_BAND, SATURATED_BAND))
