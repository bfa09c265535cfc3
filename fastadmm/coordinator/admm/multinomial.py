"""ADMM sharing of a multinomial model: the scalar method with C numbers per sample."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Answers, Call, Exchange, Talk
from fastadmm.coordinator.admm.admm import AdmmMethod
from fastadmm.method.method import Measured, translated
from fastadmm.parties.classes import ClassParty

#: What the scalar method's calls are for several classes; ``dual_value`` is the same for both.
_CALLS = {name: f"{name}_classes" for name in ("step", "certify", "stationarity", "dual_scale")}


class MultinomialAdmmMethod(AdmmMethod):
    """Sharing, Jacobi or Gauss-Seidel ADMM for C classes; parameters as :class:`AdmmMethod`."""

    family = "multinomial_admm"
    party_type = ClassParty

    def prepare(self) -> Talk[float]:
        return translated(super().prepare(), self._asked, _heard)

    def round(self) -> Talk[Measured]:
        return translated(super().round(), self._asked, _heard)

    def _asked(self, exchange: Exchange) -> Exchange:
        """The scalar method's calls as those of several classes: C N numbers travel as a table."""

        def tables(call: Call) -> dict[str, Any]:
            made, shape = call.made(), (self.problem.n_outputs, -1)
            return {key: v.reshape(shape) if isinstance(v, np.ndarray) else v for key, v in made.items()}

        calls = exchange.calls
        calls = [Call(own.party, _CALLS.get(own.name, own.name), partial(tables, own)) for own in calls]
        return replace(exchange, calls=calls)


def _heard(exchange: Exchange, answers: Answers) -> Answers:
    return [{key: v.ravel() if key == "message" else v for key, v in own.items()} for own in answers]
