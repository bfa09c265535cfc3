"""Warm starts: every method begins at given weights and certifies the same optimum."""

import numpy as np
import pytest
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.errors import InputError
from fastadmm.solver.warm_start import StartingPoint

RNG = np.random.default_rng(5)
BLOCKS = [RNG.normal(size=(160, 4)), RNG.normal(size=(160, 5))]
SCORE = 2 * BLOCKS[0][:, 0] - BLOCKS[1][:, 1] + RNG.normal(size=160)
TARGETS = {
    "logistic": (SCORE > 0).astype(float),
    "hinge": (SCORE > 0).astype(float),
    "sigmoid": (SCORE > 0).astype(float),
    "multinomial": np.digitize(SCORE, [-1.0, 1.0]).astype(float),
}


def problem(loss, lam, **more):
    return make_problem(BLOCKS, TARGETS.get(loss, SCORE), loss=loss, lam=lam, **more)


@pytest.mark.representatives(8)
@pytest.mark.parametrize(
    ("loss", "regularizer", "constraint", "scheme"),
    [
        ("logistic", "l2", None, "auto"),
        ("logistic", "l2", None, "sharing"),
        ("squared", "l1", None, "auto"),
        ("squared", "l1", None, "sharing"),
        ("logistic", "elastic_net", None, "auto"),
        ("logistic", "group_lasso", None, "auto"),
        ("logistic", "l2", "nonnegative", "auto"),
        ("squared", "l2", "ball:0.5", "auto"),
        ("huber", "l2", None, "auto"),
        ("multinomial", "l2", None, "auto"),
        ("multinomial", "l2", None, "sharing"),
    ],
)
def test_the_optimum_is_recognised(loss, regularizer, constraint, scheme):
    """At the optimum the first certificate is far better than from zero; near it the optimum is the same."""
    more = {"regularizer": regularizer, "constraint": constraint, "fit_intercept": scheme == "auto"}
    options = SolverOptions(gap=1e-8, scheme=scheme)
    cold = solve(problem(loss, 8e-3, **more), options)
    there = StartingPoint(cold.weights, cold.intercept)
    again = solve(problem(loss, 8e-3, **more), options, start=there)
    assert again.status == "converged"
    assert len(again.history) <= len(cold.history)
    assert again.history[0].gap <= max(1e-2 * cold.history[0].gap, 1e-8)  # one round may be all
    near = solve(problem(loss, 1e-2, **more), options, start=there)
    reference = solve(problem(loss, 1e-2, **more), options)
    assert near.status == "converged"
    assert abs(near.objective - reference.objective) <= 2e-8 * reference.objective


@pytest.mark.parametrize(("loss", "regularizer"), [("hinge", "l2"), ("quantile", "l2")])
def test_losses_with_kinks(loss, regularizer):
    options = SolverOptions(gap=1e-5)
    cold = solve(problem(loss, 1e-2, regularizer=regularizer), options)
    warm = solve(
        problem(loss, 9e-3, regularizer=regularizer),
        options,
        start=StartingPoint(cold.weights, cold.intercept),
    )
    reference = solve(problem(loss, 9e-3, regularizer=regularizer), options)
    assert warm.status == "converged"
    assert abs(warm.objective - reference.objective) <= 2e-5 * reference.objective


@pytest.mark.parametrize(
    ("scheme", "regularizer"), [("auto", "l2"), ("sharing", "l2"), ("auto", "log_sum:0.2")]
)
def test_a_problem_without_convexity_stays_at_its_stationary_point(scheme, regularizer):
    options = SolverOptions(stationarity=1e-5, scheme=scheme)
    cold = solve(problem("sigmoid", 1e-2, regularizer=regularizer), options)
    again = solve(
        problem("sigmoid", 1e-2, regularizer=regularizer),
        options,
        start=StartingPoint(cold.weights, cold.intercept),
    )
    assert again.status == "stationary"
    assert len(again.history) <= 2
    assert again.objective <= cold.objective * (1 + 1e-9)


def test_starts_outside_the_set_or_with_an_intercept():
    start = StartingPoint([np.full(4, -3.0), np.full(5, 2.0)])
    result = solve(problem("logistic", 1e-2, constraint="box:-1,1"), SolverOptions(gap=1e-8), start=start)
    cold = solve(problem("logistic", 1e-2, constraint="box:-1,1"), SolverOptions(gap=1e-8))
    assert abs(result.objective - cold.objective) <= 2e-8 * cold.objective
    assert all(np.abs(x).max() <= 1.0 for x in result.weights)
    # A start with intercept is refused where none is fitted.
    with pytest.raises(InputError, match="has an intercept, but none is fitted"):
        solve(
            problem("logistic", 1e-2, fit_intercept=False),
            start=StartingPoint([np.zeros(4), np.zeros(5)], 1.0),
        )


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (StartingPoint([np.zeros(4)]), r"shapes \[\(4,\), \(\)\], expected \[\(4,\), \(5,\), \(\)\]"),
        (StartingPoint([np.zeros(4), np.zeros(4)]), r"\(4,\), \(4,\), \(\)\], expected"),
        (StartingPoint([np.zeros(4), np.full(5, np.nan)]), "is not finite"),
        (StartingPoint([np.zeros(4), np.zeros(5)], np.inf), "is not finite"),
        (StartingPoint([np.zeros(4), np.zeros(5)], np.zeros(2)), r"\(5,\), \(2,\)\], expected"),
    ],
)
def test_a_start_of_another_problem_is_refused(start, message):
    with pytest.raises(InputError, match=message):
        solve(problem("logistic", 1e-2), start=start)
