"""Training on rows that several workers share: the same weights, to the bit, for any number of them."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import numpy as np

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock
from fastadmm.cluster.comm import Comm, own_threads
from fastadmm.cluster.engine import RowEngine
from fastadmm.cluster.solver import RowSolver
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, InputError
from fastadmm.problem.problem import Problem
from fastadmm.schemes.registry import choose_scheme
from fastadmm.solver.loop import SolveResult, run_rounds
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import least_of

#: What has been found to give the same bits on any number of workers.
_SCHEMES = ("subspace", "proximal")


def solve_rows(problem: Problem, comm: Comm, options: SolverOptions | None = None) -> SolveResult:
    """Train on the rows of all workers; called by every one of them."""
    options = options or SolverOptions()
    refuse_unshared(problem, options)
    _compare(problem, options, comm)
    engine = RowEngine(comm, problem.n_samples, own_threads(comm, options.n_threads))
    blocks = [_part(block, *engine.rows) for block in problem.blocks]
    own = replace(rows_of_problem(problem, *engine.rows), blocks=blocks)
    solver = RowSolver(own, options, engine, least_of(problem, Engine(1)))
    try:
        return run_rounds(solver)
    finally:
        solver.close()


def refuse_unshared(problem: Problem, options: SolverOptions) -> None:
    """Refuse what cannot be shared by rows yet."""
    scheme = choose_scheme(options, problem.traits, apart=True)[0].name
    refused = {
        "secrecy": options.secrecy != "none",
        "a problem that is not convex": not problem.convex,
        f"scheme {scheme!r}": scheme not in _SCHEMES,
    }
    for what, there in refused.items():
        if there:
            raise ConfigError(f"cluster: {what} cannot be shared by rows yet; train in one process")


def _compare(problem: Problem, options: SolverOptions, comm: Comm) -> None:
    """Refuse workers with different problems, before any of them waits for a sum that does not come."""
    told: list[Any] = [problem.lam, problem.fit_intercept, problem.loss.text, problem.loss.parameters]
    told += [problem.names, problem.n_outputs]
    told += [problem.regularizers, problem.constraint, problem.constraints]
    told += [problem.own_lambda and problem.own_lambda.factors, replace(options, n_threads=None)]
    shapes = [block.shape for block in problem.blocks]
    arrays = [problem.y, problem.weight, problem.offset]
    for block in problem.blocks:
        if block.digest is not None:
            told.append(block.digest)
        elif isinstance(block, DenseBlock):
            arrays.append(block.matrix)
        elif isinstance(block, CSRBlock):
            arrays += [block.data, block.indices, block.indptr]
    checks = [
        zlib.crc32(repr((told, shapes)).encode()),
        *(zlib.crc32(np.ascontiguousarray(array).data) for array in arrays),
    ]
    mine = np.array([float(zlib.crc32(repr(checks).encode()))])
    first, *others = comm.gather(mine)
    for rank, other in enumerate(others, start=1):
        if not np.array_equal(other, first):
            raise InputError(f"cluster: rank {rank} has other data or settings than rank 0")


def rows_of_problem(problem: Problem, start: int, stop: int) -> Problem:
    """Some rows of a problem, without their blocks; sums of weights stay those of all rows."""
    offset = problem.offset.reshape(-1, problem.n_samples)[:, start:stop]
    return replace(
        problem,
        blocks=[],
        y=problem.y[start:stop].copy(),
        weight=problem.weight[start:stop].copy(),
        offset=offset.ravel().copy(),
    )


def _part(block: FeatureBlock, start: int, stop: int) -> FeatureBlock:
    """Some rows of a block, which know of the whole what decides how they are worked on."""
    part = block.of_rows(start, stop)
    part.density, part.largest, part.all_rows = block.density, block.largest, block.shape[0]
    return part
