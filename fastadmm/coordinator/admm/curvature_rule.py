r"""Curvature re-weighting: one penalty per sample, as large as the loss is curved there.

After rounds 10 and 30 the penalty r becomes :math:`r_i = r\, \omega_i` with
:math:`\omega_i` the curvature :math:`\ell''(z_i)` of the loss at the model, held
above a tenth of its mean and scaled to mean 1. With :math:`\Omega = \mathrm{diag}(\omega)`
this is ADMM sharing on :math:`\Omega^{1/2} D_m`, so the convergence of the plain
scheme carries over from the last change on. Every party factorises twice more.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from fastadmm.engine.engine import Engine

__all__ = ["CHANGE_ROUNDS", "CurvatureRule"]

Array = np.ndarray

#: The rounds after which the penalty follows the curvature. Earlier, far from the solution, it is a bad
#: guide: after round 3 a9a takes twice the rounds.
CHANGE_ROUNDS = (10, 30)

#: Least share of the mean: a sample with next to no curvature would let its z go anywhere.
_FLOOR = 0.1

#: Curvatures within this factor of each other change nothing that is worth a factorisation.
_LEAST_SPREAD = 1.5

#: Mean penalty in units of the mean curvature.
_SHARE = 0.3


@dataclass
class CurvatureRule:
    """State of the rule."""

    n_rounds: int = 0  # rounds so far

    def due(self) -> bool:
        """Count a round; whether the penalty is to be changed after it."""
        self.n_rounds += 1
        return self.n_rounds in CHANGE_ROUNDS

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

    def export(self) -> dict[str, int]:
        """Everything a resumed run needs to go on bit for bit."""
        return asdict(self)

    def restore(self, saved: dict) -> None:
        """Inverse of :meth:`export`."""
        self.n_rounds = int(saved["n_rounds"])
