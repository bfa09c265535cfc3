r"""The prover: how far a model can be from the best one, with the rounding of its own arithmetic.

For every dual vector u in the domain of the conjugate losses, with :math:`\sum_i u_i = 0` where an intercept
is free, and every model (x, b) with :math:`z = o + b + \sum_m D_m x_m`, in the summed scaling,

.. math:: W (F(x, b) - F^*) \le \sum_i \bigl[f_i(z_i) + f_i^*(u_i) - u_i z_i\bigr]
          + \sum_m \bigl[h_m(x_m) + h_m^*(-D_m^\top u) + \langle D_m^\top u, x_m\rangle\bigr]

with :math:`f_i = s_i \ell_i` and :math:`h_m = \lambda W R_m + \mathrm{ind}_{X_m}`. It is the primal less the
dual objective. Every bracket is at least zero by Fenchel's inequality, and zero at the optimum: nothing large
cancels, and errors of z and of :math:`D_m^\top u` count in second order where loss and penalty are smooth.
That it is that difference rests on :math:`\langle u, \sum_m D_m x_m\rangle = \sum_m \langle D_m^\top u,
x_m\rangle`, which is checked: it fails if one pass read other data or weights than another. The theorem with
all constants is in ``docs/certificate.md``.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastadmm.kernels.compensated import proof_sums
from fastadmm.problem.bounded_models import bounded_models
from fastadmm.problem.problem import Problem
from fastadmm.proof.claim import Proof, Within, proof_of, relative_gap
from fastadmm.proof.feasible import Balanced, balanced
from fastadmm.proof.share import UNIT, Share, gamma, party_share, row_roundings

Array = np.ndarray

#: Root of the least normal double.
_LEAST = 2.0**-511

#: Roundings of one row's loss or conjugate, relative to it: a few operations, exp and log to a few ulp.
_OF_A_ROW = 40.0


class Value(NamedTuple):
    """The loss at a model, summed scaling; arrays of shape (N,) or (C N,)."""

    total: Array  # sum of the parties' messages
    z: Array  # predictor
    gradient: Array
    loss: float
    sums: tuple[float, float] | None = None  # of the gradient and of its absolute values
    sizes: float = 0.0  # norms of the messages, if they were added up as if in twice the precision


class Dual(NamedTuple):
    """A dual vector, and what the rows say of it; summed scaling."""

    u: Array  # of shape (N,) or (C N,)
    norm: float
    eps: float  # distance to a feasible vector, as a share of its norm and of each entry
    is_gradient: bool  # of the loss, but for ``cut`` and ``eps``
    cut: float  # largest share of an entry that was taken away, for a sum of zero
    more: float  # what else that costs
    own: float  # norm of what rounding can have changed of a gradient, or of the rows' losses
    u_total: float  # products with the sum of the messages and the predictor
    u_z: float
    z: float  # norms
    total: float
    weight: float
    offset: float


def value_at(problem: Problem, total: Array, intercept: Any, engine: Any) -> Value:
    """The loss where the messages have a sum."""
    loss, y, weight, offset = problem.loss, problem.y, problem.weight, problem.offset
    z, gradient = engine.vector(len(total)), engine.vector(len(total))
    if problem.n_outputs == 1:
        parts = loss.measure_parts(problem, total, float(intercept), z, gradient, engine)
        value, *sums = engine.together(parts)[0].tolist()
        return Value(total, z, gradient, value, (sums[0], sums[1]))
    by_class = zip(*(v.reshape(problem.n_outputs, -1) for v in (z, offset, total)), strict=True)
    for (own, shift, messages), b in zip(by_class, intercept, strict=True):
        engine.plus(shift, messages, float(b), out=own)
    return Value(total, z, gradient, loss.evaluate(z, y, weight, gradient, engine))


def prove(
    problem: Problem,
    weights: Sequence[Array],
    intercept: Any,
    duals: Sequence[Array | None],
    engine: Any,
    asked: float,
) -> Proof:
    """Prove how good a model of a convex problem is, all of whose columns are at hand.

    Weights are of shape (d_m,) or (d_m, C). Of the dual vectors, None for the loss's gradient at the model,
    the first counts that proves the relative gap that is asked for, or else the best.
    """
    penalties = problem.penalties
    best: Proof | None = None
    for exact in (False, True):
        bounds, reach = bounded_models(problem, engine, norms=exact)
        value = _value_of(problem, weights, intercept, engine, exact)
        for u in duals:
            dual = dual_of(problem, value, u, engine, exact)
            shares = [
                party_share(block, penalty, x, dual[:3], bounded, engine, exact, problem.entry_roundings)
                for block, penalty, x, bounded in zip(problem.blocks, penalties, weights, bounds)
            ]
            proof = judge(problem, value, intercept, dual, shares, reach, engine, asked)
            best = proof if best is None else best.better(proof)
            if best.settled:
                return best
    assert best is not None  # there is a dual vector
    return best.above(least_loss(problem, engine))


def least_loss(problem: Problem, engine: Any) -> float:
    """Lower bound of the mean loss, whatever predicts; rounded down."""
    floor = problem.loss.least_of_all(problem.y, problem.weight, engine) / problem.total_weight
    k = row_roundings(engine.all_rows(len(problem.y))) + _OF_A_ROW
    return floor - gamma(k + 256.0) * abs(floor)


def _value_of(problem: Problem, weights: Sequence[Array], intercept: Any, engine: Any, exact: bool) -> Value:
    """The loss at a model, all of whose columns are at hand."""
    total, own, sizes = *(engine.vector(problem.message_size) for _ in range(2)), 0.0
    for m, (block, x) in enumerate(zip(problem.blocks, weights, strict=True)):
        into = own if m else total
        if exact:
            parts = [block.compensated_product(np.ascontiguousarray(c), engine) for c in np.atleast_2d(x.T)]
            into[:], sizes = np.concatenate(parts), sizes + math.hypot(*map(engine.norm, parts))
        elif x.ndim == 1:
            block.product_into(x, into, engine)
        else:
            into[:] = block.matrix_product(x.T.copy(), engine).ravel()
        for row, more in zip(*(v.reshape(problem.n_outputs, -1) for v in (total, own))) if m else ():
            engine.plus(row, more, out=row)
    return value_at(problem, total, intercept, engine)._replace(sizes=sizes)


def dual_of(
    problem: Problem, value: Value, u: Array | None, engine: Any, exact: bool, near: Balanced | None = None
) -> Dual:
    """A dual vector with what the rows say of it."""
    loss, y, shape = problem.loss, problem.y, (problem.n_outputs, len(problem.y))
    n = problem.n_outputs * engine.all_rows(len(y))
    given, total, z = value.gradient if u is None else u, value.total.reshape(shape), value.z.reshape(shape)
    told = total, z, y if loss.of_residual else y[:0], problem.weight, problem.offset.reshape(shape)

    def sums(u: Array) -> list[float]:
        leaves, rows = engine.leaves(len(y)), u.reshape(shape)
        return engine.sum_over_rows(proof_sums, leaves, (7,), rows, *told).tolist()

    found = sums(given)
    norms = math.sqrt(found[2]), math.sqrt(found[5])
    own = 16.0 * UNIT * loss.rounding_norm(given, problem, norms, engine)
    if found[2] == 0.0 and not given.any():
        u = given  # zero itself is feasible, and only nearly a gradient
    error = own * math.sqrt(n) if u is None else 0.0
    near = near or balanced(problem, given, error, engine, exact, value.sums if u is None else None)
    found = found if near.u is given else sums(near.u)
    # Squares below the least double vanish: no norm is less than theirs.
    least = math.sqrt(n) * _LEAST
    norm, *others = (math.sqrt(square) + least for square in found[2:])
    eps = near.eps + (own / norm if u is None else 0.0)
    return Dual(near.u, norm, eps, u is None, near.cut, near.more, own, found[0], found[1], *others)


def judge(
    problem: Problem,
    value: Value,
    intercept: Any,
    dual: Dual,
    shares: Sequence[Share],
    reach: float,
    engine: Any,
    asked: float,
    off_more: float = 0.0,
) -> Proof:
    r"""Add up what the rows and the parties say of a model and a dual vector."""
    loss, w, n = problem.loss, problem.total_weight, engine.all_rows(len(problem.y))
    few = len(shares) + problem.entry_roundings + 4.0
    wide = gamma(max(block.shape[1] for block in problem.blocks) + few + 16.0)
    k, of_all = gamma(row_roundings(n) + _OF_A_ROW), Share(*map(sum, zip(*shares)))
    weighed = of_all.weighed
    # How far z can be from the exact predictor, as a norm; and what that costs in second order.
    size = abs(intercept) if problem.n_outputs == 1 else float(np.linalg.norm(intercept))
    base, off = dual.offset + math.sqrt(n) * size, off_more
    if value.sizes > 0.0:
        off += gamma(few) * (value.sizes + base) + wide * wide * weighed
    elif weighed > 0.0 or problem.entry_roundings > 0.0 or problem.offset.any():
        off += wide * (weighed + base)  # else z is the intercept itself
    here = value.z, problem, dual.weight, off, engine
    bend = 0.5 * loss.most_curvature(*here) * off * off if loss.smooth else 0.0
    jump = 0.0 if loss.smooth or off == 0.0 else loss.slope_change(*here)
    extra = dual.own * math.sqrt(n * problem.n_outputs)
    objective = value.loss + of_all.penalty
    shape = -1, len(problem.y)
    slope = dual.norm if dual.is_gradient else engine.norm(value.gradient.reshape(shape))
    error = (k + wide) * abs(objective) + extra + bend + (slope + jump) * off

    # Both passes must have read the same data and weights.
    twist = abs(dual.u_total + of_all.inner)
    allowed = dual.norm * (off_more + wide * weighed + k * dual.total) + of_all.inner_error + 1e-290
    agree = twist <= 2.0 * allowed or not math.isfinite(allowed)
    reason = "" if agree else "two passes over the columns disagree"

    def gap(scale: float, of_parties: float) -> tuple[float, float]:
        """Upper bound of the gap at the scaled dual vector, and what of it is rounding of the rows."""
        nonlocal reason
        if not (scale > 0.0 and math.isfinite(of_parties + dual.eps)):
            return math.inf, 0.0
        if dual.is_gradient and scale == 1.0:
            # f(z) + f*(u) = u z at the gradient itself; a share less of it costs that share of f(z).
            left, rounding = dual.cut * abs(value.loss) + dual.more, dual.eps * abs(value.loss)
            rounding += dual.eps * dual.norm * dual.z if dual.more > 0.0 and problem.n_outputs > 1 else 0.0
            return left + rounding + (dual.cut + dual.eps) * dual.norm * off + bend + of_parties, rounding
        u = dual.u if scale == 1.0 else engine.each(np.multiply, dual.u, scale)
        knots = np.zeros(len(problem.y)) if loss.of_residual else problem.y
        left = value.loss + loss.conjugate(u, knots, problem.weight, engine) - scale * dual.u_z
        if not math.isfinite(left):
            return math.inf, 0.0
        sizes = abs(left) + 2.0 * abs(value.loss) + 2.0 * dual.norm * dual.z
        rounding = (k + dual.eps) * sizes + extra + bend + dual.more
        apart = engine.norm(engine.each(np.subtract, value.gradient, u).reshape(shape))
        rounding += (apart + jump + dual.eps * dual.norm) * off
        if left < -rounding:
            reason = "a loss and its conjugate contradict Fenchel's inequality"
        return max(left, 0.0) + rounding + of_parties, rounding

    scale, free = min(share.scale for share in shares), min(share.free for share in shares)
    left, rounding = gap(scale, sum(share.at(scale) for share in shares) if scale > 0.0 else math.inf)
    if 0.0 < free < scale and left > asked * abs(objective):
        other = gap(free, sum(share.at(free, free=True) for share in shares))
        scale, (left, rounding) = (scale, (left, rounding)) if left <= other[0] else (free, other)
    inside = math.inf
    if reach > 0.0 and scale < 1.0:
        inside, rounding = gap(1.0, of_all.within)
    rounding += of_all.rounding + error
    last = gamma(256.0)  # of the sum of weights, which NumPy adds in pairs of blocks
    least, up = objective - error, (1.0 + last) / w
    bound, bound_within = ((least - one) / w - last * abs(least - one) / w for one in (left, inside))
    top = (objective + error) / w + last * abs(objective + error) / w
    in_reach = Within(reach, bound_within, relative_gap(inside * up, top, bound_within))
    within = in_reach if math.isfinite(inside) else None
    numbers = top, bound, relative_gap(left * up, top, bound), left * up, rounding * up
    whole = not 0.0 < scale < 1.0 or (within and numbers[2] > asked)
    kept = dual.u if whole else dual.u * scale  # what proves the claim: among bounded models, the whole
    return proof_of(asked, objective / w, numbers, within, kept, reason)
