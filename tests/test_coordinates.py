"""Many columns in one process: working sets, extrapolated passes and Gram matrices, with classes, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.blocks.columns import Columns
from fastadmm.coordinator.multinomial.span import ClassHere
from fastadmm.coordinator.proximal import coordinate_newton
from fastadmm.coordinator.proximal.class_coordinate_newton import ClassCoordinateNewton
from fastadmm.coordinator.proximal.coordinate_newton import CoordinateNewton
from fastadmm.coordinator.proximal.narrow_classes import NarrowClassesMethod
from fastadmm.coordinator.proximal.stacked import StackedClassesMethod, StackedProximalMethod
from fastadmm.coordinator.subspace.whole_span import classes_pay_one_by_one
from fastadmm.engine.engine import Engine
from fastadmm.parties.common_shift import common_shift, sparsest_shift
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem
from fastadmm.solver.solver import Solver
from sklearn.linear_model import Lasso, LogisticRegression

from resumed import assert_resumed_is_the_same

CASES = [
    ("l1", {}),
    ("elastic_net", {}),
    ("l1", {"constraint": "nonnegative"}),
    ("elastic_net", {"constraint": "box:-0.1,0.2"}),
]


def data(loss: str, n: int, d: int, dense: bool, classes: int = 4) -> tuple[Any, np.ndarray]:
    """Neighbouring columns are alike, one is constant and one empty."""
    rng = np.random.default_rng(n + d)
    X = rng.normal(size=(n, d))
    X[:, 1::2] = 0.7 * X[:, ::2][:, : d // 2] + 0.5 * X[:, 1::2]
    X = X if dense else np.where(rng.random((n, d)) < 0.1, X, 0.0)
    X[:, -2:] = 1.0, 0.0
    if loss == "multinomial":
        z = X[:, :20] @ rng.normal(size=(20, classes)) + rng.gumbel(size=(n, classes))
        return X, z.argmax(axis=1).astype(float)
    z = X[:, :20] @ rng.normal(size=20) + rng.logistic(size=n)
    return X, z if loss == "squared" else (z > 0.0) * 1.0


def problem(
    loss: str, n: int = 120, d: int = 300, dense: bool = True, classes: int = 4, **more: Any
) -> Problem:
    X, y = data(loss, n, d, dense, classes)
    blocks = [X[:, : d // 3], X[:, d // 3 :]]
    given = blocks if dense else [sp.csr_array(own) for own in blocks]
    return make_problem(given, y, loss=loss, **{"regularizer": "l1", "lam": 3e-3, **more})


def steps(given: Problem) -> Any:
    """The steps for a problem."""
    own = given.party_regularizers[0], given.party_constraints[0], given.regularization
    kind = ClassCoordinateNewton if given.n_outputs > 1 else CoordinateNewton
    return kind(given, PartyPenalty(*own), Engine(1))


def assert_others_prove_the_same(objective: float, given: Problem) -> None:
    """Rounds by directions, which not always end here, find nothing lower; nor is it below their bound."""
    other = solve(given, SolverOptions(gap=1e-5, history=64, max_rounds=300))
    assert objective <= other.objective * (1.0 + 1e-8)
    assert objective >= other.objective / (1.0 + other.gap) * (1.0 - 1e-8)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(("regularizer", "more"), CASES, ids=str)
@pytest.mark.parametrize("loss", ["squared", "logistic", "multinomial"])
def test_few_rounds_certify(loss: str, regularizer: str, more: dict, dense: bool, intercept: bool) -> None:
    given = problem(loss, regularizer=regularizer, dense=dense, fit_intercept=intercept, **more)
    assert isinstance(Solver(given, SolverOptions()).method, StackedProximalMethod)
    result = solve(given, SolverOptions(gap=1e-8))
    assert result.certified
    assert len(result.history) <= 5
    low, high = given.party_constraints[0].bounds
    x = np.concatenate(result.weights)
    assert ((x >= low) & (x <= high)).all()
    assert not x[-1].any()  # an empty column's
    assert (x == 0.0).any()
    assert_others_prove_the_same(result.objective, given)


@pytest.mark.parametrize("lam", [0.1, 1e-3])
def test_the_lasso_is_scikit_learns(lam: float) -> None:
    X, y = data("squared", 120, 300, True)
    result = solve(problem("squared", lam=lam), SolverOptions(gap=1e-10))
    model = Lasso(alpha=lam, tol=1e-12, max_iter=200_000).fit(X, y)
    np.testing.assert_allclose(np.concatenate(result.weights), model.coef_, atol=2e-4)
    assert result.intercept == pytest.approx(model.intercept_, abs=2e-4)


def test_classes_are_scikit_learns() -> None:
    X, y = data("multinomial", 150, 120, True, 3)
    given = problem("multinomial", 150, 120, classes=3, lam=2e-2, fit_intercept=False)
    result = solve(given, SolverOptions(gap=1e-9))
    saga = {"solver": "saga", "l1_ratio": 1.0, "tol": 1e-9, "max_iter": 50_000, "random_state": 0}
    model = LogisticRegression(C=1.0 / (2e-2 * 150), fit_intercept=False, **saga).fit(X, y)
    theirs = model.coef_ - common_shift(model.coef_, 1.0, 0.0)
    ours = np.concatenate(result.weights).T
    np.testing.assert_allclose(ours, theirs, atol=2e-3)
    z = X @ theirs.T
    loss = np.mean(np.log(np.exp(z).sum(axis=1)) - z[np.arange(150), y.astype(int)])
    assert result.objective <= loss + 2e-2 * np.abs(theirs).sum() + 1e-9


@pytest.mark.parametrize("loss", ["squared", "multinomial"])
def test_nothing_is_worth_its_weight(loss: str) -> None:
    result = solve(problem(loss, lam=50.0), SolverOptions(gap=1e-8))
    assert result.certified
    assert not np.concatenate(result.weights).any()


@pytest.mark.parametrize("kind", ["weights", "offset"])
@pytest.mark.parametrize("loss", ["squared", "multinomial"])
def test_weights_and_offsets(loss: str, kind: str) -> None:
    rng, shape = np.random.default_rng(3), (120, 4) if loss == "multinomial" else 120
    weight = rng.exponential(size=120) * (rng.random(120) < 0.9)
    more = {"sample_weight": weight} if kind == "weights" else {"offset": rng.normal(size=shape)}
    given = problem(loss, **more)
    result = solve(given, SolverOptions(gap=1e-8))
    assert result.certified
    assert_others_prove_the_same(result.objective, given)


@pytest.mark.parametrize("loss", ["squared", "logistic", "multinomial"])
@pytest.mark.parametrize("dense", [False, True])
def test_the_same_bits_for_any_number_of_threads_and_after_a_stop(loss: str, dense: bool) -> None:
    given = problem(loss, lam=1e-3, dense=dense)
    one, two = (solve(given, SolverOptions(n_threads=k)) for k in (1, 2))
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert_resumed_is_the_same(given, SolverOptions(gap=0.0), rounds=2)


@pytest.mark.parametrize("loss", ["squared", "logistic", "multinomial"])
def test_gram_matrices_and_passes_lead_to_the_same(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given, found = problem(loss, n=60, lam=1e-3), []
    for most in (0, 4096):  # rows of a Gram matrix
        monkeypatch.setattr(coordinate_newton, "MOST_ON_GRAM", most)
        monkeypatch.setattr(coordinate_newton, "_MAX_PASSES", 3 if most else 200)
        monkeypatch.setattr(coordinate_newton, "_CUBE", 0.0)
        own, shape = steps(given), ((4, 300) if loss == "multinomial" else (300,))
        grams: list[int] = []
        on_gram = own.on_gram
        own.on_gram = lambda *a, f=on_gram, sizes=grams: (sizes.append(len(a[0])), f(*a))[1]
        intercept = np.zeros(4) if loss == "multinomial" else 0.0
        point = own.minimise(np.zeros(shape), intercept, 1e-9 * 60)
        assert own.gap(own.at(point.coefficients, point.intercept)) <= 1e-9 * 60
        assert bool(grams) == (most > 0)
        c = point.coefficients
        found.append(c - np.median(c, axis=0) if c.ndim > 1 else c)  # of four classes, between the middle two
    np.testing.assert_allclose(*found, atol=1e-4)


def test_extrapolation_spares_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    given, counts = problem("squared", n=400, d=300, lam=1e-4), []
    monkeypatch.setattr(coordinate_newton, "MOST_ON_GRAM", 0)
    from fastadmm.kernels import coordinate_descent as kernels

    descend = kernels.descend_columns
    for together in (5, 10**6):
        monkeypatch.setattr(coordinate_newton, "_TOGETHER", together)
        passes: list[int] = []
        monkeypatch.setattr(kernels, "descend_columns", lambda *a, n=passes: n.append(1) or descend(*a))
        own = steps(given)
        point = own.minimise(np.zeros(300), 0.0, 1e-7 * 400)
        assert own.gap(own.at(point.coefficients, point.intercept)) <= 1e-7 * 400
        counts.append(len(passes))
    assert counts[0] < 0.7 * counts[1]


def test_a_working_set_has_the_weights_and_as_many_that_pull_most() -> None:
    given = problem("squared", d=900)
    own = steps(given)
    x = np.zeros(900)
    x[:70] = 1e-3
    here = own.at(x, 0.0)
    chosen, pull = own.working_set(here), np.abs(here.slope[1:]) - own.terms[0]
    sizes = np.sqrt(own.columns.squares())
    share = np.where(sizes > 0.0, pull / np.where(sizes > 0.0, sizes, 1.0), -np.inf)
    assert len(chosen) == 140
    assert set(range(70)) <= set(chosen)
    assert (
        share[np.setdiff1d(chosen, np.arange(70))].min() >= share[np.setdiff1d(np.arange(900), chosen)].max()
    )


@pytest.mark.parametrize("dense", [False, True])
def test_columns_are_those_of_the_blocks(dense: bool) -> None:
    given, rng = problem("squared", d=60, dense=dense), np.random.default_rng(1)
    whole = data("squared", 120, 60, dense)[0]
    columns, chosen = Columns(given.blocks, Engine(1)), np.array([2, 5, 40, 59])
    assert columns.dense == dense
    c, v = rng.normal(size=60), rng.normal(size=120)
    np.testing.assert_allclose(columns.product(c), whole @ c, atol=1e-10)
    np.testing.assert_allclose(columns.transposed_product(v), whole.T @ v, atol=1e-10)
    np.testing.assert_allclose(columns.squares(), (whole**2).sum(axis=0), atol=1e-10)
    h = rng.random(120)
    own = columns.some(chosen).gram(Engine(1), h)
    np.testing.assert_allclose(own, whole[:, chosen].T @ (h[:, np.newaxis] * whole[:, chosen]), atol=1e-10)


def curvature(likely: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """W of every row, of shape (N, C, C)."""
    return weight[:, None, None] * (
        np.einsum("ci,ce->ice", likely, np.eye(len(likely))) - np.einsum("ci,ei->ice", likely, likely)
    )


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    "terms", [(0.3, 0.0, -np.inf, np.inf), (0.3, 0.1, -np.inf, np.inf), (0.3, 0.1, -0.4, 0.5)]
)
def test_a_pass_over_classes_beside_dense_arithmetic(terms: tuple, intercept: bool, compressed: bool) -> None:
    """A block is minimised slowly there: by coordinate descent and shifts until nothing moves."""
    from fastadmm.kernels import class_descent

    rng, n, d, classes = np.random.default_rng(4), 50, 6, 4
    dense = np.where(rng.random((n, d)) < 0.5, rng.normal(size=(n, d)), 0.0)
    likely, weight = rng.dirichlet(np.ones(classes), size=n).T.copy(), rng.random(n)
    bend, slope = likely * weight, 2.0 * rng.normal(size=(classes, d))
    slope -= slope.mean(axis=0)  # as every gradient's
    matrix = sp.csc_array(dense)
    arrays = matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint16), matrix.data
    if not compressed:
        arrays = np.arange(d + 1) * n, np.empty(0, np.uint16), dense.T.copy().ravel()
    chosen, whole = np.array([4, 0, 3, 1, 5]), curvature(likely, weight)
    blocks, cross = np.empty((2, 5, classes, classes))
    class_descent.class_blocks(*arrays, likely, bend, chosen, blocks, cross, 0, 5)
    np.testing.assert_allclose(blocks, np.einsum("ij,ice->jce", dense[:, chosen] ** 2, whole), atol=1e-12)
    np.testing.assert_allclose(cross, np.einsum("ij,ice->jce", dense[:, chosen], whole), atol=1e-12)
    inverse, first = np.zeros((0, 0)), np.zeros(0)
    if intercept:
        inverse, first = np.linalg.pinv(whole.sum(axis=0)), rng.normal(size=classes)
        first -= first.mean()
        blocks -= cross @ inverse @ cross
    places = np.zeros(d, dtype=np.int64)
    places[chosen] = np.arange(5)
    l1, l2, low, high = terms
    start = np.clip(rng.normal(size=(classes, d)), low, high)
    start[:, 0] = 0.0
    x, image, moved, order = start.copy(), np.zeros((classes, n)), np.zeros(2 + classes), chosen.copy()
    given = arrays, (likely, bend, blocks, cross, places), (inverse, first), slope, terms
    class_descent.descend_class_columns(*given, order, np.inf, x, image, moved)

    def gradient(y: np.ndarray) -> np.ndarray:
        q = np.einsum("ij,cj->ic", dense, y - start)
        if intercept:
            pulled = first + np.einsum("ice,ie->c", whole, q)
            q = q - inverse @ pulled
        return slope + np.einsum("ij,ice,ie->cj", dense, whole, q)

    y = start.copy()
    for j in chosen:
        block = blocks[places[j]]
        for _ in range(40):
            for c in range(classes):
                pull = block[c, c] * y[c, j] - gradient(y)[c, j]
                y[c, j] = np.clip(np.sign(pull) * max(abs(pull) - l1, 0.0) / (block[c, c] + l2), low, high)
            if np.isinf(low):
                y[:, j] -= sparsest_shift(y[:, j : j + 1], l1, l2)[0]
    np.testing.assert_allclose(x, y, atol=2e-2)  # ten rounds of a block, to a hundredth
    q = np.einsum("ij,cj->ic", dense, x - start)
    np.testing.assert_allclose(image, np.einsum("ice,ie->ci", whole, q), atol=1e-10)
    if intercept:
        np.testing.assert_allclose(moved[2:], np.einsum("ice,ie->c", whole, q), atol=1e-10)
    for _ in range(500):
        class_descent.descend_class_columns(*given, chosen, np.inf, x, image, moved)
    at = (gradient(x) + l2 * x)[:, chosen]
    x = x[:, chosen]
    inside = (x > low) & (x < high)
    assert (np.abs(at[x == 0.0]) <= l1 + 1e-7).all()
    np.testing.assert_allclose(at[(x != 0.0) & inside], -l1 * np.sign(x[(x != 0.0) & inside]), atol=1e-7)
    assert (at[x == low] >= l1 - 1e-7).all()
    assert (at[x == high] <= -l1 + 1e-7).all()


def test_the_gram_matrix_of_classes_is_the_hessian() -> None:
    given = problem("multinomial", n=50, d=20, dense=True)
    own, rng, chosen = steps(given), np.random.default_rng(2), np.array([1, 4, 7])
    likely, weight = rng.dirichlet(np.ones(4), size=50).T.copy(), rng.random(50)
    part = own.columns.some(chosen).matrix
    hessian = np.einsum("ij,ice,ik->cjek", part, curvature(likely, weight), part)
    found = own._gram(chosen, likely, likely * weight).reshape(4, 3, 4, 3)
    common = np.einsum("cjck->jk", hessian) * 0.01 / 16.0
    np.testing.assert_allclose(found, hessian + common[None, :, None], atol=1e-12)


def test_a_point_has_the_slopes_of_its_loss() -> None:
    given = problem("multinomial", n=50, d=20)
    own, rng = steps(given), np.random.default_rng(2)
    c = 0.1 * rng.normal(size=(4, 20))
    here, step = own.at(c, np.zeros(4)), 1e-5 * rng.normal(size=(4, 20))
    assert isinstance(here, ClassHere)
    ahead, behind = own.at(c + step, np.zeros(4)), own.at(c - step, np.zeros(4))
    assert np.sum(here.slope[:, 1:] * step) == pytest.approx(0.5 * (ahead.value - behind.value), rel=1e-5)
    np.testing.assert_allclose(here.slope[:, 0], 0.0, atol=1e-10)  # intercepts are the best


def test_the_sparsest_shift_is_one_of_the_best() -> None:
    rng = np.random.default_rng(1)
    for classes in (2, 3, 4, 7):
        x = rng.normal(size=(classes, 30))
        for alpha, beta in ((1.0, 0.0), (0.7, 0.4)):
            shift, usual = sparsest_shift(x, alpha, beta), common_shift(x, alpha, beta)

            def value(y: np.ndarray, alpha: float = alpha, beta: float = beta) -> np.ndarray:
                return alpha * np.abs(y).sum(axis=0) + 0.5 * beta * (y**2).sum(axis=0)

            np.testing.assert_allclose(value(x - shift), value(x - usual), rtol=1e-12)
            if beta == 0.0:
                assert ((x - shift) == 0.0).any(axis=0).all()


def test_what_is_the_least_work_with_classes() -> None:
    assert classes_pay_one_by_one(3000, [250, 250], [1.0, 1.0], 4, False)
    assert classes_pay_one_by_one(2000, [150, 150], [1.0, 1.0], 3, True)
    assert not classes_pay_one_by_one(20_000, [54], [1.0], 7, True)  # all columns at once
    assert not classes_pay_one_by_one(10**6, [3000], [1.0], 3, False)  # too many numbers
    narrow = problem("multinomial", n=2000, d=20)
    assert type(Solver(narrow, SolverOptions()).method) is NarrowClassesMethod
    assert isinstance(Solver(problem("multinomial"), SolverOptions()).method, StackedClassesMethod)
    other = Solver(problem("multinomial"), SolverOptions(history=9)).method
    assert not isinstance(other, StackedClassesMethod)


def test_columns_that_are_nearly_dependent_do_not_take_hundreds_of_steps(monkeypatch):
    steps, least = [], CoordinateNewton.least
    monkeypatch.setattr(CoordinateNewton, "least", lambda *given: steps.append(1) or least(*given))
    rng = np.random.default_rng(4)
    X = 0.3 * rng.normal(size=(550, 410)) + rng.normal(size=(550, 3)) @ rng.normal(size=(3, 410))
    z = X @ rng.normal(size=410)
    y = (3.0 * z / z.std() + rng.logistic(size=550) > 0.0) * 1.0
    found = solve(make_problem([X], y, loss="squared_hinge", regularizer="l1", lam=5e-3))
    assert found.certified
    assert len(found.history) == 1
    assert 0 < len(steps) <= 80
