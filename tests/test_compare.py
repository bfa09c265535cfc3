"""Several runs side by side: every number is the runs' own, and what may not be compared is named."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from fastadmm.reports import compare_runs
from fastadmm.reports.records import comparison_rows
from fastadmm.runs.config import make_config
from fastadmm.runs.evaluate import evaluate_partition
from fastadmm.runs.train import start_run
from fastadmm.store.model import open_model
from fastadmm.store.partition import open_partition

from problems import make_vertical_classification
from run_tools import printed, refused, result_of, run, told, write_blocks, write_problem


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Runs that differ in one thing each."""
    home = tmp_path_factory.mktemp("compare")
    write_problem(home / "a.parts")
    write_problem(home / "b.parts", seed=5)
    blocks, y, _ = make_vertical_classification(300, (4, 6, 3))
    write_blocks(home / "split.parts", [blocks[0], np.hstack(blocks[1:])], y)
    write_blocks(home / "flipped.parts", blocks, 1.0 - y)
    write_problem(home / "t.parts", n=80, seed=9)
    for name, data, options in (
        ("one", "a", {"test": str(home / "t.parts")}),
        ("sharing", "a", {"test": str(home / "t.parts"), "scheme": "sharing"}),
        ("lambda", "a", {"lambda": 1e-2}),
        ("other", "b", {}),
        ("split", "split", {}),
        ("flipped", "flipped", {}),
    ):
        start_run(make_config({"data": str(home / f"{data}.parts"), **options}), home / name)
    evaluate_partition(home / "one", home / "t.parts")
    return home


def test_numbers_are_the_runs_own(place):
    comparison = compare_runs([place / "one", place / "sharing"])
    for compared in comparison.runs:
        result = result_of(Path(compared["path"]))
        for key in ("rounds", "seconds", "objective", "gap", "status"):
            assert compared[key] == result[key], key
        assert compared["test"] == result["test"]
        assert compared["epsilon"] is None
    assert comparison.differing == ["scheme"]
    evaluated = json.loads((place / "one" / "evaluation.json").read_text())["metrics"]
    assert comparison.runs[0]["evaluation"]["auc"] == evaluated["auc"]
    assert comparison.runs[1]["evaluation"] == {}
    assert comparison.notes == []


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("lambda", "Objectives are not comparable: lambda differs."),
        ("other", "trained on different data"),
        ("split", "trained on different data"),
        ("flipped", "trained on different data"),
    ],
)
def test_what_may_not_be_compared_is_named(place, other, said):
    comparison = compare_runs([place / "one", place / other])
    assert any(said in note for note in comparison.notes), comparison.notes


def test_unfinished_and_bare_runs(place, tmp_path):
    half = tmp_path / "half"
    shutil.copytree(place / "one", half)
    (half / "result.json").unlink()
    lines = (half / "rounds.jsonl").read_text().splitlines(keepends=True)
    (half / "rounds.jsonl").write_text(lines[0])
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "run.toml").write_text("lambda = 1e-4\n")
    comparison = compare_runs([place / "one", half, bare])
    assert [r["status"] for r in comparison.runs] == ["converged", "not finished", "not finished"]
    assert comparison.runs[1]["rounds"] == 1
    assert comparison.runs[1]["objective"] == json.loads(lines[0])["objective"]
    assert comparison.runs[2]["rounds"] is None
    assert any(f"Data unknown: {bare}" in note for note in comparison.notes)
    assert comparison_rows(comparison)
    assert comparison_rows(compare_runs([bare, half]))


@pytest.mark.parametrize(
    ("one", "other", "named"),
    [
        ("groups = [[[0], [1, 2, 3]], [], []]", "groups = [[[0, 1], [2, 3]], [], []]", "groups differs"),
        ("validation = 0.25\nseed = 1", "validation = 0.25\nseed = 2", "seed differs"),
        ("seed = 1", "seed = 2", None),  # it draws nothing here
        ("validation = 'v.parts'", "validation = 0.25", "validation differs"),
    ],
)
def test_bounds_are_of_one_objective(place, tmp_path, one, other, named):
    for name, line in (("x", one), ("y", other)):
        shutil.copytree(place / "one", tmp_path / name)
        text = (tmp_path / name / "run.toml").read_text()
        text = re.sub(r"(?m)^(seed|validation|groups|settings) = .*$", "", text)  # and no digest
        (tmp_path / name / "run.toml").write_text(f"{line}\n{text}")
    comparison = compare_runs([tmp_path / "x", tmp_path / "y"])
    notes = [note for note in comparison.notes if "Objectives are not comparable" in note]
    assert (notes == []) == (named is None)
    assert named is None or named in notes[0]


@pytest.mark.repeats
def test_of_private_runs_nobody_learns_whether_labels_are_those_guessed(place, tmp_path):
    private = tmp_path / "private"
    settings = {"mode": "fusion", "epsilon": 1.0, "delta": 1e-4}
    start_run(make_config({"data": str(place / "a.parts"), "privacy": settings}), private)
    for order in ([private, place / "one"], [place / "one", private]):
        right = compare_runs(order)
        guess = tmp_path / "tried"
        shutil.copytree(place / "one", guess, dirs_exist_ok=True)
        text = (guess / "run.toml").read_text()
        text = re.sub("^settings = .*$", "", text, flags=re.MULTILINE)  # no digest of it
        text = re.sub('^(labels|party-1) = "sha256:..', r'\1 = "sha256:zz', text, flags=re.MULTILINE)
        assert text != (place / "one" / "run.toml").read_text()
        (guess / "run.toml").write_text(text)
        wrong = compare_runs([guess if path == place / "one" else path for path in order])
        assert [note.replace(str(guess), str(place / "one")) for note in wrong.notes] == right.notes
        assert any("Data not compared" in note for note in right.notes)


def test_private_runs_show_what_they_spent(place, tmp_path):
    private = tmp_path / "private"
    settings = {"mode": "fusion", "epsilon": 1.0, "row_norm": 1.0}
    start_run(make_config({"data": str(place / "a.parts"), "privacy": settings}), private)
    comparison = compare_runs([place / "one", private])
    statement = json.loads((private / "privacy.json").read_text())["statement"]
    assert comparison.runs[1]["epsilon"] == float(statement["epsilon"])
    assert 0 < comparison.runs[1]["epsilon"] <= 1.0 + 1e-9
    assert comparison.runs[0]["epsilon"] is None
    assert re.search(r"'ε spent', \['–', '[\d.]+ \(δ ", str(comparison_rows(comparison)))
    assert "privacy.mode" in comparison.differing
    assert comparison.runs[1]["objective"] is None


def test_card(place, tmp_path, capsys):
    """The model card says what the files say; all of it: ``outputs.txt``."""
    model = open_model(place / "one")
    metrics = evaluate_partition(place / "one", place / "t.parts")["metrics"]
    for path in (place / "one", place / "one" / "model"):
        card = told(capsys, "card", path)
        assert card["model"]["id"] == model.model_id
        kept = {key: value for key, value in model.certificate.items() if key not in ("weights", "settings")}
        assert card["certificate"] == kept
        assert card["metrics"]["metrics"]["auc"] == metrics["auc"]
        assert card["data"]["n_samples"] == sum(card["data"]["class_rows"].values()) == 300
        assert card["privacy"] == model.privacy.to_json()
    assert run("card", place / "one", "-o", tmp_path / "card.md") == 0
    text = (tmp_path / "card.md").read_text()
    assert str(metrics["auc"]) in text
    assert open_partition(place / "a.parts").row_digest not in text  # digests stay at home
    assert "Not evaluated" in printed(capsys, "card", place / "sharing")
    shutil.copytree(place / "one" / "model", tmp_path / "alone")
    assert "Not recorded here" in printed(capsys, "card", tmp_path / "alone")
    shutil.copytree(place / "one", tmp_path / "run")
    (tmp_path / "run" / "evaluation.json").write_text("{")
    assert "evaluate again" in refused(capsys, 4, "card", tmp_path / "run", "-o", tmp_path / "two.md")
    assert not (tmp_path / "two.md").exists()
