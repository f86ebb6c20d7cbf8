"""What a test says of its kernel, as the keywords of the marker, of the fixture and of ``[tool.roofline.work]``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from roofline_engine.check import BASELINE_KINDS
from roofline_engine.fields import ByteModel, note
from roofline_engine.kernels import classify
from roofline_engine.ops import OPS, op_class, op_name, work
from roofline_engine.units import number, parse_dtype, printable
from roofline_engine.work import REQUIRED, Work, WorkError

from .values import percent, plain

#: Keywords that say something of the test; the others are the op's parameters.
_OF_TEST = ("kernel", "device", "min_pct", "target_eff", "launches", "baseline", "baseline_kind", "time", "cache", "graph")
_ENGINES = ("matrix", "vector")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One declaration, checked. ``work`` is None where it says nothing of bytes and FLOPs.

    min_pct: percent of the roof the test must reach. launches: kernel launches inside the timed call. time: the name of the
    callable in the test's module to time. cache, graph: how the fixture measures, ``cold`` or ``warm``, and by replaying a
    captured graph.
    """

    work: Work | None = None
    source: str = ""
    stage: str = "A"
    kernel: str | None = None
    device: str | None = None
    min_pct: float | None = None
    target_eff: float | None = None
    launches: float = 1
    baseline: bool = False
    baseline_kind: str = "live"
    time: str | None = None
    cache: str | None = None
    graph: bool = False
    notes: tuple[str, ...] = field(default=())


def declared(keywords: Mapping[str, Any], params: Mapping[str, Any], source: str, *, stage: str = "B") -> Declared:
    """Understand the keywords of a marker, the fixture, a hook or a table of the project's.

    params: the test's parametrize arguments; a string that is the name of one stands for it.

    Raises:
        ValueError: one line naming the keyword, its value and what was expected.
    """
    values = {key: _filled(value, params) for key, value in keywords.items()}
    of_test = {key: values.pop(key) for key in _OF_TEST if key in values}
    of_test = {key: value for key, value in of_test.items() if value is not None}
    try:
        done = build(values)
    except ValueError as error:
        raise ValueError(f"{error}{_hint(error, values, params)}") from None
    return Declared(
        work=done,
        source=source if done is not None else "",
        stage=stage if done is not None else "A",
        kernel=_text(of_test, "kernel"),
        device=_text(of_test, "device"),
        min_pct=percent(of_test["min_pct"], "min_pct") if "min_pct" in of_test else None,
        target_eff=_number(of_test, "target_eff", above=0, maximum=1),
        launches=_number(of_test, "launches", minimum=1) or 1,
        baseline=_flag(of_test, "baseline"),
        baseline_kind=_choice(of_test, "baseline_kind", BASELINE_KINDS, "live"),
        time=_text(of_test, "time"),
        cache=_choice(of_test, "cache", ("cold", "warm"), "") or None,
        graph=_flag(of_test, "graph"),
    )


def _hint(error: ValueError, values: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """What to do next, where the problem does not say it."""
    code = error.code if isinstance(error, WorkError) else None
    if code == "no_work_model":
        called = classify(str(values.get("op"))).op  # as kernels are called: matmul, rms_norm
        return f"; {f'op={called!r} may be meant, ' if called in OPS else ''}bytes= and flops= need no model"
    if code == "unknown_parameter":
        from difflib import get_close_matches  # for a mistake alone

        alike = [near for key in values for near in get_close_matches(key, _OF_TEST, n=1, cutoff=0.75)]
        return f"; {' or '.join(f'{name}=' for name in alike)} may be meant" if alike else ""
    for value in values.values():
        if isinstance(value, str) and str(error).endswith(f" is {value!r}, expected a number"):
            return f" or a parametrize argument of this test ({', '.join(params) or 'it has none'})"
    return ""


def is_baseline(keywords: Mapping[str, Any], params: Mapping[str, Any]) -> bool:
    """Whether a marker makes its test the baseline of its benchmark group."""
    return _filled(keywords.get("baseline"), params) is True


def first_said(
    sources: Iterable[tuple[str, Callable[[], Mapping[str, Any] | None]]], params: Mapping[str, Any]
) -> tuple[Declared | None, str]:
    """The declaration of the first source that has keywords, and why one before it could not be used where none has any.

    What comes of ``names`` is a guess, stage A.
    """
    problem = ""
    for source, find in sources:
        try:
            keywords = find()
            if keywords is not None:
                return declared(keywords, params, source, stage="A" if source == "names" else "B"), ""
        except ValueError as error:
            problem = problem or f"{source}: {error}"
    return None, problem


def over(first: Declared | None, second: Declared | None) -> Declared:
    """``first`` where it says something, ``second`` elsewhere; the work of one is never mixed with the other's."""
    if first is None or second is None:
        return first or second or Declared()
    nothing = Declared()
    told = {field.name: getattr(first, field.name) for field in dataclasses.fields(Declared)}
    changed = {name: value for name, value in told.items() if value != getattr(nothing, name)}
    if first.work is None:
        changed = {name: value for name, value in changed.items() if name not in _OF_WORK}
    else:
        changed.update({name: told[name] for name in _OF_WORK})
    return dataclasses.replace(second, **changed)


_OF_WORK = ("work", "source", "stage", "notes")


def build(values: Mapping[str, Any]) -> Work | None:
    """Work from an op's parameters, or from ``bytes`` and ``flops`` as they are; None where neither is given.

    Raises:
        ValueError: for what is missing, unknown or no number.
    """
    given = {key: value for key, value in values.items() if value is not None}
    if "bytes" in given or "flops" in given:
        return _counted(given)
    op = given.pop("op", None)
    if op is None:
        if given:
            raise ValueError(
                f"{', '.join(sorted(given))}: these need op= (such as gemm, rmsnorm or attn_decode), or give bytes="
            )
        return None
    if not isinstance(op, str):
        raise ValueError(f"op is {op!r:.40}, expected a name such as gemm")
    return work(op, **given)


def _counted(given: dict[str, Any]) -> Work:
    """Bytes and FLOPs as the author counts them. Without an op that says so, they may run on the matrix units."""
    nbytes, flops = given.pop("bytes", None), given.pop("flops", 0)
    op, spelled, engine = given.pop("op", "unknown"), given.pop("dtype", None), given.pop("engine", None)
    weight = given.pop("weight_dtype", spelled)
    if given:
        raise ValueError(f"{', '.join(sorted(given))}: with bytes= and flops= only op=, dtype= and engine= are taken")
    if nbytes is None:
        raise ValueError("flops= without bytes=: which roof binds cannot be told")
    if engine not in (None, *_ENGINES):
        raise ValueError(f"engine is {engine!r:.40}, expected {' or '.join(_ENGINES)}")
    size, amount = number(nbytes, "bytes", above=0), number(flops, "flops", minimum=0)
    if spelled is None:
        if amount:
            raise ValueError("flops= without dtype=: each dtype has a peak of its own")
        spelled = "uint8"  # nothing is computed, so no peak is used
    if not isinstance(op, str):
        raise ValueError(f"op is {op!r:.40}, expected a name such as gemm")
    op = op_name(op)
    coarse = op_class(op)
    if engine is None:
        engine = "vector" if coarse == "elementwise" else "matrix"
    candidates = (ByteModel("declared", float(size), float(amount)),)
    name = op if op in OPS else "unknown"
    notes = () if name == op else (note(f"op {printable(op)[:40]} has no model or target"),)
    return Work(name, coarse, candidates, engine, parse_dtype(spelled), parse_dtype(weight or spelled), notes)


def _filled(value: Any, params: Mapping[str, Any]) -> Any:
    if isinstance(value, str) and value in params:
        return plain(params[value])
    return plain(value)


def _text(values: Mapping[str, Any], key: str) -> str | None:
    value = values.get(key)
    if value is not None and not (isinstance(value, str) and value):
        raise ValueError(f"{key} is {value!r:.40}, expected text")
    return value


def _number(
    values: Mapping[str, Any],
    key: str,
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
) -> float | None:
    if key not in values:
        return None
    result = number(values[key], key, minimum=minimum, above=above)
    if maximum is not None and result > maximum:
        raise ValueError(f"{key} is {values[key]!r}, expected at most {maximum:g}{' (0.6 is 60 %)' if maximum == 1 else ''}")
    return result


def _flag(values: Mapping[str, Any], key: str) -> bool:
    value = values.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"{key} is {value!r:.40}, expected True or False")
    return value


def _choice(values: Mapping[str, Any], key: str, choices: tuple[str, ...], default: str) -> str:
    value = values.get(key, default)
    if key in values and value not in choices:
        raise ValueError(f"{key} is {value!r:.40}, expected one of {', '.join(choices)}")
    return str(value)


@lru_cache(maxsize=256)
def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(ch, re.escape(ch)) for ch in glob), re.DOTALL)


def matches(glob: str, nodeid: str) -> bool:
    """Whether the whole nodeid fits."""
    return _pattern(glob).fullmatch(nodeid) is not None


def find(table: Mapping[str, Mapping[str, Any]], nodeid: str) -> Mapping[str, Any] | None:
    """The keywords of the first glob that fits."""
    return next((keywords for glob, keywords in table.items() if matches(glob, nodeid)), None)


#: Names that kernel tests give the sizes, lower case; the first of each is the model's own.
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
#: Sizes that a test may have beside those of the model. One that the model has no place for multiplies its work, by what is not
#: told: a batch beside seq_len, heads beside a hidden size, experts beside M.
_MULTIPLIERS = {"batch", "batch_size", "bs", "b", "num_seqs", "seq_len", "seqlen", "num_tokens", "tokens"}
_MULTIPLIERS |= {"num_heads", "n_heads", "heads", "num_experts", "experts", "e", "top_k", "topk", "groups", "num_groups", "g"}


def guess(name: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """The keywords that the names suggest; None unless they give each size and the dtype of one op's model, and none beside."""
    op = classify(name.removeprefix("test_").removeprefix("bench_")).op
    if op not in OPS:
        return None
    needed = [key for key, default in _parameters(op).items() if default is REQUIRED]
    if not all(key in _ALIASES for key in needed):
        return None
    lower = {key.lower(): plain(value) for key, value in params.items()}
    found: dict[str, Any] = {"op": op}
    beside = {name for name in _MULTIPLIERS & lower.keys() if lower[name] != 1}
    for key in (*needed, "dtype"):
        alias = next((alias for alias in _ALIASES[key] if alias in lower), None)
        if alias is None or not _fits(key, lower[alias]):
            return None
        found[key] = lower[alias]
        beside.discard(alias)
    if beside:
        return None
    for key in ("weight_dtype", "out_dtype"):
        value = next((lower[alias] for alias in _ALIASES[key] if alias in lower), None)
        if value is not None and _fits(key, value) and (key == "out_dtype" or key in _parameters(op)):
            found[key] = value
    return found


def _parameters(op: str) -> Mapping[str, object]:
    return OPS[op].parameters


def _fits(key: str, value: Any) -> bool:
    try:
        parse_dtype(value) if key.endswith("dtype") else number(value, key, minimum=1)
    except ValueError:
        return False
    return True


_BYTES = ("bytes", "bytes_moved", "io_bytes", "IOBytes")
_FLOPS = ("flops", "flop", "total_flops")
_DTYPE = ("dtype", "data_type")
#: How far the last printed digit may move a figure.
_ROUNDING = 0.02


def of_extra_info(extra: Mapping[str, Any]) -> dict[str, Any] | None:
    """The keywords of a declaration; None where nothing is said of bytes.

    Raises:
        ValueError: for a figure under a known key that is no number.
    """
    nbytes = _first(extra, _BYTES)
    if nbytes is None:
        return None
    found: dict[str, Any] = {"bytes": number(nbytes[1], nbytes[0], above=0)}
    flops, dtype = _first(extra, _FLOPS), _first(extra, _DTYPE)
    if flops is not None:
        found["flops"] = number(flops[1], flops[0], minimum=0)
    if dtype is not None:
        found["dtype"] = dtype[1]
    if isinstance(extra.get("op"), str):
        found["op"] = plain(extra["op"])
    return found


def of_properties(properties: Iterable[tuple[str, Any]]) -> tuple[float, dict[str, Any]] | None:
    """(seconds, keywords) from ``<tag>_latency_ms`` with rates of the same tag; None where no tag has all of them."""
    values = {key: value for key, value in properties if isinstance(key, str)}
    for key in values:
        tag, latency, _ = key.partition("_latency_ms")
        if not latency or tag == "baseline" or f"{tag}_bandwidth_tbs" not in values:
            continue
        printed = [values[key], values[f"{tag}_bandwidth_tbs"]]
        if not all(_precise(value) for value in printed):
            continue
        t_s = float(printed[0]) / 1e3
        return t_s, {"bytes": float(printed[1]) * 1e12 * t_s}
    return None


def _precise(value: Any) -> bool:
    """Whether half of the last printed digit is within the rounding allowed."""
    text = str(value)
    try:
        size = float(text)
    except ValueError:
        return False
    digits = len(text.partition(".")[2])
    return size > 0 and 0.5 * 10.0**-digits <= _ROUNDING * size


def _first(values: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, Any] | None:
    return next(((key, plain(values[key])) for key in keys if values.get(key) is not None), None)
