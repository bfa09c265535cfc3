r"""Multinomial (softmax) loss :math:`\ell(z) = \log \sum_c e^{z_c} - z_y` of C scalars per sample.

Arrays of one number per sample and class are **class-major**, of shape (C, N):
a row range is contiguous within each class, and so are the messages of one
class. Labels are class numbers, as floats, like every target. Differences
``p_y - 1`` are formed as minus the sum of the other probabilities, so that tiny
gradients of well classified samples keep full relative precision.
"""

import math

import numpy as np
from fastadmm.kernels.exponential import SMALLEST_NORMAL, exp_nonpositive, log_positive
from fastadmm.kernels.loss_loops import Kernels
from fastadmm.kernels.policy import inline, kernel

#: Samples per block: a block of ten classes stays in the first-level cache.
_BLOCK = 128

#: A Newton step on the log-normaliser below this is the last: convergence is quadratic.
_LAST_STEP = 1e-8

#: Safety net; the worst ratios s / r (1e12) take about 60 steps.
_MAX_STEPS = 500

#: Classes of one sample must sum to zero to this share of its weight to lie in the conjugate's domain.
_DOMAIN = 1e-10


@inline
def _room(classes):
    """For a block: labels, top classes, their predictors and two sums, and probabilities."""
    labels = np.zeros(_BLOCK, np.int64), np.empty(_BLOCK, np.int64)
    return *labels, np.empty((3, _BLOCK)), np.empty((classes, _BLOCK))


@inline
def _normalise(z, begin, size, room):
    """Fill a block's probabilities, and their sums without the label's and without the top class."""
    label, most, work, likely = room
    classes, top, others, rest = len(z), work[0], work[1], work[2]
    for k in range(size):
        top[k] = z[0, begin + k]
        most[k] = 0
        others[k] = 0.0
        rest[k] = 0.0
    for c in range(1, classes):
        for k in range(size):
            higher = z[c, begin + k] > top[k]
            top[k] = z[c, begin + k] if higher else top[k]
            most[k] = c if higher else most[k]
    for c in range(classes):
        for k in range(size):
            e = exp_nonpositive(min(z[c, begin + k] - top[k], 0.0))
            likely[c, k] = e
            rest[k] += 0.0 if most[k] == c else e
            others[k] += 0.0 if label[k] == c else e
    for k in range(size):
        others[k] /= 1.0 + rest[k]
    for c in range(classes):
        for k in range(size):
            likely[c, k] /= 1.0 + rest[k]


@kernel
def multinomial_evaluate(z, target, weight, extra, gradient, start, stop):
    """Summed weighted loss over a row range; writes the gradient.

    Shapes: z (C, N); target, weight (N,); gradient (C, N).
    ``z``: linear predictors. ``target``, ``weight``: class numbers, sample weights. ``gradient``: output:
    ``weight * (p - onehot)``; sums to zero over the classes of a sample.
    Returns: ``sum(weight * (log(sum(exp(z))) - z[target]))`` over the range.
    """
    room = _room(len(z))
    total = 0.0
    for begin in range(start, stop, _BLOCK):
        total += _evaluate(z, begin, target, weight, gradient, begin, min(begin + _BLOCK, stop), room)
    return total


@inline
def _evaluate(z, place, target, weight, gradient, begin, end, room):
    """Summed weighted loss of a block of rows whose predictors begin at a place; writes the gradient."""
    label, _, work, likely = room
    top, others, rest, size = work[0], work[1], work[2], end - begin
    for k in range(size):
        label[k] = np.int64(target[begin + k])
    _normalise(z, place, size, room)
    for c in range(len(z)):
        for k in range(size):
            g = -others[k] if label[k] == c else likely[c, k]
            gradient[c, begin + k] = weight[begin + k] * g
    total = 0.0
    for k in range(size):
        total += weight[begin + k] * ((top[k] - z[label[k], place + k]) + np.log1p(rest[k]))
    return total


@kernel
def multinomial_advance(before, offset, intercept, target, weight, total, gradient, start, stop):
    """:func:`multinomial_evaluate` where a step of the predictors leads.

    Shapes: before, offset (C, N); intercept (C,); target, weight (N,); total (C, N); gradient (C, N).
    ``before``, ``offset``: sum of messages before the step; offset. ``total``: In: the step. Out: sum of
    messages.
    """
    classes = len(total)
    room, z = _room(classes), np.empty((classes, _BLOCK))
    value = 0.0
    for begin in range(start, stop, _BLOCK):
        end = min(begin + _BLOCK, stop)
        for c in range(classes):
            own, old, shift = total[c, begin:end], before[c, begin:end], offset[c, begin:end]
            for k in range(end - begin):
                own[k] += old[k]
                z[c, k] = (own[k] + shift[k]) + intercept[c]
        value += _evaluate(z, 0, target, weight, gradient, begin, end, room)
    return value


@inline
def _write(z, weight, out, start, stop, curved):
    """Write probabilities p or, where ``curved``, ``weight * p * (1 - p)``."""
    room = _room(len(z))
    _, most, work, likely = room
    rest = work[2]
    for begin in range(start, stop, _BLOCK):
        size = min(begin + _BLOCK, stop) - begin
        _normalise(z, begin, size, room)
        for c in range(len(z)):
            for k in range(size):
                p = likely[c, k]
                if curved:
                    left = rest[k] / (1.0 + rest[k]) if most[k] == c else 1.0 - p
                    p = weight[begin + k] * p * left
                out[c, begin + k] = p


@kernel
def multinomial_probabilities(z, target, weight, out, start, stop):
    """Write the probabilities of every class over a row range to ``out`` of shape (C, N).

    Arguments as in :func:`multinomial_evaluate`; targets and weights change nothing.
    """
    _write(z, weight, out, start, stop, False)


@kernel
def multinomial_curvature(z, target, weight, extra, out, start, stop):
    """Write the diagonal of the Hessian, ``weight * p * (1 - p)`` of shape (C, N), over a row range.

    Arguments as in :func:`multinomial_evaluate`. ``1 - p`` is the sum of the
    other classes where p is the largest.
    """
    _write(z, weight, out, start, stop, True)


@kernel
def multinomial_mean_curvature(gradient, weight, out, start, stop):
    """Write the mean over the classes of ``weight * p * (1 - p)`` over a row range, from a gradient.

    The gradient's entries are the probabilities, and of the label ``p - 1``: of each the curvature is its
    modulus g less g squared over the weight.

    Shapes: gradient (C, N); weight, out (N,).
    ``gradient``: as :func:`multinomial_evaluate` writes it.
    """
    classes = len(gradient)
    for begin in range(start, stop, _BLOCK):
        size = min(begin + _BLOCK, stop) - begin
        own, s = out[begin : begin + size], weight[begin : begin + size]
        own[:] = 0.0
        for c in range(classes):
            g = gradient[c, begin : begin + size]
            for k in range(size):
                least = abs(g[k])
                own[k] += max(least * (1.0 - least / (s[k] if s[k] > 0.0 else 1.0)), 0.0)
        for k in range(size):
            own[k] /= classes


@kernel
def multinomial_action(likely, weight, direction, out, start, stop):
    r"""Write the Hessian times a direction over a row range.

    .. math:: s\,(\mathrm{diag}(p) - p p^\top)\, v = s\, p \circ (v - \langle p, v\rangle)

    Shapes: likely (C, N); weight (N,); direction, out (C, N).
    ``likely``: probabilities p. ``direction``, ``out``: v; the output.
    """
    mean = np.empty(_BLOCK)
    for begin in range(start, stop, _BLOCK):
        size = min(begin + _BLOCK, stop) - begin
        for k in range(size):
            mean[k] = 0.0
        for c in range(likely.shape[0]):
            for k in range(size):
                mean[k] += likely[c, begin + k] * direction[c, begin + k]
        for c in range(likely.shape[0]):
            for k in range(size):
                i = begin + k
                out[c, i] = weight[i] * likely[c, i] * (direction[c, i] - mean[k])


@inline
def _omega(y):
    r"""Wright omega: the root w > 0 of :math:`w + \log w = y`, for :math:`y > -40`.

    Two steps of the fourth-order iteration of Fritsch, Shafer and Crowley
    (1973), from a start that is within half of the root.
    """
    w = y - np.log(y) if y > 2.0 else np.exp(0.5 * (y - 1.0)) if y > -1.0 else np.exp(y)
    for _ in range(3):
        r = y - w - np.log(w)
        factor = (1.0 + w) * (1.0 + w + 2.0 / 3.0 * r)
        w *= 1.0 + r / (1.0 + w) * (factor - 0.5 * r) / (factor - r)
    return w


@inline
def _share(level, ratio, log_ratio):
    """Probability p with ``log(p) + ratio p = level``."""
    y = level + log_ratio
    if y <= -40.0:  # ratio p is below rounding
        return np.exp(max(level, -708.0))
    return _omega(y) / ratio


@kernel
def multinomial_prox(v, shift, target, weight, penalty, z, gradient, slope, start, stop):
    r"""Proximal operator of the multinomial loss, by Newton on the log-normaliser.

    Solves for each sample
    :math:`\min_z\; s\,\ell(z + o) + \tfrac{r}{2} \|z - v\|^2`
    over C scalars. With :math:`\rho = s / r` and :math:`a = v + o + \rho e_y` the
    stationarity condition is :math:`\log p_c + \rho p_c = a_c - \eta` for every
    class, where :math:`\eta` is the log-normaliser: each :math:`p_c` is a Wright
    omega function of it, and :math:`\sum_c p_c(\eta) = 1` is one scalar equation.
    Its left side is convex and decreases, with derivative
    :math:`-\sum_c p_c / (1 + \rho p_c)`, which is what remains of the diagonal
    minus rank one Hessian: a step costs O(C). From the left of the root, where
    the largest :math:`p_c` is 1, Newton's iterates approach it monotonically,
    for any ratio s / r and any centre; a warm start only replaces that first point.

    Shapes: v (C, N); shift (C, N); target, weight (N,); z (C, N); gradient (C, N); slope (C, C).
    ``v``: proximal centre ``sum_m D_m x_m + u / r``. ``shift``: offset plus intercepts ``o``. ``target``,
    ``weight``: class numbers and sample weights s. ``penalty``: r, in the summed scaling. ``z``: In: warm
    start. Out: the minimiser. ``gradient``: Out: ``s * (p - onehot)`` at ``z + o``, equal to ``r (v - z)`` up
    to rounding, and always in the domain of the conjugate loss. ``slope``: added to: derivative of the summed
    gradients in the intercepts, :math:`\sum_i r s\,(\mathrm{diag}(q) - q q^\top / \sum q)` with :math:`q = p
    / (r + s p)`.
    """
    classes = v.shape[0]
    level = np.empty(classes)
    share = np.empty(classes)
    for i in range(start, stop):
        ratio = weight[i] / penalty
        label = np.int64(target[i])
        log_ratio = np.log(ratio) if ratio > 0.0 else -np.inf
        top = -np.inf
        warm = -np.inf
        for c in range(classes):
            level[c] = v[c, i] + shift[c, i] + (ratio if label == c else 0.0)
            top = max(top, level[c])
            warm = max(warm, z[c, i] + shift[c, i])
        total = 0.0
        for c in range(classes):
            level[c] -= top
            total += np.exp(z[c, i] + shift[c, i] - warm)
        # Between the largest share being 1 and all shares being 1 / C.
        low = -ratio
        high = np.log(classes) - ratio / classes
        eta = min(max(warm + np.log(total) - top, low), high)
        for _ in range(_MAX_STEPS):
            total = 0.0
            fall = 0.0
            for c in range(classes):
                p = _share(level[c] - eta, ratio, log_ratio)
                share[c] = p
                total += p
                fall += p / (1.0 + ratio * p)
            # Right of the root a tangent may lead far to the left of it: not beyond the first point.
            step = (total - 1.0) / fall
            following = min(max(eta + step, low), high)
            moved = following - eta
            eta = following
            if abs(moved) <= _LAST_STEP:
                for c in range(classes):
                    share[c] -= moved * share[c] / (1.0 + ratio * share[c])
                break
        total = 0.0
        for c in range(classes):
            total += share[c]
        others = 0.0
        mass = 0.0
        for c in range(classes):
            share[c] /= total
            others += 0.0 if c == label else share[c]
            mass += share[c] / (penalty + weight[i] * share[c])
        for c in range(classes):
            g = weight[i] * (-others if c == label else share[c])
            gradient[c, i] = g
            z[c, i] = v[c, i] - g / penalty
            q = share[c] / (penalty + weight[i] * share[c])
            scale = penalty * weight[i] * q
            slope[c, c] += scale
            for b in range(classes):
                slope[c, b] -= scale * (share[b] / (penalty + weight[i] * share[b])) / mass


@kernel
def multinomial_conjugate(u, target, weight, extra, start, stop):
    r"""Summed conjugate of the weighted losses at u; infinite outside its domain.

    With :math:`p = e_y + u / s` it is :math:`s \sum_c p_c \log p_c`, the negative
    entropy, for p in the simplex.

    Shapes: u (C, N); target, weight (N,).
    ``u``: dual vector. ``target``, ``weight``: class numbers, sample weights.
    """
    # Summed over the other classes: u, u log(u / s), and how many are outside.
    others, part, outside = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    total = 0.0
    for begin in range(start, stop, _BLOCK):
        end = min(begin + _BLOCK, stop)
        own_target, own_weight = target[begin:end], weight[begin:end]
        others[:], part[:], outside[:] = 0.0, 0.0, 0.0
        for c in range(u.shape[0]):
            own_u = u[c, begin:end]
            for k in range(end - begin):
                s = own_weight[k]
                share = 0.0 if own_target[k] == c else own_u[k]
                term = share * log_positive(max(share / (s if s > 0.0 else 1.0), SMALLEST_NORMAL))
                others[k] += share
                part[k] += term if (s > 0.0) & (share > 0.0) else 0.0
                outside[k] += 0.0 if share >= 0.0 else 1.0
        for k in range(end - begin):
            s, rest = own_weight[k], others[k]
            # The label's own share is what the others leave; its entry of u only has to agree.
            agrees = abs(rest + u[np.int64(own_target[k]), begin + k]) <= _DOMAIN * s
            if outside[k] > 0.0 or not rest <= s * (1.0 + _DOMAIN) or not agrees:
                total += math.inf
            elif s > 0.0 and rest < s:
                total += part[k] + (s - rest) * np.log1p(-rest / s)
            else:
                total += part[k]
    return total


multinomial = Kernels(multinomial_evaluate, multinomial_curvature, multinomial_prox, multinomial_conjugate)
