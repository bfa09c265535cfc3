"""What commands print: tables fit, and a pipe gets whole lines."""

import ast
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fastadmm.cli import terminal
from rich.box import SIMPLE
from rich.table import Table

from run_tools import run, start

ROOT = Path(__file__).parents[1]
NAMES = [
    "party", "column", "variance inflation", "correlation", "information value", "mean_of_reference",
    "expected calibration error", "joins from epsilon", "helpers",
]  # fmt: skip
ROWS = [
    [f"party-{k}", f"mean_concave_points_{k}", *(f"{10.0**k:.4f}" for _ in NAMES[2:-1]), "north, south"]
    for k in range(4)
]


def wide_table():
    table = Table(title="columns", box=SIMPLE)
    for name in NAMES:
        table.add_column(name, justify="left" if name in ("party", "column", "helpers") else "right")
    for row in ROWS:
        table.add_row(*row)
    return table


@pytest.mark.parametrize("width", [60, 80, 120, 250])
def test_tables_fit_and_cut_nothing(monkeypatch, capsys, width):
    monkeypatch.setattr(terminal, "columns", lambda stream: width)
    terminal.show(wide_table())
    out = capsys.readouterr().out
    assert max(map(len, out.split("\n"))) <= width
    assert "…" not in out
    if width == 250:
        assert all(out.count(f" {row[2]} ") == len(NAMES) - 3 for row in ROWS)


def test_pipes_and_commands(capsys):
    terminal.show(wide_table(), "a sentence " * 30)
    lines = capsys.readouterr().out.split("\n")
    assert re.split(r"  +", lines[2].strip()) == NAMES
    assert lines[-2] == "a sentence " * 30
    assert all(line == line.rstrip() for line in lines[:-2])
    # A bare ``print`` is for JSON, and for help, whose lines are broken already.
    for path in sorted((ROOT / "fastadmm" / "cli").glob("*.py")):
        if path.name == "terminal.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.FunctionDef) and node.name == "say"), f"{path.name} hides say()"
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "typer.echo"):
                said = ast.unparse(node)
                assert "json.dumps" in said or "format_message" in said, f"{path.name}: {said}"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
@pytest.mark.parametrize("notebook", [False, True])
def test_a_notebooks_terminal_gets_lines_of_progress(tmp_path, notebook):
    import pty

    rows = "\n".join(f"{k % 2} 1:{k % 7} 2:{k % 5}" for k in range(60))
    (tmp_path / "rows.svm").write_text(rows + "\n", encoding="utf-8")
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("JPY_PARENT_PID", None)
    if notebook:
        environment["JPY_PARENT_PID"] = "1"
    table = tmp_path / "rows.parts"
    assert run("convert", tmp_path / "rows.svm", "--parties", 2, "-o", table) == 0
    shown = b""
    ours, theirs = pty.openpty()
    into: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": theirs}
    with start("train", table, "-o", tmp_path / "run", **into, env=environment) as process:
        os.close(theirs)
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other end is closed
                part = b""
            if not part:
                break
            shown += part
        assert process.wait(60) == 0, shown
    os.close(ours)
    assert (b"\x1b[2K" in shown) is not notebook
    assert b" gap " in shown
