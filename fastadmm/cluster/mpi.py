"""Workers that `mpiexec` or Slurm started; needs the extra ``mpi``."""

import os
from typing import Any

import numpy as np

from fastadmm.cluster.comm import Comm
from fastadmm.errors import ConfigError

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
