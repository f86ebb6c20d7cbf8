"""Script-shaped tests under ``pytest --roofline``: run as scripts, with one row per record of their output."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_roofline.collect import scripts
from pytest_roofline.collect.collectors import PythonFile
from pytest_roofline.collect.scripts import ScriptEntry, read_scripts
from support.project import Project, Ran

#: aiter's columns. (64*1024 + 1024*8192 + 64*8192) * 2 bytes in 6.4 us are 2.81 TB/s; 1.32 is what is printed.
TABLE = "dtype,m,n,k,ck us,ck TFLOPS,ck TB/s,triton us\nbf16,64,8192,1024,6.4,167.8,1.32,6.1\n"
SCRIPT = f"""
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--out", default="gemm.csv")
args = parser.parse_args()
with open(args.out, "w") as stream:
    stream.write({TABLE!r})
"""
MARKDOWN = """| dtype | m | n | k | ck us | ck TFLOPS |
|:------|--:|--:|--:|------:|----------:|
| bf16 | 64 | 8192 | 1024 | 6.4 | 167.8 |"""
CK, TRITON = "[ck 64x8192x1024]", "[triton 64x8192x1024]"


def run(project: Project, *args: object, report: bool = True, plugins: tuple[str, ...] = ()) -> Ran:
    ran = project.run("--roofline-device=MI355X", *args, report=report, plugins=plugins)
    assert "INTERNALERROR" not in ran.out, ran.out
    return ran


def listed(project: Project, *lines: str) -> None:
    (project.path / "pytest.ini").write_text("[pytest]\nroofline_scripts =\n" + "".join(f"    {line}\n" for line in lines))


def test_each_record_of_the_written_csv_is_a_row(project: Project) -> None:
    project.write(test_gemm=SCRIPT)
    ran = run(project)
    assert ran.counts == {"passed": 1}
    assert set(ran.rows) == {f"test_gemm{CK}", f"test_gemm{TRITON}"}
    row = ran.rows[f"test_gemm{CK}"]
    assert row["nodeid"] == f"test_gemm.py::test_gemm{CK}"
    assert row["bytes_est"] == 2 * (64 * 1024 + 1024 * 8192 + 64 * 8192)
    assert row["measurement"]["t_s"] == pytest.approx(6.4e-6)
    assert row["work"]["source"] == "script"
    assert "its printed rate is wrong: " in row["notes"]
    assert "1.32 TB/s is printed, shape and time give 2.806 TB/s" in row["notes"]
    assert "its printed rate is wrong" not in ran.rows[f"test_gemm{TRITON}"]["notes"]
    assert not (project.path / "gemm.csv").exists()  # it ran in a temporary folder


def test_without_the_flag_a_script_ends_the_session(project: Project) -> None:
    project.write(test_gemm=SCRIPT)
    on, off = (project.spawn("-q", on=on) for on in (False, None))
    assert on.code == off.code == 3  # pytest: INTERNALERROR, unexpected SystemExit
    assert "INTERNALERROR" in on.out


def test_tests_next_to_a_script_run(project: Project) -> None:
    project.write(test_gemm=SCRIPT, test_other="def test_one(): pass")
    assert run(project).counts == {"passed": 2}
    assert run(project, "test_gemm.py::test_gemm").counts == {"passed": 1}
    assert run(project, "--co", "-q", report=False).out.count("test_gemm.py::test_gemm") == 1


def test_doctest_modules_do_not_import_a_script(project: Project) -> None:
    project.write(test_gemm=SCRIPT)
    assert run(project, "--doctest-modules").counts == {"passed": 1}


def test_items_of_other_plugins_for_the_file_remain(project: Project) -> None:
    """A linter's, for one; what would import the file goes."""
    project.write(
        test_gemm=SCRIPT,
        conftest="""
        import pytest

        class Lint(pytest.File):
            def collect(self):
                yield Check.from_parent(self, name="lint")

        class Check(pytest.Item):
            def runtest(self): pass

        def pytest_collect_file(file_path, parent):
            return Lint.from_parent(parent, path=file_path) if file_path.name == "test_gemm.py" else None
        """,
    )
    ran = run(project, "-v")
    assert ran.counts == {"passed": 2}
    assert "test_gemm.py::lint PASSED" in ran.out


@pytest.mark.parametrize("prefix", ["", "[aiter] gemm summary (markdown):\\n"])
def test_a_table_on_stdout(project: Project, prefix: str) -> None:
    project.write(test_gemm=f"import sys\nprint('''{prefix}{MARKDOWN}\n\ndone''')\nsys.exit(0)")
    assert list(run(project).rows) == [f"test_gemm{CK}"]


def test_a_csv_on_stdout_with_an_invalid_row(project: Project) -> None:
    project.write(test_gemm=f"import sys\nprint({TABLE + 'bf16,64,8192,1024,-1,,,6.1'!r})\nsys.exit()")
    rows = run(project).rows
    assert len(rows) == 4
    refused = next(row for row in rows.values() if row["measurement"] is None)
    assert "line 3: ck us is '-1'" in refused["notes"]


def test_a_script_without_output_is_reported(project: Project) -> None:
    project.write(test_gemm="import sys\nprint('all good')\nsys.exit(0)")
    (row,) = run(project).report["entries"]
    assert row["short_name"] == "test_gemm"
    assert "wrote no records in a known format" in row["notes"]


def test_listed_scripts_need_no_test_name(project: Project) -> None:
    folder = project.path / "op_tests"
    folder.mkdir()
    (folder / "bench_gemm.py").write_text(SCRIPT)
    (folder / "helper.py").write_text(SCRIPT)
    assert run(project).code == 5
    listed(project, "op_tests/bench_*.py::csv={out}/*.csv")
    assert set(run(project).rows) == {f"bench_gemm{CK}", f"bench_gemm{TRITON}"}


def test_arguments_and_a_csv_where_the_script_puts_it(project: Project) -> None:
    (project.path / "bench_gemm.py").write_text(SCRIPT)
    (project.path / "results").mkdir()
    (project.path / "results" / "old.csv").write_text(TABLE)
    listed(project, "bench_*.py :: csv=results/*.csv :: args=--out 'results/new one.csv'")
    assert len(run(project).rows) == 2  # of the new file alone
    assert (project.path / "results" / "new one.csv").exists()
    listed(project, "bench_*.py::csv={out}/deep/*.csv::args=--out {out}/gemm.csv")
    (row,) = run(project).report["entries"]
    assert "wrote no records" in row["notes"]


def test_a_requested_file_of_unknown_format_is_reported(project: Project) -> None:
    project.write(test_gemm="import sys\nopen('x.csv', 'w').write('a,b\\n1,2\\n')\nsys.exit(0)")
    listed(project, "test_gemm.py::csv={out}/*.csv")
    (row,) = run(project).report["entries"]
    assert "x.csv: not in a known format" in row["notes"]


@pytest.mark.parametrize("line", ["x.py::csv", "::csv=a", "x.py::out=a", "x.py::csv=", "x.py::args='"])
def test_an_invalid_scripts_line_is_a_usage_error(project: Project, line: str) -> None:
    listed(project, line)
    ran = run(project)
    assert ran.code == 4
    assert f"roofline_scripts: {line!r}" in ran.out


def test_the_parts_of_a_line() -> None:
    assert read_scripts(["a/*.py", "b.py::args=-m 1 '2 3'::csv={out}/x=*.csv"]) == (
        ScriptEntry("a/*.py"),
        ScriptEntry("b.py", "{out}/x=*.csv", ("-m", "1", "2 3")),
    )


def test_the_default_device_is_this_machine(project: Project) -> None:
    """Times under aiter's columns are a device's as a rule; on a machine without one, and for ``cpu``, they are the host's."""
    project.write(test_gemm=SCRIPT.replace("bf16", "fp32"))
    project.write(
        conftest="""
        from roofline_engine.peaks import Peaks
        def pytest_roofline_peaks(config, device):
            return Peaks(source="measured", product="cpu", hbm_bw_bytes_s=2e10, flops={"fp32": 1e11})
        """
    )
    row = project.run("--roofline-device=cpu").rows[f"test_gemm{CK}"]
    assert row["device"] == "cpu"
    assert row["measurement"]["clock"] == "host"


def test_a_device_column_is_used(project: Project) -> None:
    table = TABLE.replace("dtype,", "gfx,cu_num,dtype,").replace("bf16,", "gfx942,80,bf16,")
    project.write(test_gemm=f"import sys\nprint({table!r})\nsys.exit(0)")
    assert {row["device"] for row in run(project).rows.values()} == {"mi308x"}


def test_the_child_gets_pythonpath_from_the_ini(project: Project) -> None:
    (project.path / "src").mkdir()
    (project.path / "src" / "mylib.py").write_text(f"TABLE = {TABLE!r}")
    project.write(test_gemm="import sys, mylib\nprint(mylib.TABLE)\nsys.exit(0)")
    (project.path / "pytest.ini").write_text("[pytest]\npythonpath = src\n")
    assert run(project).counts == {"passed": 1}


def test_a_gate_applies_to_script_rows(project: Project) -> None:
    """8192 cubed are 1.1e12 FLOPs: 437 us at the 2.517 PFLOP/s of an MI355X, in 100."""
    project.write(test_gemm=SCRIPT.replace("64,8192,1024,6.4,167.8,1.32,6.1", "8192,8192,8192,100,,,600"))
    ran = run(project, "--roofline-fail-on=beyond_roof")
    assert ran.code == 1
    failed = [row for row in ran.rows.values() if row["failed"]]
    assert [row["short_name"] for row in failed] == ["test_gemm[ck 8192x8192x8192]"]
    assert failed[0]["check"]["utilisation"] == pytest.approx(2 * 8192**3 / 100e-6 / 2.5166e15, rel=1e-3)


def test_more_rows_than_the_limit(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "MOST", 10)
    table = TABLE.partition("\n")[0] + "".join(f"\nbf16,{m},8192,1024,6.4,,,6.1" for m in range(1, 20))
    project.write(test_gemm=f"import sys\nprint({table!r})\nsys.exit(0)")
    rows = list(run(project).rows.values())
    assert len(rows) == 11
    assert "shows the first 10 rows" in rows[10]["notes"]


def test_the_project_table_gives_work_to_rows_without_it(project: Project) -> None:
    project.toml('[tool.roofline.work]\n"*::test_sort*" = { bytes = 8e8 }\n')
    table = "dtype,rows,ck us,ck TB/s\nbf16,7,200,4.0\n"
    project.write(test_sort=f"import sys\nprint({table!r})\nsys.exit(0)")
    (row,) = run(project).rows.values()
    assert (row["work"]["source"], row["bytes_est"]) == ("config", 8e8)
    assert row["roofline_pct"] == pytest.approx(0.5)  # of 8 TB/s


def test_a_root_folder_with_glob_characters_works(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project.path / "a [b]*"
    (root / "results").mkdir(parents=True)
    (root / "bench.py").write_text(SCRIPT)
    (root / "pytest.ini").write_text("[pytest]\nroofline_scripts = bench.py::csv=results/*.csv::args=--out results/x.csv\n")
    monkeypatch.chdir(root)
    assert "2 measured" in run(project, ".").out


@pytest.mark.parametrize("name", ["__main__", "setup"])
def test_files_run_by_other_programs_are_not_collected(project: Project, name: str) -> None:
    (project.path / "pytest.ini").write_text("[pytest]\npython_files = *.py\n")
    (project.path / f"{name}.py").write_text(SCRIPT)
    assert f"{name}.py::{name}" not in project.run("--co", "-q", report=False).out


# Which files are scripts.

SCRIPTS = [
    "args = parser.parse_args()",
    "main(parser.parse_args())",
    "args, rest = a.b.parser.parse_args(sys.argv[1:]), 1",
    "sys.exit(main())",
    "exit()",
    "quit(1)",
    "raise SystemExit",
    "raise SystemExit(main())",
    "with open('x') as f:\n    sys.exit(0)",
    "try:\n    args = parser.parse_args()\nexcept ValueError:\n    pass",
    "def test_one(): pass\nargs = parser.parse_args()",
    "from sys import exit\nexit(main())",
    "args = parser.parse_args()\nsys.argv = ['x']",
    "sys.argv = ['x']\nsys.exit(main())",
]
TESTS = [
    "",
    "def test_one(): pass",
    "if __name__ == '__main__':\n    args = parser.parse_args()\n    sys.exit(main(args))",
    "def main():\n    args = parser.parse_args()\n    sys.exit(0)",
    "class A:\n    def run(self):\n        exit()",
    "if not torch.cuda.is_available():\n    sys.exit(0)",
    "args = parser.parse_args([])",
    "args = parser.parse_args(args=['--m', '1'])",
    "args, rest = parser.parse_known_args()",
    "sys.argv = ['x']\nargs = parser.parse_args()",
    "sys.argv[1:] = []\nargs = parser.parse_args()",
    "try:\n    args = parser.parse_args()\nexcept SystemExit:\n    args = None",
    "try:\n    sys.exit(0)\nexcept:\n    pass",
    "run = lambda: sys.exit(0)",
    "def exit(code): pass\nexit(0)",
    "from mylib import exit\nexit(0)",
    "pytest.exit('no GPU')",
    "args = parser.parse_args() if STANDALONE else None",
    "STANDALONE and sys.exit(main())",
    "text = 'sys.exit(0)  # parser.parse_args()'",
    "import sys\nsyntax error here sys.exit(",
    "\0sys.exit(0)",
]


@pytest.mark.parametrize("text", SCRIPTS)
def test_which_files_are_scripts(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(text)
    assert PythonFile(path).ends_at_import()


@pytest.mark.parametrize("text", TESTS)
def test_which_files_are_test_modules(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(text)
    assert not PythonFile(path).ends_at_import()
