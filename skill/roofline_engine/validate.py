"""Checks an artifact against itself: arithmetic, closed sets, rankings. It recomputes from bytes, FLOPs, times and peaks.

A figure passes when it agrees within the digits it was printed with, since hand-written artifacts round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from .fields import CLOSED_SETS, JSON_TYPES, PEAK_CONFIDENCES, PEAK_SOURCES, STAGES, Entry
from .ops import op_class
from .peaks import DISPATCH_FLOOR_S
from .roofline import (
    LATENCY_THRESHOLD,
    MODERATE_BAND,
    NO_NUMBERS,
    SATURATED_BAND,
    SUSPECT_LOW,
    headroom,
    route,
    throughput_gain_pct,
    time_saved_pct,
)
from .units import number, parse_dtype


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


_RELATIVE = 2e-3


def closed(found: list[str], key: str, value: object, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        found.append(f"{key} is {value!r}, expected one of {', '.join(allowed)}")


def plain(value: object) -> float | None:
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


class EntryCheck:
    """One entry and the peaks it is judged by."""

    def __init__(self, entry: Mapping[str, object], peaks: Mapping[str, object]) -> None:
        self.entry, self.peaks = entry, peaks
        self.found: list[str] = []
        self.bandwidth = plain(peaks.get("hbm_bw_bytes_s"))
        self.flops = self._peak_flops(peaks)

    def value(self, key: str) -> float | None:
        return plain(self.entry.get(key))

    def _peak_flops(self, peaks: Mapping[str, object]) -> float | None:
        """The dtype's peak by the ridge point where it is given, else by the peaks' table."""
        ridge = self.value("ridge_point")
        if ridge is not None and self.bandwidth:
            return ridge * self.bandwidth
        return next(iter(self._listed_peaks(peaks)), None)

    def _listed_peaks(self, peaks: Mapping[str, object]) -> list[float]:
        """What the artifact's peaks list for the entry's dtype, matrix then vector."""
        try:
            row = parse_dtype(self.entry.get("dtype")).peak
        except ValueError:
            return []
        tables = (peaks.get("flops"), peaks.get("vector"))
        listed = (plain(table.get(row)) for table in tables if isinstance(table, Mapping))
        return [rate for rate in listed if rate is not None]

    def check(self) -> list[str]:
        for key, allowed in CLOSED_SETS.items():
            if key != "regime":  # the published artifacts describe the regime in words
                closed(self.found, key, self.entry.get(key), allowed)
        if self.entry.get("regime") is not None and str(self.entry["regime"]).split()[:1] not in (["decode"], ["prefill"]):
            closed(self.found, "regime", self.entry["regime"], CLOSED_SETS["regime"])
        share = self.value("pct_gpu_time")
        if share is None or not 0 <= share <= 100.5:
            self.found.append(f"pct_gpu_time is {self.entry.get('pct_gpu_time')!r}, expected a percentage")
        self._types()
        self._rates()
        self._ratio()
        self._ridge()
        self._speedup()
        self._ranges()
        self._verdict()
        self._basis()
        self._advice()
        return self.found

    def _types(self) -> None:
        """A number that is written as text would pass every comparison that follows."""
        if not isinstance(self.entry.get("name"), str):
            self.found.append("name is missing")
        for key, kind in JSON_TYPES.items():
            value = self.entry.get(key)
            if value is None:
                continue
            if kind == "number" and plain(value) is None:
                self.found.append(f"{key} is {value!r:.40}, expected a number")
            elif kind == "flag" and not isinstance(value, bool):
                self.found.append(f"{key} is {value!r:.40}, expected true or false")
            elif kind == "list" and not isinstance(value, list):
                self.found.append(f"{key} is {value!r:.40}, expected a list")

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
        claimed = self.entry.get("falsifiable")
        if isinstance(claimed, bool) and nbytes and self.bandwidth and flops is not None:
            roof_s = max(nbytes / self.bandwidth, flops / self.flops if self.flops else 0.0)
            floor_s = (launches or 1) * DISPATCH_FLOOR_S
            if claimed is not (roof_s > floor_s) and abs(roof_s / floor_s - 1) > _RELATIVE:
                self.found.append(
                    f"falsifiable is {claimed}, but the roof time is {roof_s * 1e6:.3g} us of {floor_s * 1e6:g} us"
                )

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

    def _speedup(self) -> None:
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
                weight = self._other_weight(gain, attainable)
                how = f"pct_gpu_time x (1 - 1/attainable) gives {exact:.4g}{weight}"
                self.found.append(f"expected_e2e_gain_pct is {gain:g}, but {how}")
        self._same("hard_limit_speedup", 1 / self.raw if self.raw else None, "1 / roofline_pct")
        self._same("expected_throughput_gain_pct", throughput_gain_pct(gain) if gain is not None else None, "x/(1-x)")

    def _other_weight(self, gain: float, attainable: float) -> str:
        """Names another share of the entry that the gain was weighted with, where one reproduces it."""
        for key in self.entry:
            share = self.value(key) if key.endswith("_pct") and not key.startswith(("expected", "roofline")) else None
            if share is not None and abs(gain - time_saved_pct(share, attainable)) <= 0.01:
                return f" ({key} gives the {gain:g})"
        return ""

    def _ridge(self) -> None:
        ridge = self.value("ridge_point")
        listed = [rate / self.bandwidth for rate in self._listed_peaks(self.peaks)] if self.bandwidth else []
        if ridge is not None and listed and not any(_agrees(ridge, exact) for exact in listed):
            self.found.append(f"ridge_point is {ridge:g}, but the peaks of {self.entry.get('dtype')} give {listed[0]:.6g}")

    def _ranges(self) -> None:
        for key in ("roofline_pct", "attainable_speedup", "expected_e2e_gain_pct"):
            span, figure = self.entry.get(key + "_range"), self.value(key)
            if span is None or figure is None:
                continue
            ends = [plain(item) for item in span] if isinstance(span, list) else []
            low, high = ends if len(ends) == 2 else (None, None)
            if key == "roofline_pct" and low is not None and high is not None:
                self._one_class(low, high)
            if low is None or high is None or not low - _RELATIVE * abs(low) <= figure <= high + _RELATIVE * abs(high):
                self.found.append(f"{key}_range is {span!r:.60}, expected [low, high] around {figure:g}")
        models = self.entry.get("byte_models")
        models = [model for model in models if isinstance(model, Mapping)] if isinstance(models, list) else []
        first = plain(models[0].get("bytes")) if models else None
        nbytes = self.value("bytes_est")
        if first is not None and nbytes is not None and not _agrees(first, nbytes):
            self.found.append(f"byte_models begins with {first:g} bytes, but bytes_est is {nbytes:g}")
        for model in models:
            size = plain(model.get("bytes"))
            share = size / nbytes * self.hbm_util if size is not None and nbytes and self.hbm_util is not None else None
            if share is not None and abs(share - 1) > _RELATIVE and model.get("feasible") not in (None, share <= 1):
                self.found.append(f"byte model {model.get('model')} is {share:.3g} of the roof, feasible says otherwise")

    def _one_class(self, low: float, high: float) -> None:
        verdict, target = self.entry.get("headroom_class"), self.value("target_eff")
        if verdict in (None, "unknown") or not target or any(_near_band(end, target) for end in (low, high)):
            return
        ends = headroom(low, target), headroom(high, target)
        if ends[0] != ends[1]:
            self.found.append(f"headroom_class is {verdict}, but the range runs from {ends[0]} to {ends[1]}, expected unknown")

    def _verdict(self) -> None:
        target, t_ms = self.value("target_eff"), self.value("t_ms")
        verdict, reason = self.entry.get("headroom_class"), self.entry.get("unknown_reason")
        if verdict not in (None, "unknown"):
            for wrong, why in (
                (self.entry.get("confidence") == "low", "at low confidence"),
                (bool(self.entry.get("suspect")), "on a suspect ratio"),
                (self.entry.get("modeled") is False, "without a model"),
                (t_ms is not None and t_ms / 1e3 <= DISPATCH_FLOOR_S, "within the dispatch floor"),
                (reason is not None, f"beside unknown_reason {reason}"),
            ):
                if wrong:
                    self.found.append(f"headroom_class is {verdict} {why}, expected unknown")
            exact_class = headroom(self.raw, target) if target and self.raw else verdict
            if exact_class != verdict and target and self.raw and not _near_band(self.raw, target):
                self.found.append(f"headroom_class is {verdict}, but {self.raw:.3g} against {target:g} is {exact_class}")
        elif verdict == "unknown" and "unknown_reason" in self.entry and reason is None:
            self.found.append("headroom_class is unknown without an unknown_reason")
        known = verdict not in (None, "unknown")
        if self.entry.get("rankable", known) is not known:
            self.found.append(f"rankable is {self.entry['rankable']} with headroom_class {verdict}")
        possible = self.raw is not None and SUSPECT_LOW <= self.raw <= 1 - _RELATIVE and (self.value("bytes_est") or 0) > 0
        if self.entry.get("suspect") and possible:
            self.found.append(f"suspect, but {self.raw:.4g} of the roof is possible")
        if reason in NO_NUMBERS:
            for key in ("attainable_speedup", "expected_e2e_gain_pct"):
                if self.value(key) is not None:
                    self.found.append(f"{key} is {self.value(key):g} although {reason}, expected null")

    def _basis(self) -> None:
        stage, confidence = self.entry.get("stage"), self.entry.get("confidence")
        expected = {"A": ("low",), "B": ("low", "medium"), "C": ("low", "high")}.get(str(stage))
        if expected and confidence not in (None, *expected):
            self.found.append(f"confidence is {confidence} at stage {stage}, expected {' or '.join(expected)}")
        if stage in ("A", "B") and self.entry.get("measurement_basis") not in (None, "model"):
            self.found.append(f"measurement_basis is {self.entry.get('measurement_basis')} at stage {stage}, expected model")
        if stage == "C" and self.entry.get("measurement_basis") == "model":
            self.found.append("measurement_basis is model at stage C, expected mixed or counters")
        low_everywhere = self.peaks.get("confidence") == "low" and not self.peaks.get("low_confidence_axes")
        if expected and low_everywhere and confidence != "low":
            self.found.append(f"confidence is {confidence} although the peaks are low")
        op, named = self.entry.get("op"), self.entry.get("op_class")
        right = op_class(op) if isinstance(op, str) else "unknown"
        if right != "unknown" and named not in (None, right):
            self.found.append(f"op_class is {named}, but {op} is {right}")

    def _advice(self) -> None:
        verdict, bound, share = self.entry.get("headroom_class"), self.entry.get("bound_type"), self.value("pct_gpu_time")
        editable = self.entry.get("editable")
        if "route" in self.entry and isinstance(verdict, str) and isinstance(bound, str) and share is not None:
            known = Entry(
                headroom_class=verdict, bound_type=bound, pct_gpu_time=share, editable=False if editable is False else None
            )
            if self.entry["route"] != route(known):
                self.found.append(f"route is {self.entry['route']}, but class, bound and share give {route(known)}")
        if self.entry.get("byte_reduction_levers") and "unknown_reason" in self.entry and verdict != "saturated":
            self.found.append("byte_reduction_levers on an entry that is not saturated")
        if self.entry.get("host_side_levers") and editable is not False:
            self.found.append("host_side_levers on an entry that is editable")


def _near_band(raw: float, target: float) -> bool:
    """Whether rounding alone could have moved the class."""
    return any(abs(raw / (band * target) - 1) < _RELATIVE for band in (MODERATE_BAND, SATURATED_BAND))
