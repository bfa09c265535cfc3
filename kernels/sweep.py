r"""The fused round of ADMM sharing over one tile of rows, while the tile is in the cache.

Everything between the messages and the next targets is a matter of single
rows, as long as no intercept couples them. So one read of a tile does a round:
products of every party, :func:`sweep_centres`, the loss's proximal operator
and value (kernels of the loss), :func:`sweep_targets`, and the images of three
vectors under the transposed tile, for sparse rows
:func:`fastadmm.kernels.csr.csr_accumulate_images`.
"""

from __future__ import annotations

from fastadmm.kernels.policy import kernel

__all__ = ["sweep_centres", "sweep_targets"]


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
    for i in range(start, stop):
        total[i] = messages[0, i]
    for m in range(1, len(messages)):
        row = messages[m]
        for i in range(start, stop):
            total[i] += row[i]
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
