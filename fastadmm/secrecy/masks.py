r"""Pairwise masks that add up to zero over all parties (Bonawitz et al. 2017, without drop-outs).

Parties j < k share a secret. For every answer both make the same key stream of it; j adds the stream, k
subtracts it. One message alone is uniform; the sum over all parties is the sum of what they meant. The
stream is ChaCha20 under a key that HKDF derives from the secret, the two parties' places and the
*transcript*: a digest of everything that the party was asked and told in this run so far, this request
included. So the same stream never masks two different answers, even where a party's state was restored from
a backup, and parties that were asked different things make masks that do not cancel.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.secrecy.grid import WHOLE_BYTES
from fastadmm.secrecy.keys import derived, primitive, shared_secret

_MODULUS = 1 << (8 * WHOLE_BYTES)


@dataclass(frozen=True)
class Masked:
    """What a party means, or sends. Shapes: rows (n,)."""

    rows: np.ndarray  # of shape (n,): modulo 2^64
    numbers: list[int]  # modulo 2^512

    def shifted(self, other: Masked, sign: int) -> Masked:
        """With another one added, or subtracted for ``sign = -1``."""
        rows = self.rows + other.rows if sign > 0 else self.rows - other.rows
        numbers = [(a + sign * b) % _MODULUS for a, b in zip(self.numbers, other.numbers, strict=True)]
        return Masked(rows, numbers)

    def packed(self) -> dict[str, np.ndarray]:
        """As it travels: ``rows`` and ``numbers`` as words of 8 bytes, where there are any."""
        raw = b"".join(number.to_bytes(WHOLE_BYTES, "little") for number in self.numbers)
        words = {"rows": self.rows.view(np.int64), "numbers": np.frombuffer(raw, dtype="<i8")}
        return {key: own for key, own in words.items() if len(own)}

    @classmethod
    def unpacked(cls, answer: Mapping[str, Any]) -> Masked:
        """Inverse of :meth:`packed`."""
        none = np.empty(0, dtype=np.int64)
        rows = np.ascontiguousarray(answer.get("rows", none), dtype=np.int64).view(np.uint64)
        return cls(rows, _numbers(np.asarray(answer.get("numbers", none), dtype="<i8").tobytes()))


def _numbers(raw: bytes) -> list[int]:
    return [int.from_bytes(raw[k : k + WHOLE_BYTES], "little") for k in range(0, len(raw), WHOLE_BYTES)]


def add_up(answers: Sequence[Mapping[str, Any]]) -> Masked:
    """The sum of all parties' answers, in which the masks have gone."""
    total = Masked.unpacked(answers[0])
    for answer in answers[1:]:
        total = total.shifted(Masked.unpacked(answer), 1)
    return total


class Transcript:
    """Digest of all that one party was asked and told, in order."""

    def __init__(self, digest: bytes = bytes(32)) -> None:
        self.digest = digest

    def add(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Take in one call, with arguments as the table of calls has them."""
        state = hashlib.sha256(self.digest + _framed(name.encode()))
        for key in sorted(arguments):
            state.update(_framed(key.encode()) + _framed(_canonical(arguments[key])))
        self.digest = state.digest()


def _framed(raw: bytes) -> bytes:
    return struct.pack("<Q", len(raw)) + raw


def _canonical(value: Any) -> bytes:
    """One argument as bytes; different ones give different bytes."""
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value)
        return f"array {array.dtype.str} {array.shape} ".encode() + array.tobytes()
    if isinstance(value, (bool, np.bool_)):
        return f"flag {bool(value)}".encode()
    if isinstance(value, (float, np.floating)):
        return f"number {float(value).hex()}".encode()
    return f"{type(value).__name__} {value}".encode()


class PairwiseMasks:
    """Masks of one party."""

    def __init__(self, private: bytes, keys: Sequence[bytes], position: int) -> None:
        self.position = position
        self._secrets = {k: shared_secret(private, other) for k, other in enumerate(keys) if k != position}

    def hide(self, meant: Masked, transcript: bytes) -> Masked:
        """What the party sends in place of what it means."""
        sent = meant
        for other, secret in self._secrets.items():
            first, second = sorted((self.position, other))
            key = derived(secret, transcript, f"fastadmm sums 1: {first} and {second}".encode())
            sent = sent.shifted(_stream(key, meant), 1 if self.position == first else -1)
        return sent


def _stream(key: bytes, like: Masked) -> Masked:
    """The key stream of one use of a key, in the shape of a message."""
    ciphers = primitive("ciphers")
    cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    rows = np.frombuffer(cipher.update(bytes(8 * len(like.rows))), dtype="<u8")
    return Masked(rows, _numbers(cipher.update(bytes(WHOLE_BYTES * len(like.numbers)))))
