"""What kind of problem it is, as far as the choice of a scheme asks."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Traits"]


@dataclass(frozen=True)
class Traits:
    """Kind of a problem, known before there are data.

    Attributes
    ----------
    smooth : bool
        Whether the loss has a continuous derivative.
    ridge : bool
        Whether every party's regulariser is squared l2 without a constraint.
    convex : bool
        Whether loss and regularisers are convex.
    vector : bool
        Whether there is a predictor per class, not one per sample.
    n_parties : int
    n_outputs : int
        Predictors per sample.
    ball : bool
        Whether a party's weights are in a ball.
    log_sum : bool
        Whether every party's regulariser is ``log_sum`` without a constraint.
    """

    smooth: bool = True
    ridge: bool = True
    convex: bool = True
    vector: bool = False
    n_parties: int = 1
    n_outputs: int = 1
    ball: bool = False
    log_sum: bool = False
