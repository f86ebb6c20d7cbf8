"""Which parts of a model a quantisation's rules about modules name.

The rules are other people's: module names, names with ``*``, and ``re:`` regular expressions. The last are read as the small
subset that is in use and never executed, since a hostile one can run for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

#: Modules as families of models name them; a rule covers a part when it covers one of its names ("#" is any layer).
PARTS: dict[str, tuple[str, ...]] = {
    "experts": (
        "mlp.experts.0.gate_proj",
        "mlp.experts.0.gate_up_proj",
        "mlp.experts.gate_up_proj",
        "block_sparse_moe.experts.0.w1",
        "feed_forward.experts.gate_up_proj",
        "mixer.experts.0.up_proj",
    ),
    "experts (down)": (
        "mlp.experts.0.down_proj",
        "mlp.experts.down_proj",
        "block_sparse_moe.experts.0.w2",
        "feed_forward.experts.down_proj",
        "mixer.experts.0.down_proj",
    ),
    "shared_experts": (
        "mlp.shared_experts.gate_proj",
        "mlp.shared_expert.gate_proj",
        "block_sparse_moe.shared_experts.gate_proj",
        "feed_forward.shared_expert.gate_proj",
        "mixer.shared_experts.up_proj",
    ),
    "dense_mlp": ("mlp.gate_proj", "mlp.gate_up_proj", "mlp.down_proj", "feed_forward.gate_proj"),
    "attention": (
        "self_attn.q_proj",
        "self_attn.qkv_proj",
        "self_attn.o_proj",
        "self_attn.q_a_proj",
        "self_attn.kv_b_proj",
        "attention.q_proj",
        "mixer.q_proj",
    ),
    "linear_attention": ("linear_attn.in_proj_qkvz", "linear_attn.out_proj", "mixer.in_proj"),
    "router": ("mlp.gate", "mlp.router", "block_sparse_moe.gate", "feed_forward.router", "mixer.gate"),
    "norms": ("input_layernorm", "post_attention_layernorm"),
    "lm_head": ("lm_head",),
    "embeddings": ("embed_tokens",),
}
_OTHER_TOWERS = ("vision", "visual", "audio", "mm_projector")  # their layers are numbered too, and are not the model's
_OUTSIDE = ("lm_head", "embeddings")  # not in a layer


def parts(rules: Iterable[str]) -> tuple[dict[str, frozenset[int] | None], list[str]]:
    """The parts of the model that ``rules`` cover, each with its layers (None: all), and the rules that are not understood."""
    where: dict[str, set[int] | None] = {}
    strange = []
    for rule in rules:
        if any(word in rule for word in _OTHER_TOWERS):
            continue
        expanded = _alternatives(rule)
        if expanded is None:
            strange.append(rule)
            continue
        for pattern in expanded:
            tail, layer = _layer(pattern)
            where.setdefault(tail, set())
            seen = where[tail]
            if layer is None:
                where[tail] = None
            elif seen is not None:
                seen.add(layer)
    found: dict[str, frozenset[int] | None] = {}
    for tail, layers in where.items():
        for part, names in PARTS.items():
            prefix = "" if part in _OUTSIDE else "layers.#."
            if any(_covers(tail, f".model.{prefix}{name}.") for name in names):
                before = found.get(part, frozenset())
                found[part] = None if layers is None or before is None else before | layers
    return found, strange


_ANY, _PIECE = "\x01", "\x02"  # any text, any text without a dot
_CLASSES = (
    ("[0-9]+", _PIECE),
    ("[^.]+", _PIECE),
    ("[^.]*", _PIECE),
    ("\\d+", _PIECE),
    ("\\w+", _PIECE),
    (".*", _ANY),
    (".+", _ANY),
)
_MOST_ALTERNATIVES = 512


def _alternatives(rule: str) -> list[str] | None:
    """A rule as patterns over ``.module.`` with our two wildcards; None for what is beyond the subset.

    ``re:`` rules are anchored at the start alone, as ``re.match`` is; others name a module or a run of its components, with
    ``*`` as a wildcard.
    """
    if not rule.startswith("re:"):
        return [f"{_ANY}.{rule.strip('.').replace('*', _ANY)}.{_ANY}".replace(f"{_ANY}.{_ANY}", _ANY)]
    text = rule[3:].lstrip("^")
    closed = text.endswith("$")
    text = text.rstrip("$").replace("(?:", "(")
    for written, ours in _CLASSES:
        text = text.replace(written, ours)
    done = [text]
    while any("(" in item or "[" in item for item in done):
        wider = [_choices(item) for item in done]
        done = [choice for choices in wider for choice in choices]
        if not all(wider) or len(done) > _MOST_ALTERNATIVES:
            return None
    plain = [item.replace("\\.", ".") for item in done]
    if any(set(item) & set("\\()[]{}|+?^$*") for item in plain):
        return None
    return [f".{item}." if closed else f".{item}{_ANY}" for item in plain]


def _choices(text: str) -> list[str]:
    """``text`` with its first innermost group or range of digits as each of its choices; none where it is neither."""
    if "(" not in text and "[" not in text:
        return [text]
    start = text.find("[")
    if start >= 0 and (text.find("(") < 0 or start < text.find("(")):
        end = text.find("]", start)
        inside = text[start + 1 : end]
        if end < 0 or len(inside) != 3 or inside[1] != "-" or not (inside[0] + inside[2]).isdigit():
            digits = list(inside) if end > 0 and inside.isdigit() else []
            return [text[:start] + item + text[end + 1 :] for item in digits]
        return [text[:start] + str(item) + text[end + 1 :] for item in range(int(inside[0]), int(inside[2]) + 1)]
    end = text.find(")")
    start = text.rfind("(", 0, end) if end >= 0 else -1
    if start < 0:
        return []
    rest = text[end + 1 :]
    return [text[:start] + item + rest for item in text[start + 1 : end].split("|")]


def _layer(pattern: str) -> tuple[str, int | None]:
    """The pattern from ``layers.`` on with the layer's number as "#", and the number where it names one."""
    _, found, after = pattern.partition("layers.")
    if not found:
        return pattern, None
    number, _, rest = after.partition(".")
    return (f"{_ANY}.layers.#.{rest}", int(number)) if number.isdigit() else (f"{_ANY}.layers.{after}", None)


def _covers(pattern: str, module: str) -> bool:
    """Whether ``pattern`` matches the whole of ``.module.``, in a time that no pattern can blow up."""
    if _PIECE not in pattern:
        return _covers_in_order(pattern.split(_ANY), module)
    states = {0}
    for char in module:
        states |= _skips(pattern, states)
        after = set()
        for state in states:
            if state < len(pattern):
                mark = pattern[state]
                if mark == _ANY or (mark == _PIECE and char != "."):
                    after.add(state)
                elif mark == char:
                    after.add(state + 1)
        states = after
        if not states:
            return False
    return len(pattern) in states | _skips(pattern, states)


def _covers_in_order(texts: list[str], module: str) -> bool:
    """The literal texts between the wildcards, each at its first place after the one before."""
    first, last = texts[0], texts[-1]
    if len(texts) == 1:
        return module == first
    if not module.startswith(first) or not module[len(first) :].endswith(last):
        return False
    place, end = len(first), len(module) - len(last)
    for text in texts[1:-1]:
        place = module.find(text, place, end)
        if place < 0:
            return False
        place += len(text)
    return True


def _skips(pattern: str, states: set[int]) -> set[int]:
    skipped: set[int] = set()
    for state in states:
        while state < len(pattern) and pattern[state] in (_ANY, _PIECE):
            state += 1
            skipped.add(state)
    return skipped
