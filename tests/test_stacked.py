"""Few columns with mostly zeros are read side by side where parties are in this process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.blocks.block import CSRBlock, as_block
from fastadmm.blocks.side_by_side import can_stand_side_by_side, mean_row_square, side_by_side
from fastadmm.coordinator.proximal.stacked import StackedProximalMethod
from fastadmm.coordinator.subspace.span import Span, SpanPoint
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.coordinator.subspace.stacked import StackedSubspaceMethod
from fastadmm.coordinator.subspace.stacked_smoothed import StackedSmoothedMethod
from fastadmm.coordinator.subspace.stacked_span import StackedSpan
from fastadmm.coordinator.subspace.whole_span import stacked_rows_pay
from fastadmm.coordinator.subspace.work_of_ways import FACES
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint

from resumed import assert_resumed_is_the_same

N, WIDTHS = 2500, (40, 30, 2)


def matrices(ones: bool = False) -> list[Any]:
    rng = np.random.default_rng(5)
    found: list[Any] = [sp.random_array((N, d), density=0.06, rng=rng, format="csr") for d in WIDTHS[:2]]
    if ones:
        found = [(own != 0.0).astype(np.float64) for own in found]
    return [*found, rng.normal(size=(N, WIDTHS[2]))]


def problem(loss: str = "logistic", regularizer: str = "l2", lam: float = 1e-4, **more: Any) -> Problem:
    rng, blocks = np.random.default_rng(6), matrices(bool(more.pop("ones", False)))
    blocks[1] = sp.hstack([blocks[1].tocsc()[:, :28], blocks[0].tocsc()[:, :1], sp.csc_array((N, 1))]).tocsr()
    z = sum(block @ rng.normal(size=block.shape[1]) for block in blocks) + rng.logistic(size=N)
    y = z if loss in ("squared", "huber") else (z > 0) * 1.0
    y = rng.poisson(np.exp(np.clip(0.3 * z, -3.0, 3.0))) * 1.0 if loss == "poisson" else y
    return make_problem(blocks, y, loss=loss, regularizer=regularizer, lam=lam, **more)


def method_of(given: Problem, **options: Any) -> Any:
    return Solver(given, SolverOptions(**options)).method


@pytest.mark.parametrize("ones", [False, True])
def test_side_by_side_are_the_columns_of_all(ones: bool) -> None:
    given = matrices(ones)
    blocks = [as_block(matrix) for matrix in given]
    with Engine(2) as engine:
        found = side_by_side(blocks, engine)
        whole = np.hstack([m.toarray() if sp.issparse(m) else m for m in given])
        np.testing.assert_array_equal(found.to_scipy().toarray(), whole)
        assert all(
            (np.diff(own) > 0).all() for own in np.split(found.indices.astype(int), found.indptr[1:-1])
        )
        assert mean_row_square(blocks, engine, apart=True) == pytest.approx(
            (np.diff(found.indptr) ** 2.0).mean()
        )
        assert side_by_side(blocks[:1], engine) is blocks[0]  # no copy of a single one
        assert not found.all_ones  # of a dense block nobody has looked
        assert side_by_side(blocks[:2], engine).all_ones == ones
    assert can_stand_side_by_side(blocks)


@pytest.mark.parametrize("intercept", [False, True])
def test_passes_over_rows_are_those_over_messages(intercept: bool) -> None:
    given, rng = problem(fit_intercept=intercept), np.random.default_rng(0)
    with Engine(1) as engine:
        rows = side_by_side(given.blocks, engine)
        messages = rows.to_scipy().toarray().T.copy()
        spans = Span(given, messages, engine), StackedSpan(given, rows, engine)
        step, found = rng.normal(size=sum(WIDTHS) + intercept), []
        for span in spans:
            hessian = SpanHessian(intercept)
            begin = span.evaluated(SpanPoint(np.zeros(sum(WIDTHS)), 0.0, np.zeros(N)))
            here = span.refreshed(begin, hessian)
            there = span.advance(here, step)
            found.append(
                (
                    hessian.matrix,
                    here.slope,
                    there.slope,
                    there.value,
                    span.combined(step[-5:].sum() * np.ones(sum(WIDTHS))),
                )
            )
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-10)  # sums over 2,500 rows in two orders


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "squared_hinge", "poisson"])
def test_one_round_and_its_proof(loss: str, intercept: bool) -> None:
    given = problem(loss, fit_intercept=intercept)
    solver = Solver(given, SolverOptions(gap=1e-6))
    assert isinstance(solver.method, StackedSubspaceMethod)
    second = solver.round()
    assert second.gap <= 1e-6
    assert len(solver.coordinator.owner) == len(WIDTHS)
    assert not len(solver.coordinator.messages)  # nobody needs them
    told = [party.final_weights(solver.coordinator.coefficients(m)) for m, party in enumerate(solver.parties)]
    for own, weights in zip(solver.method.weights(), told, strict=True):
        np.testing.assert_array_equal(own, weights)
    exact = solve(given, SolverOptions(gap=1e-10, directions="one"))
    assert -1e-9 * exact.objective <= second.objective - exact.objective <= 1e-6 * exact.objective


def test_what_parties_are_told_is_what_they_would_find() -> None:
    given = problem()
    solver = Solver(given, SolverOptions(gap=1e-6))
    solver.round()
    gradient = np.random.default_rng(0).normal(size=N)
    asked = [(gradient.copy(), solver.coordinator.coefficients(m)) for m in range(len(WIDTHS))]
    found = [party.squared_residual(*own) for party, own in zip(solver.parties, asked)]
    rows = side_by_side(given.blocks, solver.engine)
    solver.method.know(gradient, rows.transposed_product(gradient, solver.engine))
    for party, (_, own), squared in zip(solver.parties, asked, found):
        again = party.squared_residual(gradient, own)
        assert again["squared_residual"] == pytest.approx(squared["squared_residual"], rel=1e-12)


CASES = [
    ("l1", {}),
    ("elastic_net", {}),
    ("l1", {"constraint": "nonnegative"}),
    ("l2", {"constraint": "box:-0.2,0.3"}),
]


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("regularizer", "more"), CASES, ids=str)
@pytest.mark.parametrize("loss", ["logistic", "squared", "poisson"])
def test_kinks_and_bounds(loss: str, regularizer: str, more: dict, intercept: bool) -> None:
    given = problem(loss, regularizer, lam=2e-3, fit_intercept=intercept, **more)
    assert isinstance(method_of(given), StackedProximalMethod)
    result, exact = solve(given, SolverOptions(gap=1e-7)), solve(given, SolverOptions(gap=1e-9, history=20))
    assert result.certified
    assert len(result.history) <= 6
    assert -1e-9 * exact.objective <= result.objective - exact.objective <= 1e-7 * exact.objective
    for x, own in zip(result.weights, given.party_constraints, strict=True):
        assert (x >= own.bounds[0]).all()
        assert (x <= own.bounds[1]).all()
    if regularizer == "l1":
        assert 5 <= (np.concatenate(result.weights) == 0.0).sum() < sum(WIDTHS)


@pytest.mark.parametrize("regularizer", ["l2", "l1"])
def test_the_same_bits_for_any_number_of_threads(regularizer: str) -> None:
    given = problem(regularizer=regularizer)
    one, two = (solve(given, SolverOptions(n_threads=k)) for k in (1, 2))
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("regularizer", ["l2", "l1"])
def test_given_weights_are_the_beginning(regularizer: str) -> None:
    near = solve(problem(regularizer=regularizer, lam=2e-4), SolverOptions(gap=1e-6))
    start = StartingPoint(near.weights, near.intercept)
    solver = Solver(problem(regularizer=regularizer), SolverOptions(gap=1e-6), start=start)
    assert solver.method.name == ("subspace" if regularizer == "l2" else "proximal")
    solver.prepare()
    for found, given in zip(solver.party_weights(), near.weights, strict=True):
        np.testing.assert_allclose(found, given, rtol=1e-15)  # a length times a direction
    records = [solver.round() for _ in range(3)]
    assert records[0].objective <= near.objective
    assert min(record.gap for record in records) <= 1e-6


@pytest.mark.parametrize("rounds", [1, 2, 4])
@pytest.mark.parametrize("regularizer", ["l2", "l1"])
def test_a_run_goes_on_to_the_same_bits(regularizer: str, rounds: int) -> None:
    options, given = SolverOptions(gap=0.0), problem(regularizer=regularizer)
    assert_resumed_is_the_same(given, options, rounds)


@pytest.mark.parametrize("regularizer", ["l2", "l1"])
def test_where_nothing_is_gained_directions_follow(regularizer: str) -> None:
    given = problem(regularizer=regularizer)
    solver = Solver(given, SolverOptions(gap=1e-9))
    solver.round()
    if regularizer == "l2":
        solver.method.leave()
    else:
        solver.method.whole = False
    while solver.round().gap > 1e-9:
        assert solver.n_rounds < 80
    exact = solve(given, SolverOptions(gap=1e-10))
    assert solver.last_record is not None
    assert solver.last_record.objective == pytest.approx(exact.objective, rel=1e-9)


def test_an_endless_run_ends_at_rounding() -> None:
    solver = Solver(problem(), SolverOptions(gap=0.0))
    gaps = [solver.round().gap for _ in range(6)]
    assert not solver.method.rows.how
    assert min(gaps) <= 1e-12


def test_what_goes_by_directions() -> None:
    assert not isinstance(method_of(problem(), directions="one"), StackedSubspaceMethod)
    assert not isinstance(method_of(problem(), history=10), StackedSubspaceMethod)
    assert not isinstance(method_of(problem(regularizer="l1"), history=10), StackedProximalMethod)
    assert not isinstance(method_of(problem(regularizer="group_lasso")), StackedProximalMethod)
    stopped = Solver(problem(), SolverOptions(gap=1e-6))
    stopped.method.keep_to_directions()
    assert stopped.round().gap > 1e-6
    assert stopped.round().gap > 1e-6


def test_what_is_least_work() -> None:
    assert stacked_rows_pay(32_561, [66, 57], [0.12, 0.1], 196.0, 32, quadratic=False) == "gram"
    # Dense columns cost less than as many sparse entries, and fewer are copied.
    assert stacked_rows_pay(20_000, [200, 20_000], [1.0, 0.0015], 9e2, 32, quadratic=False) == "products"
    assert stacked_rows_pay(20_000, [9_000, 11_200], [0.011, 0.012], 5.3e4, 32, quadratic=False) == ""
    assert stacked_rows_pay(20_000, [350, 350], [0.03, 0.03], 441.0, 32, quadratic=False) == "products"
    assert stacked_rows_pay(25_000, [40_000, 40_000], [0.0017, 0.0017], 2e4, 32, quadratic=False) == ""
    # Of long rows rounds by directions read an entry in less time.
    assert stacked_rows_pay(6_000, [2_000, 2_000, 1_000], [0.21] * 3, 1.1e6, 32, quadratic=False) == ""
    assert stacked_rows_pay(3_725, [1_370] * 4, [0.022] * 4, 1.5e4, 32, quadratic=False) == "products"
    assert stacked_rows_pay(20_000, [350, 350], [0.03, 0.03], 441.0, 64, False, FACES) == "coordinates"
    assert (
        stacked_rows_pay(25_000, [40_000, 40_000], [0.0017, 0.0017], 2e4, 64, False, FACES) == "coordinates"
    )
    assert stacked_rows_pay(10**8, [50_000], [0.001], 2500.0, 64, False, FACES) == ""  # memory


WIDE = (700, 400, 3)


def wide(loss: str = "logistic", regularizer: str = "l2", lam: float = 1e-4, **more: Any) -> Problem:
    """More columns than a Gram matrix is worth; some are empty, and one is constant."""
    rng = np.random.default_rng(8)
    blocks: list[Any] = [sp.random_array((N, d), density=0.008, rng=rng, format="csr") for d in WIDE[:2]]
    blocks.append(np.column_stack([rng.normal(size=N), np.ones(N), np.zeros(N)]))
    z = 3.0 * sum(block @ rng.normal(size=block.shape[1]) for block in blocks) + rng.logistic(size=N)
    y = z if loss in ("squared", "huber") else (z > 0) * 1.0
    y = rng.poisson(np.exp(np.clip(0.3 * z, -3.0, 3.0))) * 1.0 if loss == "poisson" else y
    return make_problem(blocks, y, loss=loss, regularizer=regularizer, lam=lam, **more)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "squared_hinge", "poisson"])
def test_products_with_the_hessian(loss: str, intercept: bool) -> None:
    given = wide(loss, fit_intercept=intercept)
    solver = Solver(given, SolverOptions(gap=1e-6))
    assert solver.method.rows.how == "products"
    records = [solver.round() for _ in range(3)]
    assert min(record.gap for record in records) <= 1e-6
    exact = solve(given, SolverOptions(gap=1e-9, directions="one"))
    assert -1e-9 * exact.objective <= records[-1].objective - exact.objective <= 1e-6 * exact.objective


@pytest.mark.parametrize("intercept", [False, True])
def test_a_hessian_by_products_is_that_of_the_loss(intercept: bool) -> None:
    given, rng = wide(fit_intercept=intercept), np.random.default_rng(1)
    with Engine(1) as engine:
        span = StackedSpan(given, side_by_side(given.blocks, engine), engine)
        d = span.n_messages
        point = span.evaluated(SpanPoint(c := rng.normal(size=d), 0.2 * intercept, span.combined(c)))
        found = span.hessian_at(point)
        dense, h = span.rows.to_scipy().toarray(), span.curvature(point)
        columns = np.column_stack([np.ones((N, int(intercept))), dense])
        ridge = np.append(np.zeros(int(intercept)), np.full(d, given.regularization))
        whole = columns.T @ (h[:, np.newaxis] * columns) + np.diag(ridge)
        own = whole
        if intercept:  # eliminated: the Schur complement of its diagonal entry
            own = whole[1:, 1:] - np.outer(whole[1:, 0], whole[0, 1:]) / whole[0, 0]
        v, slope = rng.normal(size=d), rng.normal(size=d + intercept)
        np.testing.assert_allclose(found.product(v), own @ v, rtol=1e-9, atol=1e-9)
        mean = h.sum() * (dense**2).mean(axis=0)
        mean -= (whole[1:, 0] ** 2 / whole[0, 0]) if intercept else 0.0
        # Of a constant column a trillionth is kept, whose products are in the thousands.
        np.testing.assert_allclose(found.sizes, mean + given.regularization, rtol=1e-9, atol=1e-8)
        step = np.linalg.solve(own, -found.without_intercept(slope))
        np.testing.assert_allclose(
            found.with_intercept(step, slope), np.linalg.solve(whole, -slope), rtol=1e-6, atol=1e-9
        )


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("regularizer", "more"), CASES, ids=str)
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "poisson"])
def test_coordinates_descend(loss: str, regularizer: str, more: dict, intercept: bool) -> None:
    given = wide(loss, regularizer, lam=1e-3, fit_intercept=intercept, **more)
    assert method_of(given).way == "coordinates"
    result = solve(given, SolverOptions(gap=1e-7))
    assert result.certified
    assert len(result.history) <= 8
    x, penalties = np.concatenate(result.weights), given.party_constraints
    for own, weights in zip(penalties, result.weights, strict=True):
        assert (weights >= own.bounds[0]).all()
        assert (weights <= own.bounds[1]).all()
    if regularizer == "l1":
        assert 5 <= (x != 0.0).sum() <= 1050
    assert not x[-1]  # an empty column's
    other = solve(given, SolverOptions(gap=1e-6, history=30))
    assert -1e-7 * other.objective <= result.objective - other.objective + 2e-6 * other.objective
    assert result.objective <= other.objective * (1.0 + 1e-7)


@pytest.mark.parametrize("regularizer", ["l2", "l1"])
def test_wide_problems_keep_bits_and_go_on(regularizer: str) -> None:
    given = wide(regularizer=regularizer, lam=1e-4)
    one, two = (solve(given, SolverOptions(n_threads=k)) for k in (1, 2))
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert_resumed_is_the_same(given, SolverOptions(gap=0.0), rounds=2)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_passes_over_columns_are_coordinate_descent(intercept: bool, compressed: bool) -> None:
    """The kernels beside dense arithmetic: one pass over all columns in the order that it took."""
    from fastadmm.kernels import coordinate_descent as kernels

    rng, n, d = np.random.default_rng(2), 60, 9
    dense = np.where(rng.random((n, d)) < 0.4, rng.normal(size=(n, d)), 0.0)
    dense[:, -1] = 0.0
    matrix, h, slope = sp.csc_array(dense), rng.random(n), rng.normal(size=d)
    arrays = matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint16), matrix.data
    if not compressed:
        arrays = np.arange(d + 1) * n, np.empty(0, np.uint16), dense.T.copy().ravel()
    out, products, v, lengths = np.zeros(n), np.empty(d), rng.normal(size=n), np.empty(d)
    kernels.add_columns(*arrays, slope, out)
    kernels.column_products(*arrays, v, products, 0, d)
    kernels.column_squares(arrays[0], arrays[2], lengths, 0, d)
    np.testing.assert_allclose(out, dense @ slope, rtol=1e-12)
    np.testing.assert_allclose(products, dense.T @ v, rtol=1e-12)
    np.testing.assert_allclose(lengths, (dense**2).sum(axis=0), rtol=1e-12)
    root, scaled, squares, cross = np.sqrt(h), np.empty(len(arrays[2])), np.empty(d), np.empty(d)
    kernels.scale_columns(*arrays, root, np.arange(d), scaled, squares, cross, 0, d)
    a = root[:, np.newaxis] * dense
    np.testing.assert_allclose(squares, (a**2).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(cross, a.T @ root, rtol=1e-12)
    whole, first = (float(h.sum()), 0.7) if intercept else (0.0, 0.0)
    low, high, begin = -0.4, np.inf, np.clip(rng.normal(size=d), -0.4, None)
    x, chosen, image, moved = begin.copy(), np.arange(d), np.zeros(n), np.zeros(3)
    with np.errstate(over="ignore"):  # what the generator is made of, where it is not compiled
        kernels.shuffle_columns(chosen)
    assert sorted(chosen) == list(range(d))
    assert list(chosen) != list(range(d))
    given = (*arrays[:2], scaled), (squares, cross), (whole, first), slope, (0.3, 0.1, low, high)
    order = chosen.copy()
    assert kernels.descend_columns(*given, chosen, np.inf, x, image, moved) == d
    np.testing.assert_array_equal(chosen, order)  # none is left out of the next pass
    outer = np.outer(cross, cross) / whole if intercept else 0.0
    hessian, s = a.T @ a - outer, slope - (cross * first / whole if intercept else 0.0)
    y = begin.copy()
    for j in order:
        pull = hessian[j, j] * y[j] - s[j] - hessian[j] @ (y - begin)
        y[j] = np.clip(np.sign(pull) * max(abs(pull) - 0.3, 0.0) / (hessian[j, j] + 0.1), -0.4, np.inf)
    curvature = np.diag(hessian) + 0.1
    np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(image, a @ (y - begin), rtol=1e-9, atol=1e-12)
    steps = np.abs(y - begin)
    expected = [(steps * np.sqrt(curvature)).max(), (steps * curvature).max(), cross @ (y - begin)]
    np.testing.assert_allclose(moved, expected, rtol=1e-9)
    # Until nothing moves: the optimality conditions of every column, also of those that were left out.
    for _ in range(2000):
        chosen = chosen[: kernels.descend_columns(*given, chosen, moved[1], x, image, moved)]
    at = s + hessian @ (x - begin) + 0.1 * x
    assert (np.abs(at[x == 0.0]) <= 0.3 + 1e-9).all()
    free = (x != 0.0) & (x > -0.4)
    np.testing.assert_allclose(at[free], -0.3 * np.sign(x[free]), atol=1e-9)
    assert (at[x == -0.4] >= 0.3 - 1e-9).all()


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("make", "how"), [(problem, "gram"), (wide, "products")])
@pytest.mark.parametrize("loss", ["hinge", "quantile"])
def test_losses_with_kinks(loss: str, make: Any, how: str, intercept: bool) -> None:
    given = make("squared" if loss == "quantile" else "logistic", lam=1e-3)
    given = make_problem(given.blocks, given.y, loss=loss, lam=1e-3, fit_intercept=intercept)
    solver = Solver(given, SolverOptions(gap=1e-6))
    assert isinstance(solver.method, StackedSmoothedMethod)
    assert solver.method.rows.how == how
    result = solve(given, SolverOptions(gap=1e-6))
    assert result.certified
    assert len(result.history) <= 6
    exact = solve(given, SolverOptions(gap=1e-7, directions="one", max_rounds=400))
    assert -2e-7 * exact.objective <= result.objective - exact.objective <= 1e-6 * exact.objective
    assert_resumed_is_the_same(given, SolverOptions(gap=0.0), rounds=1, after=2)


def test_files_are_not_read_side_by_side(tmp_path: Any) -> None:
    class Elsewhere(CSRBlock):
        in_memory = False

    block = Elsewhere(matrices()[0])
    assert not can_stand_side_by_side([block])
