"""The scikit-learn face: conventions, and the same models as scikit-learn's own."""

import ast
import doctest
import pickle
import re
import sys
from dataclasses import replace
from pathlib import Path

import fastadmm
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from fastadmm import JointClassifier, JointClassifierCV, JointRegressor, JointRegressorCV
from fastadmm.errors import ConfigError, DivergenceError, InputError
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler, scale
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from run_tools import contradict, refuses

#: Tight enough to compare coefficients instead of objectives.
TIGHT = 1e-12


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def reference(y, alpha, fit_intercept=True, regression=False):
    """scikit-learn's own estimator of the same problem."""
    if regression:
        return Ridge(alpha=len(y) * alpha, fit_intercept=fit_intercept, solver="cholesky")
    more = {"fit_intercept": fit_intercept, "solver": "newton-cholesky", "max_iter": 1000}
    return LogisticRegression(C=1 / (len(y) * alpha), tol=1e-12, **more)


def _by_choice(estimator):
    """Checks that compare predictions to 7 digits, which a gap of 1e-6 does not promise."""
    reason = "weights and repeated rows give one model up to tol: 7 digits need tol=1e-15, as below"
    kinds = ("dense", "sparse") if estimator.tol == 1e-6 and isinstance(estimator, JointClassifier) else ()
    return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in kinds}


@pytest.mark.representatives(45)
@parametrize_with_checks(
    [
        JointClassifier(),
        JointClassifier(alpha=1e-2, tol=1e-15),
        JointClassifier(alpha=1e-2, tol=1e-15, loss="multinomial"),
        JointRegressor(),
    ],
    expected_failed_checks=_by_choice,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_tags_and_probabilities_by_loss():
    for estimator in (JointClassifier(), JointRegressor()):
        assert get_tags(estimator).input_tags.sparse
        assert get_tags(estimator).target_tags.required
    for loss, several in (("auto", True), ("multinomial", True), ("logistic", False), ("hinge", False)):
        assert get_tags(JointClassifier(loss=loss)).classifier_tags.multi_class is several
    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X)
    model = JointClassifier([10, 10, 10], alpha=1e-2, loss="squared_hinge").fit(X, y)
    assert not hasattr(model, "predict_proba")
    assert not hasattr(JointClassifier(loss="hinge"), "predict_log_proba")
    assert JointClassifier([10, 10, 10], alpha=1e-2, loss="hinge", tol=1e-4).fit(X, y).converged_
    # The page lists the parameters with their defaults.
    page = (Path(__file__).resolve().parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
    table = page.split("## Parameters")[1].split("##")[0]
    listed = re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", table, re.MULTILINE)
    for Estimator in (JointClassifier, JointRegressor):
        defaults = {"class_weight": None, "positive": None, **Estimator().get_params()}
        assert {name: ast.literal_eval(value) for name, value in listed} == defaults


@pytest.mark.parametrize("regression", [False, True])
@pytest.mark.parametrize(
    ("parties", "fit_intercept", "alpha"),
    [(1, True, 1e-3), (2, False, 1e-1), (2, True, 1e-1), (5, False, 1e-3)],
)
def test_models_are_those_of_scikit_learn(cancer, diabetes, regression, parties, fit_intercept, alpha):
    X, y = diabetes if regression else cancer
    Estimator = JointRegressor if regression else JointClassifier
    model = Estimator(parties, alpha, fit_intercept, tol=TIGHT).fit(X, y)
    other = reference(y, alpha, fit_intercept, regression).fit(X, y)
    size = np.abs(other.coef_).max() if regression else 1.0
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-4 * size)
    np.testing.assert_allclose(
        model.intercept_, other.intercept_, atol=1e-9 if regression else 1e-4, rtol=1e-6
    )
    if regression:
        np.testing.assert_allclose(model.predict(X), other.predict(X), rtol=1e-4, atol=1e-3)
    else:
        np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-5)
        np.testing.assert_array_equal(model.predict(X), other.predict(X))
        assert model.score(X, y) == other.score(X, y)


def test_columns_and_names_follow_x(diabetes):
    X, y = diabetes
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(10)])
    bank, telco = ["f7", "f1", "f4"], ["f9", "f0", "f2", "f3", "f8", "f5", "f6"]
    model = JointRegressor([bank, telco], 1e-2, tol=TIGHT).fit(frame, y)
    np.testing.assert_allclose(model.coef_, reference(y, 1e-2, regression=True).fit(X, y).coef_, atol=1e-3)
    by_name = dict(zip(model.feature_names_in_, model.coef_, strict=True))
    assert [by_name[name] for name in bank] == list(model.party_coefs_[0])
    assert [by_name[name] for name in telco] == list(model.party_coefs_[1])
    assert [list(held) for held in model.party_columns_] == [[7, 1, 4], [9, 0, 2, 3, 8, 5, 6]]
    np.testing.assert_allclose(model.predict([frame[bank], frame[telco]]), model.predict(frame), rtol=1e-10)
    by_number = JointRegressor([[7, 1, 4], [9, 0, 2, 3, 8, 5, 6]], 1e-2, tol=TIGHT).fit(X, y)
    np.testing.assert_array_equal(by_number.coef_, model.coef_)
    blocks = [X[:, :3].astype(np.float64), sp.coo_array(X[:, 3:7]), pd.DataFrame(X[:, 7:])]
    model = JointRegressor(alpha=1e-2, tol=TIGHT).fit(blocks, y)
    np.testing.assert_allclose(model.coef_, reference(y, 1e-2, regression=True).fit(X, y).coef_, atol=1e-3)
    np.testing.assert_allclose(model.predict(blocks), model.predict(X), rtol=1e-10)
    assert [len(x) for x in model.party_coefs_] == [3, 4, 3]
    assert not hasattr(model, "feature_names_in_")
    frame = pd.DataFrame(X, columns=list("abcdefghij"))
    model = JointRegressor(2, 1e-2).fit(frame, y)
    assert list(model.feature_names_in_) == list("abcdefghij")
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[list("jihgfedcba")])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)
    blocks = [frame[list("abcde")], frame[list("fghij")]]
    apart = JointRegressor(alpha=1e-2).fit(blocks, y)
    np.testing.assert_array_equal(apart.feature_names_in_, model.feature_names_in_)
    np.testing.assert_array_equal(apart.predict(blocks), model.predict(blocks))
    with pytest.raises(ValueError, match="feature names should match"):
        apart.predict(blocks[::-1])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        apart.predict([block.to_numpy() for block in blocks])


@pytest.mark.representatives(6)
@pytest.mark.parametrize(
    ("labels", "positive", "counted"),
    [
        ((0, 1), None, 1),
        ((-1, 1), None, 1),
        ((False, True), None, True),
        (("no", "yes"), None, "yes"),
        (("bad", "good"), None, "bad"),
        (("A", "B"), None, "B"),
        (("A", "B"), "A", "A"),
        ((0, 1), 0, 0),
    ],
)
@pytest.mark.parametrize("Estimator", [JointClassifier, JointClassifierCV])
def test_the_class_that_counts_is_named(cancer, tmp_path, Estimator, labels, positive, counted):
    """What is printed and tabled speaks for it; what scikit-learn reads stays as scikit-learn has it."""
    (X, y), path = cancer, {"alphas": [1e-2], "cv": 2} if Estimator is JointClassifierCV else {"alpha": 1e-2}
    X, named, shift = X[:, :4], np.array(labels)[y], np.linspace(-1, 1, len(y))
    plain = Estimator(2, **path).fit(X, y, offset=shift)
    model = Estimator(2, **path, positive=positive).fit(X, named, offset=shift)
    assert list(model.classes_) == list(labels)
    assert (model.positive_, type(model.positive_)) == (counted, type(counted))
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    sign = 1.0 if counted == labels[1] else -1.0
    table, numbers = model.coefficients(X), plain.coefficients(X).columns
    for name in ("weight", "scaled_weight"):
        np.testing.assert_array_equal(table.columns[name], sign * np.array(numbers[name]))
    inferred, other = (m.inference(X, t, offset=shift) for m, t in ((model, named), (plain, y)))
    np.testing.assert_allclose(inferred.to_frame()["weight"], sign * other.to_frame()["weight"], rtol=1e-12)
    np.testing.assert_allclose(
        inferred.to_frame()["standard_error"], other.to_frame()["standard_error"], rtol=1e-9
    )
    note = f"a positive weight speaks for {str(counted)!r}, class 1"
    contrary = [f"coef_ and decision_function speak for {str(labels[1])!r}"] if sign < 0 else []
    assert table.notes == [note, *contrary]
    assert {note, *contrary} <= set(inferred.notes)
    assert str(model).endswith(f", class 1 = {counted!r} in {(named == counted).sum()}")
    page = fastadmm.report(model, tmp_path / "a.html").read_text(encoding="utf-8")
    share = 100 * (named == counted).mean()
    assert f'Class 1</dt><dd class="value">{counted}</dd><dd class="note">{share:.3g} % of rows' in page


@pytest.mark.parametrize(
    ("positive", "labels", "message"),
    [
        ("x", ("A", "B"), "positive: 'x' is none of the labels 'A', 'B'"),
        ("1", (0, 1), "positive: '1' is none of the labels 0, 1"),
        (1, (0, 1, 2), "positive: 1 needs two labels, and these are 0, 1, 2"),
    ],
)
def test_a_class_that_cannot_count_is_refused(positive, labels, message):
    y = np.resize(np.array(labels), 12)
    refuses(ConfigError, re.escape(message), JointClassifier(positive=positive).fit, np.eye(12), y)


def test_how_training_went_is_told(cancer):
    X, y = cancer
    model = JointClassifier(3, 1e-2).fit(X, y)
    assert (model.coef_.shape, model.intercept_.shape) == ((1, 30), (1,))
    assert (model.converged_, model.certified_, model.certified_within_) == (True, True, False)
    assert model.status_ == "converged"
    assert model.n_rounds_ == model.n_iter_ == len(model.history_)
    assert [record.round for record in model.history_] == list(range(1, model.n_rounds_ + 1))
    assert model.duality_gap_ == model.history_[-1].gap <= model.tol
    assert all(record.gap > model.tol for record in model.history_[:-1])
    model = JointClassifier(2, 1e-2).fit(X, y)
    far = 1e4 * X  # so sure that probabilities underflow, their logarithms must not
    np.testing.assert_allclose(model.predict_proba(far).sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X), rtol=1e-12)
    assert np.isfinite(model.predict_log_proba(far)).all()
    assert (model.predict_log_proba(far) <= 0).all()
    np.testing.assert_array_equal(model.predict(X), model.classes_[model.predict_proba(X).argmax(axis=1)])

    # An error in a callback is the callers.
    def fail(record):
        raise LookupError(f"round {record.round}")

    with pytest.raises(LookupError, match="round 1"):
        JointClassifier(callbacks=fail).fit(*cancer)
    seen = []
    rounds = []
    model = JointClassifier(2, 1e-2, callbacks=[seen.append, lambda record: rounds.append(record.round)])
    model.fit(X, y)
    assert seen[:-1] == model.history_[:-1]
    proved = {name: getattr(seen[-1], name) for name in ("objective", "gap", "gap_absolute")}
    assert replace(model.history_[-1], **proved) == seen[-1]
    assert rounds == list(range(1, model.n_rounds_ + 1))
    seen.clear()
    model.set_params(callbacks=seen.append).fit(X, y)
    assert len(seen) == model.n_rounds_


def test_endings_without_a_certificate_warn(cancer, monkeypatch):
    X, y = cancer
    model = JointClassifier(3, 1e-2, tol=1e-14, max_rounds=5, scheme="sharing")
    with pytest.warns(ConvergenceWarning, match=r"after 5 rounds, not certified.*max_rounds") as caught:
        model.fit(X, y)
    assert caught[0].filename == __file__
    assert not model.converged_
    assert model.status_ == "max_rounds"
    assert model.n_rounds_ == 5
    assert model.score(X, y) > 0.9
    with pytest.warns(ConvergenceWarning, match="after 100 rounds, as gap 0 asks: no gap ends training; "):
        never = JointClassifier(3, 1e-2, tol=0, max_rounds=100).fit(X, y)
    assert never.n_rounds_ == 100
    with pytest.raises(ValueError, match=r"tol: 2\.0 must be below 1"):
        JointClassifier(3, 1e-2, tol=2).fit(X, y)
    # A contradiction warns and claims nothing.
    contradict(monkeypatch)
    with pytest.warns(ConvergenceWarning, match=r"contradiction .*: planted; .*please report it$"):
        model = JointClassifier(3, 1e-2).fit(X, y)
    assert model.status_ == "contradiction"
    assert not any([model.converged_, model.certified_, model.certified_within_])
    assert model.duality_gap_ == model.history_[-1].gap == np.inf


def test_ends_within_bounds_and_divergence(diabetes):
    X, y = diabetes
    with pytest.warns(ConvergenceWarning, match=r"among models in which .*; a regularizer or a") as caught:
        model = JointRegressor(3, regularizer="none").fit(X, y)
    assert caught[0].filename == __file__
    assert model.converged_
    assert model.status_ == "converged"
    assert model.certified_within_
    assert not model.certified_
    assert not model.duality_gap_ <= model.tol
    assert model.history_[-1].gap_within <= model.tol
    model = JointRegressor(alpha=1e-4, scheme="jacobi")
    with pytest.raises(
        DivergenceError, match=r"scheme 'jacobi' diverges with 3 parties.*use scheme 'sharing'"
    ):
        model.fit([X, X, X], y)
    with pytest.raises(NotFittedError):
        model.predict([X, X, X])
    assert model.set_params(scheme="sharing").fit([X, X, X], y).converged_


def test_at_rounding_warns_that_rounds_do_not_help():
    X = np.random.default_rng(4).standard_normal((20, 3))
    with pytest.warns(ConvergenceWarning, match=r"limit of double precision .*; raise tol, or") as caught:
        model = JointRegressor(3, alpha=1e-25).fit(X, X @ [1.0, 2.0, 3.0])
    assert "max_rounds" not in str(caught[0].message)
    assert model.status_ == "at_rounding"
    assert not model.converged_
    assert not model.certified_
    assert model.duality_gap_ > model.tol


@pytest.mark.parametrize("Estimator", [JointClassifier, JointRegressor])
@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("alpha", 0, "alpha: 0.0 must be positive and finite"),
        ("alpha", "1", "alpha: '1' is not a number"),
        ("tol", -1e-3, "tol: -0.001 must be a finite number, not negative"),
        ("max_rounds", 0, "max_rounds: 0 must be positive and finite"),
        ("max_rounds", 10.0, "max_rounds: 10.0 is not a whole number"),
        ("penalty", 0.0, "penalty: 0.0 must be positive and finite"),
        ("n_threads", 0, "n_threads: 0 must be positive and finite"),
        ("fit_intercept", "yes", "fit_intercept: 'yes' is not true or false"),
        ("scheme", "fastest", "scheme: unknown choice 'fastest'; choose auto, "),
        ("random_state", "seed", "'seed' cannot be used to seed"),
        ("callbacks", 3, "callbacks: 3 is neither"),
        ("callbacks", [print, None], "neither a callable nor a list of callables"),
        ("parties", 31, "parties: 31 blocks cannot be cut from 4 columns"),
        ("parties", [1, 2], "parties: the widths [1, 2] add up to 3, but X has 4 columns"),
        ("parties", [["a"], ["b"]], "the columns of X have no names"),
    ],
)
def test_parameters_are_checked_in_fit(Estimator, parameter, value, message):
    X = np.random.default_rng(0).normal(size=(10, 4))
    estimator = Estimator(**{parameter: value})
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        estimator.fit(X, np.arange(10) % 2)
    assert "\n" not in str(caught.value)


def test_columns_that_are_no_numbers_are_named(cancer):
    X, y = cancer
    frame = pd.DataFrame(X[:, :4], columns=list("abcd"))
    model = JointClassifier(2, 1e-2).fit(frame, y)
    for changed, message in (
        (frame.assign(b="x"), "X: column 'b': not numbers, such as 'x': make numbers"),
        (frame.assign(b=pd.Timestamp("2024-01-31")), "X: column 'b': dates or times, such as '2024-01-31"),
        (frame.set_axis(list("abca"), axis=1), "X: several columns are named 'a': rename"),
    ):
        for use in (lambda X: JointClassifier(2).fit(X, y), model.predict):
            refuses(InputError, re.escape(message), use, changed)
    assert (model.predict(frame.astype(object)) == model.predict(frame)).all()
    dates = pd.date_range("2024", periods=len(y))
    for kind in (JointClassifier, JointRegressor):
        refuses(InputError, "y: dates or times are no targets", kind(2).fit, frame, dates)
    refuses(InputError, "eval_set: not a pair", JointClassifier(2).fit, frame, y, eval_set=frame)


def test_mistakes_in_the_data():
    X, y = np.column_stack([np.ones(6), np.arange(6)]), np.arange(6) % 2
    bad, model, negative = X.copy(), JointClassifier(), JointClassifier(alpha=np.float64(-1.0))
    bad[3, 1] = np.nan
    Z = np.random.default_rng(0).normal(size=(20, 5))
    fitted = JointClassifier(parties=[2, 3], alpha=0.1).fit(Z, np.arange(20) % 2)
    kinds, mixed = (np.array(["a", "b", "a", "b", "a", last], dtype=object) for last in (None, 1))
    several = r"Only binary classification is supported\..*choose multinomial"
    for loss in ("logistic", "hinge"):
        refuses(ConfigError, several, JointClassifier(loss=loss).fit, X, np.arange(6) % 3)
    refuses(InputError, r"only one class is present \(0\)", model.fit, X, np.zeros(6, dtype=int))
    refuses(ConfigError, r"alpha: -1\.0 must be positive", negative.fit, X, y)
    refuses(InputError, "no label in row 5", model.fit, X, kinds)
    refuses(InputError, "'a' is text and 1", model.fit, X, mixed)
    refuses(InputError, "only one class is present", model.fit, X, y, sample_weight=y)
    refuses(ConfigError, "must be None where X is a list or dict", JointClassifier(parties=2).fit, [X, X], y)
    refuses(InputError, "party-2: 5 rows, but y has 6; align the rows first", model.fit, [X, X[:5]], y)
    refuses(NotFittedError, "is not fitted", JointClassifier().predict, [X, X])
    for words, given, more in (
        ("Input X contains NaN", (bad, y), {}),
        (r"Input X\[1\] contains NaN", ([X, bad], y), {}),
        (r"requires y to be passed|y cannot be None", ([X, X], None), {}),
        ("Negative values in data passed to `sample_weight`", (X, y), {"sample_weight": y - 1}),
        ("sample_weight", (X, y), {"sample_weight": np.ones(5)}),
        (r"(?i)sample.weight", (X, y), {"sample_weight": np.zeros(6)}),
    ):
        with pytest.raises(ValueError, match=words):
            model.fit(*given, **more)
    refuses(ValueError, "X has 4 features, but JointClassifier is expecting 5", fitted.predict, Z[:, :4])
    for blocks, words in (
        ([Z[:, :3], Z[:, 3:]], r"blocks of \[3, 2\] columns, but JointClassifier was fitted on \[2, 3\]"),
        ([Z], r"blocks of \[5\] columns"),
        ([Z[:, :2], Z[1:, 2:]], r"blocks of \[20, 19\] rows; align the rows first"),
    ):
        refuses(InputError, words, fitted.predict, blocks)


def test_exports():
    joint = {"JointClassifier", "JointClassifierCV", "JointRegressor", "JointRegressorCV"}
    expected = joint | {
        "Privacy",
        "Progress",
        "Scorecard",
        "SolverOptions",
        "StartingPoint",
        "cross_validate",
        "lambda_grid",
    }
    expected |= {"WoeTransformer", "make_folds", "make_problem", "open_partition", "path", "report", "solve"}
    for name in expected:
        assert callable(getattr(fastadmm, name))
        assert getattr(fastadmm, name).__name__ == name
    old = {name.replace("Joint", "ADMMSharing"): name for name in joint}
    for name, now in old.items():
        assert getattr(fastadmm, name) is getattr(fastadmm, now)
        pickled = f"cfastadmm.sklearn.estimators{'_cv' * name.endswith('CV')}\n{name}\n."
        assert pickle.loads(pickled.encode()) is getattr(fastadmm, now)
    assert set(fastadmm.__all__) == expected | set(old)
    assert set(fastadmm.__all__) <= set(dir(fastadmm))
    with pytest.raises(AttributeError, match="no attribute 'Solver'"):
        fastadmm.Solver  # noqa: B018


def run_examples(text, name):
    test = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    return runner.run(test, out=sys.stderr.write)


@pytest.mark.parametrize("name", ["python.md", pytest.param("training.md", marks=pytest.mark.repeats)])
def test_examples_of_the_page(name):
    page = Path(__file__).resolve().parents[1] / "docs" / name
    examples = re.findall(r"```pycon\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    results = run_examples("\n".join(examples), name)
    assert results.attempted >= 9
    assert results.failed == 0


@pytest.mark.parametrize(
    "thing", [JointClassifier, JointRegressor, JointClassifierCV, JointRegressorCV, fastadmm.path]
)
def test_examples_of_the_docstrings(thing):
    results = run_examples(thing.__doc__, thing.__name__)
    assert results.attempted >= 5
    assert results.failed == 0


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (JointClassifier(loss="squared"), "loss: squared is for regression"),
        (JointRegressor(loss="logistic"), "loss: logistic is for classification"),
        (JointClassifier(loss="cauchy"), "loss: unknown loss 'cauchy'"),
        (JointClassifier(loss=3), "loss: 3 is not the name of a loss"),
        (JointRegressor(loss="huber:-1"), "loss: huber: delta"),
    ],
)
def test_losses_that_do_not_fit_are_refused(model, message):
    hasattr(model, "predict_proba")  # a look does not raise
    refuses(ConfigError, message, model.fit, np.eye(4), [0, 1, 0, 1])
