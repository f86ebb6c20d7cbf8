"""The ledger: it reads back what it writes, keeps every hand-made change, and rates the predictions."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_roofline import cli
from pytest_roofline.ledger import (
    Experience,
    Interval,
    Pair,
    append,
    group,
    locate,
    outcome,
    pair_of,
    propose,
    read,
    store,
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


# Intervals.


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
def test_a_range_counts_as_its_middle_and_is_kept(text: str, low: float, high: float, mid: float) -> None:
    interval = Interval.parse(text, "measured")
    assert (interval.low, interval.high) == (low, high)
    assert interval.mid == pytest.approx(mid)
    assert Interval.parse(str(interval), "again") == interval


@pytest.mark.parametrize("text", ["fast", "1.5x", "nan", "inf", "2-1", "1-2-3", "1,5", "1e999", "", "--1"])
def test_an_invalid_figure_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="measured"):
        Interval.parse(text, "measured")


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


def _intervals(numbers: st.SearchStrategy[float]) -> st.SearchStrategy[Interval | None]:
    return st.none() | st.tuples(numbers, numbers).map(lambda ends: Interval(min(ends), max(ends)))


_PERCENT = _intervals(st.floats(min_value=-1e6, max_value=1e6))
PAIRS = st.builds(
    Pair,
    kernel=_NAME,
    op=_NAME,
    bound_type=st.sampled_from(["memory", "compute", "latency", "unknown"]),
    axis=st.sampled_from(["", "memory", "compute"]),
    dtype=_TEXT,
    device=_TEXT,
    stack=_TEXT,
    attainable=_intervals(_ATTAINABLE),
    predicted_pct=_intervals(_POSITIVE),
    predicted_e2e_pct=_PERCENT,
    basis=st.sampled_from(["", "model", "mixed", "counters"]),
    stage=st.sampled_from(["", "A", "B", "C"]),
    confidence=st.sampled_from(["", "low", "medium", "high"]),
    measured=_intervals(_POSITIVE),
    achieved_pct=_intervals(_POSITIVE),
    measured_e2e_pct=_PERCENT,
    noise=st.floats(min_value=0, max_value=10),
    date=st.sampled_from(["", "2026", "2026-07", "2026-07-29"]),
    source=_TEXT,
)


@given(st.lists(PAIRS, max_size=4))
def test_what_is_written_is_read_back(pairs: list[Pair]) -> None:
    lines = [json.dumps(item.to_json()) for item in pairs]
    assert [Pair.from_json(json.loads(line)) for line in lines] == pairs
    assert all(line.isprintable() and line.isascii() for line in lines)


@given(st.lists(PAIRS, max_size=2), st.lists(PAIRS, max_size=2))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_two_appends_are_one_ledger(tmp_path: Path, first: list[Pair], second: list[Pair]) -> None:
    path = tmp_path / "l.jsonl"
    path.unlink(missing_ok=True)
    assert (append(path, first), append(path, second)) == (len(first), len(second))
    assert read(path) == (path, (*first, *second), ())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("3", "a JSON object"),
        ('{"op": "gemm"}', "kernel is empty"),
        ('{"kernel": 3}', "kernel is 3, expected text"),
        ('{"kernel": "k", "measured": "fast"}', "measured is 'fast', expected a number"),
        ('{"kernel": "k", "measured": [1, 2, 3]}', "measured"),
        ('{"kernel": "k", "measured": [2, 1]}', "the smaller first"),
        ('{"kernel": "k", "measured": true}', "measured"),
        ('{"kernel": "k", "attainable": NaN}', "finite"),
    ],
)
def test_an_invalid_line_is_refused_by_field(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        Pair.from_json(json.loads(line))


BEFORE = b'{"kernel": "by hand", "mood": "good", "measured": [1.3, 1.5]}'


def test_existing_lines_are_never_changed(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + BEFORE)
    path.chmod(0o640)
    append(path, [pair(attainable=2)])
    append(path, [pair(attainable=3)])
    assert path.read_bytes().startswith(b"\xef\xbb\xbf" + BEFORE + b"\n")
    assert [item.attainable for item in read(path).pairs] == [None, Interval.of(2), Interval.of(3)]
    assert read(path).pairs[0] == Pair(kernel="by hand", measured=Interval(1.3, 1.5))
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_project_has_its_own_ledger(tmp_path: Path) -> None:
    path = locate(tmp_path)
    assert path == tmp_path / ".roofline" / "ledger.jsonl"
    assert read(path).pairs == ()
    assert append(path, []) == 0
    assert not path.exists()
    assert append(path, [pair()]) == 1
    assert len(read(path).pairs) == 1


def test_a_hand_edited_line_that_cannot_be_read_is_named_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "l.jsonl"
    append(path, [pair(kernel="good", attainable=2, measured=1.5), pair(kernel="bad", attainable=2, measured=1.5)])
    broken = path.read_text().replace('"bad", "attainable": 2.0', '"bad", "attainable": "much"')
    broken += '{"half a line\n<<<<<<< HEAD\n'
    path.write_text(broken)
    last = broken.count("\n")
    ledger = read(path)
    assert [item.kernel for item in ledger.pairs] == ["good"]
    assert [item.line for item in ledger.unread] == [last - 2, last - 1, last]
    assert "attainable is 'much'" in ledger.unread[0].why
    append(path, [pair(kernel="later")])
    assert path.read_text().startswith(broken)
    assert [item.kernel for item in read(path).pairs] == ["good", "later"]
    status, _, err = run(capsys, monkeypatch, "ledger", "show", "--ledger", path)
    assert status == 0
    assert f"l.jsonl:{last - 2}: not read, kept: attainable is 'much'" in err


NAMES = [
    "a|b",
    "a\\|b\\",
    "two\nlines\r\n",
    "\x1b[31mred\x1b[0m",
    "<script>alert(1)</script>",
    "`x` [l](http://e) &amp;",
    "\ud800",
    " k ",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_is_escaped_in_lines_and_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / "l.jsonl"
    append(path, [Pair(kernel=name, attainable=Interval.of(2)), Pair(kernel="after")])
    assert [item.kernel for item in read(path).pairs] == [name, "after"]
    assert path.read_text().splitlines()[-2].isprintable()
    status, out, _ = run(capsys, monkeypatch, "ledger", "show", "--markdown", "--ledger", path)
    assert status == 0
    line = out.splitlines()[-3]
    assert line.isprintable()
    assert "<script" not in line.replace("\\<", "")
    assert len(re.findall(r"(?<!\\)\|", line.replace("\\\\", ""))) == 7


def test_another_file_is_no_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("kernel,attainable,measured\n" + "a,2,1.5\n" * 500)
    told = f"{path}: not a ledger, no line is a JSON object. A CSV: roofline ledger import FILE"
    assert run(capsys, monkeypatch, "ledger", "show", "--ledger", path) == (2, "", told + "\n")
    with pytest.raises(ValueError, match="no line is a JSON object"):
        append(path, [pair()])


def test_links_folders_and_binary_files_are_not_changed(tmp_path: Path) -> None:
    target = tmp_path / "real.jsonl"
    target.write_text('{"kernel": "mine"}')
    (tmp_path / "link.jsonl").symlink_to(target)
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "utf16.jsonl").write_text("mine", encoding="utf-16")
    for name in ("link.jsonl", "folder.jsonl", "utf16.jsonl"):
        with pytest.raises((OSError, ValueError), match=name.removesuffix(".jsonl")):
            append(tmp_path / name, [pair()])
    assert target.read_text() == '{"kernel": "mine"}'
    assert not list(tmp_path.glob("*.tmp"))


# The Markdown of earlier versions.

#: A playbook with a ledger that an earlier version added.
OLD = (ROOT / "tests" / "ledger" / "old_ledger.txt").read_bytes()
FIRST = Pair(
    kernel="my_gemm",
    op="gemm",
    bound_type="memory",
    axis="memory",
    dtype="bf16",
    device="gfx950",
    stack="vLLM",
    attainable=Interval.of(1.3),
    predicted_pct=Interval.of(0.75),
    predicted_e2e_pct=Interval(-0.4, 0.2),
    basis="model",
    stage="B",
    confidence="medium",
    measured=Interval(1.3, 1.51),
    achieved_pct=Interval.of(0.9),
    measured_e2e_pct=Interval.of(-0.4),
    noise=0.05,
    date="2026-07-29",
    source="pytest",
)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_an_old_ledger_is_read_where_it_is_and_copied_by_the_first_append(tmp_path: Path, newline: bytes) -> None:
    path = tmp_path / "knowledge" / "backend_playbook.md"
    path.parent.mkdir()
    old = b"\xef\xbb\xbf" + OLD.removeprefix(b"\xef\xbb\xbf").replace(b"\n", newline)
    path.write_bytes(old)
    assert locate(tmp_path) == path
    pairs = (FIRST, *(Pair(kernel=name) for name in NAMES))
    assert read(path) == (path, pairs, ())
    lines: list[str] = []
    assert append(path, [FIRST, pair()], once=True, say=lines.append) == 1
    assert lines == [f"{path}: a ledger is a file of JSON lines; the pairs go to {path.with_suffix('.jsonl')}"]
    assert append(path, [pair(measured=2)]) == 1
    assert path.read_bytes() == old
    assert read(path) == (path.with_suffix(".jsonl"), (*pairs, pair(), pair(measured=2)), ())


def test_an_old_ledger_under_another_suffix_is_neither_misread_nor_changed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.txt"
    path.write_bytes(OLD)
    for use in (read, lambda path: append(path, [FIRST])):
        with pytest.raises(ValueError, match=r"ledger\.txt: a Markdown ledger of an older version. Rename it to end in \.md$"):
            use(path)
    assert path.read_bytes() == OLD


def test_an_old_ledger_is_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    jsonl = Path(".roofline", "ledger.jsonl")
    Path("old.md").write_bytes(OLD)
    assert run(capsys, monkeypatch, "ledger", "import", "old.md") == (0, f"{jsonl}: 9 pairs added\n", "")
    assert read(jsonl).pairs[0] == FIRST
    status, out, _ = run(capsys, monkeypatch, "ledger", "import", "old.md", "--ledger", "old.md")  # into itself
    assert (status, out) == (0, "old.jsonl: 0 pairs added, 9 already there\n")
    assert read(Path("old.jsonl")).pairs == read(jsonl).pairs
    Path("old.jsonl").unlink()
    status, out, err = run(capsys, monkeypatch, "ledger", "show", "--ledger", "old.md")
    assert status == 0
    assert "my_gemm" in out
    assert err.startswith("old.md: a Markdown ledger of an older version; new pairs go to ")


def test_columns_that_a_person_moved_or_dropped_are_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "l.md"
    path.write_text(
        "## Roofline ledger\n\n| mood | measured | kernel |\n|:-:|--:|---|\n| good | 1.3-1.5 | a \\| b |\n| half a line\n"
        "| bad | much | c |\n\nA remark.\n\n| kernel |\n|---|\n| second table |\n\n## Next\n\n| kernel |\n|---|\n| not ours |\n"
    )
    ledger = read(path)
    assert [(item.kernel, item.measured) for item in ledger.pairs] == [("a | b", Interval(1.3, 1.5)), ("second table", None)]
    assert [item.line for item in ledger.unread] == [6, 7]
    assert "measured is 'much'" in ledger.unread[1].why


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
    path = tmp_path / "l.jsonl"
    path.write_bytes(BEFORE)
    writers = [_writer(path, str(who), 500, 10) for who in range(8)]
    assert [writer.wait(timeout=300) for writer in writers] == [0] * 8
    found = read(path)
    assert found.unread == ()
    assert sorted(item.kernel for item in found.pairs[1:]) == sorted(f"{who}-{at}" for who in range(8) for at in range(500))
    assert path.read_bytes().startswith(BEFORE)
    for who in range(8):  # each one's lines in its order
        mine = [item.kernel for item in found.pairs if item.kernel.startswith(f"{who}-")]
        assert mine == [f"{who}-{at}" for at in range(500)]


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_kill_during_an_append_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path, batch, pause = tmp_path / "l.jsonl", 50, random.Random(7)
    path.write_bytes(BEFORE + b"\n")
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
        assert (len(found.pairs) - 1) % batch == 0
        assert len(found.pairs) - 1 > before
        assert path.read_bytes().startswith(BEFORE)
        before = len(found.pairs) - 1


# Tables of other projects.


def _published() -> tuple[Pair, ...]:
    return store.read_csv(PUBLISHED).pairs


def test_the_latency_class_has_over_promised_by_a_factor_of_two() -> None:
    classes = {item.key[0]: item for item in group(_published(), lambda item: (item.bound_type,))}
    latency = classes["latency"]
    assert latency.isolated.n == 12
    assert latency.ratio == pytest.approx(0.46, abs=0.005)
    assert (latency.isolated.over_promised, latency.isolated.exceeded) == (10, 2)
    assert (latency.lowest, latency.highest) == (pytest.approx(0.9926 / 4.978), pytest.approx(1.65 / 1.3))


def test_over_and_under_promises_are_shown_beyond_noise() -> None:
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


def test_half_a_percent_end_to_end_is_noise() -> None:
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
    assert "0 pairs added, 20 already there" in run(capsys, monkeypatch, "ledger", "import", "pairs.csv")[1]
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
    assert (status, out) == (0, f"{Path('.roofline', 'ledger.jsonl')}: 1 pair added\n")
    assert [line.split(": ", 1)[0] for line in err.splitlines()] == ["t.csv:3", "t.csv:4", "t.csv:5"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"name,time\n", "no column 'kernel'"),
        (b"kernel,predicted_attainable,attainable,measured\n", "two columns"),
        (b"\x80\x81", "not UTF-8"),
        (b'kernel,attainable,measured\n"open', "line 2"),
        (b"kernel,attainable,measured\n", "no readable row"),
    ],
)
def test_an_invalid_table_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, content: bytes, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_bytes(content)
    status, _, err = run(capsys, monkeypatch, "ledger", "import", "t.csv")
    assert status == 2
    assert why in err
    assert not Path(".roofline").exists()


# What to expect.


def test_without_pairs_no_speedup_is_expected() -> None:
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


def test_impossible_ratios_and_pairs_without_a_kind_are_not_used() -> None:
    assert propose(_reached(30, 1.4)) == []
    assert propose(_reached(30, 0.95, dtype="")) == []
    (found,) = propose(_reached(30, 1.4) + _reached(1, 0.95))
    assert found.n == 1


def test_repeated_attempts_on_one_kernel_count_once() -> None:
    (found,) = propose(_reached(1, 0.95) * 30)
    assert found.n == 1


def test_the_observed_quantile_is_one_that_was_seen() -> None:
    pairs = [item for at in range(10) for item in _reached(1, 0.80 + at / 100, stack=at)]
    assert propose(pairs, 0.9)[0].observed == pytest.approx(0.88)
    assert propose(pairs, 1.0)[0].observed == pytest.approx(0.89)
    with pytest.raises(ValueError, match="quantile"):
        propose(pairs, 0.0)


def test_calibrate_writes_the_named_file_and_the_engine_reads_it(
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
def test_an_invalid_targets_file_is_refused_by_name(tmp_path: Path, change: dict[str, object], why: str) -> None:
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


def test_a_predicted_and_measured_test_is_a_pair() -> None:
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
        attainable=Interval.of(1.3),
        predicted_pct=Interval.of(0.75),
        basis="model",
        stage="B",
        confidence="medium",
        measured=Interval.of(1.2),
        achieved_pct=Interval.of(0.9),
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
