"""A training run on disk: start it, interrupt it, resume it to the bit-identical result, share its rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.blocks.block import CSRBlock
from fastadmm.cluster.comm import Comm, RowEngine, own_threads, workers_here
from fastadmm.cluster.solver import SharedSolver, follow
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, ExitCode, FastadmmError, FormatError, InputError
from fastadmm.files.atomic import shown
from fastadmm.problem.problem import Problem
from fastadmm.runs import load
from fastadmm.runs.claim import check_provenance, model_digest
from fastadmm.runs.config import read_config, recorded, solver_options
from fastadmm.runs.fit import Fit, Job, PathJob, write_settings
from fastadmm.runs.folder import Display, RunFolder
from fastadmm.runs.load import LoadedRun
from fastadmm.runs.plan import Plan, check_limit
from fastadmm.runs.result import new_run_id, read_run_id
from fastadmm.schemes.registry import choose_scheme
from fastadmm.settings.keys import LIMITS
from fastadmm.settings.run import RunConfig, is_convex
from fastadmm.solver.history import Status
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.run import Run
from fastadmm.solver.solver import least_of
from fastadmm.store.model import MANIFEST, open_model
from fastadmm.store.partition import Partition
from fastadmm.store.streamed import block_of, read_party
from fastadmm.version import __version__


def led(work: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """What rank 0 does with a run, while the others :func:`follow_run`: they end as it ends."""

    @wraps(work)
    def leading(*given: Any, comm: Comm | None = None, **how: Any) -> dict[str, Any]:
        if comm is None:
            return work(*given, **how)
        comm.apart = False
        status, problem = Status.INTERRUPTED.value, None
        try:
            result = work(*given, comm=comm, **how)
            status = str(result["status"])
            return result
        except FastadmmError as error:
            problem = type(error), str(error)
            raise
        finally:
            if not comm.apart:
                comm.first(("end", (status, problem)))

    return leading


@led
def start_run(
    config: RunConfig,
    out: Path,
    *,
    force: bool = False,
    display: Display | None = None,
    comm: Comm | None = None,
) -> dict[str, Any]:
    """Train a model into a new run directory."""
    folder, display = RunFolder(out), display or Display()
    folder.refuse_existing(force)
    job = _job(folder, config, _loaded(config, display, comm), new_run_id(), display)
    if comm is not None:
        job.solver.prepare()  # on all workers, or on none
    if force and out.is_dir():
        try:
            job.solver.check_budget()  # what is refused replaces nothing
        except BaseException:
            job.solver.close()
            raise
    try:
        with folder.begin(job.fill, force=force):
            return job.run()
    except InputError as error:
        if config.path:
            raise
        # Some values show only when the parties prepare. A ledger stays: it may have been charged.
        if not folder.ledger.exists() and not folder.log.read_bytes():
            shutil.rmtree(out)
        place = shown(config.data)
        raise error if place in str(error) else InputError(f"{place}: {error}") from None


def _job(folder: RunFolder, config: RunConfig, *about: Any) -> Job:
    return (PathJob if config.path else Fit)(folder, config, *about)


def _loaded(config: RunConfig, display: Display, comm: Comm | None) -> LoadedRun:
    """The data of a run; with workers, which :func:`led` has, on each of them its rows."""
    if comm is not None:
        comm.first(("load", (config,)))
        comm.apart = True
        found = _load(config, comm, display)
        comm.apart = False
        return found
    checked, private = load.check_run(config, display), config.privacy.mode != "none"
    return load.look_at(checked, load.load_run(config, checked), private, config.validation, display)


@led
def resume_run(
    run: Path,
    *,
    changes: dict[str, Any] | None = None,
    display: Display | None = None,
    comm: Comm | None = None,
) -> dict[str, Any]:
    """Continue a run from its last checkpoint, without changes to the result of one never interrupted."""
    folder, display = RunFolder(run), display or Display()
    folder.require()
    changes = {k: v for k, v in (changes or {}).items() if v is not None}
    found = recorded(run, changes)
    if found.by_files:
        raise ConfigError(f"{shown(run)}: a run by files: 'fastadmm coordinator step' goes on with it")
    config, provenance = found.config, found.provenance or {}
    finished = _finished(folder, config, changes, display)
    if finished is not None:
        return finished
    with folder.held():
        loaded = _loaded(config, display, None if config.path else comm)
        check_provenance(run, provenance, loaded.provenance, loaded.partition)
        folder.remove_leftovers()
        job = _job(folder, config, loaded, read_run_id(run), display)
        job.restore()
        if changes:
            # First, so that a kill between the two never leaves an old result beside new limits.
            folder.remove_result()
            write_settings(folder, config, provenance)
        return job.run()


def cluster_of(run: Path, changes: dict[str, Any]) -> str:
    """Where the workers of a run that goes on are; ``none`` for a run of one process."""
    folder = RunFolder(run)
    folder.require()
    return str(changes.get("cluster") or read_config(folder.configuration).get("cluster", "none"))


def _finished(
    folder: RunFolder, config: RunConfig, changes: dict[str, Any], display: Display
) -> dict[str, Any] | None:
    """The result where there is nothing to do; None where the run goes on; refused where it cannot."""
    place, new_limit = shown(folder.path), bool(changes.keys() & set(LIMITS))
    refused = "no new limit; start a new run"
    if new_limit and config.path:
        raise ConfigError(f"{place}: a path ends when it is certified: {refused}")
    if new_limit and config.privacy.mode != "none":
        raise ConfigError(f"{place}: a private run was charged beforehand: {refused} with a shared --ledger")
    finished = folder.finished()
    if finished is None or new_limit or finished["status"] == Status.INTERRUPTED:
        return None
    if finished["status"] not in _DONE:
        measure = "--gap" if is_convex(config) else "--set stationarity=NUMBER"
        limits = f"give a new limit: --rounds, {measure} or --set time=SECONDS"
        raise ConfigError(f"{place}: the run is over ({finished['message']}); {limits}")
    if not (folder.model / MANIFEST).exists():
        display.note("the model is missing: made again from the last checkpoint")
        return None
    # Private runs and those of no convex problem state no digest of their weights.
    known = (finished.get("certificate") or {}).get("weights")
    if known is not None and model_digest(open_model(folder.model)) != known:
        said = "not the model that the run made (its digest differs); move it away, and 'fastadmm resume'"
        raise FormatError(f"{shown(folder.model)}: {said} makes it again")
    display.note(f"nothing to do: {finished['message']}")
    return finished


#: After these only new limits can make a run go on.
_DONE = (Status.CONVERGED, Status.STATIONARY, Status.COMPLETED, Status.EARLY_STOPPED)


def plan_run(config: RunConfig) -> Plan:
    """What :func:`start_run` would do, with its seconds, from the files' headers and a short calibration."""
    return load.check_run(config, Display(), whole=True).plan


# --- rows that several workers share: each reads labels, and its rows; rank 0 writes ------------------------


class _Elsewhere(CSRBlock):
    """The shape of a block whose rows other workers have."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape, self.nbytes, self.density = shape, 0, 0.0


@dataclass(frozen=True)
class _SharedRun(LoadedRun):
    """As :class:`LoadedRun`, of this worker's rows."""

    engine: RowEngine
    least: float

    def solver(self, config: RunConfig, run: Path, run_id: str) -> Run:
        """A new solver here, on rank 0, and on every other worker."""
        run = run.absolute()
        self.engine.comm.first(("new", (run,)))
        return self.own_solver(config, run)

    def own_solver(self, config: RunConfig, run: Path) -> SharedSolver:
        """A new solver of this worker."""
        made = SharedSolver(self.problem, solver_options(config), self.engine, self.least, self.start)
        if self.spilled:
            made.spill(run)
        return made


def follow_run(comm: Comm) -> str:
    """What every rank but 0 does in a run: its settings are rank 0's."""
    status, error = follow(comm, _Follower(comm))
    if error is not None:
        raise error[0](error[1])
    return str(status)


def exit_code_of(status: str) -> ExitCode:
    """The exit code that a run's status asks for."""
    codes: dict[str, ExitCode] = dict.fromkeys(_DONE, ExitCode.OK)
    codes |= {Status.DIVERGED: ExitCode.DIVERGED, Status.INTERRUPTED: ExitCode.INTERRUPTED}
    codes[Status.CONTRADICTION] = ExitCode.CONTRADICTION
    return codes.get(Status(status), ExitCode.NOT_CONVERGED)


class _Follower:
    """What rank 0 asks of a worker besides its solver's methods."""

    def __init__(self, comm: Comm) -> None:
        self.comm = comm
        self.solver: SharedSolver | None = None

    def load(self, config: RunConfig) -> None:
        """Read this worker's rows."""
        self.config, self.loaded = config, _load(config, self.comm, Display())

    def new(self, run: Path) -> None:
        """Make a solver."""
        self.solver = self.loaded.own_solver(self.config, run)


def _load(config: RunConfig, comm: Comm, display: Display) -> _SharedRun:
    """This worker's rows of a run's problem."""
    refused = {f"key {key!r}: {what}": getattr(config, key) for key, what in _NOT_YET.items()}
    comm.agreed(lambda: _refuse(refused | {"privacy: a private run": config.privacy.mode != "none"}))
    given = config if comm.rank == 0 else replace(config, test=None)  # rank 0 keeps test rows
    partition, test, loss = comm.agreed(lambda: load.open_run(given))
    comm.agreed(lambda: _compare(partition, comm))
    n = partition.n_samples
    engine = comm.agreed(lambda: RowEngine(comm, n, 1))
    engine.n_threads = own_threads(comm, config.threads)
    parts = comm.agreed(lambda: [party.of_rows(*engine.rows) for party in partition.parties])
    columns = ", ".join(f"{p.name}: {p.n_features}" for p in parts)
    display.note(f"{n} samples, {len(parts)} parties ({columns} features), {comm.size} worker(s)")
    opened = partition, test, loss
    plan, free = load.plan_of(given, opened, parts, engine.n_threads, workers_here(comm))
    comm.agreed(lambda: check_limit(plan, config.memory is not None, free, shown(config.data), comm.size))
    for line in plan.lines(whole=False):
        display.note(f"each worker: {line}")
    checked = load.CheckedRun(partition, test, loss, plan)
    elsewhere = [_Elsewhere((n, p.n_features)) for p in parts]
    whole = comm.agreed(lambda: load.load_run(given, checked, elsewhere))  # all rows, without their blocks
    comm.agreed(lambda: refuse_unshared(whole.problem, solver_options(given)))
    for line in whole.looks:
        display.note(line)
    own = whole.problem.own_lambda
    factors = [1.0] * len(parts) if own is None else own.factors
    blocks = [
        block_of(comm.agreed(partial(read_party, part, there.streamed)), part.name, factor, engine)
        for part, there, factor in zip(parts, plan.parties, factors, strict=True)
    ]
    problem = replace(rows_of_problem(whole.problem, *engine.rows), blocks=blocks)
    labels = partition.labels  # of their numbers every worker has its share
    labels = labels and replace(labels, y=np.empty(0), sample_weight=None, offset=None)
    found = {**vars(whole), "partition": replace(partition, labels=labels), "problem": problem}
    return _SharedRun(**found, engine=engine, least=least_of(whole.problem, Engine(1)))


#: Schemes that have been found to give the same bits on any number of workers.
_SCHEMES = ("subspace", "proximal")

#: Settings that a shared run has not yet, and what it is then.
_NOT_YET = {"validation": "early stopping", "path": "a path"}


def _refuse(refused: dict[str, Any]) -> None:
    for what, there in refused.items():
        if there:
            raise ConfigError(f"{what} cannot be shared by rows yet; train in one process")


def _compare(partition: Partition, comm: Comm) -> None:
    """Refuse workers with other programs or files than rank 0's."""
    content = {f"the data of {party.name}": party.content_digest for party in partition.parties}
    mine = {"fastadmm": __version__, "the list of rows": partition.row_digest, **content}
    first, *others = comm.share(mine)
    for rank, other in enumerate(others, start=1):
        for name, found in other.items():
            if first.get(name) != found:
                said = "is not what rank 0 has; start all workers alike, on the same files"
                raise InputError(f"rank {rank}: {name} {said}")


def refuse_unshared(problem: Problem, options: SolverOptions) -> None:
    """Refuse what cannot be shared by rows yet."""
    scheme = choose_scheme(options, problem.traits, apart=True)[0].name
    _refuse(
        {
            "cluster: secrecy": options.secrecy != "none",
            "cluster: a problem that is not convex": not problem.convex,
            f"cluster: scheme {scheme!r}": scheme not in _SCHEMES,
        }
    )


def rows_of_problem(problem: Problem, start: int, stop: int) -> Problem:
    """Some rows of a problem, without their blocks; sums of weights stay those of all rows."""
    offset = problem.offset.reshape(-1, problem.n_samples)[:, start:stop].ravel().copy()
    y, weight = problem.y[start:stop].copy(), problem.weight[start:stop].copy()
    return replace(problem, blocks=[], y=y, weight=weight, offset=offset)
