"""What every party of a run with sums only has in common: its key, its transcript, and masked answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fastadmm.conversation.answering import Unanswerable
from fastadmm.conversation.gate import LARGEST, GatedParty, check_features, saturated
from fastadmm.errors import InputError
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


class MaskedParty(GatedParty):
    """A party whose answers are masked.

    A request with an argument ``exchange`` is answered once, in order: the next number and no other. Its
    mask depends on all that came before, so no two answers have the same.
    """

    told = "masked", "the coordinator sees sums only"
    remembers: ClassVar[tuple[str, ...]] = ()  # attributes with arrays that later answers depend on
    position = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        check_features(self.block, self.name, self.engine)
        self.private = b""
        self.keys: list[bytes] = []
        self.answered = 0
        self.members: int | None = None
        self.transcript = Transcript()
        self._masks: PairwiseMasks | None = None

    def _begin(self, terms: Mapping[str, Any]) -> Self:
        """Take in the key and the place that a run begins with."""
        if not 1.0 / LARGEST <= terms["regularization"] <= LARGEST:
            raise Unanswerable(f"argument 'regularization' is not from {1.0 / LARGEST:.3g} to {LARGEST:.3g}")
        self.position, self.private = int(terms["position"]), terms["private_key"]
        # Told another lambda or other rows, parties make masks that do not cancel.
        shared = {key: told for key, told in terms.items() if key not in ("position", "private_key")}
        self.transcript.add("start", shared)
        if "parties" in terms:
            self.members = len(terms["parties"].split(","))
        return self

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
        kept = {key: getattr(self, key) for key in self.remembers}
        if any(saturated(own, LARGEST) is not own for own in kept.values()):
            self.remember({key: saturated(own, LARGEST) for key, own in kept.items()})
        return answer

    def remember(self, kept: Mapping[str, np.ndarray]) -> None:
        """Go on from other values of what it remembers."""
        for key, own in kept.items():
            setattr(self, key, own)

    def show_key(self) -> dict[str, Any]:
        """The public part of its key for this run."""
        if self.keys or not self.private:
            raise Unanswerable("call 'show_key': the run has its keys already, or this party has none")
        return {"key": np.frombuffer(public_key(self.private), dtype="<i8")}

    def introduce(self, keys: np.ndarray) -> None:
        """Take in the public keys of all parties. Shapes: keys (4 M,)."""
        if self.keys or not self.private:
            raise Unanswerable("call 'introduce': the run has its keys already, or this party has none")
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

    def masked_scores(self, exchange: int, rows: str, step: float, **needed: Any) -> dict[str, Any]:
        """This party's share of the predictor of some rows, masked."""
        return self.sealed(self.scores(rows, **needed)["scores"], step, [])

    def prove_masked(
        self, exchange: int, u: np.ndarray, eps: float, scale: float, kept: bool, step: float, **needed: Any
    ) -> dict[str, Any]:
        """What a proof needs of this party, masked, at a scale of the dual vector told to all."""
        message, share = self.share_of(u, eps, None, kept, needed)
        part = share.at(scale) if 0.0 < scale <= share.scale else math.inf
        told = share.penalty, share.inner, share.inner_error, share.weighed, part
        return self.sealed(message, step, [min(number, UNPROVED) for number in told])

    def export_secrecy(self) -> dict[str, np.ndarray]:
        """Public keys, transcript and number of answers, for the party's own state."""
        return {
            "public_keys": np.frombuffer(b"".join(self.keys), dtype=np.uint8),
            "transcript": np.frombuffer(self.transcript.digest, dtype=np.uint8),
            "answered": np.array([float(self.answered)]),
        }

    def restore_secrecy(self, saved: Mapping[str, Any]) -> None:
        """Inverse of :meth:`export_secrecy`; raises ValueError with the key that is wrong."""
        raw, digest, answered = (saved.get(key) for key in ("public_keys", "transcript", "answered"))
        for key, found in (("public_keys", raw), ("transcript", digest)):
            if not isinstance(found, np.ndarray) or found.dtype != np.uint8 or len(found) % KEY_BYTES:
                raise ValueError(key)
        if not isinstance(answered, np.ndarray) or answered.shape != (1,):
            raise ValueError("answered")
        assert isinstance(raw, np.ndarray)
        assert isinstance(digest, np.ndarray)
        keys = [raw[k : k + KEY_BYTES].tobytes() for k in range(0, len(raw), KEY_BYTES)]
        self.transcript, self.answered = Transcript(digest.tobytes()), int(answered[0])
        if keys and (self.position >= len(keys) or keys[self.position] != public_key(self.private)):
            raise ValueError("public_keys")
        if keys:
            self._know(keys)
