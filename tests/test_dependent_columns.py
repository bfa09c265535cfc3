"""Columns that depend on each other, as one-hot columns do: what is told of them, and whole runs."""

import numpy as np
import pytest
from fastadmm.blocks.block import DenseBlock
from fastadmm.engine.engine import Engine
from fastadmm.parties.face import FaceParty
from fastadmm.problem.constraints import AllSpace
from fastadmm.problem.problem import make_problem
from fastadmm.problem.regularizers import L1
from fastadmm.solver.solver import Solver, SolverOptions

from resumed import assert_resumed_is_the_same


def one_hot(rng, rows, levels):
    """Columns of several groups that each sum to one. Shapes: the result (rows, sum of levels)."""
    return np.hstack([np.eye(k)[rng.integers(0, k, rows)] for k in levels])


@pytest.mark.parametrize("loss", ["logistic", "squared", "hinge"])
def test_one_hot_columns_take_few_exchanges(loss):
    rng = np.random.default_rng(3)
    X = one_hot(rng, 800, (5, 4, 6, 3, 7, 5, 6, 4))
    score = X @ rng.normal(size=40) + rng.normal(size=800)
    y = score if loss == "squared" else (score > 0.0) * 1.0
    parts = [X[:, :15], X[:, 15:]]
    problem = make_problem(parts, y, loss=loss, lam=1e-4, regularizer="l1")
    with (solver := Solver(problem, SolverOptions(gap=1e-6, n_threads=1, max_rounds=60))).engine:
        while solver.stop_reason(record := solver.round()) is None:
            pass
        assert record.gap <= 1e-6
        assert solver.traffic.exchanges <= 30
        # What columns that depend on each other add has no message.
        shared = solver.coordinator.shared
        ranks = [np.linalg.matrix_rank(shared.messages[shared.of(m)]) for m in range(2)]
        assert ranks == [np.linalg.matrix_rank(part) for part in parts]


def test_inner_products_tell_columns_apart():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 10)) * rng.uniform(0.5, 2.0, 10)
    y = (X[:, 0] - X[:, 7] + rng.normal(size=300) > 0.0) * 1.0
    problem = make_problem([X[:, :6], X[:, 6:]], y, lam=1e-2, regularizer="l1")
    with (solver := Solver(problem, SolverOptions(n_threads=1))).engine:
        solver.round()
        shared = solver.coordinator.shared
        mine = shared.of(0)
        _, turns = np.linalg.eigh(shared.products[np.ix_(mine, mine)])
        told = turns.T @ shared.messages[mine]
        alike = (
            np.abs(told @ X[:, :6]) / np.linalg.norm(told, axis=1)[:, None] / np.linalg.norm(X[:, :6], axis=0)
        )
        assert alike.max(axis=0).min() > 1.0 - 1e-9
    # Columns of one scale tell their inner products alone.
    rng = np.random.default_rng(2)
    X = 3.0 * np.linalg.qr(rng.normal(size=(60, 5)))[0]
    turned = X @ np.linalg.qr(rng.normal(size=(5, 5)))[0]
    found = []
    with Engine(1) as engine:
        for features in (X, turned, X * [1.0, 1.0, 1.0, 1.0, 2.0]):
            party = FaceParty("p", DenseBlock(features), 1.0, engine, L1(), AllSpace())
            party.prepare()
            found.append(party.spanned())
    messages, products = ([one[key] for one in found] for key in ("messages", "products_of_all"))
    for other in (1, 2):
        np.testing.assert_allclose(messages[0], messages[other], atol=1e-9)
    np.testing.assert_allclose(products[0], products[1], atol=1e-9)
    assert np.abs(products[0] - products[2]).max() > 1e-3  # the scales


@pytest.mark.parametrize("loss", ["logistic", "hinge", "multinomial"])
def test_a_restored_run_takes_the_same_rounds(loss):
    rng = np.random.default_rng(2)
    X = one_hot(rng, 200, (3, 4, 5, 3))
    y = rng.integers(0, 3 if loss == "multinomial" else 2, 200) * 1.0
    problem = make_problem([X[:, :7], X[:, 7:]], y, loss=loss, lam=1e-3, regularizer="l1")
    assert_resumed_is_the_same(problem, SolverOptions(gap=0.0, n_threads=1), 2, 4)
