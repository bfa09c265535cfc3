"""The kernels of a loss, made of functions of one row: the loops over rows are the same for all.

A loss gives the functions ``value``, ``bend``, ``proximal`` (or ``closed_prox``) and ``dual`` below, or a
kernel of its own. Their last argument, ``extra``, is the tuple of the loss's parameters. Sums are over
blocks: in the order of the rows, or by halves, which leaves the loop to vector instructions.

:func:`loss_at` and :func:`curvature_at` do what ``advance`` would without messages, at a sum of them.
"""

from collections.abc import Callable, Collection
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from fastadmm.kernels.block_sum import BLOCK, block_sum
from fastadmm.kernels.pieces import call_kernel
from fastadmm.kernels.policy import inline, kernel
from fastadmm.kernels.span import span_blocks, span_move, span_slopes
from fastadmm.kernels.vectors import total_and_size


class Kernels(NamedTuple):
    """The compiled functions of a loss; each works on a row range, but for ``prox_of_row``.

    Without ``prox_of_row`` there is no coordinate ascent on rows.
    """

    evaluate: Any
    curvature: Any
    prox: Any
    conjugate: Any
    advance: Any = None
    prox_of_row: Any = None


def value(z, y, s, extra):
    """Loss of a row and its derivative (at a kink a subgradient), both times the weight s."""


def bend(z, y, s, extra):
    """Second derivative of a row's loss, times the weight."""


def proximal(v, shift, near, y, s, penalty, extra):
    """Proximal point, gradient and its derivative in the shift; ``near`` is where an iteration may begin."""


def closed_prox(centre, y, s, penalty, extra):
    """Gradient at the proximal point of ``centre``, in the conjugate's domain, and its derivative."""


def dual(part, u, y, s, extra):
    """A partial sum with the conjugate of the row's weighted loss at u added; infinite outside its domain."""


@inline
def in_order(work, row, size):
    """Sum the first ``size`` numbers of a row one after the other."""
    total = 0.0
    for k in range(size):
        total += work[row, k]
    return total


#: How a block's numbers are added up.
add_up: Any = None

#: What ``advance`` calls.
evaluate: Any = None


def _evaluate(z, target, weight, extra, gradient, start, stop):
    """Summed weighted loss over a row range; writes the gradient.

    Shapes: z, target, weight (N,); gradient (N,).
    ``z``, ``target``, ``weight``: linear predictor, targets, sample weights s. ``gradient``: output: ``weight
    * loss'(z)``, in the domain of the conjugate.
    """
    # Slices of one length each: LLVM checks once a block that they do not overlap, and vectorises.
    work = np.empty((1, BLOCK))
    total = 0.0
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        own_z, own_target, own_weight = z[begin:end], target[begin:end], weight[begin:end]
        own_gradient = gradient[begin:end]
        for k in range(end - begin):
            work[0, k], own_gradient[k] = value(own_z[k], own_target[k], own_weight[k], extra)
        total += add_up(work, 0, end - begin)
    return total


def _advance(
    messages, step, origin, base, intercept, target, weight, extra, total, z, gradient, slopes, start, stop
):
    """A step in the span of the messages and the loss there; arguments as in :mod:`fastadmm.kernels.span`."""
    value = 0.0
    for begin, end in span_blocks(len(step), start, stop):
        span_move(messages, step, origin, base, intercept, total, z, begin, end)
        value += evaluate(z, target, weight, extra, gradient, begin, end)
        span_slopes(messages, gradient, slopes, begin, end)
        total_and_size(gradient, slopes[len(step) + 1 :], begin, end)
    slopes[len(step)] += value


def _curvature(z, target, weight, extra, curvature, start, stop):
    """Write the weighted second derivative over a row range; arguments as in ``evaluate``."""
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        own_z, own_target, own_weight = z[begin:end], target[begin:end], weight[begin:end]
        own = curvature[begin:end]
        for k in range(end - begin):
            own[k] = bend(own_z[k], own_target[k], own_weight[k], extra)


def _prox(v, shift, target, weight, extra, penalty, z, gradient, start, stop):
    r"""Proximal operator: :math:`\min_z\; s\,\ell(z + o) + \tfrac{r}{2} (z - v)^2` for each sample.

    It is the z-update of ADMM sharing (Hu et al., equation 7).

    Shapes: v, shift (N,); target, weight (N,); z (N,); gradient (N,).
    ``v``, ``shift``: proximal centre ``sum_m D_m x_m + u / r``; offset plus intercept o. ``target``,
    ``weight``: targets and sample weights s. ``penalty``: r, in the summed scaling. ``z``: In: warm start,
    where one is needed. Out: the minimiser. ``gradient``: Out: ``s * loss'(z + o)``, equal to ``r (v - z)``
    up to rounding, and always in the domain of the conjugate loss.
    Returns: sum of the gradients, and of their derivatives ``r h / (r + h)`` in the shift: what a Newton step
    on the intercept needs.
    """
    work = np.empty((3, BLOCK))
    sum_gradient = 0.0
    sum_slope = 0.0
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        own_v, own_shift, own_z = v[begin:end], shift[begin:end], z[begin:end]
        own_target, own_weight, own_gradient = target[begin:end], weight[begin:end], gradient[begin:end]
        for k in range(end - begin):  # writes to one array: more that may overlap are not vectorised
            work[0, k], work[1, k], work[2, k] = proximal(
                own_v[k], own_shift[k], own_z[k], own_target[k], own_weight[k], penalty, extra
            )
        for k in range(end - begin):
            own_z[k] = work[0, k]
        for k in range(end - begin):
            own_gradient[k] = work[1, k]
        sum_gradient += add_up(work, 1, end - begin)
        sum_slope += add_up(work, 2, end - begin)
    return sum_gradient, sum_slope


def _prox_of_row(centre, start, target, weight, extra, penalty, found):
    """The gradient of ``prox`` for one sample, written to ``found[0]``.

    Shapes: found (1,).
    ``centre``: of the linear predictor: proximal centre, and where to begin.
    """
    found[0], _ = closed_prox(centre, target, weight, penalty, extra)


def _conjugate(u, target, weight, extra, start, stop):
    """Summed conjugate of the weighted losses at u of shape (N,); infinite outside its domain."""
    total = 0.0
    for begin in range(start, stop, BLOCK):
        part = 0.0
        for i in range(begin, min(begin + BLOCK, stop)):
            part = dual(part, u[i], target[i], weight[i], extra)
        total += part
    return total


def _conjugate_by_halves(u, target, weight, extra, start, stop):
    """As :func:`_conjugate`, in vector instructions."""
    work = np.empty((1, BLOCK))
    total = 0.0
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        own_u, own_target, own_weight = u[begin:end], target[begin:end], weight[begin:end]
        for k in range(end - begin):
            work[0, k] = dual(0.0, own_u[k], own_target[k], own_weight[k], extra)
        total += block_sum(work, 0, end - begin)
    return total


def loss_kernels(
    name: str,
    value: Callable[..., Any],
    bend: Callable[..., Any],
    dual: Callable[..., Any] | None = None,
    proximal: Callable[..., Any] | None = None,
    closed_prox: Callable[..., Any] | None = None,
    by_halves: Collection[str] = (),
    **own: Any,
) -> Kernels:
    """The kernels of a loss, of its functions of one row.

    ``name``: of the loss; the kernels' names begin with it. ``by_halves``: the kernels whose sums are added
    up by halves. ``own``: kernels of the loss's own, by their fields.
    """

    def made(template: Any, field: str, **functions: Any) -> Any:
        # By globals: Numba would not find a kernel with a closure in its cache again in another process.
        functions["add_up"] = block_sum if field in by_halves else in_order
        function = FunctionType(template.__code__, {**globals(), **functions}, f"{name}_{field}")
        function.__module__, function.__qualname__ = value.__module__, function.__name__
        function.__doc__ = template.__doc__
        return kernel(function)

    own["evaluate"] = made(_evaluate, "evaluate", value=inline(value))
    own["curvature"] = made(_curvature, "curvature", bend=inline(bend))
    own["advance"] = made(_advance, "advance", evaluate=own["evaluate"])
    if dual is not None:
        template = _conjugate_by_halves if "conjugate" in by_halves else _conjugate
        own["conjugate"] = made(template, "conjugate", dual=inline(dual))
    if closed_prox is not None:
        closed = inline(closed_prox)

        def proximal(v: Any, shift: Any, near: Any, y: Any, s: Any, penalty: Any, extra: Any) -> Any:
            gradient, slope = closed(v + shift, y, s, penalty, extra)
            return v - gradient / penalty, gradient, slope

        own["prox_of_row"] = made(_prox_of_row, "prox_of_row", closed_prox=closed)
    if proximal is not None:
        own["prox"] = made(_prox, "prox", proximal=inline(proximal))
    return Kernels(**own)


#: Rows that are added up at once.
_ROWS = 1 << 17


@kernel
def loss_at(evaluate, base, total, intercept, target, weight, extra, z, gradient, sums, start, stop):
    """Write a loss's gradient at ``base + total + intercept``, and add up both.

    Shapes: base, total (N,); target, weight (N,); z, gradient (N,); sums (3,).
    ``evaluate``: address of the loss's ``evaluate``. ``z``, ``gradient``: written to: the predictor, and the
    weighted gradient. ``sums``: the loss is added, the sum of the gradient, and that of its absolute values.
    """
    value, own_sums = 0.0, sums[1:]
    for begin in range(start, stop, _ROWS):
        end = min(begin + _ROWS, stop)
        own_z, own_base, own_total = z[begin:end], base[begin:end], total[begin:end]
        for k in range(end - begin):
            own_z[k] = (own_base[k] + own_total[k]) + intercept
        value += call_kernel(evaluate, (z, target, weight, extra, gradient, begin, end))[0]
        total_and_size(gradient, own_sums, begin, end)
    sums[0] += value


@kernel
def curvature_at(curve, base, total, intercept, target, weight, extra, bend, root, sums, start, stop):
    """Write a loss's curvature at ``base + total + intercept``, and add it up.

    Shapes: bend (N,); root (N,) or (0,); sums (2,).
    ``curve``: address of the loss's ``curvature``. ``bend``: written to. ``root``: written to, if it has
    room: the square root. ``sums``: the sum of the curvature is added, and that of its absolute values.
    Others as for :func:`loss_at`.
    """
    z = np.empty(BLOCK)
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        own_z, own_base, own_total = z[: end - begin], base[begin:end], total[begin:end]
        for k in range(end - begin):  # a function for this would cost both kernels compile time
            own_z[k] = (own_base[k] + own_total[k]) + intercept
        own = bend[begin:end]
        call_kernel(curve, (own_z, target[begin:end], weight[begin:end], extra, own, 0, end - begin))
        if len(root) != 0:
            own_root = root[begin:end]
            for k in range(end - begin):
                own_root[k] = np.sqrt(own[k])
    total_and_size(bend, sums, start, stop)
