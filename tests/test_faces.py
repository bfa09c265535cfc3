"""A party's directions, faces, best responses and dual shares, against obvious twins."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from fastadmm.blocks.block import as_block
from fastadmm.engine.engine import Engine
from fastadmm.parties.direction_span import ActiveSet, DirectionSpan, sum_without_rounding
from fastadmm.parties.face import FaceParty
from fastadmm.problem.constraints import AllSpace, Ball, Box, NonNegative
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.regularizers import L1, ElasticNet, GroupLasso
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

D, N = 8, 60
GROUPS = GroupLasso((((0, 1, 2), (3, 4), (5, 6, 7)),))
SETS = (AllSpace(), NonNegative(), Box(-0.5, 0.7), Ball(0.8))
PAIRS = [
    (r, c) for r, c in product((L1(), ElasticNet(0.5), GROUPS), SETS) if r.separable or not isinstance(c, Box)
]
each_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{p[0].name}-{p[1].name}")
seeds = given(seed=st.integers(0, 10**6))
few = settings(max_examples=15, deadline=None)


def a_point(rng, regularizer, constraint):
    """Weights in the set, some of them exactly at kinks and bounds."""
    x = rng.normal(size=D)
    for group in [[j] for j in range(D)] if regularizer.separable else regularizer.members:
        if rng.random() < 0.3:
            x[list(group)] = 0.0
    return constraint.project(x * (0.5 if isinstance(constraint, Ball) else 1.0) / 2.0)


def a_face(seed, pair):
    """A face, and coefficients of a point of it; half of the directions leave what is held alone."""
    rng, (regularizer, constraint) = np.random.default_rng(seed), pair
    penalty = PartyPenalty(regularizer, constraint, 0.3)
    x = a_point(rng, regularizer, constraint)
    held = penalty.held(x)
    span = DirectionSpan(np.empty((0, D)), 10.0 ** rng.uniform(-1.0, 1.0, D), penalty)
    for k in range(5):
        more = x if k == 2 else rng.normal(size=D) * np.where(held & (k % 2 == 0), 0.0, 1.0)
        direction = span.new_direction(more)
        if direction is not None:
            span = replace(span, directions=np.vstack([span.directions, direction]))
    anchor = span.coefficients(x)
    return ActiveSet(span, x, held), anchor


@seeds
@few
def test_directions_are_orthonormal_and_combine_to_the_weights(seed):
    active, _ = a_face(seed, (L1(), AllSpace()))
    span = active.span
    scaled = span.directions * span.scale
    np.testing.assert_allclose(scaled @ scaled.T, np.eye(len(scaled)), atol=1e-14)
    c = np.random.default_rng(seed).normal(size=len(scaled))
    # d products of numbers below 1, each rounded
    np.testing.assert_allclose(span.coefficients(span.combine(c)), c, atol=1e-13)
    assert span.new_direction(span.combine(c)) is None
    # Weights of zero beside others: their difference has no more than rounding beside the directions.
    assert span.new_direction(np.zeros(D), near=c) is None


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=1, max_size=6))
@few
def test_sums_have_their_exact_value_or_zero(terms):
    columns, factors = (np.array(part) for part in zip(*terms, strict=True))
    exact = sum((Fraction(a) * Fraction(b) for a, b in terms), Fraction(1))
    size = 1.0 + float(np.abs(columns) @ np.abs(factors))
    found = sum_without_rounding(np.ones(1), columns[None, :], factors)[0]
    assert abs(found - float(exact)) <= 2e-14 * size  # what counts as rounding, and the sum's own
    assert found == 0.0 or abs(found) > 1e-14 * size
    cancelled = sum_without_rounding(np.array([0.1 + 0.2]), np.array([[-1.0, -1.0]]), np.array([0.1, 0.2]))
    assert cancelled[0] == 0.0


@each_pair
@seeds
@few
def test_slope_and_curvature_are_those_of_the_norm_along_the_face(pair, seed):
    active, anchor = a_face(seed, pair)
    basis, span = active.basis, active.span
    if basis.shape[1] == 0:
        return
    face, norm, x = active.face(), pair[0].norm, span.weights(anchor)
    along = basis @ np.random.default_rng(seed).normal(size=basis.shape[1])
    step = np.where(active.held, 0.0, along @ span.directions)
    moving = np.abs(x[step != 0.0])
    if len(moving) == 0:
        return
    h = 1e-4 * float(moving.min()) / max(float(np.abs(step).max()), 1e-300)
    up, at, down = norm(x + h * step), norm(x), norm(x - h * step)
    # central differences at 1e-4: errors of 1e-8 and, of the second, rounding over h squared
    assert (up - down) / (2 * h) == pytest.approx(face["slope"] @ along, rel=1e-7, abs=1e-9 * at / h)
    second = float(along @ face["curvature"] @ along) if "curvature" in face else 0.0
    assert (up - 2 * at + down) / h**2 == pytest.approx(second, rel=1e-4, abs=1e-14 * at / h**2)


def a_party(seed, pair, engine):
    """A party with a metric, the matrix, and the metric."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(N, D)) * 10.0 ** rng.uniform(-0.5, 0.5, D)
    party = FaceParty("a", as_block(matrix), 0.05 * N, engine, *pair)
    party.prepare()
    metric = rng.uniform(0.1, 2.0, N)
    party.set_metric(metric)
    return party, matrix, metric


def respond(party, seed):
    """An answer to a gradient at the party's start, and the weights there."""
    c = party.feasible_start()["coefficients"]
    gradient, y = np.random.default_rng(seed).normal(size=N), party.weights(c)
    return party.best_response(gradient, c), gradient, y


@each_pair
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.repeats)])
def test_an_answer_minimises_the_block_problem(pair, seed):
    regularizer, constraint = pair
    with Engine(1) as engine:
        party, matrix, metric = a_party(seed, pair, engine)
        answer, gradient, y = respond(party, seed)
        x = party.weights(answer["coefficients"])
    hessian, slope = (matrix.T * metric) @ matrix, matrix.T @ gradient

    def value(v):
        return party.regularization * regularizer.value(v) + slope @ v + 0.5 * (v - y) @ hessian @ (v - y)

    # Convex: what no feasible neighbour improves is the minimiser.
    rng, best = np.random.default_rng(seed), value(x)
    np.testing.assert_allclose(constraint.project(x), x, atol=1e-15)
    for size in (1e-1, 1e-3, 1e-5):
        for v in (
            *np.eye(D),
            *-np.eye(D),
            *rng.normal(size=(40, D)),
            -x,
            *(np.where(x == 0.0, 0.0, rng.normal(size=(10, D)))),
        ):
            assert value(constraint.project(x + size * v)) >= best - 1e-12 * abs(best)
    # Along the face, where the problem is smooth, SciPy does not find better either.
    free = np.flatnonzero(~party.penalty.held(x))
    if len(free) and not np.isfinite(constraint.radius):

        def on_face(w):
            v = x.copy()
            v[free] = w
            return value(constraint.project(v))

        assert minimize(on_face, x[free], method="Powell").fun >= best - 1e-10 * abs(best)
