"""How a party answers: every call of its family is a method of the same name."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.calls import CALLS
from fastadmm.engine.engine import Engine
from fastadmm.errors import FormatError
from fastadmm.problem.bounded_models import deviations_of
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.proof.share import Share, party_share


class Unanswerable(FormatError):
    """A call that is not for this party in its state; whoever carried it says where it came from."""


def checked(saved: Mapping[str, Any], key: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array that a party has saved."""
    array = saved.get(key)
    if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.ndim != len(shape):
        raise ValueError(key)
    if any(n not in (-1, m) for n, m in zip(shape, array.shape)) or not np.isfinite(array).all():
        raise ValueError(key)
    return array


class Answering(ABC):
    """A party, wherever the coordinator is."""

    family: ClassVar[str]  # which calls of CALLS it answers
    needs: ClassVar[tuple[str, ...]] = ()
    exchanges_per_column: ClassVar[int] = 1
    name: str
    block: FeatureBlock
    engine: Engine
    reason: str  # name of its update, and why it was chosen
    #: What the coordinator is told in place of ``kind`` and ``reason``, where these depend on the rows.
    told: ClassVar[tuple[str, str] | None] = None
    #: Blocks of rows that are scored beside those of training, by the name that ``scores`` is given.
    other_rows: Mapping[str, FeatureBlock] = MappingProxyType({})
    #: Weights of the best round so far, where held-out rows choose it.
    kept: np.ndarray | None = None
    #: Whether other answers show columns whatever the penalty: then the proof need not hide them.
    answers_by_column: ClassVar[bool] = False
    #: Regulariser and set of its weights, summed scaling; only of parties that a proof asks.
    penalty: PartyPenalty

    @staticmethod
    def shows_columns(regularizer: str, constraint: str) -> bool:
        """Whether answers without noise can show single columns: not where a rotation of all changes none."""
        return True

    def answer(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Answer one call.

        Returns: arrays and scalars; empty where the table says that the call has no answer.
        """
        if name not in CALLS or self.family not in CALLS[name].families:
            raise Unanswerable(f"call {name[:80]!r} is unknown here")
        return getattr(self, name)(**arguments) or {}

    def scores(self, rows: str, **needed: Any) -> dict[str, Any]:
        """This party's share of the predictor of some rows: its own of training, or others."""
        block = self.block if rows == "train" else self.other_rows.get(rows)
        if block is None:
            raise Unanswerable(f"call 'scores': {self.name} has no {rows[:80]!r} rows here")
        weights = self.final_weights(**needed)
        if weights.ndim == 1:
            return {"scores": block.product(weights, self.engine)}
        return {"scores": block.matrix_product(np.ascontiguousarray(weights.T), self.engine).ravel()}

    def prove(
        self, u: np.ndarray, eps: float, reach: float, about_mean: bool, kept: bool, **needed: Any
    ) -> dict[str, Any]:
        """Answer a dual vector with the message of the weights that will be written, and their share.

        Shapes: u (N,) or (C, N).
        Scaling: u summed scaling.
        """
        told = reach > 0.0 and (self.answers_by_column or not self.penalty.radial)
        bounded = (deviations_of(self.block, about_mean, self.engine), reach) if told else None
        message, share = self.share_of(u, eps, bounded, kept, needed)
        return {"message": message, **share._asdict()}

    def share_of(
        self,
        u: np.ndarray,
        eps: float,
        bounded: tuple[np.ndarray, float] | None,
        kept: bool,
        needed: Mapping[str, Any],
    ) -> tuple[np.ndarray, Share]:
        """What :meth:`prove` tells."""
        weights, v = np.ascontiguousarray(self.weights_for("prove", kept, needed)), u.ravel()
        dual = v, self.engine.norm(v) + math.sqrt(len(v)) * 2.0**-511, eps  # squares may vanish
        share = party_share(
            self.block,
            self.penalty,
            weights,
            dual,
            bounded,
            self.engine,
            exact=True,
            by_norms=not self.answers_by_column,
        )
        compensated = self.block.compensated_product
        if weights.ndim == 1:
            return compensated(weights, self.engine), share
        return np.array([compensated(np.ascontiguousarray(x), self.engine) for x in weights.T]), share

    def weights_for(self, call: str, kept: bool, needed: Mapping[str, Any]) -> np.ndarray:
        """The present weights, or those that were kept, for a call that says what they need."""
        if set(needed) != set(self.needs):
            what = ", ".join(self.needs) or "no arguments"
            raise Unanswerable(f"call {call!r}: family {self.family!r} needs {what}")
        weights = self.kept if kept else self.final_weights(**needed)
        if weights is None:
            raise Unanswerable(f"call {call!r}: no weights were kept")
        return weights

    def fingerprints(self) -> list[str]:
        """Of all parties' keys, in the order of the run, for people to compare; empty without keys."""
        return []

    def keep_best(self, **needed: Any) -> None:
        """Keep the present weights: ``finish`` may ask for them."""
        self.kept = np.array(self.final_weights(**needed), order="C")

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """Of x_m: (d_m,); of a multinomial model (d_m, C)."""
        return (self.block.shape[1],)

    @classmethod
    @abstractmethod
    def opened(cls, name: str, block: FeatureBlock, engine: Engine, terms: Mapping[str, Any]) -> Self:
        """A party of a run that begins with these arguments of the call ``start``."""

    @abstractmethod
    def prepare(self) -> None:
        """Check the block, and factorise what every round needs."""

    @abstractmethod
    def final_weights(self, *args: Any, **needed: Any) -> np.ndarray:
        """x_m of :attr:`weights_shape`, given the arguments that ``needs`` names."""

    @abstractmethod
    def export(self) -> dict[str, np.ndarray]:
        """What it has to remember between two calls."""

    @abstractmethod
    def restore(self, saved: Mapping[str, Any]) -> None:
        """Inverse of :meth:`export`; raises ValueError as :func:`checked`."""
