"""What runs inside NVFlare: bytes go from the coordinator's socket to a site, and from there to its agent's.

Both components are installed at every site and named in its allow-list; they take no arguments, and nothing
travels with a job. They know neither labels nor features, and load nothing of fastadmm but the socket.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

from fastadmm.between.socket import Lost, Socket, seconds_left, serve
from fastadmm.errors import ConfigError, FormatError, StorageError
from fastadmm.files.reading import read_json
from fastadmm.version import __version__

#: Who asks, as a site has authenticated it.
SERVER_NAME = "server"

#: Questions for the relay at the server itself, which name no party: which sites
#: are there, with their versions; that the job shall end; and that it shall end soon if nobody else asks.
HELLO, END, LEAVE = b"hello", b"end", b"leave"

#: Seconds without a question after which a job ends: its coordinator is gone, or has said that it goes.
_IDLE, _LEFT = 900.0, 60.0

#: Share of a deadline that the way to a site and back may take.
_WAY = 0.1

_SECONDS = 60.0


class PartyRelay:
    """Client component: hands what the server asks to the agent of this site."""

    def __init__(self) -> None:
        from nvflare.collab import collab

        self._collab: Any = collab
        self._socket: Socket | SimulatedAgent | None = None
        self.open = collab.init(self._open)
        self.exchange = collab.publish(self._exchange)
        self.version = collab.publish(lambda: __version__)

    def _open(self) -> None:
        local = Path(self._collab.workspace.get_site_config_dir())
        simulated = local / SIMULATED
        if simulated.exists():
            self._socket = SimulatedAgent(read_json(simulated)[self._collab.site_name])
        else:
            self._socket = Socket(read_socket(local))

    def _exchange(self, party: str, raw: bytes, seconds: float) -> bytes | None:
        assert self._socket is not None
        try:
            return self._socket.ask(party, raw, seconds, caller=self._collab.caller)
        except Lost as lost:
            # What is raised here would reach the server with all its text.
            logging.getLogger(__name__).warning("%s", lost)
            return None


class SimulatedAgent:
    """The agent of a site of NVFlare's simulator, in the site's own process; asked as a socket is."""

    def __init__(self, options: dict[str, Any]) -> None:
        from fastadmm.between.agent import Agent

        say = logging.getLogger(__name__).warning
        paths: dict[str, Any] = {
            key: Path(value) if isinstance(value, str) else value for key, value in options.items()
        }
        self._agent = Agent(say=lambda line: say("%s", line), **paths)

    def ask(self, party: str, raw: bytes, seconds: float, caller: str) -> bytes:
        """Answer, or refuse."""
        return self._agent.handle(caller, party, raw)

    def close(self) -> None:
        """Let go of the agent's files."""
        self._agent.close()


class CoordinatorRelay:
    """Server component: serves a socket for the coordinator, and hands its questions to the sites.

    A question is for ``SITE/PARTY``.
    """

    def __init__(self) -> None:
        from nvflare.collab import collab

        self._collab: Any = collab
        self._sites: dict[str, Any] = {}
        self._versions: dict[str, str] = {}
        self._over = threading.Event()
        self._lost = ""
        self._until = 0.0
        self.relay = collab.main(self._relay)

    def _relay(self) -> None:
        self._sites = {site.name: site for site in self._collab.clients}
        signal = self._collab.context.abort_signal
        socket = read_socket(self._collab.workspace.get_site_config_dir())
        self._versions = {name: site.version() for name, site in self._sites.items()}
        self._until = time.monotonic() + _IDLE
        server = serve(socket, self._ask)
        try:
            while not self._over.wait(0.2) and not signal.triggered:
                if time.monotonic() > self._until:
                    logging.getLogger(__name__).warning("%s: nobody asks any more", socket)
                    break
        finally:
            server.stop()
        if self._lost:
            raise RuntimeError(f"site {self._lost} is lost")

    def _ask(self, caller: str, party: str, raw: bytes) -> bytes:
        self._until = time.monotonic() + (_LEFT if raw == LEAVE and not party else _IDLE)
        if not party:
            if raw == END:
                self._over.set()
            return json.dumps(self._versions).encode()
        site, _, name = party.partition("/")
        seconds = seconds_left() or _SECONDS
        try:
            answer = self._sites[site](timeout=seconds).exchange(name, raw, seconds * (1 - _WAY))
        except Exception as error:
            # The site's job does not answer. Job processes do not start again: another job is needed.
            logging.getLogger(__name__).warning("site %s is lost", site, exc_info=True)
            self._lost = site
            self._over.set()
            raise Lost(f"site {site} is lost: {error}") from None
        if answer is None:
            raise Lost(f"site {site}: its agent does not answer")
        return bytes(answer)


#: Names of files in a kit's directory ``local``; the second one in NVFlare's simulator alone: options of each
#: site's agent.
SETTINGS, SIMULATED = "fastadmm.json", "fastadmm-simulated.json"


def read_socket(local: str | Path) -> Path:
    """Path of the socket between NVFlare's process and the party's agent, or the coordinator."""
    path = Path(local, SETTINGS)
    try:
        settings = read_json(path, foreign=True)
    except StorageError as error:
        raise StorageError(f"{error}; write it with: fastadmm federate harden KIT") from None
    except FormatError as error:
        raise ConfigError(str(error)) from None
    socket = settings.get("socket") if isinstance(settings, dict) else None
    if not isinstance(socket, str) or not Path(socket).is_absolute() or settings.keys() != {"socket"}:
        raise ConfigError(f'{path}: must be {{"socket": "/absolute/path"}} and nothing else')
    return Path(socket)


def write_socket(local: str | Path, socket: Path) -> None:
    """Write the settings."""
    Path(local, SETTINGS).write_text(json.dumps({"socket": str(socket)}) + "\n", encoding="utf-8")
