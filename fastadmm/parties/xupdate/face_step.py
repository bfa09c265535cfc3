r"""Newton step of a party's problem over the face of a point: what is at no kink, bound or sphere.

There :math:`\tfrac12 x^\top G x - \langle b, x\rangle + h(x)` is smooth. On the sphere of a ball with
multiplier :math:`\nu > 0` the step is tangent to it, and :math:`\nu` adds to the curvature; on a simplex it
is tangent to the plane of all weights of its sum.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastadmm.engine.singular import descent_solver
from fastadmm.problem.penalty import PartyPenalty

#: Ridge, relative to the diagonal and per column, that factorises a singular matrix; a Newton step stays one
#: of descent.
FACTORISES = 1e-14

#: Norms that reach the radius to this share are on the sphere.
ON_SPHERE = 1e-9

#: Shares of a step that are tried after the whole one and that to the first kink or bound.
_SHORTER = (0.25, 0.0625, 0.015625)


def face_step(gram: np.ndarray, right: np.ndarray, penalty: PartyPenalty, x: np.ndarray) -> np.ndarray | None:
    """The step, zero at held weights.

    Returns: None where nothing is free, or rounding leaves no step.
    Shapes: gram (d, d); right, x, the result (d,).
    """
    first, second = penalty.coefficients
    free = np.flatnonzero(~penalty.held(x))
    if len(free) == 0:
        return None
    slope, curvature = penalty.regularizer.bending(x, np.eye(len(x))[free])
    gradient = (gram @ x - right)[free] + first * slope + second * x[free]
    system = gram[np.ix_(free, free)] + first * curvature
    diagonal = np.diag_indices(len(free))
    system[diagonal] += second
    radius, point = penalty.constraint.radius, x[free]
    tangent = np.ones(len(free)) if penalty.constraint.coupled else None  # the sum of a simplex stays
    if np.linalg.norm(x) >= radius * (1.0 - ON_SPHERE):
        multiplier = -float(gradient @ point) / radius**2
        if multiplier > 0.0:
            system[diagonal] += multiplier
            gradient = gradient + multiplier * point
            tangent = point / radius
    solve = descent_solver(system, FACTORISES * len(system))
    step = -solve(gradient)
    if tangent is not None:
        normal = solve(tangent)
        step -= (float(tangent @ step) / float(tangent @ normal)) * normal
    if not np.isfinite(step).all():
        return None
    full = np.zeros_like(x)
    full[free] = step
    return full


def points_of_step(penalty: PartyPenalty, x: np.ndarray, step: np.ndarray) -> Iterator[np.ndarray]:
    """Points of the set along a step; in sums over columns, weights that would pass kink or bound stay there.

    Shapes: x, step, what it yields (d,).
    """
    at, value = penalty.crossings(x, x + step)
    at[step == 0.0] = np.inf
    if not penalty.regularizer.separable:  # a group that turns around need not end at zero
        at[:] = np.inf
    first = float(at.min(initial=np.inf))
    for length in (1.0, first, *_SHORTER) if first < 1.0 else (1.0, *_SHORTER):
        point = x + length * step
        met = at <= length
        point[met] = value[met]
        yield penalty.constraint.project(point)
