"""The command line: ``analyze``, ``validate``, ``peaks``, ``counters``, ``skill``. Results on stdout, diagnostics on stderr."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence

from .units import number, printable, whole

TYPE_CHECKING = False  # typing costs more to import than everything else here
if TYPE_CHECKING:
    from collections.abc import Callable

    from .measured import Counters
    from .peaktable import Table

DONE, FAILED, UNREADABLE = 0, 1, 2


class Extension:
    """A command of the caller's own (``action`` None), or one more action of a command here (``peaks``, ``measure``).

    add: gives its parser the options, and ``run`` as a default: a function of the parsed options that returns the exit
    status, or raises ValueError or OSError with the line to print. It is called when the command is chosen, and for help.
    """

    def __init__(
        self, command: str, what: str, add: Callable[[argparse.ArgumentParser], None], action: str | None = None
    ) -> None:
        self.command, self.what, self.add, self.action = command, what, add, action


def main(argv: Sequence[str] | None = None, prog: str = "roofline_tools.py", more: Sequence[Extension] = ()) -> int:
    """Run one command; 0 done, 1 a check that was asked for failed, 2 bad usage or unreadable input. Never raises."""
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        options = _parser(prog, given[:1], more).parse_args(given)
    except SystemExit as leaving:  # argparse printed why
        return leaving.code if isinstance(leaving.code, int) else UNREADABLE
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    collecting = gc.isenabled()
    gc.disable()  # nothing here makes cycles, and on a long profile the collector would take a third of the time
    try:
        status = options.run(options)
        sys.stdout.flush()
        return int(status)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return DONE
    except (ValueError, OSError) as error:
        return _refuse(str(error))
    except Exception as error:  # a fault of ours: one line, no traceback in an agent's log
        print(f"{prog}: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        return DONE if options.run is _analyze else UNREADABLE
    finally:
        if collecting:
            gc.enable()


class _Help(argparse.HelpFormatter):
    """Of one width: asking the terminal for its own imports shutil and its compressors at each start."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100)


class _Version(argparse.Action):
    """Prints SKILL.md's version, the one that the package has; reads it only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from .peaktable import skill_dir

        found = "unknown, SKILL.md was not found"
        folder = skill_dir()
        if folder is not None:
            try:
                with open(os.path.join(folder, "SKILL.md"), encoding="utf-8") as stream:
                    stated = [line.split('"')[1] for line in stream if line.startswith('  version: "')]
            except OSError:
                stated = []
            found = stated[0] if stated else found
        print(f"{parser.prog} {found}")
        parser.exit()


def _parser(prog: str, chosen: Sequence[str], more: Sequence[Extension]) -> argparse.ArgumentParser:
    """The parser, of the ``chosen`` command alone where there is one: building all of them doubles the start-up."""
    parser = argparse.ArgumentParser(
        prog=prog, description="Roofline headroom per kernel. Exit: 0 done, 1 check failed, 2 bad usage", formatter_class=_Help
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, prog=prog)
    listed = (
        ("analyze", "a Top-N profile to profile_roofline.json and .md", _add_analyze),
        ("validate", "check an artifact's arithmetic and closed sets", _add_validate),
        ("peaks", "the hardware peak table", _add_peaks),
        ("counters", "what a file of hardware counters says, and whether to believe it", _add_counters),
        ("skill", "the skill's folder", _add_skill),
        *((one.command, one.what, one.add) for one in more if one.action is None),
    )
    for name, what, add in [command for command in listed if command[0] in chosen] or listed:
        actions = add(commands.add_parser(name, help=what, description=what, formatter_class=_Help))
        for one in more:
            if actions and one.command == name and one.action:
                actions.metavar = f"{actions.metavar}|{one.action}"
                one.add(actions.add_parser(one.action, help=one.what, description=one.what, formatter_class=_Help))
    return parser


def _add_analyze(one: argparse.ArgumentParser) -> None:
    one.add_argument("path", metavar="DIR|TOPN", help="a directory with a Top-N (JSON or CSV), or the file")
    one.add_argument("--env", metavar="FILE", help="env_report.json (default: beside the Top-N or up to two folders above)")
    one.add_argument("--config", metavar="FILE", help="the model's config.json (default: likewise)")
    one.add_argument("--shapes", metavar="FILE", help="captured shapes, stage B (default: shapes.json beside the Top-N)")
    one.add_argument("--peaks", metavar="FILE", help="another peak table, or ceilings another tool measured")
    one.add_argument("--peaks-device", metavar="ID", help="which device of a file of measured ceilings")
    one.add_argument("--targets", metavar="FILE", help="observed targets, of `roofline ledger calibrate`, in the priors' place")
    one.add_argument("--counters", metavar="FILE", action="append", help="counters, stage C (default: those beside the Top-N)")
    one.add_argument("--out", metavar="DIR", help="write there instead of beside the Top-N")
    one.add_argument("--head-pct", metavar="PCT", default="5", help="smallest share of GPU time, 0 is off (default 5)")
    one.add_argument("--head-max", metavar="N", default="8", help="most kernels, 0 is off (default 8)")
    one.add_argument("--json", action="store_true", help="print the artifact instead of the report")
    one.set_defaults(run=_analyze)


def _add_validate(one: argparse.ArgumentParser) -> None:
    one.add_argument("path", metavar="ARTIFACT")
    one.set_defaults(run=_validate)


def _add_peaks(one: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    actions = one.add_subparsers(dest="action", metavar="list|show|audit", required=True)
    for action, run, what in (
        ("list", _peaks_list, "one line a product"),
        ("show", _peaks_show, "one device's peaks, by product id, device name or gfx"),
        ("audit", _peaks_audit, "check every figure"),
    ):
        sub = actions.add_parser(action, help=what)
        if action == "show":
            sub.add_argument("name", metavar="NAME")
            sub.add_argument("--peaks-device", metavar="ID", help="which device of a file of measured ceilings")
        sub.add_argument("--peaks", metavar="FILE", help="another peak table" + (", or measured ceilings" * (action == "show")))
        if action != "audit":
            sub.add_argument("--json", action="store_true", help="one JSON document")
        sub.set_defaults(run=run)
    return actions


def _add_counters(one: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    actions = one.add_subparsers(dest="action", metavar="show|check", required=True)
    for action, run, what in (
        ("show", _counters_show, "bytes by level, FLOPs and time of each kernel, the mean over its dispatches"),
        ("check", _counters_check, "prove the counters by a copy of known traffic: within 2 %% or exit 1"),
    ):
        sub = actions.add_parser(action, help=what)
        sub.add_argument("path", metavar="FILE", help="rocprofv3, rocprof-compute or Nsight Compute output, or --list-avail")
        sub.add_argument("--gfx", metavar="GFX", help="the architecture, where the files beside FILE do not say it")
        sub.add_argument("--rocm", metavar="VERSION", help="ROCm's version, likewise")
        sub.add_argument("--skip", metavar="N", default="0", help="leave out the first N dispatches of each kernel")
        if action == "check":
            sub.add_argument("--bytes", metavar="N", required=True, help="bytes the copy moved, read and written together")
            sub.add_argument("--kernel", metavar="NAME", help="the copy's kernel, where the file has several")
        else:
            sub.add_argument("--json", action="store_true", help="one JSON document")
        sub.set_defaults(run=run)
    return actions


def _add_skill(one: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    actions = one.add_subparsers(dest="action", metavar="path", required=True)
    actions.add_parser("path", help="print the folder that holds SKILL.md").set_defaults(run=_skill_path)
    return actions


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return UNREADABLE


def _analyze(options: argparse.Namespace) -> int:
    from . import analyze, artifact

    head_pct = number(options.head_pct, "--head-pct", minimum=0)
    head_max = number(options.head_max, "--head-max", minimum=0)
    if head_max != int(head_max):
        raise ValueError(f"--head-max is {options.head_max}, expected a whole number")
    if os.environ.get("ROOFLINE_SKILL", "").strip().lower() == "none":
        return _skipped()
    sources = analyze.find_sources(options.path)
    for name in ("env", "config", "shapes", "peaks", "targets"):
        named = getattr(options, name)
        if named is not None:
            if not os.path.isfile(named):
                raise ValueError(f"--{name} {printable(named)}: no such file")
            sources = sources._replace(**{name: named})
    for named in options.counters or ():
        if not os.path.isfile(named):
            raise ValueError(f"--counters {printable(named)}: no such file")
    if options.counters:
        sources = sources._replace(counters=tuple(options.counters))
    sources = sources._replace(peaks_shipped=options.peaks is None, peaks_device=options.peaks_device, targets=options.targets)
    folder = options.out or os.path.dirname(os.path.abspath(sources.topn))
    report = analyze.analyze(sources, head_pct=head_pct, head_max=int(head_max))
    if report is None:
        return _skipped()

    from .report import markdown

    written = []
    shown = (artifact.to_json(report.to_dict()), markdown(report))
    for name, text in zip((artifact.ARTIFACT_NAME, artifact.REPORT_NAME), shown):
        path = os.path.join(folder, name)
        try:
            os.makedirs(folder, exist_ok=True)
            artifact.write_whole(path, text)
            written.append(path)
        except OSError as error:
            report.skill_errors.append(f"L5: not written: {error}")
    if len(written) < len(shown):  # what was not written is in the report
        shown = (artifact.to_json(report.to_dict()), markdown(report))
    sys.stdout.write(shown[0] if options.json else shown[1])
    for line in report.skill_errors:
        print(printable(line), file=sys.stderr)
    for path in written:
        print(f"wrote {printable(path)}", file=sys.stderr)
    return DONE


def _skipped() -> int:
    print("L0: the analysis is switched off: nothing analysed, nothing written", file=sys.stderr)
    return DONE


def _validate(options: argparse.Namespace) -> int:
    from .inputs import read_json
    from .validate import validate

    found = validate(read_json(options.path))
    for line in found:
        print(printable(line))
    if found:
        print(f"{printable(options.path)}: {len(found)} inconsistencies", file=sys.stderr)
        return FAILED
    print(f"{printable(options.path)}: consistent")
    return DONE


def _table(options: argparse.Namespace) -> Table:
    from . import peaktable

    path = options.peaks or peaktable.locate()
    if path is None:
        raise ValueError("no peaks.md above the helper: name one with --peaks")
    return peaktable.load(path, shipped=options.peaks is None)


def _peaks_list(options: argparse.Namespace) -> int:
    from . import peaks
    from .artifact import to_json

    table = _table(options)
    found = {name: peaks.of_block(table, block) for name, block in table.products.items()}
    if options.json:
        sys.stdout.write(to_json({name: item.to_dict() for name, item in found.items()}))
        return DONE
    print(f"{'product':16} {'arch':9} {'TB/s':>7} {'bf16/fp16':>10} {'fp8':>8}  confidence")
    for name, item in found.items():
        half = item.flops.get("bf16") or item.flops.get("fp16")
        print(
            f"{name:16} {item.gfx or '-':9} {(item.hbm_bw_bytes_s or 0) / 1e12:7.4g} {_tera(half):>10} "
            f"{_tera(item.flops.get('fp8')):>8}  {table.products[name].text('confidence')}"
        )
    return DONE


def _tera(value: float | None) -> str:
    return f"{value / 1e12:.5g}" if value else "-"


def _peaks_show(options: argparse.Namespace) -> int:
    from . import peaks
    from .artifact import to_json
    from .device import architecture

    measured = None
    if options.peaks is not None:
        from . import ceilings, overlay

        measured = ceilings.read(options.peaks, options.peaks_device)
        options.peaks = options.peaks if measured is None else None
    table = _table(options)
    gfx, found = architecture(options.name), peaks.named(table, options.name)
    if measured is not None:
        found, refused = overlay.apply(found, measured, table)
        for line in refused:
            print(printable(line), file=sys.stderr)
    if found.source == "derived":
        where = "is measured: `roofline peaks measure`" if gfx == "cpu" else "is not in peaks.md: `roofline peaks list`"
        return _refuse(f"{printable(options.name)} {where}")
    if options.json:
        sys.stdout.write(to_json(found.to_dict()))
        return DONE
    candidates = [found.product] if found.product else [block.id for block in table.named(options.name) or table.with_arch(gfx)]
    print(f"product    {', '.join(candidates) or printable(options.name)}")
    print(f"gfx        {found.gfx}")
    print(f"bandwidth  {found.hbm_bw_bytes_s or 0:.5g} bytes/s")
    for title, rates in (("matrix", found.flops), ("vector", found.vector)):
        for dtype, value in rates.items():
            print(f"{title:10} {dtype:12} {value:.5g} FLOP/s")
    for axis, value in found.achievable.items():
        print(f"achievable {axis:12} {value:.5g} {'FLOP/s' if '.' in axis else 'bytes/s'}, measured")
    print(f"L2         {'unknown' if found.l2_bytes is None else format(found.l2_bytes, '.0f') + ' bytes'}")
    print(f"MALL       {'none or unknown' if found.mall_bytes is None else format(found.mall_bytes, '.0f') + ' bytes'}")
    print(f"source     {found.source}, confidence {found.confidence}")
    if found.note:
        print(f"note       {found.note}")
    return DONE


def _peaks_audit(options: argparse.Namespace) -> int:
    from .audit import audit, open_figures

    table = _table(options)
    figures, problems = audit(table)
    for line in problems:
        print(printable(line))
    unchecked = [] if problems else open_figures(table)  # a table that cannot be read has no open figures to list
    for line in unchecked:
        print(printable(line))
    if problems:
        print(f"{len(problems)} problems in {figures} figures of {len(table.products)} products", file=sys.stderr)
        return FAILED
    rest = f", {len(unchecked)} of them unchecked" if unchecked else ""
    print(f"{len(table.products)} products, {figures} figures{rest}: no problem found")
    return DONE


def _counters_show(options: argparse.Namespace) -> int:
    from . import counters, measured
    from .artifact import to_json
    from .units import quantity

    label = printable(os.path.basename(options.path))
    text = measured.read_text(options.path)
    if counters.is_list_avail(text):
        available = counters.list_avail(text, label)
        if options.json:
            found = {arch: sorted(names) for arch, names in available.counters.items()}
            sys.stdout.write(to_json({"available": found, "cut": available.cut}))
        else:
            print("\n".join(counters.show_available(available)))
        return DONE
    read = _counters(options)
    if options.json:
        document = {"source": read.source, "gfx": read.gfx, "problems": list(read.remarks)}
        sys.stdout.write(to_json({**document, "kernels": [kernel.to_dict() for kernel in read.kernels]}))
        return DONE
    print(f"{read.label}: {read.source}, {read.gfx or 'gfx not known'}, {len(read.kernels)} kernels, means over dispatches")
    for kernel in read.kernels:
        time = "no time" if kernel.t_s is None else f"{kernel.t_s * 1e6:.6g} us"
        print(f"{printable(kernel.name)[:100]}: {kernel.dispatches} dispatches, {time}")
        for title, figures, unit in (("bytes", kernel.bytes, "B"), ("FLOPs", kernel.flops, "FLOP")):
            for name, value in figures.items():
                rate = f", {quantity(value / kernel.t_s, unit + '/s')}" if kernel.t_s else ""
                print(f"  {title:6} {name:12} {value:.9g} ({quantity(value, unit)}){rate}")
        for name, value in kernel.corroboration.items():
            print(f"  share  {name} {value:.4g} %")
        for problem in kernel.problems:
            print(f"  note   {printable(problem)}")
    for problem in read.remarks:
        print(printable(problem), file=sys.stderr)
    return DONE


def _counters_check(options: argparse.Namespace) -> int:
    from . import counters

    nbytes = number(options.bytes, "--bytes", above=0)
    holds, line = counters.check_copy(_counters(options), nbytes, options.kernel)
    print(line)
    return DONE if holds else FAILED


def _counters(options: argparse.Namespace) -> Counters:
    from . import counters

    return counters.read(options.path, options.gfx, options.rocm, whole(options.skip, "--skip", minimum=0))


def _skill_path(options: argparse.Namespace) -> int:
    from .peaktable import skill_dir

    folder = skill_dir()
    if folder is None or not os.path.isfile(os.path.join(folder, "SKILL.md")):
        return _refuse("the skill's folder (SKILL.md, peaks.md, skill/) was not found")
    print(folder)
    return DONE
