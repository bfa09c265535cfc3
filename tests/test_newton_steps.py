"""What judges and proposes Newton's steps in compiled code, against a slow twin with inverse matrices."""

import numpy as np
import pytest
from fastadmm.kernels.blas import lapack
from fastadmm.kernels.span_newton import BEST, END, HERE, HESSIAN, LONG, PASS, SLOTS, TRIAL, WANTED, next_step
from fastadmm.method.one_leaf import memory_of_steps
from fastadmm.method.span import _LIMITS as LIMITS

import naive

N, K, SCALE = 200, 5, 0.3


def logistic(seed, lead):
    """Objective with slope, Hessian, and what a pass finds, at intercept and coefficients."""
    rng = np.random.default_rng(seed)
    V, tilt = rng.normal(size=(K, N)), 0.1 * rng.normal(size=lead + K)
    rows = np.vstack([np.ones((lead, N)), V])
    y, s = (rng.random(N) < 0.4) * 1.0, rng.uniform(0.2, 2.0, N)
    ridge = np.append(np.zeros(lead), np.full(K, SCALE))

    def passed(x):
        z = x @ rows
        return naive.loss_value("logistic", z, y, s), naive.loss_gradient("logistic", z, y, s)

    def at(x):
        loss, g = passed(x)
        return loss + 0.5 * float(ridge @ (x * x)) + float(tilt @ x), rows @ g + ridge * x + tilt

    def hessian(x, ridge=ridge):
        return naive.gram(rows.T, naive.loss_curvature("logistic", x @ rows, s)) + np.diag(ridge)

    def found(x):
        loss, g = passed(x)
        return np.array([*(V @ g), loss, g.sum(), np.abs(g).sum()])

    return at, hessian, found, tilt


def steps(at, hessian, found, tilt, start, lead, tolerance, limits):
    """The same by :func:`next_step`: points in order, the best's number, and whether a search is wanted."""
    state = np.empty((SLOTS, K + 3)), np.zeros((SLOTS, 1 + K)), np.empty((SLOTS, lead + K))
    state = *state, np.empty((SLOTS, 4)), np.empty((lead + K, lead + K))
    _, points, slopes, numbers, matrix = state
    memory = memory_of_steps(lead + K, True, True, tolerance, limits[0])
    told = (lapack("dpotrf"), lapack("dpotrs")), (lead, SCALE, float(N)), limits, tilt
    control, all_points, number = memory[0], [start], {0: 0}
    points[0, 1 - lead :] = start
    numbers[0, 1], slopes[0] = at(start)
    while control[WANTED] != END:
        here, trial = int(control[HERE]), int(control[TRIAL])
        if control[WANTED] == HESSIAN:
            matrix[:] = hessian(points[here, 1 - lead :], np.zeros(lead + K))
        elif control[WANTED] == PASS:
            x = points[trial, 1 - lead :].copy()
            number[trial] = len(all_points)
            all_points.append(x)
            state[0][trial] = found(x)
        next_step(*told, state, memory)
    return all_points, number[int(control[BEST])], bool(control[LONG])


@pytest.mark.representatives(6)
@pytest.mark.parametrize(("lead", "seed"), [(0, 0), (1, 1)])
@pytest.mark.parametrize("far", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-9, 0.0])
def test_steps_are_those_of_the_slow_twin(lead, seed, far, tolerance):
    at, hessian, found, tilt = logistic(seed, lead)
    start = far * np.random.default_rng(seed + 9).normal(size=lead + K)
    expected, best, long = naive.newton_points(at, hessian, start, SCALE, lead, tolerance, LIMITS)
    points, own_best, own_long = steps(at, hessian, found, tilt, start, lead, tolerance, LIMITS)
    if tolerance > 0.0:  # else what is left is rounding, which decides how many steps there are
        assert len(points) == len(expected)
        assert (own_best, own_long) == (best, long)
    for one, other in zip(points, expected):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_steps_end_where_there_have_been_many(most):
    at, hessian, found, tilt = logistic(0, 1)
    start, limits = np.full(1 + K, 0.1), (most, *LIMITS[1:])
    expected = naive.newton_points(at, hessian, start, SCALE, 1, 0.0, limits)
    points, *rest = steps(at, hessian, found, tilt, start, 1, 0.0, limits)
    np.testing.assert_allclose(points, expected[0], rtol=1e-9, atol=1e-10)
    assert len(points) == 1 + most
    assert tuple(rest) == expected[1:]
