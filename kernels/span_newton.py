"""Newton's method over the span of few rows, all steps in one call: the interpreter took most of the time.

The steps are those of :func:`fastadmm.coordinator.subspace.span.descend`. Loss and Hessian are called at the
addresses of their kernels, so that this one serves every loss, and neither is compiled twice.
"""

from __future__ import annotations

import math

import numpy as np
from fastadmm.kernels.blas import factorise, solve_factorised
from fastadmm.kernels.pieces import call_kernel
from fastadmm.kernels.policy import inline, kernel
from fastadmm.kernels.vectors import LANES, dot

__all__ = ["SLOTS", "newton_over_span"]

#: Points that are held: the one where it is, the best, and the next.
SLOTS = 3


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
    most_steps, most_idle, contraction, flat, hidden, rounding, left = limits
    points, slopes, numbers, totals, gradients, matrix, bend = state
    k, n_rows = len(messages), len(base)
    n = lead + k
    sums, z, root, found = np.empty(LANES), np.empty(n_rows), np.empty(n_rows), np.empty(k + 3)
    size, factor, step, solved = np.empty(n), np.empty((n, n)), np.empty(n), np.empty(n)
    pairs, products, change = np.empty((2, most_steps, n)), np.empty(most_steps), np.empty(n)
    here, best, idle, count = 0, 0, 0, 0
    renew, factorised, known, renewed = fresh, False, False, fresh
    if fresh:
        for j in range(k):
            found[j] = dot(messages[j], gradients[0], sums)
        _take(0, found, lead, scale, tilt, points, slopes, numbers, sums)
    proved = np.empty(SLOTS)
    proved[0] = dot(slopes[0, lead:], slopes[0, lead:], sums) / (2.0 * scale)
    for turn in range(most_steps):
        if renew:
            here_is = base, totals[here], points[here, 0], target, weight
            _renew(curve, hessian, syrk, here_is, extra, messages, lead, z, root, bend, matrix)
        if renew or turn == 0:
            factorised = _regularised(matrix, lead, scale, heavy, potrf, size, factor)
            renew, known, count = False, False, 0
        if not known:
            _solve(factorised, factor, size, potrs, pairs, products, count, slopes[here], solved, sums)
        known = False
        for i in range(n):
            step[i] = -solved[i]
        decrease = -dot(slopes[here], step, sums)
        if not (math.isfinite(decrease) and decrease > 0.0):
            break
        trial = 0
        while trial in (here, best):
            trial += 1
        points[trial, 0] = points[here, 0] + (step[0] if lead == 1 else 0.0)
        for j in range(k):
            points[trial, 1 + j] = points[here, 1 + j] + step[lead + j]
        found[:] = 0.0
        move = messages, step[lead:], totals[here], base, points[trial, 0], target, weight
        outputs = totals[trial], z, gradients[trial], found
        call_kernel(advance, (*move, *extra, *outputs, 0, n_rows))
        numbers[trial, 0], numbers[trial, 2], numbers[trial, 3] = found[k], found[k + 1], found[k + 2]
        _take(trial, found, lead, scale, tilt, points, slopes, numbers, sums)
        proved[trial] = dot(slopes[trial, lead:], slopes[trial, lead:], sums) / (2.0 * scale)
        before, after = numbers[here, 1], numbers[trial, 1]
        lower = decrease > flat * abs(before) and after <= before - 1e-4 * decrease
        if not (lower or decrease > hidden * abs(before) or after > before + hidden * abs(before)):
            lower = abs(dot(slopes[trial], step, sums)) <= left * decrease
            proves_more = proved[trial] <= 0.25 * proved[here]
            lower = lower or (proves_more and after <= before + rounding * abs(before))
        if not lower:
            if not fresh:
                renew = fresh = renewed = True
                continue
            if decrease <= flat * abs(before):
                break
            return here, False, renewed
        for i in range(n):
            change[i] = slopes[trial, i] - slopes[here, i]
        product = dot(step, change, sums)
        if product > 0.0:
            pairs[0, count], pairs[1, count], products[count] = step, change, product
            count += 1
        here, fresh, idle = trial, False, idle + 1
        if decrease > hidden * abs(after) or proved[here] < proved[best]:
            best, idle = here, 0
        if proved[here] <= tolerance or idle >= most_idle:
            break
        if decrease <= flat * abs(after):
            continue
        _solve(factorised, factor, size, potrs, pairs, products, count, slopes[here], solved, sums)
        known = dot(slopes[here], solved, sums) <= contraction * decrease
        if not known:
            renew = fresh = renewed = True
    return best, True, renewed
