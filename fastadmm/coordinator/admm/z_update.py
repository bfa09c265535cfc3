"""The z- and u-updates of ADMM sharing (Hu et al., equations 7 and 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.engine.rows import address_of
from fastadmm.method.certificate import increasing_root
from fastadmm.method.class_certificate import class_root, multinomial_of, shifted
from fastadmm.problem.problem import Problem


def update_z_u(
    problem: Problem,
    total: np.ndarray,
    u_before: np.ndarray,
    penalty: float,
    z: np.ndarray,
    u: np.ndarray,
    intercept: Any,
    engine: Engine,
    metric: np.ndarray | None = None,
) -> Any:
    r"""Minimise over z (and the intercept), then move the dual variable.

    .. math:: z^+, b^+ = \arg\min \sum_i s_i \ell(o_i + b + z_i) - \langle u, z\rangle
              + \tfrac r2 \|S - z\|^2, \qquad u^+ = u + r (S - z^+)

    Both in one: the optimality condition of z says that :math:`u^+` is the
    loss gradient at :math:`z^+`, which is how it is written, so that it lies
    in the domain of the conjugate loss exactly. The intercept belongs to the
    same block of variables as z: its optimality condition is that the new u
    sums to zero. In a non-convex problem b moves first, exactly, and then z.

    Shapes: total, u_before, z, u, metric (N,).
    Scaling: penalty summed scaling.
    """
    vector, nothing = problem.loss.vector, np.zeros(problem.n_outputs)
    prox = _prox(problem, total, u_before, penalty, z, u, engine, metric)
    if not problem.fit_intercept:
        prox(nothing if vector else 0.0)
        return nothing if vector else 0.0
    if vector:
        return class_root(prox, np.broadcast_to(intercept, nothing.shape))
    if problem.convex:
        return increasing_root(prox, intercept)
    # A block of its own, after the parties and before z, which keeps the descent: its optimality
    # condition <u, 1> + r <S - z + b - b_old, 1> = 0 is linear. See docs/theory.md.
    b = intercept + engine.mean(z - total) - engine.mean(u_before) / penalty
    prox(b)
    return b


def _prox(
    problem: Problem,
    total: np.ndarray,
    u_before: np.ndarray,
    penalty: float,
    z: np.ndarray,
    u: np.ndarray,
    engine: Engine,
    metric: np.ndarray | None,
) -> Callable[[Any], tuple[Any, Any]]:
    """What writes z and u for an intercept, or C; sums of the new u and of its derivatives in that."""
    loss, y, weight = problem.loss, problem.y, problem.weight
    if loss.vector:
        several, centres = multinomial_of(problem), total + u_before / penalty
        return lambda b: several.prox_classes(
            centres, shifted(problem.offset, b), problem, penalty, z, u, engine
        )
    if metric is None:
        centre = engine.plus(total, u_before, factor=1.0 / penalty)

        def prox(b: float) -> tuple[float, float]:
            shift = engine.plus(problem.offset, problem.offset, b, factor=0.0)
            return loss.prox(centre, shift, problem, penalty, z, u, engine)

        return prox
    from fastadmm.kernels.sharing import centres_in_metric, prox_in_metric

    # A sample with r omega has the z of one with r and its weight over omega.
    n, r = len(total), float(penalty)
    centre, scaled, leaves = engine.vector(n), engine.vector(n), engine.leaves(n)
    engine.over_rows(centres_in_metric, leaves, total, u_before, weight, r, metric, centre, scaled)
    kernels, extra = loss.kernels(), loss.kernel_arguments()
    calls = (
        address_of(kernels.prox, (centre, scaled, y, scaled, extra, r, z, u, 0, 0)),
        address_of(kernels.evaluate, (z, y, weight, extra, u, 0, 0)),
        address_of(kernels.curvature, (z, y, weight, extra, u, 0, 0)),
    )
    given = centre, scaled, problem.offset, y, weight

    def prox_of_samples(b: float) -> tuple[float, float]:
        told = calls, extra, given, float(b), r, metric, z, u
        first, second = engine.sum_over_rows(prox_in_metric, leaves, (2,), *told).tolist()
        return first, second

    return prox_of_samples
