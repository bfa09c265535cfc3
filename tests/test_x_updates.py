"""x-updates: three ways to one solution, and the choice between them."""

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.blocks.block import as_block
from fastadmm.engine.engine import Engine
from fastadmm.engine.singular import descent_solver
from fastadmm.errors import ConfigError
from fastadmm.parties.xupdate.choose import X_UPDATES, choose_penalised, choose_x_update, preparation_bytes
from fastadmm.parties.xupdate.gram_descent import GramDescent
from fastadmm.problem.constraints import get_constraint
from fastadmm.problem.regularizers import L1, ElasticNet

import naive

SHAPES = [(40, 6), (6, 40), (25, 25), (1, 5), (5, 1)]


def matrix(shape, sparse, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape)
    return sp.csr_array(np.where(rng.random(shape) < 0.4, values, 0.0)) if sparse else values


def direct(D, w, mu):
    """argmin mu/2 |x|^2 + 1/2 |D x - w|^2, by least squares on the stacked system."""
    d = D.shape[1]
    stacked = np.vstack([D, np.sqrt(mu) * np.eye(d)])
    return np.linalg.lstsq(stacked, np.concatenate([w, np.zeros(d)]), rcond=None)[0]


@pytest.mark.representatives(8)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["gram", "kernel"])
def test_direct_updates_solve_for_every_penalty(name, shape, sparse):
    D = matrix(shape, sparse)
    rng = np.random.default_rng(1)
    with Engine(1) as engine:
        update, reason = choose_x_update(as_block(D), name)
        assert reason == "asked for"
        assert update.name == name
        update.prepare(engine)
        for mu in (1e-3, 1.0, 1e4):
            w = rng.normal(size=shape[0])
            expected = direct(naive.dense(D), w, mu)
            x = update.solve(w, mu, rng.normal(size=shape[1]), engine)
            np.testing.assert_allclose(x, expected, rtol=1e-8, atol=1e-10 * np.abs(expected).max() + 1e-14)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_conjugate_gradients_reach_the_solution_by_warm_starts(shape, sparse):
    D = matrix(shape, sparse)
    rng = np.random.default_rng(2)
    w = rng.normal(size=shape[0])
    with Engine(1) as engine:
        update, _ = choose_x_update(as_block(D), "cg")
        update.prepare(engine)
        for mu in (1e-3, 1.0, 1e4):
            expected = direct(naive.dense(D), w, mu)
            x = np.zeros(shape[1])
            for _ in range(10):
                x = update.solve(w, mu, x, engine)
            np.testing.assert_allclose(x, expected, rtol=0, atol=1e-8 * np.abs(expected).max() + 1e-14)
            # at the solution it stays
            np.testing.assert_allclose(update.solve(w, mu, x, engine), x, rtol=1e-9, atol=1e-12)
        # an inexact solve leaves the start alone and never makes it worse
        start = rng.normal(size=shape[1])
        kept = start.copy()
        x = update.solve(w, 0.1, start, engine)
        np.testing.assert_array_equal(start, kept)

        def value(t):
            return 0.05 * t @ t + 0.5 * np.sum((naive.dense(D) @ t - w) ** 2)

        assert value(x) <= value(start)


def test_odd_matrices():
    D = naive.dense(matrix((20, 5), False))
    D[:, 2] = 0.0
    with Engine(1) as engine:
        update, _ = choose_x_update(as_block(D), "cg")
        update.prepare(engine)
        assert not update.solve(np.zeros(20), 0.5, np.zeros(5), engine).any()
        assert update.solve(np.ones(20), 0.5, np.zeros(5), engine)[2] == 0.0
        np.testing.assert_allclose(update.solve(np.zeros(20), 0.5, np.ones(5), engine), 0.0, atol=1e-3)
    # Singular gram matrices are harmless.
    D = np.ones((12, 4))
    w = np.arange(12.0)
    with Engine(1) as engine:
        for name in X_UPDATES:
            update, _ = choose_x_update(as_block(D), name)
            update.prepare(engine)
            x = update.solve(w, 1e-6, np.zeros(4), engine)
            np.testing.assert_allclose(x, w.sum() / (48 + 1e-6), rtol=1e-6)


def test_small_moves_in_a_stiff_metric_have_their_digits():
    rng = np.random.default_rng(4)
    D, slope, point = 1e5 * rng.normal(size=(40, 6)), rng.normal(size=6), rng.uniform(1.0, 2.0, size=6)
    with Engine(1) as engine:
        update, _ = choose_penalised(as_block(D), L1(), get_constraint("all"))
        update.prepare(engine)
        found = update.minimise_around(point, slope, 0.5, point, engine)
    step = -np.linalg.solve(D.T @ D, slope + 0.5)  # no weight comes near zero
    np.testing.assert_allclose(found - point, step, rtol=0, atol=4e-16)
    assert np.abs(step).max() > 1e-12


class Shape:
    """A block of which only the shape is looked at."""

    def __init__(self, n, d):
        self.shape = self.whole_shape = n, d


@pytest.mark.parametrize(
    ("shape", "name", "reason"),
    [
        ((32561, 66), "gram", "66 x 66 Gram matrix"),
        ((4096, 4096), "gram", "Gram matrix"),
        ((38, 7129), "kernel", "38 x 38 kernel matrix"),
        ((800, 88119), "kernel", "more columns than rows"),
        ((25000, 74851), "cg", "too large to factorise"),
        ((4097, 5000), "cg", "conjugate gradients"),
        ((100000, 4097), "cg", "100000 x 4097"),
    ],
)
def test_choice_by_shape_comes_with_a_reason(shape, name, reason):
    update, why = choose_x_update(Shape(*shape))
    assert update.name == name
    assert reason in why
    assert preparation_bytes(*shape) < 2**30
    for forced in X_UPDATES:
        assert choose_x_update(Shape(*shape), forced)[0].name == forced
        assert preparation_bytes(*shape, forced) > 0


def test_unknown_choice():
    with pytest.raises(ConfigError, match="x_update: unknown choice 'lu'; choose auto, gram, kernel, cg"):
        choose_x_update(Shape(5, 5), "lu")


@pytest.mark.parametrize("regularizer", [L1(), ElasticNet(0.9)])
def test_large_faces_with_more_weights_than_rows_are_not_factorised(regularizer, monkeypatch):
    """Their Gram matrix is singular; holding one weight after another took minutes for an answer."""
    rng = np.random.default_rng(10)
    D = rng.normal(size=(30, 900)) + rng.normal(size=(30, 1))
    update, engine = GramDescent(as_block(D), regularizer, get_constraint("all")), Engine(1)
    sizes = []

    def watched(system, ridge):
        sizes.append(len(system))
        return descent_solver(system, ridge)

    monkeypatch.setattr("fastadmm.parties.xupdate.gram_descent.descent_solver", watched)
    right, start = D.T @ rng.normal(size=30), np.zeros(900)

    def value(x):
        return 0.5 * float((D @ x) @ (D @ x)) - float(right @ x) + 1e-4 * regularizer.value(x)

    with engine.limited():
        update.prepare(engine)
        x = update.minimise(right, 1e-4, start, engine)
        again = update.minimise(right, 1e-4, x, engine)
    assert max(sizes, default=0) <= 512
    assert value(again) <= value(x) < value(start)


def test_one_weight_more_than_rows_is_let_go():
    """Along what a matrix does not bend a Newton step is endless: any share of it passed every kink."""
    rng = np.random.default_rng(12)
    D, mu = rng.normal(size=(40, 41)), 1e-4
    update, engine = GramDescent(as_block(D), L1(), get_constraint("all")), Engine(1)
    right, start = D.T @ rng.normal(size=40), 0.1 + rng.random(41)
    with engine.limited():
        update.prepare(engine)
        x = update.minimise(right, mu, start, engine)
    slope = right - D.T @ (D @ x)
    assert np.count_nonzero(x) <= 40
    np.testing.assert_allclose(slope[x != 0.0], mu * np.sign(x[x != 0.0]), atol=1e-9)
    assert (np.abs(slope) <= mu + 1e-9).all()
