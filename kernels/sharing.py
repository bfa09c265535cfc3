"""Row by row, what the coordinator of ADMM sharing does with messages, z and u between two exchanges.

A penalty r is one number, or ``penalty * metric`` with a number for every sample; without one ``metric`` is
empty.
"""

import numpy as np
from fastadmm.kernels.block_sum import BLOCK, block_sum
from fastadmm.kernels.pieces import call_kernel
from fastadmm.kernels.policy import inline, kernel


@inline
def _add_messages(messages, begin, end, out):
    """Write the sum of messages, of shape (M, N), of some rows, in the order of the parties."""
    first = messages[0, begin:end]
    for k in range(end - begin):
        out[k] = first[k]
    for m in range(1, len(messages)):
        own = messages[m, begin:end]
        for k in range(end - begin):
            out[k] += own[k]


@inline
def _penalties(penalty, metric, begin, end, out):
    """Write the penalties of some rows."""
    if len(metric) == 0:
        for k in range(end - begin):
            out[k] = penalty
    else:
        own = metric[begin:end]
        for k in range(end - begin):
            out[k] = penalty * own[k]


@kernel
def shift_of_targets(messages, z, u, penalty, metric, tau, out, start, stop):
    """Write ``((S - z) + u / r) / tau``, S the sum of messages of shape (M, N)."""
    total, r = np.empty(BLOCK), np.empty(BLOCK)
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        _add_messages(messages, begin, end, total)
        _penalties(penalty, metric, begin, end, r)
        own_z, own_u, own = z[begin:end], u[begin:end], out[begin:end]
        for k in range(end - begin):
            own[k] = ((total[k] - own_z[k]) + own_u[k] / r[k]) / tau


@kernel
def relax_messages(before, z, messages, relaxation, out, total, relaxed, start, stop):
    """Over-relax messages; see :mod:`fastadmm.coordinator.admm.admm`.

    Shapes: before (M, N); z (N,); messages (M, N); out (M, N); total, relaxed (N,).
    ``before``: messages where the round started. ``z``: there, too. ``messages``: the parties' answers.
    ``relaxation``: alpha. ``out``: relaxed messages; with a relaxation of 1 the answers themselves.
    ``total``, ``relaxed``: sums of the answers and of the relaxed messages.
    """
    share = np.empty(BLOCK)
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        _add_messages(before, begin, end, share)
        own_z = z[begin:end]
        for k in range(end - begin):
            share[k] = (share[k] - own_z[k]) / len(before)
        for m in range(len(before)):
            old, new, own = before[m, begin:end], messages[m, begin:end], out[m, begin:end]
            if relaxation != 1.0:  # with 1 nothing is mixed in, not even what is infinite
                for k in range(end - begin):
                    own[k] = new[k] * relaxation + (1.0 - relaxation) * (old[k] - share[k])
        _add_messages(messages, begin, end, total[begin:end])
        _add_messages(out, begin, end, relaxed[begin:end])


@kernel
def pull_and_squares(total, z, u, penalty, metric, pull, out, start, stop):
    """Write ``u + r (S - z)``, and add sums of ``S - z`` and of what it is made of.

    Shapes: total, z, u (N,); pull (N,); out (6,).
    ``penalty``, ``metric``: r. ``out``: ``<u, S - z>``, ``<r (S - z), S - z>``, ``|r (S - z)|^2`` and ``|S -
    z|^2`` are added, ``|S|^2`` and ``|u|^2``.
    """
    r, sums = np.empty(BLOCK), np.zeros((6, BLOCK))
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        _penalties(penalty, metric, begin, end, r)
        own_total, own_z, own_u, own = total[begin:end], z[begin:end], u[begin:end], pull[begin:end]
        for k in range(end - begin):
            over = own_total[k] - own_z[k]
            pressed = r[k] * over
            own[k] = own_u[k] + pressed
            sums[0, k] += own_u[k] * over
            sums[1, k] += pressed * over
            sums[2, k] += pressed * pressed
            sums[3, k] += over * over
            sums[4, k] += own_total[k] * own_total[k]
            sums[5, k] += own_u[k] * own_u[k]
    for j in range(6):
        out[j] += block_sum(sums, j, BLOCK)


@kernel
def dual_residual(before, old_z, old_u, messages, u, penalty, metric, tau, parallel, out, start, stop):
    """Add the squared norms of all parties' ``s``: by how much their new weights miss optimality.

    Shapes: before (M, N); old_z, old_u (N,); messages (M, N); u (N,); out (1,).
    ``before``: messages where the round started. ``old_z``, ``old_u``: there, too. ``messages``: the parties'
    answers. ``u``: after the round. ``penalty``, ``metric``: r. ``parallel``: whether no party saw the
    others' answers; else each saw those before its own. ``out``: the sum is added.
    """
    seen, r, sums = np.empty(BLOCK), np.empty(BLOCK), np.zeros((1, BLOCK))
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        _add_messages(before, begin, end, seen)
        _penalties(penalty, metric, begin, end, r)
        z, new, old = old_z[begin:end], u[begin:end], old_u[begin:end]
        for m in range(len(before)):
            first, second = before[m, begin:end], messages[m, begin:end]
            if parallel:
                for k in range(end - begin):
                    s = (new[k] - old[k] - r[k] * (seen[k] - z[k])) - (tau * r[k]) * (second[k] - first[k])
                    sums[0, k] += s * s
            else:
                for k in range(end - begin):
                    seen[k] += second[k] - first[k]
                    s = new[k] - old[k] - r[k] * (seen[k] - z[k])
                    sums[0, k] += s * s
    out[0] += block_sum(sums, 0, BLOCK)


@kernel
def centres_in_metric(total, u, weight, penalty, metric, centre, scaled, start, stop):
    """Write the centres ``S + u / r`` of the z-update, and weights over the metric, all of shape (N,)."""
    for k in range(start, stop):
        centre[k] = total[k] + u[k] / (penalty * metric[k])
        scaled[k] = weight[k] / metric[k]


@kernel
def prox_in_metric(calls, extra, given, intercept, penalty, metric, z, u, out, start, stop):
    """The z-update where every sample has a penalty of its own, in blocks that stay in a cache.

    Shapes: each of given (N,); z (N,); u (N,); out (2,).
    ``calls``: addresses of the loss's ``prox``, ``evaluate`` and ``curvature``. ``given``: centres and
    weights of :func:`centres_in_metric`; offset, targets and the samples' weights. ``penalty``, ``metric``:
    r, with a number for every sample. ``z``: In: warm start. Out: the minimiser. ``u``: output: the gradient
    itself, with the sample's own weight, in the domain of the conjugate. ``out``: the sum of the new u, and
    that of its derivatives in the intercept, are added.
    """
    prox, evaluate, curve = calls
    centre, scaled, base, target, weight = given
    shift, there, bent, sums = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.zeros((2, BLOCK))
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        n = end - begin
        own_base, own_target, own_weight = base[begin:end], target[begin:end], weight[begin:end]
        own_z, own_u, omega = z[begin:end], u[begin:end], metric[begin:end]
        for k in range(n):
            shift[k] = own_base[k] + intercept
        at = centre[begin:end], shift[:n], own_target, scaled[begin:end]
        call_kernel(prox, (*at, extra, penalty, own_z, own_u, 0, n))
        for k in range(n):
            there[k] = own_z[k] + shift[k]
        call_kernel(evaluate, (there[:n], own_target, own_weight, extra, own_u, 0, n))
        call_kernel(curve, (there[:n], own_target, own_weight, extra, bent[:n], 0, n))
        for k in range(n):
            r = penalty * omega[k]
            sums[0, k] += own_u[k]
            sums[1, k] += bent[k] * (r / (r + bent[k]))
    for j in range(2):
        out[j] += block_sum(sums, j, BLOCK)
