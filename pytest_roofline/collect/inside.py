"""What runs in the child process of a ``perf_report`` function or of a problem file; started by its path, through ``boot``.

``inside.py FOLDERS ROWS KIND FILE [ARGUMENT...]``. FOLDERS: where this package and the engine are imported from. ROWS: the file
that gets a line of JSON per row, and ``{"done": true}`` as its last; stdout and stderr stay the user's.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_roofline.collect.rows import Row

#: Without these nothing of a file can run, which is no fault of it.
FRAMEWORKS = ("torch", "triton")


def main(folders: str, rows: str, kind: str, file: str, *arguments: str) -> None:
    """Write the rows of one item."""
    sys.path += [folder for folder in folders.split(os.pathsep) if folder not in sys.path]
    sys.argv[:] = [file]
    with open(rows, "w", encoding="utf-8") as stream:
        try:
            for row in _rows(kind, file, *arguments):
                print(row.to_json(), file=stream, flush=True)
        except ModuleNotFoundError as error:
            if error.name not in FRAMEWORKS:
                raise
            print(json.dumps({"needs": error.name}), file=stream)
        print(json.dumps({"done": True}), file=stream)


def _rows(kind: str, file: str, *arguments: str) -> Iterator[Row]:
    if kind == "perf_report":
        from pytest_roofline.collect.run_report import keep_still, report

        keep_still()
        return report(_loaded(file), *arguments)
    from pytest_roofline.collect.run_problem import problem

    return problem(_loaded(file), *arguments)


def _loaded(file: str) -> ModuleType:
    """The user's file, imported as a module of its own name."""
    import importlib.util

    sys.path.insert(0, os.path.dirname(file))
    name = os.path.splitext(os.path.basename(file))[0]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(*sys.argv[1:])
