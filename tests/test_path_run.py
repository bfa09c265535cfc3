"""``train --path``: the table, the model it chooses, and paths that are interrupted and killed."""

import hashlib
import json

import numpy as np
import pytest
from fastadmm import SolverOptions, cross_validate, make_folds, make_problem
from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.figures.numbers import format_number
from fastadmm.runs import fit
from fastadmm.runs.config import make_config
from fastadmm.runs.train import resume_run, start_run
from fastadmm.store.model import open_model
from fastadmm.store.partition import open_partition

from run_tools import (
    Notes,
    in_file,
    model_digests,
    result_of,
    run,
    within,
    write_problem,
)

SMALL = {"path": True, "path_length": 5, "folds": 3, "seed": 7}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("path")
    write_problem(folder / "a.parts", n=180, seed=3)
    write_problem(folder / "t.parts", n=90, seed=4)
    return folder


def config(data, **keys):
    return make_config({"data": str(data / "a.parts"), **SMALL, **keys})


def table_of(directory):
    return json.loads((directory / "path.json").read_text(encoding="utf-8"))


def digests(directory):
    """sha256 of all that does not hold times: table, model, and the weights of every fit."""
    files = [directory / name for name in ("path.json",)]
    files += directory.glob("fits/*/*.npy")
    found = {str(f.relative_to(directory)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    return found | model_digests(directory)


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "run"
    start_run(config(data, test=str(data / "t.parts")), out)
    return out


def test_the_table_is_that_of_the_functions(data, finished):
    partition = open_partition(data / "a.parts")
    y = partition.labels.y
    problem = make_problem([party.load() for party in partition.parties], y)
    table = table_of(finished)
    lambdas = [row["lambda"] for row in table["values"]]
    expected = cross_validate(problem, lambdas, make_folds(y, 3, 7, stratify=True), SolverOptions(gap=1e-6))
    np.testing.assert_array_equal([row["fold_losses"] for row in table["values"]], expected.losses)
    assert (table["chosen"], table["best"], table["rule"]) == (expected.chosen, expected.best, "best")
    assert all(row["gap"] <= 1e-6 and row["status"] == "converged" for row in table["values"])
    assert all(set(row["test"]) == {"log_loss", "accuracy", "auc"} for row in table["values"])


def test_the_chosen_model_is_the_one_of_its_lambda(data, finished, tmp_path):
    table, result = table_of(finished), result_of(finished)
    model = open_model(finished)
    assert model.lam == result["lambda"] == table["lambda"] == table["values"][table["chosen"]]["lambda"]
    assert model.certificate["gap"] == table["values"][table["chosen"]]["gap"] <= 1e-6
    plain = start_run(make_config({"data": str(data / "a.parts"), "lambda": model.lam}), tmp_path / "plain")
    assert abs(plain["objective"] - result["objective"]) <= 1e-6 * plain["objective"]
    assert run("predict", finished, data / "t.parts", "-o", tmp_path / "p.csv") == 0
    assert run("evaluate", finished, data / "t.parts", "--json") == 0


def test_a_killed_path_ends_in_the_same_bytes(data, finished, tmp_path, monkeypatch):
    """Killed after every tenth fit, and before its result is there."""
    write = fit.StoredFits._write
    count = 0

    def dies(self, *arguments):
        nonlocal count
        count += 1
        if count % 10 == 0:
            raise KeyboardInterrupt  # not by the signal handler: the run is not told
        write(self, *arguments)

    monkeypatch.setattr(fit.StoredFits, "_write", dies)
    with pytest.raises(KeyboardInterrupt):
        start_run(config(data, test=str(data / "t.parts")), tmp_path / "run")
    assert not (tmp_path / "run" / "result.json").exists()
    deaths = 1
    while True:
        try:
            resume_run(tmp_path / "run")
            break
        except KeyboardInterrupt:
            deaths += 1
    assert deaths >= 2
    assert digests(tmp_path / "run") == digests(finished)
    # What is stored is not fitted again.
    before = count
    (tmp_path / "run" / "result.json").unlink()
    resume_run(tmp_path / "run")
    assert count == before


def test_smallest_lambdas_and_data_that_are_refused(data, tmp_path):
    result = start_run(config(data, folds=0, path_values=[0.1, 0.3, 0.2], path_length=None), tmp_path / "run")
    table = table_of(tmp_path / "run")
    assert [row["lambda"] for row in table["values"]] == [0.3, 0.2, 0.1]
    assert result["lambda"] == 0.1
    assert table["rule"] is None
    assert "held_out_loss" not in table["values"][0]
    # What the data refuse leaves nothing.
    tmp_path = within(tmp_path)
    with pytest.raises(InputError, match="170 folds: class 'yes' has 82 rows"):
        start_run(config(data, folds=170), tmp_path / "run")
    with pytest.raises(ConfigError, match="none has no lambda"):
        start_run(config(data, regularizer="none"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_json_says_what_was_chosen(data, tmp_path, capsys):
    options = in_file(path=True, path_values=[1.0, 0.01])
    assert run("train", data / "a.parts", *options, "-o", tmp_path / "j", "--json") == 0
    assert json.loads(capsys.readouterr().out)["path"]["chosen"] in (0, 1)


def test_resuming_says_what_is_wrong(data, tmp_path):
    start_run(config(data, path_values=[1.0, 0.1], path_length=None), tmp_path / "run")
    display = Notes()
    resume_run(tmp_path / "run", display=display)
    assert display.lines[0].startswith("nothing to do")
    with pytest.raises(ConfigError, match="no new limit"):
        resume_run(tmp_path / "run", changes={"gap": 1e-9})
    (tmp_path / "run" / "result.json").unlink()
    damaged = tmp_path / "run" / "fits" / "lambda-0001-fold-000" / "fit.json"
    damaged.write_text("{", encoding="utf-8")
    with pytest.raises(FormatError, match="lambda-0001-fold-000: not a stored fit") as caught:
        resume_run(tmp_path / "run")
    assert "\n" not in str(caught.value)
    damaged.write_text("{}", encoding="utf-8")
    with pytest.raises(FormatError, match="not a stored fit"):
        resume_run(tmp_path / "run")


@pytest.mark.repeats
def test_the_report_shows_the_path(data, finished, tmp_path):
    assert run("report", finished, "-o", tmp_path / "a.html") == 0
    page, table = (tmp_path / "a.html").read_text(encoding="utf-8"), table_of(finished)
    section = page[page.index("<h2>Regularisation path</h2>") :].split("</section>")[0]
    assert section.count("<tr>") == 1 + len(table["values"])
    rows = section.split("<tr>")[2:]
    assert [k for k, row in enumerate(rows) if "<td>chosen</td>" in row] == [table["chosen"]]
    for row, values in zip(rows, table["values"]):
        assert f"<td>{format_number(values['held_out_loss'])}</td>" in row
        assert f"<td>{values['nonzero']}</td>" in row
    assert "test AUC" in section
    start_run(config(data, folds=0, path_length=2), tmp_path / "run")
    assert run("report", tmp_path / "run") == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "weights not zero" in page
    assert "held-out loss" not in page.split("<h2>Regularisation path</h2>")[1].split("</section>")[0]
    start_run(make_config({"data": str(data / "a.parts")}), tmp_path / "plain")
    assert run("report", tmp_path / "plain") == 0
    assert "Regularisation path" not in (tmp_path / "plain" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("values", 3, "path.json: damaged"),
        ("values", [{}], "path.json: damaged"),
    ],
)
def test_a_damaged_table_has_no_report(data, finished, tmp_path, key, value, message):
    from fastadmm.reports import write_report

    (tmp_path / "run.toml").write_bytes((finished / "run.toml").read_bytes())
    (tmp_path / "path.json").write_text(json.dumps({**table_of(finished), key: value}), encoding="utf-8")
    with pytest.raises(FormatError, match=message):
        write_report(tmp_path)
