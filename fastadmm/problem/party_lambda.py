r"""A party's own regularisation: one :math:`\lambda_m` for each party, by scaling columns.

With weights :math:`x_m = c_m x'_m` and columns :math:`c_m D_m` the messages
:math:`D_m x_m` are the same, and one :math:`\lambda` for all :math:`x'_m` is
:math:`\lambda_m` for :math:`x_m` if :math:`c_m^2 = \lambda / \lambda_m` (squared
l2) or :math:`c_m = \lambda / \lambda_m` (a norm). Objective, gap and messages are those of the original
problem, so schemes need no change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.problem.constraints import AllSpace, Constraint, NonNegative
from fastadmm.problem.regularizers import L1, GroupLasso, Regularizer, SquaredL2

Array = np.ndarray

#: Roundings of scaled entries, of weights that are scaled back, and of their penalty.
SCALED = 4.0

#: Values further apart than this many times would lose columns to rounding and overflow.
_WIDEST = 1e60


def _power(regularizer: Regularizer) -> float | None:
    """Power of the ratio of lambdas that a scaling of the weights takes; None where there is none."""
    if isinstance(regularizer, SquaredL2):
        return 0.5
    return 1.0 if isinstance(regularizer, L1 | GroupLasso) else None


def scales_with_lambda(regularizer: Regularizer, constraint: Constraint) -> bool:
    """Whether scaled weights have the same penalty with another lambda, and stay in the set."""
    return _power(regularizer) is not None and isinstance(constraint, AllSpace | NonNegative)


@dataclass(frozen=True)
class PartyLambda:
    r"""The parties' own lambdas, and how a problem with one lambda is theirs."""

    values: list[float]  # :math:`\lambda_m` of each party, per mean loss
    lam: float  # :math:`\lambda` of the scaled problem, their geometric mean
    factors: list[float]  # :math:`c_m`: what a party's columns are multiplied by
    common: float  # lambda in records: that of the parties without their own

    def original(self, weights: Sequence[Any]) -> list[Any]:
        """Weights for the parties' own columns, or norms of these, from those of scaled ones.

        Shapes: each of weights (d_m,) or (d_m, C).
        """
        return [factor * own for factor, own in zip(self.factors, weights, strict=True)]

    def scaled(self, weights: Sequence[Array]) -> list[Array]:
        """Weights for scaled columns, from those of the parties' own ones.

        Shapes: each of weights (d_m,) or (d_m, C).
        """
        return [own / factor for factor, own in zip(self.factors, weights, strict=True)]


def party_lambda(
    values: Sequence[float], regularizer: Regularizer, common: float | None = None
) -> PartyLambda:
    r"""Factors for a lambda of each party."""
    power: Any = _power(regularizer)
    if max(values) / min(values) > _WIDEST:
        raise ConfigError(
            f"party_lambda: {min(values):g} and {max(values):g} are too far apart; at most {_WIDEST:g} times"
        )
    lam = float(np.exp(np.mean(np.log(values))))
    factors = [float((lam / value) ** power) for value in values]
    return PartyLambda([float(v) for v in values], lam, factors, lam if common is None else common)
