"""Look at every command in a terminal of 80 columns: ``python website/terminal.py [WORD ...] [-o SHOTS]``.

Runs the help of every command, and the main commands on the demo's data, in a pseudo-terminal. Names what a
reader would stumble over: a line of help that the terminal has to break, a word that is cut or shortened, a
command that fails. Keeps a picture of each. With words, only commands whose line contains one are shown.
Needs ``pip install pyte playwright`` and Chromium; ``--check`` takes no pictures and needs ``pyte`` alone.
"""

from __future__ import annotations

import argparse
import fcntl
import html
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyte

ROOT = Path(__file__).resolve().parents[1]
COLUMNS, WIDE = 80, 250

#: Main commands, in an order in which each finds what it needs. One that begins with "!" may fail, and what
#: one that begins with "~" says depends on noise.
SESSION = """
demo
convert demo-run/train.csv --label diagnosis --columns 9,9,12 --standardize --dry-run
convert demo-run/train.csv --label diagnosis --columns 9,9,12 --standardize -o train.parts
convert demo-run/test.csv --label diagnosis --like train.parts -o test.parts
inspect train.parts
inspect train.parts/labels.h5
inspect train.parts/party-1.h5
train train.parts --test test.parts --lambda 1e-2 -o run --dry-run
train train.parts --test test.parts --lambda 1e-2 -o run
train train.parts --test test.parts --scheme sharing --lambda 1e-2 --gap 1e-9 -o sharing
!train train.parts --lambda 1e-2 --scheme sharing --rounds 5 -o short
resume short --rounds 2000
inspect run
inspect run/model
evaluate run test.parts
evaluate run test.parts --threshold 0.3 --reference train.parts
predict run test.parts -o predictions.csv
drift train.parts test.parts
columns train.parts --labels train.parts/labels.h5
coefficients run
infer run
compare run sharing
train train.parts --path -o path
inspect path
worth run
report run
card run
export run -o model.json
export run --party party-1 -o party-1.json
predict --partial run test.parts/party-1.h5 -o contribution.h5
~train train.parts --privacy fusion --epsilon 4 --set privacy.public_scaling=true --lambda 1e-1 -o private
~inspect private
~privacy private
privacy private/privacy-ledger.jsonl
audit private --trials 2000
coordinator start train.parts/labels.h5 --party party-1 --party party-2 --lambda 1e-3 -o files
coordinator step files
party approve files/requests/party-1-000000.msg --data train.parts/party-1.h5 -o approval.toml
party step --data train.parts/party-1.h5 --state state --in files/requests/party-1-000000.msg --out message.h5
scorecard bins train.parts -o woe.parts
train woe.parts --lambda 1e-3 -o woe -q
scorecard points woe -o points --base 600 --odds 50 --pdo 20
owners convert demo-run/train.csv --label diagnosis --sizes 200,226 --names north,south -o hospitals.owners
inspect hospitals.owners
~owners train hospitals.owners --epsilon 2 --bound clip:1 --step 0.1 --rounds 10 -o hospitals
~inspect hospitals
forecast --owners north:20000:1,south:20000:1,tiny:500:0.05 --curvature 0.2,1 --bound clip:1
warmup
!train trian.parts
!trian
"""

_WORD = re.compile(r"(?<![\w/.-])[A-Za-z]{4,}(?![\w/.-])")


class Screen(pyte.Screen):
    """A terminal that remembers which lines it had to break, and the last picture of a progress display."""

    def __init__(self, columns: int) -> None:
        super().__init__(columns, 600)
        self.broken: set[int] = set()

    def draw(self, data: str) -> None:
        """Draw text; a line that goes on at the right edge was too long.

        Parameters
        ----------
        data : str
        """
        for letter in data:
            if self.cursor.x == self.columns:
                self.broken.add(self.cursor.y)
            super().draw(letter)

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        """Forget about a line that is erased.

        Parameters
        ----------
        how, private
            As in pyte.
        """
        self.broken.discard(self.cursor.y)
        super().erase_in_line(how, private)


@dataclass
class Shown:
    """What a command showed."""

    screen: Screen
    code: int
    during: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """Lines, without blank ones at the end."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip().split("\n")


def shown(words: Sequence[str], folder: Path, columns: int) -> Shown:
    """Run the program in a terminal.

    Parameters
    ----------
    words : sequence of str
        After ``fastadmm``.
    folder : Path
        Where to run it.
    columns : int
        Of the terminal.
    """
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    plain = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    program = subprocess.Popen(
        [sys.executable, "-P", "-m", "fastadmm.cli.start", *words]
        if shutil.which("fastadmm", path=str(Path(sys.executable).parent)) is None
        else [str(Path(sys.executable).parent / "fastadmm"), *words],
        cwd=folder,
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env={**plain, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(inner)
    screen = Screen(columns)
    stream, seen = pyte.ByteStream(screen), Shown(screen, 0)
    while True:
        try:
            data = os.read(outer, 1 << 16)
        except OSError:  # Linux: the other end is closed
            break
        if not data:
            break
        stream.feed(data)
        if b"\x1b[2K" in data or b"\r" in data.replace(b"\r\n", b""):
            seen.during = [line.rstrip() for line in screen.display if line.strip()]
    os.close(outer)
    seen.code = program.wait()
    return seen


def helps() -> Iterator[list[str]]:
    """Command lines that ask for help: the program's, and of every command and group."""
    from fastadmm.cli.app import _command

    def below(command: Any, path: list[str]) -> Iterator[list[str]]:
        yield [*path, "--help"]
        for name, child in getattr(command, "commands", {}).items():
            yield from below(child, [*path, name])

    yield from below(_command(), [])


def faults(narrow: Shown, wide: Shown, mark: str, is_help: bool) -> list[str]:
    """What is wrong with the output of a command.

    Parameters
    ----------
    narrow, wide : Shown
        The same command in terminals of 80 columns and of many.
    mark : str
        Before the line of the session, or "".
    is_help : bool
        Of other output a sentence is one line, for pipes; the terminal breaks it.
    """
    found = []
    if narrow.code and mark != "!":
        found.append(f"exit code {narrow.code}: {narrow.lines[-1]}")
    for line in wide.lines:
        if len(line) > COLUMNS and line not in narrow.lines:
            start = line[:COLUMNS].rstrip()
            at = next((k for k, text in enumerate(narrow.lines) if text == start), None)
            if is_help and at in narrow.screen.broken:
                found.append(f"wider than {COLUMNS} columns: {line}")
    known = set(_WORD.findall("\n".join(wide.lines)))
    cut = sorted(set(_WORD.findall("\n".join(joined(narrow)))) - known)
    if cut and mark != "~":
        found.append(f"words cut: {' '.join(cut)}")
    shortened = [line for line in narrow.lines if "…" in line]
    if shortened and not any("…" in line for line in wide.lines):
        found.append(f"shortened: {shortened[0]}")
    return found


def joined(narrow: Shown) -> list[str]:
    """Lines, with those that the terminal broke in one piece again."""
    found: list[str] = []
    begun = False
    for number, line in enumerate(narrow.lines):
        if line.startswith("fastadmm: compiling"):  # what the first to run says
            continue
        if begun:
            found[-1] = found[-1].ljust(COLUMNS) + line if len(found[-1]) < COLUMNS else found[-1] + line
        else:
            found.append(line)
        begun = number in narrow.screen.broken
    return found


COLOURS = {
    "black": "#45475a",
    "red": "#f38ba8",
    "green": "#a6e3a1",
    "brown": "#f9e2af",
    "blue": "#89b4fa",
    "magenta": "#cba6f7",
    "cyan": "#94e2d5",
    "white": "#cdd6f4",
}


def page(command: str, seen: Shown) -> str:
    """A terminal as HTML.

    Parameters
    ----------
    command : str
        The command line.
    seen : Shown
    """
    rows = []
    for number in range(len(seen.lines)):
        cells = seen.screen.buffer[number]
        row = ""
        for column in range(seen.screen.columns):
            cell = cells[column]
            colour = COLOURS.get(
                cell.fg.removeprefix("bright"),
                f"#{cell.fg}" if re.fullmatch("[0-9a-f]{6}", cell.fg) else "inherit",
            )
            style = f"color:{colour}" + (";font-weight:bold" if cell.bold else "")
            row += f'<span style="{style}">{html.escape(cell.data)}</span>' if cell.data else ""
        rows.append(row)
    if seen.during:
        rows += ["", "<i>while it ran:</i>", *map(html.escape, seen.during)]
    return (
        '<meta charset="utf-8"><body style="margin:0;background:#1e1e2e;color:#cdd6f4">'
        "<pre style=\"display:inline-block;margin:12px;font:14px/1.2 'DejaVu Sans Mono',monospace;"
        f'width:{COLUMNS}ch;border-right:1px solid #45475a"><b>$ fastadmm {html.escape(command)}</b>\n'
        + "\n".join(rows)
        + "</pre>"
    )


def main() -> int:
    """Run the commands; 1 where one has a fault."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "website" / "shots" / "terminal")
    parser.add_argument("--check", action="store_true", help="take no pictures")
    parser.add_argument("--only", choices=("help", "session"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    count, pages = 0, {}
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / width for width in ("narrow", "wide")]
        for folder in folders:
            folder.mkdir()
        lines = [(words, "") for words in helps()] if asked.only != "session" else []
        if asked.only != "help":
            lines += [
                (line.lstrip("!~").split(), line[0] if line[0] in "!~" else "")
                for line in SESSION.strip().splitlines()
            ]
        for words, mark in lines:
            command = " ".join(words)
            is_help = words[-1] == "--help"
            if is_help and asked.words and not any(word in command for word in asked.words):
                continue
            narrow, wide = (shown(words, folder, size) for folder, size in zip(folders, (COLUMNS, WIDE)))
            for fault in faults(narrow, wide, mark, is_help):
                count += 1
                print(f"fastadmm {command}: {fault}", flush=True)
            if not asked.words or any(word in command for word in asked.words):
                number = "" if is_help else f"{len(pages):03}-"
                pages[number + re.sub(r"[^\w.-]+", "-", command)[:60].strip("-")] = page(command, narrow)
    if not asked.check:
        pictures(pages, asked.out)
    print(f"{len(pages)} commands; faults: {count}")
    return int(count > 0)


def pictures(pages: dict[str, str], out: Path) -> None:
    """Take a picture of each page.

    Parameters
    ----------
    pages : dict
        HTML by name.
    out : Path
        Directory.
    """
    sys.path.insert(0, str(Path(__file__).parent))  # PYTHONSAFEPATH leaves it out
    from look import browser

    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 740, "height": 200})
        for name, text in pages.items():
            page.set_content(text)
            page.screenshot(path=out / f"{name}.png", full_page=True)


if __name__ == "__main__":
    sys.exit(main())
