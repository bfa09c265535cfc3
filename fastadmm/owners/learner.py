"""The learner's side: where to query, and what to make of the answers. It sees answers only.

Every method is a function of released values, so it costs no privacy: ``constant`` steps in the box (the
corrected Theorem 2 of ``docs/owners.md`` holds for it), ``adaptive`` ones by how successive gradients agree,
``strongly_convex`` ones with averages weighted by k for losses with kinks (Lacoste-Julien, Schmidt and Bach
2012), and the paper's ``algorithm1`` and ``algorithm2`` as printed.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError

#: The two methods of the paper query T - 1 times.
PRINTED = ("algorithm1", "algorithm2")


def step_of(method: str, step: float, k: int, rounds: int) -> float:
    """Step size of query k (from 1); `step` is eta, 1/lambda, rho or c1 according to the method."""
    if method == "algorithm1":
        return step / (rounds**2 * k)
    if method == "algorithm2":
        return step / math.sqrt(k)
    if method == "strongly_convex":
        return 2.0 * step / (k + 1)
    return step


def average_weight(method: str, k: int, rounds: int) -> float:
    """Weight of theta_k in the average after query k; 1 where the last iterate counts."""
    if method == "algorithm2":
        root = 1.0 / math.sqrt(rounds)
        return (root + 1.0) / (root + k)
    if method == "strongly_convex":
        return 2.0 / (k + 1)
    return 1.0


@dataclass(eq=False)
class Learner:
    """The learner's state; made new, and fed the stored answers, it is bit-identical after a resume."""

    method: str
    n_parameters: int
    rounds: int
    _: KW_ONLY
    step: float
    lam: float = 0.0
    theta_max: float = math.inf
    noise: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.step < math.inf:
            raise ConfigError(f"step: {self.step:g} must be positive and finite")
        self.theta, self.average = np.zeros(self.n_parameters), np.zeros(self.n_parameters)
        self.k = 1  # number of the next query
        self._last: np.ndarray | None = None
        self._adapted = self.step

    @property
    def queries(self) -> int:
        """How often owners are asked in all."""
        return self.rounds - 1 if self.method in PRINTED else self.rounds

    @property
    def model(self) -> np.ndarray:
        """What the method returns: the average or the last iterate."""
        return self.average if self.method in ("algorithm2", "strongly_convex") else self.theta

    def receive(self, answer: np.ndarray) -> dict[str, Any]:
        """Take the weighted answer to the query at :attr:`theta` and go one step. Shapes: answer (p,)."""
        gradient = answer + self.lam * self.theta
        step = step_of(self.method, self.step, self.k, self.rounds)
        if self.method == "adaptive":
            step = self._line_search(gradient)
        weight = average_weight(self.method, self.k, self.rounds)
        self.average = (1.0 - weight) * self.average + weight * self.theta
        limit = math.inf if self.method == "algorithm1" else self.theta_max
        self.theta = np.clip(self.theta - step * gradient, -limit, limit)
        self.k += 1
        return {"step": step, "gradient_norm": float(np.linalg.norm(gradient))}

    def _line_search(self, gradient: np.ndarray) -> float:
        """The next step: the product of successive released gradients tells the slope along the last one."""
        if self._last is not None:
            product = float(gradient @ self._last)
            # Independent noise in both: variance s^2 (|g|^2 + |h|^2) + p s^4, with noisy norms for true ones.
            square, sizes = self.noise**2, float(gradient @ gradient + self._last @ self._last)
            spread = math.sqrt(square * max(0.0, sizes - len(gradient) * square))
            # Half the slope left after the step: the step was at most half of the exact one.
            if product > spread + 0.5 * float(self._last @ self._last):
                self._adapted *= 1.5
            elif product < -spread:
                self._adapted *= 0.5
        self._last = gradient
        return self._adapted
