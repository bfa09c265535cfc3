"""A party's side of inference: whether its columns, up to a rotation, may leave, and what it learns."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.between.approval import DAYS
from fastadmm.between.approval_words import screen
from fastadmm.between.scoring import approved_run, check_ledger, was_masked, was_private
from fastadmm.between.task import Task
from fastadmm.between.task_approval import TaskApproval
from fastadmm.between.vocabulary import quoted, refused
from fastadmm.engine.engine import Engine
from fastadmm.errors import FormatError, InputError
from fastadmm.files.atomic import shown, write_frame, write_json
from fastadmm.inference.between import batches
from fastadmm.inference.party import InferenceParty
from fastadmm.inference.table import Inference
from fastadmm.runs.checkpoint import read_tree, write_tree
from fastadmm.runs.infer import chosen_bins
from fastadmm.store.coefficients import units_of
from fastadmm.store.elements import require_group
from fastadmm.store.h5file import create_h5, read_h5
from fastadmm.store.model import open_party_model
from fastadmm.store.party_file import PartyData, open_party
from fastadmm.store.streamed import load_block

#: What the party learns, in its directory of the run.
TABLE, RESULT = "inference.csv", "inference.json"

#: What every request says of the run.
_ABOUT = ("run", "model_id", "n_samples", "row_digest")

_BASIS, _TYPE = "inference-basis.h5", "fastadmm-inference-basis"


def answer_inference(
    asked: Task, approval: TaskApproval, name: str, directory: Path, ledger: Path | None, place: str
) -> tuple[dict[str, Any], Path | None]:
    """Answer one call of the family "inference"."""
    agreed, part = approved_run(directory, name, place)
    private = was_private(agreed, directory)
    if private or was_masked(agreed, directory):
        how = "private" if private else "one of sums only"
        text = f"{place}: the run was {how}, but these answers are exact and come from one party at a time"
        raise refused("privacy", InputError(text))
    check_ledger(agreed, approval, ledger, place, "standard errors")
    model, model_id = open_party_model(part)
    data = open_party(Path(approval.file))
    if (model_id, data.content_digest) != (asked.arguments["model_id"], agreed.data):
        text = (
            f"{place}: about another model than {shown(part)}, or {shown(data.path)} is not what it was "
            "trained on"
        )
        raise refused("terms", InputError(text))
    if model.weights.ndim > 1:
        raise refused("terms", InputError(f"{place}: {shown(part)} is of several classes"))
    if (data.n_samples, data.row_digest) != tuple(asked.arguments[k] for k in ("n_samples", "row_digest")):
        raise refused("rows", InputError(f"{place}: about other rows than those of {shown(data.path)}"))
    units, own = units_of(model), {k: v for k, v in asked.arguments.items() if k not in _ABOUT}
    known = _kept(directory / _BASIS, data, own["ridge"], place)
    with Engine(1) as engine, engine.limited():
        block, weights = load_block(data), np.asarray(model.weights)
        party = InferenceParty(name, block, weights, model.feature_names, units.factor, engine, known)
        try:
            answer = party.answer(asked.call, own)
        except FormatError as error:
            raise refused("call", FormatError(f"{place}: {error}")) from None
    if asked.call == "span" and known is None:
        with create_h5(directory / _BASIS, _TYPE) as file:
            values = {"basis": party.basis, "ridge": own["ridge"]}
            write_tree(file.create_group("kept"), values)
    if party.found is None:
        return answer, None
    notes = [*([units.note] if units.note else []), *chosen_bins([model])]
    return answer, _write(party.found, notes, directory)


def _kept(path: Path, data: PartyData, ridge: float, place: str) -> np.ndarray | None:
    """The columns' basis, as it was when the first of them left; None where none has.

    Another penalty would give other vectors, which no approval counts by files: a run has one.
    """
    if not path.exists():
        return None
    with read_h5(path, _TYPE) as file:
        kept = read_tree(require_group(file, "kept"))
    if kept.get("ridge") != ridge:
        text = f"{place}: about another penalty than {shown(path)}, after which columns have left"
        raise refused("terms", InputError(text))
    basis = kept.get("basis")
    if not isinstance(basis, np.ndarray) or basis.shape != (data.n_features,) * 2:
        raise FormatError(f"{shown(path)}: damaged; delete it, and let the coordinator begin anew")
    return basis


def _write(found: Inference, notes: list[str], directory: Path) -> Path:
    document = found.to_dict()
    write_json(directory / RESULT, {**document, "notes": [*document["notes"], *notes]})
    write_frame(directory / TABLE, found.to_frame(), force=True)
    return directory / TABLE


# --- approvals --------------------------------------------------------------------------------------------


def draft_inference(
    path: Path, party: str, caller: str, data: PartyData, spent: Mapping[str, int]
) -> TaskApproval:
    """The approval of one inference more with the model of a run."""
    last_day = datetime.date.today() + datetime.timedelta(days=DAYS)
    requests = 2 * (len(batches(data.n_features, data.n_samples)) + 1)  # refused ones count
    file = str(data.path.absolute())
    limits = requests + spent["requests"], data.n_features + spent["rows"]
    return TaskApproval(path, party, [caller], file, *limits, last_day)


def inference_words(approval: TaskApproval, caller: str, run: str, n_features: int) -> list[str]:
    """What is asked, for the owner of the data."""
    what = (
        "Your ONE column leaves, up to its sign and unit, and how sure its weight is"
        if n_features == 1
        else "No column, weight or standard error leaves by itself, but columns of few different values, "
        "such as categories, can be recognised"
    )
    paragraphs = [
        f"{quoted(caller)} asks {approval.party} for what standard errors need, with the model of run "
        f"{quoted(run)[1:-1]}.",
        f"{n_features:,} vectors of the training rows leave: your columns up to a rotation, without noise "
        "(epsilon is infinite).",
        "They tell how alike any two of your rows are, and each row's score by your weights; whoever knows "
        "your columns of as many rows as you have columns works out all others.",
        f"{what}; you learn your own standard errors.",
        f"Limits: {approval.requests:,} questions, refused ones counted, and {approval.rows:,} vectors, "
        f"until {approval.last_day}.",
    ]
    return screen(paragraphs)
