"""Names of columns, categories and runs are orders to no terminal, spreadsheet or page."""

import csv
import io
import json
import re

import pytest
from fastadmm.cli.terminal import say
from fastadmm.files.escapes import (
    csv_cell,
    csv_rows,
    markdown,
    printable,
    printable_json,
    printable_lines,
)

from run_tools import run

#: Clears the screen, moves the cursor, sets the title, turns the direction of writing round.
ORDERS = ["\x1b[2J", "\x9b2J", "\r", "\x1b]0;owned\a", "\x08", "\u202e", "\x00", "\u2028"]


@pytest.mark.parametrize("order", ORDERS)
def test_no_order_reaches_a_terminal(order, capsys):
    say(f"column a{order}b\n  next line")
    said = capsys.readouterr().out
    assert order not in said
    assert said.replace("\n", "").isprintable()
    assert said.endswith("b\n  next line\n")
    assert printable(f"a{order}").isprintable()
    text = printable_json(json.dumps({f"k{order}": [f"v{order}"]}, indent=1, ensure_ascii=False))
    assert text.replace("\n", "").isprintable()
    assert json.loads(text) == {f"k{order}": [f"v{order}"]}


def test_plain_words_stay():
    for text in ("naïve – 日本 ≤ 5 €", "a_b", "-- x"):
        assert printable(text) == printable_lines(text) == text
    assert printable_json('["ä"]') == '["ä"]'


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", " =1", "\r=1", "\n=1", "＝1", "-x"]
)
def test_formulas_are_texts_in_spreadsheets(text):
    text_in_csv = "'" + text.replace("\r", "\n")
    assert csv_cell(text) == text_in_csv
    file = io.StringIO(newline="")
    csv_rows(file, [[text, 1]])
    assert next(csv.reader(io.StringIO(file.getvalue(), newline=""))) == [text_in_csv, "1"]


@pytest.mark.parametrize("value", ["-1.5", "+2", "-1e-300", "-inf", "a=b", "", "x", -1.5, None, 3])
def test_numbers_and_words_stay_in_csv(value):
    assert csv_cell(value) == value


MARKS = [
    *("a|b", "<script>alert(1)</script>", "[x](http://evil)", "![x](y)", "`a`", "*a*", "_a_"),
    *("a\\|b", "&lt;"),
]


@pytest.mark.parametrize("text", [*MARKS, "a\nb"])
def test_markdown_shows_what_is_there(text):
    escaped = markdown(text)
    assert not re.search(r"(?<!\\)(?:\\\\)*[|<>\[\]`*&]", escaped)
    assert "\n" not in escaped
    assert not escaped.startswith("_")
    assert markdown("lab_size 1.5 %") == "lab_size 1.5 %"


def test_tables_of_predictions_hold_no_formula(tmp_path):
    rows = [f"{'=1+1' if i == 3 else f'k{i}'},{'+yes' if i % 2 else 'no'},{i % 7}\n" for i in range(30)]
    (tmp_path / "t.csv").write_text("id,y,=x\n" + "".join(rows))
    convert = ["convert", "--guest", tmp_path / "t.csv", "--id", "id", "--label", "y", "-o", tmp_path / "p"]
    assert not run(*convert, "--positive", "+yes")
    assert not run("train", tmp_path / "p", "-q", "-o", tmp_path / "r")
    assert not run("predict", tmp_path / "r", tmp_path / "p", "-o", tmp_path / "s.csv")
    assert not run("coefficients", tmp_path / "r", "-o", tmp_path / "c.csv")
    for name in ("s.csv", "c.csv"):
        with (tmp_path / name).open(newline="") as file:
            cells = {cell for row in csv.reader(file) for cell in row}
        assert not [cell for cell in cells if cell[:1] in ("=", "+", "@") and not cell[1:2].isdigit()], name
    assert "'=1+1" in (tmp_path / "s.csv").read_text()
    assert "'=x" in (tmp_path / "c.csv").read_text()
