"""A plain table of kernels with ceilings, as JSON, a list of dicts or a data frame, to the model of the figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roofline_engine.entry import FIELDS, HEADROOM_CLASSES
from roofline_engine.units import number, parse_dtype, quantity

from .model import (
    Bandwidth,
    Ceiling,
    Kernel,
    Left,
    Model,
    Roofs,
    aliases,
    counted,
    impossible,
    meaning_of,
    named,
    ranged,
    shortened,
    titled,
)

BASES = ("rated", "measured", "given")
#: Keys of a rate and of a bandwidth, with the factor to FLOP/s and bytes/s.
_RATES = {"flops_s": 1.0, "gflops": 1e9}
_BANDWIDTHS = {"bytes_s": 1.0, "gbs": 1e9}


def model(rows: Sequence[Mapping[str, Any]], roofs: Mapping[str, Any], label: str, title: str | None = None) -> Model:
    """The figure of ``rows`` under ``roofs``, an object with ``ceilings`` and ``bandwidths``.

    A row that cannot be drawn is listed with its reason. label: names the source in messages.

    Raises:
        ValueError: for a roof that cannot be meant, in one line.
    """
    ceilings = tuple(_ceiling(one, f"{label}: ceilings[{at}]") for at, one in _each(roofs, "ceilings", label))
    bandwidths = tuple(_bandwidth(one, f"{label}: bandwidths[{at}]") for at, one in _each(roofs, "bandwidths", label))
    ceilings, bandwidths = tuple(dict.fromkeys(ceilings)), tuple(dict.fromkeys(bandwidths))  # the same limit twice is one
    machine = Roofs(bandwidths, ceilings)
    kernels: list[Kernel] = []
    left: list[Left] = []
    names = [named(row.get("name"), at) if isinstance(row, Mapping) else "" for at, row in enumerate(rows)]
    shown = aliases(names)
    for at, (row, name) in enumerate(zip(rows, names)):
        if not isinstance(row, Mapping):
            left.append(Left(row=at, name=f"row {at + 1}", kind="unusable", why=f"is {type(row).__name__}, not an object"))
            continue
        try:
            found = _kernel(row, at, name, machine, shown.get(name, ""))
        except ValueError as error:
            left.append(Left(row=at, name=name, kind="unusable", why=str(error)))
            continue
        if isinstance(found, Left):
            left.append(found)
        else:
            kernels.append(machine.over(found))
    kernels, wrong = impossible(kernels)
    if any(one.verdict != "none" for one in kernels):  # where some have a verdict, one without is unknown
        kernels = [replace(one, verdict="unknown") if one.verdict == "none" else one for one in kernels]
    left += wrong
    bases = sorted({one.basis for one in ceilings} | {one.basis for one in bandwidths})
    return Model(
        title=title or titled(kernels, left, machine),
        subtitle=counted(kernels, left, f"roofs: {', '.join(bases)}" if bases else "no roof given"),
        bandwidths=bandwidths,
        ceilings=ceilings,
        kernels=tuple(kernels),
        left=tuple(sorted(left, key=lambda one: one.row)),
        columns=_columns(rows, kernels),
    )


def _each(roofs: Mapping[str, Any], key: str, label: str) -> list[tuple[int, Mapping[str, Any]]]:
    found = roofs.get(key, [])
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise ValueError(f"{label}: {key} is {type(found).__name__}, expected a list of objects")
    for at, one in enumerate(found):
        if not isinstance(one, Mapping):
            raise ValueError(f"{label}: {key}[{at}] is {type(one).__name__}, expected an object")
    return list(enumerate(found))


def _figure(one: Mapping[str, Any], keys: Mapping[str, float], where: str) -> float | None:
    """The one figure of ``keys`` that is given, in SI; None where none is."""
    given = [key for key in keys if one.get(key) is not None]
    if len(given) > 1:
        raise ValueError(f"{where}: both {given[0]} and {given[1]}, expected one")
    return number(one[given[0]], f"{where} {given[0]}".strip()) * keys[given[0]] if given else None


def _roof(one: Mapping[str, Any], keys: Mapping[str, float], where: str) -> float:
    value = _figure(one, keys, where)
    if value is None:
        raise ValueError(f"{where}: expected {' or '.join(keys)}")
    return ranged(value, where)


def _basis(one: Mapping[str, Any], where: str) -> str:
    basis = one.get("basis", "given")
    if basis not in BASES:
        raise ValueError(f"{where}: basis is {basis!r}, expected {', '.join(BASES)}")
    return str(basis)


def _ceiling(one: Mapping[str, Any], where: str) -> Ceiling:
    rate = _roof(one, _RATES, where)
    name = shortened(str(one.get("name") or quantity(rate, "FLOP/s")), 40)
    unit = one.get("unit")
    return Ceiling(
        name=name,
        flops_s=rate,
        dtype=_dtype(one.get("dtype")),
        unit=None if unit is None else shortened(str(unit), 20),
        basis=_basis(one, where),
        meaning=meaning_of(name),
    )


def _bandwidth(one: Mapping[str, Any], where: str) -> Bandwidth:
    rate = _roof(one, _BANDWIDTHS, where)
    level = shortened(str(one.get("level") or ""), 20)
    name = shortened(str(one.get("name") or level or quantity(rate, "B/s")), 40)
    return Bandwidth(name=name, bytes_s=rate, level=level.lower(), basis=_basis(one, where))


def _dtype(value: object) -> str | None:
    """A dtype by the table's name where it has one; another word stays as it is, since it only has to match its ceiling."""
    if value is None or value == "":
        return None
    try:
        dtype = parse_dtype(value)
    except ValueError:
        return shortened(str(value), 20)
    return dtype.peak or dtype.name


def _kernel(row: Mapping[str, Any], at: int, name: str, roofs: Roofs, alias: str) -> Kernel | Left:
    rate = _figure(row, _RATES, "")
    moved = _figure(row, _BANDWIDTHS, "")
    spots = _spots(row, roofs.bandwidths)
    if rate is None and moved and len(spots) == 1 and not spots[0][0]:
        rate = spots[0][1] * moved
    if rate == 0 or (rate is None and moved):
        why = f"{'does no FLOPs' if rate == 0 else 'no FLOPs are given'}, so it has no place on this plot"
        if moved:
            why += f"; {quantity(moved, 'B/s')}" + (
                f", {100 * moved / roofs.main.bytes_s:.1f}% of {roofs.main.name}" if roofs.main else ""
            )
        return Left(row=at, name=name, kind="copy", why=why)
    if rate is None:
        return Left(row=at, name=name, kind="not measured", why="no rate: expected flops_s or gflops")
    ranged(rate, "its rate in FLOP/s")
    if not spots:
        raise ValueError("no intensity: expected intensity, or intensities by level")
    for level, value in spots:
        ranged(value, f"its intensity at {level}" if level else "its intensity")
    share = row.get("share")
    verdict = row.get("headroom_class")
    before = _figure({key[7:]: value for key, value in row.items() if str(key).startswith("before_")}, _RATES, "before")
    earlier = None
    if before is not None:
        old = row.get("before_intensity")
        at_first = float(number(old, "before_intensity")) if old is not None else spots[0][1]
        earlier = ranged(at_first, "before_intensity"), ranged(before, "its rate before, in FLOP/s")
    return Kernel(
        row=at,
        name=name,
        alias=alias,
        rate=rate,
        spots=spots,
        share=None if _empty(share) else float(number(share, "share", minimum=0)),
        dtype=_dtype(row.get("dtype")),
        verdict=str(verdict) if verdict in HEADROOM_CLASSES else "none",
        before=earlier,
        basis=shortened(str(row.get("measurement_basis") or row.get("basis") or ""), 40),
    )


def _empty(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _spots(row: Mapping[str, Any], bandwidths: Sequence[Bandwidth]) -> tuple[tuple[str, float], ...]:
    many, one = row.get("intensities"), row.get("intensity")
    if isinstance(many, Mapping):
        many = {level: value for level, value in many.items() if not _empty(value)}  # where it was not counted
    if isinstance(many, Mapping) and many:
        known = {wide.level for wide in bandwidths}
        unknown = [level for level in many if str(level).lower() not in known]
        if unknown:
            told = shortened(str(unknown[0]), 20)
            raise ValueError(f"no bandwidth has the level {told!r} of its intensities, there are {', '.join(sorted(known))}")
        return tuple((str(level).lower(), float(number(value, f"intensity at {level}"))) for level, value in many.items())
    return () if one is None else (("", float(number(one, "intensity"))),)


_OWN = {"name", "headroom_class", "intensity", "intensities", "flops_s", "gflops", "bytes_s", "gbs", "dtype", "share"}


def _columns(rows: Sequence[Mapping[str, Any]], kernels: Sequence[Kernel]) -> dict[str, list[Any]]:
    """The row as it was given: picking shows it beside what the figure worked out."""
    given = [row if isinstance(row, Mapping) else {} for row in rows]
    keys = dict.fromkeys(key for row in given for key in row if key not in _OWN and not str(key).startswith("before_"))
    known = [key for key in FIELDS if key in keys]
    return {
        shortened(str(key), 60): [_plain(row.get(key)) for row in given]
        for key in (*known, *(key for key in keys if key not in FIELDS))
    }


def _plain(value: object) -> object:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return shortened(str(value), 400)
