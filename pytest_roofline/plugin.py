"""pytest hooks: options, marker and fixture; the rest is registered by ``--roofline`` alone (``session``).

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .fixture import Recorder

_MARKER = (
    "roofline(op=None, *, bytes=None, flops=None, dtype=None, kernel=None, device=None, min_pct=None, target_eff=None, "
    "launches=1, baseline=False, baseline_kind='live', time=None, cache=None, graph=False, engine=None, **sizes): the work "
    "of the kernel under test; a string that is the name of a parametrize argument is that argument"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("roofline", "roofline headroom of kernels")
    add = group.addoption
    add(
        "--roofline",
        action="store_true",
        help="annotate tests and benchmarks with their headroom; changes no outcome by itself",
    )
    add("--roofline-device", metavar="NAME", help="the device: a product, a gfx, cpu, or auto (default)")
    add("--roofline-peaks", metavar="PATH", help="another peak table, or ceilings another tool measured")
    add("--roofline-predictions", metavar="PATH", help="a profile_roofline.json to hold the measurements against")
    add("--roofline-baseline", metavar="PATH", help="pytest-benchmark JSON or an earlier report: the time before")
    add(
        "--roofline-report",
        metavar="TYPE[:DEST]",
        action="append",
        help="term (default), json, md, github, or a figure (html, svg, png, pdf, vl.json, vg.json) to its file; repeatable",
    )
    add(
        "--roofline-fail-on",
        metavar="KIND[,KIND]",
        help="fail a test that is beyond_roof, exceeds_target, infeasible, regression or unmodelled",
    )
    add("--roofline-fail-under", metavar="PCT", help="fail a test under this percent of its roof (1 to 100)")
    add("--roofline-ledger", metavar="PATH", help="append what was predicted and what came of it to this ledger")
    add(
        "--roofline-capture",
        metavar="auto|off",
        help="watch one call more of what nobody annotated (auto, the default), or not",
    )
    add("--roofline-match", metavar="FILE", help="TOML: globs over nodeids to the predictions they are of")
    add("--roofline-time", metavar="GLOB", help="time the callable that a marker names with time=, in tests that match")
    parser.addini("roofline_device", "default of --roofline-device")
    parser.addini("roofline_peaks", "default of --roofline-peaks")
    parser.addini("roofline_fail_on", "default of --roofline-fail-on", type="args", default=None)
    parser.addini("roofline_fail_under", "default of --roofline-fail-under", type="float", default=None)
    parser.addini("roofline_noise", "relative change that is noise (default 0.034)", type="float", default=None)
    parser.addini("roofline_scripts", "globs of scripts that are tests: GLOB[::csv=PATTERN][::args=ARGUMENTS]", type="linelist")
    parser.addini(
        "roofline_item_timeout", "seconds for a task, a script or a benchmark file (default 600)", type="float", default=None
    )
    parser.addini("roofline_junit", "properties of a row in JUnit XML: full (default) or none")


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from . import hookspec

    pluginmanager.add_hookspecs(hookspec)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    if config.option.roofline:
        from .session import start

        start(config)


def pytest_report_header(config: pytest.Config) -> str | None:
    """A gate that was asked for and is off would pass for a green run."""
    asked = config.option.roofline_fail_on or config.option.roofline_fail_under
    return None if config.option.roofline or not asked else "roofline: off, its gate too: it needs --roofline"


class NullFixture:
    """The ``roofline`` fixture without ``--roofline``: each call is one plain call."""

    def __call__(self, **work: object) -> None:
        """Declare the work of what is measured next."""

    def measure(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``fn`` and return its value."""
        return fn(*args, **kwargs)

    def compare(self, baseline: Callable[..., Any], candidate: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``candidate`` and return its value."""
        return candidate(*args, **kwargs)

    def record(self, t_s: float, **measurement: Any) -> None:
        """Take a time that the test measured itself."""


@pytest.fixture
def roofline(request: pytest.FixtureRequest) -> NullFixture | Recorder:
    """Declares work whose shapes are known at run time, and measures: see ``measure``, ``compare`` and ``record``."""
    session = request.config.pluginmanager.get_plugin("roofline-session")
    return NullFixture() if session is None else session.fixture(request.node)
