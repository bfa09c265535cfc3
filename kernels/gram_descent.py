r"""Coordinate descent on a Gram matrix: party problems with kinks and bounds, in time independent of N.

Minimises :math:`\tfrac12 (x - o)^\top G (x - o) + s^\top x + h(x)`, where G is the Gram
matrix of a block: with an origin of zero and :math:`s = -D^\top w` that is least squares, and around
a point o with the slope s there it keeps the digits of small moves. Cyclic order, so results are
deterministic. A pass costs :math:`d` operations per weight that moves.
"""

import math

from fastadmm.kernels.policy import inline, kernel

#: No violation is asked for below this share of ``G_jj |x_j|``, which rounds.
_ROUNDED = 1e-15

#: Passes over the moving weights between two passes over all.
_INNER_PASSES = 50


@inline
def _coordinate(gram, gradient, j, l1, l2, low, high, x):
    """Minimise over one weight; keep the gradient up to date; return the violation it removed.

    The violation is over the root of the curvature, so that the unit of a column does not matter.
    """
    curvature = gram[j, j] + l2
    old = x[j]
    if curvature > 0.0:
        centre = gram[j, j] * old - gradient[j]
        new = max(abs(centre) - l1, 0.0) / curvature
        if centre < 0.0:
            new = -new
    else:
        new = 0.0
    new = min(max(new, low), high)
    step = new - old
    if step == 0.0:
        return 0.0
    x[j] = new
    for k in range(len(x)):
        gradient[k] += step * gram[j, k]
    return abs(step) * math.sqrt(curvature)


@kernel
def gram_descent(gram, slope, origin, l1, l2, low, high, x, gradient, tolerance, max_passes):
    r"""Minimise with :math:`h(x) = l_1 \|x\|_1 + \tfrac{l_2}{2} \|x\|^2` on a box, in place.

    Shapes: gram (d, d); slope, origin (d,); x (d,); gradient (d,).
    ``gram``: G, symmetric. ``slope``, ``origin``: s and o. ``l1``, ``l2``: not negative. ``low``, ``high``:
    bounds of every weight; may be infinite. ``x``: In: warm start. Out: the minimiser. ``gradient``: Out: ``G
    (x - o) + s``. ``tolerance``: largest violation of a column's optimality condition that is left, relative
    to the largest of ``|s_j| + G_jj |x_j - o_j| + l1``, each over the root of the column's curvature.
    ``max_passes``: limit of passes over the columns.
    Returns: whether the tolerance was reached.
    """
    d = len(x)
    limit = 0.0
    for j in range(d):
        x[j] = min(max(x[j], low), high)
        curvature = gram[j, j] + l2
        if curvature > 0.0:
            size = abs(slope[j]) + gram[j, j] * abs(x[j] - origin[j]) + l1
            least = max(tolerance * size, _ROUNDED * gram[j, j] * abs(x[j]))
            limit = max(limit, least / math.sqrt(curvature))
        gradient[j] = slope[j]
    for j in range(d):
        move = x[j] - origin[j]
        if move != 0.0:
            for k in range(d):
                gradient[k] += move * gram[j, k]
    passes = 0
    while passes < max_passes:
        worst = 0.0
        for j in range(d):
            worst = max(worst, _coordinate(gram, gradient, j, l1, l2, low, high, x))
        passes += 1
        if worst <= limit:
            return True
        for _ in range(_INNER_PASSES):
            worst = 0.0
            for j in range(d):
                # A weight at its kink or bound is left to the passes over all.
                free = (x[j] != 0.0 or l1 == 0.0) and low < x[j] < high
                if free:
                    worst = max(worst, _coordinate(gram, gradient, j, l1, l2, low, high, x))
            passes += 1
            if worst <= limit or passes >= max_passes:
                break
    return False


@inline
def _shift(values, rotated, start, stop, threshold):
    r"""Root :math:`\nu` of :math:`\nu\,\|p / (\lambda + \nu)\| = t`, where :math:`\|p\| > t > 0`.

    Newton on the logarithms, whose slope lies in (0, 1), inside a bracket.
    """
    norm = 0.0
    small, large = math.inf, 0.0
    for i in range(start, stop):
        norm += rotated[i] * rotated[i]
        small = min(small, values[i])
        large = max(large, values[i])
    norm = math.sqrt(norm)
    ratio = threshold / (norm - threshold)
    high = large * ratio * (1.0 + 1e-12)
    low = max(small * ratio * (1.0 - 1e-12), 1e-30 * high)
    nu = math.sqrt(low) * math.sqrt(high)
    for _ in range(200):
        square, cube = 0.0, 0.0
        for i in range(start, stop):
            part = rotated[i] / (values[i] + nu)
            square += part * part
            cube += part * part * values[i] / (values[i] + nu)
        image = nu * math.sqrt(square)
        if image > threshold:
            high = nu
        else:
            low = nu
        following = nu * math.exp(-math.log(image / threshold) * square / cube) if cube > 0.0 else math.nan
        if not low < following < high:
            following = math.sqrt(low) * math.sqrt(high)
        if abs(following - nu) <= 1e-15 * nu:
            break
        nu = following
    return nu


@kernel
def group_descent(gram, right, starts, thresholds, values, vectors, x, gradient, tolerance, max_passes):
    r"""Minimise with :math:`h(x) = \sum_g t_g \|x_g\|`, in place; each group exactly, in turn.

    With the eigendecomposition of a group's Gram matrix the minimiser over
    the group is :math:`V (\Lambda + \nu)^{-1} V^\top c` with one scalar
    :math:`\nu = t_g / \|x_g\|`.

    Shapes: starts (n_groups + 1,); thresholds (n_groups,); values (d,); vectors (d, d).
    ``starts``: first column of each group. ``thresholds``: t_g, not negative. ``values``: eigenvalues of each
    group's Gram matrix, not negative. ``vectors``: their eigenvectors, as columns of the diagonal blocks.
    Others as in :func:`gram_descent`; columns ordered by group.
    Returns: whether the tolerance was reached.
    """
    d = len(x)
    scale = 0.0
    for j in range(d):
        scale = max(scale, abs(right[j]) + gram[j, j] * abs(x[j]))
        gradient[j] = -right[j]
    for j in range(d):
        if x[j] != 0.0:
            for k in range(d):
                gradient[k] += x[j] * gram[j, k]
    for g in range(len(thresholds)):
        scale = max(scale, thresholds[g])
    centre = right.copy()
    rotated = right.copy()
    passes = 0
    while passes < max_passes:
        worst = 0.0
        for g in range(len(thresholds)):
            start, stop = starts[g], starts[g + 1]
            norm = 0.0
            largest = 0.0
            for i in range(start, stop):
                total = -gradient[i]
                for k in range(start, stop):
                    total += gram[i, k] * x[k]
                centre[i] = total
                norm += total * total
                largest = max(largest, values[i])
            norm = math.sqrt(norm)
            inside = norm <= thresholds[g] or largest == 0.0
            if not inside:
                for i in range(start, stop):
                    total = 0.0
                    for k in range(start, stop):
                        total += vectors[k, i] * centre[k]
                    rotated[i] = total
                nu = 0.0
                if thresholds[g] > 0.0:
                    nu = _shift(values, rotated, start, stop, thresholds[g])
                for i in range(start, stop):
                    below = values[i] + nu
                    rotated[i] = rotated[i] / below if below > 0.0 else 0.0
            for i in range(start, stop):
                new = 0.0
                if not inside:
                    for k in range(start, stop):
                        new += vectors[i, k] * rotated[k]
                step = new - x[i]
                if step != 0.0:
                    x[i] = new
                    worst = max(worst, abs(step) * gram[i, i])
                    for k in range(d):
                        gradient[k] += step * gram[i, k]
        passes += 1
        if worst <= tolerance * scale or len(thresholds) == 1:
            return True
    return False
