"""What workers need of each other: sums in tree order, the largest number, all rows, what rank 0 says.

What workers on one machine have between them: its cores and its memory. An engine whose rows are some of all
adds its nodes of the tree to those of the other workers.
"""

import itertools
import math
import os
import pickle
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import numpy as np

from fastadmm.engine.engine import Engine, default_threads
from fastadmm.engine.tree import SOME_LEAVES, Ranges, add, halved, leaves_of, node_range
from fastadmm.errors import ConfigError, FastadmmError

Array = np.ndarray

_T = TypeVar("_T")
_R = TypeVar("_R")

#: A node of the tree: its level and its number there.
Node = tuple[int, int]


class Comm(ABC):
    """Workers that take the same steps, each with its own rows."""

    rank: int  # number of this worker, and how many there are
    size: int  # number of this worker, and how many there are
    apart = True

    @abstractmethod
    def gather(self, v: Array) -> list[Array]:
        """What every worker has, in the order of their ranks; float64, of one dimension and any length."""

    @abstractmethod
    def swap(self, v: Array, other: int) -> Array:
        """Exchange vectors of one length with another worker."""

    @abstractmethod
    def abort(self, code: int) -> None:
        """End all workers at once, where some of them wait for a sum that will not come."""

    def share(self, thing: Any) -> list[Any]:
        """What every worker has, in the order of their ranks; small things of any kind."""
        data = pickle.dumps(thing)
        words = np.frombuffer(data + bytes(-len(data) % 8), dtype=np.float64)
        return [pickle.loads(found.tobytes()) for found in self.gather(words)]

    def first(self, thing: Any = None) -> Any:
        """What rank 0 has."""
        return self.share(thing if self.rank == 0 else None)[0]

    def agreed(self, function: Callable[[], _T]) -> _T:
        """What a function gives, once it has given something on every worker."""
        found, error = None, None
        try:
            found = function()
        except FastadmmError as caught:
            error = type(caught), str(caught)
        for rank, told in enumerate(self.share(error)):
            if told is not None:
                (kind, text), self.apart = told, False
                raise kind(text if rank == 0 else f"rank {rank}: {text}")
        return cast(_T, found)

    def sum(self, nodes: dict[Node, Array]) -> Array:
        """Sum over the whole tree."""
        (node, *others), level = nodes, self.size.bit_length() - 1
        if others or self.size != 1 << level or node != (level, self.rank):
            return self._by_slots(nodes)
        total = np.array(nodes[node])
        for bit in range(level):  # after this many, siblings on every level have met
            total += self.swap(total, self.rank ^ (1 << bit))
        return total

    def _by_slots(self, nodes: dict[Node, Array]) -> Array:
        told = [np.concatenate([np.array(node, dtype=np.float64), v]) for node, v in nodes.items()]
        width, found = len(told[0]), {}
        for sent in self.gather(np.concatenate(told)):
            for slot in sent.reshape(-1, width):
                found[int(slot[0]), int(slot[1])] = slot[2:].copy()
        return add_nodes(found)

    def maximum(self, v: Array) -> Array:
        """Largest of each number, of shape (k,)."""
        return np.max(self.gather(v), axis=0)


def add_nodes(nodes: dict[Node, Array]) -> Array:
    """Add siblings until the whole tree is one."""
    while set(nodes) != {(0, 0)}:
        level = max(level for level, _ in nodes)
        deepest = sorted(index for at, index in nodes if at == level)
        for index in deepest[::2]:
            nodes[level - 1, index // 2] = add(nodes.pop((level, index)), nodes.pop((level, index + 1)))
    return nodes[0, 0]


def own_threads(comm: Comm, wanted: int | None) -> int:
    """Threads of this worker, so that all workers of a machine together have one for each core."""
    cores = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    here = platform.node(), cores
    others = [
        their for node, their in comm.share(here) if node == here[0] and (cores is None or their & cores)
    ]
    return wanted if wanted is not None else default_threads(len(others))


def workers_here(comm: Comm) -> int:
    """How many workers this machine has."""
    return comm.share(platform.node()).count(platform.node())


# --- the engine of a worker -------------------------------------------------------------------------------

#: Where workers are not as many as a power of two: nodes of the tree for each of them at least.
_NODES_PER_WORKER = 4


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

    def gather(self, *vectors: np.ndarray) -> list[np.ndarray]:
        return [np.concatenate(self.comm.gather(v)) for v in vectors]


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


# --- MPI; needs the extra ``mpi`` --------------------------------------------------------------------------

#: Where launchers tell a process its rank and how many there are: Hydra of MPICH and Intel MPI, `mpiexec` of
#: Open MPI, and `srun`, which alone sets the latter (a batch script is one process whatever its job has).
_LAUNCHERS = (
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


def launched() -> tuple[int, int]:
    """Rank of this process and how many were started with it, as its environment says; (0, 1) without."""
    for rank, size in _LAUNCHERS:
        told = os.environ.get(rank, ""), os.environ.get(size, "")
        if all(text.isdecimal() for text in told) and int(told[1]) > 1:
            return int(told[0]), int(told[1])
    return 0, 1


class MpiComm(Comm):
    """All processes of an MPI job."""

    def __init__(self) -> None:
        try:
            from mpi4py import MPI
        except ImportError:
            raise ConfigError("cluster: mpi4py is not installed: pip install 'fastadmm[mpi]'") from None
        self._world: Any = MPI.COMM_WORLD
        self.rank, self.size = int(self._world.Get_rank()), int(self._world.Get_size())

    def gather(self, v: np.ndarray) -> list[np.ndarray]:
        lengths = self._world.allgather(len(v))
        out = np.empty(sum(lengths))
        self._world.Allgatherv(np.ascontiguousarray(v, dtype=np.float64), [out, lengths])
        return np.split(out, np.cumsum(lengths)[:-1])

    def swap(self, v: np.ndarray, other: int) -> np.ndarray:
        out = np.empty_like(v)
        self._world.Sendrecv(v, other, recvbuf=out, source=other)
        return out

    def abort(self, code: int) -> None:
        self._world.Abort(code)
