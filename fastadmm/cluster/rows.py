"""Training on rows that several workers share: the same weights, to the bit, for any number of them."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock
from fastadmm.cluster.comm import Comm
from fastadmm.cluster.engine import RowEngine
from fastadmm.errors import ConfigError, InputError
from fastadmm.problem.problem import Problem
from fastadmm.solver.loop import SolveResult, run_rounds
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import Solver

__all__ = ["solve_rows"]

#: What has been found to give the same bits on any number of workers.
_SCHEMES = ("auto", "subspace")


def solve_rows(problem: Problem, comm: Comm, options: SolverOptions | None = None) -> SolveResult:
    """Train on the rows of all workers; called by every one of them.

    Parameters
    ----------
    problem : Problem
        The whole of it, the same on every worker, which keeps its own rows only. Weights are those of
        :func:`fastadmm.solver.solver.solve` to the bit.
    comm : Comm
        For example :class:`fastadmm.cluster.mpi.MpiComm`.
    options : SolverOptions, optional
        Without a time limit, which workers would reach in different rounds.

    Returns
    -------
    SolveResult
        The same on every worker but for its seconds.

    Raises
    ------
    ConfigError
        For what cannot be shared by rows yet, or more workers than the rows have leaves.
    InputError
        If workers have different problems.
    """
    options = options or SolverOptions()
    _refuse(problem, options)
    _compare(problem, comm)
    engine = RowEngine(comm, problem.n_samples, options.n_threads)
    solver = Solver(_own_rows(problem, engine), options, engine=engine)
    solver.bound.value = problem.loss.least(problem.y, problem.weight) / problem.total_weight
    try:
        return run_rounds(solver)
    finally:
        solver.close()


def _refuse(problem: Problem, options: SolverOptions) -> None:
    refused = {
        f"scheme {options.scheme!r}": options.scheme not in _SCHEMES,
        "a regulariser other than squared l2, or a constraint": not problem.is_ridge,
        "the multinomial loss": problem.loss.vector,
        "a loss that is not smooth and convex": not (problem.loss.smooth and problem.convex),
        "a block that is streamed": not all(type(b) in (DenseBlock, CSRBlock) for b in problem.blocks),
        "test rows": problem.test is not None,
        "secrecy": options.secrecy != "none",
        "a time limit": options.max_seconds is not None,
    }
    for what, there in refused.items():
        if there:
            raise ConfigError(f"cluster: {what} cannot be shared by rows yet; train in one process")


def _compare(problem: Problem, comm: Comm) -> None:
    """Refuse workers with different problems, before any of them waits for a sum that does not come."""
    told = [problem.lam, problem.fit_intercept, problem.loss.text, problem.loss.parameters, problem.names]
    shapes = [block.shape for block in problem.blocks]
    arrays = [problem.y, problem.weight, problem.offset]
    for block in problem.blocks:
        if isinstance(block, DenseBlock):
            arrays.append(block.matrix)
        elif isinstance(block, CSRBlock):
            arrays += [block.data, block.indices]
    checks = [
        zlib.crc32(repr((told, shapes)).encode()),
        *(zlib.crc32(np.ascontiguousarray(array).data) for array in arrays),
    ]
    mine = np.array([float(zlib.crc32(repr(checks).encode()))])
    first, *others = comm.gather(mine)
    for rank, other in enumerate(others, start=1):
        if not np.array_equal(other, first):
            raise InputError(f"cluster: rank {rank} has other data or settings than rank 0")


def _own_rows(problem: Problem, engine: RowEngine) -> Problem:
    start, stop = engine.rows
    rows = slice(start, stop)
    return replace(
        problem,
        blocks=[_part(block, start, stop) for block in problem.blocks],
        y=problem.y[rows].copy(),
        weight=problem.weight[rows].copy(),
        offset=problem.offset[rows].copy(),
    )


def _part(block: FeatureBlock, start: int, stop: int) -> FeatureBlock:
    """Some rows of a block in memory, which know of the whole what decides how they are worked on."""
    part: FeatureBlock
    if type(block) is DenseBlock:
        part = DenseBlock(block.matrix[start:stop].copy())
    elif type(block) is CSRBlock:
        first, last = int(block.indptr[start]), int(block.indptr[stop])
        indptr = block.indptr[start : stop + 1] - first
        columns = block.shape[1]
        part = CSRBlock.of_sorted(
            indptr, block.indices[first:last].copy(), block.data[first:last].copy(), columns
        )
    else:
        raise ConfigError("cluster: blocks that are streamed cannot be shared by rows yet")
    part.density, part.largest, part.all_rows = block.density, block.largest, block.shape[0]
    return part
