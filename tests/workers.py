"""Several workers for tests: threads of this process, or processes under MPI."""

import os
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import distributions, files
from pathlib import Path

import numpy as np
import pytest
from fastadmm.cluster.comm import Comm, RowEngine, nodes_of
from fastadmm.cluster.solver import SharedSolver
from fastadmm.engine.engine import Engine
from fastadmm.engine.tree import node_range
from fastadmm.runs.train import refuse_unshared, rows_of_problem
from fastadmm.solver.loop import run_rounds
from fastadmm.solver.solver import least_of


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


class _Alike(SharedSolver):
    """A solver of which every worker calls the same methods: none leads."""

    @contextmanager
    def _led(self, *_):
        yield


def solve_rows(problem, comm, options):
    """Train on the rows of all workers; called by every one of them with the whole problem."""
    refuse_unshared(problem, options)
    engine = RowEngine(comm, problem.n_samples, options.n_threads)
    blocks = []
    for block in problem.blocks:
        part = block.of_rows(*engine.rows)
        part.density, part.largest, part.all_rows = block.density, block.largest, block.shape[0]
        blocks.append(part)
    own = replace(rows_of_problem(problem, *engine.rows), blocks=blocks)
    solver = _Alike(own, options, engine, least_of(problem, Engine(1)))
    try:
        return run_rounds(solver)
    finally:
        solver.close()


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
