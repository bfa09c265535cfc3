r"""Randomised levels: a bounded number becomes one of k symbols, each nearly as likely for every number.

A number t in [-1, 1] is rounded at random to one of the k levels
:math:`v_j = -1 + 2j/(k-1)` with mean t (stochastic rounding), and the level
goes through k-ary randomised response: with probability ``keep`` it stays,
else it is drawn anew from all k. For k = 2 that is the randomised bit of
Duchi, Jordan and Wainwright (2018), :math:`P(1) = \tfrac12 + t/(2C)` with
:math:`C = 1/\mathrm{keep}`.
"""

import numpy as np
from fastadmm.kernels.policy import kernel


@kernel
def randomised_levels(score, center, clip, keep, n_levels, rounding, response, levels, start, stop):
    """Draw one symbol per record over a row range.

    Shapes: score (N,); rounding, response (N,); levels (N,) of uint8.
    ``center``, ``clip``: ``t = (score - center) / clip``, cut off at -1 and 1. ``keep``: probability that the
    rounded level is kept. ``n_levels``: k, from 2 to 256. ``rounding``, ``response``: independent uniforms in
    [0, 1). ``levels``: Out: symbols 0 ... k - 1.
    """
    last = n_levels - 1
    for i in range(start, stop):
        t = min(max((score[i] - center) / clip, -1.0), 1.0)
        place = 0.5 * (t + 1.0) * last
        low = min(np.int64(place), last - 1)
        level = low + np.int64(rounding[i] < place - low)
        # One uniform does both: below keep it says "stay", above it the rest is uniform on the symbols.
        u = response[i]
        other = min(np.int64((u - keep) / (1.0 - keep) * n_levels), last)
        levels[i] = level if u < keep else other
