"""What a run leaves: its model, and what ``result.json`` says of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastadmm.privacy.published import certificate_of_model
from fastadmm.runs.private import statement_of
from fastadmm.solver.history import RoundRecord
from fastadmm.solver.loop import SolveResult
from fastadmm.solver.run import Run
from fastadmm.store.label_file import LabelData
from fastadmm.store.model import Model, PartyModel, model_id_of
from fastadmm.store.partition import Partition


def certificate_of(result: SolveResult) -> dict[str, Any]:
    """What proves a model, as its manifest keeps it."""
    last = result.record
    return {
        "status": str(result.status),
        "objective": last.objective,
        "gap": last.to_json()["gap"],
        "gap_absolute": last.to_json()["gap_absolute"],
        **_within(last),
        "stationarity": last.stationarity,
        "rounds": last.round,
    }


def _within(record: RoundRecord) -> dict[str, float]:
    return {} if record.gap_within is None else {"gap_within": record.gap_within}


def model_of(partition: Partition, solver: Run, result: SolveResult, run_id: str) -> Model:
    """A result as a model to store."""
    labels, statement = partition.labels, statement_of(solver)
    weights, scales = solver.held_weights(result.weights)
    own = solver.problem.own_lambda
    if own is not None:
        weights = own.original(weights)
    return Model(
        loss=solver.problem.loss.text,
        # Least squares on classes predicts a real number, no probability.
        task=solver.problem.loss.task,
        lam=solver.problem.recorded_lam,
        intercept=result.intercept,
        classes=labels.classes if labels is not None else None,
        parties=[
            PartyModel(
                p.name,
                w,
                list(p.feature_names),
                p.transform,
                solver.clips_rows,
                scale,
                p.encoder,
                statement.weights_line(p.name),
            )
            for p, w, scale in zip(partition.parties, weights, scales)
        ],
        certificate=certificate_of_model(certificate_of(result), statement),
        penalty=solver.problem.describe_penalty(),
        privacy=statement,
        model_id=model_id_of(run_id, result.record.round),
    )


def result_document(
    solver: Run, result: SolveResult, statement: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What ``result.json`` says of the solution."""
    last, problem = result.record.to_json(), solver.problem
    done, n = result.history[-1], solver.engine.all_rows(problem.n_samples)
    traffic = solver.traffic
    sent = [None] * problem.n_parties if traffic is None else traffic.bytes_by_party(n)
    return {
        "status": str(result.status),
        "message": result.message,
        "rounds": done.round,
        "seconds": done.seconds,
        **({} if result.kept is None else {"kept_round": last["round"]}),
        **({"validation": last["validation"]} if result.kept is not None and "validation" in last else {}),
        "objective": last["objective"],
        "gap": last["gap"],
        "gap_absolute": last["gap_absolute"],
        **_within(result.record),
        **({} if statement is None else {"certificate": statement}),
        "stationarity": last.get("stationarity"),
        "convex": problem.convex,
        "scheme": solver.name,
        "program": solver.program(),
        "lambda": problem.recorded_lam,
        "loss": problem.loss.text,
        **problem.describe_penalty(),
        "n_samples": n,
        **({} if traffic is None else {"exchanges": traffic.exchanges}),
        "parties": [
            {
                "name": name,
                "n_features": int(block.shape[1]),
                "weight_norm": norm,
                **({} if problem.own_lambda is None else {"lambda": problem.own_lambda.values[m]}),
                "file": f"{name}.h5",
                **({} if sent[m] is None else {"bytes": sent[m]}),
                "x_update": update,
            }
            for m, ((name, update, _), block, norm) in enumerate(
                zip(solver.party_notes(), problem.blocks, last["weight_norms"])
            )
        ],
        **_intercepts(result.intercept),
        "test": last["test"],
    }


def class_rows(labels: LabelData | None) -> dict[str, Any]:
    """Training rows of each class, where labels are classes."""
    if labels is None or labels.classes is None:
        return {}
    counts = np.bincount(labels.y.astype(np.intp), minlength=len(labels.classes))
    return {"class_rows": dict(zip(labels.classes, counts.tolist()))}


def _intercepts(intercept: Any) -> dict[str, Any]:
    if np.ndim(intercept):
        return {"intercept": None, "intercepts": [float(b) if np.isfinite(b) else None for b in intercept]}
    return {"intercept": intercept if np.isfinite(intercept) else None}
