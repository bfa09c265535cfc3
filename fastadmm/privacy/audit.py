"""The audit of one run with canaries (Steinke, Nasr and Jagielski 2023): every record is in or out by a coin.

It can refute a claim, never prove it: proofs are in ``docs/privacy.md``. What ``fastadmm audit`` tests from
inside, with more power, is in :mod:`fastadmm.privacy.message_audit` and :mod:`fastadmm.privacy.fusion_audit`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import binom

from fastadmm.privacy.noise import Calibration
from fastadmm.privacy.transcript import UNLIMITED, bisected, made_run
from fastadmm.settings.privacy import MessagePrivacy

if TYPE_CHECKING:
    from fastadmm.blocks.block import FeatureBlock
    from fastadmm.problem.problem import Problem
    from fastadmm.solver.options import SolverOptions


def canary_epsilon(
    scores: np.ndarray, included: np.ndarray, guesses: int, delta: float, confidence: float = 0.95
) -> float:
    """A lower bound on epsilon from one run (Steinke et al. 2023). Shapes: scores, included (m,)."""
    m = len(scores)
    # The largest scores are guessed to be in, the smallest out; of so many guesses few may be right.
    each = min(guesses, m) // 2
    order = np.argsort(scores, kind="stable")
    right = int(included[order[m - each :]].sum() + (~included[order[:each]]).sum())
    guessed = 2 * each

    def p_value(epsilon: float) -> float:
        chance = 1.0 / (1.0 + math.exp(-epsilon))
        tail = float(binom.sf(right - 1, guessed, chance))
        masses = binom.pmf(right - np.arange(1, right + 1), guessed, chance)
        shares = np.cumsum(masses) / np.arange(1, right + 1)
        extra = float(shares.max()) if len(shares) else 0.0
        return min(1.0, tail + extra * delta * 2.0 * m)

    if p_value(0.0) > 1.0 - confidence:
        return 0.0
    return bisected(lambda epsilon: p_value(epsilon) >= 1.0 - confidence, 64.0)[0]


def audit_one_run(
    problem: Problem,
    options: SolverOptions,
    settings: MessagePrivacy,
    *,
    seed: int = 0,
    noise_factor: float = 1.0,
) -> list[float]:
    """Epsilon by party of a run in which the features of every record are zeroed or not by a coin."""
    from fastadmm.privacy.message import clipped_problem

    rng = np.random.default_rng(seed)
    given = clipped_problem(problem)
    included = [rng.random(problem.n_samples) < 0.5 for _ in given.blocks]
    kept: list[Any] = [
        _scaled_rows(block, coins.astype(float)) for block, coins in zip(given.blocks, included)
    ]
    settings = settings.with_(adjacency="zero_out", total_epsilon=UNLIMITED)
    scores = [np.zeros(problem.n_samples) for _ in kept]

    def look() -> None:
        for m, call, answer in solver.driver.answers[-len(kept) :]:
            if call != "noisy":
                continue
            b, c = settings.message_clip or math.inf, settings.message_center
            ghost = given.blocks[m].product(solver.parties[m].weights, solver.engine)
            ghost, absent = np.clip(ghost, c - b, c + b), np.clip(0.0, c - b, c + b)
            apart = ghost - absent
            scores[m] += apart * (answer["message"] - absent - apart / 2.0)

    solver = made_run(settings, replace(given, blocks=kept), options, look=look)
    if noise_factor != 1.0:
        grid = solver.level.grid * 2.0 ** round(math.log2(noise_factor))
        for party in solver.parties:
            party.level = Calibration(solver.level.sigma * noise_factor, grid, solver.level.sensitivity)
    try:
        solver.prepare()
        for _ in range(settings.rounds):
            solver.round()
    finally:
        solver.close()
    n = problem.n_samples
    return [canary_epsilon(s, coins, max(2, n // 4), settings.delta) for s, coins in zip(scores, included)]


def _scaled_rows(block: FeatureBlock, factor: np.ndarray) -> FeatureBlock:
    from fastadmm.blocks.block import CSRBlock, as_block

    if isinstance(block, CSRBlock):
        import scipy.sparse as sp

        return as_block(sp.csr_array(sp.diags_array(factor) @ block.to_scipy()))
    return as_block(block.matrix * factor[:, None])  # type: ignore[attr-defined]
