"""The command line: ``analyze``, ``validate``, ``peaks``, ``counters``, ``skill``. Results on stdout, diagnostics on stderr."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence

from .arguments import Command, Option, Options, UsageError, chosen, explained, read, usage
from .units import number, printable, whole

TYPE_CHECKING = False  # typing costs more to import than everything else here
if TYPE_CHECKING:
    from .counters.base import Counters
    from .peaktable import Table

DONE, FAILED, UNREADABLE = 0, 1, 2
_WHAT = "Roofline headroom per kernel. Exit: 0 done, 1 check failed, 2 bad usage"


def main(argv: Sequence[str] | None = None, prog: str = "roofline_tools.py", more: Sequence[Command] = ()) -> int:
    """Run one command; 0 done, 1 a check that was asked for failed, 2 bad usage or unreadable input. Never raises.

    more: commands of the caller's own; their ``load`` is called when they are chosen.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    collecting = gc.isenabled()
    gc.disable()  # nothing here makes cycles, and on a long profile the collector would take a third of the time
    run = None
    try:
        run, options = _asked(sys.argv[1:] if argv is None else argv, prog, (*COMMANDS, *more))
        status = run(options)
        sys.stdout.flush()
        return int(status)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return DONE
    except (ValueError, OSError) as error:
        return _refuse(str(error))
    except Exception as error:  # a fault of ours: one line, no traceback in an agent's log
        print(f"{prog}: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        return DONE if run is _analyze else UNREADABLE
    finally:
        if collecting:
            gc.enable()


def _asked(given: Sequence[str], prog: str, commands: Sequence[Command]) -> tuple[Callable[[Options], int], Options]:
    """What to run, and its options; printing the help where that was asked for."""
    command: Command | None = None
    table: Sequence[Option] = ()
    if list(given) == ["--version"]:
        print(prog, _version())
        return lambda options: DONE, Options()
    try:
        command, rest = chosen(given, commands)
        run, table = command.load() if command and command.load else (None, ())
        if run is not None and not any(word in ("-h", "--help") for word in rest):
            return run, read(rest, table)
    except UsageError as error:
        raise UsageError(f"{usage(prog, command, table, commands)}\n{prog}: error: {error}") from None
    print(explained(prog, command, table, commands, _WHAT))
    return lambda options: DONE, Options()


def _version() -> str:
    """SKILL.md's, which is the package's."""
    from .peaktable import skill_dir

    folder = skill_dir()
    if folder is None:
        return "unknown: SKILL.md was not found"
    with open(os.path.join(folder, "SKILL.md"), encoding="utf-8") as stream:
        return next((line.split('"')[1] for line in stream if line.startswith('  version: "')), "unknown")


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return UNREADABLE


def _analyze(options: Options) -> int:
    from . import analyze, files

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
    shown = (files.to_json(report.to_dict()), markdown(report))
    for name, text in zip((files.ARTIFACT_NAME, files.REPORT_NAME), shown):
        path = os.path.join(folder, name)
        try:
            os.makedirs(folder, exist_ok=True)
            files.write_whole(path, text)
            written.append(path)
        except OSError as error:
            report.skill_errors.append(f"L5: not written: {error}")
    if len(written) < len(shown):  # what was not written is in the report
        shown = (files.to_json(report.to_dict()), markdown(report))
    sys.stdout.write(shown[0] if options.json else shown[1])
    for line in report.skill_errors:
        print(printable(line), file=sys.stderr)
    for path in written:
        print(f"wrote {printable(path)}", file=sys.stderr)
    return DONE


def _skipped() -> int:
    print("L0: the analysis is switched off: nothing analysed, nothing written", file=sys.stderr)
    return DONE


def _validate(options: Options) -> int:
    from .files import read_json
    from .validate import validate

    found = validate(read_json(options.path))
    for line in found:
        print(printable(line))
    if found:
        print(f"{printable(options.path)}: {len(found)} inconsistencies", file=sys.stderr)
        return FAILED
    print(f"{printable(options.path)}: consistent")
    return DONE


def _table(options: Options) -> Table:
    from . import peaktable

    path = options.peaks or peaktable.locate()
    if path is None:
        raise ValueError("no peaks.md above the helper: name one with --peaks")
    return peaktable.load(path, shipped=options.peaks is None)


def _peaks_list(options: Options) -> int:
    from . import peaks
    from .files import to_json

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


def _peaks_show(options: Options) -> int:
    from . import peaks
    from .device import architecture
    from .files import to_json

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
        where = "is measured: `roofline peaks measure`"
        if gfx != "cpu":
            where = f"is not in peaks.md: {table.near(options.name)}`roofline peaks list`"
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


def _peaks_audit(options: Options) -> int:
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


def _counters_show(options: Options) -> int:
    from .counters import read
    from .files import read_text, to_json
    from .units import quantity

    label = printable(os.path.basename(options.path))
    text = read_text(options.path)
    if read.is_list_avail(text):
        available = read.list_avail(text, label)
        if options.json:
            found = {arch: sorted(names) for arch, names in available.counters.items()}
            sys.stdout.write(to_json({"available": found, "cut": available.cut}))
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
            print(f"  note   {printable(problem)}")
    for problem in counted.remarks:
        print(printable(problem), file=sys.stderr)
    return DONE


def _counters_check(options: Options) -> int:
    from .counters import read

    nbytes = number(options.bytes, "--bytes", above=0)
    holds, line = read.check_copy(_counters(options), nbytes, options.kernel)
    print(line)
    return DONE if holds else FAILED


def _counters(options: Options) -> Counters:
    from .counters import read

    return read.read(options.path, options.gfx, options.rocm, whole(options.skip, "--skip", minimum=0))


def _skill_path(options: Options) -> int:
    from .peaktable import skill_dir

    folder = skill_dir()
    if folder is None or not os.path.isfile(os.path.join(folder, "SKILL.md")):
        return _refuse("the skill's folder (SKILL.md, peaks.md, skill/) was not found")
    print(folder)
    return DONE


_JSON = Option("--json", what="one JSON document")
_TABLE = Option("--peaks", "FILE", "another peak table")
_DEVICE = Option("--peaks-device", "ID", "which device of a file of measured ceilings")
_COUNTED = (
    Option("path", "FILE", "rocprofv3, rocprof-compute or Nsight Compute output, or --list-avail", required=True),
    Option("--gfx", "GFX", "the architecture, where the files beside FILE do not say it"),
    Option("--rocm", "VERSION", "ROCm's version, likewise"),
    Option("--skip", "N", "leave out the first N dispatches of each kernel", default="0"),
)


def _command(name: str, what: str, run: Callable[[Options], int], *options: Option) -> Command:
    return Command(name, what, lambda: (run, options))


COMMANDS = (
    _command(
        "analyze",
        "a Top-N profile to profile_roofline.json and .md",
        _analyze,
        Option("path", "DIR|TOPN", "a directory with a Top-N (JSON or CSV), or the file", required=True),
        Option("--env", "FILE", "env_report.json (default: beside the Top-N or up to two folders above)"),
        Option("--config", "FILE", "the model's config.json (default: likewise)"),
        Option("--shapes", "FILE", "captured shapes, stage B (default: shapes.json beside the Top-N)"),
        Option("--peaks", "FILE", "another peak table, or ceilings another tool measured"),
        _DEVICE,
        Option("--targets", "FILE", "observed targets, of `roofline ledger calibrate`, in the priors' place"),
        Option("--counters", "FILE", "counters, stage C (default: those beside the Top-N); repeatable", many=True),
        Option("--out", "DIR", "write there instead of beside the Top-N"),
        Option("--head-pct", "PCT", "smallest share of GPU time, 0 is off (default 5)", default="5"),
        Option("--head-max", "N", "most kernels, 0 is off (default 8)", default="8"),
        Option("--json", what="print the artifact instead of the report"),
    ),
    _command(
        "validate",
        "check an artifact's arithmetic and closed sets",
        _validate,
        Option("path", "ARTIFACT", required=True),
    ),
    Command("peaks", "the hardware peak table"),
    _command("peaks list", "one line a product", _peaks_list, _TABLE, _JSON),
    _command(
        "peaks show",
        "one device's peaks, by product id, device name or gfx",
        _peaks_show,
        Option("name", "NAME", required=True),
        _DEVICE,
        Option("--peaks", "FILE", "another peak table, or measured ceilings"),
        _JSON,
    ),
    _command("peaks audit", "check every figure", _peaks_audit, _TABLE),
    Command("counters", "what a file of hardware counters says, and whether to believe it"),
    _command(
        "counters show",
        "bytes by level, FLOPs and time of each kernel, the mean over its dispatches",
        _counters_show,
        *_COUNTED,
        _JSON,
    ),
    _command(
        "counters check",
        "prove the counters by a copy of known traffic: within 2 % or exit 1",
        _counters_check,
        *_COUNTED,
        Option("--bytes", "N", "bytes the copy moved, read and written together", required=True),
        Option("--kernel", "NAME", "the copy's kernel, where the file has several"),
    ),
    Command("skill", "the skill's folder"),
    _command("skill path", "print the folder that holds SKILL.md", _skill_path),
)
