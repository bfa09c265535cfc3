"""docs/wishes.md: what it names exists."""

import ast
import re
from pathlib import Path

import fastadmm
import typer.main
from fastadmm.cli.app import _register, app

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "wishes.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if re.match(r"\| \d+ \|", line)
]


def test_every_wish_has_its_row():
    assert [int(row[0]) for row in ROWS] == list(range(1, 25))
    for row in ROWS:
        assert len(row) == 7
        assert re.search(r"\[#\d+\]\(https://github.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+\)", row[2]), row[1]
        for number, target in re.findall(r"\[#(\d+)\]\(([^)]*)\)", row[2]):
            assert target.endswith(f"/{number}")
    states = [row[3] for row in ROWS]
    assert set(states) <= {"done", "partly", "not done"}
    assert f"{states.count('done')} are done, {states.count('partly')} partly." in PAGE


def test_every_test_named_exists():
    for row in ROWS:
        named = re.findall(r"`([^`]*)`", row[6])
        assert named, row[1]
        for name in named:
            file, function = name.split("::")
            tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
            assert function in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}, name


def test_every_command_named_exists():
    _register()
    top = typer.main.get_command(app)
    for row in ROWS:
        words = row[5].strip("`").split()
        if words[0] == "fastadmm":
            command = top
            for word in words[1:]:
                command = command.commands[word]  # type: ignore[attr-defined]
        else:
            assert words == ["pip", "install"] or words[0] in fastadmm.__all__, row[5]
