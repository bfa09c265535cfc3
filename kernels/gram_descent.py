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
