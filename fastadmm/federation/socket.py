"""Bytes to bytes between two processes of one machine, by gRPC on a Unix socket.

Whoever may write to the socket's file may ask; that is the file system's to decide. The two sides need not
know what the bytes mean: what carries them between organisations imports this module and nothing else of
fastadmm.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from fcntl import LOCK_EX, flock
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastadmm.errors import ConfigError, ExitCode, FastadmmError, InputError, StorageError

__all__ = ["INSTALL_HINT", "LONGEST", "Handler", "Lost", "Server", "Socket", "seconds_left", "serve"]

#: Answers a question: who asks, which party is meant, and the question's bytes.
Handler = Callable[[str, str, bytes], bytes]

INSTALL_HINT = 'needs the packages of an extra; install it with: pip install "fastadmm[nvflare]"'

#: Most bytes of a question or an answer: what gRPC can count.
LONGEST = 2**31 - 1

#: Longest path of a socket in bytes, a limit of the system's.
_LONGEST_PATH = 107

#: Questions that are answered side by side; a thread is made when it is first needed.
_THREADS = 64

#: Seconds that questions under way have when the server stops.
_GRACE = 2.0

_METHOD = "/fastadmm.Exchange/ask"

_OPTIONS = [
    ("grpc.max_receive_message_length", LONGEST),
    ("grpc.max_send_message_length", LONGEST),
    # Connections share nothing: a new one does not wait because an old one failed.
    ("grpc.use_local_subchannel_pool", 1),
]

_until: ContextVar[float | None] = ContextVar("until", default=None)


class Lost(FastadmmError, ConnectionError):
    """A party did not answer: nobody is there, or not within the deadline."""

    exit_code = ExitCode.STORAGE


def seconds_left() -> float | None:
    """Within a handler: seconds until the asker gives up; None where it waits for ever."""
    until = _until.get()
    return None if until is None else max(0.0, until - time.monotonic())


def _grpc() -> Any:
    try:
        import grpc
    except ImportError:
        raise ConfigError(f"federation: grpcio is missing: a party behind a socket {INSTALL_HINT}") from None
    return grpc


class Socket:
    """Asks whoever serves a socket.

    Parameters
    ----------
    path : str or Path
        The socket's file. It need not be there yet.

    Raises
    ------
    ConfigError
        If grpcio is not installed.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self._rpc = _grpc()
        self._lock = threading.Lock()
        self._connection: _Connection | None = None
        self._forgotten: list[_Connection] = []

    def ask(self, party: str, raw: bytes, seconds: float | None, caller: str = "") -> bytes:
        """Ask a question and wait for its answer. Several threads may ask at the same time.

        Parameters
        ----------
        party : str
            Whom the question is for.
        raw : bytes
            At most :data:`LONGEST`.
        seconds : float or None
            Deadline; None waits for ever.
        caller : str
            Who asks, as far as this side knows.

        Returns
        -------
        bytes

        Raises
        ------
        Lost
            If there is no answer.
        InputError
            If the question is too long.
        """
        if len(raw) > LONGEST:
            raise InputError(
                f"{self.path}: a message of {len(raw):,} bytes for {party!r}; most are {LONGEST:,}"
            )
        heads = (("caller-bin", caller.encode()), ("party-bin", party.encode()))
        with self._connected() as connection:
            try:
                return connection.ask(bytes(raw), timeout=seconds, metadata=heads)
            except self._rpc.RpcError as error:
                code = error.code()
                if code == self._rpc.StatusCode.UNAVAILABLE:
                    self._forget(connection)
        raise Lost(f"{self.path}: party {party!r} is lost: {self._reason(code, seconds)}")

    def close(self) -> None:
        """Close the connection once nobody waits for an answer; a later question opens another."""
        self._forget(self._connection)

    @contextmanager
    def _connected(self) -> Iterator[_Connection]:
        with self._lock:
            if self._connection is None:
                self._connection = _Connection(self._rpc, self.path)
            connection = self._connection
            connection.users += 1
        try:
            yield connection
        finally:
            with self._lock:
                connection.users -= 1
            self._forget(None)

    def _forget(self, connection: _Connection | None) -> None:
        """Let the next question open another connection: one that failed waits before it tries again."""
        with self._lock:
            if connection is not None and connection is self._connection:
                self._forgotten.append(connection)
                self._connection = None
            unused = [old for old in self._forgotten if not old.users]
            self._forgotten = [old for old in self._forgotten if old.users]
        for old in unused:
            old.channel.close()

    def _reason(self, code: Any, seconds: float | None) -> str:
        codes = self._rpc.StatusCode
        if code == codes.DEADLINE_EXCEEDED:
            return f"no answer within {seconds or 0:g} s"
        if code == codes.RESOURCE_EXHAUSTED:
            return f"a message is longer than {LONGEST:,} bytes"
        if code == codes.CANCELLED:
            return "the connection was closed"
        if code == codes.ABORTED:
            return "it cannot be reached from there"
        if code == codes.UNAVAILABLE:
            return "nobody answers there" if self.path.is_socket() else "there is no such socket"
        return "it failed while answering; its log says why"


class _Connection:
    """A channel, and how many wait for an answer through it."""

    def __init__(self, rpc: Any, path: Path) -> None:
        self.channel = rpc.insecure_channel(f"unix:{path}", options=_OPTIONS)
        self.ask = self.channel.unary_unary(_METHOD)
        self.users = 0


class Server:
    """A socket that is being served, until :meth:`stop`; :func:`serve` makes it.

    Parameters
    ----------
    server : grpc.Server
        Started.
    path : Path
    identity : tuple of int
        Device and inode of the file, which another process may replace.
    """

    def __init__(self, server: Any, path: Path, identity: tuple[int, int]) -> None:
        self.path, self._server, self._identity = path, server, identity

    def stop(self, grace: float = _GRACE) -> None:
        """Take no more questions, let those under way end, and remove the socket's file.

        Parameters
        ----------
        grace : float
            Seconds after which a question under way is given up.
        """
        with _alone(self.path.parent), suppress(FileNotFoundError):
            if _identity(self.path) == self._identity:
                self.path.unlink()
        self._server.stop(grace).wait()

    def wait(self) -> None:
        """Until :meth:`stop`."""
        self._server.wait_for_termination()


def serve(path: str | Path, handler: Handler) -> Server:
    """Answer what is asked at a socket, on threads of this process.

    The file is readable and writable for its owner and its group. A file that a dead process left is
    replaced.

    Parameters
    ----------
    path : str or Path
        The socket's file; its directory exists.
    handler : callable
        Called with the caller, the party and the question's bytes, on several threads at the same time.
        What it raises reaches its asker as :class:`Lost`, without its text.

    Returns
    -------
    Server

    Raises
    ------
    StorageError
        If somebody answers there, the path is no socket, is too long, or cannot be written.
    ConfigError
        If grpcio is not installed.
    """
    rpc, path = _grpc(), Path(path).absolute()
    try:
        with _alone(path.parent), TemporaryDirectory(prefix=".", dir=path.parent) as private:
            # Made where nobody else can go, and shown when its mode is right.
            made = Path(private, "s")
            if max(len(os.fsencode(path)), len(os.fsencode(made))) > _LONGEST_PATH:
                raise StorageError(
                    f"{path}: too long for a socket, which has {_LONGEST_PATH} bytes; shorten it"
                )
            _free(path)
            server = rpc.server(ThreadPoolExecutor(_THREADS), options=_OPTIONS)
            method = rpc.unary_unary_rpc_method_handler(_answering(rpc, handler))
            server.add_generic_rpc_handlers((_Service(method),))
            server.add_insecure_port(f"unix:{made}")
            server.start()
            made.chmod(0o660)
            os.link(made, path)
            return Server(server, path, _identity(path))
    except OSError as error:
        if isinstance(error, FastadmmError):
            raise
        raise StorageError(f"{path}: cannot serve this socket: {error.strerror or error}") from error


class _Service:
    """What gRPC asks for the handler of a call."""

    def __init__(self, method: Any) -> None:
        self._method = method

    def service_name(self) -> str:
        return _METHOD.split("/")[1]

    def service(self, call: Any) -> Any:
        return self._method if call.method == _METHOD else None


def _answering(rpc: Any, handler: Handler) -> Callable[[bytes, Any], bytes]:
    def answer(raw: bytes, context: Any) -> bytes:
        heads = dict(context.invocation_metadata())
        left = context.time_remaining()
        _until.set(None if left is None else time.monotonic() + left)
        try:
            caller, party = (heads.get(f"{key}-bin", b"").decode() for key in ("caller", "party"))
            return handler(caller, party, raw)
        except Lost:
            context.abort(rpc.StatusCode.ABORTED, "")
        except Exception:
            import logging

            # The text may hold data, and does not leave this process.
            logging.getLogger("fastadmm.federation").exception("a question was not answered")
            context.abort(rpc.StatusCode.INTERNAL, "")
        raise AssertionError

    return answer


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One process at a time looks whether a socket is free, and takes it."""
    held = os.open(directory, os.O_RDONLY)
    try:
        flock(held, LOCK_EX)
        yield
    finally:
        os.close(held)


def _free(path: Path) -> None:
    """Remove a socket's file that nobody serves any more."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StorageError(f"{path}: exists already and is no socket; choose another name")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise StorageError(f"{path}: somebody serves this socket already; stop that process first")


def _identity(path: Path) -> tuple[int, int]:
    about = path.lstat()
    return about.st_dev, about.st_ino
