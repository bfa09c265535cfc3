"""The party's side: a request comes in as a file, the answer goes out as a file, state stays at home."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.blocks.block import check_scale
from fastadmm.engine.engine import Engine
from fastadmm.errors import FastadmmError, FormatError, InputError, StorageError
from fastadmm.files.atomic import atomic_file, remove_leftovers, shown, storage_errors
from fastadmm.files.reading import read_bytes
from fastadmm.parties.direction import DirectionParty
from fastadmm.parties.proximal import Party
from fastadmm.privacy.statement import no_privacy
from fastadmm.rounds.approval import (
    APPROVAL,
    Answered,
    Approval,
    approve,
    check_request,
    check_rows,
    draft_approval,
    first_terms,
    in_plain_words,
    open_approval,
    sees_columns,
    write_approval,
)
from fastadmm.rounds.exchange import Message, Request, open_message, open_request, write_message
from fastadmm.rounds.past import prune
from fastadmm.runs.checkpoint import read_tree, write_tree
from fastadmm.runs.lock import run_lock
from fastadmm.runs.result import mean_contribution
from fastadmm.store.elements import read_array, read_attribute, require_group, write_array
from fastadmm.store.h5file import create_h5, read_h5
from fastadmm.store.model import PartyModel, write_party_model
from fastadmm.store.party_file import PartyData, open_party
from fastadmm.store.streamed import load_block

__all__ = ["StepDone", "party_approve", "party_step"]

_STATE = "fastadmm-party-state"
_ANSWER, _ANSWERS = "answer.h5", "answers"


@dataclass(frozen=True)
class StepDone:
    """What a step did.

    Attributes
    ----------
    number : int
        Of the exchange.
    repeated : bool
        Whether the request had been answered before, and the same message was given again.
    model : Path or None
        The party's part of the model, where the run is over.
    """

    number: int
    repeated: bool
    model: Path | None


def party_step(
    data: Path,
    state: Path,
    request: Path,
    out: Path,
    *,
    approval: Path | None = None,
    force: bool = False,
    threads: int | None = None,
) -> StepDone:
    """Answer one request.

    Parameters
    ----------
    data : Path
        The party's features.
    state : Path
        Directory that keeps what the party must remember; made by the first step.
    request : Path
        File from the coordinator.
    out : Path
        Message file to write.
    approval : Path or None
        The owner's limits; a copy in `state` holds from then on. None: the copy, which the first step
        makes of what is asked, where answers do not show single columns.
    force : bool
        Whether another file there may be replaced.
    threads : int or None
        The message does not depend on it.

    Returns
    -------
    StepDone

    Raises
    ------
    FastadmmError
        A damaged request, one out of order, of another party or run, beyond the approval, or other data
        than before.
    """
    party = open_party(data)
    asked = open_request(request, party.n_samples)
    if asked.party != party.name:
        raise InputError(f"{shown(request)}: for {asked.party}, but {shown(data)} is of {party.name}")
    with storage_errors(out):
        if out.is_dir() or not out.absolute().parent.is_dir():
            raise StorageError(f"{shown(out)}: cannot write: not a file name in an existing directory")
    with storage_errors(state):
        is_new = not state.exists() and asked.number == 0
        if is_new:
            state.mkdir(exist_ok=True)
        elif not state.is_dir():
            raise StorageError(f"{shown(state)}: no state of a run; begin with the run's first request")
    try:
        with run_lock(state):
            for directory in (state, state / _ANSWERS):
                remove_leftovers(directory)
            return _step(asked, party, state, request, out, approval, force, threads)
    except FastadmmError:
        if is_new:
            with suppress(OSError):
                state.rmdir()  # only where it is empty
        raise


def _step(
    asked: Request,
    party: PartyData,
    state: Path,
    request: Path,
    out: Path,
    approval: Path | None,
    force: bool,
    threads: int | None,
) -> StepDone:
    known = _State.read(state / "state.h5") if (state / "state.h5").exists() else None
    if known is not None:
        old = _old_answer(known, asked, party, state, request)
        if old is not None:
            _give(old, out, force)
            return StepDone(asked.number, True, _model_path(state, party.name))
    elif asked.number != 0:
        raise InputError(f"{shown(state)}: no state; answer the run's first request before {shown(request)}")
    agreed, is_new = _approval(known, asked, party, state, shown(request), approval)
    before = Answered() if known is None else known.answered or Answered(exchanges=known.number + 1)
    after = check_request(agreed, asked, known.settings if known else {}, before, party, shown(request))
    with Engine(threads) as engine, engine.limited():
        server = _Server(party, state, engine, known, request)
        answer = server.run(asked)
        message = Message(asked.run, asked.party, asked.number, asked.digest, answer)
        raw = _encoded(message, state)
        _refuse_other(raw, out, force)
        if is_new:
            write_approval(replace(agreed, path=state / APPROVAL), force=True)
        if known is not None:
            _keep(known, state)
        _State(
            asked.run,
            asked.number,
            asked.digest,
            party.content_digest,
            server.settings,
            server.export(),
            raw,
            after,
        ).write(state / "state.h5")
    # After the state: whoever has the message can rely on the party to remember it.
    _give(raw, out, force)
    return StepDone(asked.number, False, _model_path(state, party.name))


def _model_path(state: Path, name: str) -> Path | None:
    path = state / f"{name}.h5"
    return path if path.exists() else None


def _approval(
    known: _State | None,
    asked: Request,
    party: PartyData,
    state: Path,
    place: str,
    given: Path | None,
) -> tuple[Approval, bool]:
    """What the owner agreed to, and whether it is to be written to the state."""
    if given is not None:
        return open_approval(given), True
    path = state / APPROVAL
    if path.exists():
        return open_approval(path), False
    if known is not None:
        settings = known.settings
    else:
        settings = first_terms(asked, party, place)
    # A run that began before there were approvals goes on.
    began = known is not None and known.answered is None
    if sees_columns(settings) and not began:
        what = f"regularizer {settings['regularizer']!r} with constraint {settings['constraint']!r}"
        raise InputError(
            f"{place}: {what} lets a coordinator that deviates read single columns; it needs the owner's "
            f"approval: 'fastadmm party approve {place} --data {shown(party.path)} -o approval.toml', then "
            "'party step --approval approval.toml'"
        )
    return draft_approval(settings, asked.run, party, path, None), True


def party_approve(request: Path, data: Path, out: Path, force: bool = False) -> list[str]:
    """Write the approval of a run's first request, for the owner of the data to edit.

    Parameters
    ----------
    request : Path
        The run's first.
    data : Path
        The party's features.
    out : Path
        Approval file to write.
    force : bool
        Whether an existing file may be replaced.

    Returns
    -------
    list of str
        What is asked, in plain words.

    Raises
    ------
    FastadmmError
        Not a first request, of another party, about other rows, or damaged.
    """
    party = open_party(data)
    approval = approve(open_request(request, party.n_samples), party, shown(request), out)
    write_approval(approval, force=force)
    return in_plain_words(approval, party)


def _old_answer(known: _State, asked: Request, party: PartyData, state: Path, request: Path) -> bytes | None:
    """The message that was given to this very request, byte for byte; None where it is the next one.

    What is neither is refused.
    """
    place = shown(request)
    if asked.run != known.run:
        raise InputError(f"{place}: of another run than {shown(state)}; give each run a --state of its own")
    if party.content_digest != known.content:
        raise InputError(
            f"{shown(party.path)}: not the data that {shown(state)} began with (digests differ); "
            "begin a new run"
        )
    if asked.number == known.number:
        if asked.digest != known.request:
            raise InputError(f"{place}: another request {asked.number} than the one answered before")
        return known.message
    if asked.number < known.number:
        kept = _kept_path(state, asked.number)
        if not kept.exists():
            raise InputError(
                f"{place}: request {asked.number}, but request {known.number} was answered already, and the "
                "older message is not kept"
            )
        if open_message(kept, party.n_samples, lambda _: None).request != asked.digest:
            raise InputError(f"{place}: another request {asked.number} than the one answered before")
        return read_bytes(kept)
    if asked.previous != known.number:
        raise InputError(
            f"{place}: request {asked.number} follows request {asked.previous}, but the last one answered "
            f"is {known.number}; answer the ones between first (the coordinator keeps them in RUN/sent)"
        )
    if asked.answered and asked.answered != _digest(known.message):
        raise InputError(
            f"{place}: the coordinator took another answer to request {known.number} than the one that "
            f"{shown(state)} gave: restore the newer state"
        )
    return None


def _kept_path(state: Path, number: int) -> Path:
    return state / _ANSWERS / f"{number:06d}.h5"


def _keep(known: _State, state: Path) -> None:
    """Put the last message to the older ones, so that it can be given again."""
    path = _kept_path(state, known.number)
    with storage_errors(path):
        path.parent.mkdir(exist_ok=True)
        with atomic_file(path) as temporary:
            temporary.write_bytes(known.message)
    prune(sorted(path.parent.glob("[0-9]*.h5")))


def _digest(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def _encoded(message: Message, state: Path) -> bytes:
    path = state / _ANSWER
    try:
        write_message(path, message)
        with storage_errors(path, "read"):
            return path.read_bytes()
    finally:
        path.unlink(missing_ok=True)


def _refuse_other(raw: bytes, out: Path, force: bool) -> bool:
    """Whether the file is there already; refused where it is another one."""
    with storage_errors(out):
        if out.exists() and not force:
            if read_bytes(out) == raw:
                return True
            raise StorageError(
                f"{shown(out)}: exists already and is another file; pass --force to replace it"
            )
    return False


def _give(raw: bytes, out: Path, force: bool) -> None:
    if not _refuse_other(raw, out, force):
        with atomic_file(out) as temporary:
            temporary.write_bytes(raw)


@dataclass(frozen=True)
class _State:
    """What a party remembers between steps; ``answered`` is None in states of older releases."""

    run: str
    number: int
    request: str
    content: str
    settings: dict[str, Any]
    tree: dict[str, Any]
    message: bytes
    answered: Answered | None

    def write(self, path: Path) -> None:
        with create_h5(path, _STATE) as file:
            file.attrs["run"], file.attrs["number"] = self.run, self.number
            file.attrs["request"], file.attrs["content-digest"] = self.request, self.content
            write_tree(file.create_group("settings"), self.settings)
            write_tree(file.create_group("answered"), asdict(self.answered or Answered()))
            write_tree(file.create_group("party"), self.tree)
            write_array(file, "message", np.frombuffer(self.message, dtype=np.uint8))

    @classmethod
    def read(cls, path: Path) -> _State:
        with read_h5(path, _STATE) as file:
            return cls(
                read_attribute(file, "run", str),
                read_attribute(file, "number", int),
                read_attribute(file, "request", str),
                read_attribute(file, "content-digest", str),
                read_tree(require_group(file, "settings")),
                read_tree(require_group(file, "party")),
                read_array(file, "message", ndim=1, kind="u").tobytes(),
                _answered(path, require_group(file, "answered")) if "answered" in file else None,
            )


def _answered(path: Path, group: Any) -> Answered:
    try:
        return Answered(**read_tree(group))
    except TypeError:
        raise FormatError(f"{shown(path)}: key 'answered': not what a step left; restore a backup") from None


class _Server:
    """A party that answers requests: the usual object, restored, asked and saved."""

    def __init__(
        self, data: PartyData, state: Path, engine: Engine, known: _State | None, request: Path
    ) -> None:
        self.data, self.state, self.engine, self.place = data, state, engine, shown(request)
        self.settings: dict[str, Any] = {}
        self.party: Any = None
        self.metric: np.ndarray | None = None
        if known is not None:
            self.settings = known.settings
            self._make_party()
            self._restore(known.tree)

    def run(self, asked: Request) -> dict[str, Any]:
        """All calls of a request; the answer of the last."""
        answer: dict[str, Any] | None = None
        for name, arguments in asked.calls:
            answer = getattr(self, f"_{name}")(**arguments)
        if answer is None:
            raise FormatError(f"{self.place}: key 'calls': the last call has no answer")
        return answer

    # --- calls of both families --------------------------------------------------------------------------

    def _start(self, **settings: Any) -> dict[str, Any]:
        data = self.data
        if settings["family"] not in ("subspace", "admm"):
            raise FormatError(f"{self.place}: argument 'family': {settings['family']!r} is unknown")
        check_rows(settings, data, self.place)
        self.settings = settings
        self._make_party()
        if settings["family"] == "subspace":
            check_scale(self.party.block, data.name, self.engine)
            kind = self.party.kind
        else:
            self.party.prepare()
            kind = self.party.update.name
        return {"n_features": data.n_features, "kind": kind, "reason": self.party.reason}

    def _make_party(self) -> None:
        from fastadmm.problem.constraints import get_constraint
        from fastadmm.problem.regularizers import get_regularizer

        settings, data = self.settings, self.data
        block, scale = load_block(data), float(settings["regularization"])
        if settings["family"] == "subspace":
            self.party = DirectionParty(data.name, block, scale, self.engine)
            return
        share = settings["l1_ratio"]
        try:
            penalty = get_regularizer(settings["regularizer"], {"l1_ratio": share} if share >= 0 else None)
            self.party = Party(
                data.name,
                block,
                scale,
                self.engine,
                settings["x_update"],
                penalty.of_party(settings["position"], data.n_features, data.name),
                get_constraint(settings["constraint"]),
            )
        except FastadmmError as error:
            raise FormatError(f"{self.place}: {error}") from None

    def _finish(self, model_id: str, coefficients: np.ndarray | None = None) -> dict[str, Any]:
        data = self.data
        if (coefficients is None) == (self.settings["family"] == "subspace"):
            raise FormatError(f"{self.place}: call 'finish': 'coefficients' go with family 'subspace' alone")
        weights = self.party.weights if coefficients is None else self.party.weights(self._own(coefficients))
        names = list(data.feature_names)
        # What holds for its weights the party says itself: no request has a word in it.
        said = _privacy_line(data)
        model = PartyModel(data.name, weights, names, data.transform, encoder=data.encoder, privacy=said)
        write_party_model(self.state / f"{data.name}.h5", model, model_id=model_id)
        return {"mean": float(mean_contribution(self.party.block, weights, self.engine))}

    def _set_metric(self, curvature: np.ndarray) -> None:
        self.metric = curvature  # factorised where it is needed, not kept in files

    # --- subspace ----------------------------------------------------------------------------------------

    def _own(self, coefficients: np.ndarray) -> np.ndarray:
        if len(coefficients) != len(self.party.directions):
            raise FormatError(
                f"{self.place}: {len(coefficients)} coefficients for {len(self.party.directions)} directions "
                "that were sent; the coordinator's state is another run's"
            )
        return coefficients

    def _respond(self, gradient: np.ndarray, coefficients: np.ndarray, newton: bool) -> dict[str, Any]:
        self._own(coefficients)
        if newton and self.metric is not None:
            self.party.set_metric(self.metric)
        return self.party.respond(gradient, coefficients, newton)

    def _respond_pair(self, gradient: np.ndarray, coefficients: np.ndarray) -> dict[str, Any]:
        self._own(coefficients)
        if self.metric is not None:
            self.party.set_metric(self.metric)
        return self.party.respond_pair(gradient, coefficients)

    def _restate(self, gradient: np.ndarray, coefficients: np.ndarray) -> dict[str, Any]:
        return self.party.restate(gradient, self._own(coefficients))

    def _merge_oldest(self, coefficients: np.ndarray) -> None:
        if len(coefficients) != 2 or not coefficients.any() or len(self.party.directions) < 2:
            raise FormatError(f"{self.place}: call 'merge_oldest': not two directions")
        self.party.merge_oldest(coefficients)

    # --- ADMM --------------------------------------------------------------------------------------------

    def _step(self, w: np.ndarray, scaled_penalty: float) -> dict[str, Any]:
        if self.metric is None:
            self.party.prepare()
        else:
            self.party.set_metric(self.metric)
        message = self.party.step(w, float(scaled_penalty))
        norm = float(np.linalg.norm(self.party.weights))
        return {"message": message, "penalty": float(self.party.penalty_value()), "norm": norm}

    def _certify(self, gradient: np.ndarray, pull: np.ndarray) -> dict[str, Any]:
        certificate = self.party.certify(gradient, pull)
        return {"gap": float(certificate.gap), "stationarity": float(certificate.stationarity)}

    def _stationarity(self, pull: np.ndarray) -> dict[str, Any]:
        return {"value": float(self.party.stationarity(pull))}

    def _dual_scale(self, u: np.ndarray) -> dict[str, Any]:
        return {"value": float(self.party.dual_scale(u))}

    def _dual_value(self, scale: float) -> dict[str, Any]:
        return {"value": float(self.party.dual_value(float(scale)))}

    # --- memory ------------------------------------------------------------------------------------------

    def export(self) -> dict[str, Any]:
        """What the next step needs."""
        if self.settings["family"] == "subspace":
            tree = {"directions": self.party.directions}
        else:
            tree = {"weights": self.party.weights, "dual": self.party.dual}
        return tree if self.metric is None else {**tree, "metric": self.metric}

    def _restore(self, tree: dict[str, Any]) -> None:
        metric = tree.get("metric")
        if metric is not None:
            _shaped(metric, (self.data.n_samples,), "metric", self.state)
        self.metric = metric
        if self.settings["family"] == "subspace":
            _shaped(tree.get("directions"), (-1, self.data.n_features), "directions", self.state)
            self.party.directions = tree["directions"]
        else:
            _shaped(tree.get("weights"), self.party.weights.shape, "weights", self.state)
            _shaped(tree.get("dual"), self.party.dual.shape, "dual", self.state)
            self.party.weights, self.party.dual = tree["weights"], tree["dual"]


def _privacy_line(data: PartyData) -> str:
    return f"{no_privacy([data.name]).weights_line()}; trained by files for a coordinator taken to be honest"


def _shaped(array: Any, shape: tuple[int, ...], key: str, state: Path) -> None:
    """Refuse a remembered array that is none, not of this shape (-1: any length) or not finite."""
    fits = isinstance(array, np.ndarray) and array.dtype == np.float64 and array.ndim == len(shape)
    if not fits or any(n not in (-1, m) for n, m in zip(shape, array.shape)) or not np.isfinite(array).all():
        raise FormatError(f"{shown(state)}: key 'party/{key}': not what a step left; begin the run again")
