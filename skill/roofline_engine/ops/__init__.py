"""The work models: ``work(op, **parameters)`` gives the bytes and FLOPs of one unit of an op.

docs/inputs.md lists the ops and their parameters, one vocabulary for shapes.json and for Python. Every op takes ``dtype`` and
``out_dtype``, as ``units.parse_dtype`` reads them; sizes are logical, of one device. Every op also takes ``bytes`` and
``flops`` in place of the formula's, where the operands are strided, broadcast or shared, and ``least_bytes`` where ``bytes`` is
the most that the data may ask for.
"""

from __future__ import annotations

from ..fields import ByteModel
from ..units import number
from ..work import REGISTRY, Params, Work, WorkError, fit_to_cache
from . import attention, matmul, streaming

__all__ = ["OPS", "attention", "matmul", "op_class", "op_name", "streaming", "work"]

#: Every op by name.
OPS = REGISTRY
#: Other spellings of ops, accepted wherever an op is read.
_ALIASES = {"quantise": "quantize", "dequantise": "dequantize", "optimiser": "optimizer"}


def op_name(spelling: str) -> str:
    """Return the name of an op by any of its spellings; an unknown spelling stays as it is."""
    return _ALIASES.get(spelling, spelling)


def op_class(op: str) -> str:
    """The class of an op, also of a convolution whose dimensions the name does not say; ``unknown`` where none is fit."""
    if op == "conv":
        return "gemm"
    model = OPS.get(op_name(op))
    return model.op_class if model is not None else "unknown"


def work(op: str, l2_bytes: float | None = None, **parameters: object) -> Work:
    """Bytes and FLOPs of one unit of ``op``.

    l2_bytes: the cache below which activations need not count as memory traffic; None when it is not known.

    Raises:
        ValueError: for an op without a model, a parameter that is missing, unknown, or not a positive whole number,
            and a dtype that is not known.
    """
    model = OPS.get(op_name(op))
    if model is None:
        from difflib import get_close_matches  # for a mistake alone

        near = get_close_matches(str(op), list(OPS), n=1)
        like = f": is it {near[0]}? There" if near else "; there"
        raise WorkError(f"no work model for op {op!r:.40}{like} are models for {', '.join(sorted(OPS))}", "no_work_model")
    known = (
        {key: parameters.pop(key) for key in _KNOWN if parameters.get(key) is not None} if _KNOWN & parameters.keys() else {}
    )
    built = fit_to_cache(model.build(Params(model, parameters)), l2_bytes)
    return _replace_figures(built, known) if known else built


#: Figures of the caller in place of the formula's.
_KNOWN = frozenset(("bytes", "flops", "least_bytes", "flops_range", "coverage"))


def _replace_figures(built: Work, known: dict[str, object]) -> Work:
    """Return the work with known bytes and FLOPs; every byte model moves by as much as the primary one."""
    name = built.op
    nbytes, flops, least = (
        None if known.get(key) is None else number(known[key], f"{name}: {key}", minimum=0)
        for key in ("bytes", "flops", "least_bytes")
    )
    more = 0.0 if nbytes is None else nbytes - built.bytes
    candidates = tuple(
        model._replace(bytes=model.bytes + more, flops=model.flops if flops is None else flops) for model in built.candidates
    )
    span = known.get("flops_range")
    if span is not None:
        if not isinstance(span, (list, tuple)) or len(span) != 2:
            raise ValueError(f"{name}: flops_range is {span!r:.40}, expected [low, high]")
        ends = [number(value, f"{name}: flops_range", minimum=0) for value in span]
        candidates += tuple(ByteModel(f"flops_{word}", candidates[0].bytes, end) for word, end in zip(("low", "high"), ends))
    built = built._replace(candidates=candidates)
    if known.get("coverage") is not None:
        if known["coverage"] != "args":
            raise ValueError(f"{name}: coverage is {known['coverage']!r:.40}, expected args: bytes are those of the arguments")
        built = built._replace(coverage="args")
    if least is None:
        return built
    if least > built.bytes:
        raise ValueError(f"{name}: least_bytes is {least:g}, more than the {built.bytes:g} bytes of the most")
    return built._replace(coverage="range", least=(least, 0.0))
