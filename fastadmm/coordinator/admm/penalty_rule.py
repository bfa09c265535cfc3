r"""The order of parties in ADMM, and its penalty: r moves to where primal and dual residual shrink together.

The rule of SCS (O'Donoghue 2021), on what the coordinator has anyway: after
rounds 3, 6, 12 and so on, r is multiplied by the square root of the geometric
mean, since the last change, of the ratio of relative residuals. Changes are
finitely many, so the convergence of ADMM with a fixed penalty carries over. A run whose gap
stands still decides once more.

Curvature re-weighting gives every sample a penalty, as large as the loss is curved there.
After rounds 10 and 30 the penalty r becomes :math:`r_i = r\, \omega_i` with
:math:`\omega_i` the curvature :math:`\ell''(z_i)` of the loss at the model, held
above a tenth of its mean and scaled to mean 1. With :math:`\Omega = \mathrm{diag}(\omega)`
this is ADMM sharing on :math:`\Omega^{1/2} D_m`, so the convergence of the plain
scheme carries over from the last change on. Every party factorises twice more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.method.method import Saved

#: The first decision, in rounds; each later one comes after twice as many.
_FIRST = 3

#: Decisions in a run by the number of rounds, the last after round 1536; and as many where it stalls.
MAX_DECISIONS = 10

#: Rounds after which it may decide, at the earliest.
CHANGE_ROUNDS = tuple(_FIRST * 2**k for k in range(MAX_DECISIONS))

#: Largest factor of one change.
_MAX_FACTOR = 30.0

#: Smaller changes are not worth losing the acceleration's memory.
_MIN_FACTOR = 1.5


@dataclass
class PenaltyRule(Saved):
    """State of the rule."""

    n_rounds: int = 0  # rounds and decisions so far
    n_decisions: int = 0  # rounds and decisions so far
    log_ratio: float = 0.0  # sum of the logarithms of the residuals' ratio since the last decision
    n_ratios: int = 0  # ... over so many rounds
    scheduled: bool = True  # whether there are decisions by the number of rounds, not only where a run stalls
    n_stalls: int = 0  # decisions because of that

    def factor(self, primal: float, dual: float) -> float:
        """Take in one round; return what to multiply the penalty by, mostly 1."""
        self.n_rounds += 1
        if 0.0 < primal < math.inf and 0.0 < dual < math.inf:
            self.log_ratio += math.log(primal / dual)
            self.n_ratios += 1
        if not self.scheduled or self.n_ratios == 0 or self.n_decisions >= MAX_DECISIONS:
            return 1.0
        if self.n_rounds < _FIRST * 2**self.n_decisions:
            return 1.0
        self.n_decisions += 1
        return self._balancing()

    def stalled(self) -> float:
        """Decide out of turn, where the gap stands still: what to multiply the penalty by."""
        if self.n_ratios == 0 or self.n_stalls >= MAX_DECISIONS:
            return 1.0
        self.n_stalls += 1
        return self._balancing()

    def _balancing(self) -> float:
        factor = math.exp(0.5 * self.log_ratio / self.n_ratios)
        self.log_ratio, self.n_ratios = 0.0, 0
        factor = min(max(factor, 1.0 / _MAX_FACTOR), _MAX_FACTOR)
        return 1.0 if 1.0 / _MIN_FACTOR < factor < _MIN_FACTOR else factor


Array = np.ndarray

#: The rounds after which the penalty follows the curvature. Earlier, far from the solution, it is a bad
#: guide: after round 3 a9a takes twice the rounds.
CURVATURE_ROUNDS = (10, 30)

#: Least share of the mean: a sample with next to no curvature would let its z go anywhere.
_FLOOR = 0.1

#: Curvatures within this factor of each other change nothing that is worth a factorisation.
_LEAST_SPREAD = 1.5

#: Mean penalty in units of the mean curvature.
_SHARE = 0.3


@dataclass
class CurvatureRule(Saved):
    """State of the rule."""

    n_rounds: int = 0  # rounds so far

    def due(self) -> bool:
        """Count a round; whether the penalty is to be changed after it."""
        self.n_rounds += 1
        return self.n_rounds in CURVATURE_ROUNDS

    @staticmethod
    def metric(curvature: Array, engine: Engine) -> tuple[Array, float] | None:
        """Shape and size of the penalty for given curvatures.

        Shapes: curvature, each of the result (N,).
        Scaling: the result summed scaling.
        """
        mean = engine.mean(curvature)
        if not 0.0 < mean < np.inf:
            return None
        omega = engine.each(np.maximum, curvature, _FLOOR * mean)
        highest, lowest = engine.largest(omega), -engine.each_largest([omega], -1.0)[0]
        if highest < _LEAST_SPREAD * lowest:
            return None
        return engine.each(np.divide, omega, engine.mean(omega), out=omega), _SHARE * mean


@dataclass(frozen=True)
class Order:
    """What the ADMM schemes differ in; see :mod:`fastadmm.coordinator.admm.admm`."""

    name: str  # of the scheme
    parallel: bool  # whether parties answer at the same time
    majorised: bool  # whether tau is the number of parties (else 1)
    convergent: bool  # whether convergence on every convex problem is a theorem
    accelerated: bool

    def tau(self, n_parties: int) -> float:
        """Majorisation factor for M parties."""
        return float(n_parties) if self.majorised else 1.0


SHARING = Order("sharing", parallel=True, majorised=True, convergent=True, accelerated=True)
JACOBI = Order("jacobi", parallel=True, majorised=False, convergent=False, accelerated=False)
GAUSS_SEIDEL = Order("gauss-seidel", parallel=False, majorised=False, convergent=False, accelerated=False)
