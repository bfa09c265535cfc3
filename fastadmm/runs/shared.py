"""A run whose rows several workers share: each reads its own; rank 0 reads labels and ids, and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.blocks.block import CSRBlock, FeatureBlock
from fastadmm.cluster.comm import Comm, own_threads, workers_here
from fastadmm.cluster.engine import RowEngine, rows_of
from fastadmm.cluster.rows import refuse_unshared, rows_of_problem
from fastadmm.cluster.solver import SharedSolver, end, follow, new_solver
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, ExitCode, FastadmmError, InputError
from fastadmm.files.atomic import shown
from fastadmm.problem.problem import Problem
from fastadmm.runs.check import CheckedRun, doubts, memory_limit, n_outputs_of, open_run
from fastadmm.runs.config import solver_options
from fastadmm.runs.display import Display, Silent
from fastadmm.runs.load import LoadedRun, load_run
from fastadmm.runs.plan import Plan, check_limit, make_plan
from fastadmm.settings.keys import SETTINGS
from fastadmm.settings.run import RunConfig
from fastadmm.solver.history import Status
from fastadmm.solver.run import Run
from fastadmm.solver.solver import least_of
from fastadmm.solver.warm_start import StartingPoint
from fastadmm.store.partition import Partition, open_partition
from fastadmm.store.party_file import PartyData
from fastadmm.store.streamed import block_of, read_party
from fastadmm.version import __version__


class _Elsewhere(CSRBlock):
    """The shape of a block whose rows other workers have."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape, self.nbytes, self.density = shape, 0, 0.0


@dataclass(frozen=True)
class _Share:
    """What rank 0 tells a worker of the problem."""

    problem: Problem  # of the worker's rows, without their blocks
    least: float  # of all rows, from least_of
    start: StartingPoint | None


@dataclass(frozen=True)
class _SharedRun(LoadedRun):
    """As :class:`LoadedRun`, of this worker's rows."""

    engine: RowEngine
    least: float

    def solver(self, config: RunConfig, run: Path, run_id: str) -> Run:
        """A new solver here, on rank 0, and on every other worker."""
        return new_solver(self.engine.comm, partial(self.own_solver, config), run)

    def own_solver(self, config: RunConfig, run: Path) -> SharedSolver:
        """A new solver of this worker."""
        made = SharedSolver(self.problem, solver_options(config), self.engine, self.least, self.start)
        if self.spilled:
            made.spill(run)
        return made


@contextmanager
def leading(comm: Comm | None) -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    """What rank 0 does with a run, while the others :func:`follow_run`: they end as it ends."""
    if comm is None:
        yield lambda result: result
        return
    comm.apart = False
    status, problem = Status.INTERRUPTED.value, None

    def ended(result: dict[str, Any]) -> dict[str, Any]:
        nonlocal status
        status = str(result["status"])
        return result

    try:
        yield ended
    except FastadmmError as error:
        problem = type(error), str(error)
        raise
    finally:
        if not comm.apart:
            end(comm, (status, problem))


def load_shared(config: RunConfig, comm: Comm, display: Display) -> tuple[RunConfig, LoadedRun]:
    """The data of a run, on every worker its rows; called by rank 0, inside :func:`leading`."""
    comm.first(("load", (config,)))
    comm.apart = True
    found = _load(config, comm, display)
    comm.apart = False
    return found


def follow_run(comm: Comm, config: RunConfig | None = None) -> str:
    """What every rank but 0 does in a run."""
    status, error = follow(comm, _Follower(comm, config))
    if error is not None:
        kind, text = error
        raise kind(text)
    return str(status)


def exit_code_of(status: str) -> ExitCode:
    """The exit code that a run's status asks for."""
    done = (Status.CONVERGED, Status.STATIONARY, Status.COMPLETED, Status.EARLY_STOPPED)
    codes = dict.fromkeys(done, ExitCode.OK)
    codes |= {Status.DIVERGED: ExitCode.DIVERGED, Status.INTERRUPTED: ExitCode.INTERRUPTED}
    codes[Status.CONTRADICTION] = ExitCode.CONTRADICTION
    return codes.get(Status(status), ExitCode.NOT_CONVERGED)


class _Follower:
    """What rank 0 asks of a worker besides its solver's methods."""

    def __init__(self, comm: Comm, given: RunConfig | None) -> None:
        self.comm, self.given = comm, given
        self.solver: SharedSolver | None = None

    def load(self, config: RunConfig) -> None:
        """Read this worker's rows."""
        if self.given is not None:
            config = replace(config, data=self.given.data, threads=self.given.threads)
        self.config, self.loaded = _load(config, self.comm, Silent(), self.given)

    def new(self, run: Path) -> None:
        """Make a solver."""
        self.solver = self.loaded.own_solver(self.config, run)


def _load(
    config: RunConfig, comm: Comm, display: Display, given: RunConfig | None = None
) -> tuple[RunConfig, _SharedRun]:
    """This worker's rows of a run's problem; the settings with what memory decides."""
    here = comm.rank == 0
    comm.agreed(lambda: _refuse_settings(config))
    opened = comm.agreed(lambda: open_run(config) if here else None)  # on rank 0 alone
    partition = comm.agreed(lambda: opened[0] if opened else open_partition(config.data, headers_only=True))
    comm.agreed(lambda: _compare(given or config, partition, comm))
    n = partition.n_samples
    engine = comm.agreed(lambda: RowEngine(comm, n, 1))
    engine.n_threads = own_threads(comm, config.threads)
    n_outputs = comm.first(n_outputs_of(opened[2], partition.labels) if opened else None)
    parts = comm.agreed(lambda: [party.of_rows(*engine.rows) for party in partition.parties])
    display.note(
        f"{n} samples, {len(parts)} parties "
        f"({', '.join(f'{p.name}: {p.n_features}' for p in parts)} features), {comm.size} worker(s)"
    )
    tests = opened[1].parties if opened and opened[1] else []
    loss = comm.first(opened[2].name if opened and config.loss == "auto" else config.loss)
    plan = _planned(replace(config, loss=loss), parts, tests, n_outputs, engine, display)
    spilled = plan.spilled > 0
    config = replace(config, history=plan.history) if plan.reduced else config
    elsewhere = [_Elsewhere((n, p.n_features)) for p in parts]
    looks = tuple(doubts(opened[0].task, opened[2])) if opened else ()
    for line in looks:
        display.note(line)
    checked = CheckedRun(*opened, plan, looks) if opened else None
    whole = comm.agreed(lambda: _whole(config, checked, elsewhere) if checked else None)
    share: _Share = comm.deal(_shares(whole, comm.size) if whole else None)
    own = share.problem.own_lambda
    factors = [1.0] * len(parts) if own is None else own.factors
    blocks = [
        block_of(comm.agreed(partial(read_party, part, there.streamed)), part.name, factor, engine)
        for part, there, factor in zip(parts, plan.parties, factors, strict=True)
    ]
    problem = replace(share.problem, blocks=blocks, test=whole.problem.test if whole else None)
    provenance = {} if whole is None else whole.provenance
    return config, _SharedRun(
        _slim(partition), provenance, problem, share.start, None, spilled, looks,
        whole.class_rows if whole else {}, engine, share.least,
    )  # fmt: skip


#: Settings that a shared run has not yet, and what it is then.
_NOT_YET = {"validation": "early stopping", "path": "a path"}


def _refuse_settings(config: RunConfig) -> None:
    for key, what in _NOT_YET.items():
        if getattr(config, key):
            raise ConfigError(f"key {key!r}: {what} cannot be shared by rows yet; train in one process")
    if config.privacy.mode != "none":
        raise ConfigError("privacy: a private run cannot be shared by rows yet; train in one process")


def _compare(config: RunConfig, partition: Partition, comm: Comm) -> None:
    """Refuse workers with other programs, settings or files than rank 0's."""
    settings = {
        f"key {key!r}": repr(getattr(config, setting.name))
        for key, setting in SETTINGS.items()
        if setting.role not in ("place", "output") and not setting.is_path
    }
    content = {f"the data of {party.name}": party.content_digest for party in partition.parties}
    mine = {"fastadmm": __version__, **settings, "the list of rows": partition.row_digest, **content}
    first, *others = comm.share(mine)
    for rank, other in enumerate(others, start=1):
        for name, found in other.items():
            if first.get(name) != found:
                raise InputError(
                    f"rank {rank}: {name} is not what rank 0 has; start all workers alike, on the same files"
                )


def _planned(
    config: RunConfig,
    parts: list[PartyData],
    tests: Sequence[PartyData],
    n_outputs: int,
    engine: RowEngine,
    display: Display,
) -> Plan:
    """The plan of this worker's rows, and of the test rows on rank 0, with what follows from that of all."""
    comm = engine.comm
    limit, free = memory_limit(config, workers_here(comm))

    def planned(config: RunConfig) -> Plan:
        n = parts[0].n_samples
        return make_plan(parts, tests, n, config, n_outputs, limit=limit, n_threads=engine.n_threads)

    plan = planned(config)
    reduced, shortest = any(comm.share(plan.reduced)), min(comm.share(plan.history))
    if reduced:
        plan = replace(planned(replace(config, history=shortest)), reduced=True)
    comm.agreed(lambda: check_limit(plan, config.memory is not None, free, shown(config.data), comm.size))
    for line in plan.lines() if plan.limited else [plan.sentence()]:
        display.note(f"each worker: {line}")
    return plan


def _whole(config: RunConfig, checked: CheckedRun, blocks: Sequence[FeatureBlock]) -> LoadedRun:
    """The run of all rows without their blocks, on rank 0."""
    loaded = load_run(config, checked, blocks)
    refuse_unshared(loaded.problem, solver_options(config))
    return loaded


def _shares(whole: LoadedRun, size: int) -> list[_Share]:
    problem = whole.problem
    least = least_of(problem, Engine(1))
    rows = [rows_of(problem.n_samples, rank, size) for rank in range(size)]
    problem = replace(problem, test=None)  # rank 0 keeps test rows
    return [_Share(rows_of_problem(problem, *own), least, whole.start) for own in rows]


def _slim(partition: Partition) -> Partition:
    """Without its numbers, which every worker has its share of."""
    labels = partition.labels
    if labels is not None:
        labels = replace(labels, y=np.empty(0), sample_weight=None, offset=None)
    return replace(partition, labels=labels)
