"""``target_eff`` values that were observed here, in a file that the caller names: what a good kernel of an op reaches."""

from __future__ import annotations

from .inputs import read_json
from .peaks import Target
from .peaktable import normalise
from .record import TYPE_CHECKING
from .units import number, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = "roofline-targets/1"


def read_targets(path: str) -> dict[tuple[str, str, str, str], Target]:
    """The targets in ``path``, which ``roofline ledger calibrate --out`` wrote, by device without its vendor, op, axis, dtype.

    Raises:
        ValueError: naming the file, the row and what was expected; a part of a file is not used.
    """
    label = printable(path)
    data = read_json(path)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("targets"), list):
        raise ValueError(f'{label}: expected "schema": "{SCHEMA}" and a list "targets"')
    found: dict[tuple[str, str, str, str], Target] = {}
    for at, row in enumerate(data["targets"]):
        where = f"{label}: targets[{at}]"
        if not isinstance(row, dict):
            raise ValueError(f"{where} is no object")
        device, op, axis, dtype = (_name(row, name, where) for name in ("device", "op", "axis", "dtype"))
        if axis not in ("memory", "compute"):
            raise ValueError(f"{where}.axis is {printable(repr(axis))[:60]}, expected memory or compute")
        target = number(row.get("target_eff"), f"{where}.target_eff", above=0)
        if target > 1:
            raise ValueError(f"{where}.target_eff is {target}, expected a fraction of the roof")
        count = int(number(row.get("n"), f"{where}.n", minimum=1))
        device = normalise(device)
        if (device, op, axis, dtype) in found:
            raise ValueError(f"{where}: {printable(f'{device}, {op}, {axis}, {dtype}')} stands there twice")
        found[device, op, axis, dtype] = Target(float(target), count, printable(str(row.get("source", ""))))
    return found


def _name(row: Mapping[str, object], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where}.{key} is {printable(repr(value))[:60]}, expected a name")
    return value
