"""A scoring service: what it answers, who may ask and how much over HTTP, and the server.

It answers with contributions of one party, their sum, or predictions. A page in somebody's browser can
reach a service on the same machine, under any name that its owner points there, and can send it texts of a
few types unasked. So a service answers to its own names alone, and takes JSON alone, which a page of another
origin may not send.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from fastadmm.data_tools.predict_tables import row_features
from fastadmm.errors import ConfigError, FastadmmError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.reading import is_directory, json_of
from fastadmm.runs import predict
from fastadmm.runs.export import open_covered
from fastadmm.runs.predict import Contribution
from fastadmm.store.model import PartyModel, SharedPart, open_shared_part
from fastadmm.version import __version__

Array = np.ndarray

_LONGEST_ID = 256


@dataclass
class Service:
    """Answers requests from a model that is in memory."""

    parties: list[PartyModel]
    shared: SharedPart | None  # None where one party's contributions are all
    model_id: str
    max_rows: int

    def __post_init__(self) -> None:
        if self.max_rows < 1:
            raise ConfigError(f"--max-rows {self.max_rows}: is not positive")
        self.columns: list[str] = []  # that rows have
        for own in self.parties:
            self.columns += [c.name for c in own.encoder.columns] if own.encoder else own.feature_names

    def describe(self) -> dict[str, Any]:
        """What it serves: parties, columns, the model's id, most rows; with the sum also loss and classes."""
        shared = self.shared
        return {
            "status": "ok",
            "model_id": self.model_id,
            "parties": [p.name for p in self.parties] or (shared.names if shared else []),
            "columns": self.columns,
            "max_rows": self.max_rows,
            **({} if shared is None else {"loss": shared.loss, "classes": shared.classes}),
        }

    def contribution(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """One party's contributions to the scores of rows, which another service adds up."""
        (values,), notes, ids = self._contributions(document)
        about = {"party": self.parties[0].name, "model_id": self.model_id, "ids": ids}
        return about | {"contribution": values.tolist(), "notes": notes}

    def predict(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Predictions of rows that have the columns of all parties."""
        values, notes, ids = self._contributions(document)
        return self._predictions(values, ids) | {"notes": notes}

    def combine(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Predictions from the contributions of all parties, which are added in the model's order."""
        assert self.shared is not None
        entries = _known(document, {"contributions"}).get("contributions")
        if not isinstance(entries, list) or not entries:
            raise InputError("request: 'contributions': the list of all parties' contributions is needed")
        given = [self._given(entry) for entry in entries]
        values = predict.checked_contributions(self.shared, given, "request")
        return self._predictions(values, given[0].ids.tolist())

    def _given(self, entry: Any) -> Contribution:
        if not isinstance(entry, dict):
            raise InputError("request: 'contributions': each is an object, as a party's service answers it")
        name = str(entry.get("party"))
        place = f"request: contribution of {name}"
        try:
            values = np.array(entry.get("contribution"), dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            values = np.empty(())
        if values.ndim == 0 or not np.isfinite(values).all():
            raise InputError(f"{place}: finite numbers, one for each row, are needed")
        if not 0 < len(values) <= self.max_rows:
            raise InputError(f"{place}: {len(values)} rows; from 1 to {self.max_rows} fit")
        ids = np.array(_ids(entry, len(values), place), dtype=object)
        return Contribution(name, str(entry.get("model_id")), values, ids, place=place)

    def _contributions(self, document: Mapping[str, Any]) -> tuple[list[Array], list[str], list[Any]]:
        _known(document, {"row", "rows", "ids"})
        if ("row" in document) == ("rows" in document):
            raise InputError("request: give either 'rows', a list, or 'row', one of them")
        rows = [document["row"]] if "row" in document else document["rows"]
        if not isinstance(rows, list) or not rows:
            raise InputError("request: 'rows': a list with one row at least is needed")
        if len(rows) > self.max_rows:
            said = f"{len(rows)} rows, but at most {self.max_rows} fit: send them in parts"
            raise InputError(f"request: {said}")
        found = row_features(self.parties, rows)
        values = [party.contribution_of(X) for party, X in zip(self.parties, found.blocks, strict=True)]
        for own in values:
            if (row := predict.first_not_finite(own)) is not None:
                raise InputError(f"request: row {row + 1}: the contribution is not finite")
        return values, found.notes, _ids(document, len(rows), "request")

    def _predictions(self, values: list[Array], ids: list[Any]) -> dict[str, Any]:
        assert self.shared is not None
        found = predict.make_predictions(self.shared, np.arange(len(ids)), self.shared.combine(values, None))
        columns = predict.columns_of(found) | {"id": ids}
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return {"model_id": self.model_id, "predictions": rows}


def _known(document: Mapping[str, Any], keys: set[str]) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise InputError("request: a JSON object is needed")
    if unknown := [key for key in document if key not in keys]:
        raise InputError(f"request: unknown key {unknown[0]!r}; there are {', '.join(sorted(keys))}")
    return document


def _ids(document: Mapping[str, Any], n_rows: int, place: str) -> list[Any]:
    """The ids that come back: texts and whole numbers, as tables have them."""
    ids = document.get("ids")
    if ids is None:
        return list(range(n_rows))
    if not isinstance(ids, list) or len(ids) != n_rows:
        raise InputError(f"{place}: 'ids': one for each row is needed")
    for k, value in enumerate(ids, start=1):
        good = -(2**63) <= value < 2**63 if type(value) is int else isinstance(value, str)
        if not good or len(str(value)) > _LONGEST_ID:
            kinds = f"no 64-bit number and no text of at most {_LONGEST_ID} characters"
            raise InputError(f"{place}: 'ids': id {k} is {kinds}")
    return ids


def open_service(path: Path, party: str | None, combine: bool, max_rows: int, **how: bool) -> Service:
    """Load what is served."""
    whole = is_directory(path)
    if combine:
        if party is not None or not whole:
            raise ConfigError("--combine: needs a model directory, and no party")
        shared, _ = open_shared_part(path)
        return Service([], shared, shared.model_id, max_rows)
    if party is not None or not whole:
        weights, model_id = predict.weights_of_party(path, party, path, **how)
        return Service([weights], None, model_id, max_rows)
    found = open_covered(path, "scores of chosen rows", **how)
    service = Service(found.parties, found.shared, str(found.model_id), max_rows)
    if twice := sorted({name for name in service.columns if service.columns.count(name) > 1}):
        said = f"several parties have a column {twice[0]!r}: serve each with --party, and sums with --combine"
        raise ConfigError(f"{shown(path)}: {said}")
    return service


# --- over HTTP ----------------------------------------------------------------------------------------------


#: Names of this machine for itself.
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")

#: Connections at once, and seconds for the body of a request.
_CONNECTIONS, _SECONDS = 512, 30.0

#: Seconds for requests that are being answered when the service is ended.
_END_SECONDS = 2

#: Bytes of a request beside its rows, and of each cell beside its name.
_REST_BYTES, _CELL_BYTES = 1 << 16, 64


def make_app(service: Service, hosts: Sequence[str] = LOCAL_NAMES) -> FastAPI:
    """The application, for any ASGI server."""
    app = FastAPI(
        title="fastadmm", version=__version__, description="Scores rows with a joint model.",
        docs_url=None, redoc_url=None,
    )  # fmt: skip
    most_bytes, most_values = _limits(service)
    body_of = _bodies(most_bytes)
    app.add_middleware(_OwnNames, hosts=hosts)

    @app.get("/health", summary="Whether it answers, and with which model")
    async def health() -> dict[str, Any]:
        return service.describe()

    def route(path: str, summary: str, work: Callable[[Any], dict[str, Any]]) -> None:
        async def answer(request: Any) -> Any:
            try:
                async with body_of(request) as body:
                    found = await run_in_threadpool(lambda: work(_document(body, most_values)))
            except FastadmmError as error:
                return JSONResponse({"error": " ".join(str(error).split())}, 422)
            except HTTPException as refused:  # the rest of the request is not read
                return JSONResponse({"error": refused.detail}, refused.status_code, {"connection": "close"})
            except asyncio.CancelledError:  # the server ends
                return JSONResponse({"error": "request: the service ends"}, 503)
            return JSONResponse(found)

        answer.__annotations__["request"] = Request
        app.post(path, summary=summary, response_model=None)(answer)

    if service.parties and service.shared is None:
        route("/contribution", "What the party adds to the scores of rows", service.contribution)
    elif service.parties:
        route("/predict", "Predictions of rows", service.predict)
    if service.shared is not None:
        route("/combine", "Predictions from all parties' contributions", service.combine)
    return app


def _host_of(text: str) -> str:
    """A name without its port, as browsers spell it: ``[::1]:80`` is ``[::1]``."""
    text = text.strip().lower()
    if text.count(":") > 1 and not text.startswith("["):
        return f"[{text}]"
    name, colon, port = text.rpartition(":")
    return name.rstrip(".") if colon and port.isdigit() else text.rstrip(".")


class _OwnNames:
    """An ASGI application before another one, which gets requests to its own names only."""

    def __init__(self, app: Any, hosts: Sequence[str]) -> None:
        self.app, self.hosts = app, {_host_of(name) for name in hosts}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        host = Request(scope).headers.get("host") if scope["type"] == "http" else None
        if host is None or _host_of(host) in self.hosts:
            await self.app(scope, receive, send)
            return
        said = f"request: not a name of this service: {host[:80]!a}; start it with --allow-host NAME"
        await JSONResponse({"error": said}, 421)(scope, receive, send)


def _bodies(most: int) -> Callable[[Request], AbstractAsyncContextManager[bytes]]:
    """Bodies of JSON, each of them and all together within limits of bytes, each within one of time."""
    most_together, held = max(4 * most, 1 << 24), 0

    @asynccontextmanager
    async def body_of(request: Request) -> AsyncIterator[bytes]:
        """The body of a request, which counts until it is answered."""
        nonlocal held
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HTTPException(415, "request: send JSON, with the header Content-Type: application/json")
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(_SECONDS):
                while more:
                    message = await request.receive()
                    if message["type"] != "http.request":
                        raise HTTPException(400, "request: not whole")  # the client has left
                    part, more = message.get("body", b""), message.get("more_body", False)
                    held += len(part)
                    body += part
                    if len(body) > most:
                        raise HTTPException(413, f"request: more than {most} bytes: send fewer rows")
                    if held > most_together:
                        raise HTTPException(503, "request: too many at once: try again later")
            yield bytes(body)
        except TimeoutError:
            raise HTTPException(408, f"request: not whole after {_SECONDS:.0f} s") from None
        finally:
            held -= len(body)

    return body_of


def _limits(service: Service) -> tuple[int, int]:
    """Bytes of a request, and values in it."""
    names = service.columns
    values = len(names)
    if service.shared is not None:
        values += len(service.shared.names) * max(1, np.size(service.shared.intercept))
    row = sum(len(json.dumps(name)) + _CELL_BYTES for name in names) + _CELL_BYTES * (values + 2)
    return _REST_BYTES + service.max_rows * row, 1024 + 4 * service.max_rows * (values + 2)


def _document(body: bytes, most_values: int) -> Mapping[str, Any]:
    """The content of a request; one of very many small values would take far more memory than its bytes."""
    if body.count(b",") + body.count(b"[") + body.count(b"{") > most_values:
        raise InputError("request: too many values: send fewer rows")
    try:
        return json_of(body, foreign=True)
    except ValueError as error:
        raise InputError(f"request: is no JSON: {error}") from None


def listen(host: str, port: int) -> socket.socket:
    """A socket that the server takes."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=2048, dualstack_ipv6=both)
    except OSError as error:
        said = f"cannot listen on {host}:{port}: {error.strerror}".partition(" (")[0]
        raise ConfigError(f"{said}; choose another --address or --port (0: any)") from None


class _Server(uvicorn.Server):
    """A server that SIGTERM ends without an error; an interrupt is raised once it has ended."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Listen to signals; uvicorn itself would raise each of them again."""
        caught: list[int] = []

        def end(number: int, frame: FrameType | None) -> None:
            caught.append(number)
            self.should_exit = True

        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._ready()
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if signal.SIGINT in caught:
            raise KeyboardInterrupt


def run_server(app: FastAPI, sock: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests until the process is told to end: by SIGTERM in peace."""
    # No access log: it would say who asks, and rows are nobody's business.
    quiet: Any = {"log_level": "error", "access_log": False, "lifespan": "off", "server_header": False}
    limits: Any = {"limit_concurrency": _CONNECTIONS, "timeout_graceful_shutdown": _END_SECONDS}
    config = uvicorn.Config(app, http="h11", ws="none", **quiet, **limits)
    _Server(config, ready).run(sockets=[sock])
