"""Tables as wide as the terminal: headers break between words, and no cell is cut."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from fastadmm.cli.terminal import columns, say
from fastadmm.files.escapes import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Column, Table

#: Columns that a name or a sentence gets, if the table is too wide.
_NAME = 24

#: No terminal: nothing breaks a line.
_ENDLESS = 100_000


def show(*parts: RenderableType) -> None:
    """Print tables and sentences: whole into a pipe, as several tables where a terminal is too narrow."""
    import sys

    from rich.console import Console
    from rich.table import Table

    width = columns(sys.stdout)
    console = Console(highlight=False, width=_ENDLESS if width is None else width)
    for part in parts:
        if not isinstance(part, Table):
            say(str(part))
        elif width is None:
            with console.capture() as text:
                console.print(part)
            print("\n".join(line.rstrip() for line in text.get().rstrip("\n").split("\n")))
        else:
            for table in _fitted(part, console):
                console.print(table)


def grid(
    title: str,
    header: Iterable[str],
    rows: Iterable[Iterable[Any]],
    words: Collection[str] = (),
    simple: bool = False,
) -> Table:
    """A table of values; but for the first column and the words, they stand on the right."""
    from rich.box import HEAVY_HEAD, SIMPLE
    from rich.table import Table
    from rich.text import Text

    heading = Text(printable(title)) if title else None
    table = Table(title=heading, box=SIMPLE if simple else HEAVY_HEAD)
    for k, name in enumerate(header):
        table.add_column(Text(printable(name)), justify="left" if k == 0 or name in words else "right")
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))  # a name in brackets is no markup
    return table


def cell(value: Any) -> str:
    """A value for people: counts in full, other numbers with four digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() or 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
    return "–" if value is None else printable(str(value))


def _fitted(table: Table, console: Console) -> list[Table]:
    """The table, or several with some of its columns each, behind the first that name the row."""

    def fits(part: Table) -> bool:
        return console.measure(part, options=console.options.update(width=_ENDLESS)).maximum <= console.width

    if fits(table):
        return [table]
    keys = 0
    while keys < min(2, len(table.columns) - 1) and table.columns[keys].justify == "left":
        keys += 1
    found: list[Table] = []
    head, rest = table.columns[:keys], table.columns[keys:]
    while rest:
        n = len(rest)
        while n > 1 and not fits(_part(table, [*head, *rest[:n]])):
            n -= 1
        part = _part(table, [*head, *rest[:n]])
        part.title = None if found else part.title
        found.append(part)
        rest = rest[n:]
    return found


def _part(table: Table, of: list[Column]) -> Table:
    """A table with some of another's columns, whose names and sentences may take several lines."""
    from rich.table import Table

    part = Table(
        title=table.title,
        title_justify=table.title_justify,
        box=table.box,
        padding=table.padding,
        show_header=table.show_header,
    )
    for column in of:
        widest = _NAME if column.justify == "left" else None
        part.add_column(
            column.header, justify=column.justify, style=column.style, overflow="fold", max_width=widest
        )
    for row, cells in zip(table.rows, zip(*(column.cells for column in of)), strict=True):
        part.add_row(*cells, style=row.style, end_section=row.end_section)
    return part
