"""Budget planning: epsilon, noise or rounds computed exactly from the other two, with the paper's figures.

The calibration of Hu et al. (2019) is **unproved**, for comparison only: Lemma 1 there is false, and
:func:`lemma_counter_example` is the witness (``docs/privacy.md#lemma-1-is-false``).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.files.atomic import plain
from fastadmm.privacy.accounting import (
    compose_gdp,
    epsilon_of,
    noise_multiplier,
    rounds_within,
    zcdp_epsilon,
    zcdp_of,
)


@dataclass(frozen=True)
class BudgetPlan:
    r"""A consistent choice of epsilon, rounds and noise."""

    epsilon: float  # of all rounds of one party
    delta: float  # of all rounds of one party
    rounds: int
    multiplier: float  # :math:`\sigma/\Delta` per round
    joint: float  # epsilon of one person in all parties
    discrete: float  # epsilon that zCDP proves for discrete noise of the same size

    def to_json(self) -> dict[str, Any]:
        """Plain values; infinite ones as the text ``"inf"``."""
        return dict(plain(vars(self), "inf"))


def plan_budget(
    delta: float,
    *,
    epsilon: float | None = None,
    rounds: int | None = None,
    multiplier: float | None = None,
    n_parties: int = 1,
) -> BudgetPlan:
    """Fill in the one of epsilon, rounds and noise that is not given."""
    if sum(value is not None for value in (epsilon, rounds, multiplier)) != 2:
        raise ConfigError("privacy: give two of --epsilon, --rounds and --noise; the third is computed")
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"delta: {delta!r} must be between 0 and 1")
    for name, value in (("epsilon", epsilon), ("noise", multiplier), ("rounds", rounds)):
        if value is not None and not 0.0 < value < math.inf:
            raise ConfigError(f"{name}: {value!r} must be positive and finite")
    if rounds is None:
        rounds = rounds_within(epsilon or 0.0, delta, multiplier or 0.0)
        if rounds < 1:
            raise ConfigError(
                f"privacy: epsilon {epsilon} at delta {delta:g} allows no round with this noise"
            )
    if multiplier is None:
        multiplier = noise_multiplier(epsilon or 0.0, delta, rounds)
    mu = math.sqrt(rounds) / multiplier
    return BudgetPlan(
        epsilon=epsilon_of(mu, delta),
        delta=delta,
        rounds=rounds,
        multiplier=multiplier,
        joint=epsilon_of(compose_gdp([mu] * n_parties), delta),
        discrete=zcdp_epsilon(zcdp_of([mu]), delta),
    )


def plan_table(plan: BudgetPlan, n_parties: int) -> list[tuple[str, str]]:
    """A plan as rows of two cells."""
    rows = [
        ("epsilon per party", f"{plan.epsilon:.6g} at delta {plan.delta:g} (exact)"),
        ("rounds", str(plan.rounds)),
        ("noise over sensitivity, per round", f"{plan.multiplier:.6g}"),
    ]
    if n_parties > 1:
        rows.append((f"one person in all {n_parties} parties", f"epsilon {plan.joint:.6g}"))
    return [
        *rows,
        ("discrete noise of this size", f"epsilon {plan.discrete:.6g} (zCDP)"),
    ]


def lemma_sensitivity(
    n_columns: int, penalty: float, lam: float, derivative: float, bound: float, n_parties: int
) -> float:
    r"""Lemma 1 (false): :math:`C = \frac{3}{d_m\rho}\,[\lambda c_1 + (1 + M\rho) b_1]`."""
    if n_columns < 1 or not penalty > 0.0:
        raise ConfigError("paper calibration: at least one column and a positive penalty")
    return 3.0 / (n_columns * penalty) * (lam * derivative + (1.0 + n_parties * penalty) * bound)


def theorem_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    r"""Theorem 3 (unproved): :math:`\sigma = \sqrt{2\ln(1.25/\delta)}\, C/\varepsilon` per round."""
    if not (epsilon > 0.0 and 0.0 < delta < 1.0):
        raise ConfigError("paper calibration: epsilon must be positive, delta between 0 and 1")
    return math.sqrt(2.0 * math.log(1.25 / delta)) * sensitivity / epsilon


def corollary_epsilon(epsilon: float, rounds: int, slack: float) -> float:
    r"""Corollary 1, unproved: :math:`\sqrt{2T\ln(1/\delta')}\varepsilon + T\varepsilon(e^\varepsilon - 1)`"""
    if not 0.0 < slack < 1.0:
        raise ConfigError("paper calibration: the slack delta' must be between 0 and 1")
    advanced = math.sqrt(2.0 * rounds * math.log(1.0 / slack)) * epsilon
    return advanced + rounds * epsilon * math.expm1(epsilon)


@dataclass(frozen=True)
class CounterExample:
    """Neighbours farther apart than Lemma 1 allows. Shapes: first, second (N, d); target (N,)."""

    first: np.ndarray  # of shape (N, d): rows of norm 1, full column rank, spectral distance 1
    second: np.ndarray  # of shape (N, d): rows of norm 1, full column rank, spectral distance 1
    target: np.ndarray  # of shape (N,): z, of norm b_1
    distance: float  # l2 distance of the two messages
    lemma: float  # what Lemma 1 allows


def lemma_counter_example(
    n_columns: int, penalty: float = 1e3, lam: float = 1e-3, bound: float = 1.0
) -> CounterExample:
    """The counter-example to Lemma 1, of ±I and a constant column: ``docs/privacy.md#lemma-1-is-false``."""
    n = n_columns - 1
    if n < 1:
        raise ConfigError("counter-example: at least two columns")
    rows = 8 * n
    s = 1.0 / math.sqrt(rows)
    signs = np.tile(np.vstack([np.eye(n), -np.eye(n)]), (4, 1))
    column = np.full(rows, s)
    first = np.column_stack([math.sqrt(1.0 - s * s) * signs, column])
    flipped = column.copy()
    flipped[: 2 * n] *= -1.0
    second = np.column_stack([math.sqrt(1.0 - s * s) * signs, flipped])
    target = np.full(rows, bound * s)
    mu = lam / penalty
    ridge = mu * np.eye(n_columns)
    messages = [D @ np.linalg.solve(D.T @ D + ridge, D.T @ target) for D in (first, second)]
    distance = float(np.linalg.norm(messages[0] - messages[1]))
    return CounterExample(
        first, second, target, distance, lemma_sensitivity(n_columns, penalty, lam, 1.0, bound, 1)
    )
