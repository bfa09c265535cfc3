"""The kernel of the quadratic program over weights, beside a slow and obvious twin."""

import numpy as np
from fastadmm.kernels.weights_program import weights_program
from hypothesis import given, settings
from hypothesis import strategies as st


def solved(hessian, slope, weights, lower, owner, most):
    step = np.zeros(len(slope))
    weights_program(hessian, slope, weights, lower, owner, most, 1e-13, step)
    return step


def twin(hessian, slope, weights, lower, owner, most):
    """The same active set, each step from the optimality conditions of all free weights at once."""
    k, groups = len(slope), int(owner.max(initial=-1)) + 1
    step, free = np.zeros(k), (weights > lower) | (owner < 0)
    for _ in range(most):
        residual, at = slope + hessian @ step, np.flatnonzero(free)
        rows = np.array([owner[at] == m for m in range(groups)], dtype=float).reshape(groups, len(at))
        system = np.block([[hessian[np.ix_(at, at)], rows.T], [rows, np.zeros((groups, groups))]])
        right = np.append(-residual[at], np.zeros(groups))
        move = np.zeros(k)
        move[at] = np.linalg.lstsq(system, right, rcond=None)[0][: len(at)]
        down = (move < -1e-14) & np.isfinite(lower)
        room = np.full(k, np.inf)
        room[down] = (lower - weights - step)[down] / move[down]
        length = min(1.0, max(room.min(initial=np.inf), 0.0))
        step += length * move
        if length < 1.0:
            met = room <= length
            step[met], free[met] = (lower - weights)[met], False
            continue
        residual, released = slope + hessian @ step, []
        for m in range(groups):
            inside, outside = (owner == m) & free, np.flatnonzero((owner == m) & ~free)
            if inside.any() and len(outside):
                excess = residual[outside] - residual[inside].mean()
                if excess.min() < -1e-12 * np.abs(slope).max():
                    released.append(outside[np.argmin(excess)])
        if not released:
            break
        free[released] = True
    return step


@given(st.integers(0, 10**6), st.integers(0, 4), st.integers(1, 5), st.integers(0, 2))
@settings(max_examples=60, deadline=None)
def test_the_kernel_takes_the_steps_of_its_twin(seed, groups, each, alone):
    rng = np.random.default_rng(seed)
    owner = np.append(np.repeat(np.arange(groups), each), np.full(alone, -1))
    k = len(owner)
    root = rng.normal(size=(k, 3 * k + 1))  # well conditioned: both solve it to about ten digits
    hessian, slope = root @ root.T, rng.normal(size=k)
    lower = np.where(owner < 0, -np.inf, 0.0)
    weights = np.where(owner < 0, 0.3, 0.0)
    for m in range(groups):
        weights[owner == m] = rng.dirichlet(np.ones(each)) if rng.random() < 0.5 else np.eye(each)[0]
    for most in (0, 1, 2, 5, 60):
        found = solved(hessian, slope, weights, lower, owner, most)
        np.testing.assert_allclose(found, twin(hessian, slope, weights, lower, owner, most), atol=1e-8)
        assert (weights + found >= lower - 1e-15).all()
