"""Parties that are elsewhere: every call becomes part of a request, its answer comes from a message.

A method runs on these as on parties in the process. A call whose answer has not
arrived raises :class:`Waiting`; the round is then begun again when it has, from
the same state and with the answers so far, so that it takes the same course.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.calls import CALLS
from fastadmm.coordinator.admm.admm import AdmmMethod
from fastadmm.coordinator.subspace.subspace import SubspaceMethod
from fastadmm.engine.engine import Engine
from fastadmm.parties.proximal import Certificate
from fastadmm.problem.problem import Problem
from fastadmm.rounds.exchange import Asked, open_message

__all__ = [
    "AskingEngine",
    "RemoteAdmm",
    "RemoteAdmmMethod",
    "RemoteBlock",
    "RemoteDirections",
    "RemoteParty",
    "RemoteSubspaceMethod",
    "Waiting",
]

_T = TypeVar("_T")
_R = TypeVar("_R")


class Waiting(Exception):
    """An answer has not arrived yet."""


class AskingEngine(Engine):
    """An engine whose map asks all parties before it waits for any."""

    def map(self, function: Callable[[_T], _R], items: Iterable[_T], parallel: bool = True) -> list[_R]:
        """As :meth:`Engine.map`, ``parallel`` too; raises :class:`Waiting` after every item had its turn."""

        def ask(item: _T) -> Any:
            try:
                return function(item)
            except Waiting as waiting:
                return waiting

        results = super().map(ask, items, parallel)
        for result in results:
            if isinstance(result, Waiting):
                raise result
        return results


class RemoteBlock(FeatureBlock):
    """The shape of a block that is elsewhere; it has no products.

    Parameters
    ----------
    shape : tuple of int
        (N, d).
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape, self.nbytes, self.density = shape, 0, 1.0

    def _elsewhere(self, *arguments: Any, **options: Any) -> Any:
        """Not here: the coordinator holds no features."""
        raise AssertionError("the coordinator holds no features")

    product = transposed_products = matrix_product = gram = kernel_gram = column_squares = _elsewhere


class RemoteParty:
    """One party elsewhere.

    Parameters
    ----------
    name : str
    n_samples : int
    kind, reason : str
        What the party said of its updates.
    answers : list of (int, Path)
        Kept messages from this round on: number of the exchange, and the file.
    queue : list of Asked
        Calls from the round before, which nobody had to answer.
    last : int
        Number of the last exchange before this round that the party answered.

    Attributes
    ----------
    last : int
        Number of the last exchange whose answer was used.
    asking : bool
        Whether a call waits for its answer.
    """

    def __init__(
        self,
        name: str,
        n_samples: int,
        kind: str,
        reason: str,
        answers: Sequence[tuple[int, Path]] = (),
        queue: Sequence[Asked] = (),
        last: int = 0,
    ) -> None:
        self.name, self.n_samples, self.kind, self.reason = name, n_samples, kind, reason
        self.answers, self.queue, self.last = list(answers), list(queue), last
        self.asking = False

    def tell(self, call: str, **arguments: Any) -> None:
        """A call without an answer: it travels with the next request."""
        self.queue.append((call, arguments))

    def ask(self, call: str, **arguments: Any) -> dict[str, Any]:
        """A call with an answer, which is what :data:`fastadmm.conversation.calls.CALLS` says."""
        if self.answers:
            self.queue.clear()
            self.last, path = self.answers.pop(0)
            return open_message(path, self.n_samples, lambda _: (call, arguments)).answer
        self.queue.append((call, arguments))
        self.asking = True
        raise Waiting

    def finish(self, arguments: dict[str, Any]) -> float:
        """Let the party write its model; the mean of its contribution."""
        return float(self.ask("finish", **arguments)["mean"])


class RemoteDirections(RemoteParty):
    """A :class:`fastadmm.parties.direction.DirectionParty` elsewhere."""

    def answer(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """See there."""
        sent = {key: value for key, value in arguments.items() if key != "out"}
        if CALLS[name].answer:
            return self.ask(name, **sent)
        self.tell(name, **sent)
        return {}


class RemoteAdmm(RemoteParty):
    """A :class:`fastadmm.parties.proximal.Party` elsewhere."""

    penalty = weight_norm = 0.0

    def forget_target(self) -> None:
        """The party elsewhere looks nowhere ahead."""

    def prepare(self) -> None:
        """The party elsewhere does so by itself."""

    def set_metric(self, metric: np.ndarray) -> None:
        """See there."""
        self.tell("set_metric", curvature=metric)

    def step(self, w: np.ndarray, scaled_penalty: float) -> np.ndarray:
        """See there; the answer brings the regulariser's value and the norm of the weights with it."""
        answer = self.ask("step", w=w, scaled_penalty=float(scaled_penalty))
        self.penalty = float(answer["penalty"])
        self.weight_norm = float(answer["norm"])
        return answer["message"]

    def penalty_value(self) -> float:
        """See there."""
        return self.penalty

    def certify(self, gradient: np.ndarray, pull: np.ndarray) -> Certificate:
        """See there."""
        answer = self.ask("certify", gradient=gradient, pull=pull)
        return Certificate(float(answer["gap"]), float(answer["stationarity"]))

    def stationarity(self, pull: np.ndarray) -> float:
        """See there."""
        return float(self.ask("stationarity", pull=pull)["value"])

    def dual_scale(self, u: np.ndarray) -> float:
        """See there."""
        return float(self.ask("dual_scale", u=u)["value"])

    def dual_value(self, scale: float) -> float:
        """See there."""
        return float(self.ask("dual_value", scale=float(scale))["value"])


class RemoteSubspaceMethod(SubspaceMethod):
    """``subspace`` with parties elsewhere.

    Parameters
    ----------
    problem : Problem
    engine : Engine
    directions : int or None
    both : bool
        As of :class:`fastadmm.coordinator.subspace.subspace.SubspaceMethod`.
    parties : list of RemoteDirections
    """

    def __init__(
        self,
        problem: Problem,
        engine: Engine,
        directions: int | None,
        both: bool,
        parties: list[RemoteDirections],
    ) -> None:
        self._remote = parties
        super().__init__(problem, engine, directions, both)

    def make_parties(self) -> Any:
        return self._remote

    def prepare_parties(self) -> None:
        pass  # every party does so by itself

    def final_arguments(self, m: int) -> dict[str, Any]:
        """What party m needs to know its weights."""
        return {"coefficients": self.coordinator.coefficients(m)}

    def export_parties(self) -> list[dict[str, np.ndarray]]:
        return []

    def restore_parties(self, parties: list[dict[str, np.ndarray]]) -> None:
        pass  # every party keeps its own


class RemoteAdmmMethod(AdmmMethod):
    """``sharing``, ``jacobi`` or ``gauss-seidel`` with parties elsewhere.

    Parameters
    ----------
    parties : list of RemoteAdmm
    *settings
        As of :class:`fastadmm.coordinator.admm.admm.AdmmMethod`.
    """

    def __init__(self, parties: list[RemoteAdmm], *settings: Any) -> None:
        self._remote = parties
        super().__init__(*settings)

    def make_parties(self) -> Any:
        return self._remote

    def party_notes(self) -> list[tuple[str, str, str]]:
        return [(p.name, p.kind, p.reason) for p in self._remote]

    def weight_norms(self) -> list[float]:
        return [party.weight_norm for party in self._remote]

    def final_arguments(self, m: int) -> dict[str, Any]:
        """What party m needs to know its weights: nothing, they are its last answer."""
        return {}

    def export_parties(self) -> list[dict[str, np.ndarray]]:
        return []

    def restore_parties(self, parties: list[dict[str, np.ndarray]]) -> None:
        pass  # every party keeps its own
