"""pytest hooks that always run: options, marker and fixture. The flag ``--roofline`` registers the rest, in ``session``.

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
    "roofline(op=None, *, bytes=None, flops=None, dtype=None, kernel_name=None, device=None, min_pct=None, target_eff=None, "
    "launches=1, baseline=False, baseline_kind='live', time=None, cache=None, graph=False, engine=None, **sizes): declare the "
    "work of the kernel under test; a string that names a parametrize argument stands for its value"
)
#: Name, metavar, help.
_OPTIONS = (
    ("device", "NAME", "product (MI355X), architecture (gfx950), cpu, or auto: that of each test's arrays (default: auto)"),
    ("peaks", "PATH", "another peak table, or ceilings that another tool measured (default: the package's table)"),
    ("predictions", "PATH", "compare speedups with the predictions in this profile_roofline.json (default: none)"),
    ("match", "FILE", "TOML: globs of nodeids to names of predictions (default: match by name)"),
    ("baseline", "PATH", "compute speedups over the times in a pytest-benchmark JSON or a JSON report (default: none)"),
    ("save", "[NAME]", "save the run in the storage folder, under a number and a name (default name: the branch)"),
    (
        "compare",
        "[NAME]",
        "compute speedups over a saved run: its number, name, branch or commit (default: the latest of this machine)",
    ),
    ("storage", "DIR", "the folder of saved runs (default: .roofline in the root of the project)"),
    (
        "report",
        "TYPE[:DEST]",
        "write a report: term, github, json:FILE, md:FILE, or the figure as html, svg, png, pdf, vl.json or vg.json:FILE; "
        "repeatable, an empty TYPE turns term off (default: term)",
    ),
    (
        "fail-on",
        "KIND[,KIND]",
        "fail a test whose row is beyond_roof, unmodelled, exceeds_target, regression, infeasible, claim or refused, and the "
        "run for a row that cannot be checked (default: none)",
    ),
    ("fail-under", "PCT", "fail a test that reaches less than this percent of its roof, 1 to 100 (default: no limit)"),
    ("allow-unchecked", None, "warn about rows that a gate could not check, instead of failing the run (default: off)"),
    ("ledger", "PATH", "append the predicted and the actual speedup of each row to this ledger (default: none)"),
    ("capture", "auto|off", "run a benchmark without declared work once more to infer bytes and FLOPs (default: auto)"),
    (
        "cache",
        "auto|cold",
        "cold: evict the CPU's caches before each round of pytest-benchmark and roofline.measure, one call a round "
        "(default: auto, rounds as the benchmark makes them)",
    ),
    ("time", "GLOB", "measure the callable that the marker names with time=, in tests that match (default: none)"),
)
#: Name, type, help. An option of the same name wins.
_INI_KEYS = (
    ("device", "string", "default of --roofline-device"),
    ("peaks", "string", "default of --roofline-peaks"),
    ("fail_on", "args", "default of --roofline-fail-on"),
    ("fail_under", "float", "default of --roofline-fail-under"),
    ("allow_unchecked", "args", "default of --roofline-allow-unchecked: true, false, or codes of unchecked rows"),
    ("noise", "float", "relative difference of two times that counts as noise (default: 0.034)"),
    ("scripts", "linelist", "scripts to run as tests, one a line: GLOB[::csv=PATTERN][::args=ARGUMENTS] (default: none)"),
    ("item_timeout", "float", "seconds that a task folder, a script or a benchmark file may take (default: 600)"),
    ("junit", "string", "properties of each row in JUnit XML: full or none (default: full)"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("roofline", "percent of the roofline that kernels reach")
    group.addoption(
        "--roofline",
        action="store_true",
        help="report each test's time, percent of its roof, limiter and headroom; changes no outcome by itself (default: off)",
    )
    for name, metavar, text in _OPTIONS:
        if metavar is None:
            group.addoption(f"--roofline-{name}", action="store_true", default=None, help=text)
            continue
        if metavar[0] == "[":
            group.addoption(f"--roofline-{name}", metavar=metavar[1:-1], nargs="?", const=True, help=text)
            continue
        action = "append" if name == "report" else "store"
        group.addoption(f"--roofline-{name}", metavar=metavar, action=action, help=text)
    kind: Any
    for name, kind, text in _INI_KEYS:
        parser.addini(f"roofline_{name}", text, type=kind, default=None)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from . import hookspec

    pluginmanager.add_hookspecs(hookspec)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    if config.option.roofline:
        from .session import start

        start(config)


def pytest_report_header(config: pytest.Config) -> str | None:
    return _describe_idle_options(config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    line = _describe_idle_options(config)
    if line is not None:
        terminalreporter.write_line(line, yellow=True)


def _describe_idle_options(config: pytest.Config) -> str | None:
    """Describe a gate or a saved run without the flag: a run that checks or saves nothing would look green."""
    if config.option.roofline:
        return None
    names = ("fail_on", "fail_under", "save", "compare")
    idle = [name for name in names if getattr(config.option, f"roofline_{name}") is not None]
    options = " and ".join(f"--roofline-{name.replace('_', '-')}" for name in idle)
    return f"roofline: {options} {'has' if len(idle) == 1 else 'have'} no effect without --roofline" if idle else None


class NullFixture:
    """The ``roofline`` fixture without ``--roofline``: each call is one plain call."""

    def __call__(self, **work: object) -> None:
        """Declare the work of the next measurement."""

    def measure(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``fn`` and return its value."""
        return fn(*args, **kwargs)

    def compare(self, baseline: Callable[..., Any], candidate: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``candidate`` and return its value."""
        return candidate(*args, **kwargs)

    def record(self, t_s: float, **measurement: Any) -> None:
        """Add a time that the test measured itself."""


@pytest.fixture
def roofline(request: pytest.FixtureRequest) -> NullFixture | Recorder:
    """Declare work whose shapes are known at run time, and measure it: ``measure``, ``compare``, ``record``."""
    session = request.config.pluginmanager.get_plugin("roofline-session")
    return NullFixture() if session is None else session.fixture(request.node)
