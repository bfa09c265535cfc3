"""ADMM sharing of a multinomial model: the scalar method with C numbers per sample."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.exchange import Call, Talk
from fastadmm.coordinator.admm.admm import AdmmMethod
from fastadmm.method.certificate import PrimalValue
from fastadmm.method.class_certificate import class_primal_value, multinomial_of, shifted
from fastadmm.method.method import Measured
from fastadmm.parties.classes import ClassParty
from fastadmm.parties.proximal import Party
from fastadmm.problem.constraints import Constraint
from fastadmm.problem.regularizers import Regularizer

_T = TypeVar("_T")

#: What the scalar method's calls are for several classes; ``dual_value`` is the same for both.
_CALLS = {name: f"{name}_classes" for name in ("step", "certify", "stationarity", "dual_scale")}


class MultinomialAdmmMethod(AdmmMethod):
    """Sharing, Jacobi or Gauss-Seidel ADMM for C classes; parameters as :class:`AdmmMethod`."""

    family = "multinomial_admm"

    def _party(self, name: str, block: FeatureBlock, penalty: tuple[Regularizer, Constraint]) -> Party:
        multinomial_of(self.problem)
        scale, classes = self.problem.regularization, self.problem.n_outputs
        return ClassParty(name, block, scale, self.engine, classes, self.x_update, *penalty)

    def _primal(self, total: np.ndarray, intercept: Any) -> PrimalValue:
        start = np.broadcast_to(np.asarray(intercept, dtype=np.float64), (self.problem.n_outputs,))
        return class_primal_value(self.problem, total, start, self.engine)

    def _loss_at_z(self) -> float:
        problem, coordinator = self.problem, self.coordinator
        z = shifted(coordinator.last.z + problem.offset, np.asarray(coordinator.intercept))
        return problem.loss.evaluate(z, problem.y, problem.weight, np.empty_like(z), self.engine)

    def prepare(self) -> Talk[float]:
        return self._by_class(super().prepare())

    def round(self) -> Talk[Measured]:
        return self._by_class(super().round())

    def _by_class(self, talk: Talk[_T]) -> Talk[_T]:
        """A talk of the scalar method in calls of several classes: C N numbers travel as a table."""
        shape = (self.problem.n_outputs, -1)

        def tables(call: Call) -> dict[str, Any]:
            return {
                key: value.reshape(shape) if isinstance(value, np.ndarray) else value
                for key, value in call.made().items()
            }

        with closing(talk):
            try:
                exchange = next(talk)
                while True:
                    calls = [
                        replace(call, name=_CALLS.get(call.name, call.name), arguments=partial(tables, call))
                        for call in exchange.calls
                    ]
                    answers = yield replace(exchange, calls=calls)
                    exchange = talk.send(
                        [
                            {**answer, "message": answer["message"].ravel()}
                            if "message" in answer
                            else answer
                            for answer in answers
                        ]
                    )
            except StopIteration as end:
                return end.value

    def export(self) -> dict[str, Any]:
        return {**super().export(), "intercept": np.asarray(self.coordinator.intercept)}

    def restore(self, saved: dict[str, Any]) -> None:
        intercept = np.array(saved["intercept"], dtype=np.float64)
        exact = np.array(saved["exact_intercept"], dtype=np.float64)
        if intercept.shape != (self.problem.n_outputs,) or exact.shape != intercept.shape:
            raise ValueError("intercept")
        super().restore({**saved, "intercept": 0.0, "exact_intercept": 0.0})
        self.coordinator.intercept, self._intercept = intercept, exact
