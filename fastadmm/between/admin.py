"""A session of NVFlare's administration, in a process of its own: its logs and threads stay there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fastadmm.between.kit import INSTALL_HINT, Kit
from fastadmm.between.socket import Lost
from fastadmm.errors import ConfigError, InputError, StorageError

#: Runs a command of the session: its name, and arguments; returns what is JSON of the result.
Command = Callable[..., Any]

#: Seconds for connecting to the server.
_CONNECT = 10.0

_REFUSED = ("AuthenticationError", "AuthorizationError")


@contextmanager
def session(kit: Kit) -> Iterator[Command]:
    """Connect to the server as an administrator."""
    if kit.kind != "admin":
        raise InputError(f"{kit.path}: the kit of a {kit.kind}; an administrator's is needed")
    try:
        import nvflare  # noqa: F401
    except ImportError:
        raise ConfigError(f"federation: NVFlare is missing: this {INSTALL_HINT}") from None
    for path in (kit.certificate, kit.key, kit.root):
        try:
            path.open("rb").close()
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}; copy the kit of {kit.name!r} again") from None
    try:
        socket.create_connection((kit.host, kit.port), _CONNECT).close()
    except OSError as error:
        raise Lost(f"server {kit.host}:{kit.port} does not answer: {error.strerror or error}") from None
    program = [sys.executable, "-P", "-m", "fastadmm.between.admin", kit.name, str(kit.path)]
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        program, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    connected = False

    def read() -> Any:
        assert child.stdout is not None
        answer = json.loads(child.stdout.readline() or '["InternalError", "its session ended", null]')
        kind, text, value = answer
        if kind in _REFUSED:
            raise ConfigError(f"{kit.path}: server {kit.host}:{kit.port} refuses {kit.name!r}: {text}")
        if kind:
            hint = f"; see: fastadmm federate check {kit.path}" if not connected else ""
            raise Lost(f"server {kit.host}:{kit.port}: {text}{hint}")
        return value

    def command(name: str, *arguments: Any) -> Any:
        assert child.stdin is not None
        child.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
        child.stdin.flush()
        return read()

    try:
        read()
        connected = True
        yield command
    finally:
        child.stdin.close()
        child.kill()
        child.wait()
        child.stdout.close()


def _main(user: str, kit: str) -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def say(work: Callable[[], Any]) -> None:
        kind, text, value = "", "", None
        try:
            value = work()
        except Exception as error:
            kind, text = type(error).__name__, " ".join(str(error).split())[:300]
        print(json.dumps([kind, text, value], default=str), file=out, flush=True)

    from nvflare.fuel.flare_api.flare_api import Session

    opened = Session(user, kit)
    say(lambda: opened.try_connect(_CONNECT))
    for line in sys.stdin:
        name, arguments = json.loads(line)
        say(partial(getattr(opened, name), *arguments))


if __name__ == "__main__":
    _main(*sys.argv[1:])
