r"""Pairwise masks that add up to zero over all parties (Bonawitz et al. 2017, without drop-outs).

Parties j < k share a secret. For every answer both make the same key stream of it; j adds the stream, k
subtracts it. One message alone is uniform; the sum over all parties is the sum of what they meant. The
stream is ChaCha20 under a key that HKDF derives from the secret, the two parties' places and the
*transcript*: a digest of everything that the party was asked and told in this run so far, this request
included. So the same stream never masks two different answers, even where a party's state was restored from
a backup, and parties that were asked different things make masks that do not cancel.

Numbers are whole, so that masks cancel exactly. A message has one number per row. It lies on a grid of step
:math:`2^e`, modulo :math:`2^{64}`: the step is the finest for which the sum of M numbers within the range
cannot wrap, so that every party's rounding is at most half a step. A scalar is kept whole, modulo
:math:`2^{512}`, as a multiple of :math:`2^{-256}`: sums of scalars are exact, whatever their sizes. Parties
saturate what is out of range before it comes here, since a party that refused would tell about its own
number.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.secrecy.keys import derived, primitive, shared_secret

#: A sum on the grid stays below 2^62 in size: far from where it would change its sign.
_BITS = 62

#: Bytes of one scalar, and the exponent of its unit.
WHOLE_BYTES, _FINEST = 64, 256

#: Stands for infinity in a sum of parts of a gap: from here on it says that nothing is proved.
UNPROVED = 1e60

#: Modulus of scalars.
_MODULUS = 1 << (8 * WHOLE_BYTES)

#: Scalars reach so far on either side of zero.
LARGEST_WHOLE = 2.0**240


def grid_step(reach: float, n_parties: int) -> float:
    """Step of the grid for messages of M parties."""
    return math.ldexp(1.0, max(-1000, math.ceil(math.log2(max(reach * n_parties, 2.0**-900))) - _BITS))


def grid_limit(step: float, n_parties: int) -> float:
    """Largest size of a number on the grid for which a sum of M of them cannot wrap."""
    return min(2.0**_BITS / n_parties * step, 1e300)


def to_grid(values: np.ndarray, step: float) -> np.ndarray:
    """Numbers as multiples of the step, modulo 2^64. Shapes: values, the result (n,)."""
    return np.rint(values / step).astype(np.int64).view(np.uint64)


def from_grid(words: np.ndarray, step: float) -> np.ndarray:
    """The numbers of a sum on the grid, of shape (n,); rounded as doubles are, nothing else."""
    return step * words.view(np.int64).astype(np.float64)


def to_whole(values: Sequence[float]) -> list[int]:
    """Scalars as whole numbers modulo 2^512."""
    found = []
    for value in values:
        numerator, denominator = float(value).as_integer_ratio()
        found.append(((numerator << _FINEST) // denominator) % _MODULUS)
    return found


def from_whole(sums: Sequence[int]) -> list[float]:
    """Sums of scalars as doubles, each rounded once."""
    signed = [(value + _MODULUS // 2) % _MODULUS - _MODULUS // 2 for value in sums]
    return [value / (1 << _FINEST) for value in signed]


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
