r"""The fused round of ADMM sharing over one tile of rows, while the tile is in the cache.

Everything between the messages and the next targets is a matter of single
rows, as long as no intercept couples them. So one read of a tile does a round:
products of every party, :func:`sweep_centres`, the loss's proximal operator
and value (kernels of the loss), :func:`sweep_targets`, and the images of three
vectors under the transposed tile (:mod:`fastadmm.kernels.dense_tile`), as steps
of :mod:`fastadmm.kernels.steps`.
"""

from __future__ import annotations

from fastadmm.kernels.policy import inline, kernel

__all__ = ["sweep_add", "sweep_centres", "sweep_correct", "sweep_divide", "sweep_relax", "sweep_targets"]


@kernel
def sweep_centres(messages, u, z_before, offset, penalty, total, centre, predictor, z, start, stop):
    """Sum the messages, and write what the z-update and the loss start from.

    Parameters
    ----------
    messages : ndarray of shape (M, N)
        New messages.
    u, z_before, offset : ndarray of shape (N,)
        Dual variable and z of the round before; offset of the predictor.
    penalty : float
        r, summed scaling.
    total : ndarray of shape (N,)
        Out: S, added up in the parties' order.
    centre : ndarray of shape (N,)
        Out: ``S + u / r``.
    predictor : ndarray of shape (N,)
        Out: ``offset + S``.
    z : ndarray of shape (N,)
        Out: ``z_before``, the warm start.
    start, stop : int
        Row range.
    """
    _add_up(messages, total, start, stop)
    for i in range(start, stop):
        centre[i] = total[i] + u[i] / penalty
        predictor[i] = offset[i] + total[i]
        z[i] = z_before[i]


@kernel
def sweep_targets(messages, total, z, u, dual, penalty, tau, pull, vectors, start, stop):
    r"""Write the vectors whose images the parties need: dual point, pull and next target.

    .. math:: \mathrm{pull} = u + r (S - z), \qquad
              w_m = a_m - \frac{(S - z) + u / r}{\tau}

    Parameters
    ----------
    messages : ndarray of shape (M, N)
        New messages a_m.
    total, z, u : ndarray of shape (N,)
        S, and z and u after their updates.
    dual : ndarray of shape (N,)
        Where the certificate takes its bound: loss gradient or u.
    penalty, tau : float
        r in the summed scaling; majorisation factor.
    pull : ndarray of shape (N,)
        Out.
    vectors : ndarray of shape (M, at least 3, n), n at least ``stop - start``
        Out, for each party, rows from 0: dual, pull, w_m; others are left alone.
    start, stop : int
        Row range.
    """
    for i in range(start, stop):
        pull[i] = u[i] + penalty * (total[i] - z[i])
    for m in range(len(messages)):
        row, own = messages[m], vectors[m]
        for i in range(start, stop):
            own[0, i - start] = dual[i]
        for i in range(start, stop):
            own[1, i - start] = pull[i]
        for i in range(start, stop):
            own[2, i - start] = row[i] - ((total[i] - z[i]) + u[i] / penalty) / tau


@kernel
def sweep_relax(answers, before, z_before, u, relaxation, penalty, messages, total, centre, start, stop):
    """Write over-relaxed messages (:mod:`fastadmm.coordinator.admm.schemes`) and the centre of the z-update.

    Parameters
    ----------
    answers, before : ndarray of shape (M, N)
        New messages as they were sent; those of the round before, relaxed.
    z_before, u : ndarray of shape (N,)
        z of the round before; dual variable as the z-update sees it.
    relaxation, penalty : float
        alpha; r, summed scaling.
    messages : ndarray of shape (M, N)
        Out: the relaxed ones.
    total, centre : ndarray of shape (N,)
        Out: their sum S, and ``S + u / r``.
    start, stop : int
        Row range.
    """
    count, rest = len(answers), 1.0 - relaxation
    _add_up(before, total, start, stop)
    for i in range(start, stop):
        total[i] = (total[i] - z_before[i]) / count
    for m in range(count):
        new, old, out = answers[m], before[m], messages[m]
        for i in range(start, stop):
            out[i] = relaxation * new[i] + rest * (old[i] - total[i])
    _add_up(messages, total, start, stop)
    for i in range(start, stop):
        centre[i] = total[i] + u[i] / penalty


@kernel
def sweep_add(values, more, out, start, stop):
    """Write ``values + more`` for a range of entries."""
    for i in range(start, stop):
        out[i] = values[i] + more[i]


@inline
def _add_up(rows, out, start, stop):
    """Write sums over the rows of a matrix of shape (M, N), in their order, for a range of columns."""
    first = rows[0]
    for i in range(start, stop):
        out[i] = first[i]
    for m in range(1, len(rows)):
        row = rows[m]
        for i in range(start, stop):
            out[i] += row[i]


@kernel
def sweep_divide(values, by, out, start, stop):
    """Write ``values / by`` for a range of entries."""
    for i in range(start, stop):
        out[i] = values[i] / by[i]


@kernel
def sweep_correct(total, z, u, penalty, metric, pull, vectors, start, stop):
    r"""Write the pull anew at messages as they were sent, and what :func:`sweep_targets` wrote in the metric.

    Parameters
    ----------
    total, z, u : ndarray of shape (N,)
        S of the messages as they were sent; z and u after their updates.
    penalty : float
        r, summed scaling.
    metric : ndarray of shape (N,)
        omega: sample i has the penalty :math:`r \omega_i`.
    pull : ndarray of shape (N,)
        Out: ``omega (u + r (S - z))``.
    vectors : ndarray of shape (M, at least 3, n), n at least ``stop - start``
        The second is written, the third multiplied by omega, rows from 0.
    start, stop : int
        Row range.
    """
    for i in range(start, stop):
        pull[i] = (u[i] + penalty * (total[i] - z[i])) * metric[i]
    for m in range(len(vectors)):
        own, target = vectors[m, 1], vectors[m, 2]
        for i in range(start, stop):
            own[i - start] = pull[i]
        for i in range(start, stop):
            target[i - start] *= metric[i]
