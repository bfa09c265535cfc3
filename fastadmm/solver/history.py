"""What is recorded of each round, and a model that is kept of one."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

import numpy as np

from fastadmm.files.atomic import plain
from fastadmm.files.reading import json_of

Array = np.ndarray

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
    r"""One round, as seen by the coordinator."""

    round: int  # number of the round, from 1
    seconds: float  # wall time since the start of training, earlier parts of a resumed run included
    objective: float  # f at the current weights with the best intercept, per mean loss
    gap: float  # relative duality gap: an upper bound on ``(F - F*) / F*``
    gap_absolute: float  # duality gap: an upper bound on ``F - F*``, per mean loss
    primal_residual: float  # :math:`\|\sum_m D_m x_m - z\| / \sqrt N`
    dual_residual: float
    augmented_lagrangian: float  # equation 5 of Hu et al., divided by W: per mean loss
    lyapunov: float  # V^t, equation 13 of Hu et al., in the paper's summed scaling
    penalty: float | None
    weight_norms: list[float] = field(default_factory=list)  # :math:`\|x_m\|` per party
    accelerated: bool = False  # whether this round started from an extrapolated state
    test: dict[str, float | None] | None = None  # metrics on the test set
    stationarity: float | None = None
    validation: float | None = None  # metric on the held-out rows of early stopping; None without it
    gap_within: float | None = None
    exchanges: int = field(default=0, compare=False)  # so far, as between organisations; shown, not logged

    def to_json(self) -> dict[str, Any]:
        """Plain dictionary; values that JSON cannot hold (inf, NaN) become None.

        Without a value there is no key ``stationarity``, ``validation`` or ``gap_within``.
        """
        left_out = {"exchanges", *(name for name in _SELDOM if getattr(self, name) is None)}
        return {k: plain(v) for k, v in asdict(self).items() if k not in left_out}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RoundRecord:
        """Inverse of :meth:`to_json`; None becomes inf. Unknown keys are ignored."""
        known = {f.name for f in fields(cls)}
        optional = ("test", "penalty", *_SELDOM)
        kept: dict[str, Any] = {
            k: math.inf if v is None and k not in optional else v for k, v in values.items() if k in known
        }
        return cls(**kept)


class KeptModel:
    """A model of an earlier round, to be returned instead of the last one. Shapes: intercept (C,)."""

    def __init__(self) -> None:
        self.record: RoundRecord | None = None
        self.weights: list[Array] = []
        self.intercept: Any = 0.0

    def better(self, record: RoundRecord) -> bool:
        """Whether a round's model is better than this one."""
        return record.objective < (math.inf if self.record is None else self.record.objective)

    def take(self, record: RoundRecord, intercept: Any) -> bool:
        """Look at a round; whether it is the best so far, so that its weights are to be kept."""
        if not self.better(record):
            return False
        self.record, self.intercept = record, intercept
        return True

    def export(self) -> dict[str, Any]:
        """Everything but the weights."""
        record = json.dumps(self.record.to_json()) if self.record else ""
        return {"record": record, "intercept": self.intercept}

    def restore(self, saved: dict[str, Any]) -> None:
        """Inverse of :meth:`export`."""
        self.record = RoundRecord.from_json(json_of(saved["record"])) if saved["record"] else None
        held = saved["intercept"]
        self.intercept = np.array(held) if np.ndim(held) else float(held)


class LowestModel(KeptModel):
    """The model with the least objective, of a method whose objective may rise.

    What ADMM or a search over a smoothed loss comes to last need not be the best that it had. A run that ends
    without its proof returns this one. (With the proof all models of this kind are as good as was asked for.)
    """
