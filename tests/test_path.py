"""Paths and cross-validation: those of scikit-learn; ``train --path``, also interrupted and killed."""

import hashlib
import json

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import (
    ADMMSharingClassifierCV,
    ADMMSharingRegressorCV,
    SolverOptions,
    cross_validate,
    lambda_grid,
    make_folds,
    make_problem,
    path,
    solve,
)
from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.runs import fit
from fastadmm.runs.config import make_config
from fastadmm.runs.train import resume_run, start_run
from fastadmm.solver.cross_validation import choose
from fastadmm.solver.regularization_path import largest_lambda
from fastadmm.store.model import open_model
from fastadmm.store.partition import open_partition
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.linear_model import (
    Ridge,
    RidgeCV,
    enet_path,
)
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold
from sklearn.preprocessing import scale
from sklearn.utils.estimator_checks import parametrize_with_checks

from run_tools import Notes, model_digests, refuses, result_of, run, within, write_problem

DIABETES = scale(load_diabetes().data), load_diabetes().target
CANCER = scale(load_breast_cancer().data), load_breast_cancer().target
EXACT = SolverOptions(gap=1e-10)


def cancer(**more):
    X, y = CANCER
    return make_problem([X[:, :10], X[:, 10:]], y.astype(float), **more)


@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize(
    ("regularizer", "parameters"), [("l1", {}), ("elastic_net", {"l1_ratio": 0.3}), ("group_lasso", {})]
)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_grid_begins_where_all_weights_vanish(loss, regularizer, parameters, fit_intercept):
    X, y = DIABETES
    blocks, more = [X[:, :4], sp.csr_array(X[:, 4:])], {"loss": loss, "fit_intercept": fit_intercept}
    problem = make_problem(
        blocks, y / y.std(), regularizer=regularizer, regularizer_parameters=parameters, **more
    )
    largest = largest_lambda(problem)
    for factor, zero in ((1.001, True), (0.98, False)):
        options = {"regularizer_parameters": parameters, "lam": largest * factor}
        at = make_problem(blocks, y / y.std(), regularizer=regularizer, **more, **options)
        result = solve(at, SolverOptions(gap=1e-9))
        size = max(np.abs(x).max() for x in result.weights)
        assert size < 1e-7 if zero else size > 1e-4


def test_grids_and_choices():
    X, _ = CANCER
    singular = np.linalg.svd(X, compute_uv=False)[0] ** 2 / len(X)
    share = CANCER[1].mean()
    grid = lambda_grid(cancer(), 7)
    assert grid[0] == pytest.approx(singular * share * (1 - share), rel=1e-3)
    assert grid[-1] == pytest.approx(1e-6 * grid[0])
    assert lambda_grid(cancer(), 3, 0.01)[1] == pytest.approx(0.1 * grid[0])
    assert lambda_grid(cancer(), 1) == [grid[0]]
    losses = np.array([[4.0, 6.0], [2.1, 3.9], [2.0, 3.0], [2.4, 2.8], [3.0, 3.4]])
    assert choose(losses, "best") == (2, 2)
    assert choose(losses, "1se") == (1, 2)  # standard error of the best: 0.5, so the threshold is 3.0


@pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
def test_the_path_is_scikit_learns_enet_path(l1_ratio):
    X, y = DIABETES
    X, y = DIABETES
    problem = make_problem(
        [X[:, :4], X[:, 4:]], y, loss="squared", regularizer="elastic_net",
        regularizer_parameters={"l1_ratio": l1_ratio},
    )  # fmt: skip
    points = path(problem, options=EXACT, length=8)
    alphas, coefs, _ = enet_path(
        X, y - y.mean(), l1_ratio=l1_ratio, alphas=[p.lam for p in points], tol=1e-12, max_iter=100_000
    )
    np.testing.assert_allclose([p.lam for p in points], alphas)
    for point, coef in zip(points, coefs.T):
        np.testing.assert_allclose(np.concatenate(point.weights), coef, atol=1e-3)
        assert point.record.gap <= 1e-10
        assert point.n_nonzero == np.count_nonzero(coef)


def test_warm_starts_save_rounds_and_change_nothing():
    problem, options = cancer(), SolverOptions(gap=1e-8, directions="both")
    lambdas = [1e-1, 5e-2, 2.5e-2, 1.2e-2]
    points = path(problem, lambdas[::-1], options)
    assert [p.lam for p in points] == lambdas
    rounds = 0
    for point in points:
        fresh = solve(cancer(lam=point.lam), options)
        rounds += len(fresh.history)
        assert abs(fresh.objective - point.record.objective) <= 2e-8 * fresh.objective
    assert sum(p.n_rounds for p in points) < rounds


def test_folds_are_scikit_learns():
    y = CANCER[1].astype(float)
    fold = make_folds(y, 5, 3, stratify=True)
    for k, (_, held) in enumerate(StratifiedKFold(5, shuffle=True, random_state=3).split(y[:, None], y)):
        np.testing.assert_array_equal(np.flatnonzero(fold == k), np.sort(held))
    fold = make_folds(y, 4, 3, stratify=False)
    for k, (_, held) in enumerate(KFold(4, shuffle=True, random_state=3).split(y[:, None])):
        np.testing.assert_array_equal(np.flatnonzero(fold == k), np.sort(held))
    for labels, message in (
        (np.array([0, 0, 0, 0, 1.0]), "class number 1 has 1 rows"),
        (y[:1], "has 1 rows"),
    ):
        with pytest.raises(InputError, match=message):
            make_folds(labels, 3, 0, stratify=True)
    with pytest.raises(InputError, match="2 rows cannot be parted into 3 folds"):
        make_folds(y[:2], 3, 0, stratify=False)


def test_ridge_and_several_classes():
    X, y = DIABETES
    # RidgeCV's alpha is that of the summed loss, whatever the fold: folds of one size make it the mean's.
    X, y = X[:440], y[:440]
    folds, alphas = KFold(5, shuffle=True, random_state=0), np.logspace(1, -4, 9)
    model = ADMMSharingRegressorCV(2, alphas=alphas, cv=folds, tol=1e-10).fit(X, y)
    reference = RidgeCV(352 * alphas, cv=folds, scoring="neg_mean_squared_error").fit(X, y)
    assert model.alpha_ == pytest.approx(reference.alpha_ / 352)
    np.testing.assert_allclose(model.coef_, Ridge(440 * model.alpha_).fit(X, y).coef_, atol=1e-2)
    # Several classes weights and blocks.
    iris = load_iris()
    X, y = iris.data, iris.target_names[iris.target]
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    model = ADMMSharingClassifierCV(2, alphas=5, class_weight="balanced").fit(X, y, sample_weight=weight)
    assert model.coef_path_.shape == (5, 3, 4)
    assert model.predict_proba(X).shape == (150, 3)
    same = ADMMSharingClassifierCV(alphas=5, class_weight="balanced").fit(
        [X[:, :2], X[:, 2:]], y, sample_weight=weight
    )
    np.testing.assert_array_equal(same.coef_, model.coef_)


def test_wrong_parameters_are_named():
    X, y = DIABETES
    for change, message in (
        ({"alphas": 0}, "path_length: 0"),
        ({"alphas": [1.0, -1.0]}, "must be positive"),
        ({"eps": -1}, "eps"),
        ({"selection": "2se"}, "selection: unknown choice '2se'"),
        ({"cv": ShuffleSplit(3, random_state=0)}, "cv: every row must be in one test set at most"),
        ({"loss": "tukey"}, "needs a convex problem"),
        ({"regularizer": "none"}, "none has no lambda"),
    ):
        model = ADMMSharingRegressorCV(2).set_params(**change)
        refuses((ConfigError, InputError), message, model.fit, X, y)


@pytest.mark.representatives(20)
@parametrize_with_checks(
    [
        ADMMSharingClassifierCV(alphas=[1e-2], cv=2, tol=1e-15),
        ADMMSharingRegressorCV(alphas=[1e-2], cv=2, tol=1e-15),
    ]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


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
    found = {str(f.relative_to(directory)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    fits = {path.name: json.loads(path.read_text())["weights"] for path in directory.glob("fits/*.json")}
    return found | fits | model_digests(directory)


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
    assert len((finished / "rounds.jsonl").read_text().splitlines()) == result["rounds"]
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


def test_resuming_says_what_is_wrong(data, tmp_path):
    start_run(config(data, path_values=[1.0, 0.1], path_length=None), tmp_path / "run")
    display = Notes()
    resume_run(tmp_path / "run", display=display)
    assert display.lines[0].startswith("nothing to do")
    refuses(ConfigError, "no new limit", resume_run, tmp_path / "run", changes={"gap": 1e-9})
    (tmp_path / "run" / "result.json").unlink()
    damaged = tmp_path / "run" / "fits" / "lambda-0001-fold-000.json"
    damaged.write_text("{", encoding="utf-8")
    refuses(FormatError, "lambda-0001-fold-000.json: not JSON", resume_run, tmp_path / "run")
    damaged.write_text("{}", encoding="utf-8")
    refuses(FormatError, "not a stored fit", resume_run, tmp_path / "run")
