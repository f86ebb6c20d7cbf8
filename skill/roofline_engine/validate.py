"""Check an artifact against itself: arithmetic, closed sets, rankings.

The figures of an entry are recomputed by ``assess`` from its bytes, FLOPs, times and the artifact's peaks. A figure passes when
it agrees within the digits it was printed with, since hand-written artifacts round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from .fields import CLOSED_SETS, JSON_TYPES, PEAK_CONFIDENCES, PEAK_SOURCES, STAGES, UNKNOWN_REASONS, ByteModel, Entry
from .ops import op_class
from .peaks import DISPATCH_FLOOR_S, Peaks
from .roofline import (
    COVERAGE_REASONS,
    LATENCY_THRESHOLD,
    MODERATE_BAND,
    NO_NUMBERS,
    SATURATED_BAND,
    SUSPECT_LOW,
    Roof,
    assess,
    headroom,
    route,
    throughput_gain_pct,
    time_saved_pct,
)
from .units import finite, parse_dtype
from .work import Work

_RELATIVE = 2e-3
#: How each recomputed figure follows from the others, and which of them it needs.
_DERIVATIONS = {
    "achieved_bw_bytes_s": ("bytes_est / time", ("bytes_est",)),
    "hbm_util": ("achieved / peak bandwidth", ("bytes_est",)),
    "bytes_upper_bound": ("peak bandwidth x time", ("bytes_est",)),
    "achieved_flops": ("flops_est / time", ("flops_est",)),
    "compute_util": ("achieved / peak FLOP/s", ("flops_est",)),
    "arithmetic_intensity": ("flops_est / bytes_est", ("bytes_est", "flops_est")),
}


def _check_choice(key: str, value: object, allowed: tuple[str, ...]) -> list[str]:
    return [] if value is None or value in allowed else [f"{key} is {value!r}, expected one of {', '.join(allowed)}"]


def _agrees(shown: float, exact: float) -> bool:
    """Within the printed digits of ``shown`` (at most ten), or a thousandth or two of the value."""
    decimals = len(repr(shown).partition(".")[2]) if "e" not in repr(shown) else 10
    return abs(shown - exact) <= 0.5 * 10.0 ** -min(decimals, 10) + _RELATIVE * abs(exact)


class _EntryCheck:
    """One entry, against what ``assess`` gives for its bytes, FLOPs, times and target under the artifact's peaks."""

    def __init__(self, entry: Mapping[str, object], peaks: Mapping[str, object]) -> None:
        self.entry, self.peaks = entry, peaks
        bandwidth, ridge = finite(peaks.get("hbm_bw_bytes_s")), self.value("ridge_point")
        self.rates = self._listed_rates()
        # The compute peak is that of the entry's ridge point, else that of the peaks' table.
        rate = ridge * bandwidth if ridge is not None and bandwidth else next(iter(self.rates), None)
        self.roof = Roof(bandwidth, rate, "matrix.bf16")
        self.exact = self._assess_again()
        shown = (self.value("roofline_pct_raw"), self.value("roofline_pct"))
        self.raw = next((raw for raw in (self.exact.roofline_pct_raw, *shown) if raw is not None), None)

    def value(self, key: str) -> float | None:
        return finite(self.entry.get(key))

    def _listed_rates(self) -> list[float]:
        """What the artifact's peaks list for the entry's dtype, matrix then vector."""
        try:
            row = parse_dtype(self.entry.get("dtype")).peak
        except ValueError:
            return []
        tables = (self.peaks.get("flops"), self.peaks.get("vector"))
        listed = (finite(table.get(row)) for table in tables if isinstance(table, Mapping))
        return [rate for rate in listed if rate is not None]

    def _assess_again(self) -> Entry:
        """Assess the entry's work again, under its roof."""
        rate = self.roof.rate
        dtype = parse_dtype("bf16")  # only a name here: it pairs the work with the one rate
        model = ByteModel("bytes_est", self.value("bytes_est") or 0.0, self.value("flops_est") or 0.0)
        work = Work("", "", (model,), "matrix" if rate else "vector", dtype, dtype, ())
        peaks = Peaks(hbm_bw_bytes_s=self.roof.bandwidth, flops={"bf16": rate} if rate else {}, confidence="high")
        t_ms, unit_ms, launches = self.value("t_ms"), self.value("t_unit_ms"), self.value("launches_per_unit")
        unit_ms = unit_ms if unit_ms is not None else t_ms
        blank = Entry(
            stage="B",
            pct_gpu_time=self.value("pct_gpu_time"),
            t_ms=(t_ms or unit_ms) if unit_ms and unit_ms > 0 else None,
            t_unit_ms=unit_ms,
            launches_per_unit=launches or 1,
        )
        try:
            lowest = SUSPECT_LOW if self.entry.get("suspect") else 0.0  # a short launch may do next to nothing
            exact = assess(blank, work, peaks, target_eff=self.value("target_eff") or 1.0, lowest=lowest)
        except ValueError:  # figures that no arithmetic takes
            return blank
        lacks_bytes = self.value("bytes_est") is None
        return exact._replace(roofline_pct_raw=None, roofline_pct=None, hbm_util=None) if lacks_bytes else exact

    def check(self) -> Iterator[str]:
        for key, allowed in CLOSED_SETS.items():
            if key != "regime":  # the published artifacts describe the regime in words
                yield from _check_choice(key, self.entry.get(key), allowed)
        if self.entry.get("regime") is not None and str(self.entry["regime"]).split()[:1] not in (["decode"], ["prefill"]):
            yield from _check_choice("regime", self.entry["regime"], CLOSED_SETS["regime"])
        share = self.value("pct_gpu_time")
        if share is None or not 0 <= share <= 100.5:
            yield f"pct_gpu_time is {self.entry.get('pct_gpu_time')!r}, expected a percentage"
        yield from self._check_types()
        yield from self._check_figures()
        yield from self._check_ratio()
        yield from self._check_bound()
        yield from self._check_target()
        yield from self._check_speedup()
        yield from self._check_ranges()
        yield from self._check_byte_models()
        yield from self._check_verdict()
        yield from self._check_basis()
        yield from self._check_advice()

    def _check_types(self) -> Iterator[str]:
        """A number that is written as text would pass every comparison that follows."""
        if not isinstance(self.entry.get("name"), str):
            yield "name is missing"
        for key, kind in JSON_TYPES.items():
            value = self.entry.get(key)
            expected = {"number": "a number", "flag": "true or false", "list": "a list"}.get(kind)
            holds = finite(value) is not None if kind == "number" else isinstance(value, bool if kind == "flag" else list)
            if value is not None and expected and not holds:
                yield f"{key} is {value!r:.40}, expected {expected}"

    def _compare(self, key: str, exact: float | None, how: str) -> Iterator[str]:
        shown = self.value(key)
        if shown is not None and exact is not None and not _agrees(shown, exact):
            yield f"{key} is {shown:g}, but {how} gives {exact:.6g}"

    def _check_figures(self) -> Iterator[str]:
        t_ms, launches, ridge = self.value("t_ms"), self.value("launches_per_unit"), self.value("ridge_point")
        if t_ms is not None and launches is not None:
            yield from self._compare("t_unit_ms", t_ms * launches, "t_ms x launches_per_unit")
        for key, (how, needs) in _DERIVATIONS.items():
            if all(self.value(need) is not None for need in needs):
                yield from self._compare(key, getattr(self.exact, key), how)
        listed = [rate / self.roof.bandwidth for rate in self.rates] if self.roof.bandwidth else []
        if ridge is not None and listed and not any(_agrees(ridge, exact) for exact in listed):
            yield f"ridge_point is {ridge:g}, but the peaks of {self.entry.get('dtype')} give {listed[0]:.6g}"
        falsifiable, floor_s = self.entry.get("falsifiable"), (launches or 1) * DISPATCH_FLOOR_S
        if (
            isinstance(falsifiable, bool)
            and self.exact.bytes_est
            and self.roof.bandwidth
            and self.value("flops_est") is not None
        ):
            roof_s = self.roof.time(self.exact.bytes_est, self.exact.flops_est or 0.0)
            if falsifiable is not (roof_s > floor_s) and abs(roof_s / floor_s - 1) > _RELATIVE:
                yield (f"falsifiable is {falsifiable}, but the roof time is {roof_s * 1e6:.3g} us of {floor_s * 1e6:g} us")

    def _check_ratio(self) -> Iterator[str]:
        intensity, ridge = self.value("arithmetic_intensity"), self.value("ridge_point")
        axis, shown = self.entry.get("roof_axis"), self.value("roofline_pct")
        if intensity is not None and ridge is not None:
            exact_axis = "compute" if intensity > ridge else "memory"
            if axis is not None and axis != exact_axis and abs(intensity - ridge) > _RELATIVE * ridge:
                yield f"roof_axis is {axis}, but intensity {intensity:g} against ridge {ridge:g} is {exact_axis}"
        yield from self._compare("hard_limit_speedup", 1 / self.raw if self.raw else None, "1 / roofline_pct")
        how = f"utilization on the {self.exact.roof_axis} axis"
        yield from self._compare("roofline_pct_raw", self.exact.roofline_pct_raw, how)
        if shown is not None and shown > 1:
            yield f"roofline_pct is {shown:g}, expected a fraction of at most 1"
        else:
            yield from self._compare("roofline_pct", self.exact.roofline_pct, how)
        if self.raw is not None and self.raw > 1 + _RELATIVE and not self.entry.get("suspect"):
            yield f"the ratio {self.raw:.4g} is over 1 and suspect is not set"

    def _check_bound(self) -> Iterator[str]:
        shown, exact = self.entry.get("bound_type"), self.exact.bound_type
        utilizations = [value for value in (self.exact.hbm_util, self.exact.compute_util) if value is not None]
        near = any(abs(value - LATENCY_THRESHOLD) < 5e-3 for value in utilizations)
        unclear = len(utilizations) < 2 or self.value("flops_est") is None
        if unclear or near or shown in (None, exact) or exact == "unknown" or self.entry.get("suspect"):
            return
        if self.entry.get("unknown_reason") not in ("dispatch_bound", *COVERAGE_REASONS.values()):
            yield f"bound_type is {shown}, but the utilizations give {exact}"

    def _check_target(self) -> Iterator[str]:
        """Compare a target that is a sustained rate with the rates in the peaks."""
        target, table = self.value("target_eff"), self.peaks.get("sustained")
        if self.entry.get("target_basis") != "sustained" or target is None or not self.roof.rate:
            return
        try:
            axis = f"matrix.{parse_dtype(self.entry.get('dtype')).peak}"
        except ValueError:
            return
        listed = finite(table.get(axis)) if isinstance(table, Mapping) else None
        if listed is None:
            yield f"target_basis is sustained, but peaks.sustained has no {axis}"
        elif not _agrees(target, listed / self.roof.rate):
            yield f"target_eff is {target:g}, but peaks.sustained gives {listed / self.roof.rate:.4g}"

    def _check_speedup(self) -> Iterator[str]:
        target, attainable = self.value("target_eff"), self.value("attainable_speedup")
        share, gain = self.value("pct_gpu_time"), self.value("expected_e2e_gain_pct")
        if attainable is not None and attainable < 1:
            yield f"attainable_speedup is {attainable:g}, expected at least 1"
        if attainable is not None and target and self.raw and self.raw > 0:
            exact, capped = max(1.0, target / self.raw), self.exact.attainable_speedup
            if not _agrees(attainable, exact) and not (capped is not None and _agrees(attainable, capped)):
                yield f"attainable_speedup is {attainable:g}, but target_eff / roofline_pct gives {exact:.4g}"
        if gain is not None and attainable and attainable >= 1 and share is not None:
            exact = time_saved_pct(share, attainable)
            # The speedup is printed rounded, so the gain may differ by what its last digit is worth.
            slack = share * 0.5 * 10.0 ** -min(len(repr(attainable).partition(".")[2]), 10) / attainable**2
            if not _agrees(gain, exact) and abs(gain - exact) > slack + 0.005:
                how = f"pct_gpu_time x (1 - 1/attainable) gives {exact:.4g}{self._other_weight(gain, attainable)}"
                yield f"expected_e2e_gain_pct is {gain:g}, but {how}"
        exact_rate = throughput_gain_pct(gain) if gain is not None else None
        yield from self._compare("expected_throughput_gain_pct", exact_rate, "x/(1-x)")

    def _other_weight(self, gain: float, attainable: float) -> str:
        """Name another share of the entry that the gain was weighted with, where one reproduces it."""
        for key in self.entry:
            share = self.value(key) if key.endswith("_pct") and not key.startswith(("expected", "roofline")) else None
            if share is not None and abs(gain - time_saved_pct(share, attainable)) <= 0.01:
                return f" ({key} gives the {gain:g})"
        return ""

    def _check_ranges(self) -> Iterator[str]:
        for key in ("roofline_pct", "attainable_speedup", "expected_e2e_gain_pct"):
            ends, figure = self.entry.get(key + "_range"), self.value(key)
            if ends is None or figure is None:
                continue
            numbers = [finite(item) for item in ends] if isinstance(ends, list) else []
            low, high = numbers if len(numbers) == 2 else (None, None)
            if key == "roofline_pct" and low is not None and high is not None:
                yield from self._check_one_class(low, high)
            if low is None or high is None or not low - _RELATIVE * abs(low) <= figure <= high + _RELATIVE * abs(high):
                yield f"{key}_range is {ends!r:.60}, expected [low, high] around {figure:g}"

    def _check_byte_models(self) -> Iterator[str]:
        listed = self.entry.get("byte_models")
        models = [model for model in listed if isinstance(model, Mapping)] if isinstance(listed, list) else []
        first = finite(models[0].get("bytes")) if models else None
        nbytes, hbm_util = self.value("bytes_est"), self.exact.hbm_util
        if first is not None and nbytes is not None and not _agrees(first, nbytes):
            yield f"byte_models begins with {first:g} bytes, but bytes_est is {nbytes:g}"
        for model in models:
            size = finite(model.get("bytes"))
            share = size / nbytes * hbm_util if size is not None and nbytes and hbm_util is not None else None
            if share is not None and abs(share - 1) > _RELATIVE and model.get("feasible") not in (None, share <= 1):
                yield f"byte model {model.get('model')} is {share:.3g} of the roof, feasible says otherwise"

    def _check_one_class(self, low: float, high: float) -> Iterator[str]:
        verdict, target = self.entry.get("headroom_class"), self.value("target_eff")
        if verdict in (None, "unknown") or not target or any(_is_near_band(end, target) for end in (low, high)):
            return
        ends = headroom(low, target), headroom(high, target)
        if ends[0] != ends[1]:
            yield f"headroom_class is {verdict}, but the range runs from {ends[0]} to {ends[1]}, expected unknown"

    def _check_verdict(self) -> Iterator[str]:
        target, t_ms = self.value("target_eff"), self.value("t_ms")
        verdict, reason = self.entry.get("headroom_class"), self.entry.get("unknown_reason")
        known = verdict not in (None, "unknown")
        if known:
            for wrong, why in (
                (self.entry.get("confidence") == "low", "at low confidence"),
                (bool(self.entry.get("suspect")), "on a suspect ratio"),
                (self.entry.get("modeled") is False, "without a model"),
                (t_ms is not None and t_ms / 1e3 <= DISPATCH_FLOOR_S, "within the dispatch floor"),
                (reason is not None, f"next to unknown_reason {reason}"),
            ):
                if wrong:
                    yield f"headroom_class is {verdict} {why}, expected unknown"
            exact = headroom(self.raw, target) if target and self.raw else verdict
            if exact != verdict and target and self.raw and not _is_near_band(self.raw, target):
                yield f"headroom_class is {verdict}, but {self.raw:.3g} against {target:g} is {exact}"
        elif verdict == "unknown" and "unknown_reason" in self.entry and reason is None:
            yield "headroom_class is unknown without an unknown_reason"
        first = UNKNOWN_REASONS.index("dispatch_bound")
        if t_ms is not None and 0 < t_ms / 1e3 <= DISPATCH_FLOOR_S and reason in UNKNOWN_REASONS[first + 1 :]:
            yield f"unknown_reason is {reason}, but one launch is within the dispatch floor: dispatch_bound comes first"
        if self.entry.get("rankable", known) is not known:
            yield f"rankable is {self.entry['rankable']} with headroom_class {verdict}"
        possible = self.raw is not None and SUSPECT_LOW <= self.raw <= 1 - _RELATIVE and (self.value("bytes_est") or 0) > 0
        if self.entry.get("suspect") and possible:
            yield f"suspect, but {self.raw:.4g} of the roof is possible"
        if reason in NO_NUMBERS:
            for key in ("attainable_speedup", "expected_e2e_gain_pct"):
                if self.value(key) is not None:
                    yield f"{key} is {self.value(key):g} although {reason}, expected null"

    def _check_basis(self) -> Iterator[str]:
        stage, confidence, basis = (self.entry.get(key) for key in ("stage", "confidence", "measurement_basis"))
        allowed = {"A": ("low",), "B": ("low", "medium"), "C": ("low", "high")}.get(str(stage))
        if allowed and confidence not in (None, *allowed):
            yield f"confidence is {confidence} at stage {stage}, expected {' or '.join(allowed)}"
        if stage in ("A", "B") and basis not in (None, "model"):
            yield f"measurement_basis is {basis} at stage {stage}, expected model"
        if stage == "C" and basis == "model":
            yield "measurement_basis is model at stage C, expected mixed or counters"
        low_everywhere = self.peaks.get("confidence") == "low" and not self.peaks.get("low_confidence_axes")
        if allowed and low_everywhere and confidence != "low":
            yield f"confidence is {confidence} although the peaks are low"
        op, shown = self.entry.get("op"), self.entry.get("op_class")
        exact = op_class(op) if isinstance(op, str) else "unknown"
        if exact != "unknown" and shown not in (None, exact):
            yield f"op_class is {shown}, but {op} is {exact}"

    def _check_advice(self) -> Iterator[str]:
        verdict, bound, share = self.entry.get("headroom_class"), self.entry.get("bound_type"), self.value("pct_gpu_time")
        editable = self.entry.get("editable")
        if "route" in self.entry and isinstance(verdict, str) and isinstance(bound, str) and share is not None:
            exact = route(
                Entry(
                    headroom_class=verdict, bound_type=bound, pct_gpu_time=share, editable=False if editable is False else None
                )
            )
            if self.entry["route"] != exact:
                yield f"route is {self.entry['route']}, but class, bound and share give {exact}"
        if self.entry.get("byte_reduction_levers") and "unknown_reason" in self.entry and verdict != "saturated":
            yield "byte_reduction_levers on an entry that is not saturated"
        if self.entry.get("host_side_levers") and editable is not False:
            yield "host_side_levers on an entry that is editable"


def _is_near_band(raw: float, target: float) -> bool:
    """Whether rounding alone could have moved the class."""
    return any(abs(raw / (band * target) - 1) < _RELATIVE for band in (MODERATE_BAND, SATURATED_BAND))


def validate(document: object) -> list[str]:
    """Return one line for each inconsistency of a profile_roofline document; empty when there is none."""
    if not isinstance(document, Mapping):
        return [f"the artifact is {type(document).__name__}, expected an object"]
    keys = ("skill", "skill_version", "peaks", "stage", "entries", "ranking_by_pct", "ranking_by_expected_gain")
    problems = [f"{key} is missing" for key in keys if key not in document]
    if document.get("skill", "roofline") != "roofline":
        problems.append(f"skill is {document['skill']!r:.40}, expected 'roofline'")
    problems += [f"{key} is not a list" for key in ("degraded", "skill_errors") if not isinstance(document.get(key, []), list)]
    peaks = document.get("peaks", {})
    if not isinstance(peaks, Mapping):
        problems.append("peaks is not an object")
        peaks = {}
    problems += [*_check_peaks(peaks), *_check_choice("stage", document.get("stage"), STAGES)]
    entries = document.get("entries")
    if not isinstance(entries, list):
        return [*problems, "entries is not a list"]
    for index, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping):
            problems.append(f"entry {index} is {type(entry).__name__}, expected an object")
            continue
        name = str(entry.get("short_name") or entry.get("name") or "no name")[:60]
        problems += [f"entry {index} ({name}): {line}" for line in _EntryCheck(entry, peaks).check()]
    entries = [entry for entry in entries if isinstance(entry, Mapping)]
    stages = [entry.get("stage", document.get("stage")) for entry in entries]
    lowest = min((stage for stage in stages if stage in STAGES), default=document.get("stage"), key=STAGES.index)
    if lowest != document.get("stage"):
        problems.append(f"stage is {document.get('stage')}, but the lowest of the entries is {lowest}")
    for key in ("ranking_by_pct", "ranking_by_expected_gain"):
        problems += _check_ranking(key, document.get(key), entries)
    return problems + _check_selection(document, entries)


def _check_peaks(peaks: Mapping[str, object]) -> Iterator[str]:
    rates = {f"peaks.{key}": peaks.get(key) for key in ("hbm_bw_bytes_s", "l2_bytes", "mall_bytes")}
    for key in ("flops", "vector"):
        table = peaks.get(key, {})
        if isinstance(table, Mapping):
            rates.update({f"peaks.{key}.{dtype}": rate for dtype, rate in table.items()})
        else:
            yield f"peaks.{key} is {table!r:.40}, expected an object of dtypes"
    for key, value in rates.items():
        if value is not None and (finite(value) or 0.0) <= 0:
            yield f"{key} is {value!r:.40}, expected a number above 0 or null"
    yield from _check_choice("peaks.source", peaks.get("source"), PEAK_SOURCES)
    yield from _check_choice("peaks.confidence", peaks.get("confidence"), PEAK_CONFIDENCES)


def _check_selection(document: Mapping[str, object], entries: list[Mapping[str, object]]) -> list[str]:
    """Report entries under the head, and unmodeled ones that ``degraded`` does not explain."""
    problems = []
    head, degraded = finite(document.get("head_pct")), document.get("degraded")
    items = [item for item in degraded if isinstance(item, Mapping)] if isinstance(degraded, list) else []
    explained = {item["name"] for item in items if isinstance(item.get("name"), str)}
    for index, entry in enumerate(entries, 1):
        share, name = finite(entry.get("pct_gpu_time")), entry.get("name")
        if head is not None and share is not None and share < head:
            problems.append(f"entry {index}: {share:g} % is under the head of {head:g} %, expected to be absent")
        unexplained = isinstance(degraded, list) and not (isinstance(name, str) and name in explained)
        if unexplained and entry.get("modeled") is False and "unknown_reason" in entry:
            problems.append(f"entry {index}: not modeled, and degraded does not say why")
    return problems


def _check_ranking(key: str, listed: object, entries: list[Mapping[str, object]]) -> list[str]:
    if not isinstance(listed, list):
        return [f"{key} is not a list"]
    names = Counter(str(entry.get("name")) for entry in entries)
    shorts = Counter(str(entry.get("short_name")) for entry in entries)
    given = Counter(map(str, listed))
    if given not in (names, shorts):
        missing = [name[:60] for name in (names - given) if name not in given][:3]
        return [f"{key} is not a permutation of the entries" + (f" (missing {', '.join(missing)})" if missing else "")]
    label = "name" if given == names else "short_name"
    best_last: dict[str, list[Mapping[str, object]]] = {}  # rows that share a name take their places in the best order
    for entry in sorted(entries, key=lambda entry: _standing(key, entry), reverse=True):
        best_last.setdefault(str(entry.get(label)), []).append(entry)
    order = [best_last[str(item)].pop() for item in listed]
    standings = [_standing(key, entry) for entry in order]
    if standings == sorted(standings):
        return []
    if key == "ranking_by_pct":
        return [f"{key} is not in the order of pct_gpu_time"]
    if not all("rankable" in entry for entry in order):
        return []  # an artifact from before rankable was a field
    unranked = [is_last for is_last, _ in standings]
    if unranked != sorted(unranked):
        return [f"{key} puts an entry that is not rankable before one that is"]
    return [f"{key} is not in the order of gain, then of pct_gpu_time"]


def _standing(key: str, entry: Mapping[str, object]) -> tuple[bool, float]:
    share = finite(entry.get("pct_gpu_time")) or 0.0
    if key == "ranking_by_pct" or not entry.get("rankable"):
        return key != "ranking_by_pct", -share
    return False, -(finite(entry.get("expected_e2e_gain_pct")) or 0.0)
