"""The command line: ``analyze``, ``validate``, ``peaks``, ``counters``, ``skill``. Results on stdout, diagnostics on stderr."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .units import number, printable, whole

if TYPE_CHECKING:
    from .counters.base import CounterFile
    from .peaks_table import Table

DONE, FAILED, UNREADABLE = 0, 1, 2
NO_TABLE = "no peaks.md above the helper: name one with --peaks"
EXITS = "0 done, 2 bad usage or unreadable input"
EXITS_OF_A_CHECK = "0 done, 1 the check failed, 2 bad usage or unreadable input"


class Command(NamedTuple):
    """A command of one word, or of two as ``peaks list``."""

    name: str
    summary: str  # one line, for the list of commands and as the description
    configure: Callable[[argparse.ArgumentParser], object] | None = None  # adds arguments and run; None: a group of commands
    example: str = ""  # arguments of a typical call
    exits: str = EXITS


class Output:
    """Prints the result of a command as plain text. A caller may pass another one to ``main``."""

    def markdown(self, text: str) -> None:
        """Print a Markdown document."""
        sys.stdout.write(text)

    def table(self, rows: Sequence[Sequence[str]], left: int = 1) -> None:
        """Print rows, the header first, in aligned columns; the first ``left`` columns to the left."""
        cells = [[printable(cell) or "-" for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells)]
        for row in cells:
            parts = (cell.ljust(width) if at < left else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths)))
            print("  ".join(parts).rstrip())

    def width(self) -> int | None:
        """Return the columns to which wide tables are cut; None where nothing needs to be cut."""
        import shutil  # for a terminal alone

        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def figure(self, document: Mapping[str, object], path: str) -> None:
        """Draw the figure of an artifact to a file."""
        raise ValueError(f"--plot {printable(path)}: the figure needs the package: pip install 'pytest-roofline[plot]'")


class Parser(argparse.ArgumentParser):
    """A parser that gets its arguments when it is used, so that a command loads only what it needs itself."""

    def __init__(self, *, configure: Callable[[argparse.ArgumentParser], object] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.formatter_class = argparse.RawDescriptionHelpFormatter  # keeps the lines of the example
        self._configure = configure

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse; options may stand between the files of a list."""
        if self._configure is None:
            return super().parse_known_args(args, namespace)
        self.add_pending()
        mixed = "--" not in args and any(action.nargs in ("*", "+") for action in self._actions if not action.option_strings)
        options, surplus = (self.parse_known_intermixed_args if mixed else super().parse_known_args)(args, namespace)
        if surplus:
            options_of = [name for action in self._actions for name in action.option_strings]
            self.error(f"unrecognized arguments: {' '.join(surplus)}{_suggest(surplus[0].partition('=')[0], options_of)}")
        return options, surplus

    def add_pending(self, recursive: bool = False) -> None:
        """Add the arguments that the parser still lacks, or also those of its commands."""
        configure, self._configure = self._configure, None
        if configure is not None:
            configure(self)
        for action in self._actions if recursive else ():
            for child in dict(action.choices or {}).values() if isinstance(action, argparse._SubParsersAction) else ():
                child.add_pending(recursive)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is no choice, and name the choice that it resembles."""
        if action.choices is not None and value not in action.choices:
            names = list(map(str, action.choices))
            choices = f"expected one of {', '.join(names)}"
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{_suggest(str(value), names) or f' ({choices})'}")

    def error(self, message: str) -> Any:
        """Print how the command is called and what is wrong, then exit with 2."""
        super().error(f"{printable(message)}. Try {self.prog} --help")


def _suggest(word: str, names: Sequence[str]) -> str:
    """Return a question that names what ``word`` resembles; empty where it resembles nothing."""
    from difflib import get_close_matches

    close = get_close_matches(word, names, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def build_parser(prog: str, commands: Sequence[Command], output: Output) -> Parser:
    """Build the parser of ``commands``; the chosen command's function is the attribute ``run`` of what it returns."""
    parser = Parser(prog=prog, description="Roofline headroom per kernel.", epilog=f"exit status: {EXITS_OF_A_CHECK}")
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.set_defaults(run=None, parser=parser, output=output)
    groups = {"": parser.add_subparsers(title="commands", metavar="COMMAND", prog=prog)}
    for command in commands:
        group, _, word = command.name.rpartition(" ")
        # The example of a group is that of its first command.
        typical = next(one for one in commands if one.configure and f"{one.name} ".startswith(f"{command.name} "))
        child = groups[group].add_parser(
            word,
            help=command.summary.replace("%", "%%"),
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
            epilog=f"example:\n  {prog} {typical.name} {typical.example}".rstrip() + f"\n\nexit status: {command.exits}",
            configure=command.configure,
        )
        if command.configure is None:
            child.set_defaults(parser=child)
            groups[command.name] = child.add_subparsers(title="commands", metavar="COMMAND", prog=child.prog)
    return parser


def main(
    argv: Sequence[str] | None = None,
    prog: str = "roofline_tools.py",
    more: Sequence[Command] = (),
    output: Output = Output(),  # noqa: B008 - it has no state
) -> int:
    """Run one command; 0 done, 1 a check that was asked for failed, 2 bad usage or unreadable input. Never raises.

    more: the caller's commands, next to those of the engine.
    """
    streams = sys.stdout, sys.stderr
    sys.stdout, out = _lasting(sys.stdout)
    sys.stderr, _ = _lasting(sys.stderr)
    try:
        status = _run(argv, prog, more, output)
        sys.stdout.flush()
        if out is not None and out.failure is not None and not isinstance(out.failure, BrokenPipeError):
            status = _refuse(f"standard output: {out.failure.strerror}")
        return status
    finally:
        sys.stderr.flush()
        sys.stdout, sys.stderr = streams


class _Lasting(io.RawIOBase):
    """Writes to a stream until that fails, then drops what follows: a command ends with its own status."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        self.failure: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def isatty(self) -> bool:
        return self._raw.isatty()

    def write(self, data: Any) -> int:
        if self.failure is None:
            try:
                return self._raw.write(data) or 0
            except OSError as error:
                self.failure = error
        return len(data)


def _lasting(stream: Any) -> tuple[Any, _Lasting | None]:
    """Return a stream to print on, which no closed pipe and no character stops."""
    if stream is None:  # the caller closed the descriptor
        return open(os.devnull, "w", encoding="utf-8"), None
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # python -u has no buffer
    if not isinstance(raw, io.RawIOBase):  # a caller's own stream
        return stream, None
    stream.flush()
    lasting = _Lasting(raw)
    text = io.TextIOWrapper(
        io.BufferedWriter(lasting), stream.encoding, "backslashreplace", line_buffering=stream.line_buffering
    )
    return text, lasting


def _run(argv: Sequence[str] | None, prog: str, more: Sequence[Command], output: Output) -> int:
    try:
        words = sys.argv[1:] if argv is None else list(argv)
        if words[:1] == ["help"]:
            words = [*words[1:], "--help"]
        options = build_parser(prog, (*COMMANDS, *more), output).parse_args(words)
        if options.run is None and not options.version:
            options.parser.error("no command is given")
    except SystemExit as stop:  # argparse has printed the help, or what is wrong
        return stop.code if isinstance(stop.code, int) else UNREADABLE
    try:
        if options.run is None:
            from .peaks_table import skill_version

            print(prog, skill_version())
            return DONE
        return int(options.run(options))
    except OSError as error:
        place = f"{printable(os.fsdecode(error.filename))}: " if isinstance(error.filename, (str, bytes)) else ""
        return _refuse(f"{place}{error.strerror or error}")
    except ValueError as error:
        return _refuse(str(error))
    except Exception as error:  # a bug of the engine: one line, no traceback in an agent's log
        print(f"{prog}: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        return DONE if options.run is _analyze else UNREADABLE


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return UNREADABLE


def _analyze(options: argparse.Namespace) -> int:
    from . import analyze, files
    from .fields import Degradation

    head_pct = number(options.head_pct, "--head-pct", minimum=0)
    head_max = whole(options.head_max, "--head-max", minimum=0)
    if os.environ.get("ROOFLINE_SKILL", "").strip().lower() == "none":
        return _skipped()
    path, *more_ranks = options.paths
    sources = analyze.find_sources(path)
    for other in options.paths if more_ranks else ():
        from .profiles import find_reader

        files.require_readable(other)
        if find_reader(other) is None:
            raise ValueError(f"{printable(other)}: several files are the ranks of one run, and this one is no trace")
    for name in ("env", "config", "shapes", "peaks", "targets", "counters"):
        named = getattr(options, name)
        for path in [named] if isinstance(named, str) else named or ():
            files.require_readable(path, f"--{name} ")
        if named:
            sources = sources._replace(**{name: named})
    if options.shapes_from:
        files.require_readable(options.shapes_from, "--shapes-from ")
    sources = sources._replace(peaks_device=options.peaks_device, device=options.device, shapes_from=options.shapes_from)
    if options.by not in ("kernel", "op"):
        raise ValueError(f"--by {printable(options.by)}: expected kernel or op")
    folder = options.out or os.path.dirname(os.path.abspath(sources.topn))
    outputs = [os.path.join(folder, name) for name in (files.ARTIFACT_NAME, files.REPORT_NAME)]
    inputs = {os.path.realpath(path) for path in (*sources.paths(), *more_ranks)}
    for path in outputs:
        if os.path.realpath(path) in inputs:
            raise ValueError(f"{printable(path)}: an input, which is not overwritten. Name another folder with --out")
    report = analyze.analyze(sources, head_pct=head_pct, head_max=head_max, more_ranks=more_ranks)
    if report is None:
        return _skipped()
    if report.rows == 0 and os.path.exists(outputs[0]):  # such as a Top-N that is being written
        kept = f"{printable(outputs[0])}: kept from an earlier run, since no kernel could be read"
        report.skill_errors.append(Degradation("L5", kept))
        outputs = []

    from .report import markdown

    written = []
    texts = (files.to_json(report.to_dict()), markdown(report))
    for path, text in zip(outputs, texts):
        try:
            files.write_whole(path, text)
            written.append(path)
        except OSError as error:
            report.skill_errors.append(Degradation("L5", str(error)))
    if len(written) < len(outputs):  # the report lists what was not written
        texts = (files.to_json(report.to_dict()), markdown(report))
    if options.json:
        sys.stdout.write(texts[0])
    elif options.by == "op":
        from .report import by_op

        options.output.markdown(by_op(report, options.output.width()))
    else:
        options.output.markdown(texts[1])
    if options.plot:
        options.output.figure(report.to_dict(), options.plot)
        written.append(options.plot)
    for problem in report.skill_errors:
        print(printable(problem.show()), file=sys.stderr)
    for path in written:
        print(f"wrote {printable(path)}", file=sys.stderr)
    return DONE


def _profile(options: argparse.Namespace) -> int:
    from . import files, inputs
    from .profiles import find_profiles, find_reader
    from .profiles.output import topn_documents

    if options.out is None:
        raise ValueError("--out is missing: name the folder to write to")
    source = options.path
    if os.path.isdir(source):
        found = find_profiles(source)
        if found is None or len(found.paths) > 1:
            raise ValueError(f"{printable(source)}: expected one profile in it: name the file")
        source = found.paths[0]
        for line in found.remarks:
            print(printable(line), file=sys.stderr)
    files.require_readable(source)
    reader = find_reader(source)
    if reader is None:
        raise ValueError(f"{printable(source)}: not a profile that is read here: a trace, a kernel trace, a database, a table")
    profile = reader.read(source, options.shapes_from)
    if profile.device.device_name is None:
        beside = inputs.read_surroundings(source).device
        profile = profile._replace(device=beside if beside.gfx else profile.device)
    for name, document in topn_documents(profile, options.device).items():
        path = os.path.join(options.out, name)
        if os.path.realpath(path) == os.path.realpath(source):
            raise ValueError(f"{printable(path)}: an input, which is not overwritten. Name another folder with --out")
        files.write_whole(path, files.to_json(document))
        print(f"wrote {printable(path)}")
    for line in profile.problems:
        print(printable(line), file=sys.stderr)
    return DONE


def _skipped() -> int:
    print("switched off (L0): nothing was analyzed or written", file=sys.stderr)
    return DONE


def _validate(options: argparse.Namespace) -> int:
    from .files import read_json
    from .validate import validate

    status = DONE
    for path, document in [(path, read_json(path)) for path in options.paths]:
        problems = validate(document)
        for line in problems:
            print(printable(line))
        if problems:
            print(f"{printable(path)}: {len(problems)} inconsistencies", file=sys.stderr)
            status = FAILED
        else:
            print(f"{printable(path)}: consistent")
    return status


def _table(options: argparse.Namespace) -> Table:
    from . import peaks_table

    path = options.peaks or peaks_table.locate()
    if path is None:
        raise ValueError(NO_TABLE)
    return peaks_table.load(path, shipped=options.peaks is None)


def _peaks_list(options: argparse.Namespace) -> int:
    from . import peaks
    from .files import to_json

    table = _table(options)
    products = {name: peaks.peaks_of_block(table, block) for name, block in table.products.items()}
    if options.json:
        sys.stdout.write(to_json({name: item.to_dict() for name, item in products.items()}))
        return DONE
    rows = [["product", "arch", "confidence", "TB/s", "bf16/fp16", "fp8"]]
    for name, item in products.items():
        rates = (item.hbm_bw_bytes_s, item.flops.get("bf16") or item.flops.get("fp16"), item.flops.get("fp8"))
        rows.append([name, item.gfx or "-", table.products[name].text("confidence") or "-", *map(_tera, rates)])
    options.output.table(rows, left=3)
    return DONE


def _tera(value: float | None) -> str:
    return f"{value / 1e12:.5g}" if value else "-"


def _peaks_show(options: argparse.Namespace) -> int:
    from .files import to_json
    from .peaks import CPU, architecture
    from .peaks_measured import open_peaks

    files = open_peaks(options.peaks, options.peaks_device)
    table = files.table
    if table is None:
        raise ValueError(NO_TABLE)
    gfx, (rated, refused) = architecture(options.path), files.resolve(options.path)
    for line in refused:
        print(printable(line), file=sys.stderr)
    if rated.source == "derived":
        unlisted = f"is not in peaks.md: {table.suggest(options.path)}`roofline peaks list`"
        where = "is measured: `roofline peaks measure`" if gfx == CPU else unlisted
        return _refuse(f"{printable(options.path)} {where}")
    if options.json:
        sys.stdout.write(to_json(rated.to_dict()))
        return DONE
    candidates = [rated.product] if rated.product else [block.id for block in table.find(options.path) or table.of_arch(gfx)]
    print(f"product    {', '.join(candidates) or printable(options.path)}")
    print(f"gfx        {rated.gfx}")
    print(f"bandwidth  {rated.hbm_bw_bytes_s or 0:.5g} bytes/s")
    for title, rates in (("matrix", rated.flops), ("vector", rated.vector)):
        for dtype, value in rates.items():
            print(f"{title:10} {dtype:12} {value:.5g} FLOP/s")
    for axis, value in rated.sustained.items():
        print(f"sustained  {axis:12} {value:.5g} FLOP/s, by large GEMMs")
    for axis, value in rated.achievable.items():
        print(f"achievable {axis:12} {value:.5g} {'FLOP/s' if '.' in axis else 'bytes/s'}, measured")
    print(f"L2         {'unknown' if rated.l2_bytes is None else format(rated.l2_bytes, '.0f') + ' bytes'}")
    print(f"MALL       {'none or unknown' if rated.mall_bytes is None else format(rated.mall_bytes, '.0f') + ' bytes'}")
    print(f"source     {rated.source}, confidence {rated.confidence}")
    if rated.note:
        print(f"note       {rated.note}")
    return DONE


def _peaks_audit(options: argparse.Namespace) -> int:
    from .peaks_audit import audit, open_figures

    table = _table(options)
    figures, problems = audit(table)
    unchecked = [] if problems else open_figures(table)  # a table that cannot be read has no open figures to list
    for line in (*problems, *unchecked):
        print(printable(line))
    if problems:
        print(f"{len(problems)} problems in {figures} figures of {len(table.products)} products", file=sys.stderr)
        return FAILED
    rest = f", {len(unchecked)} of them unchecked" if unchecked else ""
    print(f"{len(table.products)} products, {figures} figures{rest}: no problem found")
    return DONE


def _counters_show(options: argparse.Namespace) -> int:
    from .counters import read
    from .files import is_database, read_text, to_json
    from .units import quantity

    label = printable(os.path.basename(options.path))
    text = "" if is_database(options.path) else read_text(options.path)
    if read.is_list_avail(text):
        available = read.list_avail(text, label)
        if options.json:
            names_by_arch = {arch: sorted(names) for arch, names in available.counters.items()}
            sys.stdout.write(to_json({"available": names_by_arch, "cut": available.cut}))
        else:
            print("\n".join(read.show_available(available)))
        return DONE
    counted = _counters(options)
    if options.json:
        document = {"source": counted.source, "gfx": counted.gfx, "problems": list(counted.remarks)}
        sys.stdout.write(to_json({**document, "kernels": [kernel.to_dict() for kernel in counted.kernels]}))
        return DONE
    kernels = f"{len(counted.kernels)} kernels, means over dispatches"
    print(f"{counted.label}: {counted.source}, {counted.gfx or 'gfx not known'}, {kernels}")
    for kernel in counted.kernels:
        time = "no time" if kernel.t_s is None else f"{kernel.t_s * 1e6:.6g} us"
        print(f"{printable(kernel.name)[:100]}: {kernel.dispatches} dispatches, {time}")
        for title, figures, unit in (("bytes", kernel.bytes, "B"), ("FLOPs", kernel.flops, "FLOP")):
            for name, value in figures.items():
                rate = f", {quantity(value / kernel.t_s, unit + '/s')}" if kernel.t_s else ""
                print(f"  {title:6} {name:12} {value:.9g} ({quantity(value, unit)}){rate}")
        for name, value in kernel.corroboration.items():
            print(f"  share  {name} {value:.4g} %")
        for problem in kernel.problems:
            print(f"  note   {printable(str(problem))}")
    for line in counted.remarks:
        print(printable(line), file=sys.stderr)
    return DONE


def _counters_check(options: argparse.Namespace) -> int:
    from .counters import read

    nbytes, counters = number(options.bytes, "--bytes", above=0), _counters(options)
    holds, line = read.check_copy(counters, nbytes, options.kernel, _l2_bytes(counters.gfx))
    print(line)
    return DONE if holds else FAILED


def _l2_bytes(gfx: str | None) -> float:
    """Return the L2 of an architecture, where the table has it; else as much as a device with unknown caches may have."""
    from .peaks import resolve_name
    from .peaks_measured import open_peaks
    from .roofline import LARGEST_CACHE

    table = open_peaks(None).table if gfx else None
    return (resolve_name(table, gfx).l2_bytes if table and gfx else None) or LARGEST_CACHE


def _counters(options: argparse.Namespace) -> CounterFile:
    from .counters import read

    return read.read(options.path, options.gfx, options.rocm, whole(options.skip, "--skip", minimum=0))


def _skill_path(options: argparse.Namespace) -> int:
    from .peaks_table import skill_dir

    folder = skill_dir()
    if folder is None or not os.path.isfile(os.path.join(folder, "SKILL.md")):
        return _refuse("the skill's folder (SKILL.md, peaks.md, skill/) was not found")
    print(folder)
    return DONE


_JSON = "print one JSON document"
_TABLE = "another peak table"
_DEVICE = "which device of a file of measured ceilings"
_NEAR = "next to the Top-N or up to two folders above"


def _arguments(
    run: Callable[[argparse.Namespace], int], arguments: Mapping[str, str], **defaults: str
) -> Callable[[argparse.ArgumentParser], None]:
    """Return a function that adds arguments, each spelled as in a usage line: ``DIR``, ``--json`` or ``--out DIR``."""

    def configure(parser: argparse.ArgumentParser) -> None:
        parser.set_defaults(run=run, **defaults)
        for usage, text in arguments.items():
            name, _, metavar = usage.partition(" ")
            if not name.startswith("--") and metavar:
                parser.add_argument("paths", metavar=name, nargs="+", help=text)
            elif not name.startswith("--"):
                parser.add_argument("path", metavar=name, help=text)
            elif metavar:
                action = "append" if metavar.endswith(" ...") else "store"
                parser.add_argument(name, metavar=metavar.split()[0], action=action, help=text)
            else:
                parser.add_argument(name, action="store_true", help=text)

    return configure


_ANALYZE = {
    "DIR|TOPN|PROFILE ...": "a Top-N (JSON or CSV), a profile, or a directory with one; several profiles are ranks",
    "--by KIND": "rows by kernel, or by op with its shapes from a trace (default: kernel)",
    "--device NAME": "the device, in place of what the files say",
    "--env FILE": f"env_report.json (default: {_NEAR})",
    "--config FILE": f"the model's config.json (default: {_NEAR})",
    "--shapes FILE": "captured shapes, stage B (default: shapes.json next to the Top-N)",
    "--shapes-from TRACE": "the trace of the capture of the graphs that the trace replays",
    "--peaks FILE": f"{_TABLE}, or ceilings that another tool measured",
    "--peaks-device ID": _DEVICE,
    "--targets FILE": "observed targets, from roofline ledger calibrate --out",
    "--out DIR": "the folder to write to (default: that of the Top-N)",
    "--head-pct PCT": "smallest share of GPU time, 0 is off (default: 5)",
    "--head-max N": "most kernels, 0 is off (default: 8)",
    "--counters FILE ...": "hardware counters, stage C; repeatable (default: those next to the Top-N)",
    "--plot FILE": "also draw the roofline figure (.html, .svg, .png, .pdf)",
    "--json": "print the artifact instead of the report",
}
_PROFILE = {
    "PROFILE": "a profiler's output, or the directory that it wrote",
    "--device NAME": "the device, in place of what the profile says",
    "--shapes-from TRACE": "the trace of the capture of the graphs that the trace replays",
    "--out DIR": "the folder to write to",
}
_PEAKS_SHOW = {
    "NAME": "a product id, a device name or a gfx",
    "--peaks FILE": f"{_TABLE}, or measured ceilings",
    "--peaks-device ID": _DEVICE,
    "--json": _JSON,
}
_COUNTERS = {
    "FILE": "output of rocprofv3, rocprof-compute or Nsight Compute, or of rocprofv3 --list-avail",
    "--gfx GFX": "the architecture (default: from the files next to FILE)",
    "--rocm VERSION": "the version of ROCm (default: likewise)",
    "--skip N": "leave out the first N dispatches of each kernel (default: 0)",
}


def _configure_counters_check(parser: argparse.ArgumentParser) -> None:
    _arguments(_counters_check, _COUNTERS, skip="0")(parser)
    parser.add_argument("--bytes", metavar="N", required=True, help="bytes the copy moved, read and written together")
    parser.add_argument("--kernel", metavar="NAME", help="the copy's kernel, where the file has several")


COMMANDS = (
    Command(
        "analyze",
        "turn a Top-N profile into profile_roofline.json and .md",
        _arguments(_analyze, _ANALYZE, head_pct="5", head_max="8", by="kernel"),
        "runs/today",
    ),
    Command(
        "profile",
        "turn a trace into profile_topN.json, shapes.json and env_report.json",
        _arguments(_profile, _PROFILE),
        "trace.json.gz --out work",
    ),
    Command(
        "validate",
        "check the arithmetic and the closed sets of an artifact",
        _arguments(_validate, {"ARTIFACT ...": "a profile_roofline.json"}),
        "runs/today/profile_roofline.json",
        EXITS_OF_A_CHECK,
    ),
    Command("peaks", "show and check the hardware peaks"),
    Command(
        "peaks list", "print one line for each product", _arguments(_peaks_list, {"--peaks FILE": _TABLE, "--json": _JSON})
    ),
    Command("peaks show", "print the peaks of one device", _arguments(_peaks_show, _PEAKS_SHOW), "MI300X"),
    Command(
        "peaks audit",
        "check every figure of the peak table",
        _arguments(_peaks_audit, {"--peaks FILE": _TABLE}),
        exits=EXITS_OF_A_CHECK,
    ),
    Command("counters", "read hardware counters, and check whether they can be believed"),
    Command(
        "counters show",
        "print bytes by level, FLOPs and time of each kernel, the mean over its dispatches",
        _arguments(_counters_show, {**_COUNTERS, "--json": _JSON}, skip="0"),
        "counter_collection.csv",
    ),
    Command(
        "counters check",
        "prove the counters with a copy of known traffic, which must be counted within 2 %",
        _configure_counters_check,
        "counter_collection.csv --bytes 16777216",
        EXITS_OF_A_CHECK,
    ),
    Command("skill", "find the skill"),
    Command("skill path", "print the folder that holds SKILL.md", _arguments(_skill_path, {})),
)
