"""A row as JUnit properties: flat names, strings, six significant digits, since rates span six decades."""

from __future__ import annotations

from ..row import Row

_FIELDS = (
    "op",
    "dtype",
    "bytes_est",
    "flops_est",
    "t_unit_ms",
    "roofline_pct",
    "bound_type",
    "attainable_speedup",
    "headroom_class",
    "unknown_reason",
    "confidence",
    "measurement_basis",
)


def properties(row: Row) -> list[tuple[str, str]]:
    """``roofline_<field>`` of a row; what is not known is left out, and of an impossible ratio the 1 that it is clamped to."""
    fields = ["roofline_pct_raw" if name == "roofline_pct" and row.entry.suspect else name for name in _FIELDS]
    found = [(f"roofline_{name.removeprefix('roofline_')}", getattr(row.entry, name)) for name in fields]
    found += [
        ("roofline_device", row.device),
        ("roofline_work", row.work_source),
        ("roofline_speedup", row.check.speedup),
        ("roofline_check", row.check.status),
    ]
    return [
        (key, format(value, ".6g") if isinstance(value, float) else str(value)) for key, value in found if value is not None
    ]
