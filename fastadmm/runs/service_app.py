"""A scoring service over HTTP: who may ask and how much, the routes, and the server.

A page in somebody's browser can reach a service on the same machine, under any name that its owner points
there, and can send it texts of a few types unasked. So a service answers to its own names alone, and takes
JSON alone, which a page of another origin may not send.
"""

from __future__ import annotations

import asyncio
import errno
import json
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from fastadmm.errors import ConfigError, FastadmmError, InputError
from fastadmm.files.reading import json_of
from fastadmm.runs.service import Service
from fastadmm.version import __version__

#: Names of this machine for itself.
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")

#: Connections at once, and seconds for the body of a request.
_CONNECTIONS, _SECONDS = 512, 30.0

#: Seconds for requests that are being answered when the service is ended.
_END_SECONDS = 2

#: Bytes of a request beside its rows, and of each cell beside its name.
_REST_BYTES, _CELL_BYTES = 1 << 16, 64


class _Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def make_app(service: Service, hosts: Sequence[str] = LOCAL_NAMES) -> FastAPI:
    """The application, for any ASGI server."""
    app = FastAPI(
        title="fastadmm", version=__version__, description="Scores rows with a joint model.",
        docs_url=None, redoc_url=None,
    )  # fmt: skip
    most_bytes, most_values = _limits(service)
    bodies = _Bodies(most_bytes)
    app.add_middleware(_OwnNames, hosts=hosts)

    @app.get("/health", summary="Whether it answers, and with which model")
    async def health() -> dict[str, Any]:
        return service.describe()

    def route(path: str, summary: str, work: Callable[[Any], dict[str, Any]]) -> None:
        async def answer(request: Any) -> Any:
            try:
                async with bodies.of(request) as body:
                    found = await run_in_threadpool(lambda: work(_document(body, most_values)))
            except FastadmmError as error:
                return JSONResponse({"error": " ".join(str(error).split())}, 422)
            except _Refused as refused:  # the rest of the request is not read
                return JSONResponse({"error": str(refused)}, refused.status, {"connection": "close"})
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


class _Bodies:
    """Bodies of JSON, each of them and all together within limits of bytes, each within one of time."""

    def __init__(self, most: int) -> None:
        self.most, self.most_together, self.held = most, max(4 * most, 1 << 24), 0

    @asynccontextmanager
    async def of(self, request: Request) -> AsyncIterator[bytes]:
        """The body of a request, which counts until it is answered."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise _Refused(415, "request: send JSON, with the header Content-Type: application/json")
        body = bytearray()
        try:
            async with asyncio.timeout(_SECONDS):
                more = True
                while more:
                    message = await request.receive()
                    if message["type"] != "http.request":
                        raise _Refused(400, "request: not whole")  # the client has left
                    part, more = message.get("body", b""), message.get("more_body", False)
                    self.held += len(part)
                    body += part
                    if len(body) > self.most:
                        raise _Refused(413, f"request: more than {self.most} bytes: send fewer rows")
                    if self.held > self.most_together:
                        raise _Refused(503, "request: too many at once: try again later")
            yield bytes(body)
        except TimeoutError:
            raise _Refused(408, f"request: not whole after {_SECONDS:.0f} s") from None
        finally:
            self.held -= len(body)


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
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        log_level="error",
        access_log=False,
        lifespan="off",
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_END_SECONDS,
    )
    _Server(config, ready).run(sockets=[sock])
