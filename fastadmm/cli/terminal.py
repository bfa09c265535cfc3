"""What a command says on a terminal: sentences that break between words, and nothing cut."""

from __future__ import annotations

import io
import os
import re
import sys
import textwrap
from typing import Any, TextIO

from fastadmm.files.escapes import printable_json, printable_lines

#: What is copied as a whole, or read as one: it does not break.
_WHOLE = re.compile(r"(?<=: )fastadmm [a-z].*$|\((?:default|min|max): [^()]{1,16}\)|(?<=\d) [%σ]")
_SPACE = "\0"


def columns(stream: TextIO) -> int | None:
    """How wide a stream is; None where it is no terminal, and nothing breaks its lines."""
    try:
        if not stream.isatty():
            return None
        return int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):  # closed, or without a size
        return None


def wrapped(text: str, width: int | None, hang: int | None = None) -> str:
    """Break lines between words; a command that a sentence ends with, or a long path, stays whole."""
    if width is None:
        return text
    lines = []
    for line in text.split("\n"):
        if len(line) <= width:
            lines.append(line)
            continue
        begin = re.match(r"\s*(?:[-*] |\d+\. )?", line)
        assert begin is not None
        indent = len(begin.group()) if hang is None else hang
        lines += textwrap.wrap(
            _WHOLE.sub(lambda found: found.group().replace(" ", _SPACE), line),
            max(width, indent + 20),
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
            drop_whitespace=True,
        )
    return "\n".join(lines).replace(_SPACE, " ")


def redraws(stream: TextIO) -> bool:
    """Whether what a stream shows can be drawn over: on a terminal, but not in a notebook's ``!fastadmm``."""
    # A notebook's commands have a terminal that keeps every line, between other marks that it does not know.
    return stream.isatty() and "JPY_PARENT_PID" not in os.environ


def styled(text: str, code: str, stream: TextIO) -> str:
    """Text in a colour or weight, where the stream shows it."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not stream.isatty()
    return text if plain else f"\x1b[{code}m{text}\x1b[0m"


def draw_over(text: str) -> None:
    """Draw a line of standard error over the one before; an empty one removes it."""
    width = columns(sys.stderr) or 80
    print(f"\r\x1b[2K{text[: width - 1]}", end="", file=sys.stderr, flush=True)


def say(text: str, *, hang: int | None = None, dim: bool = False, error: bool = False) -> None:
    """Print sentences at once: one line each into a file or a pipe, broken between words on a terminal."""
    stream = sys.stderr if error else sys.stdout
    text = wrapped(printable_lines(text), columns(stream), hang)
    print(styled(text, "2", stream) if dim else text, file=stream, flush=True)


def print_json(document: Any, indent: int | None = 2, **how: Any) -> None:
    """Print a JSON document, with escapes for all that is not printable."""
    import json

    print(printable_json(json.dumps(document, indent=indent, **how)))


def data_output() -> TextIO:
    """Standard output for tables: in UTF-8 like files, whatever the terminal takes."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    return sys.stdout
