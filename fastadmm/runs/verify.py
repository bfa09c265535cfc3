"""Prove a written model again by plain NumPy, and compare digests: nothing here has a part in training."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError, ExitCode, FormatError, InputError, StorageError
from fastadmm.files.atomic import shown
from fastadmm.files.seal import damaged
from fastadmm.runs import claim as claims
from fastadmm.runs.config import own_lambdas, party_constraints, recorded
from fastadmm.runs.folder import RunFolder, document_in
from fastadmm.runs.plain import Columns, Rows
from fastadmm.runs.recompute import recompute, stationarity
from fastadmm.settings.run import RunConfig, is_convex
from fastadmm.store.label_file import LabelData
from fastadmm.store.model import Model, open_model
from fastadmm.store.partition import Partition, open_partition

#: Losses by what their parameter is, where it has not been given.
_PARAMETERS = {
    "huber": 1.0,
    "quantile": 0.5,
    "smoothed_hinge": 1.0,
    "tweedie": 1.5,
    "negative_binomial": 1.0,
    "tukey": 4.685,
    "welsch": 2.11,
}

#: Numbers that are computed with more digits at most.
MOST_DIGITAL = 200_000

#: How much larger a recomputed number may be than the written one, relative to it.
SLACK = 1e-9


@dataclass(frozen=True)
class Verified:
    """What was found about a written claim, recomputed: among bounded models where that is claimed."""

    holds: bool
    claim: str  # what was written
    line: str  # what was checked, or why it does not hold
    objective: float | None = None
    bound: float | None = None
    gap: float | None = None
    gap_absolute: float | None = None
    stationarity: float | None = None  # of a problem that is not convex
    digits: int = 0  # 0 for double precision

    @property
    def exit_code(self) -> ExitCode:
        """0 for a certificate that holds, or a stationary point."""
        if self.claim == "contradiction":
            return ExitCode.CONTRADICTION
        claimed = self.claim.startswith(("certified", "stationary"))
        return ExitCode.OK if self.holds and claimed else ExitCode.NOT_CONVERGED

    def to_json(self) -> dict[str, Any]:
        """Plain values, without what is infinite."""
        own = {k: v for k, v in asdict(self).items() if not isinstance(v, float) or math.isfinite(v)}
        return {**own, "exit_code": int(self.exit_code)}


def verify_run(run: Path, data: Path | None = None, digits: int = 0) -> Verified:
    """Prove the model of a run again, and compare with what is written."""
    place, path = shown(run), run / "result.json"
    RunFolder(run).require()
    told = recorded(run)
    config, convex = told.config, is_convex(told.config)
    if config.privacy.mode != "none":
        raise ConfigError(f"{place}: the run is private: it claims no gap, and there is nothing to verify")
    result = document_in(path)
    if result is None:
        raise StorageError(f"{place}: no result.json: not finished; 'fastadmm resume' goes on with it")
    if not isinstance(result.get("lambda"), float):
        raise FormatError(f"{shown(path)}: no result of a run that made a model")
    statement = result.get("certificate") if convex else {**result, "claim": result.get("status")}
    if statement is None:
        raise FormatError(f"{place}: {claims.OLD}; train again to have it checked")
    if not isinstance(statement, dict) or not isinstance(statement.get("claim"), str):
        raise FormatError(f"{shown(path)}: key 'certificate' is damaged")
    model = open_model(run / "model")
    if told.by_files and data is None:
        raise ConfigError(f"{place}: a run by files knows the labels alone; name the whole partition, too")
    partition = open_partition(config.data if data is None else data)
    differing = convex and _differing(statement, config, model, partition, whole=not told.by_files)
    if differing:
        return Verified(False, statement["claim"], f"does not hold: {differing}")
    for party in partition.parties:
        party.verify()
    read, number = _read(config, model, partition, digits), len(partition.parties)
    by = f"{digits} digits" if digits else "plain NumPy"
    by = f"recomputed by {by} from {number} party file{'s' * (number != 1)}"
    if not convex:
        return _stationary(read, config, statement, digits, by)
    return _judged(run, read, statement, digits, by)


def _differing(
    statement: dict[str, Any], config: RunConfig, model: Model, partition: Partition, *, whole: bool
) -> str:
    """What the statement is not of; empty where all digests agree."""
    provenance = claims.provenance_of(partition)
    if not whole:
        del provenance["content"]
    checked = {
        "weights": ("the weights in model/ are", claims.model_digest(model)),
        "settings": ("the settings in run.toml are", claims.settings_digest(config.to_toml(), model.lam)),
        "data": (f"the data in {shown(partition.path)} are", claims.data_digest(provenance)),
    }
    for name, (what, digest) in checked.items():
        if (name in statement or whole) and statement.get(name) != digest:
            return f"{what} not those that the claim is of (digests differ)"
    return ""


def _read(
    config: RunConfig, model: Model, partition: Partition, digits: int
) -> tuple[Rows, list[Columns], np.ndarray, bool]:
    """Rows, columns and intercepts of a model, and whether these were fitted."""
    labels, place = partition.labels, shown(partition.path)
    assert labels is not None  # open_partition has asked for them
    if [p.name for p in model.parties] != [p.name for p in partition.parties]:
        raise InputError(f"{place}: other parties than the model's")
    if digits and sum(p.n_samples * p.n_features for p in partition.parties) > MOST_DIGITAL:
        said = f"has more than {MOST_DIGITAL:,} entries; leave --digits out: double precision has no limit"
        raise ConfigError(f"--digits: {place} {said}")
    loss = config.loss
    if loss == "auto":
        n_classes = len(labels.classes or ())
        loss = "squared" if labels.classes is None else "logistic" if n_classes == 2 else "multinomial"
    name, _, parameter = loss.partition(":")
    number = float(parameter or _PARAMETERS.get(name, 0.0))
    offset = np.zeros(labels.n_samples) if labels.offset is None else labels.offset
    rows = Rows(name, number, labels.y, _weights(config, labels), offset)
    intercept = np.atleast_1d(np.asarray(model.intercept, dtype=np.float64))
    return rows, _columns(config, model, partition), intercept, config.intercept


def _weights(config: RunConfig, labels: LabelData) -> np.ndarray:
    """Sample weights times class weights, zero for rows that were held out, of mean 1."""
    given = np.ones(labels.n_samples) if labels.sample_weight is None else labels.sample_weight
    if config.class_weight is not None and labels.classes is not None:
        own = labels.y.astype(np.intp)
        total = np.bincount(own, given, len(labels.classes))
        if isinstance(config.class_weight, str):  # balanced
            some = total > 0
            factors = np.where(some, total.sum() / (some.sum() * np.where(some, total, 1.0)), 1.0)
        else:
            factors = np.array([float(config.class_weight.get(name, 1.0)) for name in labels.classes])
        given = given * factors[own]
    if isinstance(config.validation, float):
        from fastadmm.solver.early_stopping import held_out_rows  # which rows: no mathematics

        stratify = labels.classes is not None
        given = np.where(held_out_rows(labels.y, config.validation, config.seed, stratify), 0.0, given)
    scaled = given / given.max()
    return scaled / scaled.mean()


def _columns(config: RunConfig, model: Model, partition: Partition) -> list[Columns]:
    names = [p.name for p in partition.parties]
    own, sets = own_lambdas(config, names), party_constraints(config, names)
    kind, _, width = config.regularizer.partition(":")
    norm = {"l1": 1.0, "group_lasso": 1.0, "elastic_net": 0.5 if config.l1_ratio is None else config.l1_ratio}
    first = norm.get(kind, 0.0)
    second = {"l2": 1.0, "elastic_net": 1.0 - first}.get(kind, 0.0)
    found = []
    for m, (part, party) in enumerate(zip(model.parties, partition.parties)):
        lam = own.values[m] if own is not None else model.lam if config.path else config.lambda_
        d = party.n_features
        more: dict[str, Any] = {"factor": 1.0 if own is None else own.factors[m]}
        if kind == "group_lasso":
            more["groups"] = (config.groups[m] if config.groups else None) or [list(range(d))]
        elif kind == "log_sum":
            more["bent"] = lam, float(width or 1.0)
        more |= _set(sets if isinstance(sets, str) else sets[m], d)
        weights = (part.scale * part.weights).reshape(d, -1)
        found.append(Columns(weights, party.iter_rows, lam * first, lam * second, **more))
    return found


def _set(text: str, d: int) -> dict[str, Any]:
    """Bounds, radius or equations of d weights."""
    kind, _, numbers = text.partition(":")
    match kind:
        case "nonnegative":
            return {"low": 0.0}
        case "box":
            return dict(zip(("low", "high"), map(float, numbers.split(",")), strict=True))
        case "ball":
            return {"radius": float(numbers)}
        case "simplex" | "sum":
            equation = np.ones((1, d)), np.array([float(numbers or 1.0)])
            return {"equations": equation, **({"low": 0.0} if kind == "simplex" else {})}
        case "affine":
            rows, values = zip(*(row.split("=") for row in numbers.split(";")), strict=True)
            matrix = np.array([row.split(",") for row in rows], dtype=float)
            return {"equations": (matrix, np.array(values, dtype=float))}
    return {}


def _relative(absolute: Any, objective: Any) -> float:
    """Upper bound of the relative gap; infinite where no positive bound is proved."""
    bound = objective - absolute
    if bound > 0:
        return float(absolute / bound)
    return float(absolute / -objective) if objective < 0 else 0.0 if absolute == 0 else math.inf


def _stationary(read: Any, config: RunConfig, result: dict[str, Any], digits: int, by: str) -> Verified:
    """Compare how far a model is from stationary with what is written."""
    short = 3.0**0.5 / 18.0 if read[0].loss == "sigmoid" else 1.0  # largest curvature of the loss
    # The other schemes measure with a step of 1: docs/losses.md.
    given = *read, short if result.get("scheme") == "proximal" else None, digits
    objective, reached, rounding, off = stationarity(*given)
    if any((m.far & (m.deviation > 0.0)).any() for m in read[1]):
        said = "some columns are a thousand of their deviations from zero, where training measures otherwise"
        raise ConfigError(f"{said}: nothing to compare; convert with --standardize, and train again")
    claim, asked, value = result["claim"], config.stationarity, float(objective)
    stated, limit = (float(result.get(key) or 0.0) for key in ("objective", "stationarity"))
    limit, wrong = min(asked, 1.01 * limit) * (1.0 + SLACK) + rounding, ""
    checked = f"objective {value:.9g}, relative stationarity {reached:.2e}"
    line = f"not stationary; what is written holds: {checked}; {by}"
    if claim == "stationary":
        line = f"holds: a stationary point, not proved to be a minimum: {checked} <= {asked:.2e} asked; {by}"
        if not reached <= limit:
            wrong = f"the relative stationarity is {reached:.3g}, and at most {limit:.3g} was claimed"
    if not abs(value - stated) <= SLACK * abs(stated) + off:
        wrong = f"the objective is {value:.12g}, and {stated:.12g} was written"
    line = f"does not hold: {wrong}" if wrong else line
    return Verified(not wrong, claim, line, value, stationarity=reached, digits=digits)


def _judged(run: Path, read: Any, statement: dict[str, Any], digits: int, by: str) -> Verified:
    """Compute the proof again, and compare with what is written."""
    rows, columns, intercept, fitted = read
    dual = claims.read_dual(run, len(rows.y) * len(intercept))
    if dual is None and rows.loss in ("hinge", "quantile"):
        said = "no such file, and a loss with kinks needs it; train again"
        raise StorageError(f"{shown(run / claims.DUAL)}: {said}")
    claim, within = statement["claim"], statement["claim"] == "certified_within"
    bounded = statement.get("within") if within else None
    written = {**statement, **bounded} if isinstance(bounded, dict) else statement
    vector = None if dual is None else dual.reshape(len(intercept), -1)
    with damaged(run / "result.json", "restore it, or train again"):
        asked, stated = float(statement.get("asked", 0.0)), float(statement.get("objective", -math.inf))
        gap, reach = float(written.get("gap", math.inf)), float(written.get("reach", 0.0))
        most = float(written.get("gap_absolute", math.inf))
    found = recompute(rows, columns, intercept, fitted, vector, reach if within else None, digits)
    rounding = found.rounding
    if claim == "contradiction":
        line = "the proof contradicted itself, and nothing is claimed; please report it"
        return Verified(False, claim, line)
    least, proved = 1000.0 * found.unit, found.within if within else found.gap
    absolute = max(proved, 0) + rounding
    numbers = {
        "objective": float(found.objective),
        "bound": float(found.objective - absolute),
        "gap": _relative(absolute, found.objective),
        "gap_absolute": float(absolute),
    }
    key, limit, words, slack = "gap", asked, "asked", 0.0
    if not gap <= asked:
        limit, words, slack = gap, "written", rounding
        if limit == math.inf:
            key, limit = "gap_absolute", most
    wrong, reached = "", numbers[key]
    if proved < -rounding:
        wrong = "the model is outside of the reach" if within else "the bound is above the objective"
    elif not found.objective <= stated + SLACK * abs(stated) + rounding:
        wrong = f"the objective is {numbers['objective']:.12g}, and {stated:.12g} was written"
    elif within and not reach >= least * (1.0 - 1e-6):
        wrong = f"the reach {reach:.6g} is less than {least:.6g}, which the data ask for"
    elif not reached <= limit * (1.0 + SLACK) + slack:
        wrong = f"the gap is {reached:.3g}, and at most {limit:.3g} was {words}"
    line = f"objective {numbers['objective']:.9g}, bound {numbers['bound']:.9g}, gap {reached:.2e} <= "
    line += f"{limit:.2e} {words}; {by}"
    if wrong:
        line = f"does not hold: {wrong}"
    elif claim not in ("certified", "certified_within"):
        line = f"not certified; what is written holds: {line}"
    else:
        line = f"holds: {f'among models of reach {reach:.4g}, ' if within else ''}{line}"
    return Verified(not wrong, claim, line, **numbers, digits=digits)
