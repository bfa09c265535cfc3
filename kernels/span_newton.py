"""Newton's method over a span, all steps in one call: in Python the interpreter took most of the time.

The steps are those of :func:`fastadmm.method.span.minimise_over_span`: :func:`next_step` judges a step by
the result of a pass over the rows, and proposes the next. It is called by its address, like loss and Hessian,
so that the same code serves every loss and nothing is compiled twice. Rows are the few of one leaf.
"""

import math

import numpy as np
from fastadmm.kernels.blas import factorise, solve_factorised
from fastadmm.kernels.pieces import call_kernel
from fastadmm.kernels.policy import apart, kernel
from fastadmm.kernels.vectors import dot

#: Points that are held: the current one, the best, and the next.
SLOTS = 3

#: State between steps, as integers: slots; numbers of steps in a row that do not improve the proved gap, of
#: BFGS pairs, and of all steps; whether the Hessian is that of the current point, and whether it was computed
#: anew; what is wanted next; whether a line search is wanted; whether slopes are unknown at the start; and
#: whether the Hessian could be factorised.
HERE, BEST, TRIAL, _IDLE, _COUNT, _TURN, FRESH, RENEWED, WANTED, LONG, START, _FACTORISED = range(12)
CONTROLS = 12

#: What is wanted: nothing more; a pass at the next point; the Hessian at this one; or only the step from
#: here.
END, PASS, HESSIAN, STEP = range(4)

#: After the gaps that slots prove: the decrease that a step promises, and the gap that may be left.
_DECREASE, ENOUGH, NUMBERS = SLOTS, SLOTS + 1, SLOTS + 2


@apart
def _dot(u, v, sums):
    return dot(u, v, sums)


@apart
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


@apart
def _solve(factorised, factor, size, potrs, pairs, products, count, slope, out, sums):
    """Write the inverse of the Hessian, corrected by the last steps (BFGS, two loops), times a slope."""
    n, shares = len(slope), np.empty(max(1, count))
    for i in range(n):
        out[i] = slope[i]
    for k in range(count - 1, -1, -1):
        shares[k] = _dot(pairs[0, k], out, sums) / products[k]
        for i in range(n):
            out[i] -= shares[k] * pairs[1, k, i]
    for i in range(n):
        out[i] /= size[i]
    if factorised:
        solve_factorised(potrs, factor, out)
    for i in range(n):
        out[i] /= size[i]
    for k in range(count):
        share = shares[k] - _dot(pairs[1, k], out, sums) / products[k]
        for i in range(n):
            out[i] += share * pairs[0, k, i]


@apart
def _is_lower(here, trial, decrease, shares, step, slopes, numbers, proved, sums):
    """Whether a step decreases the objective; where rounding may hide that, the slopes decide.

    Parameters
    ----------
    here, trial : int
        Slots.
    decrease : float
        That the step promises.
    shares : tuple of float
        The last four of the limits of :func:`next_step`.
    step, slopes, numbers, proved, sums : ndarray
        As there.
    """
    flat, hidden, rounding, left = shares
    before, after = numbers[here, 1], numbers[trial, 1]
    if decrease > flat * abs(before) and after <= before - 1e-4 * decrease:
        return True
    if decrease > hidden * abs(before) or after > before + hidden * abs(before):
        return False
    # A convex function rises at most by its derivative at the end times the step, whatever rounding does.
    if abs(_dot(slopes[trial], step, sums)) <= left * decrease:
        return True
    return proved[trial] <= 0.25 * proved[here] and after <= before + rounding * abs(before)


@kernel
def next_step(libraries, about, limits, tilt, state, memory):
    """Process what was wanted; write the next step and its end, or what else is wanted.

    Parameters
    ----------
    libraries : tuple of int
        Addresses of the libraries' ``dpotrf`` and ``dpotrs``.
    about : tuple
        1 with an intercept, else 0; scale of the regulariser; the total weight.
    limits : tuple
        Most steps; most in a row that do not improve the proved gap; contraction that keeps the Hessian;
        shares of the objective below which a decrease is lost, may be lost, and is rounding; share of the
        derivative that may be left.
    tilt : ndarray of shape (lead + K,)
        What is added to slopes.
    state : tuple of ndarray
        By slot, of shape (SLOTS, ...): products of the columns and the gradient, loss, and sums of the
        gradient and of its absolute values (at least K + 3); intercept and coefficients (1 + K); slopes
        (lead + K); loss, objective and these sums (4). The Hessian, of shape (lead + K, lead + K).
    memory : tuple of ndarray
        ``control``, of shape (CONTROLS,); ``proved``, of shape (NUMBERS,), the gaps that slots prove and the
        gap that may be left; ``work``, a tuple of arrays for intermediate results.
    """
    potrf, potrs = libraries
    lead, scale, heavy = about
    found, points, slopes, numbers, matrix = state
    control, proved, work = memory
    most_steps, most_idle, contraction, flat, hidden, _, _ = limits
    size, factor, step, solved, pairs, products, change, sums = work
    here, best, trial, wanted, n = control[HERE], control[BEST], control[TRIAL], control[WANTED], len(matrix)
    k, slow = n - lead, False
    control[WANTED] = END
    if wanted == PASS:
        numbers[trial, 0], numbers[trial, 2] = found[trial, k], found[trial, k + 1]
        numbers[trial, 3], c = found[trial, k + 2], points[trial, 1:]
        for j in range(k):
            slopes[trial, lead + j] = found[trial, j] + scale * c[j]
        if lead == 1:
            slopes[trial, 0] = numbers[trial, 2]
        for i in range(n):
            slopes[trial, i] += tilt[i]
        regulariser = 0.5 * scale * _dot(c, c, sums) + _dot(tilt, points[trial, 1 - lead :], sums)
        numbers[trial, 1] = numbers[trial, 0] + regulariser
        proved[trial] = _dot(slopes[trial, lead:], slopes[trial, lead:], sums) / (2.0 * scale)
        if control[START] == 1:
            control[START], control[WANTED] = 0, HESSIAN
            return
        decrease = proved[_DECREASE]
        if not _is_lower(here, trial, decrease, limits[3:], step, slopes, numbers, proved, sums):
            if control[FRESH] == 1:
                control[LONG] = 1 if decrease > flat * abs(numbers[here, 1]) else 0
            elif control[_TURN] < most_steps:
                control[WANTED] = HESSIAN
                control[FRESH] = control[RENEWED] = 1
            return
        for i in range(n):
            change[i] = slopes[trial, i] - slopes[here, i]
        product, count = _dot(step, change, sums), control[_COUNT]
        if product > 0.0:
            for i in range(n):  # an assignment of arrays takes seconds to compile
                pairs[0, count, i], pairs[1, count, i] = step[i], change[i]
            products[count] = product
            control[_COUNT] = count + 1
        after = numbers[trial, 1]
        control[HERE], control[FRESH], control[_IDLE] = trial, 0, control[_IDLE] + 1
        if decrease > hidden * abs(after) or proved[trial] < proved[best]:
            control[BEST], control[_IDLE] = trial, 0
        if proved[trial] <= proved[ENOUGH] or control[_IDLE] >= most_idle or control[_TURN] >= most_steps:
            return
        here, best = trial, control[BEST]
        slow = decrease > flat * abs(after)
    else:
        proved[here] = _dot(slopes[here, lead:], slopes[here, lead:], sums) / (2.0 * scale)
        control[_FACTORISED] = 1 if _regularised(matrix, lead, scale, heavy, potrf, size, factor) else 0
        control[_COUNT] = 0
    factorised = control[_FACTORISED] == 1
    _solve(factorised, factor, size, potrs, pairs, products, control[_COUNT], slopes[here], solved, sums)
    promised = _dot(slopes[here], solved, sums)
    if slow and not promised <= contraction * proved[_DECREASE]:
        control[WANTED] = HESSIAN
        control[FRESH] = control[RENEWED] = 1
        return
    control[_TURN] += 1
    proved[_DECREASE] = promised
    if not (math.isfinite(promised) and promised > 0.0):
        return
    for i in range(n):
        step[i] = -solved[i]
    trial = 0
    while trial in (here, best):
        trial += 1
    control[TRIAL], control[WANTED] = trial, PASS
    points[trial, 0] = points[here, 0] + (step[0] if lead == 1 else 0.0)
    for j in range(k):
        points[trial, 1 + j] = points[here, 1 + j] + step[lead + j]


@kernel
def newton_over_span(calls, messages, given, extra, vectors, told, state, memory):
    """Newton's method from the point in slot 0.

    Parameters
    ----------
    calls : tuple of int
        Addresses of :func:`next_step`, of the loss's ``advance``, of ``curvature_at``, of the loss's
        ``curvature``, of ``span_hessian`` and of the library's ``dsyrk``.
    messages : ndarray of shape (K, N)
    given : tuple of ndarray of shape (N,)
        Offset, targets and weights.
    extra : tuple
        The loss's parameters.
    vectors : tuple of ndarray
        By slot sums of messages and gradients, of shape (SLOTS, N), and curvature, of shape (N,). Of a start
        that is not known, the first two are.
    told : tuple
        The first arguments of :func:`next_step`.
    state, memory : tuple of ndarray
        As of :func:`next_step`; of a start that is not known loss and sums are, with their slot.
    """
    decide, advance, curved, curve, hessian, syrk = calls
    base, target, weight = given
    totals, gradients, bend = vectors
    found, points, _, numbers, matrix = state
    control, step, sums, lead = memory[0], memory[2][2], memory[2][7], told[1][0]
    k, n, n_rows = len(messages), len(matrix), len(base)
    z, root = np.empty(n_rows), np.empty(n_rows)
    if control[START] == 1:
        for j in range(k):
            found[0, j] = _dot(messages[j], gradients[0], sums)
        found[0, k], found[0, k + 1], found[0, k + 2] = numbers[0, 0], numbers[0, 2], numbers[0, 3]
        call_kernel(decide, (*told, state, memory))
    while control[WANTED] != END:
        here, trial = control[HERE], control[TRIAL]
        if control[WANTED] == HESSIAN:
            at = curve, base, totals[here], points[here, 0], target, weight, extra, bend, root
            call_kernel(curved, (*at, sums, 0, n_rows))
            matrix[:] = 0.0
            call_kernel(hessian, (messages, root, lead, syrk, matrix, 0, n_rows))
            for i in range(n):
                for j in range(i):
                    matrix[i, j] = matrix[j, i]
        elif control[WANTED] == PASS:
            found[trial] = 0.0
            move = messages, step[lead:], totals[here], base, points[trial, 0], target, weight
            to = totals[trial], z, gradients[trial], found[trial]
            call_kernel(advance, (*move, extra, *to, 0, n_rows))
        call_kernel(decide, (*told, state, memory))
