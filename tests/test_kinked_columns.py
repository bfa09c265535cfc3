"""Kinks in the loss beside norms and bounds: an interior point method over all columns, pooled."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.blocks.block import DenseBlock
from fastadmm.engine.engine import Engine
from fastadmm.pooled.interior_point import find_saddle
from fastadmm.problem.penalty import PartyPenalty
from scipy.optimize import linprog

N, WIDTHS = 1500, (90, 70, 3)


def problem(loss="hinge", regularizer="l1", lam=2e-3, dense=False, **more):
    rng = np.random.default_rng(4)
    blocks: list[Any] = [sp.random_array((N, d), density=0.06, rng=rng, format="csr") for d in WIDTHS[:2]]
    blocks.append(np.column_stack([rng.normal(size=N), np.ones(N), np.zeros(N)]))
    z = 3.0 * sum(block @ rng.normal(size=block.shape[1]) for block in blocks) + rng.logistic(size=N)
    if dense:
        blocks = [block.toarray() if sp.issparse(block) else block for block in blocks]
    y = z if loss == "quantile" else (z > 0) * 1.0
    return make_problem(blocks, y, loss=loss, regularizer=regularizer, lam=lam, **more)


@pytest.mark.parametrize("dense", [False, True])
def test_the_optimum_of_the_linear_program(dense):
    given = problem("hinge", lam=5e-3, dense=dense, fit_intercept=False)
    columns = np.hstack([block.columns(np.arange(block.shape[1]), Engine(1)) for block in given.blocks])
    d, sign = columns.shape[1], 2.0 * given.y - 1.0
    signed = sp.csr_array(sign[:, np.newaxis] * columns)
    above = sp.hstack([-signed, signed, -sp.eye_array(N)])
    cost = np.concatenate([np.full(2 * d, given.regularization), np.ones(N)])
    best = linprog(cost, A_ub=above, b_ub=-np.ones(N), method="highs")
    found = solve(given, SolverOptions(scheme="pooled", gap=1e-8))
    assert found.certified
    assert found.objective == pytest.approx(best.fun / N, rel=1.1e-8)


def test_the_saddle_proves_itself_and_rows_without_weight_say_nothing():
    weight = np.random.default_rng(1).integers(0, 3, size=N) * 1.0
    given = problem(sample_weight=weight, fit_intercept=True)
    result = solve(given, SolverOptions(scheme="pooled", gap=1e-7))
    assert result.certified
    assert len(result.history) == 1
    # Value and bound by the formulas of the losses.
    given = problem("quantile", "elastic_net", dense=True, fit_intercept=False)
    with Engine(1) as engine:
        rows = DenseBlock(np.hstack([b.columns(np.arange(b.shape[1]), engine) for b in given.blocks]))
        own = given.party_regularizers[0], given.party_constraints[0], given.regularization
        penalty = PartyPenalty(*own)
        found = find_saddle(given, penalty, rows, 1e-8, engine)
    assert 0.0 <= found.value - found.lower <= 1e-8 * found.lower
    e, u = given.y - rows.matrix @ found.weights, found.dual
    value = float(np.abs(0.5 * e).sum()) + penalty.value(found.weights)
    assert found.value == pytest.approx(value, rel=1e-12)
    assert (np.abs(u) <= 0.5).all()
    conjugate = float(u @ given.y)
    assert found.lower == pytest.approx(-conjugate - penalty.conjugate(-rows.matrix.T @ u), rel=1e-12)
