"""A run that ends without its proof returns the best model that it had."""

import copy
from typing import Any

import numpy as np
import pytest
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.solver.history import Status
from fastadmm.solver.loop import run_rounds
from fastadmm.solver.solver import Solver


def problem(loss="hinge", **more):
    rng = np.random.default_rng(3)
    blocks = [rng.normal(size=(60, d)) * 10.0 ** rng.uniform(-1.0, 1.0, d) for d in (6, 5, 7)]
    z = blocks[0] @ rng.normal(size=6) + blocks[2][:, 0] + 3.0 * rng.logistic(size=60)
    y = np.digitize(z, [-5.0, 5.0]) * 1.0 if loss == "multinomial" else (z > 0.0) * 1.0
    return make_problem(blocks, z if loss in ("squared", "quantile") else y, loss=loss, lam=1e-3, **more)


def objective(given, weights, intercept):
    """From the data alone."""
    z = sum(block.matrix @ x for block, x in zip(given.blocks, weights, strict=True)) + intercept
    z = np.ascontiguousarray(z.T).ravel()
    solver = Solver(given, SolverOptions(n_threads=1))
    loss = given.loss.evaluate(z, given.y, given.weight, np.empty_like(z), solver.engine)
    columns = [
        (r, x.T if x.ndim == 2 else [x]) for r, x in zip(given.party_regularizers, weights, strict=True)
    ]
    return loss / given.total_weight + given.lam * sum(r.value(x) for r, own in columns for x in own)


CASES: list[tuple[str, dict[str, Any], dict[str, Any], list[int]]] = [
    ("logistic", {}, {"scheme": "sharing", "penalty": 0.001}, [5, 6, 8]),
    ("hinge", {"regularizer": "l1"}, {"scheme": "sharing"}, [4, 6, 9]),
    ("quantile", {"regularizer": "group_lasso"}, {"history": 6}, [7, 8, 10, 17]),
    ("multinomial", {"regularizer": "l1"}, {"scheme": "sharing"}, [3, 4]),
    ("squared", {}, {"scheme": "gauss-seidel"}, [16, 17]),
]


@pytest.mark.parametrize(("loss", "more", "options", "ends"), CASES, ids=str)
def test_the_lowest_of_all_rounds_is_returned(loss, more, options, ends):
    given, lower = problem(loss, **more), 0
    for rounds in ends:
        result = solve(given, SolverOptions(gap=1e-12, max_rounds=rounds, n_threads=1, **options))
        assert result.status is Status.MAX_ROUNDS
        least = min(record.objective for record in result.history)
        assert result.objective <= least * (1.0 + 1e-12)  # of a round's model norms are bounded
        # What was proved later holds for it, too.
        assert result.gap <= min(record.gap for record in result.history) * (1.0 + 1e-9)
        assert objective(given, result.weights, result.intercept) == pytest.approx(result.objective, rel=1e-9)
        if result.kept is not None:
            lower += 1
            assert f"the model of round {result.kept.round} is kept" in result.message
    assert 0 < lower < len(ends)


def test_a_certified_run_returns_its_last_model():
    result = solve(problem(regularizer="l1"), SolverOptions(gap=1e-3, scheme="sharing", n_threads=1))
    assert result.status is Status.CONVERGED
    assert result.kept is None


@pytest.mark.parametrize("at", [3, 9])
def test_a_resumed_run_returns_the_same(at):
    options = SolverOptions(gap=1e-12, scheme="sharing", max_rounds=17, n_threads=1)
    whole = Solver(problem("logistic"), options)
    for _ in range(at):
        whole.round()
    saved = copy.deepcopy((whole.export(), whole.export_parties()))
    again = Solver(problem("logistic"), options)
    again.restore(*saved)
    one, two = run_rounds(whole), run_rounds(again)
    assert one.objective == two.objective
    assert (one.kept is None) == (two.kept is None)
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)
