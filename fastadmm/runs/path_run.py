"""A regularisation path on disk: each fit is kept by one rename; a resumed path makes what is not there."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import FormatError, InputError
from fastadmm.files.atomic import atomic_directory, atomic_file, shown, storage_errors
from fastadmm.files.reading import read_json, require_regular
from fastadmm.files.seal import check_files, check_seal, digest_of_files, seal_of
from fastadmm.problem.problem import Problem
from fastadmm.runs.config import solver_options
from fastadmm.runs.fit import Job
from fastadmm.runs.folder import RunFolder
from fastadmm.runs.interrupt import stop_on_signal
from fastadmm.runs.load import LoadedRun
from fastadmm.settings.run import RunConfig
from fastadmm.solver.cross_validation import CrossValidation, FoldFit, cross_validate, make_folds
from fastadmm.solver.history import RoundRecord, Status
from fastadmm.solver.loop import SolveResult
from fastadmm.solver.regularization_path import PathPoint, check_lambdas, fit_point, lambda_grid
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint

#: Rows of the table that a terminal shows.
_MOST_LINES = 40


class PathJob(Job):
    """A sequence of fits, of which one becomes the model."""

    def __post_init__(self) -> None:
        # What the data refuse is refused before there is a directory.
        self.fold, self.grid = _folds(self.config, self.loaded), _grid(self.config, self.loaded.problem)
        super().__post_init__()

    def fill(self, new: RunFolder) -> None:
        """Write the first files, for :meth:`RunFolder.begin`."""
        super().fill(new)
        (new.path / "fits").mkdir(mode=0o700)

    def work(self) -> dict[str, Any]:
        """All fits that are left, then the model of the chosen one."""
        self.solver.close()  # every fit has its own
        folder, run = self.folder, self.folder.path
        folder.remove_result()
        fits = StoredFits(run / "fits", self.loaded.problem.names, folder.check_held)
        with stop_on_signal() as stop_requested:
            try:
                chosen = self._choose(fits, stop_requested)
                k = len(self.grid) - 1 if chosen is None else chosen.chosen
                points = self._points(k, fits, stop_requested)
                claims = [fits.claims[f"lambda-{j:04d}"] for j in range(len(points))]
            except KeyboardInterrupt:
                if not stop_requested():
                    raise
                return _interrupted(fits)
        folder.check_held()
        table = _table(points, claims, chosen, k)
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
        """The path on all rows; a stored k-th point is made again, to the same bits, for its proof."""
        points: list[PathPoint] = []
        options, start = solver_options(self.config), self.loaded.start
        with Engine(self.config.threads) as engine:
            for j, lam in enumerate(self.grid):
                problem = replace(self.loaded.problem, lam=lam)

                def make(problem: Problem = problem, start: StartingPoint | None = start) -> PathPoint:
                    point = fit_point(problem, options, engine, start, should_stop=stop_requested)
                    if point.status is Status.INTERRUPTED:
                        raise KeyboardInterrupt
                    return point

                point = fits.point(f"lambda-{j:04d}", make)
                if j == k and point.proof is None and fits.claims[f"lambda-{j:04d}"] is not None:
                    point = make()
                place = f"{j + 1} of {len(self.grid)}"
                self.display.note(f"lambda {lam:.3g} ({place}), all rows: {point.message}")
                points.append(point)
                start = StartingPoint(point.weights, point.intercept)
        return points

    def _model_of(self, point: PathPoint, table: dict[str, Any]) -> dict[str, Any]:
        """Make the chosen point the run's model; what the result says of it."""
        by_rule = f" (rule {table['rule']}, {self.config.folds} folds)" if table["rule"] is not None else ""
        message = f"lambda {point.lam:.6g} of {len(table['values'])}{by_rule}: {point.message}"
        told = point.status, message, point.history
        result = SolveResult(point.weights, point.intercept, *told, proof=point.proof)
        with atomic_file(self.folder.log) as temporary:
            lines = [json.dumps(record.to_json(), allow_nan=False) + "\n" for record in point.history]
            temporary.write_text("".join(lines), encoding="utf-8")
        solver = Solver(replace(self.loaded.problem, lam=point.lam), solver_options(self.config))
        try:
            document = self.finished(solver, result)
        finally:
            solver.close()
        return document | {"path": {key: value for key, value in table.items() if key != "values"}}


def _folds(config: RunConfig, loaded: LoadedRun) -> np.ndarray | None:
    labels = loaded.partition.labels
    if config.folds == 0 or labels is None:
        return None
    classes = labels.classes
    return make_folds(loaded.problem.y, config.folds, config.seed, classes is not None, classes)


def _grid(config: RunConfig, problem: Problem) -> list[float]:
    if config.path_values is not None:
        return check_lambdas(config.path_values)
    with Engine(config.threads) as engine:
        return lambda_grid(problem, config.path_length, config.path_ratio, engine)


def _table(
    points: list[PathPoint], claims: list[str | None], chosen: CrossValidation | None, k: int
) -> dict[str, Any]:
    """What ``path.json`` says; nothing in it depends on time."""
    rows = []
    for j, point in enumerate(points):
        record = point.record.to_json()
        row: dict[str, Any] = {
            "lambda": point.lam,
            "objective": record["objective"],
            "gap": record["gap"],
            "gap_absolute": record["gap_absolute"],
            "status": str(point.status),
            **({} if claims[j] is None else {"claim": claims[j]}),
            "rounds": point.n_rounds,
            "nonzero": point.n_nonzero,
            "weight_norms": record["weight_norms"],
        }
        if record["test"] is not None:
            row["test"] = record["test"]
        if chosen is not None:
            row |= {
                "held_out_loss": float(chosen.mean[j]),
                "standard_error": float(chosen.standard_error[j]),
                "fold_losses": chosen.losses[j].tolist(),
                "fold_gaps": chosen.gaps[j].tolist(),
                "fold_rounds": chosen.n_rounds[j].tolist(),
            }
        rows.append(row)
    return {
        "chosen": k,
        "lambda": points[k].lam,
        "best": None if chosen is None else chosen.best,
        "rule": None if chosen is None else chosen.rule,
        "values": rows,
    }


def read_table(run: Path) -> dict[str, Any]:
    """Content of ``path.json``."""
    path = run / "path.json"
    table = read_json(path)
    if not isinstance(table, dict) or "values" not in table:
        raise FormatError(f"{shown(path)}: key 'values' is missing")
    return table


def table_lines(table: dict[str, Any]) -> list[str]:
    """The table as text, for a terminal."""
    rows, with_folds = table["values"], table["rule"] is not None
    head = f"{'lambda':>11}" + (f"  {'held-out loss':>13}  {'std. error':>10}" if with_folds else "")
    lines = [head + f"  {'nonzero':>7}  {'gap':>8}  {'rounds':>6}"]
    for j, row in enumerate(rows[:_MOST_LINES]):
        text = f"{row['lambda']:>11.4g}"
        if with_folds:
            text += f"  {row['held_out_loss']:>13.6g}  {row['standard_error']:>10.2g}"
        gap = "" if row["gap"] is None else f"{row['gap']:.1e}"
        text += f"  {row['nonzero']:>7}  {gap:>8}  {row['rounds']:>6}"
        lines.append(text + ("  <- chosen" if j == table["chosen"] and with_folds else ""))
    if len(rows) > _MOST_LINES:
        lines.append(f"... {len(rows) - _MOST_LINES} more in path.json")
    return lines


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def _interrupted(fits: StoredFits) -> dict[str, Any]:
    n = fits.n_done
    return {
        "status": str(Status.INTERRUPTED),
        "message": f"interrupted after {n} fit{'' if n == 1 else 's'} of the path",
        "rounds": 0,
        "seconds": 0.0,
    }


class StoredFits:
    """Fits on disk, one directory each: ``fit.json``, and each party's weights alone in its own file."""

    def __init__(self, path: Path, names: list[str], check: Callable[[], None] | None = None) -> None:
        self.path, self.names, self.n_done = path, names, 0
        self.claims: dict[str, str | None] = {}  # of the fits on all rows
        self._check = check

    def fold_fit(self, name: str, make: Callable[[], FoldFit]) -> FoldFit:
        """The fit of a fold, from disk or made and stored."""

        def told(fit: FoldFit) -> dict[str, Any]:
            return {"loss": fit.loss, "gap": fit.gap, "rounds": fit.n_rounds}

        def read(document: dict[str, Any], weights: list[np.ndarray], intercept: Any) -> FoldFit:
            gap = math.inf if document["gap"] is None else float(document["gap"])
            return FoldFit(weights, intercept, float(document["loss"]), gap, int(document["rounds"]))

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
                "claim": claim_of(point),
            }

        def read(document: dict[str, Any], weights: list[np.ndarray], intercept: Any) -> PathPoint:
            older = document.get("proof") or {}  # of fits of version 0.2
            self.claims[name] = document.get("claim", older.get("claim"))
            history = [RoundRecord.from_json(values) for values in document["history"]]
            told = Status(document["status"]), str(document["message"]), history
            return PathPoint(weights, intercept, *told, lam=float(document["lambda"]))

        def claim_of(point: PathPoint) -> str | None:
            return None if point.proof is None else str(point.proof.claim)

        point = self._stored(name, make, told, read)
        self.claims.setdefault(name, claim_of(point))
        return point

    def _stored(
        self,
        name: str,
        make: Callable[[], Any],
        told: Callable[[Any], dict[str, Any]],
        read: Callable[[dict[str, Any], list[np.ndarray], Any], Any],
    ) -> Any:
        """A fit from disk, or made and stored."""
        found = self._read(name)
        if found is None:
            fit = make()
            self._write(name, told(fit), fit.weights, fit.intercept)
            self.n_done += 1
            return fit
        self.n_done += 1
        try:
            return read(*found)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise self._damaged(name, error) from None

    def _write(
        self,
        name: str,
        document: dict[str, Any],
        weights: list[np.ndarray],
        intercept: Any,
    ) -> None:
        held = np.asarray(intercept, dtype=np.float64)
        if not np.isfinite(held).all() or not all(np.isfinite(x).all() for x in weights):
            raise InputError(
                f"path: fit {name} has weights that are not finite; bring the features to one scale"
            )
        if self._check is not None:
            self._check()
        with atomic_directory(self.path / name) as directory:
            for party, x in zip(self.names, weights, strict=True):
                np.save(directory / f"{party}.npy", np.ascontiguousarray(x), allow_pickle=False)
            record = {**_finite(document), "intercept": held.tolist(), "files": digest_of_files(directory)}
            text = json.dumps({**record, "digest": seal_of(record)}, indent=2, allow_nan=False)
            (directory / "fit.json").write_text(text + "\n", encoding="utf-8")

    def _read(self, name: str) -> tuple[dict[str, Any], list[np.ndarray], Any] | None:
        directory = self.path / name
        with storage_errors(directory, "read"):
            if not directory.exists():
                return None
            try:
                if not (directory / "fit.json").exists():
                    raise FileNotFoundError("no fit.json")
                document = read_json(directory / "fit.json")
                if "files" in document:  # fits of version 0.1 have no digests
                    seal = str(document.pop("digest"))
                    check_seal(document, seal, "fit.json", "make it again")
                    check_files(directory, document["files"])
                places = [directory / f"{party}.npy" for party in self.names]
                for place in places:
                    require_regular(place)
                weights = [np.load(place, allow_pickle=False) for place in places]
                held = np.array(document["intercept"], dtype=np.float64)
            except (ValueError, KeyError, TypeError, AttributeError, EOFError, FileNotFoundError) as error:
                raise self._damaged(name, error) from None
        return document, weights, held if held.ndim else float(held)

    def _damaged(self, name: str, error: Exception) -> FormatError:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return FormatError(f"{shown(self.path / name)}: not a stored fit: {reason}; delete it to fit again")
