"""``sharing`` with each of its accelerations by itself: what was tried, and what it brought.

An obvious twin of ``fastadmm/coordinator.admm.admm.py`` with three switches that the product has not: any
over-relaxation, a majorisation factor below the number of parties, and the rounds after which the penalty
follows the curvature of the loss. ``bench/rounds.py --variants`` measures with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.coordinator.admm.anderson import Anderson
from fastadmm.coordinator.admm.penalty_rule import PenaltyRule
from fastadmm.coordinator.admm.scheme import ADMM_SCHEMES
from fastadmm.engine.engine import Engine
from fastadmm.parties.proximal import WeightedBlock
from fastadmm.parties.xupdate.choose import choose_penalised
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem, make_problem
from fastadmm.solver.solver import SolverOptions, solve

LIMIT = 200


@dataclass(frozen=True)
class Variant:
    """What is switched on.

    Attributes
    ----------
    relaxation : float
        alpha; 1 is none.
    coherence : bool
        Begin with tau = 1 and raise it at once above the measured coherence; else tau = M.
    reweighting : tuple of int
        Rounds after which ``r_i`` becomes ``share`` times the loss's curvature.
    share, floor : float
        Mean penalty over mean curvature (None keeps the penalty); least curvature over mean curvature.
    """

    relaxation: float = 1.0
    coherence: bool = False
    reweighting: tuple[int, ...] = ()
    share: float | None = 0.3
    floor: float = 0.1


VARIANTS: dict[str, Variant] = {
    "plain": Variant(),
    "α = 1.6": Variant(relaxation=1.6),
    "α = 1.8": Variant(relaxation=1.8),
    "τ by coherence": Variant(coherence=True),
    "r_i after 3, 10": Variant(reweighting=(3, 10), share=None, floor=0.01),
    "r_i after 10, 30": Variant(reweighting=(10, 30)),
    "r_i after 10, 30, α = 1.6": Variant(reweighting=(10, 30), relaxation=1.6),
}


def objectives(problem: Problem, variant: Variant, enough: float, limit: int = LIMIT) -> list[float]:
    """Objective after every round of accelerated sharing, until one is at most `enough`; no intercept."""
    engine, m, n = Engine(1), problem.n_parties, problem.n_samples
    settings = ADMM_SCHEMES[0].parameters(problem, SolverOptions(scheme="sharing"), engine)
    r, memory, rule = settings[0], settings[1], PenaltyRule() if settings[4] else None
    tau = 1.0 if variant.coherence else float(m)
    omega, root = np.ones(n), np.ones(n)
    weights = [np.zeros(block.shape[1]) for block in problem.blocks]
    penalties = [
        PartyPenalty(regularizer, problem.constraint, problem.regularization)
        for regularizer in problem.party_regularizers
    ]

    def oracles() -> list[Any]:
        made = []
        for block, penalty in zip(problem.blocks, penalties):
            own = WeightedBlock(block, omega)
            update, _ = choose_penalised(own, penalty.regularizer, penalty.constraint)
            update.prepare(engine)
            made.append((own, update))
        return made

    def acceleration() -> Anderson:
        parts = [
            (slice(0, m * n), tau * r),
            (slice(m * n, (m + 1) * n), r),
            (slice((m + 1) * n, None), 1.0 / r),
        ]
        return Anderson((m + 2) * n, list(parts), memory)

    # The whole state in coordinates times the root of omega, in which the penalty is one number.
    parties, anderson = oracles(), acceleration()
    state = reached = np.zeros((m + 2) * n)
    extrapolated, n_extrapolations, first, best = False, 0, math.nan, math.inf
    values, scratch = [], np.empty(n)
    for k in range(1, limit + 1):
        a, z, u = state[: m * n].reshape(m, n), state[m * n : (m + 1) * n], state[(m + 1) * n :]
        total = a.sum(axis=0)
        new = np.empty_like(state)
        new_a, new_z, new_u = new[: m * n].reshape(m, n), new[m * n : (m + 1) * n], new[(m + 1) * n :]
        answers = np.empty((m, n))
        for j, (block, update) in enumerate(parties):
            copy = a[j] - (total - z) / tau
            weights[j] = update.solve(
                copy - u / (tau * r), problem.regularization / (tau * r), weights[j], engine
            )
            answers[j] = block.product(weights[j], engine)
            new_a[j] = variant.relaxation * answers[j] + (1.0 - variant.relaxation) * copy
        relaxed, sent = new_a.sum(axis=0), answers.sum(axis=0) / root
        own_z, own_u = z / root, np.empty(n)
        centre, narrowed = (relaxed + u / r) / root, problem.weight / omega
        problem.loss.prox(centre, problem.offset, problem.y, narrowed, r, own_z, own_u, engine)
        new_z[:], new_u[:] = own_z * root, own_u * root
        loss = problem.loss.evaluate(sent + problem.offset, problem.y, problem.weight, scratch, engine)
        values.append((loss + sum(p.value(x) for p, x in zip(penalties, weights))) / problem.total_weight)
        if values[-1] <= enough:
            break
        # Where to go on: extrapolated, or back where that was bad.
        norm = math.sqrt(anderson.squared_norm(new - state))
        first = norm if math.isnan(first) else first
        if extrapolated and norm > min(2.0 * best, 1e4 * first * (n_extrapolations + 1) ** -1.1):
            state_next, extrapolated = reached, False
            anderson.reset()
        else:
            best, reached = min(best, norm), new
            vector = anderson.extrapolate(new, new - state)
            extrapolated = vector is not None
            n_extrapolations += extrapolated
            state_next = new if vector is None else vector
        changed = False
        if rule is not None:
            primal = float(np.linalg.norm(root * sent - new_z) / max(np.linalg.norm(root * sent), 1e-300))
            pulled = new_u - u - r * (total - z)
            dual = math.sqrt(sum(float(np.sum((pulled - tau * r * d) ** 2)) for d in answers - a) / m)
            factor = rule.factor(primal, dual / max(float(np.linalg.norm(new_u)), 1e-300))
            r, changed = r * factor, factor != 1.0
        if variant.coherence:
            moved = new_a - a
            coherence = float(np.sum(moved.sum(axis=0) ** 2) / max(np.sum(moved**2), 1e-300))
            if coherence > tau:
                tau, changed = min(float(m), max(1.1 * coherence, 1.2 * tau)), True
        if k in variant.reweighting:
            bent = problem.loss.curvature(
                sent + problem.offset, problem.y, problem.weight, np.empty(n), engine
            )
            omega = np.maximum(bent, variant.floor * bent.mean())
            omega /= omega.mean()
            ratio, root = np.sqrt(omega) / root, np.sqrt(omega)
            reached = reached * np.concatenate([np.tile(ratio, m + 1), 1.0 / ratio])
            r = r if variant.share is None else variant.share * float(bent.mean())
            parties, changed = oracles(), True
        state = state_next
        if changed:
            state, anderson = reached, acceleration()
            extrapolated, n_extrapolations, first, best = False, 0, math.nan, math.inf
    return values


def kinked(data: Path) -> Iterator[tuple[str, Problem]]:
    """Problems with kinks: every fifth row of a9a, every fourth of the California houses."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(data / "a9a.bz2"), n_features=123)
    adult = X[::5].tocsc(), (y[::5] > 0) * 1.0
    table = np.loadtxt(data / "cal_housing.data", delimiter=",", skiprows=1)[::4]
    features = np.hstack([table[:, :-1], table[:, 2:6] / table[:, [6]]])
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    houses = features, table[:, -1] / 1e5 - 2.0
    for name, (X, y), loss, regularizer in (
        ("a9a, hinge, l2", adult, "hinge", "l2"),
        ("a9a, logistic, l1", adult, "logistic", "l1"),
        ("a9a, hinge, l1", adult, "hinge", "l1"),
        ("housing, quantile, l2", houses, "quantile", "l2"),
        ("housing, quantile, l1", houses, "quantile", "l1"),
        ("housing, squared, l1", houses, "squared", "l1"),
    ):
        for parties in (2, 8):
            d = X.shape[1]
            blocks = [X[:, d * k // parties : d * (k + 1) // parties] for k in range(parties)]
            for lam in (1e-2, 1e-3):
                options: dict[str, Any] = {"loss": loss, "regularizer": regularizer, "lam": lam}
                yield name, make_problem(blocks, y, fit_intercept=False, **options)


def measure_case(problem: Problem, levels: tuple[float, ...], gap: float) -> dict[str, list[int | None]]:
    """Rounds to each level, for every variant that says something about the problem."""
    history = solve(problem, SolverOptions(gap=gap, max_rounds=300, n_threads=1)).history
    optimum = min(r.objective for r in history)
    bent = problem.loss.smooth and problem.loss.name != "squared"
    runs = {
        name: objectives(problem, variant, optimum * (1.0 + 0.9 * levels[-1]))
        for name, variant in VARIANTS.items()
        if bent or not variant.reweighting
    }
    optimum = min(optimum, *(min(values) for values in runs.values()))
    return {
        name: [
            next((k + 1 for k, v in enumerate(values) if v <= optimum * (1.0 + level)), None)
            for level in levels
        ]
        for name, values in runs.items()
    }


__all__ = ["LIMIT", "VARIANTS", "Variant", "kinked", "measure_case", "objectives"]
