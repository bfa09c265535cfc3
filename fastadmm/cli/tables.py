"""Tables as wide as the terminal, whose cells fold: nothing is cut."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from fastadmm.cli.terminal import columns, say
from fastadmm.files.escapes import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

#: No terminal: nothing breaks a line.
_ENDLESS = 100_000


def show(*parts: RenderableType) -> None:
    """Print tables and sentences, whole into a pipe."""
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
            for column in part.columns:
                column.overflow = "fold"
            console.print(part)


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
