"""Questions for parties, carried by NVFlare: a job is submitted when there is none, again after a loss."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastadmm.errors import ConfigError, FastadmmError, InputError
from fastadmm.federation.job import write_job
from fastadmm.federation.kit import Kit
from fastadmm.federation.nvflare_app import END, HELLO
from fastadmm.federation.socket import INSTALL_HINT, Lost, Socket
from fastadmm.version import __version__

__all__ = ["Carrier", "session"]

#: Seconds between two looks at a job that begins.
_LOOK = 0.25

#: Seconds before a lost party is asked again: the first time, and at most.
_SHORTEST, _LONGEST = 0.5, 30.0

#: Seconds for a question to the server's relay, and for connecting to the server.
_HELLO_SECONDS, _CONNECT = 5.0, 10.0


@contextmanager
def session(kit: Kit) -> Iterator[Any]:
    """A session of NVFlare's administration.

    Parameters
    ----------
    kit : Kit
        Of an administrator.

    Yields
    ------
    nvflare.fuel.flare_api.flare_api.Session

    Raises
    ------
    Lost
        If the server cannot be reached.
    ConfigError
        If NVFlare is not installed, or the server refuses this user.
    InputError
        If the kit is not an administrator's.
    """
    if kit.kind != "admin":
        raise InputError(f"{kit.path}: the kit of a {kit.kind}; an administrator's is needed")
    try:
        from nvflare.fuel.flare_api.api_spec import AuthenticationError, AuthorizationError, NoConnection
        from nvflare.fuel.flare_api.flare_api import new_secure_session
    except ImportError:
        raise ConfigError(f"federation: NVFlare is missing: this {INSTALL_HINT}") from None
    server = f"server {kit.host}:{kit.port}"
    opened = None
    try:
        with redirect_stdout(io.StringIO()):  # "Connecting to FLARE ..."
            opened = new_secure_session(kit.name, str(kit.path), timeout=_CONNECT)
        yield opened
    except (AuthenticationError, AuthorizationError) as error:
        raise ConfigError(f"{kit.path}: {server} refuses {kit.name!r}: {_words(error)}") from None
    except FastadmmError:
        raise
    except NoConnection as error:
        raise Lost(f"{server} does not answer: {_words(error)}") from None
    except Exception as error:
        raise Lost(f"{server}: {_words(error)}") from None
    finally:
        if opened is not None:
            with suppress(Exception), redirect_stdout(io.StringIO()):
                opened.close()


class Carrier:
    """Asks parties through NVFlare.

    A question that is not answered is asked again, after a new job was submitted where the last one ended;
    an agent answers a question that it has answered before with the same bytes.

    Parameters
    ----------
    kit : Kit
        Of the administrator who submits jobs.
    socket : Path
        The socket of the server's relay.
    sites : mapping of str to str
        NVFlare's name of the site of each party.
    patience : float
        Seconds for which a lost party is waited for.
    say : callable
        Shows one line.
    """

    def __init__(
        self,
        kit: Kit,
        socket: Path,
        sites: Mapping[str, str],
        patience: float = 600.0,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._kit, self._sites, self._patience, self._say = kit, sites, patience, say
        self._relay = Socket(socket)
        self._lock = threading.Lock()
        self._ready = False
        self.job = ""

    def ask(self, party: str, raw: bytes, seconds: float) -> bytes:
        """Ask a party, until it answers or patience ends.

        Parameters
        ----------
        party : str
        raw : bytes
        seconds : float
            Deadline of one attempt.

        Returns
        -------
        bytes

        Raises
        ------
        Lost
            If the party stayed lost.
        ConfigError
            If the server refuses, or a site has another version of fastadmm.
        """
        until, pause = time.monotonic() + self._patience, _SHORTEST
        while True:
            try:
                self._begin(until)
                return self._relay.ask(self._sites[party], raw, seconds, caller=self._kit.name)
            except Lost as lost:
                self._ready = False
                if time.monotonic() + pause > until:
                    raise
                self._say(f"{lost}; asking again in {pause:g} s")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)

    def close(self) -> None:
        """End the job that is running."""
        with suppress(Lost):
            self._relay.ask("", END, _HELLO_SECONDS)
        self._relay.close()

    def _begin(self, until: float) -> None:
        """Until a job is running: the one that is there, or a new one."""
        with self._lock:
            if self._ready:
                return
            if not self._greeted():
                self._submit(until)
            self._ready = True

    def _greeted(self) -> bool:
        try:
            versions = json.loads(self._relay.ask("", HELLO, _HELLO_SECONDS))
        except Lost:
            return False
        for party, site in self._sites.items():
            if site not in versions:
                raise ConfigError(
                    f"{self._relay.path}: the job that runs is without {party!r} (site {site!r})"
                )
            if versions[site] != __version__:
                raise ConfigError(f"site {site!r}: has fastadmm {versions[site]}, not {__version__} as here")
        return True

    def _submit(self, until: float) -> None:
        with session(self._kit) as server, TemporaryDirectory() as directory:
            if self.job:
                with suppress(Exception):
                    server.abort_job(self.job)
            self._complete(server)
            self.job = server.submit_job(str(write_job(Path(directory), sorted(set(self._sites.values())))))
            self._say(f"job {self.job} is submitted")
            while not self._greeted():
                meta = server.get_job_meta(self.job)
                if meta["status"].startswith("FINISHED"):
                    details = "; ".join(meta.get("job_deploy_detail") or ["its log says why"])
                    raise Lost(f"job {self.job} ended before it began ({meta['status']}): {details}")
                if time.monotonic() > until:
                    raise Lost(f"job {self.job} has not begun ({meta['status']})")
                time.sleep(_LOOK)
            self._say(f"job {self.job} is running")

    def _complete(self, server: Any) -> None:
        there = {client["client_name"] for client in server.check_status("server").get("clients", [])}
        for party, site in self._sites.items():
            if site not in there:
                raise Lost(
                    f"site {site!r} of party {party!r} is not connected to {self._kit.host}:{self._kit.port}"
                )


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
