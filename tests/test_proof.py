"""The prover: its kernels beside slow twins, and what it says where something is wrong."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.engine.engine import Engine
from fastadmm.kernels.compensated import (
    csr_compensated_images,
    csr_compensated_product,
    dense_compensated_images,
    dense_compensated_product,
    proof_sums,
)
from fastadmm.problem.centring import centring_of
from fastadmm.problem.constraints import get_constraint
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import make_problem
from fastadmm.problem.regularizers import get_regularizer
from fastadmm.proof.claim import Claim
from fastadmm.proof.feasible import balanced
from fastadmm.proof.prove import prove
from fastadmm.solver.refined_dual import refined_dual
from fastadmm.solver.solver import SolverOptions, solve


def exact_sum(products):
    return sum((Fraction(float(a)) * Fraction(float(b)) for a, b in products), Fraction(0))


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("shifted", [False, True])
def test_sums_of_a_proof(classes, shifted):
    rng = np.random.default_rng(classes)
    n = 1_337
    u, total, z, offset = rng.normal(size=(4, classes, n))
    weight, knots = rng.random(n), rng.normal(size=n) if shifted else np.empty(0)
    sums = np.zeros(7)
    for begin, end in ((0, 500), (500, n)):
        proof_sums(u, total, z, knots, weight, offset, sums, begin, end)
    moved = z - knots if shifted else z
    naive = [(u * total), (u * moved), u * u, moved * moved, total * total, weight * weight, offset * offset]
    np.testing.assert_allclose(sums, [own.sum() for own in naive], rtol=1e-12)


def test_compensated_products_are_those_of_fractions():
    """Columns whose sums cancel to a digit or none in ordinary arithmetic."""
    rng = np.random.default_rng(0)
    n, d = 60, 5
    matrix = rng.normal(size=(n, d)) * 10.0 ** rng.integers(0, 12, size=(n, 1))
    x, v = rng.normal(size=d), rng.normal(size=n)
    v[-1] = -(matrix[:-1, 0] @ v[:-1]) / matrix[-1, 0]
    compressed = sp.csr_array(matrix)
    indptr, indices = compressed.indptr.astype(np.int64), compressed.indices.astype(np.uint16)
    dense, sparse = np.empty(n), np.empty(n)
    dense_compensated_product(matrix, x, dense, 0, n)
    csr_compensated_product(indptr, indices, compressed.data, x, sparse, 0, n)
    images, same = np.zeros((2, 2, d))
    dense_compensated_images(matrix, v, images, 0, n)
    csr_compensated_images(indptr, indices, compressed.data, v, same, 0, n)
    for i in range(n):
        expected = exact_sum(list(zip(matrix[i], x)))
        size = float(np.abs(matrix[i] * x).sum())
        for found in (dense[i], sparse[i]):
            assert abs(Fraction(found) - expected) <= 2.0**-53 * abs(expected) + 1e-28 * Fraction(size)
    for j in range(d):
        expected, size = exact_sum(list(zip(matrix[:, j], v))), float(np.abs(matrix[:, j] * v).sum())
        for high, low in (images[:, j], same[:, j]):
            assert abs(Fraction(high) + Fraction(low) - expected) <= Fraction(size) * Fraction(1e-28)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("classes", [1, 4])
def test_a_dual_vector_is_next_to_one_that_sums_to_zero(classes, exact):
    rng = np.random.default_rng(7)
    n = 500
    X = rng.normal(size=(n, 2))
    y = rng.integers(0, max(classes, 2), n) * 1.0
    problem = make_problem([X], y, loss="multinomial" if classes > 1 else "logistic", lam=1e-3)
    likely = rng.dirichlet(np.ones(max(classes, 2)), size=n).T
    if classes > 1:
        u = likely - (np.arange(classes)[:, None] == y)
    else:
        u = likely[1] - y
    with Engine(1) as engine:
        found = balanced(problem, np.ascontiguousarray(u).ravel(), 0.0, engine, exact, None)
    rows = found.u.reshape(classes, n)
    assert 0.0 < found.cut < 0.6
    assert found.eps <= 1e-9
    for own in rows:
        assert abs(math.fsum(own)) <= 1e-9 * np.abs(own).sum()
    if classes > 1:
        np.testing.assert_allclose(rows.sum(axis=0), 0.0, atol=1e-15)
    # Scaled towards zero, and so inside the domain.
    assert (np.abs(rows) <= np.abs(u.reshape(classes, n)) * (1.0 + 1e-15)).all()


@pytest.mark.parametrize("constraint", ["all", "nonnegative", "box:-0.4,0.7", "ball:1.5"])
@pytest.mark.parametrize("regularizer", ["l2", "l1", "elastic_net", "none"])
def test_a_party_s_part_of_the_gap_bounds_every_vector_within_the_error(regularizer, constraint):
    rng = np.random.default_rng(3)
    penalty = PartyPenalty(get_regularizer(regularizer), get_constraint(constraint), 0.8)
    for _ in range(50):
        x = penalty.constraint.project(rng.normal(size=4))
        q, error = rng.normal(size=4), rng.random(4) * 0.1
        scale = penalty.largest_scale(penalty.pushed(q, error)) * (1.0 - 1e-9)
        if scale == 0.0:
            continue
        bound = penalty.gap_at(x, scale * q, scale * error)
        for near in q + error * rng.uniform(-1.0, 1.0, size=(20, 4)):
            part = penalty.value(x) + penalty.conjugate(scale * near) - scale * float(near @ x)
            assert -1e-12 <= part <= bound * (1.0 + 1e-12) + 1e-15


def problem_and_model(loss="logistic", **given):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 5))
    z = X[:, 0] - 0.5 * X[:, 3]
    y = (z + rng.logistic(size=80) > 0) * 1.0 if loss == "logistic" else z + rng.normal(size=80)
    problem = make_problem([X[:, :2], X[:, 2:]], y, loss=loss, lam=1e-2, **given)
    return problem, solve(problem, SolverOptions(gap=1e-9, n_threads=1))


def test_what_proves_nothing_and_what_is_not_looked_for():
    problem, result = problem_and_model("squared", constraint="box:-0.1,0.1")
    assert result.certified
    with Engine(1) as engine:
        outside = [1.5 * x for x in result.weights]
        proof = prove(problem, outside, result.intercept, [None], engine, 1e-6)
    assert proof.claim is Claim.UNCERTIFIED
    # No better dual vector is looked for where squares overflow.
    rng = np.random.default_rng(6)
    X, y = rng.standard_normal((12, 2)) * 1e160, rng.standard_normal(12)
    problem = make_problem([X], y, loss="squared", regularizer="l2", lam=1.0)
    with Engine(1) as engine:
        assert refined_dual(problem, [np.zeros(2)], 0.0, None, engine) is None


@pytest.mark.parametrize("shift", [1e6, 1e9, 1e12, 1e13])
def test_what_is_proved_of_far_columns_is_true_of_the_written_intercept(shift):
    rng = np.random.default_rng(0)
    x, y = shift + rng.normal(size=5), rng.normal(size=5)
    problem = make_problem([x[:, None]], y, loss="squared", lam=1e-3)
    result = solve(problem, SolverOptions(n_threads=1))
    w, b = Fraction(float(result.weights[0][0])), Fraction(float(result.intercept))
    left = [Fraction(float(a)) * w + b - Fraction(float(t)) for a, t in zip(x, y)]
    exact = sum(e * e for e in left) / 10 + Fraction(1e-3) / 2 * w * w
    assert Fraction(result.proof.objective) >= exact
    assert Fraction(result.proof.computed) <= exact * (1 + Fraction(1e-6))


def test_near_and_large_columns():
    rng = np.random.default_rng(2)
    near, far = rng.normal(size=(50, 3)) + 20.0, rng.normal(size=(50, 2)) + 1e9
    y = rng.normal(size=50)
    with Engine(1) as engine:
        assert centring_of(make_problem([near], y, loss="squared"), engine) is None
        found = centring_of(make_problem([near, far], y, loss="squared"), engine)
        assert centring_of(make_problem([far], y, loss="squared", fit_intercept=False), engine) is None
        assert found.centres[0] is None
        moved = found.problem(make_problem([near, far], y, loss="squared"))
    np.testing.assert_array_equal(moved.blocks[1].matrix + found.centres[1], far)
    # Rounding of the gradient exceeds lambda: no dual vector in doubles bounds all models closely.
    rng = np.random.default_rng(5)
    X = rng.standard_normal((200, 3)) * [1e7, 1.0, 1.0]
    y = X @ [1e-7, 1.0, 0.0] + 0.1 * rng.standard_normal(200)
    result = solve(make_problem([X], y, loss="squared", regularizer="l1", lam=1e-10))
    assert result.certified_within
    assert result.proof.gap > 1e-6
    best = np.linalg.lstsq(np.column_stack([X, np.ones(200)]), y, rcond=None)[0]
    np.testing.assert_allclose(result.weights[0] * [1e7, 1.0, 1.0], best[:3] * [1e7, 1.0, 1.0], atol=1e-3)
    # The bound stands where it did, however far the weights that are judged are.
    problem, result = problem_and_model("squared", regularizer="none")
    assert result.certified_within
    assert not result.certified
    with Engine(1) as engine:
        wild = [1e5 * x for x in result.weights]
        proof = prove(problem, wild, result.intercept, [result.proof.dual], engine, 1e-6)
    assert proof.claim is Claim.UNCERTIFIED
