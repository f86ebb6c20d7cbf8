"""What a test declares about its kernel, in a marker, the fixture, the configuration, ``extra_info`` or its names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

from roofline_engine.check import BASELINE_KINDS
from roofline_engine.fields import ByteModel, Note, note
from roofline_engine.kernels import classify
from roofline_engine.ops import OPS, op_class, op_name, work
from roofline_engine.units import LARGEST_WORK, half_digit, is_time, number, parse_dtype, printable
from roofline_engine.work import COVERAGES, REQUIRED, Work, WorkError

from .values import percent, plain

ENGINES = ("matrix", "vector")


def _text(value: Any, key: str) -> str:
    if not (isinstance(value, str) and value):
        raise ValueError(f"{key} is {value!r:.40}, expected text")
    return value


def _flag(value: Any, key: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{key} is {value!r:.40}, expected True or False")
    return value


def _choice(*choices: str) -> Callable[[Any, str], str]:
    def read(value: Any, key: str) -> str:
        if value not in choices:
            raise ValueError(f"{key} is {value!r:.40}, expected one of {', '.join(choices)}")
        return str(value)

    return read


def _efficiency(value: Any, key: str) -> float:
    efficiency = number(value, key, above=0)
    if efficiency > 1:
        raise ValueError(f"{key} is {value!r}, expected at most 1 (0.6 is 60 %)")
    return efficiency


#: Keywords about the test, with what reads their values; all others are parameters of the op.
_TEST_KEYWORDS: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("kernel_name", "device", "time"), _text),
    **dict.fromkeys(("baseline", "graph"), _flag),
    "min_pct": percent,
    "target_eff": _efficiency,
    "launches": partial(number, minimum=1, maximum=1e12),
    "baseline_kind": _choice(*BASELINE_KINDS),
    "cache": _choice("cold", "warm"),
}


#: Keywords that a marker inherits from a farther marker of another kernel.
_INHERITED = frozenset((*_TEST_KEYWORDS, "kernel", "dtype"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One checked declaration of a test."""

    work: Work | None = None  # None where the declaration has neither bytes nor an op
    source: str = ""  # what declared the work: marker, fixture, hook, config, extra_info, properties, captured or names
    stage: str = "A"
    kernel: str | None = None  # the kernel's name in the predictions
    device: str | None = None
    min_pct: float | None = None  # percent of the roof that the test must reach
    target_eff: float | None = None
    launches: float = 1  # kernel launches inside the timed call
    baseline: bool = False
    baseline_kind: str = "live"
    time: str | None = None  # the callable in the test's module that is timed
    cache: str | None = None  # how the fixture measures: cold or warm
    graph: bool = False  # whether the fixture times the replay of a captured graph
    notes: tuple[Note, ...] = ()


_WORK_FIELDS = ("work", "source", "stage", "notes")


def read_declaration(keywords: Mapping[str, Any], params: Mapping[str, Any], source: str, *, stage: str = "B") -> Declaration:
    """Read the keywords of a marker, the fixture, a hook or a table of the configuration.

    params: the test's parametrize arguments; a string equal to the name of one stands for its value.

    Raises:
        ValueError: one line with the keyword, its value and what was expected.
    """
    values = _name_kernel({key: _resolve(value, params) for key, value in keywords.items()})
    options = {key: value for key in _TEST_KEYWORDS if (value := values.pop(key, None)) is not None}
    try:
        built = build_work(values)
    except ValueError as error:
        _check_numbers(values, params)
        raise ValueError(f"{error}{_hint(error, values)}") from None
    read = {key: _TEST_KEYWORDS[key](value, key) for key, value in options.items()}
    read["kernel"] = read.pop("kernel_name", None)
    return Declaration(**read) if built is None else Declaration(work=built, source=source, stage=stage, **read)


def _name_kernel(values: dict[str, Any]) -> dict[str, Any]:
    """Move ``kernel`` to ``kernel_name``, unless it is the size of a convolution.

    Raises:
        ValueError: for two names, and for a size of an op that takes none.
    """
    kernel, model = values.get("kernel"), OPS.get(op_name(str(values.get("op"))))
    if kernel is None or (not isinstance(kernel, str) and model is not None and "kernel" in model.parameters):
        return values
    name = _text(values.pop("kernel"), "kernel")
    if values.get("kernel_name", name) != name:
        raise ValueError(f"kernel is {name!r:.40} and kernel_name is {values['kernel_name']!r:.40}: give kernel_name alone")
    return {**values, "kernel_name": name}


def merge_keywords(closest_first: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the keywords of several markers as those of one: for each keyword the closest marker has precedence.

    A marker with an op or totals replaces the sizes of a farther marker that describes another kernel; keywords about the test
    and dtypes are still inherited.
    """
    merged: dict[str, Any] = {}
    for keywords in closest_first:
        describes_other = _kernel_key(merged) and _kernel_key(keywords) not in (None, _kernel_key(merged))
        for key, value in keywords.items():
            if not describes_other or key in _INHERITED:
                merged.setdefault(key, value)
    return merged


def _kernel_key(keywords: Mapping[str, Any]) -> str | None:
    """Return what tells the kernels of two markers apart: totals, or the op; None where a marker has neither."""
    if "bytes" in keywords or "flops" in keywords:
        return "totals"
    return op_name(str(keywords["op"])) if "op" in keywords else None


def _check_numbers(values: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    """Refuse text in the place of a size: it is a misspelled name of a parametrize argument."""
    model = OPS.get(op_name(str(values.get("op"))))
    defaults = model.parameters if model is not None else {}
    sizes = [key for key, default in defaults.items() if default is REQUIRED or isinstance(default, (int, float))]
    for key in ("bytes", "flops", *sizes):
        value = values.get(key) if key != "algorithm" else None  # required, and a name
        try:
            if isinstance(value, str):
                number(value, key)
        except ValueError:
            names = ", ".join(params) or "it has none"
            text = f"{key} is {value!r:.40}, expected a number or a parametrize argument of this test ({names})"
            raise ValueError(text) from None


def _hint(error: ValueError, values: Mapping[str, Any]) -> str:
    """Return the name that was probably meant in keywords that ``build_work`` refused."""
    code = error.code if isinstance(error, WorkError) else None
    if code == "no_work_model":
        known = classify(str(values.get("op"))).op  # kernels have other names for an op: matmul, rms_norm
        return f". Did you mean op={known!r}?" if known in OPS else ". bytes= and flops= need no model"
    if code == "unknown_parameter":
        from difflib import get_close_matches  # only needed for a misspelled keyword

        near = [name for key in values for name in get_close_matches(key, (*_TEST_KEYWORDS, "kernel"), n=1, cutoff=0.75)]
        return f". Did you mean {' or '.join(f'{name}=' for name in near)}?" if near else ""
    model = OPS.get(op_name(str(values.get("op"))))
    if model is not None and "kernel" in model.required - values.keys():
        return ". A convolution's size is a list, such as kernel=[3, 3]; text in kernel= is the kernel's name"
    return ""


def is_baseline(keywords: Mapping[str, Any], params: Mapping[str, Any]) -> bool:
    """Return whether a marker makes its test the baseline of its benchmark group."""
    return _resolve(keywords.get("baseline"), params) is True


def first_declaration(
    sources: Iterable[tuple[str, Callable[[], Mapping[str, Any] | None]]], params: Mapping[str, Any]
) -> tuple[Declaration | None, str]:
    """Return the declaration of the first source with keywords, and the first error of the sources before it.

    What the source ``names`` gives is a guess: stage A.
    """
    problem = ""
    for source, read in sources:
        try:
            keywords = read()
            if keywords is not None:
                return read_declaration(keywords, params, source, stage="A" if source == "names" else "B"), ""
        except ValueError as error:
            problem = problem or f"{source}: {error}"
    return None, problem


def merge(preferred: Declaration | None, fallback: Declaration | None) -> Declaration:
    """Return ``preferred`` with its unset fields from ``fallback``; the fields of the work come from one of the two."""
    if preferred is None or fallback is None:
        return preferred or fallback or Declaration()
    unset, chosen = Declaration(), {}
    for name in (field.name for field in dataclasses.fields(Declaration)):
        value = getattr(preferred, name)
        if preferred.work is not None if name in _WORK_FIELDS else value != getattr(unset, name):
            chosen[name] = value
    return dataclasses.replace(fallback, **chosen)


def build_work(values: Mapping[str, Any]) -> Work | None:
    """Build work from an op's parameters, or from ``bytes`` and ``flops`` as they are; None where neither is given.

    Raises:
        ValueError: for what is missing, unknown or no number.
    """
    given = {key: value for key, value in values.items() if value is not None}
    if not isinstance(given.get("op", ""), str):
        raise ValueError(f"op is {given['op']!r:.40}, expected a name such as gemm")
    if "bytes" in given or "flops" in given:
        return _work_from_totals(given)
    if given and "op" not in given:
        keys = ", ".join(sorted(given))
        raise ValueError(f"{keys}: these need op= (such as gemm, rmsnorm or attn_decode), or give bytes=")
    return work(**given) if given else None


def _work_from_totals(given: dict[str, Any]) -> Work:
    """Build work from the author's own totals. Without an engine or an elementwise op, the matrix units may do it."""
    nbytes, flops = given.pop("bytes", None), given.pop("flops", 0)
    op, dtype, engine = given.pop("op", "unknown"), given.pop("dtype", None), given.pop("engine", None)
    weight_dtype = given.pop("weight_dtype", dtype)
    coverage, least = _read_coverage(given.pop("coverage", None), given.pop("least", None))
    if given:
        raise ValueError(f"{', '.join(sorted(given))}: bytes= and flops= go with op=, dtype=, engine= and least= only")
    if nbytes is None:
        raise ValueError("flops= without bytes=: the roof that binds is unknown. Add bytes=")
    if engine not in (None, *ENGINES):
        raise ValueError(f"engine is {engine!r:.40}, expected {' or '.join(ENGINES)}")
    size = number(nbytes, "bytes", above=0, maximum=LARGEST_WORK)
    amount = number(flops, "flops", minimum=0, maximum=LARGEST_WORK)
    if dtype is None:
        if amount:
            raise ValueError("flops= without dtype=: each dtype has its own peak. Add dtype=")
        dtype = "uint8"  # nothing is computed, so no peak is used
    op = op_name(op)
    coarse = op_class(op)
    if engine is None:
        engine = "vector" if coarse == "elementwise" else "matrix"
    name = op if op in OPS else "unknown"
    notes = () if name == op else (note(f"op {printable(op)[:40]} has no model or target"),)
    candidates = (ByteModel("declared", float(size), float(amount)),)
    kinds = parse_dtype(dtype), parse_dtype(weight_dtype or dtype)
    return Work(name, coarse, candidates, engine, *kinds, notes, coverage=coverage, least=least)


def _read_coverage(coverage: object, least: object) -> tuple[str, tuple[float, float] | None]:
    """Return what ``least=`` and ``coverage=`` say of totals: bytes that depend on the data are a range down to the least."""
    ends = None
    if least is not None:
        if not isinstance(least, (list, tuple)) or len(least) != 2:
            raise ValueError(f"least is {least!r:.40}, expected (bytes, flops) that no run can avoid")
        ends = tuple(float(number(end, "least", minimum=0, maximum=LARGEST_WORK)) for end in least)
    coverage = coverage or ("whole" if ends is None else "range")
    if coverage not in COVERAGES:
        raise ValueError(f"coverage is {coverage!r:.40}, expected one of {', '.join(COVERAGES)}")
    return str(coverage), None if ends is None else (ends[0], ends[1])


def _resolve(value: Any, params: Mapping[str, Any]) -> Any:
    """Return a keyword's value, or the parametrize argument that it names, as a plain builtin; also inside a list."""
    if isinstance(value, (list, tuple)):
        return [_resolve(item, params) for item in value]
    return plain(params[value] if isinstance(value, str) and value in params else value)


def matches(glob: str, nodeid: str) -> bool:
    """Return whether a glob matches the whole test id. Only ``*`` and ``?`` are special, because ids contain brackets."""
    return fnmatchcase(nodeid, glob.replace("[", "[[]"))


def find_keywords(table: Mapping[str, Mapping[str, Any]], nodeid: str) -> Mapping[str, Any] | None:
    """Return the keywords of the first glob in ``[tool.roofline.work]`` that matches a test id."""
    return next((keywords for glob, keywords in table.items() if matches(glob, nodeid)), None)


# Totals that a benchmark wrote down: ``extra_info`` of pytest-benchmark, and the properties of a test.

_BYTES = ("bytes", "bytes_moved", "io_bytes", "IOBytes")  # the last is NVIDIA/Fuser's
_FLOPS = ("flops", "flop", "total_flops")
_DTYPE = ("dtype", "data_type")


def read_extra_info(extra: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the keywords in ``extra_info``; None where it has no bytes.

    Raises:
        ValueError: for a figure under a known key that is no number.
    """
    nbytes = _first(extra, _BYTES)
    if nbytes is None:
        return None
    keywords: dict[str, Any] = {"bytes": number(nbytes[1], nbytes[0], above=0)}
    flops, dtype = _first(extra, _FLOPS), _first(extra, _DTYPE)
    if flops is not None:
        keywords["flops"] = number(flops[1], flops[0], minimum=0)
    if dtype is not None:
        keywords["dtype"] = dtype[1]
    if isinstance(extra.get("op"), str):
        keywords["op"] = plain(extra["op"])
    return keywords


class Properties(NamedTuple):
    """What the properties of a test say of its time."""

    t_s: float | None  # None where the printed time is no time, such as 0.00
    keywords: dict[str, Any] | None  # of its work, by the printed bandwidth; None without one
    rounding: float = 0.0  # half of the last printed digit of the time, as a fraction
    rate_rounding: float = 0.0  # the same of the bandwidth
    problem: str = ""


def read_properties(properties: Iterable[tuple[str, Any]]) -> Properties | None:
    """Return what ``TAG_latency_ms`` and ``TAG_bandwidth_tbs`` say, as tile-ai/TileOPs writes them; None without both.

    Bandwidth times latency gives the bytes back. The rate of these bytes is as exact as the printed bandwidth.
    """
    values = {key: value for key, value in properties if isinstance(key, str)}
    for key in values:
        tag, latency, _ = key.partition("_latency_ms")
        rate_key = f"{tag}_bandwidth_tbs"
        if not latency or tag == "baseline" or rate_key not in values:
            continue
        figures, problem = [], ""
        for name in (key, rate_key):
            try:
                figures.append(float(number(plain(values[name]), name, above=0)))
            except ValueError as error:
                figures.append(0.0)
                problem = problem or str(error)
        latency_ms, rate_tbs = figures
        t_s = latency_ms / 1e3
        if not is_time(t_s):
            return Properties(None, None, problem=problem or f"{key} is {latency_ms:g}, which is no time of a kernel")
        keywords = {"bytes": rate_tbs * 1e12 * t_s} if rate_tbs else None
        time_digits, rate_digits = (str(values[name]).strip() for name in (key, rate_key))
        return Properties(
            t_s, keywords, half_digit(time_digits, latency_ms), half_digit(rate_digits, rate_tbs), problem=problem
        )
    return None


def _first(values: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, Any] | None:
    return next(((key, plain(values[key])) for key in keys if values.get(key) is not None), None)


# Work guessed from the names of a test and its parametrize arguments: stage A, for display only.

#: Lower-case names that kernel tests give the sizes; the first of each is the model's own.
_ALIASES = {
    "M": ("m", "num_tokens", "tokens", "bs", "batch_size", "rows"),
    "N": ("n", "out_features", "output_size", "intermediate_size"),
    "K": ("k", "in_features", "input_size", "hidden_size", "hidden"),
    "rows": ("rows", "m", "num_tokens", "tokens", "seq_len"),
    "cols": ("cols", "n", "hidden_size", "hidden", "hidden_dim", "dim", "d"),
    "dtype": ("dtype", "data_type", "torch_dtype", "in_dtype", "input_dtype"),
    "weight_dtype": ("weight_dtype", "w_dtype", "quant_dtype"),
    "out_dtype": ("out_dtype", "output_dtype"),
}
#: Sizes that multiply the work by an unknown amount where the model has no parameter for them: a batch next to seq_len, heads
#: next to a hidden size, experts next to M.
_MULTIPLIERS = {
    *("batch", "batch_size", "bs", "b", "num_seqs", "seq_len", "seqlen", "num_tokens", "tokens", "num_heads", "n_heads"),
    *("heads", "num_experts", "experts", "e", "top_k", "topk", "groups", "num_groups", "g"),
}


def guess_keywords(name: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """Guess the keywords from names; None unless these give each size and the dtype of one op's model, and no other size."""
    op = classify(name.removeprefix("test_").removeprefix("bench_")).op
    if op not in OPS:
        return None
    parameters = OPS[op].parameters
    needed = [key for key, default in parameters.items() if default is REQUIRED]
    if not all(key in _ALIASES for key in needed):
        return None
    values = {key.lower(): plain(value) for key, value in params.items()}
    keywords: dict[str, Any] = {"op": op}
    multipliers = {name for name in _MULTIPLIERS & values.keys() if values[name] != 1}
    for key in (*needed, "dtype"):
        alias = next((alias for alias in _ALIASES[key] if alias in values), None)
        if alias is None or not _fits(key, values[alias]):
            return None
        keywords[key] = values[alias]
        multipliers.discard(alias)
    if multipliers:
        return None
    for key in ("weight_dtype", "out_dtype"):
        value = next((values[alias] for alias in _ALIASES[key] if alias in values), None)
        if value is not None and _fits(key, value) and (key == "out_dtype" or key in parameters):
            keywords[key] = value
    return keywords


def _fits(key: str, value: Any) -> bool:
    try:
        parse_dtype(value) if key.endswith("dtype") else number(value, key, minimum=1)
    except ValueError:
        return False
    return True
