"""What a collaboration will achieve, before anybody trains: theorems in ``docs/owners.md``.

Near its minimum the objective is a quadratic; the learner's iteration is linear there, so that mean and
variance of every coordinate obey an exact recursion. To optimisation and noise comes what a finite sample
costs, :math:`s^2 p / (2 n)`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.files.atomic import plain
from fastadmm.owners.learner import PRINTED, average_weight, step_of
from fastadmm.owners.pilot import Pilot


@dataclass(frozen=True)
class Member:
    """An owner as the forecast sees it."""

    name: str
    n_samples: int
    epsilon: float  # infinite for exact answers


@dataclass(frozen=True)
class Gap:
    """Forecast distance from the best possible model, in units of the objective."""

    optimisation: float  # left by too few or too short steps
    noise: float  # from the answers
    statistical: float  # from the finite number of records
    rounds: int

    @property
    def training(self) -> float:
        """What training leaves: optimisation and noise."""
        return self.optimisation + self.noise

    @property
    def total(self) -> float:
        """All three terms."""
        return self.training + self.statistical

    def to_json(self) -> dict[str, Any]:
        """Plain dictionary with the sums."""
        return {**vars(self), "total": self.total}


def linear_response(
    method: str, step: float, h: np.ndarray, e: np.ndarray, rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Optimisation term, and noise term per unit of noise variance, after every query. Shapes: h, e (p,)."""
    averaged = method in ("algorithm2", "strongly_convex")
    mean, bar = e.astype(float).copy(), np.zeros(len(e))
    # The average starts at theta = 0, as far from the minimum as the iterate.
    bar += e
    a = np.zeros(len(e))  # var theta, cov(theta, average), var average
    b, c = a.copy(), a.copy()
    queries = rounds - 1 if method in PRINTED else rounds
    optimisation, noise = np.empty(queries), np.empty(queries)
    for k in range(1, queries + 1):
        if averaged:
            w = average_weight(method, k, rounds)
            bar = (1 - w) * bar + w * mean
            c = (1 - w) ** 2 * c + 2 * w * (1 - w) * b + w * w * a
            b = (1 - w) * b + w * a
        size = step_of(method, step, k, rounds)
        factor = 1.0 - size * h
        mean = factor * mean
        a = factor**2 * a + size**2
        b = factor * b
        shown, variance = (bar, c) if averaged else (mean, a)
        optimisation[k - 1] = 0.5 * h @ shown**2
        noise[k - 1] = 0.5 * h @ variance
    return optimisation, noise


def corrected_bound(
    low: float, high: float, step: float, rounds: int, start: float, variance: float
) -> float:
    """The paper's Theorem 2 corrected, for constant steps; infinite where it does not apply."""
    if low <= 0 or step > (1 + 1e-12) / high:
        return math.inf
    return (1 - step * low) ** rounds * start + step * high * variance / (2 * low)


@dataclass(frozen=True, eq=False)
class Forecast:
    """The forecast of a set of owners under common settings."""

    members: tuple[Member, ...]
    pilot: Pilot  # spectrum, initial error and residual variance
    mechanism: str
    delta: float | None
    xi: float  # bound on each record's gradient, in the mechanism's norm
    rounds: int  # T
    method: str  # method of the learner; ``adaptive`` is forecast as ``constant``
    step: float
    weights: str = "size"
    kappa: int = 1  # most owners with one and the same record

    def __post_init__(self) -> None:
        if self.rounds < 1 or (self.method in PRINTED and self.rounds < 2):
            raise ConfigError(f"rounds: {self.rounds} is too few")
        if self.mechanism == "gaussian" and (self.delta is None or not 0 < self.delta < 1):
            raise ConfigError("delta: Gaussian answers need a delta between 0 and 1, such as 1e-6")
        if math.isinf(self.xi) and not all(math.isinf(member.epsilon) for member in self.members):
            raise ConfigError("bound: gradients are unbounded; pass --bound clip:XI or features:R")

    # --- noise ---------------------------------------------------------------------------------------------

    def answer_variance(self, member: Member, rounds: int) -> float:
        """Noise variance of each coordinate of one owner's mean answer."""
        if math.isinf(member.epsilon):
            return 0.0
        sensitivity = 2 * self.xi / member.n_samples
        if self.mechanism == "laplace":
            return 2 * (sensitivity * rounds * self.kappa / member.epsilon) ** 2
        from fastadmm.privacy.accounting import noise_multiplier

        assert self.delta is not None
        multiplier = noise_multiplier(member.epsilon / self.kappa, self.delta / self.kappa)
        return rounds * (sensitivity * multiplier) ** 2

    def noise_variance(self, members: Sequence[Member] | None = None, rounds: int | None = None) -> float:
        """Noise variance v of each coordinate of the weighted answer."""
        members = self.members if members is None else members
        variances = np.array([self.answer_variance(m, rounds or self.rounds) for m in members])
        if self.weights == "budget":
            # Weights in inverse proportion to the variances; an exact owner takes all the weight.
            return 0.0 if (variances == 0).any() else float(1.0 / (1.0 / variances).sum())
        sizes = np.array([m.n_samples for m in members], dtype=float)
        shares = sizes / sizes.sum()
        return float((shares**2 * variances).sum())

    # --- gap -----------------------------------------------------------------------------------------------

    def gap(self, members: Sequence[Member] | None = None, rounds: int | None = None) -> Gap:
        """Forecast gap of a coalition."""
        members = self.members if members is None else members
        rounds = self.rounds if rounds is None else rounds
        method = "constant" if self.method == "adaptive" else self.method
        optimisation, unit = linear_response(method, self.step, self.pilot.h, self.pilot.e, rounds)
        n = sum(m.n_samples for m in members)
        statistical = self.pilot.residual * len(self.pilot.h) / (2 * n)
        noise = float(unit[-1]) * self.noise_variance(members, rounds)
        return Gap(float(optimisation[-1]), noise, statistical, rounds)

    def best_rounds(self, most: int = 1000) -> Gap:
        """The gap at the number of rounds that makes it smallest."""
        grid = sorted(
            {max(2, round(1.08**k)) for k in range(int(math.log(most) / math.log(1.08)) + 1)} | {most}
        )
        if self.method not in PRINTED:
            grid = [1, *grid]
        return min((self.gap(rounds=rounds) for rounds in grid), key=lambda gap: gap.total)

    def bound(self) -> float:
        """The corrected theorem's bound on the training gap of all owners, at the forecast's T."""
        variance = self.noise_variance() * len(self.pilot.h)
        h = self.pilot.h
        start = 0.5 * float(h @ self.pilot.e**2)
        if self.method not in ("constant", "adaptive"):
            return math.inf
        return corrected_bound(float(h.min()), float(h.max()), self.step, self.rounds, start, variance)

    # --- who should join -----------------------------------------------------------------------------------

    def without(self, name: str) -> tuple[Member, ...]:
        """All owners but one."""
        return tuple(member for member in self.members if member.name != name)

    def marginal_value(self, name: str) -> float:
        """By how much an owner lowers the total gap, which may be infinite; negative where it harms."""
        others = self.without(name)
        return math.inf if not others else self.gap(others).total - self.gap().total

    def best_coalition(self) -> tuple[tuple[Member, ...], Gap]:
        """The owners with the smallest total gap at the forecast's T, found by leaving out one by one."""
        kept, candidates = self.members, [self.members]
        while len(kept) > 1:
            options = [tuple(o for o in kept if o is not m) for m in kept]
            kept = min(options, key=lambda subset: self.gap(subset).total)
            candidates.append(kept)
        best = min(candidates, key=lambda subset: self.gap(subset).total)
        return best, self.gap(best)

    def warnings(self) -> list[str]:
        """Where the forecast itself does not apply."""
        texts = {
            "algorithm 1 steps by rho/(T^2 k): the steps add up to about rho ln(T)/T^2, so the iterate does "
            "not move": self.method == "algorithm1",
            "weights by budget change the objective where owners differ: it is then their weighted mean": (
                self.weights == "budget"
            ),
            "the loss is not quadratic: the forecast is its second-order form at the pilot's optimum": (
                not self.pilot.quadratic
            ),
            "an adaptive step depends on the noise: forecast as the constant step it begins with": (
                self.method == "adaptive"
            ),
        }
        return [text for text, holds in texts.items() if holds]

    def to_json(self, most_rounds: int = 1000) -> dict[str, Any]:
        """The whole forecast as plain values; infinities become None."""
        gap, best = self.gap(), self.best_rounds(most=most_rounds)
        coalition, coalition_gap = self.best_coalition()
        chosen = {m.name for m in coalition}
        h = self.pilot.h
        document = {
            "rounds": self.rounds,
            "method": self.method,
            "step": self.step,
            "mechanism": self.mechanism,
            "delta": self.delta if self.mechanism == "gaussian" else 0.0,
            "xi": self.xi,
            "weights": self.weights,
            "n_parameters": len(h),
            "curvature": [float(h.min()), float(h.max())],
            "pilot": self.pilot.source,
            "gap": gap.to_json(),
            "relative": gap.training / self.pilot.optimum if self.pilot.optimum else None,
            "bound": self.bound(),
            "best_rounds": best.to_json(),
            "warnings": self.warnings(),
            "best_coalition": {"owners": [m.name for m in coalition], "gap": coalition_gap.to_json()},
            "leave_out": [m.name for m in self.members if m.name not in chosen],
            "owners": [
                {
                    "name": m.name,
                    "n_samples": m.n_samples,
                    "epsilon": m.epsilon,
                    "marginal_value": self.marginal_value(m.name),
                }
                for m in self.members
            ],
        }
        return dict(plain(document))
