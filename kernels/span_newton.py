"""Newton's method over a span, all steps in one call: the interpreter took most of the time.

The steps are those of :func:`fastadmm.coordinator.subspace.span.descend`: one is proposed, rows are passed
over, and it is judged. Loss and Hessian are called at the addresses of their kernels, so that these serve
every loss, and neither is compiled twice. :func:`newton_over_span` has the few rows of one leaf;
:func:`newton_over_leaves` shares the passes among threads; where rows are on other machines or in a scratch
file, the caller passes over them between :func:`propose_step` and :func:`judge_step`.
"""

from __future__ import annotations

import math

import numpy as np
from fastadmm.kernels.blas import factorise, solve_factorised
from fastadmm.kernels.pieces import call_kernel
from fastadmm.kernels.policy import inline, kernel
from fastadmm.kernels.rows import into_leaves, over_pieces
from fastadmm.kernels.vectors import LANES, dot, sum_by_halves

__all__ = [
    "BEST",
    "ENOUGH",
    "HERE",
    "LONG",
    "NUMBERS",
    "RENEW",
    "RENEWED",
    "SLOTS",
    "START",
    "TRIAL",
    "TURN",
    "controls",
    "judge_step",
    "newton_over_leaves",
    "newton_over_span",
    "propose_step",
]

#: Points that are held: the one where it is, the best, and the next.
SLOTS = 3

#: What is remembered from step to step, as whole numbers: slots; steps in a row that prove no more, pairs of
#: the secants, and steps; whether the Hessian is to be computed, has been factorised, is of this very point
#: and is a new one; whether the next step is known; whether a search along it is wanted; and whether of the
#: start nothing is known but where it is.
HERE, BEST, TRIAL, _IDLE, _COUNT, TURN, RENEW, _FACTORISED, FRESH, RENEWED, _KNOWN, LONG, START = range(13)
_CONTROLS = 13

#: Behind what slots prove: the decrease that a step promises, and what may be left.
_DECREASE, ENOUGH, NUMBERS = SLOTS, SLOTS + 1, SLOTS + 2


@inline
def _regularised(matrix, lead, scale, heavy, potrf, size, factor):
    """Factorise the Hessian of loss and regulariser, over its diagonal's roots; whether that succeeds."""
    n = len(matrix)
    for i in range(n):
        bend = matrix[i, i]
        # Saturated losses have no curvature left in the intercept.
        more = scale if i >= lead else (1e-14 if bend > 0.0 else 1.0) * heavy
        size[i] = math.sqrt(bend + more)
    ridge = 0.0
    while ridge < 1.0:
        for i in range(n):
            for j in range(n):
                factor[i, j] = 1.0 + ridge if i == j else matrix[i, j] / (size[i] * size[j])
        if factorise(potrf, factor) == 0:
            return True
        ridge = max(1e-14, 100.0 * ridge)
    return False


@inline
def _solve(factorised, factor, size, potrs, pairs, products, count, slope, out, sums):
    """Write the inverse of the Hessian, corrected by the last steps (BFGS, two loops), times a slope."""
    n, shares = len(slope), np.empty(max(1, count))
    for i in range(n):
        out[i] = slope[i]
    for k in range(count - 1, -1, -1):
        shares[k] = dot(pairs[0, k], out, sums) / products[k]
        for i in range(n):
            out[i] -= shares[k] * pairs[1, k, i]
    for i in range(n):
        out[i] /= size[i]
    if factorised:
        solve_factorised(potrs, factor, out)
    for i in range(n):
        out[i] /= size[i]
    for k in range(count):
        share = shares[k] - dot(pairs[1, k], out, sums) / products[k]
        for i in range(n):
            out[i] += share * pairs[0, k, i]


@inline
def _take(slot, products, lead, scale, tilt, points, slopes, numbers, sums):
    """Slope and objective at a point, of products of messages and gradient; its loss and sums are known."""
    k, c = len(tilt) - lead, points[slot, 1:]
    for j in range(k):
        slopes[slot, lead + j] = products[j] + scale * c[j]
    if lead == 1:
        slopes[slot, 0] = numbers[slot, 2]
    for i in range(len(tilt)):
        slopes[slot, i] += tilt[i]
    regulariser = 0.5 * scale * dot(c, c, sums) + dot(tilt, points[slot, 1 - lead :], sums)
    numbers[slot, 1] = numbers[slot, 0] + regulariser


@inline
def _renew(curve, hessian, syrk, here, extra, messages, lead, z, root, bend, matrix):
    """Write curvature and Hessian at a point."""
    base, total, intercept, target, weight = here
    n_rows = len(base)
    for i in range(n_rows):
        z[i] = (base[i] + total[i]) + intercept
    call_kernel(curve, (z, target, weight, *extra, bend, 0, n_rows))
    for i in range(n_rows):
        root[i] = math.sqrt(bend[i])
    matrix[:] = 0.0
    call_kernel(hessian, (messages, root, lead, syrk, matrix, 0, n_rows))
    for i in range(len(matrix)):
        for j in range(i):
            matrix[i, j] = matrix[j, i]


@inline
def controls(fresh):
    """What is remembered before the first step: whether the Hessian is to be computed for it."""
    control = np.zeros(_CONTROLS, dtype=np.int64)
    control[RENEW] = control[FRESH] = control[RENEWED] = 1 if fresh else 0
    return control


@inline
def _propose(libraries, about, points, slopes, matrix, control, proved, work):
    """Write the next step and where it leads; whether there is one."""
    potrf, potrs = libraries
    lead, scale, heavy = about
    size, factor, step, solved, pairs, products, _, sums = work
    here, best, n = control[HERE], control[BEST], len(matrix)
    if control[TURN] == 0:
        proved[here] = dot(slopes[here, lead:], slopes[here, lead:], sums) / (2.0 * scale)
    if control[RENEW] == 1 or control[TURN] == 0:
        factorised = _regularised(matrix, lead, scale, heavy, potrf, size, factor)
        control[_FACTORISED] = 1 if factorised else 0
        control[RENEW] = control[_KNOWN] = control[_COUNT] = 0
    if control[_KNOWN] == 0:
        factorised, count = control[_FACTORISED] == 1, control[_COUNT]
        _solve(factorised, factor, size, potrs, pairs, products, count, slopes[here], solved, sums)
    control[_KNOWN] = 0
    control[TURN] += 1
    for i in range(n):
        step[i] = -solved[i]
    decrease = proved[_DECREASE] = -dot(slopes[here], step, sums)
    if not (math.isfinite(decrease) and decrease > 0.0):
        return False
    trial = 0
    while trial in (here, best):
        trial += 1
    control[TRIAL] = trial
    points[trial, 0] = points[here, 0] + (step[0] if lead == 1 else 0.0)
    for j in range(n - lead):
        points[trial, 1 + j] = points[here, 1 + j] + step[lead + j]
    return True


@inline
def _judge(libraries, about, limits, tolerance, tilt, found, points, slopes, numbers, control, proved, work):
    """Take in the products, loss and sums that a pass has found where a step led; whether steps go on."""
    lead, scale, _ = about
    _, most_idle, contraction, flat, hidden, rounding, left = limits
    size, factor, step, solved, pairs, products, change, sums = work
    here, best, trial, n = control[HERE], control[BEST], control[TRIAL], len(step)
    k, decrease = n - lead, proved[_DECREASE]
    numbers[trial, 0], numbers[trial, 2], numbers[trial, 3] = found[k], found[k + 1], found[k + 2]
    _take(trial, found, lead, scale, tilt, points, slopes, numbers, sums)
    proved[trial] = dot(slopes[trial, lead:], slopes[trial, lead:], sums) / (2.0 * scale)
    if control[START] == 1:
        control[START], proved[ENOUGH] = 0, tolerance[0] + tolerance[1] * numbers[trial, 0]
        return True
    before, after = numbers[here, 1], numbers[trial, 1]
    lower = decrease > flat * abs(before) and after <= before - 1e-4 * decrease
    if not (lower or decrease > hidden * abs(before) or after > before + hidden * abs(before)):
        lower = abs(dot(slopes[trial], step, sums)) <= left * decrease
        proves_more = proved[trial] <= 0.25 * proved[here]
        lower = lower or (proves_more and after <= before + rounding * abs(before))
    if not lower:
        if control[FRESH] == 0:
            control[RENEW] = control[FRESH] = control[RENEWED] = 1
            return True
        control[LONG] = 1 if decrease > flat * abs(before) else 0
        return False
    for i in range(n):
        change[i] = slopes[trial, i] - slopes[here, i]
    product, count = dot(step, change, sums), control[_COUNT]
    if product > 0.0:
        for i in range(n):  # an assignment of arrays takes seconds to compile
            pairs[0, count, i], pairs[1, count, i] = step[i], change[i]
        products[count] = product
        control[_COUNT] = count + 1
    control[HERE], control[FRESH], control[_IDLE] = trial, 0, control[_IDLE] + 1
    if decrease > hidden * abs(after) or proved[trial] < proved[best]:
        control[BEST], control[_IDLE] = trial, 0
    if proved[trial] <= proved[ENOUGH] or control[_IDLE] >= most_idle:
        return False
    if decrease <= flat * abs(after):
        return True
    factorised, potrs = control[_FACTORISED] == 1, libraries[1]
    _solve(factorised, factor, size, potrs, pairs, products, control[_COUNT], slopes[trial], solved, sums)
    if dot(slopes[trial], solved, sums) <= contraction * decrease:
        control[_KNOWN] = 1
    else:
        control[RENEW] = control[FRESH] = control[RENEWED] = 1
    return True


@kernel
def propose_step(libraries, about, points, slopes, matrix, control, proved, work):
    """Write the next step and where it leads.

    Parameters
    ----------
    libraries, about, points, slopes, matrix, control, proved, work
        As of :func:`newton_over_leaves`.

    Returns
    -------
    bool
        Whether there is one.
    """
    return _propose(libraries, about, points, slopes, matrix, control, proved, work)


@kernel
def judge_step(
    libraries, about, limits, tolerance, tilt, found, points, slopes, numbers, control, proved, work
):
    """Take in what a pass has found where a step led.

    Parameters
    ----------
    found : ndarray of shape (K + 3,)
        Products of the columns and the gradient, loss, and sums of the gradient and its absolute values.
    libraries, about, limits, tolerance, tilt, points, slopes, numbers, control, proved, work
        As of :func:`newton_over_leaves`.

    Returns
    -------
    bool
        Whether steps go on.
    """
    given = found, points, slopes, numbers, control, proved, work
    return _judge(libraries, about, limits, tolerance, tilt, *given)


@kernel
def newton_over_leaves(
    share, calls, libraries, cuts, matrices, given, extra, about, limits, ends, state, memory
):
    """Newton's method over all weights from the point in slot 0, or on from where an earlier call ended.

    Parameters
    ----------
    share : int
        As of :func:`fastadmm.kernels.rows.over_rows`.
    calls : tuple of int
        Addresses of the loss's ``advance``, of ``curvature_at``, of the loss's ``curvature``, of
        ``beside_gram``, of ``sum_by_halves`` and of the library's ``dsyrk``; rows of a tile.
    libraries : tuple of int
        Addresses of the libraries' ``dpotrf`` and ``dpotrs``.
    cuts : tuple of ndarray of int64
        Borders of leaves, of those of a Gram matrix, and of its numbers.
    matrices : tuple of ndarray of shape (N, d_m)
        K columns in all.
    given, extra, limits
        As of :func:`newton_over_span`.
    about : tuple
        1 with an intercept, else 0; scale of the regulariser; the total weight.
    ends : tuple
        Of a start that is not known what may be left, and as a share of the loss there how much more, in a
        tuple; what is added to slopes, of shape (lead + K,); no further step here after so many in all.
    state : tuple
        By slot, as of :func:`newton_over_span`, ``points``, ``slopes`` and ``numbers``, which begin with what
        is known in slot 0; the Hessian, of shape (lead + K, lead + K); a tuple of vectors of shape (N,), by
        slot sums of messages, by slot gradients, predictor and curvature; and a tuple of room for what
        leaves find, of ``advance``, ``curvature_at`` and ``beside_gram``, and by slot for the first's sum.
    memory : tuple of ndarray
        ``control``, from :func:`controls`; ``proved``, of shape (NUMBERS,), what slots prove and, with a
        start that is known, what may be left; ``work``, a tuple of room for a step.

    Returns
    -------
    bool
        Whether steps are at their end.
    """
    advance, curved, curve, gram, fold, syrk, tile = calls
    leaves, gram_leaves, numbers_of_gram = cuts
    base, target, weight = given
    tolerance, tilt, turns = ends
    points, slopes, numbers, matrix, (totals, gradients, z, bend), rooms = state
    control, proved, work = memory
    own_found, own_bend, own_gram, found = rooms
    lead, n, nothing = about[0], len(matrix), np.empty(0)
    while control[TURN] < turns:
        starts = control[START] == 1
        if control[RENEW] == 1 and not starts:
            here = control[HERE]
            at = curve, base, totals[here], points[here, 0], target, weight, extra, bend, nothing
            into_leaves(share, curved, leaves, own_bend, at)
            into_leaves(share, gram, gram_leaves, own_gram, (matrices, lead, bend, tile, syrk))
            flat = own_gram.reshape(len(own_gram), n * n)
            over_pieces(share, fold, numbers_of_gram, (flat, matrix.reshape(n * n)))
            for i in range(n):
                for j in range(i):
                    matrix[i, j] = matrix[j, i]
        if not starts and not _propose(libraries, about, points, slopes, matrix, control, proved, work):
            return True
        trial = control[TRIAL]
        move = matrices, points[trial, 1:], nothing, base, points[trial, 0], target, weight
        into_leaves(share, advance, leaves, own_found, (*move, *extra, totals[trial], z, gradients[trial]))
        sum_by_halves(own_found, found[trial], 0, found.shape[1])
        known = found[trial], points, slopes, numbers, control, proved, work
        if not _judge(libraries, about, limits, tolerance, tilt, *known):
            return True
    return turns >= limits[0]


@kernel
def newton_over_span(
    calls, messages, given, extra, limits, lead, scale, heavy, tolerance, tilt, fresh, state
):
    """Newton's method from the point in slot 0.

    Parameters
    ----------
    calls : tuple of int
        Addresses of the loss's ``advance`` and ``curvature``, of ``span_hessian``, and of the libraries'
        ``dsyrk``, ``dpotrf`` and ``dpotrs``.
    messages : ndarray of shape (K, N)
    given : tuple of ndarray of shape (N,)
        Offset, targets and weights.
    extra : tuple
        The loss's parameters.
    limits : tuple
        Most steps; most of them in a row that prove no more; contraction that keeps the Hessian; shares of
        the objective below which a decrease is lost, may be lost, and is rounding; share of the derivative
        that may be left.
    lead : int
        1 with an intercept, else 0.
    scale, heavy : float
        Of the regulariser; the total weight.
    tolerance : float
    tilt : ndarray of shape (lead + K,)
        Added to slopes.
    fresh : bool
        Whether Hessian and slope in slot 0 are to be computed first.
    state : tuple of ndarray
        By slot intercept and coefficients, of shape (3, 1 + K); slopes, of shape (3, lead + K); loss,
        objective and sums of the gradient and of its absolute values, of shape (3, 4); sums of messages and
        gradients, of shape (3, N); and the Hessian, of shape (lead + K, lead + K), with its curvature, of
        shape (N,). All are written to.

    Returns
    -------
    slot : int
        Of the best point.
    ended : bool
        Otherwise the minimiser along the next step is wanted, from the point in this slot.
    renewed : bool
        Whether there is a new Hessian.
    """
    advance, curve, hessian, syrk, potrf, potrs = calls
    base, target, weight = given
    most_steps = limits[0]
    points, slopes, numbers, totals, gradients, matrix, bend = state
    k, n_rows = len(messages), len(base)
    n = lead + k
    sums, z, root, found = np.empty(LANES), np.empty(n_rows), np.empty(n_rows), np.empty(k + 3)
    size, factor, step, solved = np.empty(n), np.empty((n, n)), np.empty(n), np.empty(n)
    pairs, products, change = np.empty((2, most_steps, n)), np.empty(most_steps), np.empty(n)
    work = size, factor, step, solved, pairs, products, change, sums
    about, libraries = (lead, scale, heavy), (potrf, potrs)
    control, proved, start = controls(fresh), np.empty(NUMBERS), (tolerance, 0.0)
    proved[ENOUGH] = tolerance
    if fresh:
        for j in range(k):
            found[j] = dot(messages[j], gradients[0], sums)
        _take(0, found, lead, scale, tilt, points, slopes, numbers, sums)
    while control[TURN] < most_steps:
        here = control[HERE]
        if control[RENEW] == 1:
            here_is = base, totals[here], points[here, 0], target, weight
            _renew(curve, hessian, syrk, here_is, extra, messages, lead, z, root, bend, matrix)
        if not _propose(libraries, about, points, slopes, matrix, control, proved, work):
            break
        trial = control[TRIAL]
        found[:] = 0.0
        move = messages, step[lead:], totals[here], base, points[trial, 0], target, weight
        outputs = totals[trial], z, gradients[trial], found
        call_kernel(advance, (*move, *extra, *outputs, 0, n_rows))
        known = found, points, slopes, numbers, control, proved, work
        if not _judge(libraries, about, limits, start, tilt, *known):
            break
    renewed = control[RENEWED] == 1
    if control[LONG] == 1:
        return control[HERE], False, renewed
    return control[BEST], True, renewed
