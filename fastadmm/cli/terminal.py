"""What a command says on a terminal: lines, JSON and tables."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from fastadmm.files.escapes import printable, printable_json, printable_lines

if TYPE_CHECKING:
    from rich.table import Table


def columns(stream: TextIO) -> int | None:
    """How wide a stream is; None where it is no terminal, and nothing breaks its lines."""
    try:
        if not stream.isatty():
            return None
        return int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):  # closed, or without a size
        return None


def redraws(stream: TextIO) -> bool:
    """Whether what a stream shows can be drawn over: on a terminal, but not in a notebook's ``!fastadmm``."""
    # A notebook's commands have a terminal that keeps every line, between other marks that it does not know.
    return stream.isatty() and "JPY_PARENT_PID" not in os.environ


def draw_over(text: str) -> None:
    """Draw a line of standard error over the one before; an empty one removes it."""
    width = columns(sys.stderr) or 80
    print(f"\r\x1b[2K{text[: width - 1]}", end="", file=sys.stderr, flush=True)


def say(text: str, *, error: bool = False) -> None:
    """Print sentences at once, one line each; a terminal breaks them."""
    stream = sys.stderr if error else sys.stdout
    print(printable_lines(text), file=stream, flush=True)


def say_all(lines: Iterable[object], before: str = "", *, error: bool = False) -> None:
    """Print sentences, each with the same words before it."""
    for line in lines:
        say(f"{before}{line}", error=error)


def print_json(document: Any, indent: int | None = 2, **how: Any) -> None:
    """Print a JSON document, with escapes for all that is not printable."""
    import json

    print(printable_json(json.dumps(document, indent=indent, **how)))


@contextmanager
def csv_output(out: Path | None, force: bool) -> Iterator[TextIO]:
    """A file for a table, or standard output: in UTF-8 like files, whatever the terminal takes."""
    if out is not None:
        from fastadmm.files.atomic import csv_file

        with csv_file(out, force=force) as file:
            yield file
        return
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    yield sys.stdout


#: No terminal: nothing breaks a line.
_ENDLESS = 100_000


def tell(as_json: bool, document: Any, parts: Callable[[], Iterable[Table | str]], **how: Any) -> None:
    """Print a JSON document, or in its place the tables and sentences that say it."""
    if as_json:
        print_json(document, **how)
    else:
        show(*parts())


def show(*parts: Table | str) -> None:
    """Print tables and sentences, whole into a pipe."""
    width = columns(sys.stdout)
    for part in parts:
        if isinstance(part, str):
            say(part)
            continue
        from rich.console import Console

        console = Console(highlight=False, width=_ENDLESS if width is None else width)
        if width is None:
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
