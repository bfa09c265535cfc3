"""What workers need of each other: sums in tree order, the largest number, all rows, what rank 0 says.

What workers on one machine have between them: its cores and its memory.
"""

import os
import pickle
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from fastadmm.engine.engine import default_threads
from fastadmm.engine.tree import add
from fastadmm.errors import ConfigError, FastadmmError

Array = np.ndarray

_T = TypeVar("_T")

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
