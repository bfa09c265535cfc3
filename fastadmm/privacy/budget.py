r"""How a party's budget in ``mode="fusion"`` is split, exactly.

A party makes Gaussian releases (row norm, local model, moments), together :math:`\mu`-GDP, and one symbol
per record, pure :math:`\varepsilon_s`. Their joint law is theorem ``docs/fusion.md#f5-the-budget``:

.. math:: \delta(\varepsilon) = \pi\,\delta_\mu(\varepsilon - \varepsilon_s)
          + (1 - \pi)\,\delta_\mu(\varepsilon + \varepsilon_s), \qquad
          \pi = \frac{e^{\varepsilon_s}}{1 + e^{\varepsilon_s}}

so :math:`\mu` is the root of that equation and nothing of (epsilon, delta) is wasted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fastadmm.privacy.accounting import compose_gdp, gdp_of
from fastadmm.privacy.levels import MAX_EPSILON

__all__ = ["FusionBudget", "split_budget"]

#: Shares of mu^2: row norm (only where it is not given), moments; the rest is the local model's.
NORM_SHARE, MOMENT_SHARE = 0.03, 0.15


@dataclass(frozen=True)
class FusionBudget:
    """What each of a party's releases may cost."""

    symbol: float  # pure epsilon of the symbol
    norm: float  # mu of the Gaussian releases; ``norm`` is 0 where the row norm is public
    model: float  # mu of the Gaussian releases; ``norm`` is 0 where the row norm is public
    moments: float  # mu of the Gaussian releases; ``norm`` is 0 where the row norm is public

    @property
    def gdp(self) -> float:
        """mu of the Gaussian releases together."""
        return compose_gdp((self.norm, self.model, self.moments))


def split_budget(
    epsilon: float, delta: float, model_share: float, model_max: float, public_norm: bool
) -> FusionBudget:
    """Split (epsilon, delta) of one party.

    Theorem: ``docs/fusion.md#f5-the-budget``.
    """
    symbol = min(epsilon - min(model_share * epsilon, model_max), MAX_EPSILON)
    mu = gdp_of(epsilon, delta, (symbol,))
    norm = 0.0 if public_norm else NORM_SHARE
    return FusionBudget(
        symbol,
        mu * math.sqrt(norm),
        mu * math.sqrt(1.0 - norm - MOMENT_SHARE),
        mu * math.sqrt(MOMENT_SHARE),
    )
