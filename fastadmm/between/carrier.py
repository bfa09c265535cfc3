"""Questions for parties, carried by NVFlare: a job is submitted when there is none, again after a loss.

A session of its administration is a process of its own: its logs and threads stay there.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastadmm.between.kit import INSTALL_HINT, Kit, write_job
from fastadmm.between.nvflare_app import END, HELLO, LEAVE
from fastadmm.between.socket import Lost, Say, Socket, again, pauses
from fastadmm.errors import ConfigError, InputError, StorageError
from fastadmm.files.reading import parse_json
from fastadmm.version import __version__

#: Runs a command of the session: its name, and arguments; returns what is JSON of the result.
Command = Callable[..., Any]

#: Seconds for connecting to the server.
_CONNECT = 10.0

#: The first command of a session.
_BEGINS = "try_connect"

_REFUSED = ("AuthenticationError", "AuthorizationError")


@contextmanager
def session(kit: Kit) -> Iterator[Command]:
    """Connect to the server as an administrator."""
    if kit.kind != "admin":
        raise InputError(f"{kit.path}: the kit of a {kit.kind}; an administrator's is needed")
    if find_spec("nvflare") is None:
        raise ConfigError(f"federation: NVFlare is missing: this {INSTALL_HINT}")
    for path in (kit.certificate, kit.key, kit.root):
        try:
            path.open("rb").close()
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}; copy the kit of {kit.name!r} again") from None
    server = f"server {kit.host}:{kit.port}"
    try:
        socket.create_connection((kit.host, kit.port), _CONNECT).close()
    except OSError as error:
        raise Lost(f"{server} does not answer: {error.strerror or error}") from None
    program = [sys.executable, "-P", "-m", "fastadmm.between.carrier", kit.name, str(kit.path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        program, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True
    ) as child:
        asked, told = child.stdin, child.stdout
        assert asked is not None
        assert told is not None

        def command(name: str, *arguments: Any) -> Any:
            asked.write(json.dumps([name, arguments]).encode() + b"\n")
            asked.flush()
            answer = told.readline() or '["InternalError", "its session ended", null]'
            kind, text, value = json.loads(answer)
            if kind in _REFUSED:
                raise ConfigError(f"{kit.path}: {server} refuses {kit.name!r}: {text}")
            if kind:
                hint = f"; see: fastadmm federate check {kit.path}" if name == _BEGINS else ""
                raise Lost(f"{server}: {text}{hint}")
            return value

        try:
            command(_BEGINS, _CONNECT)
            yield command
        finally:
            child.kill()


def _main(user: str, kit: str) -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    from nvflare.fuel.flare_api.flare_api import Session

    opened = Session(user, kit)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        kind, text, value = "", "", None
        try:
            value = getattr(opened, name)(*arguments)
        except Exception as error:
            kind, text = type(error).__name__, " ".join(str(error).split())[:300]
        print(json.dumps([kind, text, value], default=str), file=out, flush=True)


#: Seconds between two looks at a job that begins.
_LOOK = 0.25

#: Seconds for a question to the server's relay, for server and sites to come back, and for a job to begin.
_HELLO_SECONDS, _RETURN, _BEGIN = 5.0, 30.0, 180.0


@dataclass(eq=False)
class Carrier:
    """Asks parties through NVFlare; a job is submitted when there is none."""

    kit: Kit
    socket: Path
    sites: Mapping[str, str]
    say: Say = lambda text: None
    ends: bool = True
    job: str = ""

    def __post_init__(self) -> None:
        self._relay, self._lock = Socket(self.socket), threading.Lock()
        self._running: bool | None = None

    def ask(self, party: str, raw: bytes, seconds: float) -> bytes:
        """Ask a party; the first question after a loss begins a job where none is running."""
        with self._lock:
            if not self._running and not self._greeted():
                # Another question of the exchange that found the loss may wait here until the server is back.
                if self._running is False:
                    self.say("the job is lost")
                self._submit()
            self._running = True
        try:
            return self._relay.ask(f"{self.sites[party]}/{party}", raw, seconds)
        except Lost:
            self._running = False
            raise

    def __enter__(self) -> Carrier:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the job; after an error, or where others follow, whoever comes within a minute finds it."""
        if self._running:
            with suppress(Lost):
                self._relay.ask("", END if kind is None and self.ends else LEAVE, _HELLO_SECONDS)

    def _greeted(self) -> bool:
        try:
            versions = parse_json(self._relay.ask("", HELLO, _HELLO_SECONDS), "the server", foreign=True)
        except Lost:
            return False
        for party, site in self.sites.items():
            if site not in versions:
                text = f"the job that runs is without {party!r} (site {site!r})"
                raise ConfigError(f"{self._relay.path}: {text}")
            if versions[site] != __version__:
                raise ConfigError(f"site {site!r}: has fastadmm {versions[site]}, not {__version__} as here")
        return True

    def _submit(self) -> None:
        with TemporaryDirectory() as directory, ExitStack() as stack:
            server = self._connected(stack)
            if self.job:
                with suppress(Lost):
                    server("abort_job", self.job)
            folder = write_job(Path(directory), sorted(set(self.sites.values())))
            self.job = server("submit_job", str(folder))
            self.say(f"job {self.job} is submitted")
            until = time.monotonic() + _BEGIN
            while not self._greeted():
                meta = server("get_job_meta", self.job)
                if meta["status"].startswith("FINISHED"):
                    details = "; ".join(meta.get("job_deploy_detail") or ["its log says why"])
                    raise Lost(f"job {self.job} ended before it began ({meta['status']}): {details}")
                if time.monotonic() > until:
                    raise Lost(f"job {self.job} has not begun ({meta['status']})")
                time.sleep(_LOOK)
            self.say(f"job {self.job} is running")

    def _connected(self, stack: ExitStack) -> Command:
        """A session, once all sites are connected to the server: any of them may just be coming back."""
        server = again(lambda: stack.enter_context(session(self.kit)), pauses(_RETURN, _LOOK))
        absent = ""
        for pause in pauses(_RETURN, _LOOK):  # a session that is lost is not asked again
            if not (absent := self._absent(server)):
                return server
            time.sleep(pause)
        raise Lost(absent)

    def _absent(self, server: Command) -> str:
        """Which site is not connected, in words; empty where all are."""
        there = {client["client_name"] for client in server("check_status", "server").get("clients", [])}
        for party, site in self.sites.items():
            if site not in there:
                where = f"{self.kit.host}:{self.kit.port}"
                return f"site {site!r} of party {party!r} is not connected to {where}"
        return ""


if __name__ == "__main__":
    _main(*sys.argv[1:])
