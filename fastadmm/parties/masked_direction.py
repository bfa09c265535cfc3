r"""A party in a subspace run of which the coordinator sees sums only.

All parties' directions of a round are one direction :math:`d = (d_1, \dots, d_M)` with one coefficient, so
requests are the same for every party. Directions become orthonormal jointly: the coordinator learns their
inner products, as sums, and tells all parties how to combine them. A party has a key, a transcript of what it
was asked, and answers masked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.answering import Unanswerable
from fastadmm.conversation.gate import LARGEST, GatedParty, check_features, saturated
from fastadmm.engine.engine import Engine
from fastadmm.errors import InputError
from fastadmm.parties.direction import DirectionParty, public_rows
from fastadmm.secrecy.keys import KEY_BYTES, fingerprint, keys_of, public_key
from fastadmm.secrecy.masks import (
    LARGEST_WHOLE,
    UNPROVED,
    Masked,
    PairwiseMasks,
    Transcript,
    grid_limit,
    to_grid,
    to_whole,
)

_WORDS = KEY_BYTES // 8

#: Most directions of an answer: of few columns all are fewer bytes than most runs take without them.
MOST_AT_ONCE = 128


class MaskedDirectionParty(GatedParty, DirectionParty):
    """Holder of a feature block and of its parts of the summed directions. Shapes: directions (K, d).

    A request with an argument ``exchange`` is answered once, in order: the next number and no other. Its
    mask depends on all that came before, so no two answers have the same.
    """

    family = "subspace_sums"
    told = "masked", "the coordinator sees sums only"

    def __init__(self, name: str, block: FeatureBlock, regularization: float, engine: Engine) -> None:
        super().__init__(name, block, regularization, engine)
        check_features(block, name, engine)
        self.position, self.private, self.keys = 0, b"", list[bytes]()
        self.answered = 0
        self.members: int | None = None
        self.transcript = Transcript()
        self._masks: PairwiseMasks | None = None

    @classmethod
    def opened(cls, name: str, block: FeatureBlock, engine: Engine, terms: Mapping[str, Any]) -> Self:
        party = cls(name, block, float(terms["regularization"]), engine)
        if not 1.0 / LARGEST <= terms["regularization"] <= LARGEST:
            raise Unanswerable(f"argument 'regularization' is not from {1.0 / LARGEST:.3g} to {LARGEST:.3g}")
        party.position, party.private = int(terms["position"]), terms["private_key"]
        # Told another lambda or other rows, parties make masks that do not cancel.
        shared = {key: told for key, told in terms.items() if key not in ("position", "private_key")}
        party.transcript.add("start", shared)
        if "parties" in terms:
            party.members = len(terms["parties"].split(","))
        return party

    def answer(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if "exchange" in arguments and arguments["exchange"] != self.answered + 1:
            raise Unanswerable(
                f"call {name!r} has number {arguments['exchange']}, but {self.answered} masked answers were "
                "given: a number is answered once"
            )
        if name != "show_key":
            self.transcript.add(name, arguments)
        answer = super().answer(name, arguments)
        # What a request has blown up must not be what a later one fails by.
        kept = self.directions
        if (held := saturated(kept, LARGEST)) is not kept:
            self.directions = held
        return answer

    def _await_keys(self, call: str) -> None:
        """Refuse a call that is for a party with a key of its own, before it knows the others'."""
        if self.keys or not self.private:
            raise Unanswerable(f"call {call!r}: the run has its keys already, or this party has none")

    def show_key(self) -> dict[str, Any]:
        """The public part of its key for this run."""
        self._await_keys("show_key")
        return {"key": np.frombuffer(public_key(self.private), dtype="<i8")}

    def introduce(self, keys: np.ndarray) -> None:
        """Take in the public keys of all parties. Shapes: keys (4 M,)."""
        self._await_keys("introduce")
        told = keys_of(keys)
        if self.members is not None and len(told) != self.members:
            raise Unanswerable(f"call 'introduce': {len(told)} keys in a run of {self.members} parties")
        if len(keys) % _WORDS or len(told) < 2 or len(set(told)) < len(told):
            raise Unanswerable("call 'introduce': not one key for each of at least two parties")
        if self.position >= len(told) or told[self.position] != public_key(self.private):
            raise Unanswerable("call 'introduce': another key than this party's in its place")
        self._know(told)

    def fingerprints(self) -> list[str]:
        return [fingerprint(key) for key in self.keys]

    def _know(self, keys: list[bytes]) -> None:
        try:
            self._masks = PairwiseMasks(self.private, keys, self.position)
        except InputError as error:
            raise Unanswerable(f"call 'introduce': {error}") from None
        self.keys = keys

    def sealed(self, rows: np.ndarray, step: float, numbers: Sequence[float]) -> dict[str, Any]:
        """A masked answer; what is out of range counts as the end of the range. Shapes: rows (n,)."""
        if self._masks is None:
            raise Unanswerable("a masked answer before the parties' keys are known")
        m = len(self.keys)
        if math.frexp(step)[0] != 0.5:
            raise Unanswerable(f"step {step!r} of the grid is no power of two")
        rows = saturated(rows, grid_limit(step, m))
        whole = saturated(np.array(numbers, dtype=np.float64), LARGEST_WHOLE)
        meant = Masked(to_grid(rows, step), to_whole(whole.tolist()))
        self.answered += 1
        return self._masks.hide(meant, self.transcript.digest).packed()

    def sum_squares(self, exchange: int) -> dict[str, Any]:
        """The sum of the squares of all features, masked: what bounds a message."""
        squares = float(self.block.column_squares(self.engine).sum())
        return self.sealed(np.empty(0), 1.0, [squares])

    def prove_masked(
        self, exchange: int, u: np.ndarray, eps: float, scale: float, kept: bool, step: float, **needed: Any
    ) -> dict[str, Any]:
        """What a proof needs of this party, masked, at a scale of the dual vector told to all."""
        message, share = self.share_of(u, eps, None, kept, needed)
        part = share.at(scale) if 0.0 < scale <= share.scale else math.inf
        told = share.penalty, share.inner, share.inner_error, share.weighed, part
        return self.sealed(message, step, [min(number, UNPROVED) for number in told])

    def respond_masked(
        self,
        exchange: int,
        gradient: np.ndarray,
        coefficients: np.ndarray,
        units: np.ndarray,
        measured: int,
        step: float,
    ) -> dict[str, Any]:
        r"""Answer a loss gradient with parts of new directions: block gradient, block Newton, random ones.

        The last are :math:`D_m^\top s` for public random vectors s, so that of all parties together they are
        :math:`D^\top s`. Inner products of directions are told of the new ones, and of the last ``measured``
        before them.

        Shapes: gradient (N,); coefficients (K,); units (2,) or (n,).
        Scaling: gradient summed scaling.
        """
        known, fresh = len(self.directions), len(units)
        if not 2 <= fresh <= MOST_AT_ONCE or measured > known or self.metric is None:
            raise Unanswerable(
                f"call 'respond_masked': {fresh} factors, {measured} of {known} directions to measure, or no "
                "metric yet"
            )
        residual = self.residual(gradient, coefficients)
        wanted = [-residual, self._newton_direction(residual)]
        if fresh > 2:
            n = self.engine.all_rows(self.block.shape[0])
            wanted += list(self._public_images(0, fresh - 2, public_rows(fresh - 2, n)))
        for direction, unit in zip(wanted, units):
            direction = saturated(unit * direction, LARGEST)
            size = float(np.linalg.norm(direction))
            # Any direction is one, so a long one may be shortened: the range of its message is then known.
            short = direction / size if size > 1.0 else direction
            self.directions = np.vstack([self.directions, short])
        own, before = self.directions, known - measured
        numbers = [float(d @ e) for e in own[before:known] for d in own[:known]]
        numbers += [float(d @ e) for e in own[known:] for d in own]
        rows = np.concatenate([self.block.product(d, self.engine) for d in own[known:]])
        return self.sealed(rows, step, [float(residual @ residual), *numbers])

    def _newton_direction(self, residual: np.ndarray) -> np.ndarray:
        r"""Block Newton step; along the gradient alone, where the party cannot factorise."""
        if self._can_newton():
            return -self._newton(residual)
        assert self.metric is not None
        square = float(residual @ residual)
        image = self.block.product(residual, self.engine)
        bend = float(image @ (self.metric * image)) + self.regularization * square
        return -residual * (square / bend if bend > 0.0 else 0.0)

    def orthonormalise(self, factors: np.ndarray, kept: int) -> None:
        """Replace all directions but the first ones by combinations of all. Shapes: factors (n, K)."""
        count = len(self.directions)
        if not len(factors) <= count - kept <= MOST_AT_ONCE or factors.shape[1] != count:
            raise Unanswerable(
                f"call 'orthonormalise': factors {factors.shape} for {count} directions, {kept} of them kept"
            )
        self.directions = np.vstack([self.directions[:kept], factors @ self.directions])

    def export(self) -> dict[str, np.ndarray]:
        return {
            **super().export(),
            "public_keys": np.frombuffer(b"".join(self.keys), dtype=np.uint8),
            "transcript": np.frombuffer(self.transcript.digest, dtype=np.uint8),
            "answered": np.array([float(self.answered)]),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        super().restore(saved)
        for key, dtype in (("public_keys", np.uint8), ("transcript", np.uint8), ("answered", np.float64)):
            found, whole = saved.get(key), KEY_BYTES if dtype is np.uint8 else 1
            if not isinstance(found, np.ndarray) or found.dtype != dtype or found.ndim != 1:
                raise ValueError(key)
            if len(found) % whole or (key == "answered" and not (len(found) == 1 and found[0] >= 0.0)):
                raise ValueError(key)
        raw = saved["public_keys"]
        keys = [raw[k : k + KEY_BYTES].tobytes() for k in range(0, len(raw), KEY_BYTES)]
        self.transcript = Transcript(saved["transcript"].tobytes())
        (self.answered,) = saved["answered"].astype(np.int64).tolist()
        if keys and (self.position >= len(keys) or keys[self.position] != public_key(self.private)):
            raise ValueError("public_keys")
        if keys:
            self._know(keys)
