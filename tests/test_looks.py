"""Looks at the question: each is said once, with its option, and none in a run with privacy."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from fastadmm.data_tools.alignment import Alignment, write_alignment
from fastadmm.data_tools.column_types import column_notes
from fastadmm.data_tools.columns import Column
from fastadmm.data_tools.tables import Places, Table
from fastadmm.errors import InputError
from fastadmm.judging.judgement import judgement
from fastadmm.judging.looks import LOOKS, called_id, separation
from fastadmm.problem.losses import get_loss
from fastadmm.runs.load import partition_looks, seen_by_ids
from fastadmm.solver.cross_validation import make_folds
from fastadmm.solver.early_stopping import held_out_rows
from fastadmm.store.encoder import ColumnEncoding, Encoder
from fastadmm.store.label_file import LabelWriter, open_labels
from fastadmm.store.partition import open_partition

from run_tools import printed, refused, refuses, run, told

N = 300
Y = np.random.default_rng(0).random(N) < 0.3


def table(path, rows=slice(None), **columns):
    """A table of two columns of noise and others, with labels no and yes."""
    noise = np.random.default_rng(1).normal(size=(2, N))
    every = {"u": noise[0], "v": noise[1], **columns, "y": np.where(Y, "yes", "no")}
    cells = zip(*(np.asarray(values)[rows].tolist() for values in every.values()), strict=True)
    path.write_text("\n".join(",".join(map(str, row)) for row in [tuple(every), *cells]) + "\n")
    return path


def convert(source, capsys, *more):
    """Names of the looks that a conversion to a partition beside its source tells."""
    more = more or ("--label", "y", "--parties", 2)
    capsys.readouterr()
    assert run("convert", source, *more, "-o", source.with_suffix(".parts"), "--json") == 0
    return names(json.loads(capsys.readouterr().out)["report"])


def names(lines):
    """Which looks lines are of."""
    return [found[1] for line in lines if (found := re.search(r" \[([a-z-]+)\]$", line))]


def test_the_page_lists_exactly_the_looks():
    page = (Path(__file__).parents[1] / "docs" / "judging.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| .* \| `(.*)` \|$", page, re.MULTILINE)
    assert rows == [
        (name, re.sub(r"{(\w+)[^}]*}", lambda field: field[1].upper(), settles))
        for name, (_, settles) in LOOKS.items()
    ]


@pytest.mark.parametrize(
    ("values", "seen"),
    [
        (np.arange(N) + 7, "numbers the rows"),
        (np.random.default_rng(2).permutation(N) + 1, "numbers the rows"),
        (np.random.default_rng(2).permutation(3 * N)[:N], "another in every row"),
        (-np.cumsum(np.random.default_rng(2).random(N)), "rises or falls"),
        (np.random.default_rng(2).normal(size=N), ""),
        (np.random.default_rng(2).integers(0, 1 << 40, N), ""),  # whole, and differ by chance
        (np.random.default_rng(2).permutation(N) // 2, ""),
    ],
)
def test_ids_and_row_numbers(values, seen):
    lines = notes(values, "x")
    assert len(lines) == bool(seen)
    assert not seen or (seen in lines[0] and lines[0].endswith("convert with --drop x [id]"))
    assert names(notes(np.random.default_rng(2).integers(0, 1 << 40, N), "Kunden-Nr")) == ["id"]


def notes(values, name):
    """What is told of one column of numbers."""
    table = Table("t.csv", [name], {name: Column("number", values.astype(float))}, Places())
    return column_notes(table, Encoder((ColumnEncoding(name),)), np.arange(len(values)))


@pytest.mark.parametrize(
    ("name", "is_id"),
    [
        ("customer_id", True),
        ("KundenNr", True),
        ("ID", True),
        ("rowNumber", True),
        ("paid", False),
        ("mid", False),
    ],
)
def test_names_of_ids(name, is_id):
    assert called_id(name) == is_id


def test_leaks_and_separation(tmp_path, capsys):
    rng = np.random.default_rng(3)
    y = (rng.random(2000) < 0.5).astype(float)
    assert abs(separation(rng.integers(0, 800, 2000), y, 2, True) - 0.5) < 0.1  # 0.78 on its own rows
    assert separation(np.where(y == 1, 3, rng.integers(0, 3, 2000)), y, 2, True) == 1.0
    codes = np.array([2.0, 0.0, 1.0])[rng.integers(0, 3, 900)]
    assert separation(codes, np.array([1.0, 0.0, 2.0])[codes.astype(int)], 3, False) == 1.0
    assert separation(np.arange(90.0), np.repeat([0.0, 2.0, 1.0], 30), 3, False) < 0.8  # class 2 lies between
    assert separation(y + rng.normal(size=2000) * 0.1, 5 - y, 0, False) > 0.8  # of a regression: by rank
    assert separation(-np.exp(np.arange(200) / 9), np.arange(200.0), 0, False) == pytest.approx(1.0)
    # Leak is told at convert and train.
    after = Y + 0.1 * np.random.default_rng(4).normal(size=N)
    city = np.where(Y, "Berlin", np.random.default_rng(4).choice(["Bonn", "Kiel"], N))
    assert convert(table(tmp_path / "n.csv", after=after), capsys) == ["leak"]  # read as plain numbers
    source = table(tmp_path / "t.csv", after=after, city=city)
    assert convert(source, capsys) == ["leak"]
    line = partition_looks(open_partition(tmp_path / "t.parts"))[0]
    assert "'after' (1.000), 'city' (1.000) alone" in line
    assert "--drop after,city [leak]" in line
    assert convert(source, capsys, "--label", "y", "--parties", 2, "--drop", "after,city", "--force") == []
    assert (
        run("train", tmp_path / "n.parts", "--test", tmp_path / "n.parts", "-o", tmp_path / "run", "--json")
        == 0
    )
    said = capsys.readouterr()
    assert names(json.loads(said.out)["looks"]) == ["leak", "seen"]
    assert names(said.err.splitlines()) == ["leak", "seen"]


def test_rows_of_training(tmp_path, capsys):
    def labels(name, ids, y):
        with LabelWriter(tmp_path / name, task="classification", classes=("no", "yes")) as writer:
            writer.append(y, ids=ids)
        return open_labels(tmp_path / name)

    y = Y[:60].astype(float)
    trained = labels("t.h5", np.arange(100, 160), y)
    assert seen_by_ids(trained, labels("a.h5", np.arange(160, 200), y[:40]), False) == []
    some = labels("b.h5", [str(i) for i in range(155, 195)], y[:40])
    assert seen_by_ids(trained, some, True) == []  # where privacy is on, only headers count
    assert "b.h5: 5 of 40 rows are rows of training" in seen_by_ids(trained, some, False)[0]
    assert "t.h5: 60 of 60 rows" in seen_by_ids(trained, trained, True)[0]
    numbered = labels("n.h5", None, y)
    assert names(seen_by_ids(numbered, numbered, False)) == ["seen"]
    assert seen_by_ids(numbered, labels("o.h5", None, 1 - y), False) == []
    train = table(tmp_path / "train.csv", slice(0, 200), row=np.arange(N) + 1000)
    assert (
        run("convert", "--guest", train, "--id", "row", "--label", "y", "-o", tmp_path / "train.parts") == 0
    )
    assert run("train", tmp_path / "train.parts", "-o", tmp_path / "run", "--quiet") == 0
    for rows, count in ((slice(200, None), 0), (slice(150, None), 50), (slice(0, 200), 200)):
        test = table(tmp_path / f"t{count}.csv", rows, row=np.arange(N) + 1000)
        looks = told(capsys, "evaluate", tmp_path / "run", test, "--id", "row", "--label", "y")["looks"]
        assert looks == [] if not count else f": {count} of " in looks[0]


@pytest.mark.parametrize(("test", "seen"), [("same", ["seen"]), ("other", [])])
def test_rows_that_ids_only_number_are_known_by_their_columns(test, seen, tmp_path, capsys):
    convert(table(tmp_path / "same.csv"), capsys)
    convert(table(tmp_path / "other.csv", u=np.arange(N) % 7), capsys)  # the same labels
    given = ("train", tmp_path / "same.parts", "--test", tmp_path / f"{test}.parts", "-o", tmp_path / "run")
    assert names(told(capsys, *given, "--quiet").get("looks", ())) == seen
    assert names(told(capsys, "evaluate", tmp_path / "run", tmp_path / f"{test}.parts")["looks"]) == seen


def test_private_runs_look_at_headers_alone(tmp_path, capsys, monkeypatch):
    source = table(tmp_path / "t.csv", np.r_[np.arange(N), np.arange(99)], after=Y + 0.0, row=np.arange(N))
    description = tmp_path / "columns.toml"
    column = '[columns.{}]\ntype = "number"\nlow = -400\nhigh = 400\nfill = 0\n'
    description.write_text("".join(map(column.format, ("u", "v", "after", "row"))), encoding="utf-8")
    how = ("--label", "y", "--parties", 2, "--public-columns", description)
    assert convert(source, capsys, *how) == []
    train = table(tmp_path / "other.csv", np.arange(N), after=Y + 0.0, row=np.arange(N))
    convert(train, capsys, *how)

    def refuse(*arguments):
        raise AssertionError("rows of a private run were looked at")

    monkeypatch.setattr("fastadmm.runs.load.partition_looks", refuse)
    private = ("--privacy", "fusion", "--epsilon", 1, "-o", tmp_path / "run", "--json")
    assert run("train", tmp_path / "t.parts", "--test", tmp_path / "other.parts", *private) == 0
    assert "looks" not in json.loads(capsys.readouterr().out)
    assert told(capsys, "evaluate", tmp_path / "run", tmp_path / "other.parts")["looks"] == []


def test_labels_among_columns(tmp_path, capsys):
    """The columns of a label holder, joined by the list beside which 'federate align' wrote the labels."""
    source = table(tmp_path / "a.csv", id=np.arange(N) + 10_000)
    assert run("convert", "--guest", source, "--id", "id", "--label", "y", "-o", tmp_path / "a.parts") == 0
    ids = open_partition(tmp_path / "a.parts")
    write_alignment(tmp_path / "rows.json", Alignment(ids.parties[0].ids(), ids.row_digest))
    (tmp_path / "labels.h5").write_bytes((tmp_path / "a.parts" / "labels.h5").read_bytes())
    capsys.readouterr()
    how = ("--host", source, "--id", "id", "--align", tmp_path / "rows.json", "--task", "classification")
    for more, found in (((), ["leak"]), (("--drop", "y"), [])):
        out = ("-o", tmp_path / "host.parts", "--force", "--json")
        assert names(json.loads(printed(capsys, "convert", *how, *more, *out))["report"]) == found


def test_one_class_is_evaluated_and_not_trained_on(tmp_path, capsys):
    convert(table(tmp_path / "t.csv"), capsys)
    assert run("train", tmp_path / "t.parts", "-o", tmp_path / "run", "--quiet") == 0
    convert(table(tmp_path / "m.csv", ~Y), capsys, "--like", tmp_path / "t.parts")
    found = told(capsys, "evaluate", tmp_path / "run", tmp_path / "m.parts")
    assert names(found["looks"])[-1] == "one-class"
    assert found["metrics"]["auc"] is None
    assert found["metrics"]["log_loss"] > 0.0
    for command in (
        ["train"],
        ["columns", "--labels", tmp_path / "m.parts" / "labels.h5"],
        ["scorecard", "bins"],
    ):
        out = [] if command[0] == "columns" else ["-o", tmp_path / "x"]
        assert f"all {np.count_nonzero(~Y)} labels are 'no': two classes are needed" in refused(
            capsys, 3, *command, tmp_path / "m.parts", *out
        )


def test_classes_too_rare():
    y, z = np.r_[np.zeros(95), np.ones(5)], np.r_[np.full(95, -3.0), np.full(5, -1.0)]
    loss = get_loss("logistic")
    (line,) = judgement(loss, y, z, None, classes=["no", "yes"])["looks"]
    assert line.startswith("'yes' is 5 % of the rows, and threshold 0.5 finds 0 % of them: ")
    assert line.endswith("evaluate with --threshold 0.05 [rare]")
    assert judgement(loss, y, z, None, 0.1)["looks"] == judgement(loss, y, z + 2.0, None)["looks"] == []
    assert "--threshold 0.95 [rare]" in judgement(loss, 1.0 - y, -z, None)["looks"][0]
    # A class too rare for folds is called by its label.
    y = np.array([0.0, 0.0, 0.0, 0.0, 1.0])
    refuses(InputError, "3 folds: class 'ja' has 1 rows", make_folds, y, 3, 0, True, ["nein", "ja"])
    refuses(InputError, "validation: class 'ja' has 1 rows", held_out_rows, y, 0.5, 0, True, ["nein", "ja"])


def test_classes_given_to_a_loss_of_numbers(tmp_path, capsys):
    convert(table(tmp_path / "t.csv"), capsys)
    assert run("train", tmp_path / "t.parts", "--loss", "poisson", "-o", tmp_path / "run", "--json") == 0
    said = capsys.readouterr()
    assert names(json.loads(said.out)["looks"]) == names(said.err.splitlines()) == ["numbers"]
    assert "--loss logistic" in said.err
