"""Draw results on a terminal with rich: Markdown, tables and progress bars, at its width, without color for NO_COLOR.

Output to a pipe or a file stays plain text. No other module imports rich.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from roofline_engine.cli import Output
from roofline_engine.units import printable


class TerminalOutput(Output):
    """Draws what a command prints on the terminal; plain text where stdout is not one."""

    def markdown(self, text: str) -> None:
        if not sys.stdout.isatty():
            return super().markdown(text)
        from rich.console import Console, ConsoleOptions, RenderResult
        from rich.markdown import Markdown, TableElement
        from rich.table import Table

        class FoldedTable(TableElement):
            """A table that breaks a long name over lines instead of cutting it."""

            def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
                for table in super().__rich_console__(console, options):
                    if isinstance(table, Table):
                        for column in table.columns:
                            column.overflow = "fold"
                    yield table

        class Document(Markdown):
            elements: ClassVar = {**Markdown.elements, "table_open": FoldedTable}

        Console().print(Document(text))

    def width(self) -> None:
        """Cut nothing: tables are folded at the width of the terminal."""

    def table(self, rows: Sequence[Sequence[str]], left: int = 1) -> None:
        if not sys.stdout.isatty():
            return super().table(rows, left)
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD)
        for at, title in enumerate(rows[0]):
            table.add_column(Text(printable(title)), justify="left" if at < left else "right", overflow="fold")
        for row in rows[1:]:
            table.add_row(*(Text(printable(cell)) for cell in row))
        Console().print(table)


@contextmanager
def progress(label: str, total: float | None, *, redraw: bool = True) -> Iterator[Callable[[float], None] | None]:
    """Draw a progress bar on stderr where stderr is a terminal; yield how to set its position.

    total: None draws no bar. redraw: False draws the bar only when its position is set, since a thread that redraws it
    disturbs a measurement.
    """
    if total is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, auto_refresh=redraw) as bar:
        task = bar.add_task(printable(label), total=total)

        def move(position: float) -> None:
            bar.update(task, completed=position, refresh=not redraw)

        yield move
