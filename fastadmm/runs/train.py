"""A training run on disk: start it, interrupt it, resume it to the bit-identical result."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from fastadmm.cluster.comm import Comm
from fastadmm.errors import ConfigError, FormatError, InputError, StorageError
from fastadmm.files.atomic import shown
from fastadmm.runs.claim import check_provenance, model_digest
from fastadmm.runs.config import read_config, recorded
from fastadmm.runs.display import Display, Silent
from fastadmm.runs.fit import Fit, PathJob, write_settings
from fastadmm.runs.folder import RunFolder
from fastadmm.runs.load import LoadedRun, check_run, load_run, look_at
from fastadmm.runs.plan import Plan
from fastadmm.runs.result import new_run_id, read_run_id
from fastadmm.runs.shared import led, load_shared
from fastadmm.settings.keys import LIMITS
from fastadmm.settings.run import RunConfig, is_convex
from fastadmm.solver.history import Status
from fastadmm.store.model import MANIFEST, open_model
from fastadmm.store.partition import open_partition


def start_run(
    config: RunConfig,
    out: Path,
    *,
    force: bool = False,
    display: Display | None = None,
    comm: Comm | None = None,
) -> dict[str, Any]:
    """Train a model into a new run directory."""
    return led(comm, lambda: _start(config, RunFolder(out), force, display or Silent(), comm))


def _start(
    config: RunConfig, folder: RunFolder, force: bool, display: Display, comm: Comm | None
) -> dict[str, Any]:
    out = folder.path
    try:
        folder.refuse_existing(force)
    except StorageError:
        open_partition(config.data)  # what is missing is said before what is in the way
        raise
    kind = PathJob if config.path else Fit
    job = kind(folder, config, _loaded(config, display, comm), new_run_id(), display)
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


def _loaded(config: RunConfig, display: Display, comm: Comm | None) -> LoadedRun:
    """The data of a run."""
    if comm is not None:
        return load_shared(config, comm, display)
    checked, private = check_run(config, display), config.privacy.mode != "none"
    return look_at(checked, load_run(config, checked), private, config.validation, display)


def resume_run(
    run: Path,
    *,
    changes: dict[str, Any] | None = None,
    display: Display | None = None,
    comm: Comm | None = None,
) -> dict[str, Any]:
    """Continue a run from its last checkpoint, without changes to the result of one never interrupted."""
    return led(comm, lambda: _resume(RunFolder(run), changes, display or Silent(), comm))


def _resume(
    folder: RunFolder, changes: dict[str, Any] | None, display: Display, comm: Comm | None
) -> dict[str, Any]:
    run = folder.path
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
        kind = PathJob if config.path else Fit
        job = kind(folder, config, loaded, read_run_id(run), display)
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
    place, new_limit, refused = shown(folder.path), bool(changes.keys() & set(LIMITS)), ""
    if new_limit and config.privacy.mode != "none":
        refused = "the rounds of a private run were fixed and charged beforehand: no new limit; "
        refused += "start a new run with a shared --ledger"
    elif new_limit and config.path:
        refused = "a path ends when it is certified: no new limit; start a new run"
    if refused:
        raise ConfigError(f"{place}: {refused}")
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


def plan_run(config: RunConfig, *, display: Display | None = None) -> Plan:
    """What :func:`start_run` would do, with its seconds, from the files' headers and a short calibration."""
    return check_run(config, display or Silent(), whole=True).plan
