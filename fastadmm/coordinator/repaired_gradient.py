"""A dual vector where the objective resolves no step: the gradient without the predictors' rounding."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Steps, the later ones for the rounding of the first, and the share of the diagonal added to their system.
_STEPS, _RIDGE = 3, 1e-13

#: Share of the objective below which a decrease is lost in its rounding.
_FLAT = 1e-13


def repaired_gradient(
    problem: Problem,
    messages: Array,
    z: Array,
    gradient: Array,
    slope: Array,
    bend: Array,
    value: float,
    engine: Engine,
    basis: Array | None = None,
) -> Array | None:
    r"""Take away what is left of the slope along messages, by a change of the dual vector alone.

    What is left of the slope there may be the rounding of predictors, times their curvature and
    columns: a dual vector need not have it. Newton's step takes it away from the
    gradient itself, :math:`g + H \sum_k s_k v_k`, and no predictor is formed.

    Returns: None where a step still gains something.
    Shapes: messages (K, N); z, gradient, the result (N,).
    Scaling: z, gradient summed scaling.
    """
    from fastadmm.method.span import descent_solver

    k, extra = len(slope), int(problem.fit_intercept)
    chosen = None if basis is None else scipy.linalg.block_diag(basis, np.eye(extra))
    h = problem.loss.curvature(z, problem.y, problem.weight, np.empty(len(z)), engine)
    for _ in range(_STEPS):
        whole, system = newton_system(messages, gradient, h, extra, engine)
        if chosen is not None:
            whole, system = chosen.T @ whole, chosen.T @ system @ chosen
        whole[:k] += slope
        system[:k, :k] += bend
        step = -descent_solver(system, _RIDGE)(whole)
        if not abs(float(whole @ step)) <= _FLAT * abs(value):
            return None
        c = step[:k] if basis is None else basis @ step[:k]
        moved = engine.combine(c, messages) + float(step[k:].sum())
        gradient = gradient + h * moved
        slope = slope + bend @ step[:k]
    return gradient


def newton_system(
    messages: Array, gradient: Array, curvature: Array, extra: int, engine: Engine
) -> tuple[Array, Array]:
    """Gradient and Hessian of the loss in the coefficients of messages (and, last, the intercept).

    Shapes: messages (K, N); gradient, curvature (N,); slope (K + extra,); hessian (K + extra, K + extra).
    """
    k = len(messages)

    def piece(rows: tuple[int, int]) -> tuple[Array, Array]:
        part, g, h = (a[..., rows[0] : rows[1]] for a in (messages, gradient, curvature))
        slope, hessian = np.empty(k + extra), np.empty((k + extra, k + extra))
        slope[:k] = (part * g).sum(axis=1)  # BLAS takes another order of one row by its address
        curved = np.flatnonzero(h)
        if 2 * len(curved) <= len(h):  # a loss with flat pieces bends at few samples
            part, h = part[:, curved], h[curved]
        weighted = part * h
        hessian[:k, :k] = weighted @ part.T
        if extra:
            slope[k], hessian[k, k] = g.sum(), h.sum()
            hessian[k, :k] = hessian[:k, k] = weighted.sum(axis=1)
        return slope, hessian

    slope, hessian = engine.sums(piece, engine.leaves(messages.shape[1]), light=True, size=(k + extra) ** 2)
    return slope, 0.5 * (hessian + hessian.T)
