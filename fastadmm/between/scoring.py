"""A party's side of what its part of a model is asked for: scores of rows, and what standard errors need."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fastadmm.between.approval import APPROVAL, Approval
from fastadmm.between.approval_file import TaskApproval, open_approval
from fastadmm.between.host import KEYS, STATEMENT
from fastadmm.between.private_terms import PRIVATE
from fastadmm.between.schema import Request, refused
from fastadmm.conversation.calls import SUMS
from fastadmm.engine.engine import Engine
from fastadmm.errors import FastadmmError, FormatError, InputError
from fastadmm.files.atomic import shown, write_frame, write_json
from fastadmm.files.reading import read_json
from fastadmm.inference.between import InferenceParty
from fastadmm.runs.checkpoint import read_tree, write_tree
from fastadmm.runs.evaluate import chosen_bins
from fastadmm.runs.predict import Contribution, summand_of_file, summand_of_table
from fastadmm.store.coefficients import units_of
from fastadmm.store.elements import require_group
from fastadmm.store.h5file import create_h5, read_h5
from fastadmm.store.model import open_party_model
from fastadmm.store.party_file import PartyData, open_party
from fastadmm.store.streamed import load_block

#: Directory of the alignments that a party was told, in the agent's.
ALIGNMENTS = "alignments"


@dataclass
class Home:
    """Whose agent this is, and what it works on."""

    name: str  # the party
    state: Path  # the agent's directory
    data: PartyData | None  # features of the training rows, once there are any
    ledger: Path | None  # the party's own

    def of_run(self, run: str) -> Path:
        """What is kept of a run."""
        return self.state / run


#: An answer's values, and what the party's owner is told.
Made = tuple[dict[str, Any], str]


def contribute(asked: Request, approval: TaskApproval, home: Home, place: str) -> Made:
    """The party's summand of the score of each row."""
    directory = home.of_run(asked.arguments["run"])
    agreed, part = approved_run(directory, home.name, place)
    if was_masked(agreed, directory) and not approval.unmasked:
        text = (
            "the run showed the coordinator sums over all parties only, but scores leave one party at a time"
        )
        raise _unless_agreed(f"{place}: {text}; if you agree", "unmasked", approval)
    check_ledger(agreed, approval, home.ledger, place)
    found = _summand(asked, approval, part, home, place)  # whether it may leave is decided below
    if found.name != home.name or found.model_id != asked.arguments["model_id"]:
        text = f"{place}: the model of run {directory.name} is another one, or of another party"
        raise refused("terms", text)
    if len(found.ids) != asked.arguments["n_samples"]:  # that is what counts as asked for
        text = f"{place}: {asked.arguments['n_samples']} rows, but its row digest is of {len(found.ids)}"
        raise refused("rows", text)
    # No finite epsilon may be proved for what exact scores say of the training rows.
    covered = approval.allow_infinite_epsilon or not was_private(agreed, directory)
    if not covered and (reason := _unproved(agreed, home, directory, found.ids)):
        text = f"{place}: {reason}; no finite epsilon is proved. If you agree nevertheless"
        raise _unless_agreed(text, "allow_infinite_epsilon", approval)
    # The same layout as a contribution file has, whatever the product left.
    values = np.ascontiguousarray(found.values)
    return {"scores" if values.ndim == 1 else "class_scores": values}, ""


def approved_run(directory: Path, name: str, place: str) -> tuple[Approval, Path]:
    """What was agreed for a run that has ended, and the party's part of its model."""
    part = directory / f"{name}.h5"
    if not (directory / APPROVAL).exists() or not part.exists():
        text = f"{place}: run {directory.name} has no model here; it has not been approved, or not ended"
        raise refused("call", text)
    return open_approval(directory / APPROVAL), part


def _summand(asked: Request, approval: TaskApproval, part: Path, home: Home, place: str) -> Contribution:
    path, wanted, n = Path(approval.file), asked.arguments["row_digest"], asked.arguments["n_samples"]
    if h5py.is_hdf5(path):
        party = open_party(path)
        if (party.n_samples, party.row_digest) != (n, wanted):
            text = (
                f"{place}: asks for {n} rows, but {shown(path)} has {party.n_samples}, or they are others or "
                "in another order (row digests)"
            )
            raise refused("rows", text)
        return summand_of_file(part, party, allow_infinite_epsilon=True)
    from fastadmm.data_tools.per_table import TableRows

    alignment = _alignment(home.state / ALIGNMENTS, wanted, place)
    how = {key: getattr(approval, key) for key in ("separator", "id_pattern", "duplicates")}
    return summand_of_table(
        part, None, path, TableRows(approval.id, alignment, **how), allow_infinite_epsilon=True
    )


def _alignment(folder: Path, digest: str, place: str) -> Path:
    """Of the alignments that this party was told, that of these rows."""
    for path in sorted(folder.glob("*.json")):
        try:
            if read_json(path).get("row_digest") == digest:
                return path
        except (FastadmmError, AttributeError):
            continue  # not ours
    raise refused("rows", f"{place}: asks for rows of no alignment in {shown(folder)}; align them first")


# --- what may leave ---------------------------------------------------------------------------------------


def was_private(agreed: Approval, directory: Path) -> bool:
    """Whether a run had noise, as its approval or what it left says: an approval can be replaced."""
    return agreed.family in PRIVATE or (directory / STATEMENT).exists()


def was_masked(agreed: Approval, directory: Path) -> bool:
    """Whether a run was with sums only, as its approval or what it left says."""
    return agreed.family in SUMS or (directory / KEYS).exists()


def _unless_agreed(text: str, key: str, approval: TaskApproval) -> InputError:
    """What is refused unless an approval says otherwise."""
    return refused("privacy", f"{text}, set {key} = true in {shown(approval.path)}")


def check_ledger(
    agreed: Approval, approval: TaskApproval, ledger: Path | None, place: str, what: str = "scores"
) -> None:
    """Refuse exact answers where there is a ledger, which would not know of them, unless the owner agreed."""
    if ledger is not None and agreed.family not in PRIVATE and not approval.allow_infinite_epsilon:
        text = (
            f"{place}: {what} of a model without privacy are exact, and this agent has a ledger, which would "
            "say nothing of them; if you agree"
        )
        raise _unless_agreed(text, "allow_infinite_epsilon", approval)


def _unproved(agreed: Approval, home: Home, directory: Path, ids: np.ndarray) -> str:
    """Why exact scores break a private run's promise; empty where they do not."""
    path = directory / STATEMENT
    try:
        statement = read_json(path)["statement"]
        mode, epsilon = statement["mode"], statement["epsilon"]
    except (FastadmmError, KeyError, TypeError):
        raise FormatError(f"{shown(path)}: missing, or not our statement") from None
    if mode != "fusion":
        return "the noise of mode 'message' covers messages, not weights, and scores tell the weights (T7)"
    # The weights of a fusion are a release themselves: scores of other rows only process it.
    if isinstance(epsilon, str) or not math.isfinite(epsilon):
        return "the run's own statement says that epsilon is infinite"
    data = home.data
    if data is None or data.content_digest != agreed.data:
        return "this agent does not have the rows of training, so they may be among those asked for"
    # As texts: the same id is a number in one file and a text in another.
    if set(map(str, data.ids().tolist())) & set(map(str, ids.tolist())):
        return "rows of training are asked for, and their exact scores are functions of their features"
    return ""


#: What the party learns, in its directory of the run.
TABLE, RESULT = "inference.csv", "inference.json"

#: What every request says of the run.
_ABOUT = ("run", "model_id", "n_samples", "row_digest")

_BASIS, _TYPE = "inference-basis.h5", "fastadmm-inference-basis"


def answer_inference(asked: Request, approval: TaskApproval, home: Home, place: str) -> Made:
    """Answer one call of the family "inference"."""
    directory = home.of_run(asked.arguments["run"])
    agreed, part = approved_run(directory, home.name, place)
    private = was_private(agreed, directory)
    if private or was_masked(agreed, directory):
        how = "private" if private else "one of sums only"
        text = f"{place}: the run was {how}, but these answers are exact and come from one party at a time"
        raise refused("privacy", text)
    check_ledger(agreed, approval, home.ledger, place, "standard errors")
    model, model_id = open_party_model(part)
    data = open_party(Path(approval.file))
    if (model_id, data.content_digest) != (asked.arguments["model_id"], agreed.data):
        text = (
            f"{place}: about another model than {shown(part)}, or {shown(data.path)} is not what it was "
            "trained on"
        )
        raise refused("terms", text)
    if model.weights.ndim > 1:
        raise refused("terms", f"{place}: {shown(part)} is of several classes")
    if (data.n_samples, data.row_digest) != tuple(asked.arguments[k] for k in ("n_samples", "row_digest")):
        raise refused("rows", f"{place}: about other rows than those of {shown(data.path)}")
    units, own = units_of(model), {k: v for k, v in asked.arguments.items() if k not in _ABOUT}
    known = _kept(directory / _BASIS, data, own["ridge"], place)
    with Engine(1) as engine, engine.limited():
        block, weights = load_block(data), np.asarray(model.weights)
        party = InferenceParty(home.name, block, weights, model.feature_names, units.factor, engine, known)
        try:
            answer = party.answer(asked.call, own)
        except FormatError as error:
            raise refused("call", f"{place}: {error}", FormatError) from None
    if asked.call == "span" and known is None:
        with create_h5(directory / _BASIS, _TYPE) as file:
            values = {"basis": party.basis, "ridge": own["ridge"]}
            write_tree(file.create_group("kept"), values)
    if party.found is None:
        return answer, ""
    notes = [*([units.note] if units.note else []), *chosen_bins([model])]
    document = party.found.to_dict()
    write_json(directory / RESULT, {**document, "notes": [*document["notes"], *notes]})
    write_frame(directory / TABLE, party.found.to_frame(), force=True)
    return answer, f"{shown(directory / TABLE)}: standard errors of run {asked.arguments['run']}"


def _kept(path: Path, data: PartyData, ridge: float, place: str) -> np.ndarray | None:
    """The columns' basis, as it was when the first of them left; None where none has.

    Another penalty would give other vectors: a run has one.
    """
    if not path.exists():
        return None
    with read_h5(path, _TYPE) as file:
        kept = read_tree(require_group(file, "kept"))
    if kept.get("ridge") != ridge:
        text = f"{place}: about another penalty than {shown(path)}, after which columns have left"
        raise refused("terms", text)
    basis = kept.get("basis")
    if not isinstance(basis, np.ndarray) or basis.shape != (data.n_features,) * 2:
        raise FormatError(f"{shown(path)}: damaged; delete it, and let the coordinator begin anew")
    return basis
