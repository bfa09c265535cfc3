"""A model of an earlier round, to be returned instead of the last one."""

import json
import math
from typing import Any

import numpy as np

from fastadmm.files.reading import json_of
from fastadmm.solver.history import RoundRecord

Array = np.ndarray


class KeptModel:
    """Round, weights and intercept. Shapes: intercept (C,)."""

    def __init__(self) -> None:
        self.record: RoundRecord | None = None
        self.weights: list[Array] = []
        self.intercept: Any = 0.0

    def export(self) -> dict[str, Any]:
        """Everything but the weights."""
        record = json.dumps(self.record.to_json()) if self.record else ""
        return {"record": record, "intercept": self.intercept}

    def restore(self, saved: dict[str, Any], weights: list[Array]) -> None:
        """Inverse of :meth:`export`, with the weights."""
        self.record = RoundRecord.from_json(json_of(saved["record"])) if saved["record"] else None
        held = saved["intercept"]
        self.intercept = np.array(held) if np.ndim(held) else float(held)
        self.weights = [np.array(w) for w in weights]


class LowestModel(KeptModel):
    """The model with the least objective, of a method whose objective may rise.

    What ADMM or a search over a smoothed loss comes to last need not be the best that it had. A run that ends
    without its proof returns this one. (With the proof all models of this kind are as good as was asked for.)
    """

    def take(self, record: RoundRecord, intercept: Any) -> bool:
        """Look at a round; whether it is the best so far, so that its weights are to be kept."""
        best = math.inf if self.record is None else self.record.objective
        if not record.objective < best:
            return False
        self.record, self.intercept = record, intercept
        return True
