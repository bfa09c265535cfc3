"""Dense columns are read where they are where parties are in this process, from where samples lead on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.blocks.block import DenseBlock, as_block
from fastadmm.blocks.side_by_side import Beside, side_by_side
from fastadmm.cluster.rows import solve_rows
from fastadmm.coordinator.subspace.row_samples import chosen_rows, strides
from fastadmm.coordinator.subspace.span import Span, SpanPoint
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.coordinator.subspace.stacked import StackedSubspaceMethod
from fastadmm.coordinator.subspace.stacked_span import StackedSpan
from fastadmm.coordinator.subspace.whole_span import dense_rows_pay
from fastadmm.engine.engine import Engine
from fastadmm.kernels.beside import (
    beside_blocks,
    beside_gram,
    beside_product,
    beside_rows,
    beside_transposed,
)
from fastadmm.kernels.blas import routine
from fastadmm.problem.problem import Problem
from fastadmm.solver import solver as solver_module
from fastadmm.solver.solver import Solver

import naive
from resumed import assert_resumed_is_the_same
from workers import on_workers

N, WIDTHS = 9000, (9, 3, 8)


def problem(loss: str = "logistic", lam: float = 1e-4, n: int = N, **more: Any) -> Problem:
    rng = np.random.default_rng(3)
    sizes = np.exp(rng.normal(size=sum(WIDTHS)))
    X = (rng.normal(size=(n, sum(WIDTHS))) + rng.normal(size=(n, 1))) * sizes
    z = X @ (rng.normal(size=X.shape[1]) / sizes) * 0.5 + rng.logistic(size=n)
    y = z if loss in ("squared", "huber") else (z > 0) * 1.0
    y = rng.poisson(np.exp(np.clip(0.3 * z, -3.0, 3.0))) * 1.0 if loss == "poisson" else y
    blocks = [np.ascontiguousarray(part) for part in np.split(X, np.cumsum(WIDTHS)[:-1], axis=1)]
    return make_problem(blocks, y, loss=loss, lam=lam, **more)


@pytest.mark.parametrize("widths", [(1,), (9, 3, 8), (16, 0, 40, 5, 2)])
def test_kernels(widths: tuple[int, ...]) -> None:
    rng, n = np.random.default_rng(0), 2100
    whole, v = rng.normal(size=(n, sum(widths))), rng.normal(size=n)
    parts = np.split(whole, np.cumsum(widths)[:-1], axis=1)
    matrices = Beside([np.ascontiguousarray(part) for part in parts]).matrices
    start, stop, x = 700, n - 3, rng.normal(size=sum(widths))
    product, images = np.full(n, np.nan), np.ones(sum(widths))
    beside_product(matrices, x, product, start, stop)
    beside_transposed(matrices, v, images, start, stop)
    gram = np.ones((len(x), len(x)))
    beside_gram(matrices, 0, v * v, 64, routine("dsyrk"), gram, start, stop)
    led = np.ones((1 + len(x), 1 + len(x)))
    beside_gram(matrices, 1, v * v, 64, routine("dsyrk"), led, start, stop)
    own = whole[start:stop]
    np.testing.assert_allclose(product[start:stop], own @ x, rtol=0, atol=1e-12)
    assert np.isnan(product[:start]).all()
    np.testing.assert_allclose(images, 1.0 + own.T @ v[start:stop], rtol=0, atol=1e-11)
    expected = 1.0 + naive.gram(own, v[start:stop] ** 2)
    np.testing.assert_allclose(np.triu(gram), np.triu(expected), rtol=0, atol=1e-10)
    with_ones = np.hstack([np.ones((len(own), 1)), own])
    expected = 1.0 + naive.gram(with_ones, v[start:stop] ** 2)
    np.testing.assert_allclose(np.triu(led), np.triu(expected), rtol=0, atol=1e-10)
    numbers, chosen = np.sort(rng.choice(n, size=90, replace=False)), np.full((90, sum(widths)), np.nan)
    beside_rows(matrices, numbers, chosen, 20, 80)
    np.testing.assert_array_equal(chosen[20:80], whole[numbers[20:80]])
    assert np.isnan(chosen[:20]).all()
    assert np.isnan(chosen[80:]).all()
    blocks = beside_blocks(len(x), start, stop)
    assert [rows for block in blocks for rows in range(*block)] == list(range(start, stop))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "squared_hinge", "poisson"])
def test_passes_are_those_over_messages(loss: str, intercept: bool) -> None:
    given, rng = problem(loss, fit_intercept=intercept), np.random.default_rng(0)
    with Engine(2) as engine:
        rows = side_by_side(given.blocks, engine)
        assert isinstance(rows, Beside)
        messages = np.hstack([block.matrix for block in given.blocks]).T.copy()  # type: ignore[attr-defined]
        spans = Span(given, messages, engine), StackedSpan(given, rows, engine)
        step, found = 0.1 * rng.normal(size=sum(WIDTHS) + intercept), []
        for span in spans:
            hessian = SpanHessian(intercept)
            begin = span.evaluated(SpanPoint(np.zeros(sum(WIDTHS)), 0.0, np.zeros(N)))
            here = span.refreshed(begin, hessian)
            there = span.advance(here, step)
            found.append((hessian.matrix, here.slope, there.slope, there.value, there.point.total))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-9 * np.abs(a).max())  # sums in two orders


def test_samples_have_one_row_of_every_few() -> None:
    assert strides(100_000, 20, quadratic=False) == [97, 12]
    assert strides(100_000, 20, quadratic=True) == []
    assert strides(20_000, 100, quadratic=False) == []
    with Engine(1) as engine:
        rows, parts = chosen_rows(100_000, 12, engine), []
        for engine.first_row, stop in ((0, 31_111), (31_111, 31_115), (31_115, 100_000)):
            parts.append(chosen_rows(stop - engine.first_row, 12, engine) + engine.first_row)
    assert len(rows) == pytest.approx(100_000 / 12, abs=1)
    np.testing.assert_array_equal(rows // 12, np.arange(len(rows)))
    counts = np.bincount(rows % 12)
    assert counts.min() > 0.8 * counts.mean()  # a table with a period of twelve is seen as it is
    # Whoever holds some of the rows chooses the same.
    np.testing.assert_array_equal(np.concatenate(parts), rows)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "squared_hinge", "poisson"])
def test_one_round_proves_its_end(loss: str, intercept: bool) -> None:
    rng = np.random.default_rng(0)
    more = {"sample_weight": rng.random(N) + 0.5, "offset": 0.3 * rng.normal(size=N)}
    given = problem(loss, fit_intercept=intercept, **more)
    solver = Solver(given, SolverOptions(gap=1e-6))
    assert isinstance(solver.method, StackedSubspaceMethod)
    assert solver.round().gap <= 1e-6
    exact = solve(given, SolverOptions(gap=1e-10, directions="one"))
    assert solver.last_record is not None
    assert -1e-9 <= solver.last_record.objective / exact.objective - 1.0 <= 1e-6


def test_the_last_pass_is_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    given, asked, proofs = problem(fit_intercept=False), [], []
    solver = Solver(given, SolverOptions(gap=1e-6))
    real, real_prove = DenseBlock.transposed_products, solver_module.prove

    def counted(block: DenseBlock, vectors: Any, engine: Any) -> Any:
        asked.append(block)
        return real(block, vectors, engine)

    def counted_proof(*arguments: Any) -> Any:
        proofs.append(len(asked))
        return real_prove(*arguments)

    monkeypatch.setattr(DenseBlock, "transposed_products", counted)
    monkeypatch.setattr(solver_module, "prove", counted_proof)
    record = solver.round()
    assert proofs == [0]  # which makes the only other one
    assert len(asked) == len(given.blocks)
    g, lam = solver.coordinator.primal.gradient, given.regularization
    pairs = zip(given.blocks, solver.party_weights(), strict=True)
    squared = sum(
        float(np.sum((block.matrix.T @ g + lam * w) ** 2))  # type: ignore[attr-defined]
        for block, w in pairs
    )
    # Of sums of 9,000 terms that cancel to a hundred thousandth.
    assert record.gap_absolute == pytest.approx(squared / (2.0 * lam * given.total_weight), rel=1e-3)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_bits_do_not_depend_on_threads_and_workers(loss: str) -> None:
    given = problem(loss, n=20_000)
    one, two = (solve(given, SolverOptions(gap=1e-6, n_threads=k)) for k in (1, 2))
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    for size in (2, 3):
        for found in on_workers(size, lambda comm: solve_rows(given, comm, SolverOptions(gap=1e-6))):
            for a, b in zip(one.weights, found.weights, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("rounds", [1, 2, 4])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_run_goes_on_to_the_same_bits(intercept: bool, rounds: int) -> None:
    options, given = SolverOptions(gap=0.0), problem(fit_intercept=intercept)
    assert_resumed_is_the_same(given, options, rounds)


def test_rows_in_the_order_of_their_labels() -> None:
    given = problem(n=20_000)
    order = np.argsort(given.y, kind="stable")
    blocks = [block.matrix[order] for block in given.blocks]  # type: ignore[attr-defined]
    ordered = make_problem(blocks, given.y[order], lam=1e-4)
    found, other = (solve(one, SolverOptions(gap=1e-7)) for one in (given, ordered))
    assert found.certified
    assert other.certified
    assert found.objective == pytest.approx(other.objective, rel=2e-7)


def test_columns_that_nearly_cancel() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(N, 20)) + 1e6 * rng.normal(size=(N, 1))
    y = (X[:, 0] - X[:, 1] + rng.logistic(size=N) > 0) * 1.0
    blocks = [as_block(X[:, :10].copy()), as_block(X[:, 10:].copy())]
    result = solve(make_problem(blocks, y, lam=1e-4), SolverOptions(gap=1e-6))
    assert result.certified
    z = sum(b.matrix @ w for b, w in zip(blocks, result.weights)) + result.intercept  # type: ignore[attr-defined]
    value = np.mean(np.logaddexp(0.0, z) - y * z) + 0.5e-4 * sum(float(w @ w) for w in result.weights)
    assert value == pytest.approx(result.objective, rel=1e-6)


def test_what_is_least_work() -> None:
    assert dense_rows_pay(200_000, [10] * 4, 64, quadratic=False)
    assert dense_rows_pay(10**7, [27] * 2, 64, quadratic=False) == "gram"  # else all columns are copied
    assert dense_rows_pay(20_640, [41] * 4, 64, quadratic=True)
    assert not dense_rows_pay(5000, [10] * 4, 64, quadratic=False)  # one leaf
    assert not dense_rows_pay(200_000, [3, 3], 64, quadratic=False)
    assert not dense_rows_pay(100_000, [2500, 2500], 64, quadratic=False)
