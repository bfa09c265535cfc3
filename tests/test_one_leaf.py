"""Newton's steps of few rows in one compiled call, against the same steps one by one."""

import numpy as np
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.engine.tree import LEAF_ROWS
from fastadmm.method import span as span_module
from fastadmm.method.one_leaf import is_one_leaf
from fastadmm.method.span import Span, SpanPoint, minimise_over_span
from fastadmm.method.span_hessian import SpanHessian
from fastadmm.problem.problem import make_problem

N = 60


def build(loss, intercept, n_messages, seed):
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(n_messages, N)) * 0.5
    z = rng.normal(size=n_messages) @ V + rng.normal(size=N)
    y = {"poisson": np.floor(np.exp(np.clip(z, None, 3.0))), "huber": z}.get(loss, (z > 0.0).astype(float))
    given = {"sample_weight": rng.uniform(0.2, 3.0, N), "offset": 0.3 * rng.normal(size=N)}
    problem = make_problem([V.T], y, loss=loss, lam=1e-3, fit_intercept=intercept, **given)
    begin = rng.normal(size=n_messages)
    return problem, V, SpanPoint(begin, 0.2 if intercept else 0.0, begin @ V)


@pytest.mark.representatives(6)
@pytest.mark.parametrize(("n_messages", "tilted"), [(1, True), (4, False), (24, True)])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "squared_hinge", "poisson"])
def test_one_leaf_takes_the_same_steps(loss, intercept, n_messages, tilted):
    problem, V, begin = build(loss, intercept, n_messages, 0)
    tilt = 0.1 * np.random.default_rng(0).normal(size=n_messages) if tilted else None
    with Engine(1) as engine:
        assert is_one_leaf(problem, engine)
        for tolerance in (1e-2, 1e-9):
            hessians, found = (SpanHessian(intercept), SpanHessian(intercept)), []
            for minimise, hessian in zip((minimise_over_span, one_by_one), hessians):
                few = minimise(problem, V[: n_messages // 2 + 1], half(begin, V), tolerance, engine, hessian)
                grown = np.append(few.coefficients, np.zeros(n_messages - len(few.coefficients)))
                start = SpanPoint(grown, few.intercept, few.total, few.loss, few.gradient, few.sums)
                found.append(minimise(problem, V, start, tolerance, engine, hessian, tilt))
            one, other = found
            assert one.loss == pytest.approx(other.loss, rel=1e-9)
            assert one.sums == pytest.approx(other.sums, rel=1e-6, abs=1e-8)
            for name in ("coefficients", "total", "gradient"):
                np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-6, atol=1e-8)
            np.testing.assert_allclose(hessians[0].matrix, hessians[1].matrix, rtol=1e-6, atol=1e-8)


def half(point, V):
    """A start among the first half of the messages."""
    own = point.coefficients[: len(V) // 2 + 1]
    return SpanPoint(own, point.intercept, own @ V[: len(own)])


def one_by_one(problem, messages, point, tolerance, engine, hessian, tilt=None):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_module, "is_one_leaf", lambda *_: False)
        return minimise_over_span(problem, messages, point, tolerance, engine, hessian, tilt)


def test_one_leaf_leaves_steps_that_are_too_long_to_a_search(monkeypatch):
    """Where a loss is nearly flat Newton's step of the very point is far too long."""
    problem, V, begin = build("logistic", False, 3, 0)
    begin.coefficients[:] = 10.0, -20.0, 15.0
    begin.total, calls, search = begin.coefficients @ V, [], Span.best_length

    def counted(self, *arguments):
        calls.append(1)
        return search(self, *arguments)

    monkeypatch.setattr(Span, "best_length", counted)
    with Engine(1) as engine:
        one = minimise_over_span(problem, V, begin, 1e-10, engine)
        assert calls
        other = one_by_one(problem, V, begin, 1e-10, engine, SpanHessian(False))
    np.testing.assert_allclose(one.coefficients, other.coefficients, atol=1e-7)


def test_one_leaf_is_chosen_by_the_rows_of_all(monkeypatch):
    problem, V, begin = build("logistic", True, 3, 0)
    with Engine(1) as engine:
        monkeypatch.setattr(Engine, "all_rows", lambda self, n: 2 * LEAF_ROWS - 1)
        assert is_one_leaf(problem, engine)
        monkeypatch.setattr(Engine, "all_rows", lambda self, n: 2 * LEAF_ROWS)
        assert not is_one_leaf(problem, engine)
        monkeypatch.setattr(span_module, "newton_on_one_leaf", None)
        minimise_over_span(problem, V, begin, 1e-6, engine)
