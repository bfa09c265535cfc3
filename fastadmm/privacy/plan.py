"""Budget planning: epsilon, noise or rounds computed exactly from the other two, with the paper's figures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fastadmm.errors import ConfigError
from fastadmm.privacy.accounting import (
    compose_gdp,
    epsilon_of,
    noise_multiplier,
    rounds_within,
    zcdp_epsilon,
    zcdp_of,
)
from fastadmm.privacy.paper import corollary_epsilon

__all__ = ["BudgetPlan", "plan_budget", "plan_table"]


@dataclass(frozen=True)
class BudgetPlan:
    r"""A consistent choice of epsilon, rounds and noise."""

    epsilon: float  # of all rounds of one party
    delta: float  # of all rounds of one party
    rounds: int
    multiplier: float  # :math:`\sigma/\Delta` per round
    joint: float  # epsilon of one person in all parties
    discrete: float  # epsilon that zCDP proves for discrete noise of the same size
    paper: float  # what Corollary 1 of the paper would say of this noise, were its Lemma 1 true

    def to_json(self) -> dict[str, Any]:
        """Plain values; infinite ones as the text ``"inf"``."""
        return {key: "inf" if value == math.inf else value for key, value in vars(self).items()}


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
        rounds = rounds_within(_number(epsilon), delta, _number(multiplier))
        if rounds < 1:
            raise ConfigError(
                f"privacy: epsilon {epsilon} at delta {delta:g} allows no round with this noise"
            )
    if multiplier is None:
        multiplier = noise_multiplier(_number(epsilon), delta, rounds)
    mu = math.sqrt(rounds) / multiplier
    share = delta / (2.0 * rounds)
    per_round = math.sqrt(2.0 * math.log(1.25 / share)) / multiplier
    return BudgetPlan(
        epsilon=epsilon_of(mu, delta),
        delta=delta,
        rounds=rounds,
        multiplier=multiplier,
        joint=epsilon_of(compose_gdp([mu] * n_parties), delta),
        discrete=zcdp_epsilon(zcdp_of([mu]), delta),
        paper=corollary_epsilon(per_round, rounds, delta / 2.0) if per_round < 100.0 else math.inf,
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def plan_table(
    plan: BudgetPlan, n_parties: int, sensitivity: float | None, theorem: str
) -> list[tuple[str, str]]:
    """A plan as rows of two cells."""
    rows = [
        ("epsilon per party", f"{plan.epsilon:.6g} at delta {plan.delta:g} (exact)"),
        ("rounds", str(plan.rounds)),
        ("noise over sensitivity, per round", f"{plan.multiplier:.6g}"),
    ]
    if sensitivity is not None:
        rows += [
            ("sensitivity", f"{sensitivity:.6g} ({theorem})"),
            ("sigma", f"{sensitivity * plan.multiplier:.6g}"),
        ]
    if n_parties > 1:
        rows.append((f"one person in all {n_parties} parties", f"epsilon {plan.joint:.6g}"))
    return [
        *rows,
        ("discrete noise of this size", f"epsilon {plan.discrete:.6g} (zCDP)"),
        ("Corollary 1 of the paper", f"epsilon {plan.paper:.6g} (unproved: its Lemma 1 is false)"),
    ]
