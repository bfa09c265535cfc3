"""A run in its folder, of one lambda or a path of them: log, checkpoints, stored fits, model and result."""

from __future__ import annotations

import errno
import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import FormatError, InputError, StorageError
from fastadmm.files.atomic import plain, shown, storage_errors, write_json, write_whole
from fastadmm.files.reading import read_json, retried
from fastadmm.files.seal import check_seal, damaged, seal_of
from fastadmm.runs.checkpoint import Subject, checkpoints, restore_checkpoint, write_checkpoint
from fastadmm.runs.claim import model_digest, of_model, problem_digest, statement_of, write_dual
from fastadmm.runs.config import solver_options
from fastadmm.runs.folder import Display, RoundLog, RunFolder, stop_on_signal
from fastadmm.runs.load import LoadedRun
from fastadmm.runs.plan import describe_environment
from fastadmm.runs.result import model_of, result_document, write_statement
from fastadmm.settings.keys import PATHS
from fastadmm.settings.run import RunConfig
from fastadmm.solver.cross_validation import CrossValidation, FoldFit, cross_validate, make_folds
from fastadmm.solver.history import RoundRecord, Status
from fastadmm.solver.loop import SolveResult, run_rounds
from fastadmm.solver.regularization_path import PathPoint, check_lambdas, fit_point, lambda_grid
from fastadmm.solver.run import Run
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint
from fastadmm.store.model import write_model


def write_settings(
    folder: RunFolder, config: RunConfig, provenance: dict[str, Any], final: Path | None = None
) -> None:
    """Write ``run.toml``."""
    paths = {key: value if isinstance(value := getattr(config, key), str) else None for key in PATHS}
    folder.write_configuration(config.to_toml(), paths, {"provenance": provenance}, final=final)


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
        new.write_json("environment.json", describe_environment(self.solver.engine.n_threads))
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
        folder, loaded, proof, statement = self.folder, self.loaded, result.proof, None
        if result.status is Status.DIVERGED:
            # Neither from the model of an earlier limit: its rounds already led astray.
            shutil.rmtree(folder.model, ignore_errors=True)
        elif result.status is not Status.INTERRUPTED:
            model = model_of(loaded.partition, solver, result, self.run_id)
            if proof is not None:
                about = model_digest(model), self.config.to_toml(), solver.problem.recorded_lam
                statement = statement_of(proof, *about, loaded.provenance)
                model = of_model(statement, model)
            write_dual(folder.path, None if proof is None else proof.dual)
            write_model(folder.model, model, force=True)
        private = write_statement(folder.path, solver, self.run_id).to_json()
        document = result_document(solver, result, statement) | loaded.class_rows | {"privacy": private}
        if comparison is not None:
            document["comparison"] = comparison
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
        place, damaged, found = self.folder.checkpoints, [], False
        for candidate in reversed(checkpoints(place)):
            try:
                retried(partial(restore_checkpoint, candidate, self.solver, self.subject))
                found = True
                break
            except (FormatError, StorageError) as error:
                # Damaged is what was read and is wrong, or is not there; what cannot be read may be whole.
                if isinstance(error, StorageError) and error.errno != errno.ENOENT:
                    raise
                self.display.note(f"checkpoint skipped: {error}")
                damaged.append(candidate)
                self.solver = self.new_solver()
        if damaged and not found:
            text = "no checkpoint can be used: damaged, or of an earlier version; train again"
            raise FormatError(f"{shown(place)}: {text}")
        begun = "no checkpoint yet: starting from round 1"
        begun = "stored messages are sent again; none is drawn again" if self.solver.private else begun
        self.display.note(f"resuming after round {self.solver.n_rounds}" if found else begun)
        for path in damaged:
            shutil.rmtree(path, ignore_errors=True)

    def work(self) -> dict[str, Any]:
        """All rounds that are left, then the model."""
        solver, comparison = self.solver, None
        self._announce()
        with self.folder.open_log(solver.n_rounds) as log, stop_on_signal() as stop_requested:
            try:
                result = self._rounds(log, stop_requested)
                finished = result.status is not Status.INTERRUPTED
                if finished:
                    comparison = solver.compare(result.weights, result.intercept)
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
        lam, own = f"{self.config.lambda_:g}", solver.problem.own_lambda
        if own is not None:
            lam = ", ".join(f"{v:g} of {name}" for name, v in zip(solver.problem.names, own.values))
        threads = f"{solver.engine.n_threads} thread(s)"
        note(solver.program())
        note(f"scheme '{solver.name}' ({solver.reason()}), {threads}, lambda {lam}")
        for line in solver.notes():
            note(line)

    def _rounds(self, log: RoundLog, stop_requested: Callable[[], bool]) -> SolveResult:
        """Rounds until one is the last, logged, shown and saved."""
        config, solver, every = self.config, self.solver, self.config.checkpoint_rounds
        last_saved = time.monotonic()

        def monitor(record: RoundRecord) -> None:
            nonlocal last_saved
            log.append(record)
            self.display.round(record)
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


# --- a path: each fit is kept by one rename; a resumed path makes what is not there -------------------------


#: What to do with a damaged fit.
_AGAIN = "delete it to fit again"


class PathJob(Job):
    """A sequence of fits, of which one becomes the model."""

    def __post_init__(self) -> None:
        # What the data refuse is refused before there is a directory.
        config, problem, labels = self.config, self.loaded.problem, self.loaded.partition.labels
        self.fold = None
        if config.folds and labels is not None:
            classes = labels.classes
            self.fold = make_folds(problem.y, config.folds, config.seed, classes is not None, classes)
        if config.path_values is not None:
            self.grid = check_lambdas(config.path_values)
        else:
            with Engine(config.threads) as engine:
                self.grid = lambda_grid(problem, config.path_length, config.path_ratio, engine)
        super().__post_init__()

    def fill(self, new: RunFolder) -> None:
        """Write the first files, for :meth:`RunFolder.begin`."""
        super().fill(new)
        (new.path / "fits").mkdir(mode=0o700)

    def work(self) -> dict[str, Any]:
        """All fits that are left, then the model of the chosen one."""
        self.solver.close()  # every fit has its own
        folder = self.folder
        folder.remove_result()
        fits = StoredFits(folder.path / "fits", folder.check_held)
        with stop_on_signal() as stop_requested:
            try:
                chosen = self._choose(fits, stop_requested)
                k = len(self.grid) - 1 if chosen is None else chosen.chosen
                points = self._points(k, fits, stop_requested)
            except KeyboardInterrupt:
                if not stop_requested():
                    raise
                said = f"interrupted after {fits.n_done} fit{'' if fits.n_done == 1 else 's'} of the path"
                return {"status": str(Status.INTERRUPTED), "message": said, "rounds": 0, "seconds": 0.0}
        folder.check_held()
        table = _table(points, chosen, k)
        folder.write_json("path.json", table)
        return self._model_of(points[k], table)

    def _choose(self, fits: StoredFits, stop_requested: Callable[[], bool]) -> CrossValidation | None:
        """What the folds choose; None without folds."""
        if self.fold is None:
            return None
        config, problem, labels = self.config, self.loaded.problem, self.loaded.partition.labels
        weight = None if labels is None else labels.sample_weight
        values = f"{len(self.grid)} values of lambda from {self.grid[0]:.3g} to {self.grid[-1]:.3g}"
        self.display.note(f"{config.folds} folds, {values}")
        return cross_validate(
            replace(problem, test=None),
            self.grid,
            self.fold,
            solver_options(config),
            rule=config.rule,
            score_weight=np.ones(problem.n_samples) if weight is None else weight,
            fitter=fits.fold_fit,
            should_stop=stop_requested,
            monitor=self.display.note,
        )

    def _points(self, k: int, fits: StoredFits, stop_requested: Callable[[], bool]) -> list[PathPoint]:
        """The path on all rows; a stored k-th point is made again for its proof."""
        points: list[PathPoint] = []
        options, start = solver_options(self.config), self.loaded.start
        with Engine(self.config.threads) as engine:

            def made(lam: float, start: StartingPoint | None) -> PathPoint:
                problem = replace(self.loaded.problem, lam=lam)
                point = fit_point(problem, options, engine, start, should_stop=stop_requested)
                if point.status is Status.INTERRUPTED:
                    raise KeyboardInterrupt
                return point

            for j, lam in enumerate(self.grid):
                make = partial(made, lam, start)
                point = fits.point(f"lambda-{j:04d}", make)
                if j == k and point.proof is None and point.claim is not None:
                    point = make()  # to the same bits
                place = f"{j + 1} of {len(self.grid)}"
                self.display.note(f"lambda {lam:.3g} ({place}), all rows: {point.message}")
                points.append(point)
                start = StartingPoint(point.weights, point.intercept)
        return points

    def _model_of(self, point: PathPoint, table: dict[str, Any]) -> dict[str, Any]:
        """Make the chosen point the run's model; what the result says of it."""
        by_rule = f" (rule {table['rule']}, {self.config.folds} folds)" if table["rule"] is not None else ""
        message = f"lambda {point.lam:.6g} of {len(table['values'])}{by_rule}: {point.message}"
        lines = [json.dumps(record.to_json(), allow_nan=False) + "\n" for record in point.history]
        write_whole(self.folder.log, "".join(lines))
        solver = Solver(replace(self.loaded.problem, lam=point.lam), solver_options(self.config))
        try:
            document = self.finished(solver, replace(point, message=message))
        finally:
            solver.close()
        return document | {"path": {key: value for key, value in table.items() if key != "values"}}


def _table(points: list[PathPoint], chosen: CrossValidation | None, k: int) -> dict[str, Any]:
    """What ``path.json`` says; nothing in it depends on time."""
    rows = []
    for j, point in enumerate(points):
        record = point.record.to_json()
        row = {
            "lambda": point.lam,
            **{key: record[key] for key in ("objective", "gap", "gap_absolute")},
            "status": str(point.status),
            **({} if point.claim is None else {"claim": point.claim}),
            "rounds": point.n_rounds,
            "nonzero": point.n_nonzero,
            "weight_norms": record["weight_norms"],
            **({} if record["test"] is None else {"test": record["test"]}),
        }
        if chosen is not None:
            row |= {"held_out_loss": chosen.mean[j].item(), "standard_error": chosen.standard_error[j].item()}
            folds = {"losses": chosen.losses, "gaps": chosen.gaps, "rounds": chosen.n_rounds}
            row |= {f"fold_{name}": values[j].tolist() for name, values in folds.items()}
        rows.append(row)
    best, rule = (None, None) if chosen is None else (chosen.best, chosen.rule)
    return {"chosen": k, "lambda": points[k].lam, "best": best, "rule": rule, "values": rows}


def read_table(run: Path) -> dict[str, Any]:
    """Content of ``path.json``."""
    path = run / "path.json"
    table = read_json(path)
    if not isinstance(table, dict) or "values" not in table:
        raise FormatError(f"{shown(path)}: key 'values' is missing")
    return table


class StoredFits:
    """Fits on disk, one sealed file each; weights are the bytes of their numbers."""

    def __init__(self, path: Path, check: Callable[[], None]) -> None:
        self.path, self.n_done, self._check = path, 0, check

    def fold_fit(self, name: str, make: Callable[[], FoldFit]) -> FoldFit:
        """The fit of a fold, from disk or made and stored."""

        def told(fit: FoldFit) -> dict[str, Any]:
            return {"loss": fit.loss, "gap": fit.gap, "rounds": fit.n_rounds}

        def read(own: dict[str, Any], weights: list[np.ndarray], intercept: Any) -> FoldFit:
            gap = math.inf if own["gap"] is None else float(own["gap"])
            return FoldFit(weights, intercept, float(own["loss"]), gap, int(own["rounds"]))

        return self._stored(name, make, told, read)

    def point(self, name: str, make: Callable[[], PathPoint]) -> PathPoint:
        """A fit on all rows, from disk, without its proof, or made and stored."""

        def told(point: PathPoint) -> dict[str, Any]:
            return {
                "lambda": point.lam,
                "rounds": point.n_rounds,
                "status": str(point.status),
                "message": point.message,
                "history": [record.to_json() for record in point.history],
                "claim": point.claim,
            }

        def read(own: dict[str, Any], weights: list[np.ndarray], intercept: Any) -> PathPoint:
            history = [RoundRecord.from_json(values) for values in own["history"]]
            about = Status(own["status"]), str(own["message"]), history
            return PathPoint(weights, intercept, *about, lam=float(own["lambda"]), claim=own["claim"])

        return self._stored(name, make, told, read)

    def _stored(
        self,
        name: str,
        make: Callable[[], Any],
        told: Callable[[Any], dict[str, Any]],
        read: Callable[..., Any],
    ) -> Any:
        """A fit from disk, or made and stored."""
        path, found = self.path / f"{name}.json", None
        with storage_errors(path, "read"), damaged(path, _AGAIN, "not a stored fit"):
            if path.exists():
                own = read_json(path)
                check_seal(own, own.pop("digest"), shown(path), _AGAIN)
                held = np.array(own["intercept"], dtype=np.float64)
                flat = (np.frombuffer(bytes.fromhex(text), "<f8") for text in own["weights"])
                weights = [x.reshape(-1, *held.shape).copy() for x in flat]
                found = read(own, weights, held if held.ndim else float(held))
        if found is None:
            found = make()
            self._write(path, told(found), found.weights, np.asarray(found.intercept, dtype=np.float64))
        self.n_done += 1
        return found

    def _write(
        self, path: Path, document: dict[str, Any], weights: list[np.ndarray], held: np.ndarray
    ) -> None:
        if not all(np.isfinite(x).all() for x in (held, *weights)):
            said = "has weights that are not finite; bring the features to one scale"
            raise InputError(f"path: fit {path.stem} {said}")
        self._check()
        numbers = [np.ascontiguousarray(x, dtype="<f8").tobytes().hex() for x in weights]
        record = {**plain(document), "intercept": held.tolist(), "weights": numbers}
        write_json(path, {**record, "digest": seal_of(record)})
