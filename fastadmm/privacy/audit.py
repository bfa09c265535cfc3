"""Audits from outside: distinguishing games, and one run with canaries.

A game tests a claim of epsilon. The mechanism runs on one of two neighbouring data sets, and a test guesses
which. Privacy bounds how good any test can be, so a test that is too good refutes the claim. An audit can
refute a claim, never prove it: proofs are in ``docs/privacy.md``. What ``fastadmm audit`` tests from
inside, with more power, is in :mod:`fastadmm.privacy.message_audit` and :mod:`fastadmm.privacy.fusion_audit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import beta, binom, norm

from fastadmm.engine.engine import Engine
from fastadmm.privacy.accounting import epsilon_of
from fastadmm.privacy.noise import Calibration, NoiseSource
from fastadmm.privacy.transcript import UNLIMITED, bisected, made_run
from fastadmm.settings.privacy import MessagePrivacy

if TYPE_CHECKING:
    from fastadmm.blocks.block import FeatureBlock
    from fastadmm.problem.problem import Problem
    from fastadmm.solver.options import SolverOptions

#: The Gaussian-form bound may exceed the claim by this much before it counts: the bounds hold with
#: 95 % confidence, and an alarm should mean something.
ALARM = 0.1

#: Confidence of one error rate's bound; two together give 95 %.
_ONE_SIDED = 0.975

#: Numbers drawn at once, to bound memory.
_CHUNK = 4_000_000


@dataclass(frozen=True)
class GameResult:
    """What a distinguishing game proved."""

    claim: float  # the claim that was tested
    delta: float  # the claim that was tested
    epsilon_clopper_pearson: float
    epsilon_gaussian: float  # the same if the mechanism is known to add Gaussian noise: more powerful
    trials: int  # runs of each of the two worlds that the bounds rest on

    @property
    def flagged(self) -> bool:
        """Whether the claim is refuted."""
        return self.epsilon_clopper_pearson > self.claim or self.epsilon_gaussian > self.claim + ALARM


def clopper_pearson(errors: int, trials: int, confidence: float = _ONE_SIDED) -> float:
    """Upper confidence bound on an error rate."""
    if errors >= trials:
        return 1.0
    return float(beta.ppf(confidence, errors + 1, trials - errors))


def distinguish(first: np.ndarray, second: np.ndarray, claim: float, delta: float) -> GameResult:
    """Lower bounds on epsilon from scores of the two worlds. Shapes: first, second (n,)."""
    half = len(first) // 2  # these scores choose the thresholds, the others are judged by them
    both = np.concatenate([first[:half], second[:half]])
    # A Gaussian is best measured where errors are common, an unknown mechanism in its tails.
    central = np.unique(np.quantile(both, np.linspace(0.05, 0.95, 91)))
    extremes = np.concatenate([np.sort(x[:half])[[0, 1, 2, -3, -2, -1]] for x in (first, second)])
    everywhere = np.concatenate([np.quantile(both, np.linspace(0.0, 1.0, 401)), extremes])

    def errors(t: float, rows: slice) -> tuple[float, float]:
        false = clopper_pearson(int((first[rows] > t).sum()), len(first[rows]))
        return false, clopper_pearson(int((second[rows] <= t).sum()), len(second[rows]))

    def any_mechanism(t: float, rows: slice) -> float:
        false, missed = errors(t, rows)
        return max(0.0, _ratio(missed, false, delta), _ratio(false, missed, delta))

    def gaussian(t: float, rows: slice) -> float:
        false, missed = errors(t, rows)
        return float(norm.isf(false) - norm.ppf(missed))

    chosen, judged = slice(0, half), slice(half, None)
    at_any = max(map(float, everywhere), key=lambda t: any_mechanism(t, chosen))
    at_gaussian = max(map(float, central), key=lambda t: gaussian(t, chosen))
    return GameResult(
        claim,
        delta,
        any_mechanism(at_any, judged),
        epsilon_of(max(gaussian(at_gaussian, judged), 0.0), delta),
        len(first) - half,
    )


def _ratio(missed: float, false: float, delta: float) -> float:
    top = 1.0 - delta - missed
    return math.log(top / false) if top > 0.0 and false > 0.0 else 0.0


def play(
    first: np.ndarray,
    second: np.ndarray,
    level: Calibration,
    rounds: int,
    trials: int,
    *,
    source: Callable[[], Any] = NoiseSource,
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of many releases of two exact values. Shapes: first, second (N,) or (trials,)."""
    apart = second - first
    direction = apart / max(float(np.linalg.norm(apart)), 1e-300)
    engine, n = Engine(), len(first)
    chunk = max(1, _CHUNK // n)
    scores = [np.zeros(trials), np.zeros(trials)]
    try:
        for world, value in enumerate((first, second)):
            noise = source()
            number = 0
            for _ in range(rounds):
                for begin in range(0, trials, chunk):
                    count = min(chunk, trials - begin)
                    number += 1
                    sent = noise.release(np.tile(value, count), level, number, engine).values
                    outcome = sent.reshape(count, n) - first
                    scores[world][begin : begin + count] += outcome @ direction
    finally:
        engine.close()
    return scores[0], scores[1]


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
