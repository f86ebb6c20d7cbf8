"""The ledger: what is written is read back, nothing of a person's is lost, and what the pairs say of predictions."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_roofline import cli
from pytest_roofline.ledger import (
    Experience,
    Figure,
    Pair,
    append,
    group,
    locate,
    markdown,
    outcome,
    pair_of,
    propose,
    read,
    table,
)
from pytest_roofline.row import Row
from roofline_engine.check import Baseline, Check, Prediction
from roofline_engine.fields import Entry
from roofline_engine.inputs import read_targets
from roofline_engine.peaks import Peaks
from roofline_engine.work import TARGET_EFF
from support.tool import ROOT

#: Twenty published pairs with their sources, seventeen of them with an isolated measurement.
PUBLISHED = ROOT / "examples" / "ledger" / "published.csv"


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["roofline", *map(str, words)])
    status = cli.main()
    out, err = capsys.readouterr()
    return status, out, err


def pair(**fields: object) -> Pair:
    return Pair.from_text({"kernel": "k", **{name: str(value) for name, value in fields.items()}})


# Figures.


@pytest.mark.parametrize(
    ("text", "low", "high", "mid"),
    [
        ("1.4", 1.4, 1.4, 1.4),
        ("1.30-1.51", 1.3, 1.51, math.sqrt(1.3 * 1.51)),
        ("4\u20136", 4, 6, math.sqrt(24)),
        ("-0.4-0.2", -0.4, 0.2, -0.1),
        ("-0.4--0.2", -0.4, -0.2, -0.3),
        ("1e-3-1e-1", 0.001, 0.1, 0.01),
    ],
)
def test_a_range_stands_for_its_middle_and_is_kept(text: str, low: float, high: float, mid: float) -> None:
    figure = Figure.parse(text, "measured")
    assert (figure.low, figure.high) == (low, high)
    assert figure.mid == pytest.approx(mid)
    assert Figure.parse(str(figure), "again") == figure


@pytest.mark.parametrize("text", ["fast", "1.5x", "nan", "inf", "2-1", "1-2-3", "1,5", "1e999", "", "--1"])
def test_what_is_no_figure_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="measured"):
        Figure.parse(text, "measured")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bound_type", "bandwidth"),
        ("stage", "D"),
        ("confidence", "sure"),
        ("axis", "l2"),
        ("basis", "guess"),
        ("measured", "0"),
        ("attainable", "-2"),
        ("attainable", "0.5"),  # a speedup that is thought attainable is no loss: a share of the roof, or of the time
        ("date", "yesterday"),
        ("noise", "-1"),
        ("kernel", " "),
    ],
)
def test_a_value_outside_its_set_is_refused_by_field(field: str, value: str) -> None:
    with pytest.raises(ValueError, match=field):
        Pair.from_text({"kernel": "k", field: value})


# The file.

_TEXT = st.text(st.characters(codec=None), max_size=40)
_NAME = _TEXT.filter(str.strip)
_POSITIVE = st.floats(min_value=1e-12, max_value=1e12)
_ATTAINABLE = st.floats(min_value=1, max_value=1e12)


def _figures(numbers: st.SearchStrategy[float]) -> st.SearchStrategy[Figure | None]:
    return st.none() | st.tuples(numbers, numbers).map(lambda ends: Figure(min(ends), max(ends)))


_PERCENT = _figures(st.floats(min_value=-1e6, max_value=1e6))
PAIRS = st.builds(
    Pair,
    kernel=_NAME,
    op=_NAME,
    bound_type=st.sampled_from(["memory", "compute", "latency", "unknown"]),
    axis=st.sampled_from(["", "memory", "compute"]),
    dtype=_TEXT,
    device=_TEXT,
    stack=_TEXT,
    attainable=_figures(_ATTAINABLE),
    predicted_pct=_figures(_POSITIVE),
    predicted_e2e_pct=_PERCENT,
    basis=st.sampled_from(["", "model", "mixed", "counters"]),
    stage=st.sampled_from(["", "A", "B", "C"]),
    confidence=st.sampled_from(["", "low", "medium", "high"]),
    measured=_figures(_POSITIVE),
    achieved_pct=_figures(_POSITIVE),
    measured_e2e_pct=_PERCENT,
    noise=st.floats(min_value=0, max_value=10),
    date=st.sampled_from(["", "2026", "2026-07", "2026-07-29"]),
    source=_TEXT,
)


@given(st.lists(PAIRS, max_size=4), st.lists(PAIRS, max_size=2))
def test_what_is_written_is_read_back(first: list[Pair], second: list[Pair]) -> None:
    found = markdown.parse(markdown.append(markdown.append(b"# Notes\n", first), second))
    assert found == ((*first, *second), ())


@given(st.text(st.characters(codec=None)))
def test_a_cell_is_one_line_of_printable_text_and_comes_back(text: str) -> None:
    cell = markdown.escape(text)
    assert cell.isprintable()
    assert cell == cell.strip()
    assert markdown.unescape(cell) == text


_LINES = st.lists(
    st.sampled_from(
        ["", "# A", "## B", "### C", "text", "| a | b |", "|---|---|", "```", "~~~", "- item", "## Roofline ledger", "\ufeff"]
    )
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12),
    max_size=12,
)


@settings(max_examples=60)
@given(_LINES, _LINES, st.sampled_from(["\n", "\r\n"]), st.lists(PAIRS, min_size=1, max_size=2))
def test_text_around_the_lines_stays_to_the_byte(before: list[str], after: list[str], newline: str, pairs: list[Pair]) -> None:
    """Between two cuts in the same place, whatever the text is, stand the new lines alone."""
    text = newline.join([*before, *after]).encode()
    first = markdown.append(text, pairs[:1])
    second = markdown.append(first, pairs[1:])
    held = markdown.parse(text).pairs
    assert [item for item in markdown.parse(second).pairs if item not in held] == [p for p in pairs if p not in held]
    assert _without(first, text)
    assert _without(second, first)


def _without(new: bytes, old: bytes) -> bool:
    """Whether ``old`` is ``new`` with one piece cut out, apart from empty lines where the piece was."""
    if new == old:
        return True
    at = next((at for at, (a, b) in enumerate(zip(new, old, strict=False)) if a != b), len(old))
    return any(
        new.startswith(old[:cut].rstrip(b"\r\n")) and new.rstrip(b"\r\n").endswith(old[cut:].strip(b"\r\n"))
        for cut in range(at, max(-1, at - 8), -1)
    )


PLAYBOOK = (
    b"\xef\xbb\xbf# Playbook\r\n\r\nCaf\xe9, not UTF-8.\r\n\r\n```\r\n## Roofline ledger\r\n```\r\n\r\n## Learned\r\nlast line"
)


def test_a_playbook_keeps_every_byte_and_the_section_comes_last(tmp_path: Path) -> None:
    path = tmp_path / "knowledge" / "backend_playbook.md"
    path.parent.mkdir()
    path.write_bytes(PLAYBOOK)
    path.chmod(0o640)
    assert locate(tmp_path) == path
    append(path, [pair(attainable=2)])
    append(path, [pair(attainable=3)])
    data = path.read_bytes()
    assert data.startswith(PLAYBOOK)
    assert data.count(b"## Roofline ledger") == 2  # one of them in its fence
    assert [item.attainable for item in read(path).pairs] == [Figure.of(2), Figure.of(3)]
    assert path.stat().st_mode & 0o777 == 0o640


def test_without_a_playbook_the_ledger_is_a_file_of_its_own(tmp_path: Path) -> None:
    path = locate(tmp_path)
    assert path == tmp_path / ".roofline" / "ledger.md"
    assert read(path).all == ()
    assert append(path, []) == 0
    assert not path.exists()
    assert append(path, [pair()]) == 1
    assert len(read(path).pairs) == 1


def test_text_under_the_section_and_in_it_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "l.md"
    append(path, [pair(kernel="first")])
    with path.open("ab") as handle:
        handle.write(b"\nA remark on the first.\n\n## Next\n\n| kernel |\n|---|\n| not ours |\n")
    append(path, [pair(kernel="second")])
    text = path.read_text()
    assert [item.kernel for item in read(path).pairs] == ["first", "second"]
    assert text.index("second") < text.index("A remark") < text.index("## Next")
    assert text.endswith("\nA remark on the first.\n\n## Next\n\n| kernel |\n|---|\n| not ours |\n")


def test_a_hand_edited_line_that_cannot_be_read_is_named_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "l.md"
    append(path, [pair(kernel="good", attainable=2, measured=1.5), pair(kernel="bad", attainable=2, measured=1.5)])
    broken = path.read_text().replace(
        "| bad | unknown | unknown |  |  |  |  | 2 |", "| bad | unknown | unknown |  |  |  |  | much |"
    )
    broken += "| half a line\n<<<<<<< HEAD\n"
    path.write_text(broken)
    last = broken.count("\n")
    found = read(path)
    assert [item.kernel for item in found.pairs] == ["good"]
    assert [item.line for item in found.unread] == [last - 2, last - 1, last]
    assert "attainable is 'much'" in found.unread[0].why
    append(path, [pair(kernel="later")])
    assert path.read_text().startswith(broken)
    assert [item.kernel for item in read(path).pairs] == ["good", "later"]
    status, _, err = run(capsys, monkeypatch, "ledger", "show", "--ledger", path)
    assert status == 0
    assert f"l.md:{last - 2}: not read, kept: attainable is 'much'" in err


def test_columns_that_a_person_moved_or_dropped_are_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "l.md"
    path.write_text("## Roofline ledger\n\n| mood | measured | kernel |\n|:-:|--:|---|\n| good | 1.3-1.5 | a \\| b |\n")
    append(path, [pair(kernel="new")])
    assert [(item.kernel, item.measured) for item in read(path).pairs] == [("a | b", Figure(1.3, 1.5)), ("new", None)]
    append(path, [pair(kernel="newer")])
    assert path.read_text().count("| kernel |") == 2


@pytest.mark.parametrize(
    "name",
    [
        "a|b",
        "a\\|b\\",
        "two\nlines\r\n",
        "\x1b[31mred\x1b[0m",
        "<script>alert(1)</script>",
        "`x` [l](http://e) &amp;",
        "\ud800",
        " k ",
    ],
)
def test_a_hostile_name_is_one_harmless_cell(tmp_path: Path, name: str) -> None:
    path = tmp_path / "l.md"
    append(path, [Pair(kernel=name), Pair(kernel="after")])
    assert [item.kernel for item in read(path).pairs] == [name, "after"]
    line = path.read_text().splitlines()[-2]
    assert line.isprintable()
    assert "<script" not in line.replace("\\<", "")


def test_a_link_a_folder_and_a_file_that_is_no_text_are_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "real.md"
    target.write_text("mine")
    (tmp_path / "link.md").symlink_to(target)
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "utf16.md").write_text("mine", encoding="utf-16")
    for name in ("link.md", "folder.md", "utf16.md"):
        with pytest.raises((OSError, ValueError), match=name.removesuffix(".md")):
            append(tmp_path / name, [pair()])
    assert target.read_text() == "mine"
    assert not list(tmp_path.glob("*.tmp"))


WRITER = """
import sys
from pathlib import Path
from pytest_roofline.ledger import Pair, append
path, who, lines, batch = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for first in range(0, lines, batch):
    append(path, [Pair(kernel=f"{who}-{at}") for at in range(first, first + batch)])
"""


def _writer(path: Path, who: str, lines: int, batch: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), who, str(lines), str(batch)])


def test_eight_processes_that_append_500_lines_each_lose_none(tmp_path: Path) -> None:
    path = tmp_path / "l.md"
    path.write_bytes(PLAYBOOK)
    writers = [_writer(path, str(who), 500, 10) for who in range(8)]
    assert [writer.wait(timeout=300) for writer in writers] == [0] * 8
    found = read(path)
    assert found.unread == ()
    assert sorted(item.kernel for item in found.pairs) == sorted(f"{who}-{at}" for who in range(8) for at in range(500))
    assert path.read_bytes().startswith(PLAYBOOK)
    for who in range(8):  # each one's lines in its order
        mine = [item.kernel for item in found.pairs if item.kernel.startswith(f"{who}-")]
        assert mine == [f"{who}-{at}" for at in range(500)]


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_kill_during_an_append_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path, batch, pause = tmp_path / "l.md", 50, random.Random(7)
    path.write_bytes(PLAYBOOK)
    before = 0
    for turn in range(6):
        writer = _writer(path, str(turn), 1_000_000, batch)
        begun, deadline = path.stat().st_mtime_ns, time.monotonic() + 60
        while path.stat().st_mtime_ns == begun and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(pause.uniform(0, 0.02))
        writer.send_signal(signal.SIGKILL)
        writer.wait(timeout=60)
        found = read(path)
        assert found.unread == ()
        assert len(found.pairs) % batch == 0
        assert len(found.pairs) > before
        assert path.read_bytes().startswith(PLAYBOOK)
        before = len(found.pairs)


# Tables and playbooks of others.


def _published() -> tuple[Pair, ...]:
    return table.read(PUBLISHED).pairs


def test_the_latency_class_has_over_promised_by_a_factor_of_two() -> None:
    classes = {item.key[0]: item for item in group(_published(), lambda item: (item.bound_type,))}
    latency = classes["latency"]
    assert latency.isolated.n == 12
    assert latency.ratio == pytest.approx(0.46, abs=0.005)
    assert (latency.isolated.over_promised, latency.isolated.exceeded) == (10, 2)
    assert (latency.lowest, latency.highest) == (pytest.approx(0.9926 / 4.978), pytest.approx(1.65 / 1.3))


def test_both_directions_are_told_and_noise_is_neither() -> None:
    found = {item.kernel: outcome(item) for item in _published()}
    assert found["fused_moe_kernel"] == "agrees"  # 1.047 over 1.023 is 2.3 %
    exceeded = {name for name, what in found.items() if what == "exceeded"}
    assert exceeded == {
        "kernel_unified_attention_3d",
        "_act_mul_and_dynamic_fp8_group_quant",
        "_gqa_share_sparse_decode",
    }
    assert found["CK GEMM"] == "over_promised"  # no gain against a promise of 5x


@pytest.mark.parametrize(
    ("attainable", "measured", "noise", "what"),
    [
        (1.0, 1.033, "", "agrees"),
        (1.0, 1.035, "", "exceeded"),
        (1.0, 1.09, "0.1", "agrees"),
        (1.5, 1.0, "", "over_promised"),
        (1.03, 1.0, "", "agrees"),
    ],
)
def test_within_the_noise_of_a_prediction_is_agreement(attainable: float, measured: float, noise: str, what: str) -> None:
    assert outcome(pair(attainable=attainable, measured=measured, noise=noise)) == what


def test_end_to_end_half_a_percent_is_noise() -> None:
    (item,) = group(
        [pair(predicted_e2e_pct=2, measured_e2e_pct=value) for value in (1.4, 1.6, 2.4, 2.6)], lambda item: (item.bound_type,)
    )
    assert (item.e2e.over_promised, item.e2e.agrees, item.e2e.exceeded) == (1, 2, 1)
    assert item.isolated.n == 0
    assert item.ratio is None


def test_a_table_is_imported_once_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pairs.csv").write_bytes(PUBLISHED.read_bytes())
    assert run(capsys, monkeypatch, "ledger", "show")[0] == 2
    assert "20 pairs added" in run(capsys, monkeypatch, "ledger", "import", "pairs.csv")[1]
    assert "0 pairs added, 20 stood there already" in run(capsys, monkeypatch, "ledger", "import", "pairs.csv")[1]
    status, out, err = run(capsys, monkeypatch, "ledger", "show")
    assert (status, err) == (0, "")
    assert [line.split()[:3] for line in out.splitlines() if line.startswith("latency")] == [["latency", "12", "0.46"]]
    data = json.loads(run(capsys, monkeypatch, "ledger", "show", "--json")[1])
    assert data["classes"][0]["isolated"]["n"] == 12
    assert {"op", "bound_type", "stage", "device", "ratio", "spread"} <= set(data["groups"][0])
    (moe,) = [item for item in data["pairs"] if item["kernel"] == "fused_moe_kernel"]
    assert moe["outcome"] == "agrees"
    assert all(item["expected"] <= item["attainable"]["value"] for item in data["pairs"])
    assert {item["kernel"] for item in data["pairs"] if item["outcome_e2e"] == "exceeded"} >= {"_matmul_ogs (swiglu)"}
    (tuned,) = [item for item in data["pairs"] if item["kernel"].startswith("o_proj")]
    assert tuned["measured"] == {"value": pytest.approx(1.4011, abs=1e-4), "low": 1.3, "high": 1.51}


def test_a_row_of_a_table_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("kernel,attainable,measured\na,2,1.5\nb,two,1.5\nc,2\n,2,1.5\n")
    status, out, err = run(capsys, monkeypatch, "ledger", "import", "t.csv")
    assert (status, out) == (0, f"{Path('.roofline', 'ledger.md')}: 1 pair added\n")
    assert [line.split(": ", 1)[0] for line in err.splitlines()] == ["t.csv:3", "t.csv:4", "t.csv:5"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"name,time\n", "no column 'kernel'"),
        (b"kernel,predicted_attainable,attainable,measured\n", "two columns"),
        (b"\xff\xfe", "not UTF-8"),
        (b'kernel,attainable,measured\n"open', "line 2"),
        (b"kernel,attainable,measured\n", "no row"),
    ],
)
def test_what_is_no_table_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, content: bytes, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_bytes(content)
    status, _, err = run(capsys, monkeypatch, "ledger", "import", "t.csv")
    assert status == 2
    assert why in err
    assert not Path(".roofline").exists()


#: In the form that GEAK's agents write, with figures of the table above.
NOTES = """\
# Playbook

## Roofline prior calibration (predicted vs measured, one line per direction)
- 2026-10-01 · gfx942 sglang dense MLP (`_e04_kernel`, decode): roofline predicted
  `attainable_speedup=7.264x`, `expected_e2e_gain_pct=9.28%` (bound **latency**, `roofline_pct` 0.121,
  confidence **low**). MEASURED: isolated **1.656x**, e2e **+2.32%**. A bound of 7.26x promised too much.
- 2026-10-02 · same run: predicted `attainable 4.959`, `expected_e2e +10.46` (confidence medium) → measured
  iso **1.30\u20131.51x** and **+4.24% e2e**.
- 2026-10-02 · same run: predicted `attainable 4-6x`; measured 0.98x, but that is UNDEFINED, the floor is 17 us.
- 2026-10-03 · gfx950 vLLM: predicted `attainable 2.14x`, not yet measured.
- A remark without any figure.

## Learned
- 2026-10-04 · gfx950: predicted `attainable 3` and measured iso 2, in another section.
"""


def test_notes_of_free_text_are_read_where_they_say_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "p.md"
    path.write_text(NOTES, encoding="utf-8")
    found = read(path)
    assert found.pairs == ()
    first, second = found.notes
    assert first == Pair(
        kernel="_e04_kernel",
        bound_type="latency",
        device="gfx942",
        stack="sglang dense MLP",
        attainable=Figure.of(7.264),
        predicted_pct=Figure.of(0.121),
        predicted_e2e_pct=Figure.of(9.28),
        confidence="low",
        measured=Figure.of(1.656),
        measured_e2e_pct=Figure.of(2.32),
        date="2026-10-01",
        source="p.md:4 (free text)",
    )
    assert (second.device, second.stack, second.measured) == ("gfx942", "sglang dense MLP", Figure(1.3, 1.51))
    assert found.skipped == (9, 10, 11)
    append(path, [first])  # the same pair in the table counts once
    assert len(read(path).all) == 2
    assert path.read_text(encoding="utf-8").startswith(NOTES)


# What to expect.


def test_before_any_experience_nothing_is_expected() -> None:
    assert Experience([]).expected(2.0) is None
    assert Experience([pair(attainable=2)]).expected(2.0) is None
    alone = pair(attainable=2, measured=1.5)
    assert Experience([alone]).of(alone) is None  # none is its own evidence


def test_the_expected_speedup_is_the_stated_rule() -> None:
    pairs = [pair(attainable=3, measured=2), pair(attainable=3, measured=0.5), pair(attainable=3, measured=2, op="gemm")]
    everywhere = 2 * math.log(2) / (3 + 4)  # the slower candidate counts as no gain; four more without one
    here = (20 * everywhere + math.log(2)) / (20 + 1)
    found = Experience(pairs)
    assert found.expected(3.0, op="moe") == pytest.approx(math.exp(everywhere))
    assert found.expected(3.0, op="gemm") == pytest.approx(math.exp(here))
    assert found.expected(1.1, op="gemm") == 1.1
    assert found.expected(1.0, op="gemm") == 1.0


@given(st.lists(st.tuples(_ATTAINABLE, _POSITIVE), min_size=1, max_size=8), st.floats(min_value=1, max_value=1e6))
def test_the_expected_speedup_lies_between_none_and_the_attainable(pairs: list[tuple[float, float]], bound: float) -> None:
    found = Experience(pair(attainable=attainable, measured=measured) for attainable, measured in pairs)
    expected = found.expected(bound)
    assert expected is not None
    assert 1 <= expected <= bound


def test_leave_one_out_over_the_published_pairs_it_is_nearer_than_what_was_promised() -> None:
    pairs = [item for item in _published() if item.ratio is not None]
    assert len(pairs) == 17
    experience = Experience(pairs)

    def error(value: float | None, item: Pair) -> float:
        assert value is not None
        assert item.measured is not None
        return abs(math.log(item.measured.mid / value))

    promised = [error(item.attainable.mid, item) for item in pairs if item.attainable]
    expected = [error(experience.of(item), item) for item in pairs]
    assert sum(promised) / 17 == pytest.approx(0.739, abs=0.001)
    assert sum(expected) / 17 == pytest.approx(0.296, abs=0.001)


# Targets.


def _reached(n: int, value: float, **fields: object) -> list[Pair]:
    base = {"op": "gemm", "axis": "memory", "dtype": "bf16", "device": "gfx950", "achieved_pct": value, **fields}
    return [pair(**{**base, "kernel": f"k{at}"}) for at in range(n)]


def test_a_target_moves_up_towards_what_kernels_reach() -> None:
    (found,) = propose(_reached(20, 0.96, date="2026-07-01"))
    prior = TARGET_EFF["gemm"]
    assert (found.prior, found.observed, found.n) == (prior, 0.96, 20)
    assert found.target_eff == pytest.approx(prior + 0.5 * (0.96 - prior))
    assert "2026-07-01" in found.source


def test_a_target_is_never_lowered_because_attempts_failed() -> None:
    (found,) = propose(_reached(200, 0.3))
    assert found.target_eff is None
    tried = _reached(20, 0.5, predicted_pct=0.95, measured=0.6)  # half as fast as before: the kernel had been at 0.95
    assert propose(tried)[0].observed == 0.95


def test_an_op_without_a_prior_needs_enough_kernels() -> None:
    assert propose(_reached(19, 0.6, op="topk"))[0].target_eff is None
    assert propose(_reached(20, 0.6, op="topk"))[0].target_eff == 0.6


def test_ratios_over_the_roof_and_pairs_without_a_name_for_their_kind_are_no_evidence() -> None:
    assert propose(_reached(30, 1.4)) == []
    assert propose(_reached(30, 0.95, dtype="")) == []
    (found,) = propose(_reached(30, 1.4) + _reached(1, 0.95))
    assert found.n == 1


def test_one_kernel_is_one_whatever_it_was_tried() -> None:
    (found,) = propose(_reached(1, 0.95) * 30)
    assert found.n == 1


def test_the_observed_quantile_is_one_that_was_seen() -> None:
    pairs = [item for at in range(10) for item in _reached(1, 0.80 + at / 100, stack=at)]
    assert propose(pairs, 0.9)[0].observed == pytest.approx(0.88)
    assert propose(pairs, 1.0)[0].observed == pytest.approx(0.89)
    with pytest.raises(ValueError, match="quantile"):
        propose(pairs, 0.0)


def test_calibrate_writes_only_the_file_it_is_told_to_and_the_engine_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    append(locate(Path()), _reached(20, 0.96) + _reached(3, 0.4, op="softmax"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    status, out, _ = run(capsys, monkeypatch, "ledger", "calibrate")
    assert status == 0
    assert "0.930" in out
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert run(capsys, monkeypatch, "ledger", "calibrate", "--out", "targets.json", "--quantile", "0.5")[0] == 0
    targets = read_targets("targets.json")
    assert len(targets) == 1
    found = Peaks(gfx="gfx950", targets=targets).target("gemm", "memory", "bf16")
    assert found is not None
    assert (found.target_eff, found.n) == (pytest.approx(0.93), 20)
    assert Peaks(gfx="gfx942", targets=targets).target("gemm", "memory", "bf16") is None
    data = json.loads(run(capsys, monkeypatch, "ledger", "calibrate", "--json")[1])
    assert [item["op"] for item in data["kept"]] == ["softmax"]
    assert run(capsys, monkeypatch, "ledger", "calibrate", "--quantile", "9")[0] == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"target_eff": 1.2}, "fraction"),
        ({"target_eff": "high"}, "target_eff"),
        ({"target_eff": 0}, "target_eff"),
        ({"axis": "l2"}, "axis"),
        ({"op": None}, "op"),
        ({"n": 0}, "n is"),
    ],
)
def test_a_file_of_targets_that_cannot_be_meant_is_refused_by_name(tmp_path: Path, change: dict[str, object], why: str) -> None:
    row = {"device": "gfx950", "op": "gemm", "axis": "memory", "dtype": "bf16", "target_eff": 0.93, "n": 20, "source": "s"}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schema": "roofline-targets/1", "targets": [row]}))
    assert len(read_targets(str(path))) == 1
    path.write_text(json.dumps({"schema": "roofline-targets/1", "targets": [{**row, **change}]}))
    with pytest.raises(ValueError, match=why):
        read_targets(str(path))
    path.write_text(json.dumps({"schema": "roofline-targets/1", "targets": [row, row]}))
    with pytest.raises(ValueError, match="twice"):
        read_targets(str(path))
    path.write_text("{}")
    with pytest.raises(ValueError, match="roofline-targets/1"):
        read_targets(str(path))


# Rows of a run.


def test_a_tests_row_is_a_pair_when_it_was_predicted_and_measured() -> None:
    row = Row(
        nodeid="t.py::t",
        kernel="k|1",
        device="gfx950",
        entry=Entry(op="gemm", bound_type="memory", roof_axis="memory", dtype="bf16", stage="B", roofline_pct=0.9),
        check=Check("consistent", speedup=1.2, band=0.05),
        baseline=Baseline("live", t_s=1e-4),
        prediction=Prediction("k|1", 1.3, roofline_pct=0.75, roof_axis="memory", confidence="medium"),
    )
    found = pair_of(row, date="2026-07-29", stack="vLLM")
    assert found == Pair(
        kernel="k|1",
        op="gemm",
        bound_type="memory",
        axis="memory",
        dtype="bf16",
        device="gfx950",
        stack="vLLM",
        attainable=Figure.of(1.3),
        predicted_pct=Figure.of(0.75),
        basis="model",
        stage="B",
        confidence="medium",
        measured=Figure.of(1.2),
        achieved_pct=Figure.of(0.9),
        noise=0.05,
        date="2026-07-29",
        source="pytest",
    )
    for change in (
        {"prediction": None},
        {"baseline": Baseline("eager", t_s=1e-4)},
        {"check": Check("beyond_roof", speedup=9.0)},
        {"check": Check("not_checked")},
    ):
        assert pair_of(dataclasses.replace(row, **change)) is None
