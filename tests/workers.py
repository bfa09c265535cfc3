"""Several workers for tests: threads of this process, or processes under MPI."""

import os
import subprocess
import threading
from importlib.metadata import distributions, files
from pathlib import Path

import numpy as np
import pytest
from fastadmm.cluster.comm import Comm, nodes_of
from fastadmm.engine.tree import node_range


class ThreadComm(Comm):
    """Workers that are threads of this process."""

    def __init__(self, rank, size, barrier, places):
        self.rank, self.size, self.barrier, self.places = rank, size, barrier, places

    def gather(self, v):
        self.places[self.rank] = np.array(v)
        self.barrier.wait(20)
        found = [place.copy() for place in self.places]
        self.barrier.wait(20)
        return found

    def swap(self, v, other):
        return self.gather(v)[other]

    def abort(self, code):
        self.barrier.abort()


def on_workers(size, function):
    """What a function gives on each of so many workers."""
    barrier, places, found = threading.Barrier(size), [None] * size, [None] * size

    def work(rank):
        try:
            found[rank] = function(ThreadComm(rank, size, barrier, places))
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=work, args=(rank,), name=f"rank {rank}") for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def rows_of(n_rows, rank, size):
    """First row that a worker holds, and the first that it does not any more."""
    nodes = nodes_of(n_rows, rank, size)
    return node_range(n_rows, *nodes[0])[0], node_range(n_rows, *nodes[-1])[1]


def mpi_command(workers, command, **more):
    """What a command does that ``mpiexec`` starts so many times."""
    for needed in ("mpi4py", "mpich"):
        if not any(distributions(name=needed)):
            pytest.skip(f"needs the extra mpi: no {needed}")
    places = {Path(file.name).name: Path(str(file.locate())).resolve() for file in files("mpich") or []}
    environment = {**os.environ, "LD_LIBRARY_PATH": str(places["libmpi.so"].parent)}
    return subprocess.run(
        [str(places["mpiexec"]), "-n", str(workers), *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
        **more,
    )
