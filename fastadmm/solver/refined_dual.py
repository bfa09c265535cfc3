r"""A dual vector with the slopes that the penalty asks for, next to one that has them only roughly.

Weights are rounded, and so are predictors: of large columns the loss's gradient at the model is then far from
what the penalty balances, however good the model is. The dual vector of a proof need not be that gradient.
With H the loss's curvatures and A the columns whose weights are free, and one of ones for the intercept,

.. math:: u' = u + H A w, \qquad A^\top H A\, w = -(A^\top u + \nabla h(x))

moves it by the least that gives :math:`A^\top u' = -\nabla h(x)`. The gap is then that of a Newton step,
where the gradient's own would be larger by the condition of the problem. Whether it proves more the prover
says.
"""

import numpy as np
import scipy.linalg

from fastadmm.engine.engine import Engine
from fastadmm.problem.centring import exact_products
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Numbers of a table that is read for this, and columns of it, at most: seconds, where a proof has failed.
_MOST_NUMBERS, _MOST_COLUMNS = 1 << 26, 2048

#: Columns that others span but for so little are left out.
_SAME_COLUMN = 1e-13

#: Corrections: each takes what rounding left of the last.
_PASSES = 3


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def refined_dual(
    problem: Problem, weights: list[Array], intercept: float, u: Array | None, engine: Engine
) -> Array | None:
    """A dual vector near another; None where that is not worth a try.

    Shapes: each of weights (d_m,); u (N,).
    Scaling: u summed scaling.
    """
    widths = [len(x) for x in weights]
    n = problem.n_samples
    small = engine.all_rows(n) * sum(widths) <= _MOST_NUMBERS and sum(widths) <= _MOST_COLUMNS
    if not small or problem.n_outputs > 1:
        return None
    z = problem.offset + intercept
    for block, x in zip(problem.blocks, weights):
        z += block.product(x, engine)
    if u is None:
        u = np.empty(n)
        problem.loss.evaluate(z, problem.y, problem.weight, u, engine)
    held, slopes = [], []
    for penalty, x in zip(problem.penalties, weights):
        first, second = penalty.coefficients
        own = penalty.regularizer.stiffness(x) * x if first > 0.0 else np.zeros_like(x)
        if penalty.constraint.coupled or np.linalg.norm(x) >= 0.999 * penalty.constraint.radius:
            return None  # its equations or the ball hold it
        slopes.append(first * own + second * x)
        held.append(penalty.held(x))
    free = [np.flatnonzero(~own) for own in held]
    parts = [block.columns(own, engine) for block, own in zip(problem.blocks, free) if len(own)]
    ones = [np.ones((len(z), 1))] if problem.fit_intercept else []
    if not (parts or ones):
        return None
    # All rows are everywhere for this: it does not depend on how many workers have a share.
    columns = np.stack(engine.gather(*np.hstack([*parts, *ones]).T), axis=1)
    target = np.concatenate([*(-s[own] for s, own in zip(slopes, free)), np.zeros(len(ones))])
    bend, u = engine.gather(_bends(problem, z, u, engine), u)
    equations = np.sqrt(bend)[:, None] * columns
    size = np.maximum(np.sqrt((equations * equations).sum(axis=0)), 1e-300)
    r, order = scipy.linalg.qr(equations / size, mode="r", pivoting=True, check_finite=False)
    pivots = np.abs(np.diag(r))
    rank = int((pivots > _SAME_COLUMN * pivots.max(initial=0.0)).sum())
    own, r = order[:rank], r[:rank, :rank]
    for _ in range(_PASSES):
        pairs = (exact_products(column, u) for column in columns.T)
        sums = [float(np.sum(high.astype(np.longdouble)) + np.sum(low)) for high, low in pairs]
        missing = target - np.array(sums)
        w = np.zeros(len(size))
        if not np.isfinite([*r.ravel(), *missing, *size]).all():
            return None  # numbers so large that their squares overflow
        right = scipy.linalg.solve_triangular(r, missing[own] / size[own], trans=1)
        w[own] = scipy.linalg.solve_triangular(r, right) / size[own]
        u = u + bend * (columns @ w)
    return np.ascontiguousarray(u[engine.first_row : engine.first_row + n])


def _bends(problem: Problem, z: Array, u: Array, engine: Engine) -> Array:
    """How far each entry may move: the loss's curvature, or of a kink the room in the domain."""
    loss, weight = problem.loss, problem.weight
    if loss.smooth:
        return loss.curvature(z, problem.y, weight, np.empty_like(z), engine)
    ends = [np.empty_like(z) for _ in range(2)]
    for side, slope in zip((-1e300, 1e300), ends):  # slopes of the last pieces
        loss.evaluate(np.full_like(z, side), problem.y, weight, slope, engine)
    low, high = ends
    room = np.maximum((u - low) * (high - u), 0.0)
    return np.divide(room, weight, out=np.zeros_like(room), where=weight > 0.0)
