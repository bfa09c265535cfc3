"""Newton's steps over dense columns of many rows in few compiled calls, against the same steps one by one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from fastadmm.blocks.side_by_side import Beside
from fastadmm.coordinator.subspace import many_leaves
from fastadmm.coordinator.subspace.span import SpanPoint, descend
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.coordinator.subspace.stacked_span import StackedSpan
from fastadmm.engine.engine import Engine
from fastadmm.engine.tree import LEAF_ROWS
from fastadmm.kernels.pieces import COMPILED
from fastadmm.problem.problem import Problem, make_problem

#: Four leaves; columns of two parties.
N, WIDTHS = 4 * LEAF_ROWS + 7, (9, 5)


def build(loss: str, intercept: bool, n: int = N) -> tuple[Problem, Beside]:
    rng = np.random.default_rng(5)
    blocks = [rng.normal(size=(n, d)) for d in WIDTHS]
    z = 0.5 * np.hstack(blocks) @ rng.normal(size=sum(WIDTHS)) + rng.normal(size=n)
    y = {"poisson": np.floor(np.exp(np.clip(z, None, 3.0))), "huber": z}.get(loss, (z > 0.0).astype(float))
    given: dict[str, Any] = {"sample_weight": rng.uniform(0.2, 3.0, n), "offset": 0.3 * rng.normal(size=n)}
    problem = make_problem(blocks, y, loss=loss, lam=1e-3, fit_intercept=intercept, **given)
    return problem, Beside(blocks)


def found(
    problem: Problem, rows: Beside, engine: Engine, one_by_one: bool = False, plainly: bool = False
) -> tuple[SpanPoint, SpanHessian]:
    """The minimiser from zero weights, in two calls of which the second goes on with the first's Hessian."""
    span, hessian = StackedSpan(problem, rows, engine), SpanHessian(problem.fit_intercept)
    span.side_by_side = not plainly
    engine.shares_rows = one_by_one  # as where rows are on several machines
    point = span.unmeasured(np.zeros(sum(WIDTHS)), 0.1 if problem.fit_intercept else 0.0)
    if plainly:
        point = span.at_weights(point.coefficients, point.intercept).point
    point = descend(span, point, 1.0, hessian)
    return descend(span, point, 1e-7, hessian), hessian


def same_bits(one: tuple[SpanPoint, SpanHessian], other: tuple[SpanPoint, SpanHessian]) -> None:
    for field in fields(SpanPoint):
        np.testing.assert_array_equal(getattr(one[0], field.name), getattr(other[0], field.name))
    np.testing.assert_array_equal(one[1].matrix, other[1].matrix)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "squared_hinge", "poisson"])
def test_steps_are_the_same_in_few_calls_and_one_by_one(loss, intercept, idle_machine):
    problem, rows = build(loss, intercept)
    with Engine(1) as engine:
        by_calls = found(problem, rows, engine)
        same_bits(by_calls, found(problem, rows, engine, one_by_one=True))
        plain = found(problem, rows, engine, plainly=True)
    with Engine(3) as engine:
        same_bits(by_calls, found(problem, rows, engine))
    assert by_calls[0].loss == pytest.approx(plain[0].loss, rel=1e-9)
    np.testing.assert_allclose(by_calls[0].coefficients, plain[0].coefficients, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(by_calls[0].products, rows.transposed_product(by_calls[0].gradient, Engine(1)))


def test_a_call_that_ends_early_is_gone_on_with(monkeypatch):
    problem, rows = build("logistic", True)
    with Engine(1) as engine:
        whole = found(problem, rows, engine)
        monkeypatch.setattr(many_leaves, "_ENTRIES_OF_CALL", 1)
        same_bits(whole, found(problem, rows, engine))


def test_gram_matrices_that_take_much_memory_are_the_engine_s(monkeypatch):
    problem, rows = build("logistic", True)
    with Engine(1) as engine:
        whole = found(problem, rows, engine)
        monkeypatch.setattr(Engine, "sums_fit", lambda *_: False)
        monkeypatch.setattr(Engine, "run_jobs", None)
        same_bits(whole, found(problem, rows, engine))


def test_steps_that_are_too_long_are_left_to_a_search(monkeypatch):
    """Where a loss is nearly flat Newton's step of the very point is far too long."""
    problem, rows = build("logistic", False)
    c, calls, search = 40.0 * np.random.default_rng(0).normal(size=sum(WIDTHS)), [], StackedSpan.best_length

    def counted(self, *arguments):
        calls.append(1)
        return search(self, *arguments)

    monkeypatch.setattr(StackedSpan, "best_length", counted)
    with Engine(1) as engine:
        best, _ = found(problem, rows, engine)
        span = StackedSpan(problem, rows, engine)
        point = descend(span, span.unmeasured(c, 0.0), 1e-7, SpanHessian(False))
    assert calls
    np.testing.assert_allclose(point.coefficients, best.coefficients, atol=1e-5)


def test_jobs_of_a_kernel_are_shared_where_pieces_have_addresses(monkeypatch):
    with Engine(1) as engine:
        monkeypatch.setattr(Engine, "_threads_for", lambda *_: 0)
        assert not engine.can_run_jobs(engine.leaves(N))
        monkeypatch.undo()
        engine.shares_rows = True
        assert not engine.can_run_jobs(engine.leaves(N))
        engine.shares_rows = False
        assert engine.can_run_jobs(engine.leaves(N)) == COMPILED
