"""An engine whose rows are some of all: it adds its nodes of the tree to those of the other workers."""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from fastadmm.cluster.comm import Comm, Node
from fastadmm.engine.engine import Engine
from fastadmm.engine.tree import SOME_LEAVES, Ranges, halved, leaves_of, node_range
from fastadmm.errors import ConfigError

_T = TypeVar("_T")
_R = TypeVar("_R")

#: Where workers are not as many as a power of two: nodes of the tree for each of them at least.
_NODES_PER_WORKER = 4

#: Bits of a number that are looked at together where it is looked for by its place in the order of all.
_DIGIT = 11

#: So many numbers that are left are sent, as many bytes as the counts of a digit.
_FEW_LEFT = 1 << _DIGIT

#: The bit of a float64 that is its sign.
_SIGN = 1 << 63


def nodes_of(n_rows: int, rank: int, size: int) -> list[Node]:
    """Nodes of the tree that a worker holds: consecutive, as few as cover its share."""
    most = leaves_of(n_rows)
    if size > most:
        raise ConfigError(
            f"cluster: {size} workers for {n_rows} rows, which make {most} leaf(s) of the sum: "
            f"start at most {most}"
        )
    level = size.bit_length() - 1
    if size != 1 << level:
        level = min(most, 1 << (_NODES_PER_WORKER * size - 1).bit_length()).bit_length() - 1
    start, stop = ((1 << level) * r // size for r in (rank, rank + 1))
    found = []
    while start < stop:
        up = 0
        while start >> up & 1 == 0 and up < level and start + (2 << up) <= stop:
            up += 1
        found.append((level - up, start >> up))
        start += 1 << up
    return found


class RowEngine(Engine):
    """An engine of one of several workers."""

    shares_rows = True

    def __init__(self, comm: Comm, n_rows: int, n_threads: int | None = None) -> None:
        super().__init__(n_threads)
        self.comm, self.n_rows = comm, n_rows
        self.nodes = nodes_of(n_rows, comm.rank, comm.size)
        ends = [node_range(n_rows, *node) for node in self.nodes]
        self.rows = ends[0][0], ends[-1][1]
        self.first_row = self.rows[0]
        self._ends = [(start - self.rows[0], stop - self.rows[0]) for start, stop in ends]
        self._cuts: dict[Any, Ranges] = {}

    def map(self, function: Callable[[_T], _R], items: Iterable[_T], parallel: bool = True) -> list[_R]:
        """As :meth:`Engine.map`, but one of ``items`` at a time: sums of workers must meet in one order."""
        return self.in_turn(function, items)

    def leaves(
        self, n_rows: int, entries: float = 0.0, work: float = math.inf, fewest: int = SOME_LEAVES
    ) -> Ranges:
        if n_rows != self.rows[1] - self.rows[0]:
            raise ValueError(f"{n_rows} rows are not those of rank {self.comm.rank}")
        key = entries, work, fewest
        if key not in self._cuts:
            self._cuts[key] = self._cut(leaves_of(self.n_rows, entries, work, fewest))
        return self._cuts[key]

    def _cut(self, leaves: int) -> Ranges:
        found: list[tuple[int, int]] = []
        for (level, _), (start, stop) in zip(self.nodes, self._ends):
            if leaves >> level == 0:
                raise ConfigError(
                    f"cluster: {self.comm.size} workers, but a sum of many columns has only {leaves} leaves: "
                    f"start at most {leaves} workers"
                )
            found += [(start + a, start + b) for a, b in halved(stop - start, leaves >> level)]
        return tuple(found)

    def all_rows(self, n_rows: int) -> int:
        return self.n_rows

    def _nodes(self, leaves: Ranges) -> list[Ranges]:
        shares = [2.0**-level for level, _ in self.nodes]
        whole = round(len(leaves) / sum(shares))
        bounds = [0, *itertools.accumulate(round(whole * share) for share in shares)]
        return [leaves[a:b] for a, b in itertools.pairwise(bounds)]

    def _across(self, nodes: list[Any]) -> Any:
        flat = {node: _flat(value) for node, value in zip(self.nodes, nodes, strict=True)}
        total, rest = _shaped(nodes[0], self.comm.sum(flat))
        assert not len(rest)
        return total

    def _maximum(self, numbers: np.ndarray) -> np.ndarray:
        return self.comm.maximum(numbers)

    def smallest(self, v: np.ndarray, k: int) -> float:
        """As :meth:`Engine.smallest`, digit by digit until few numbers are left, which are sent."""
        if self.comm.size == 1:
            return super().smallest(v, k)
        keys, found, rank, left = _ordered(v), 0, float(k), 64
        while left:
            width = min(_DIGIT, left)
            left -= width
            digits = (keys >> np.uint64(left) & np.uint64((1 << width) - 1)).astype(np.int64)
            counts = np.bincount(digits, minlength=1 << width) * 1.0
            nothing = [np.zeros_like(counts) for _ in self.nodes[1:]]
            total = self._across([counts, *nothing])
            before = np.cumsum(total)
            digit = int(np.searchsorted(before, rank, side="right"))
            rank -= float(before[digit - 1]) if digit else 0.0
            keys, found = keys[digits == digit], found << width | digit
            if left and total[digit] <= _FEW_LEFT:
                (keys_left,) = self.gather(keys.view(np.float64))
                found, left = int(np.sort(keys_left.view(np.uint64))[int(rank)]), 0
        bits = found ^ _SIGN if found & _SIGN else found ^ (2 * _SIGN - 1)
        return float(np.uint64(bits).view(np.float64))

    def gather(self, *vectors: np.ndarray) -> list[np.ndarray]:
        return [np.concatenate(self.comm.gather(v)) for v in vectors]


def _ordered(v: np.ndarray) -> np.ndarray:
    """Whole numbers in the order of numbers of shape (n,)."""
    bits = (np.asarray(v, dtype=np.float64) + 0.0).view(np.uint64)  # there is one zero
    sign = np.uint64(_SIGN)
    return np.where(bits & sign, ~bits, bits | sign)


def _flat(value: Any) -> np.ndarray:
    if isinstance(value, tuple):
        return np.concatenate([_flat(one) for one in value])
    return np.atleast_1d(np.asarray(value, dtype=np.float64)).ravel()


def _shaped(like: Any, flat: np.ndarray) -> tuple[Any, np.ndarray]:
    """Numbers as something that :func:`_flat` made flat, and those that are left."""
    if isinstance(like, tuple):
        found = []
        for one in like:
            value, flat = _shaped(one, flat)
            found.append(value)
        return tuple(found), flat
    if not isinstance(like, np.ndarray):
        return float(flat[0]), flat[1:]
    return flat[: like.size].reshape(like.shape), flat[like.size :]
