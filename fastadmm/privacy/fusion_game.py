"""The distinguishing game of ``mode="fusion"``: whole messages of the worst neighbours, and the labels'.

As every audit it can refute a claim, never prove one: the proofs are in ``docs/fusion.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fastadmm.blocks import as_block
from fastadmm.engine import Engine
from fastadmm.privacy.audit import GameResult, distinguish
from fastadmm.privacy.budget import FusionBudget
from fastadmm.privacy.fusion_party import make_message
from fastadmm.privacy.label_response import randomise_labels
from fastadmm.privacy.noise import NoiseSource

__all__ = ["play_fusion", "play_labels"]

#: Records of the neighbours: few, so that one of them weighs much.
_ROWS = 12

#: Nonce of the labels' randomness.
_ROUND = 0


def play_fusion(
    budget: FusionBudget,
    epsilon: float,
    delta: float,
    trials: int,
    *,
    source: Callable[[], Any] = NoiseSource,
) -> GameResult:
    """Send whole messages of two neighbours many times and let an attacker tell them apart.

    In a party with one column all rows are zero, but one record's is 1 or -1, which moves the local model,
    the moments and the symbol as far as one record can. The attacker sees everything that is sent: it
    weighs the symbol's log-likelihood ratio, the model and the moments by a linear rule, learnt from half
    of the trials and judged on the other half. The row norm is public, so that a budget for finding it is
    not attacked.

    Parameters
    ----------
    budget : FusionBudget
        What each release is given: what a run used.
    epsilon, delta : float
        The claim.
    trials : int
        Messages of each world, at least 100; a quarter of them judges.
    source : callable
        Makes a noise source with a fresh key, for one message; tests plant faults here.

    Returns
    -------
    GameResult
        Its bound for any mechanism is the one that counts: symbols are not Gaussian.
    """
    y = np.zeros(_ROWS)
    y[0] = 1.0
    engine = Engine(1)
    worlds = []
    for value in (-1.0, 1.0):
        X = np.zeros((_ROWS, 1))
        X[0, 0] = value
        block = as_block(X)
        worlds.append(np.array([_seen(block, y, budget, source(), engine) for _ in range(trials)]))
    engine.close()
    half = trials // 2
    low, high = (world[:half] for world in worlds)
    spread = np.cov(np.vstack([low - low.mean(0), high - high.mean(0)]).T) + 1e-9 * np.eye(low.shape[1])
    direction = np.linalg.solve(spread, high.mean(0) - low.mean(0))
    return distinguish(worlds[0][half:] @ direction, worlds[1][half:] @ direction, epsilon, delta)


def _seen(block: Any, y: np.ndarray, budget: FusionBudget, noise: Any, engine: Engine) -> list[float]:
    """What a message says of the first record."""
    m = make_message(block, y, y, budget, noise, engine, row_norm=1.0)
    slope = m.model.weights[0]
    p = m.channel.probabilities(np.array([-1.0, 1.0]) * slope + m.model.intercept)
    ratio = math.log(p[1, m.levels[0]] / p[0, m.levels[0]])
    mean, square = m.moments.mean[1], m.moments.square[1]
    return [ratio, slope, m.model.intercept, mean, square, mean * np.sign(slope)]


def play_labels(
    used: float, claim: float, trials: int, *, source: Callable[[], Any] = NoiseSource
) -> GameResult:
    """Randomise a label of each class many times, and see how often the answer tells them apart.

    Parameters
    ----------
    used : float
        Epsilon that the randomised response works with.
    claim : float
        Label epsilon that is claimed, pure.
    trials : int
    source : callable
        Makes a noise source with a fresh key.

    Returns
    -------
    GameResult
    """
    engine = Engine(1)
    first, second = (
        randomise_labels(np.full(trials, label), used, source(), _ROUND, engine).astype(np.float64)
        for label in (0.0, 1.0)
    )
    engine.close()
    return distinguish(first, second, claim, 0.0)
