"""A scoring service over HTTP: the routes, their description, and the server."""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fastadmm.errors import ConfigError, FastadmmError, InputError
from fastadmm.runs.service import Service
from fastadmm.version import __version__

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["listen", "make_app", "run_server"]

#: Bytes of a request for each row that may come, and for the rest.
_ROW_BYTES, _REST_BYTES = 1 << 14, 1 << 16

_CELL = {"type": ["string", "number", "boolean", "null"]}


def make_app(service: Service) -> FastAPI:
    """The application, for any ASGI server.

    Parameters
    ----------
    service : Service

    Raises
    ------
    ConfigError
        If the extra ``fastadmm[serve]`` is not installed.
    """
    try:
        from fastapi import FastAPI, Request
        from fastapi.concurrency import run_in_threadpool
        from fastapi.responses import JSONResponse
    except ImportError:
        raise ConfigError("serve: needs FastAPI and uvicorn: pip install 'fastadmm[serve]'") from None

    app = FastAPI(title="fastadmm", version=__version__, description="Scores rows with a joint model.")

    @app.get("/health", summary="Whether it answers, and with which model")
    async def health() -> dict[str, Any]:
        return service.describe()

    def route(path: str, summary: str, schema: dict[str, Any], work: Callable[[Any], dict[str, Any]]) -> None:
        async def answer(request: Any) -> Any:
            try:
                document = await _document(request, _REST_BYTES + service.max_rows * _ROW_BYTES)
                found = await run_in_threadpool(work, document)
            except _TooLarge as error:
                return JSONResponse({"error": str(error)}, 413)
            except FastadmmError as error:
                return JSONResponse({"error": " ".join(str(error).split())}, 422)
            return JSONResponse(found)

        answer.__annotations__["request"] = Request
        body = {"content": {"application/json": {"schema": schema}}, "required": True}
        app.post(path, summary=summary, openapi_extra={"requestBody": body}, response_model=None)(answer)

    if service.parties:
        rows = _rows_schema(service)
        if service.shared is None:
            route("/contribution", "What the party adds to the scores of rows", rows, service.contribution)
        else:
            route("/predict", "Predictions of rows", rows, service.predict)
    if service.shared is not None:
        route("/combine", "Predictions from all parties' contributions", _COMBINE, service.combine)
    return app


class _TooLarge(InputError):
    pass


async def _document(request: Any, most: int) -> Mapping[str, Any]:
    """The body of a request, which is not read beyond the limit."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise _TooLarge(f"request: more than {most} bytes: send fewer rows")

    def refuse(word: str) -> float:
        raise InputError(f"request: {word} is no JSON number: send null for a missing value")

    try:
        return json.loads(body, parse_constant=refuse)
    except InputError:
        raise
    except (ValueError, RecursionError):
        raise InputError("request: is no JSON") from None


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
            "unseen": {"enum": ["zeros", "refuse"], "description": "categories that training did not have"},
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
    """A socket that the server takes.

    Parameters
    ----------
    host : str
    port : int
        0: any that is free.

    Raises
    ------
    ConfigError
        If the port is in use or not allowed, or the address is not this machine's.
    """
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


def run_server(app: FastAPI, sock: socket.socket) -> None:
    """Answer requests until the process is interrupted.

    Parameters
    ----------
    app : FastAPI
    sock : socket
        From :func:`listen`.
    """
    import uvicorn

    # No access log: it would say who asks, and rows are nobody's business.
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", server_header=False)
    uvicorn.Server(config).run(sockets=[sock])
