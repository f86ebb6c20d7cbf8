"""A percent of the roof that a user asks for."""

from __future__ import annotations

from typing import Any

from roofline_engine.units import number


def percent(value: Any, where: str) -> float:
    """A percent from 1 to 100, or 0 that asks nothing; of 0.6 nobody can tell whether 60 % is meant.

    where: the option or keyword, for the message.

    Raises:
        ValueError: for anything else.
    """
    try:
        found = float(number(value, where, minimum=0))
    except ValueError:
        found = -1.0
    if found != 0 and not 1 <= found <= 100:
        raise ValueError(f"{where} is {value!r:.40}, expected a percent from 1 to 100 (60 is 60 %), or 0")
    return found
