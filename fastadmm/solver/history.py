"""What is recorded of each round."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

__all__ = ["RoundRecord", "Status"]

#: Values of a record that few kinds of runs have.
_SELDOM = ("stationarity", "validation", "gap_within")


class Status(StrEnum):
    """Why a run stopped."""

    CONVERGED = "converged"
    AT_ROUNDING = "at_rounding"  # rounds gain nothing more, and what was asked for is not proved
    CONTRADICTION = "contradiction"  # the proof contradicts itself: a defect
    STATIONARY = "stationary"
    COMPLETED = "completed"  # a private run: all rounds that were charged
    MAX_ROUNDS = "max_rounds"
    TIME_LIMIT = "time_limit"
    DIVERGED = "diverged"
    EARLY_STOPPED = "early_stopped"  # held-out rows no longer got better
    INTERRUPTED = "interrupted"
    RUNNING = "running"


@dataclass(frozen=True)
class RoundRecord:
    r"""One round, as seen by the coordinator.

    Attributes
    ----------
    round : int
        Number of the round, from 1.
    seconds : float
        Wall time since the start of training, earlier parts of a resumed run included.
    objective : float
        F at the current weights with the best intercept, per mean loss.
    gap : float
        Relative duality gap: an upper bound on ``(F - F*) / F*``.
    gap_absolute : float
        Duality gap: an upper bound on ``F - F*``, per mean loss.
    primal_residual : float
        :math:`\|\sum_m D_m x_m - z\| / \sqrt N`.
    dual_residual : float
        :math:`(\frac1M \sum_m \|s_m\|^2 / N)^{1/2}`, with :math:`D_m^\top s_m`
        the amount by which party m's optimality fails at the new dual variable.
    augmented_lagrangian : float
        Equation 5 of Hu et al., divided by W: per mean loss.
    lyapunov : float
        V^t, equation 13 of Hu et al., in the paper's summed scaling.
    penalty : float or None
        r, in the summed scaling (the paper's rho for its mean objective is r / N);
        None for a scheme without one.
    weight_norms : list of float
        :math:`\|x_m\|` per party.
    accelerated : bool
        Whether this round started from an extrapolated state.
    test : dict or None
        Metrics on the test set.
    stationarity : float or None
        Of a non-convex problem, where gap and gap_absolute are infinite:
        :math:`\sqrt{V / V^0}`, dimensionless, with V the larger of V^t and its
        value at the model itself (z the sum of the messages, u the loss
        gradient), and V^0 that of zero weights. None in a convex problem.
    validation : float or None
        Metric on the held-out rows of early stopping; None without it.
    gap_within : float or None
        Relative gap to the best model in which no column contributes more than 1000 deviations
        (:mod:`fastadmm.problem.bounded_models`), where ``gap`` proves less than was asked for because
        nothing bounds the weights; else None.
    """

    round: int
    seconds: float
    objective: float
    gap: float
    gap_absolute: float
    primal_residual: float
    dual_residual: float
    augmented_lagrangian: float
    lyapunov: float
    penalty: float | None
    weight_norms: list[float] = field(default_factory=list)
    accelerated: bool = False
    test: dict[str, float | None] | None = None
    stationarity: float | None = None
    validation: float | None = None
    gap_within: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain dictionary; values that JSON cannot hold (inf, NaN) become None.

        Without a value there is no key ``stationarity``, ``validation`` or ``gap_within``.
        """
        values = {k: _finite(v) for k, v in asdict(self).items()}
        for name in _SELDOM:
            if getattr(self, name) is None:
                del values[name]
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RoundRecord:
        """Inverse of :meth:`to_json`; None becomes inf. Unknown keys are ignored."""
        known = {f.name for f in fields(cls)}
        optional = ("test", "penalty", *_SELDOM)
        kept: dict[str, Any] = {
            k: math.inf if v is None and k not in optional else v for k, v in values.items() if k in known
        }
        return cls(**kept)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_finite(v) for v in value]
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return value
