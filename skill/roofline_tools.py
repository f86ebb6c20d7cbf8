#!/usr/bin/env python3
"""What an agent runs or imports: the roofline helper of this skill. Standard library only, Python 3.8 and newer.

    python3 roofline_tools.py analyze DIR|TOPN|PROFILE    the verdict per kernel
    python3 roofline_tools.py validate ARTIFACT           check an artifact
    python3 roofline_tools.py peaks list|show|audit       the hardware peaks

It reads and writes local files, nothing else. If it does not run, SKILL.md holds the whole procedure by hand.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

try:
    from roofline_engine.cli import main
except Exception as error:  # a broken helper must not disable the skill
    sys.stderr.write(f"roofline helper unusable ({type(error).__name__}: {error}): go on by hand from SKILL.md\n")
    if __name__ == "__main__":
        sys.exit(2)
    raise

#: The primitives, by the module that defines each; they are loaded when they are asked for.
_PRIMITIVES = {
    "parse_dtype": "units",
    "number": "units",
    "work": "ops",
    "experts_hit": "ops.matmul",
    "experts_hit_distinct": "ops.matmul",
    "attention_pairs": "ops.attention",
    "point": "roofline",
    "headroom": "roofline",
    "attainable_speedup": "roofline",
    "time_saved_pct": "roofline",
    "throughput_gain_pct": "roofline",
    "assess": "roofline",
    "Device": "peaks",
    "Peaks": "peaks",
    "resolve": "peaks",
    "load": "peaks_table",
    "locate": "peaks_table",
    "audit": "peaks_audit",
    "analyze": "analyze",
    "find_sources": "analyze",
    "validate": "validate",
}
__all__ = ["main", *_PRIMITIVES]


def __getattr__(name):
    if name in _PRIMITIVES:
        from importlib import import_module

        return getattr(import_module("roofline_engine." + _PRIMITIVES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    sys.exit(main())
