"""``[tool.roofline.work]``: globs over nodeids. Only ``*`` and ``?`` are special, since nodeids hold brackets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=256)
def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(ch, re.escape(ch)) for ch in glob), re.DOTALL)


def matches(glob: str, nodeid: str) -> bool:
    """Whether the whole nodeid fits."""
    return _pattern(glob).fullmatch(nodeid) is not None


def find(table: Mapping[str, Mapping[str, Any]], nodeid: str) -> Mapping[str, Any] | None:
    """The keywords of the first glob that fits."""
    return next((keywords for glob, keywords in table.items() if matches(glob, nodeid)), None)
