"""A scoring service over HTTP: the routes, their description, and the server."""

from __future__ import annotations

import asyncio
import errno
import json
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fastadmm.errors import ConfigError, FastadmmError, InputError
from fastadmm.files.reading import json_of
from fastadmm.runs.service import Service
from fastadmm.runs.service_door import LOCAL_NAMES, Door
from fastadmm.version import __version__

if TYPE_CHECKING:
    from fastapi import FastAPI

#: Connections at once, and seconds until a request has begun.
_CONNECTIONS, _SECONDS = 512, 10.0


class PromptProtocol(H11Protocol):
    """One connection; once a request has begun :class:`fastadmm.runs.service_door.Door` watches it."""

    _late: asyncio.TimerHandle | None = None
    _clock: asyncio.TimerHandle | None = None
    _closing = False

    def connection_made(self, transport: Any) -> None:
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > _CONNECTIONS:
            transport.abort()
        else:
            self._watch()
            self._clock = self.loop.call_later(_SECONDS, self._look)

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget()
        if self._clock is not None:
            self._clock.cancel()
        super().connection_lost(exc)

    def _answers(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self) -> None:
        if self._answers():
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(_SECONDS, self._give_up)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _look(self) -> None:
        """Drop a connection that was closed long ago, and whose client does not take the rest."""
        if self._closing:
            self.transport.abort()
            return
        self._closing = self.transport.is_closing()
        self._clock = self.loop.call_later(_SECONDS, self._look)

    def _give_up(self) -> None:
        self._late = None
        if not self._answers():
            self.transport.close()


class PromptServer(uvicorn.Server):
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


#: Bytes of a request beside its rows, and of each cell beside its name.
_REST_BYTES, _CELL_BYTES = 1 << 16, 64

#: Seconds for requests that are being answered when the service is ended.
_END_SECONDS = 2

_CELL = {"type": ["string", "number", "boolean", "null"]}


def make_app(service: Service, hosts: Sequence[str] = LOCAL_NAMES) -> FastAPI:
    """The application, for any ASGI server."""
    try:
        from fastapi import FastAPI, Request
        from fastapi.concurrency import run_in_threadpool
        from fastapi.responses import HTMLResponse, JSONResponse
    except ImportError:
        raise ConfigError("serve: needs FastAPI and uvicorn: pip install 'fastadmm[serve]'") from None

    app = FastAPI(
        title="fastadmm", version=__version__, description="Scores rows with a joint model.",
        docs_url=None, redoc_url=None,
    )  # fmt: skip

    @app.get("/health", summary="Whether it answers, and with which model")
    async def health() -> dict[str, Any]:
        return service.describe()

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(_page(app.openapi()))

    def route(path: str, summary: str, schema: dict[str, Any], work: Callable[[Any], dict[str, Any]]) -> None:
        async def answer(request: Any) -> Any:
            try:
                body = await request.body()
                found = await run_in_threadpool(lambda: work(_document(body, most_values)))
            except FastadmmError as error:
                return JSONResponse({"error": " ".join(str(error).split())}, 422)
            return JSONResponse(found)

        answer.__annotations__["request"] = Request
        body = {"content": {"application/json": {"schema": schema}}, "required": True}
        app.post(path, summary=summary, openapi_extra={"requestBody": body}, response_model=None)(answer)

    most_bytes, most_values = _limits(service)
    app.add_middleware(Door, hosts=hosts, most=most_bytes)
    if service.parties:
        rows = _rows_schema(service)
        if service.shared is None:
            route("/contribution", "What the party adds to the scores of rows", rows, service.contribution)
        else:
            route("/predict", "Predictions of rows", rows, service.predict)
    if service.shared is not None:
        route("/combine", "Predictions from all parties' contributions", _COMBINE, service.combine)
    return app


def _page(description: dict[str, Any]) -> str:
    """The description of the routes as a page that loads nothing from elsewhere."""
    routes = "".join(
        f"<h2>{method.upper()} {escape(path)}</h2><p>{escape(about['summary'])}</p>"
        f"<pre>{escape(json.dumps(about.get('requestBody', {}), indent=2))}</pre>"
        for path, methods in description["paths"].items()
        for method, about in methods.items()
    )
    return f"<!doctype html><meta charset=utf-8><title>fastadmm</title><h1>fastadmm</h1>{routes}"


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


def _rows_schema(service: Service) -> dict[str, Any]:
    columns = service.columns
    row = {
        "type": "object",
        "properties": dict.fromkeys(columns, _CELL),
        "required": columns,
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {
            "rows": {"type": "array", "items": row, "minItems": 1, "maxItems": service.max_rows},
            "row": row,
            "ids": {"type": "array", "description": "one for each row; they come back"},
        },
    }


_COMBINE = {
    "type": "object",
    "required": ["contributions"],
    "properties": {
        "contributions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["party", "model_id", "contribution"],
                "properties": {
                    "party": {"type": "string"},
                    "model_id": {"type": "string"},
                    "ids": {"type": "array"},
                    "contribution": {"type": "array"},
                },
            },
        }
    },
}


def listen(host: str, port: int) -> socket.socket:
    """A socket that the server takes."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind)
    except OSError:
        raise ConfigError(f"--host {host}: is no address of this machine") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(2048)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"--port {port}: is in use: choose another one, or 0 for any") from None
        if error.errno == errno.EACCES:
            raise ConfigError(f"--port {port}: not allowed: choose one above 1023") from None
        raise ConfigError(f"--host {host}: is no address of this machine") from None
    return sock


def run_server(app: FastAPI, sock: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests until the process is told to end: by SIGTERM in peace."""
    # No access log: it would say who asks, and rows are nobody's business.
    config = uvicorn.Config(
        app,
        http=PromptProtocol,
        ws="none",
        log_level="error",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=_END_SECONDS,
    )
    PromptServer(config, ready).run(sockets=[sock])
