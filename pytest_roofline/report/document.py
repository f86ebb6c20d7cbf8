"""One run's rows as one document, and a row as JUnit properties."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from roofline_engine.fields import STAGES
from roofline_engine.peaks import CPU
from roofline_engine.units import printable, quantity

from ..baselines import Predictions, this_machine
from ..config import Settings
from ..devices import AUTO, Devices
from ..gate import Summary
from ..row import REPORT_SCHEMA, Row
from .columns import row_names


class Document:
    """The rows of a run in their order, the peaks of their devices, and the problems of the run."""

    def __init__(self, settings: Settings, predictions: Predictions | None, *, prefix: str = "--roofline-") -> None:
        self.settings, self.predictions, self.prefix = settings, predictions, prefix  # prefix of the names of options
        self.problems: list[str] = []
        self.devices: dict[str, dict[str, Any]] = {}
        self._gate: Summary | None = None
        self.written: list[str] = []  # paths of reports
        self._rows: dict[str, Row] = {}  # by nodeid
        self._names: dict[str, str] | None = None  # by nodeid
        self._nodeids: dict[str, list[str]] = {}  # of the rows of each test
        self.rowless: dict[str, None] = {}  # tests that passed without a row

    @property
    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def add(self, rows: Iterable[Row], problems: Iterable[str], devices: Mapping[str, dict[str, Any]], test: str = "") -> None:
        """Add the rows of one test. ``test``: its nodeid, for ``forget``."""
        by_nodeid = {row.nodeid: row for row in rows}
        self._rows.update(by_nodeid)
        self._nodeids[test] = list(by_nodeid)
        self._names = self._gate = None
        self.problems += problems
        self.devices.update(devices)

    @property
    def gate(self) -> Summary:
        """What the gates decided on the rows so far."""
        if self._gate is None:
            self._gate = Summary(self.settings.gates, self.prefix)
            for row in self.rows:
                self._gate.add(row, self.name(row), row.gates)
        return self._gate

    def name(self, row: Row) -> str:
        """Return the shortest name that tells a row from the others."""
        if self._names is None:
            self._names = {nodeid: printable(name) for nodeid, name in row_names(self._rows).items()}
        return self._names[row.nodeid]

    def forget(self, nodeid: str) -> None:
        """Drop the rows of a test that starts again."""
        for name in self._nodeids.pop(nodeid, ()):
            self._rows.pop(name, None)
        self.rowless.pop(nodeid, None)
        self._names = self._gate = None

    def by_share(self) -> list[Row]:
        """Sort the rows by share of GPU time, where a prediction gives one, then by time."""
        return sorted(self.rows, key=lambda row: (-(row.entry.pct_gpu_time or 0.0), -(row.entry.t_unit_ms or 0.0)))

    def by_gain(self) -> list[Row]:
        """Sort rankable rows by expected gain end to end, else by their own attainable speedup; then the others."""

        def key(row: Row) -> tuple[int, float]:
            entry = row.entry
            if not entry.rankable:
                return 2, 0.0
            if entry.expected_e2e_gain_pct is not None:
                return 0, -entry.expected_e2e_gain_pct
            return 1, -(entry.attainable_speedup or 0.0)

        return sorted(self.by_share(), key=key)

    def unmatched(self) -> tuple[list[str], list[str]]:
        """Return the predictions without a test, and the measured tests without a prediction."""
        if self.predictions is None:
            return [], []
        used = {row.prediction.kernel for row in self.rows if row.prediction is not None}
        kernels = [kernel for entry in self.predictions.entries if (kernel := entry.prediction.kernel) not in used]
        return kernels, [row.nodeid for row in self.rows if row.prediction is None and row.measurement is not None]

    def header(self, devices: Devices) -> str:
        """Describe the device, the noise and the gates, as far as they are known before the first row."""
        chosen = self.settings.device
        peaks = devices.resolved.get(chosen)
        parts = [printable(chosen)]
        if peaks is not None and peaks.hbm_bw_bytes_s:
            best = [f"{dtype} {quantity(peaks.flops[dtype], 'FLOP/s')}" for dtype in ("bf16", "fp8") if dtype in peaks.flops]
            parts = [printable(peaks.product or chosen), quantity(peaks.hbm_bw_bytes_s, "B/s"), *best]
            parts.append(f"peaks: {peaks.source}, {peaks.confidence} confidence")
        elif chosen in (AUTO, CPU):
            parts = [f"device {chosen}"]
        if self.settings.baseline is not None:
            parts.append(f"baseline {printable(self.settings.baseline.name)}")
        gates = sorted(self.settings.fail_on)
        gates += [f"under {self.settings.fail_under:g} %"] if self.settings.fail_under is not None else []
        return ", ".join([*parts, f"noise {self.settings.noise:.1%}", *([f"fails on {', '.join(gates)}"] if gates else [])])

    def summary(self) -> dict[str, Any]:
        """Return what goes to the top level of a pytest-benchmark JSON."""
        counts = Counter(row.check.status for row in self.rows)
        return {"schema": REPORT_SCHEMA, "peaks": self._peaks(), "rows": len(self.rows), "check": dict(counts)}

    def _peaks(self) -> dict[str, Any] | None:
        return next(iter(self.devices.values()), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the report, ``roofline-report/1``."""
        rows = self.rows
        peaks = self._peaks()
        kernels, tests = self.unmatched()
        return {
            "schema": REPORT_SCHEMA,
            "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "version": importlib.metadata.version("pytest-roofline"),
            "machine": this_machine(),
            "gfx": peaks["gfx"] if peaks else None,
            "peaks": peaks,
            "devices": self.devices,
            "stage": min((row.entry.stage for row in rows), key=STAGES.index, default="A"),
            "noise": self.settings.noise,
            "gate": self.gate.to_dict() if self.gate.is_needed else None,
            "entries": [row.to_dict() for row in rows],
            "ranking_by_pct": [row.nodeid for row in self.by_share()],
            "ranking_by_expected_gain": [row.nodeid for row in self.by_gain()],
            "unmatched_predictions": kernels,
            "unmatched_tests": tests,
            "degraded": [{"name": row.nodeid, "reason": row.reason} for row in rows if not row.entry.modeled],
            "skill_errors": self.problems,
        }


_JUNIT_FIELDS = (
    *("op", "dtype", "bytes_est", "flops_est", "t_unit_ms", "roofline_pct", "bound_type", "attainable_speedup"),
    *("headroom_class", "unknown_reason", "confidence", "measurement_basis"),
)


def properties(row: Row) -> list[tuple[str, str]]:
    """Return the JUnit properties ``roofline_<field>`` of a row. Unknown fields are left out.

    An impossible ratio is given as ``roofline_pct_raw``: ``roofline_pct`` is clamped to 1.
    """
    fields = ["roofline_pct_raw" if name == "roofline_pct" and row.entry.suspect else name for name in _JUNIT_FIELDS]
    values = {f"roofline_{name.removeprefix('roofline_')}": getattr(row.entry, name) for name in fields}
    values |= {
        "roofline_device": row.device,
        "roofline_work": row.work_source,
        "roofline_speedup": row.check.speedup,
        "roofline_check": row.check.status,
    }
    return [
        (key, f"{value:.6g}" if isinstance(value, float) else str(value)) for key, value in values.items() if value is not None
    ]
