r"""How far a model of a problem that is not convex is from stationary.

With :math:`h_m = \lambda W R_m + \mathrm{ind}_{X_m}`, the loss gradient g at the model and a step :math:`t_m`
for each party, all in the summed scaling, it is the norm of

.. math:: G_m = \bigl(x_m - \mathrm{prox}_{t_m h_m}(x_m - t_m D_m^\top g)\bigr) / t_m

over all parties and, for a free intercept, of :math:`\sum_i g_i`; as a share of the same at zero weights, or
at the point of the set that is nearest. It is zero where the model is stationary, and only there. The smaller
the step the larger is the norm: a set or a norm hides no slope behind small weights. So
:math:`1 / t_m = L \max_j \|D_{mj}\|^2`, where L is the Lipschitz constant of a row's slope. Under squared l2
it is the norm of the gradient over :math:`1 + t_m \lambda W`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.problem.penalty import PartyPenalty

Array = np.ndarray


def longest_step(block: FeatureBlock, engine: Any) -> float:
    """The party's step for a loss whose slope has the Lipschitz constant 1."""
    return 1.0 / (float(block.column_squares(engine).max(initial=0.0)) or 1.0)


def squared_prox_gradient(penalty: PartyPenalty, x: Array, slope: Array, step: float) -> float:
    """Squared norm of a party's :math:`G_m`; x and slope of shape (d,)."""
    mapped = penalty.gradient_map(x, slope, step)
    return float(mapped @ mapped)
