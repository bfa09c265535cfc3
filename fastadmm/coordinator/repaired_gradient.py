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
    from fastadmm.coordinator.proximal.hull import newton_system
    from fastadmm.coordinator.proximal.weights_program import descent_step

    k, extra = len(slope), int(problem.fit_intercept)
    chosen = None if basis is None else scipy.linalg.block_diag(basis, np.eye(extra))
    h = problem.loss.curvature(z, problem.y, problem.weight, np.empty(len(z)), engine)
    for _ in range(_STEPS):
        whole, system = newton_system(messages, gradient, h, extra, engine)
        if chosen is not None:
            whole, system = chosen.T @ whole, chosen.T @ system @ chosen
        whole[:k] += slope
        system[:k, :k] += bend
        step = descent_step(system, whole, _RIDGE)
        if not abs(float(whole @ step)) <= _FLAT * abs(value):
            return None
        c = step[:k] if basis is None else basis @ step[:k]
        moved = engine.combine(c, messages) + float(step[k:].sum())
        gradient = gradient + h * moved
        slope = slope + bend @ step[:k]
    return gradient
