"""The share of ordinary tests that get a verdict on this machine, the reasons of the others, and how a repeat differs.

    python benchmarks/verdict_share.py [PATH ...] [--repeat=N] [--pytest OPTION ...]

PATH: folders of tests; by default ``ordinary_tests`` next to this file and the examples, without the planted cheats. Each
folder is one run of pytest with ``--roofline``. The share counts the rows with a time. A repeat agrees where a row has the same
class or the same reason again. The load of the machine is printed with each run: other programs cost verdicts (``noisy``).
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
FOLDERS = (HERE / "ordinary_tests", EXAMPLES / "kernels", EXAMPLES / "unmodified")


def rows(folder: Path, options: list[str]) -> list[dict]:
    """Run the tests of a folder; return its measured rows, by their names."""
    with tempfile.TemporaryDirectory() as out:
        report = Path(out) / "report.json"
        command = [sys.executable, "-m", "pytest", "-q", "--roofline", f"--roofline-report=json:{report}", "--roofline-report="]
        command += ["-p", "no:cacheprovider", "--benchmark-columns=median", *options, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        if not report.is_file():
            sys.exit(f"{folder}: no report\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        entries = json.loads(report.read_text(encoding="utf-8"))["entries"]
    return [entry for entry in entries if entry["measurement"] is not None]


def outcome(row: dict) -> str:
    """Return the class of a row, or the reason why it has none."""
    return row["unknown_reason"] or row["headroom_class"]


def run(folders: list[Path], options: list[str]) -> dict[str, dict]:
    """Return the rows of one run of all folders by folder and name."""
    load = os.getloadavg()[0]
    found = {f"{folder.name}/{row['nodeid']}": row for folder in folders for row in rows(folder, options)}
    print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores")
    return found


def show(found: dict[str, dict]) -> None:
    """Print the share of rows with a verdict, and the others by their reason."""
    judged = sum(row["headroom_class"] != "unknown" for row in found.values())
    beyond = sum(row["check"]["status"] == "beyond_roof" for row in found.values())
    by_level = Counter(row["roof_level"] for row in found.values() if row["roof_level"])
    levels = ", ".join(f"{count} by {level}" for level, count in sorted(by_level.items()))
    share = judged / len(found) if found else 0.0
    print(f"{len(found)} measured, {judged} with a verdict ({share:.0%}; {levels or 'none by a cache'}), {beyond} beyond_roof")
    for reason, count in Counter(row["unknown_reason"] for row in found.values() if row["unknown_reason"]).most_common():
        names = [name.rpartition("::")[2] for name, row in found.items() if row["unknown_reason"] == reason]
        print(f"  {reason} {count}: {', '.join(names)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--pytest", nargs=argparse.REMAINDER, default=[], help="all words after it are options of pytest")
    options = parser.parse_args()
    folders = [path.resolve() for path in options.paths] or list(FOLDERS)
    runs = []
    for _ in range(1 + options.repeat):
        runs.append(run(folders, options.pytest))
        show(runs[-1])
    for before, after in itertools.pairwise(runs):
        both = before.keys() & after.keys()
        same = sum(outcome(before[name]) == outcome(after[name]) for name in both)
        judged = [name for name in both if "unknown" not in (before[name]["headroom_class"], after[name]["headroom_class"])]
        classes = sum(outcome(before[name]) == outcome(after[name]) for name in judged)
        print(f"repeat: {same} of {len(both)} rows alike; of {len(judged)} with a verdict twice, {classes} of the same class")
        for name in sorted(both):
            if outcome(before[name]) != outcome(after[name]):
                print(f"  {name.rpartition('::')[2]}: {outcome(before[name])}, then {outcome(after[name])}")


if __name__ == "__main__":
    main()
