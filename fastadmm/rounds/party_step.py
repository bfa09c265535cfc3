"""The party's side: a request comes in as a file, the answer goes out as a file, state stays at home."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.blocks import check_scale
from fastadmm.direction_party import DirectionParty
from fastadmm.engine import Engine
from fastadmm.errors import FastadmmError, FormatError, InputError, StorageError
from fastadmm.party import Party
from fastadmm.privacy.statement import no_privacy
from fastadmm.rounds.exchange import Message, Request, open_request, write_message
from fastadmm.runs.checkpoint import read_tree, write_tree
from fastadmm.runs.lock import run_lock
from fastadmm.runs.train import mean_contribution
from fastadmm.store.atomic import atomic_file, shown, storage_errors
from fastadmm.store.elements import read_array, read_attribute, require_group, write_array
from fastadmm.store.h5file import create_h5, read_h5
from fastadmm.store.model import PartyModel, write_party_model
from fastadmm.store.party_file import PartyData, open_party
from fastadmm.streamed import load_block

__all__ = ["StepDone", "party_step"]

_STATE = "fastadmm-party-state"
_ANSWER = "answer.h5"


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
        A damaged request, one out of order, of another party or run, or other data than before.
    """
    asked, party = open_request(request), open_party(data)
    if asked.party != party.name:
        raise InputError(f"{shown(request)}: for {asked.party}, but {shown(data)} is of {party.name}")
    with storage_errors(out):
        if out.is_dir() or not out.absolute().parent.is_dir():
            raise StorageError(f"{shown(out)}: cannot write: not a file name in an existing directory")
    with storage_errors(state):
        if not (state / "state.h5").exists() and asked.number == 0:
            state.mkdir(exist_ok=True)
        elif not state.is_dir():
            raise StorageError(f"{shown(state)}: no state of a run; begin with the run's first request")
    with run_lock(state):
        return _step(asked, party, state, request, out, force, threads)


def _step(
    asked: Request, party: PartyData, state: Path, request: Path, out: Path, force: bool, threads: int | None
) -> StepDone:
    known = _State.read(state / "state.h5") if (state / "state.h5").exists() else None
    if known is not None:
        _check_order(known, asked, party, state, request)
    elif asked.number != 0:
        raise InputError(f"{shown(state)}: no state; answer the run's first request before {shown(request)}")
    if known is not None and known.number == asked.number:
        _give(known.message, out, force)
        return StepDone(asked.number, True, _model_path(state, party.name))
    with Engine(threads) as engine, engine.limited():
        server = _Server(party, state, engine, known, request)
        answer = server.run(asked)
        message = Message(asked.run, asked.party, asked.number, asked.digest, answer)
        raw = _encoded(message, state)
        _refuse_other(raw, out, force)
        _State(
            asked.run, asked.number, asked.digest, party.content_digest, server.settings, server.export(), raw
        ).write(state / "state.h5")
    # After the state: whoever has the message can rely on the party to remember it.
    _give(raw, out, force)
    return StepDone(asked.number, False, _model_path(state, party.name))


def _model_path(state: Path, name: str) -> Path | None:
    path = state / f"{name}.h5"
    return path if path.exists() else None


def _check_order(known: _State, asked: Request, party: PartyData, state: Path, request: Path) -> None:
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
    elif asked.number < known.number:
        raise InputError(
            f"{place}: request {asked.number}, but request {known.number} was answered already; only its "
            "message can be given again"
        )
    elif asked.previous != known.number:
        raise InputError(
            f"{place}: request {asked.number} follows request {asked.previous}, but the last one answered "
            f"is {known.number}; answer the ones between first"
        )


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
            if out.read_bytes() == raw:
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
    """What a party remembers between steps."""

    run: str
    number: int
    request: str
    content: str
    settings: dict[str, Any]
    tree: dict[str, Any]
    message: bytes

    def write(self, path: Path) -> None:
        with create_h5(path, _STATE) as file:
            file.attrs["run"], file.attrs["number"] = self.run, self.number
            file.attrs["request"], file.attrs["content-digest"] = self.request, self.content
            write_tree(file.create_group("settings"), self.settings)
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
            )


#: What may be asked, with the kind of every argument: "rows" is N numbers, "vector" any number of them.
_CALLS: dict[str, dict[str, dict[str, str]]] = {
    "": {
        "start": {
            "family": "text",
            "regularization": "positive",
            "x_update": "text",
            "regularizer": "text",
            "l1_ratio": "number",
            "constraint": "text",
            "n_samples": "count",
            "row_digest": "text",
            "position": "count",
        }
    },
    "subspace": {
        "set_metric": {"curvature": "rows"},
        "respond": {"gradient": "rows", "coefficients": "vector", "newton": "flag"},
        "respond_pair": {"gradient": "rows", "coefficients": "vector"},
        "restate": {"gradient": "rows", "coefficients": "vector"},
        "merge_oldest": {"coefficients": "vector"},
        "finish": {"coefficients": "vector", "model_id": "text"},
    },
    "admm": {
        "set_metric": {"curvature": "rows"},
        "step": {"w": "rows", "scaled_penalty": "positive"},
        "certify": {"gradient": "rows", "pull": "rows"},
        "stationarity": {"pull": "rows"},
        "dual_scale": {"u": "rows"},
        "dual_value": {"scale": "number"},
        "finish": {"model_id": "text"},
    },
}

_SCALARS: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "number": (float, int),
    "positive": (float, int),
    "count": (int,),
    "flag": (bool,),
}


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
            self._check(name, arguments)
            answer = getattr(self, f"_{name}")(**arguments)
        if answer is None:
            raise FormatError(f"{self.place}: key 'calls': the last call has no answer")
        return answer

    def _check(self, name: str, arguments: dict[str, Any]) -> None:
        allowed = _CALLS[self.settings.get("family", "")]
        if name not in allowed or set(arguments) != set(allowed[name]):
            raise FormatError(f"{self.place}: key 'calls': {name!r} with these arguments is unknown here")
        for key, kind in allowed[name].items():
            value = arguments[key]
            if kind in ("rows", "vector"):
                good = isinstance(value, np.ndarray) and value.dtype == np.float64 and value.ndim == 1
                good = good and (kind == "vector" or len(value) == self.data.n_samples)
                good = good and bool(np.isfinite(value).all())
            else:
                good = isinstance(value, _SCALARS[kind]) and (kind == "flag" or not isinstance(value, bool))
                good = good and (kind != "positive" or value > 0)
            if not good:
                raise FormatError(f"{self.place}: argument {key!r} of {name!r}: not what {kind!r} allows")

    # --- calls of both families --------------------------------------------------------------------------

    def _start(self, **settings: Any) -> dict[str, Any]:
        data = self.data
        if settings["family"] not in ("subspace", "admm"):
            raise FormatError(f"{self.place}: argument 'family': {settings['family']!r} is unknown")
        if (settings["n_samples"], settings["row_digest"]) != (data.n_samples, data.row_digest):
            raise InputError(
                f"{shown(data.path)}: {data.n_samples} rows, but {self.place} is about "
                f"{settings['n_samples']} rows, or they are others or in another order (row digests); "
                "align the rows first"
            )
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
        from fastadmm.constraints import get_constraint
        from fastadmm.regularizers import get_regularizer

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
        weights = self.party.weights if coefficients is None else self.party.weights(self._own(coefficients))
        names = list(data.feature_names)
        # What holds for its weights the party says itself: no request has a word in it.
        said = no_privacy([data.name]).weights_line()
        model = PartyModel(data.name, weights, names, data.transform, encoder=data.encoder, privacy=said)
        write_party_model(self.state / f"{data.name}.h5", model, model_id=model_id)
        return {"mean": float(mean_contribution(self.party.block, weights, self.engine))}

    def _set_metric(self, curvature: np.ndarray) -> None:
        if not (curvature > 0).all():
            raise FormatError(f"{self.place}: argument 'curvature' is not positive")
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
        message, squared = self.party.respond(gradient, coefficients, newton)
        answer = {"squared_residual": squared}
        return answer if message is None else {**answer, "message": message}

    def _respond_pair(self, gradient: np.ndarray, coefficients: np.ndarray) -> dict[str, Any]:
        self._own(coefficients)
        if self.metric is not None:
            self.party.set_metric(self.metric)
        pair = self.party.respond_pair(gradient, coefficients)
        answer: dict[str, Any] = {"squared_residual": pair.squared_residual, "products": pair.products}
        for key, message in zip(("first", "second"), pair.messages):
            answer[key], answer[f"{key}_scale"] = message
        return answer

    def _restate(self, gradient: np.ndarray, coefficients: np.ndarray) -> dict[str, Any]:
        message, squared, products = self.party.restate(gradient, self._own(coefficients))
        answer: dict[str, Any] = {"squared_residual": squared, "products": products}
        return answer if message is None else {**answer, "message": message}

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


def _shaped(array: Any, shape: tuple[int, ...], key: str, state: Path) -> None:
    """Refuse a remembered array that is none, not of this shape (-1: any length) or not finite."""
    fits = isinstance(array, np.ndarray) and array.dtype == np.float64 and array.ndim == len(shape)
    if not fits or any(n not in (-1, m) for n, m in zip(shape, array.shape)) or not np.isfinite(array).all():
        raise FormatError(f"{shown(state)}: key 'party/{key}': not what a step left; begin the run again")
