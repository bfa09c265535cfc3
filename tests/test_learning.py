"""Class weights, offsets, warm starts and early stopping, of the estimators and of runs on disk."""

import json
import signal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fastadmm import ADMMSharingClassifier, ADMMSharingRegressor, make_problem
from fastadmm.errors import ConfigError, InputError
from fastadmm.problem.targets import class_factors
from fastadmm.runs.config import make_config
from fastadmm.runs.train import resume_run, start_run
from fastadmm.store.model import open_model
from fastadmm.store.partition import open_partition
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale
from sklearn.utils.class_weight import compute_class_weight

from run_tools import (
    CrashAfter,
    SignalAfter,
    assert_same_run,
    logged,
    refuses,
    result_of,
    run,
    within,
    write_blocks,
    write_problem,
)
from sklearn import config_context

TIGHT = 1e-12
CANCER = load_breast_cancer()
X, Y = scale(CANCER.data), CANCER.target


@pytest.mark.parametrize("weight", ["balanced", {0: 3.0, 1: 0.5}, {1: 2.0}])
@pytest.mark.parametrize("weighted", [False, True])
def test_class_weights_are_those_of_scikit_learn(weight, weighted):
    own = np.random.default_rng(0).uniform(0.5, 2, len(Y)) if weighted else None
    model = ADMMSharingClassifier(3, 1e-2, tol=TIGHT, class_weight=weight).fit(X, Y, sample_weight=own)
    base = np.ones(len(Y)) if own is None else own
    factors = class_factors(weight, Y, [0, 1], own)
    if weight == "balanced" and not weighted:
        np.testing.assert_allclose(factors, compute_class_weight("balanced", classes=np.unique(Y), y=Y))
    total = (base * factors[Y]).sum()
    reference = LogisticRegression(C=1 / (total * 1e-2), tol=1e-12, solver="newton-cholesky").fit(
        X, Y, sample_weight=base * factors[Y]
    )
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-5)


def test_class_weights_of_several_classes_by_name():
    data = load_iris()
    names = data.target_names[data.target]
    model = ADMMSharingClassifier(2, 1e-2, tol=TIGHT, class_weight={"setosa": 2.0}).fit(data.data, names)
    same = ADMMSharingClassifier(2, 1e-2, tol=TIGHT).fit(
        data.data, names, sample_weight=np.where(names == "setosa", 2.0, 1.0)
    )
    np.testing.assert_array_equal(model.coef_, same.coef_)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ("even", "neither 'balanced' nor"),
        ({2: 1.0}, "unknown class 2; the classes are 0, 1"),
        ({1: -1.0}, "of class 1 must be a finite number"),
        ({1: "2"}, "of class 1 must be a finite number"),
    ],
)
def test_wrong_class_weights_are_named(weight, message):
    with pytest.raises(ConfigError, match=message):
        ADMMSharingClassifier(class_weight=weight).fit(X, Y)


def test_offsets():
    rng = np.random.default_rng(1)
    features, exposure = rng.normal(size=(120, 3)), rng.uniform(0.5, 4, 120)
    y = rng.poisson(exposure * np.exp(features @ [0.5, -0.3, 0.2])).astype(float)
    model = ADMMSharingRegressor(2, 1e-2, loss="poisson", tol=1e-11).fit(features, y, offset=np.log(exposure))

    def objective(x):
        z = np.log(exposure) + x[3] + features @ x[:3]
        return float(np.mean(np.exp(z) - y * z) + 0.5e-2 * x[:3] @ x[:3])

    found = minimize(objective, np.zeros(4), method="BFGS", options={"gtol": 1e-9}).x
    np.testing.assert_allclose([*model.coef_, model.intercept_], found, atol=1e-5)
    rates = model.predict(features)
    np.testing.assert_allclose(model.predict(features, offset=np.log(exposure)), rates * exposure)
    shift = np.where(np.arange(len(Y)) % 2, 1.0, -1.0)
    model = ADMMSharingClassifier(3, 1e-2).fit(X, Y, offset=shift)
    plain = model.decision_function(X)
    np.testing.assert_allclose(model.decision_function(X, offset=shift), plain + shift)
    assert model.score(X, Y, offset=shift) == np.mean(model.predict(X, offset=shift) == Y)
    refuses(InputError, "offset: shape", model.predict, X, offset=shift[:-1])
    with pytest.raises(InputError, match="offset: 3 values"):
        ADMMSharingClassifier(3, 1e-2).fit(X, Y, offset=shift[:3])


def test_early_stopping():
    model = ADMMSharingClassifier(3, 1e-6, early_stopping=True, n_iter_no_change=3, random_state=0).fit(X, Y)
    values = [record.validation for record in model.history_]
    assert model.status_ == "early_stopped"
    assert values.index(min(values)) + 1 == model.best_round_ == model.n_rounds_ - 3
    assert model.validation_loss_ == min(values)
    assert not model.certified_
    assert model.duality_gap_ <= model.history_[model.best_round_ - 1].gap  # the proof may know better
    # The same rows, whatever the number of threads; the weights are those of that round.
    again = clone(model).set_params(n_threads=1, n_iter_no_change=30).fit(X, Y)
    assert again.best_round_ >= model.best_round_
    one = clone(model).set_params(n_threads=1).fit(X, Y)
    np.testing.assert_array_equal(one.coef_, model.coef_)
    # Held out rows are not trained on.
    rng = np.random.default_rng(0)
    y = rng.permutation(Y)  # nothing to learn: the first rounds are the best
    model = ADMMSharingClassifier(
        3, 1e-4, early_stopping=True, validation_fraction=0.5, random_state=1, n_iter_no_change=2
    ).fit(X, y)
    assert model.status_ == "early_stopped"
    assert model.best_round_ <= 2
    assert model.validation_loss_ > 0.5
    # Early stopping of a regression and of classes.
    data = load_iris()
    classes = ADMMSharingClassifier(2, 1e-8, early_stopping=True, random_state=0).fit(data.data, data.target)
    assert classes.coef_.shape == (3, 4)
    assert classes.validation_loss_ == min(r.validation for r in classes.history_)
    numbers = ADMMSharingRegressor(2, 1e-8, early_stopping=True, random_state=0).fit(
        data.data[:, :3], data.data[:, 3]
    )
    assert numbers.validation_loss_ == min(r.validation for r in numbers.history_)
    with pytest.raises(ConfigError, match="validation: the share"):
        ADMMSharingClassifier(early_stopping=True, validation_fraction=1.5).fit(X, Y)


def test_metadata_routing_through_search_and_pipeline():
    weights = np.random.default_rng(0).integers(0, 3, len(Y)).astype(float)
    with config_context(enable_metadata_routing=True):
        model = ADMMSharingClassifier(3).set_fit_request(sample_weight=True, offset=True)
        model = model.set_score_request(sample_weight=True, offset=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        shift = np.linspace(-1, 1, len(Y))
        search = GridSearchCV(pipeline, {"jointclassifier__alpha": [1e-2, 1.0]}, cv=3)
        search.fit(CANCER.data, Y, sample_weight=weights, offset=shift)
        best = search.best_estimator_
        direct = clone(best[-1]).fit(X, Y, sample_weight=weights, offset=shift)
        np.testing.assert_allclose(best[-1].coef_, direct.coef_, atol=1e-6)
        cross_validate(pipeline, X, Y, params={"sample_weight": weights, "offset": shift}, cv=3)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_keep_their_names(library):
    module = pytest.importorskip(library)
    names = [f"f{j}" for j in range(X.shape[1])]
    table = module.DataFrame(dict(zip(names, X.T)))
    parties = [names[10:], names[:10]]
    model = ADMMSharingClassifier(parties, 1e-2).fit(table, Y)
    assert list(model.feature_names_in_) == names
    reference = ADMMSharingClassifier([list(range(10, 30)), list(range(10))], 1e-2).fit(X, Y)
    np.testing.assert_array_equal(model.coef_, reference.coef_)
    np.testing.assert_array_equal(model.predict(table), reference.predict(X))
    blocks = [table[part] for part in parties]
    split = ADMMSharingClassifier(alpha=1e-2).fit(blocks, Y)
    assert list(split.feature_names_in_) == names[10:] + names[:10]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pd.DataFrame(X, columns=names[::-1]))


@pytest.mark.parametrize(
    ("alpha", "more", "message"),
    [
        ([1e-2], {}, "alpha: 1 values, but there are 3 parties"),
        ([1e-2, 1.0, 0.0], {}, "alpha: 0.0 must be positive"),
        ("1e-2", {}, "alpha: '1e-2' is not a number"),
        ([1e-2] * 3, {"regularizer": "elastic_net"}, "alpha: one for each party goes with"),
        ([1e-2] * 3, {"constraint": "ball:2"}, "alpha: one for each party goes with"),
    ],
)
def test_wrong_alphas_are_named(alpha, more, message):
    with pytest.raises(ConfigError, match=message):
        ADMMSharingClassifier(3, alpha, **more).fit(X, Y)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learning")
    write_problem(folder / "a.parts", n=240, seed=3)
    write_problem(folder / "v.parts", n=120, seed=4)
    return folder


def train(data, out, display=None, **keys):
    return start_run(make_config({"data": str(data / "a.parts"), **keys}), out, display=display)


def test_class_weights(data, tmp_path, capsys):
    train(data, tmp_path / "run", class_weight={"yes": 3.0}, **{"lambda": 0.01})
    partition = open_partition(data / "a.parts")
    blocks = [party.load() for party in partition.parties]
    weight = np.where(partition.labels.y == 1.0, 3.0, 1.0)
    problem = make_problem(blocks, partition.labels.y, lam=0.01, sample_weight=weight)
    from fastadmm import solve

    expected = solve(problem)
    model = open_model(tmp_path / "run")
    for party, weights in zip(model.parties, expected.weights):
        np.testing.assert_array_equal(party.weights, weights)
    # Class weights of the command line.
    assert run("train", data / "a.parts", "-o", tmp_path / "b", "--set", "class_weight=balanced", "-q") == 0
    assert 'class_weight = "balanced"' in (tmp_path / "b" / "run.toml").read_text(encoding="utf-8")
    assert run("train", data / "a.parts", "-o", tmp_path / "c", "--set", "class_weight={maybe=2}", "-q") == 5
    assert "key 'class_weight': unknown class 'maybe'; the classes are 'no', 'yes'" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_a_run_begins_at_another_model_and_says_so(data, tmp_path):
    cold = train(data, tmp_path / "cold", directions="both", **{"lambda": 0.01})
    warm = train(
        data, tmp_path / "warm", warm_start=str(tmp_path / "cold"), directions="both", **{"lambda": 0.009}
    )
    fresh = train(data, tmp_path / "fresh", directions="both", **{"lambda": 0.009})
    assert warm["status"] == "converged"
    assert warm["rounds"] < cold["rounds"]
    assert abs(warm["objective"] - fresh["objective"]) <= 1e-6 * fresh["objective"]
    # The same once more, from its own configuration, and after an interruption.
    given = {"warm_start": str(tmp_path / "cold"), "lambda": 0.009, "directions": "both"}
    with pytest.raises(KeyboardInterrupt):
        train(data, tmp_path / "killed", CrashAfter(1), **given)
    resume_run(tmp_path / "killed")
    assert_same_run(tmp_path / "warm", tmp_path / "killed")
    train(data, tmp_path / "one", **{"lambda": 0.01})
    more = {"lambda": 0.001, "history": 2}
    train(data, tmp_path / "two", SignalAfter(1), warm_start=str(tmp_path / "one"), **more)
    start_run(make_config({"data": str(data / "a.parts"), "lambda": 0.1}), tmp_path / "one", force=True)
    refuses(InputError, "digests differ: warm_start", resume_run, tmp_path / "two")


def test_a_start_with_other_columns_or_classes_is_refused(data, tmp_path):
    rng = np.random.default_rng(0)
    train(data, tmp_path / "run")
    write_problem(tmp_path / "wide.parts", n=100, widths=(4, 7, 3))
    write_problem(tmp_path / "two.parts", n=100, widths=(4, 6))
    write_blocks(
        tmp_path / "r.parts",
        [rng.normal(size=(50, w)) for w in (4, 6, 3)],
        rng.normal(size=50),
        task="regression",
    )
    for name, message in (
        ("wide", "other features of"),
        ("two", "a model of the parties"),
        ("r", "other classes"),
    ):
        with pytest.raises(InputError, match=message):
            start_run(
                make_config({"data": str(tmp_path / f"{name}.parts"), "warm_start": str(tmp_path / "run")}),
                tmp_path / "no",
            )


@pytest.mark.representatives(1)
@pytest.mark.parametrize("source", ["share", "partition"])
def test_early_stopping_and_its_resumption(data, tmp_path, source):
    validation: Any = 0.3 if source == "share" else str(data / "v.parts")
    keys = {"lambda": 1e-7, "validation": validation, "patience": 3, "seed": 2}
    result = train(data, tmp_path / "run", **keys)
    values = [line["validation"] for line in logged(tmp_path / "run")]
    assert result["status"] == "early_stopped"
    assert result["kept_round"] == int(np.argmin(values)) + 1 == result["rounds"] - 3
    assert result["validation"] == min(values)
    kept = logged(tmp_path / "run")[result["kept_round"] - 1]
    assert result["objective"] == pytest.approx(kept["objective"], rel=1e-6)  # of messages, which are rounded
    assert open_model(tmp_path / "run").certificate["rounds"] == result["kept_round"]
    for round_ in (1, result["kept_round"] + 1):
        train(data, tmp_path / f"s{round_}", SignalAfter(round_, signal.SIGTERM), **keys)
        assert result_of(tmp_path / f"s{round_}")["status"] == "interrupted"
        resume_run(tmp_path / f"s{round_}")
        assert_same_run(tmp_path / "run", tmp_path / f"s{round_}")
    with pytest.raises(KeyboardInterrupt):
        train(data, tmp_path / "k", CrashAfter(4), checkpoint_rounds=1, **keys)
    resume_run(tmp_path / "k")
    assert_same_run(tmp_path / "run", tmp_path / "k")
    assert run("resume", tmp_path / "k", "-q") == 0


def test_the_kept_model_is_the_better_round_s(data, tmp_path):
    """On a partition of its own the value is what evaluating the model gives."""
    train(
        data, tmp_path / "run", validation=str(data / "v.parts"), validation_metric="auc", **{"lambda": 1e-7}
    )
    assert run("evaluate", tmp_path / "run", data / "v.parts", "--json") == 0
    evaluated = json.loads((tmp_path / "run" / "evaluation.json").read_text(encoding="utf-8"))["metrics"]
    assert result_of(tmp_path / "run")["validation"] == pytest.approx(evaluated["auc"], abs=1e-12)
    # A finished run with a better round before keeps that.
    tmp_path = within(tmp_path)
    keys = {"lambda": 1e-5, "validation": 0.3, "patience": 1000}
    result = train(data, tmp_path / "run", **keys)
    best = min(logged(tmp_path / "run"), key=lambda line: line["validation"])
    assert result["kept_round"] == best["round"]
    assert result["status"] == ("converged" if best["round"] == result["rounds"] else "early_stopped")
    # A share too small to stop by is refused.
    tmp_path = within(tmp_path)
    refuses(InputError, "cannot be parted", train, data, tmp_path / "no", validation=0.001)
    assert not (tmp_path / "no").exists()
