"""A run in its folder: log, checkpoints, model and result."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fastadmm.errors import FormatError, StorageError
from fastadmm.files.atomic import shown
from fastadmm.files.reading import retried
from fastadmm.runs.checkpoint import Subject, checkpoints, restore_checkpoint, write_checkpoint
from fastadmm.runs.claim import of_model, statement_of, write_dual
from fastadmm.runs.config import sealed_part
from fastadmm.runs.display import Display
from fastadmm.runs.folder import RoundLog, RunFolder
from fastadmm.runs.interrupt import stop_on_signal
from fastadmm.runs.load import LoadedRun
from fastadmm.runs.private import write_statement
from fastadmm.runs.provenance import model_digest, problem_digest
from fastadmm.runs.result import model_of, result_document
from fastadmm.settings.keys import PATHS
from fastadmm.settings.run import RunConfig
from fastadmm.solver.history import RoundRecord, Status
from fastadmm.solver.loop import SolveResult, run_rounds
from fastadmm.solver.run import Run
from fastadmm.store.model import write_model


def write_settings(
    folder: RunFolder, config: RunConfig, provenance: dict[str, Any], final: Path | None = None
) -> None:
    """Write ``run.toml``."""
    paths = {key: value for key in PATHS if isinstance(value := getattr(config, key), str)}
    tables = {"provenance": provenance}
    folder.write_configuration(config.to_toml(), paths, tables, final=final, sealed=sealed_part)


@dataclass
class Job:
    """A run in a folder that this process holds: its first files, its work, and how it ends."""

    folder: RunFolder
    config: RunConfig
    loaded: LoadedRun
    run_id: str
    display: Display

    def __post_init__(self) -> None:
        self.solver = self.new_solver()

    def new_solver(self) -> Run:
        """A solver at the beginning."""
        return self.loaded.solver(self.config, self.folder.path, self.run_id)

    def fill(self, new: RunFolder) -> None:
        """Write the first files, for :meth:`RunFolder.begin`."""
        write_settings(new, self.config, self.loaded.provenance, self.folder.path)
        new.write_environment(self.solver.engine.n_threads)
        write_statement(new.path, self.solver, self.run_id)

    def restore(self) -> None:
        """Go on from what a run that ended early has left."""

    def run(self) -> dict[str, Any]:
        """Do what is left; the content of ``result.json``."""
        document = self.work()
        self.folder.check_held()
        self.folder.write_json("result.json", document)
        return document

    def work(self) -> dict[str, Any]:
        """Train, and leave the model; what the result says."""
        raise NotImplementedError

    def finished(self, solver: Run, result: SolveResult, comparison: Any = None) -> dict[str, Any]:
        """Write the model and the dual vector of its proof; what the result says of them."""
        folder, loaded, statement = self.folder, self.loaded, None
        if result.status is Status.DIVERGED:
            # Neither from the model of an earlier limit: its rounds already led astray.
            shutil.rmtree(folder.model, ignore_errors=True)
        elif result.status is not Status.INTERRUPTED:
            model = model_of(loaded.partition, solver, result, self.run_id)
            if result.proof is not None:
                lam, settings = solver.problem.recorded_lam, self.config.to_toml()
                weights = model_digest(model)
                statement = statement_of(result.proof, weights, settings, lam, loaded.provenance)
                model = of_model(statement, model)
            write_dual(folder.path, None if result.proof is None else result.proof.dual)
            write_model(folder.model, model, force=True)
        document = result_document(solver, result, statement) | loaded.class_rows
        document["privacy"] = write_statement(folder.path, solver, self.run_id).to_json()
        if comparison is not None:
            document["comparison"] = comparison.to_json()
        if loaded.looks:
            document["looks"] = list(loaded.looks)
        return document


class Fit(Job):
    """Rounds at one lambda."""

    @cached_property
    def subject(self) -> Subject:
        """What its checkpoints are of."""
        return Subject(self.run_id, problem_digest(self.config, self.loaded.provenance))

    def restore(self) -> None:
        """Go on from the newest whole checkpoint; damaged ones are removed."""
        place, damaged = self.folder.checkpoints, []
        for candidate in reversed(checkpoints(place)):
            try:
                self._restore(candidate)
            except (FormatError, StorageError) as error:
                # Damaged is what was read and is wrong, or is not there; what cannot be read may be whole.
                if isinstance(error, StorageError) and error.errno != errno.ENOENT:
                    raise
                self.display.note(f"checkpoint skipped: {error}")
                damaged.append(candidate)
                self.solver = self.new_solver()
            else:
                self.display.note(f"resuming after round {self.solver.n_rounds}")
                break
        else:
            if damaged:
                text = "no checkpoint can be used: damaged, or of an earlier version; train again"
                raise FormatError(f"{shown(place)}: {text}")
            self.display.note(
                "stored messages are sent again; none is drawn again"
                if self.solver.private
                else "no checkpoint yet: starting from round 1"
            )
        for path in damaged:
            shutil.rmtree(path, ignore_errors=True)

    def _restore(self, checkpoint: Path) -> None:
        retried(lambda: restore_checkpoint(checkpoint, self.solver, self.subject))

    def work(self) -> dict[str, Any]:
        """All rounds that are left, then the model."""
        solver = self.solver
        self._announce()
        with self.folder.open_log(solver.n_rounds) as log, stop_on_signal() as stop_requested:
            try:
                result = self._rounds(log, stop_requested)
                finished = result.status is not Status.INTERRUPTED
                comparison = solver.compare(result.weights, result.intercept) if finished else None
            finally:
                solver.close()
        document = self.finished(solver, result, comparison)
        if result.hint:
            self.display.note(result.hint)
        if finished and solver.traffic is not None:
            self.display.note(solver.traffic.sentence(solver.engine.all_rows(solver.problem.n_samples)))
        return document

    def _announce(self) -> None:
        note, solver = self.display.note, self.solver
        note(write_statement(self.folder.path, solver, self.run_id).one_line())
        if solver.advice():
            note(f"warning: {solver.advice()}")
        for name, update, why in solver.party_notes():
            note(f"{name}: x-update '{update}' ({why})")
        own = solver.problem.own_lambda
        if own is None:
            lam = f"{self.config.lambda_:g}"
        else:
            lam = ", ".join(f"{v:g} of {name}" for name, v in zip(solver.problem.names, own.values))
        threads = f"{solver.engine.n_threads} thread(s)"
        note(solver.program())
        note(f"scheme '{solver.name}' ({solver.reason()}), {threads}, lambda {lam}")
        for line in solver.notes():
            note(line)

    def _rounds(self, log: RoundLog, stop_requested: Callable[[], bool]) -> SolveResult:
        """Rounds until one is the last, logged, shown and saved."""
        config, solver = self.config, self.solver
        last_saved = time.monotonic()

        def monitor(record: RoundRecord) -> None:
            nonlocal last_saved
            log.append(record)
            self.display.round(record)
            every = config.checkpoint_rounds
            due = every is not None and record.round % every == 0
            if solver.private:
                log.sync()
            elif due or time.monotonic() - last_saved >= config.checkpoint_seconds:
                self._save(log)
                last_saved = time.monotonic()

        self.folder.remove_result()
        self.display.start(config.gap if solver.problem.convex else config.stationarity, config.rounds)
        try:
            result = run_rounds(solver, monitor, stop_requested)
        finally:
            self.display.stop()
        # Of a diverged run there is nothing to go on from.
        self._save(log, checkpoint=result.status is not Status.DIVERGED)
        return result

    def _save(self, log: RoundLog, *, checkpoint: bool = True) -> None:
        log.sync()
        self.folder.check_held()
        if checkpoint and not self.solver.private:
            write_checkpoint(self.folder.checkpoints, self.solver, self.subject)
