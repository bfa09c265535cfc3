"""Multinomial loss: kernels against twins, whole fits against scikit-learn, cvxpy and brute force."""

import csv
import io
import json
import math
from itertools import pairwise
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import ADMMSharingClassifier
from fastadmm.coordinator.subspace.multinomial import class_directions_per_party
from fastadmm.engine.engine import Engine
from fastadmm.errors import FormatError, InputError
from fastadmm.method import class_certificate
from fastadmm.method.class_certificate import class_root
from fastadmm.parties.classes import choose_class_solver
from fastadmm.problem.losses import get_loss
from fastadmm.problem.problem import make_problem
from fastadmm.runs.predict import predict_partition
from fastadmm.solver.history import Status
from fastadmm.solver.metrics import evaluation_metrics, quick_of
from fastadmm.solver.solver import Solver, SolverOptions, solve
from fastadmm.store.label_file import LabelWriter, open_labels
from fastadmm.store.model import open_model
from fastadmm.store.partition import open_partition
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, recall_score, roc_auc_score
from sklearn.preprocessing import scale

import naive_multinomial as naive
from run_tools import assert_clean, assert_same_run, refuses, result_of, run, told, within

ENGINE = Engine(1)
LOSS = get_loss("multinomial")
EPS = np.finfo(float).eps


def draw(seed, n=60, classes=4, spread=3.0):
    """Predictors (C, N), labels, weights (one of them zero)."""
    rng = np.random.default_rng(seed)
    s = rng.uniform(0.1, 3.0, n)
    s[0] = 0.0
    return spread * rng.normal(size=(classes, n)), rng.integers(0, classes, n).astype(float), s


@pytest.mark.representatives(4)
@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("spread", [1e-3, 3.0, 500.0, 1e6])
def test_value_gradient_and_curvature(classes, spread):
    z, y, s = draw(1, 300, classes, spread)
    g, h = np.empty(z.size), np.empty(z.size)
    value = LOSS.evaluate(z.ravel(), y, s, g, ENGINE)
    LOSS.curvature(z.ravel(), y, s, h, ENGINE)
    likely = LOSS.probabilities(z.ravel(), y, s, ENGINE)
    v = np.random.default_rng(2).normal(size=z.shape)
    image = LOSS.action(likely, s, v, ENGINE)
    twin = math.fsum(w * naive.value(row, int(c)) for row, c, w in zip(z.T, y, s))
    assert value == pytest.approx(twin, rel=1e-13)
    for i, (row, c, w) in enumerate(zip(z.T, y, s)):
        matrix = w * naive.hessian(row)
        np.testing.assert_allclose(g.reshape(z.shape)[:, i], w * naive.gradient(row, int(c)), 1e-13, 1e-300)
        np.testing.assert_allclose(likely[:, i], naive.probabilities(row), 1e-13, 1e-300)
        np.testing.assert_allclose(image[:, i], matrix @ v[:, i], 0, 1e-13 * max(1.0, w))
        np.testing.assert_allclose(h.reshape(z.shape)[:, i], np.diag(matrix), 0, 1e-15 * max(1.0, w))


def test_sums_and_steps_along_messages():
    z, y, s = draw(7, 300, 4)
    rng = np.random.default_rng(8)
    messages, step, b = rng.normal(size=(6, 300)), rng.normal(size=(4, 6)), rng.normal(size=4)
    before, total, gradient = rng.normal(size=z.shape), np.empty(z.size), np.empty(z.size)
    rows = SimpleNamespace(y=y, weight=s, offset=z.ravel())
    given = messages, step, before.ravel(), rows, b
    loss, slopes, sums = LOSS.advance_classes(*given, total, gradient, ENGINE)
    end = before + step @ messages
    known = np.empty(z.size)
    value = LOSS.evaluate((end + z + b[:, None]).ravel(), y, s, known, ENGINE)
    assert loss == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(total, end.ravel(), atol=1e-12)
    np.testing.assert_allclose(gradient, known, atol=1e-12)
    np.testing.assert_allclose(slopes, known.reshape(z.shape) @ messages.T, atol=1e-10)
    np.testing.assert_allclose(sums, known.reshape(z.shape).sum(axis=1), atol=1e-10)
    # Tiny gradients keep their digits.
    z, y = np.array([[40.0], [0.0], [-3.0]]), np.zeros(1)
    g = np.empty(3)
    value = LOSS.evaluate(z.ravel(), y, np.ones(1), g, ENGINE)
    rest = math.exp(-40.0) + math.exp(-43.0)
    assert g[0] == pytest.approx(-rest, rel=1e-14)
    assert value == pytest.approx(rest, rel=1e-14)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.integers(0, 10**6), st.floats(-6, 6), st.floats(-3, 6), st.floats(-2, 2))
def test_prox_to_machine_precision_from_any_start(classes, seed, log_r, log_spread, log_weight):
    rng = np.random.default_rng(seed)
    n, r, s = 6, 10.0**log_r, np.full(6, 10.0**log_weight)
    v = 10.0**log_spread * rng.normal(size=(classes, n))
    shift, y = rng.normal(size=(classes, n)), rng.integers(0, classes, n).astype(float)
    answers = []
    for start in (np.zeros_like(v), 1e6 * rng.normal(size=v.shape)):
        z, g = start.ravel().copy(), np.empty(v.size)
        sums, slope = LOSS.prox_classes(
            v.ravel(), shift.ravel(), SimpleNamespace(y=y, weight=s), r, z, g, ENGINE
        )
        assert np.isfinite(z).all()
        assert np.isfinite(slope).all()
        assert math.isfinite(LOSS.conjugate(g, y, s, ENGINE))  # in its domain, exactly
        np.testing.assert_allclose(sums, g.reshape(v.shape).sum(axis=1), 1e-12, 1e-12 * s.max())
        # what z is off by: one Newton step of the optimality condition
        gradient = np.empty(v.size)
        LOSS.evaluate(z + shift.ravel(), y, s, gradient, ENGINE)
        miss = (gradient + r * (z - v.ravel())).reshape(v.shape)
        for i in range(n):
            point = z.reshape(v.shape)[:, i] + shift[:, i]
            off = np.linalg.solve(r * np.eye(classes) + s[i] * naive.hessian(point), miss[:, i])
            size = max(1.0, np.abs(v[:, i]).max(), np.abs(shift[:, i]).max(), s[i] / r)
            assert np.abs(off).max() <= 16 * EPS * size
        answers.append(z)
    size = max(1.0, np.abs(v).max(), s[0] / r)
    np.testing.assert_allclose(*answers, rtol=0, atol=64 * EPS * size)


@pytest.mark.parametrize("r", [1e-3, 0.1, 1.0, 50.0])
def test_the_slope_of_the_prox_is_the_derivative_of_its_sums(r):
    v, y, s = draw(3, 12, 3)
    s += 0.2
    z, g = np.zeros(v.size), np.empty(v.size)
    rows = SimpleNamespace(y=y, weight=s)
    _, slope = LOSS.prox_classes(v.ravel(), np.zeros(v.size), rows, r, z, g, ENGINE)
    step = 1e-5
    for c in range(3):
        sums = []
        for sign in (1, -1):
            moved = np.zeros(v.shape)
            moved[c] = sign * step
            point = z.copy()
            sums.append(LOSS.prox_classes(v.ravel(), moved.ravel(), rows, r, point, g, ENGINE)[0])
        np.testing.assert_allclose((sums[0] - sums[1]) / (2 * step), slope[c], 1e-5, 1e-7)


def test_conjugate_and_its_domain():
    z, y, s = draw(4)
    g = np.empty(z.size)
    value = LOSS.evaluate(z.ravel(), y, s, g, ENGINE)
    conjugate = LOSS.conjugate(g, y, s, ENGINE)
    rows = g.reshape(z.shape).T
    twin = math.fsum(naive.conjugate(u, int(c), w) for u, c, w in zip(rows, y, s) if w > 0)
    assert conjugate == pytest.approx(twin, rel=1e-12)
    assert value + conjugate == pytest.approx(float(g @ z.ravel()), rel=1e-12)  # Fenchel and Young
    # at any other point of the domain it is above the supporting plane
    other = np.empty(z.size)
    LOSS.evaluate(draw(5)[0].ravel(), y, s, other, ENGINE)
    assert LOSS.conjugate(other, y, s, ENGINE) + value >= float(other @ z.ravel())
    for change in ((0, 1e-6), (1, -2.0)):
        bad = g.reshape(z.shape).copy()
        bad[change[0], 5] += change[1]
        assert LOSS.conjugate(bad.ravel(), y, s, ENGINE) == math.inf
    assert LOSS.conjugate(0.0 * g, y, s, ENGINE) == 0.0


def test_balanced_classes():
    # What is left of it is below the rounding of the others': the system would be singular.
    bend = np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])

    def function(b):
        return 1e-17 * np.array([1.0, -2.0, 1.0]) + bend @ (b - np.array([1.0, -1.0, 0.0])), bend

    found = class_root(function, np.zeros(3))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[0] - found[1], 2.0, rtol=0, atol=1e-9)
    # A class that no row is in doubt about is balanced.
    rng = np.random.default_rng(3)
    y = np.append(rng.integers(0, 2, size=40), [2, 2])
    problem = make_problem([rng.normal(size=(42, 2))], y, loss="multinomial", lam=1e-3)
    z = rng.normal(size=(3, 42))
    z[2] = np.where(y == 2, 33.0, -33.0)
    gradient = np.empty(3 * 42)
    intercept = class_certificate.class_primal_value(problem, z.ravel(), np.zeros(3), ENGINE).intercept
    z = (z + intercept[:, None]).ravel()
    value = problem.loss.evaluate(z, problem.y, problem.weight, gradient, ENGINE)
    class_certificate.make_class_feasible(problem, z, gradient, (value, intercept), ENGINE)
    rows = gradient.reshape(3, -1)
    assert (np.abs(rows.sum(axis=1)) <= 1e-9 * np.abs(rows).sum(axis=1)).all()
    # A class that never occurs needs no intercept.
    problem = make_problem([np.eye(3)], [0, 2, 2], loss="multinomial", fit_intercept=False, lam=0.1)
    assert solve(problem, SolverOptions(gap=1e-9)).status is Status.CONVERGED


def iris():
    X, y = load_iris(return_X_y=True)
    return scale(X), y


def reference(X, y, lam, fit_intercept=True, s=None):
    total = len(y) if s is None else s.sum()
    model = LogisticRegression(
        C=1 / (total * lam), fit_intercept=fit_intercept, solver="newton-cg", tol=1e-11, max_iter=10000
    )
    return model.fit(X, y, sample_weight=s)


def test_offsets_per_class():
    X, y = iris()
    offset = np.random.default_rng(1).normal(size=(len(y), 3))
    problem = make_problem([X], y, loss="multinomial", lam=1e-2, offset=offset)
    result = solve(problem, SolverOptions(gap=1e-9))

    def cost(packed):
        weights, b = packed[:12].reshape(4, 3), packed[12:]
        z = offset + X @ weights + b
        return sum(naive.value(r, c) for r, c in zip(z, y)) / len(y) + 5e-3 * np.sum(weights**2)

    best = minimize(cost, np.zeros(15), options={"gtol": 1e-7})
    assert result.objective == pytest.approx(best.fun, rel=1e-7)
    assert cost(np.r_[result.weights[0].ravel(), result.intercept]) == pytest.approx(
        result.objective, rel=1e-12
    )


def test_weights_sum_to_zero_over_the_classes_in_every_round():
    X, y = load_digits(return_X_y=True)
    blocks = np.array_split(X / 16.0, 2, axis=1)
    options = SolverOptions(gap=0.0, directions="one")
    solver = Solver(make_problem(blocks, y, loss="multinomial", lam=1e-3), options)
    for _ in range(4):
        solver.round()
        for x in solver.party_weights():
            np.testing.assert_allclose(x.sum(axis=1), 0.0, atol=1e-12)
    assert solver.coordinator.messages.shape[0] <= 4 * 2 * 9  # so C classes ask for C - 1 directions


@pytest.mark.parametrize("history", [1, 3])
def test_history_is_obeyed(history):
    X, y = load_digits(return_X_y=True)
    problem = make_problem(np.array_split(X / 16.0, 2, axis=1), y, loss="multinomial", lam=1e-3)
    solver = Solver(problem, SolverOptions(gap=0.0, history=history))
    values = [solver.round().objective for _ in range(12)]
    limit = 10 * max(2, history)
    assert len(solver.coordinator.messages) == 2 * min(limit, 32)
    assert len(solver.coordinator.store.rows) == 2 * min(limit + 10, 32)
    assert all(b <= a * (1 + 1e-14) for a, b in pairwise(values))
    total = sum(x.T @ block.matrix.T for x, block in zip(solver.party_weights(), problem.blocks))
    np.testing.assert_allclose(solver.coordinator.point.total, total.ravel(), atol=1e-9)


def test_directions_fit_the_memory():
    assert class_directions_per_party(2, 1000, 3) == 64
    assert class_directions_per_party(2, 1000, 10) == 1024 // 20
    assert class_directions_per_party(2, 60000, 10) * 60000 * 10 * 8 * 2 <= 2**30
    assert class_directions_per_party(100, 10**6, 100) == 3
    assert choose_class_solver((60000, 784), 10)[0] == "gradient"
    assert choose_class_solver((60000, 98), 10)[0] == "gram"
    assert choose_class_solver((40, 5000), 3)[0] == "kernel"


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        ([0, 1, 1.5], {}, "y: target 1.5 in row 2 is no class number"),
        ([0, 1, -1], {}, "y: target -1.0 in row 2 is no class number"),
        ([0, 0, 0], {}, "y: only one class is present (0)"),
        ([0, 2, 2], {}, "y: class 1 has no sample with a positive weight"),
        ([0, 1, 2], {"sample_weight": [1, 0, 1]}, "y: class 1 has no sample with a positive weight"),
        ([0, 1, 1], {"n_classes": 3}, "y: class 2 has no sample"),
        ([0, 1, 2], {"n_classes": 2}, "y: target 2 in row 2, but there are 2 classes"),
        ([0, 1, 2], {"offset": [1, 2, 3]}, "offset: the multinomial loss takes one offset per sample and"),
        ([0, 1, 2], {"offset": np.ones((3, 2))}, "offset: the multinomial loss takes one offset per"),
    ],
)
def test_refusals(y, options, message):
    given = {"loss": "multinomial", **options}
    assert refuses(InputError, "", make_problem, [np.eye(3)], y, **given).startswith(message)


def test_estimator_with_two_and_three_classes():
    X, y = iris()
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = ADMMSharingClassifier([1, 3], 1e-2, tol=1e-10).fit(X, names)
    other = reference(X, names, 1e-2)
    assert list(model.classes_) == ["setosa", "versicolor", "virginica"]
    assert (model.coef_.shape, model.intercept_.shape) == ((3, 4), (3,))
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, other.intercept_, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(model.predict_log_proba(X), other.predict_log_proba(X), atol=1e-5)
    np.testing.assert_array_equal(model.predict(X), other.predict(X))
    np.testing.assert_allclose(model.decision_function([X[:, :1], X[:, 1:]]), model.decision_function(X))
    assert [w.shape for w in model.party_coefs_] == [(1, 3), (3, 3)]
    sparse = ADMMSharingClassifier(1, 1e-2, regularizer="l1", tol=1e-5).fit(sp.csr_array(X), names)
    assert (sparse.coef_ == 0).any()
    # Estimator with two classes asked for.
    X, y = iris()
    X, y = X[y > 0], y[y > 0]
    model = ADMMSharingClassifier(2, 1e-2, loss="multinomial", tol=1e-12).fit(X, y)
    assert model.coef_.shape == (2, 4)
    assert model.decision_function(X).shape == (len(y),)
    half = ADMMSharingClassifier(2, 5e-3, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), half.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(model.predict(X), half.predict(X))


NAMES = ("setosa", "versicolor", "virginica")


def iris_csv(path, rows, weights=False):
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[rows]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["sl", "sw", "pl", "pw", "species"])
        writer.writerows([*X[i], NAMES[y[i]]] for i in order)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    iris_csv(folder / "train.csv", slice(0, 110))
    iris_csv(folder / "test.csv", slice(110, 150))
    convert = ("--label", "species", "--columns", "2,2", "--standardize")
    assert run("convert", folder / "train.csv", "-o", folder / "train.parts", *convert) == 0
    assert run("convert", folder / "test.csv", "-o", folder / "test.parts", "--label", "species",
               "--like", folder / "train.parts") == 0  # fmt: skip
    train = ("train", folder / "train.parts", "--test", folder / "test.parts", "--lambda", "1e-3")
    assert run(*train, "--gap", "1e-9", "-o", folder / "run") == 0
    return folder


def test_the_run_is_the_estimators_model(folder):
    model, partition = open_model(folder / "run"), open_partition(folder / "train.parts")
    blocks = [party.load() for party in partition.parties]
    names = np.array(NAMES)[partition.labels.y.astype(int)]
    other = ADMMSharingClassifier(alpha=1e-3, tol=1e-9).fit(blocks, names)
    assert (model.loss, model.classes) == ("multinomial", NAMES)
    assert [party.weights.shape for party in model.parties] == [(2, 3), (2, 3)]
    for party, weights in zip(model.parties, other.party_coefs_):
        np.testing.assert_allclose(party.weights, weights, atol=1e-12)
    np.testing.assert_allclose(model.intercept, other.intercept_, atol=1e-12)
    result = result_of(folder / "run")
    assert (result["loss"], result["scheme"], result["status"]) == ("multinomial", "subspace", "converged")
    assert result["intercepts"] == pytest.approx(other.intercept_.tolist())
    last = json.loads((folder / "run" / "rounds.jsonl").read_text().splitlines()[-1])
    assert last["test"]["accuracy"] > 0.9


def test_predict_evaluate_report_inspect(folder, capsys):
    capsys.readouterr()
    assert run("predict", folder / "run", folder / "test.parts") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    probabilities = np.array([[float(row[f"probability_{name}"]) for name in NAMES] for row in rows])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert [row["label"] for row in rows] == [NAMES[c] for c in probabilities.argmax(axis=1)]
    got = predict_partition(folder / "run", folder / "test.parts")
    np.testing.assert_array_equal(got.mean, probabilities)

    metrics = told(capsys, "evaluate", folder / "run", folder / "test.parts")["metrics"]
    y = open_partition(folder / "test.parts").labels.y
    assert metrics["log_loss"] == pytest.approx(log_loss(y, probabilities))
    assert metrics["auc"] == pytest.approx(roc_auc_score(y, probabilities, multi_class="ovr"))
    assert [row["name"] for row in metrics["classes"]] == list(NAMES)
    last = json.loads((folder / "run" / "rounds.jsonl").read_text().splitlines()[-1])["test"]
    for key in ("log_loss", "accuracy", "auc"):
        assert last[key] == pytest.approx(metrics[key], abs=1e-9)
    assert run("report", folder / "run") == 0
    assert "virginica" in (folder / "run" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["subspace", "sharing"])
def test_resume_is_bit_identical_from_toml(folder, tmp_path, scheme):
    settings = {"data": folder / "train.parts", "loss": "multinomial", "scheme": scheme}
    text = "".join(f'{key} = "{value}"\n' for key, value in settings.items()) + "lambda = 1e-5\ngap = 0.0\n"
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    train = ("train", "--config", tmp_path / "run.toml")
    assert run(*train, "--rounds", 6, "--threads", 1, "-o", tmp_path / "whole") == 7
    assert run(*train, "--rounds", 3, "--threads", 2, "-o", tmp_path / "half") == 7
    assert run("resume", tmp_path / "half", "--rounds", 6) == 7
    assert_same_run(tmp_path / "whole", tmp_path / "half")
    assert_clean(tmp_path / "half")


def test_label_files_and_class_numbers(tmp_path):
    for names, y, version in ((("a", "b"), [0, 1], "1.0"), (("a", "b", "c"), [0, 2], "1.1")):
        path = tmp_path / f"{len(names)}.h5"
        with LabelWriter(path, task="classification", classes=names) as writer:
            writer.append(y)
        assert open_labels(path).classes == names
        with h5py.File(path) as file:
            assert file.attrs["encoding-version"] == version
    # Class numbers beyond the names are refused.
    tmp_path = within(tmp_path)
    writer = LabelWriter(tmp_path / "x.h5", task="classification", classes=("a", "b", "c"))
    refuses(InputError, r"row 2: value 3\.0 is no class number from 0 to 2", writer.append, [0, 3])
    writer.abort()
    assert not list(tmp_path.iterdir())


def test_damaged_models_are_refused(folder, tmp_path):
    import shutil

    def change_weights(path):
        with h5py.File(path / "party-1.h5", "a") as file:
            attributes, values = dict(file["weights"].attrs), file["weights"][:, :2]
            del file["weights"], file.attrs["digest"]
            file.create_dataset("weights", data=values).attrs.update(attributes)

    def drop_intercepts(path):
        with h5py.File(path / "coordinator.h5", "a") as file:
            del file["intercepts"]

    for damage, words in (
        (change_weights, "shape .2, 2., but model.toml and the intercepts say .2, 3."),
        (drop_intercepts, "intercepts"),
    ):
        path = tmp_path / damage.__name__
        shutil.copytree(folder / "run" / "model", path)
        damage(path)
        refuses(FormatError, words, open_model, path)


@pytest.mark.parametrize("classes", [2, 4])
def test_metrics_are_scikit_learns(classes):
    rng = np.random.default_rng(classes)
    z, y, s = (
        rng.normal(size=(200, classes)),
        rng.integers(0, classes, 200),
        rng.integers(0, 4, 200).astype(float),
    )
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    full = evaluation_metrics(LOSS, y, z, s)
    quick = quick_of(LOSS, y, z, s)
    assert full["log_loss"] == pytest.approx(log_loss(y, p, sample_weight=s))
    assert full["accuracy"] == pytest.approx(accuracy_score(y, p.argmax(axis=1), sample_weight=s))
    areas = [roc_auc_score(y == c, p[:, c], sample_weight=s) for c in range(classes)]
    assert full["auc"] == pytest.approx(np.mean(areas))
    recalls = recall_score(y, p.argmax(axis=1), average=None, sample_weight=s)
    assert [row["recall"] for row in full["classes"]] == pytest.approx(recalls.tolist())
    if classes == 2:
        assert full["brier"] == pytest.approx(2 * brier_score_loss(y, p[:, 1], sample_weight=s))
    for key, value in quick.items():
        assert value == pytest.approx(full[key], rel=1e-12)


def test_metrics_leave_out():
    assert set(quick_of(LOSS, [0, 1], np.full((2, 2), np.nan)).values()) == {None}
    assert evaluation_metrics(LOSS, [0, 0], [[1.0, 0.0], [0.5, 0.5]], classes=["a", "b"])["auc"] is None
