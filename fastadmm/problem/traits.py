"""What kind of problem it is, as far as the choice of a scheme asks."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Traits:
    """Kind of a problem, known before there are data."""

    smooth: bool = True  # whether the loss has a continuous derivative
    ridge: bool = True  # whether every party's regulariser is squared l2 without a constraint
    convex: bool = True  # whether loss and regularisers are convex
    a_sum: bool = True  # whether regulariser and set are one sum over all weights, zero in the set
    vector: bool = False  # whether there is a predictor per class, not one per sample
    n_parties: int = 2  # known with the data
    n_outputs: int = 1  # predictors per sample
    ball: bool = False  # whether a party's weights are in a ball
    coupled: bool = False  # whether equations hold between a party's weights: a simplex, or an affine set
    log_sum: bool = False  # whether every party's regulariser is ``log_sum`` without a constraint
    convex_penalty: bool = True  # whether the regularisers are convex
