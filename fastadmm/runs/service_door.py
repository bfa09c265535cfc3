"""Who may speak to a scoring service, how much and how slowly, before any work is done.

A page in somebody's browser can reach a service on the same machine, under any name that its owner points
there, and can send it texts of a few types unasked. So a service answers to its own names alone, takes JSON
alone, and nothing that a page of another origin sends. What is on its way is bounded in bytes and in time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import Any

#: Names of this machine for itself.
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")

#: Seconds for a request or an answer, and bytes that each further second stands for.
_SECONDS, _RATE = 10.0, 1 << 16

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


def host_of(text: str) -> str:
    """A name without its port, as browsers spell it: ``[::1]:80`` is ``[::1]``."""
    text = text.strip().lower()
    if text.count(":") > 1 and not text.startswith("["):
        return f"[{text}]"
    name, colon, port = text.rpartition(":")
    return name.rstrip(".") if colon and port.isdigit() else text.rstrip(".")


class _Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Door:
    """An ASGI application before another one, which gets whole requests only."""

    def __init__(self, app: Any, hosts: Iterable[str], most: int) -> None:
        self.app, self.most = app, most
        self.hosts = {host_of(name) for name in hosts}
        self._room = max(4 * most, 1 << 24)  # bytes of all requests together
        self._held = 0

    async def __call__(self, scope: Any, receive: _Receive, send: _Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return
        body, begin, sent = bytearray(), 0.0, 0

        async def timely(message: _Message) -> None:
            """Send in pieces: a client that takes none of them is not waited for."""
            nonlocal begin, sent
            begin = begin or asyncio.get_running_loop().time()
            whole, more = message.get("body", b""), message.get("more_body", False)
            for at in range(0, len(whole) or 1, _RATE):
                part = whole[at : at + _RATE]
                left = at + _RATE < len(whole)
                own = {**message, "body": part, "more_body": left or more} if whole else message
                until = begin + _SECONDS + sent / _RATE
                await asyncio.wait_for(send(own), until - asyncio.get_running_loop().time())
                sent += len(part)

        try:
            self._check(scope)
            if await self._read(receive, body):
                await self.app(scope, _whole(bytes(body), receive), timely)
        except _Refused as refused:
            if refused.status == 413:
                await _drop(receive)
            await _refuse(timely, refused.status, str(refused))
        except TimeoutError:
            return  # the client does not take its answer
        except asyncio.CancelledError:  # the server ends
            if not begin:
                await _refuse(timely, 503, "request: the service ends")
        finally:
            self._held -= len(body)

    def _check(self, scope: Any) -> None:
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            key = name.decode("latin-1").lower()
            if key in headers and key in ("host", "origin", "content-type", "content-length"):
                raise _Refused(400, f"request: a second header {key}")
            headers[key] = value.decode("latin-1")
        host = headers.get("host")
        if host is not None and host_of(host) not in self.hosts:
            raise _Refused(
                421, f"request: not a name of this service: {host[:80]!a}; start it with --allow-host NAME"
            )
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != (host or "").strip().lower():
            raise _Refused(403, "request: from a page of another origin")
        if scope["method"] not in ("POST", "PUT", "PATCH", "DELETE"):
            return
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise _Refused(415, "request: send JSON, with the header Content-Type: application/json")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 18 or int(length) > self.most:
            raise _Refused(413, f"request: more than {self.most} bytes: send fewer rows")

    async def _read(self, receive: _Receive, body: bytearray) -> bool:
        """Read the body within the limits; false where the client leaves."""
        begin = asyncio.get_running_loop().time()
        while True:
            allowed = _SECONDS + len(body) / _RATE
            try:
                left = begin + allowed - asyncio.get_running_loop().time()
                message = await asyncio.wait_for(receive(), left)
            except TimeoutError:
                raise _Refused(408, f"request: not whole after {allowed:.0f} s") from None
            if message["type"] != "http.request":
                return False
            chunk = message.get("body", b"")
            self._held += len(chunk)
            body += chunk
            if len(body) > self.most:
                raise _Refused(413, f"request: more than {self.most} bytes: send fewer rows")
            if self._held > self._room:
                raise _Refused(503, "request: too many at once: try again later")
            if not message.get("more_body", False):
                return True


def _whole(body: bytes, receive: _Receive) -> _Receive:
    """What the application receives: the body at once, then what comes."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def own() -> _Message:
        return messages.pop() if messages else await receive()

    return own


async def _drop(receive: _Receive) -> None:
    """Let a client send for a moment: one whose connection ends meanwhile does not read why."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_SECONDS / 5):
            while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                pass


async def _refuse(send: _Send, status: int, text: str) -> None:
    """Send a refusal, and end the connection: the rest of its request is not read."""
    body = json.dumps({"error": text}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
