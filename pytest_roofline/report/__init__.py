"""Reports of a run and of checked records. ``write_reports`` writes the files that the user asked for."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline_engine.files import append_text, to_json, write_whole

if TYPE_CHECKING:
    from ..config import Settings
    from ..plot.model import Chart
    from .document import Document


def write_reports(document: Document, data: dict[str, Any], settings: Settings, *, annotations: bool) -> None:
    """Write each report that the user asked for. A report that cannot be written becomes a line in ``document.problems``.

    annotations: whether to print GitHub annotations; false where another plugin prints them.
    """
    from ..config import FIGURES
    from . import markdown

    figures = Figures(data)
    for kind, destination in settings.reports:
        try:
            if kind == "json":
                _file(document, destination, to_json(data))
            elif kind == "md":
                _file(document, destination, markdown.text(document))
            elif kind in FIGURES:
                figures.write(destination, kind)
                _wrote(document, Path(destination))
            elif kind == "github":
                summary = destination or os.environ.get("GITHUB_STEP_SUMMARY")
                if summary:
                    append_text(summary, markdown.text(document) + "\n")  # other steps write to it, too
                    document.written.append(summary)
                else:
                    document.problems.append("report github: no summary, GITHUB_STEP_SUMMARY is not set")
                if annotations:
                    markdown.annotate(document.rows)
        except OSError as error:  # it names the file
            document.problems.append(f"report {kind}: {error}")
        except (TypeError, ValueError) as error:  # a hook added what JSON cannot hold
            document.problems.append(f"report {kind}: not written: {error}")


class Figures:
    """The figures of a report, which share one model."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    @cached_property
    def _model(self) -> Chart:
        from ..plot.sources import read_document

        return read_document(self._data, "report")

    def write(self, destination: str, kind: str) -> None:
        from ..plot.output import write

        write(self._model, destination, f".{kind}")


def _file(document: Document, destination: str, text: str) -> None:
    write_whole(destination, text)
    _wrote(document, Path(destination))


def _wrote(document: Document, path: Path) -> None:
    here = Path.cwd()
    document.written.append(str(path.relative_to(here) if path.is_relative_to(here) else path))
