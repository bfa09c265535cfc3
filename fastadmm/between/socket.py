"""Bytes to bytes between two processes of one machine, on a Unix socket.

Whoever may write to the socket's file may ask: its owner, root, and its group, which the system is asked for
where it knows who is at the other end. What a caller may send is asked for before it is read, and a question
comes in one go: half of one does not hold a place. The two sides need not
know what the bytes mean: what carries them between organisations imports this module and nothing else of
fastadmm.

A connection carries one question at a time. A question is its deadline in seconds, three sizes, and the
caller, the party and the bytes themselves; an answer is a status, a size and its bytes.
"""

from __future__ import annotations

import math
import os
import pwd
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from fcntl import LOCK_EX, flock
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from fastadmm.errors import ExitCode, FastadmmError, InputError, StorageError

#: Answers a question: who asks, which party is meant, and the question's bytes.
Handler = Callable[[str, str, bytes], bytes]

#: Whether a caller is known, and a question of so many bytes is one that it may ask.
Known = Callable[[str, int], bool]

#: Most bytes of a question or an answer.
LONGEST = 2**31 - 1

#: Longest path of a socket in bytes, a limit of the system's.
_LONGEST_PATH = 107

#: Connections that are served side by side, each by a thread of its own; later ones wait.
_CONNECTIONS = 64

#: Seconds that questions under way have when the server stops.
_GRACE = 2.0

#: Seconds after which a connection that asks nothing makes room.
_QUIET = 60.0

#: A question that has begun is there after so many seconds, and one more for each so many bytes.
_BEGUN, _PACE = 10.0, 4 << 20

#: Bytes of a question that is read whoever asks; and of all longer ones of unknown callers together.
_SHORT, STRANGERS = 2 << 20, 64 << 20

#: Seconds that a connection which sends nothing is left alone though others wait.
_POLITE = 1.0

#: Bytes that there is room for before any of them has come.
_PIECE = 1 << 20

_QUESTION, _ANSWER = struct.Struct("<dHHQ"), struct.Struct("<BQ")
_ANSWERED, _UNREACHED, _FAILED = range(3)

_until: ContextVar[float] = ContextVar("until", default=math.inf)


class Lost(FastadmmError, ConnectionError):
    """A party did not answer: nobody is there, or not within the deadline."""

    exit_code = ExitCode.STORAGE


def seconds_left() -> float | None:
    """Within a handler: seconds until the asker gives up; None where it waits for ever."""
    until = _until.get()
    return None if until == math.inf else max(0.0, until - time.monotonic())


class Socket:
    """Asks whoever serves a socket."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self._lock = threading.Lock()
        self._unused: list[socket.socket] = []

    def ask(self, party: str, raw: bytes, seconds: float | None, caller: str = "") -> bytes:
        """Ask a question and wait for its answer. Several threads may ask at the same time."""
        if len(raw) > LONGEST:
            raise InputError(
                f"{self.path}: a message of {len(raw):,} bytes for {party!r}; most are {LONGEST:,}"
            )
        until = math.inf if seconds is None else time.monotonic() + seconds
        names = [name.encode() for name in (caller, party)]
        try:
            status, answer = self._answer(names, raw, until)
        except TimeoutError:
            reason = f"no answer within {seconds or 0:g} s"
        except PermissionError:
            reason = "this user may not write to that socket"
        except OSError:
            reason = "nobody answers there" if self.path.is_socket() else "there is no such socket"
        else:
            if status == _ANSWERED:
                return answer
            reason = "it failed while answering; its log says why"
            if status == _UNREACHED:
                reason = "it cannot be reached from there"
        raise Lost(f"{self.path}: party {party!r} is lost: {reason}")

    def close(self) -> None:
        """Close the connections that nobody waits at for an answer; a later question opens another."""
        with self._lock:
            while self._unused:
                self._unused.pop().close()

    def __del__(self) -> None:
        self.close()

    def _answer(self, names: list[bytes], raw: bytes, until: float) -> tuple[int, bytes]:
        with self._lock:
            connection = self._unused.pop() if self._unused else None
        if connection is not None:
            try:
                return self._answer_on(connection, names, raw, until)
            except ConnectionError:
                pass  # nobody is at its other end any more; perhaps at the end of a new one
        connection = socket.socket(socket.AF_UNIX)
        try:
            while True:
                _hurry(connection, until)
                try:
                    connection.connect(str(self.path))
                    break
                except BlockingIOError:  # more wait there than the system keeps in a queue
                    time.sleep(0.05)
        except BaseException:
            connection.close()
            raise
        return self._answer_on(connection, names, raw, until)

    def _answer_on(
        self, connection: socket.socket, names: list[bytes], raw: bytes, until: float
    ) -> tuple[int, bytes]:
        try:
            sizes = [len(name) for name in names]
            left = until - time.monotonic()
            _send(connection, [_QUESTION.pack(left, *sizes, len(raw)), *names, raw], until)
            status, size = _ANSWER.unpack(_receive(connection, _ANSWER.size, until))
            answer = _receive(connection, size, until)
        except BaseException:
            connection.close()  # an answer that comes later is nobody's
            raise
        with self._lock:
            self._unused.append(connection)
        return status, answer


class Server:
    """A socket that is being served, until :meth:`stop`; :func:`serve` makes it."""

    def __init__(self, listener: socket.socket, path: Path, handler: Handler, known: Known | None) -> None:
        self.path, self._listener, self._handler, self._known = path, listener, handler, known
        self._strangers = 0
        # Another process may replace the file.
        self._identity = _identity(path)
        self._group = path.lstat().st_gid
        self._room = threading.BoundedSemaphore(_CONNECTIONS)
        self._lock = threading.Condition()
        self._connections: dict[socket.socket, bool] = {}
        # Since when connections send nothing that is waited for; the longest first.
        self._quiet: dict[socket.socket, float] = {}
        self._ended = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self, grace: float = _GRACE) -> None:
        """Take no more questions, let those under way end, and remove the socket's file."""
        with _alone(self.path.parent), suppress(FileNotFoundError):
            if _identity(self.path) == self._identity:
                self.path.unlink()
        with self._lock:
            self._ended.set()
            _end(self._listener)
            self._lock.wait_for(lambda: not any(self._connections.values()), grace)
            for connection in self._connections:
                _end(connection)
        self._listener.close()

    def wait(self) -> None:
        """Until :meth:`stop`."""
        # A signal that reaches another thread does not wake this one, which has to raise what follows.
        while not self._ended.wait(1.0):
            pass

    def _accept(self) -> None:
        while not self._ended.is_set():
            while not self._room.acquire(timeout=0.1):
                self._make_room()
            try:
                connection, _ = self._listener.accept()
            except OSError:  # it was stopped, or asks for more files than a process may have
                self._room.release()
                self._ended.wait(0.1)
                continue
            if not _may_ask(connection, self._group):
                connection.close()
                self._room.release()
                continue
            with self._lock:
                self._connections[connection] = False
            try:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            except RuntimeError:  # more threads than a process may have
                self._leave(connection)
                self._ended.wait(0.1)

    def _make_room(self) -> None:
        """End the connection that has sent nothing for longest; whoever asks again opens another."""
        with self._lock:
            connection, since = next(iter(self._quiet.items()), (None, math.inf))
            if connection is not None and time.monotonic() - since > _POLITE:
                del self._quiet[connection]
                _end(connection)

    def _leave(self, connection: socket.socket) -> None:
        with self._lock:
            del self._connections[connection]
            self._lock.notify_all()
        connection.close()
        self._room.release()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while self._answer(connection):
                pass
        except OSError:
            pass  # the asker has gone
        finally:
            self._leave(connection)

    def _answer(self, connection: socket.socket) -> bool:
        """Answer one question; whether another may follow."""
        with ExitStack() as room:
            try:
                self._heard(connection)
                head = _receive(connection, _QUESTION.size, time.monotonic() + _QUIET)
                seconds, *sizes, size = _QUESTION.unpack(head)
                if not seconds > 0 or size > LONGEST:
                    return False
                begin = time.monotonic()
                until = begin + _BEGUN + size / _PACE
                names = [_receive(connection, n, until) for n in sizes]
                caller, party = (name.decode(errors="replace") for name in names)
                if not room.enter_context(self._room_for(caller, size)):
                    return False
                raw = _receive(connection, size, until, lambda: self._heard(connection))
            finally:
                with self._lock:
                    self._quiet.pop(connection, None)
            with self._lock:
                if self._ended.is_set():
                    return False
                self._connections[connection] = True
            try:
                _until.set(begin + seconds)
                status, answer = self._handled(caller, party, raw)
                until = time.monotonic() + _BEGUN + len(answer) / _PACE
                _send(connection, [_ANSWER.pack(status, len(answer)), answer], until)
            finally:
                with self._lock:
                    self._connections[connection] = False
                    self._lock.notify_all()
            return not self._ended.is_set()

    def _heard(self, connection: socket.socket) -> None:
        """Something came, or is waited for from now on."""
        with self._lock:
            self._quiet.pop(connection, None)
            self._quiet[connection] = time.monotonic()

    @contextmanager
    def _room_for(self, caller: str, size: int) -> Iterator[bool]:
        """Whether a question of this size is read: of a known caller, a short one, or few of strangers."""
        if size <= _SHORT or self._known is None or self._known(caller, size):
            yield True
            return
        with self._lock:
            there_is = self._strangers + size <= STRANGERS
            self._strangers += size if there_is else 0
        try:
            yield there_is
        finally:
            with self._lock:
                self._strangers -= size if there_is else 0

    def _handled(self, caller: str, party: str, raw: bytes) -> tuple[int, bytes]:
        try:
            answer = self._handler(caller, party, raw)
            if len(answer) > LONGEST:
                raise InputError(f"{self.path}: an answer of {len(answer):,} bytes; most are {LONGEST:,}")
        except Lost:
            return _UNREACHED, b""
        except Exception:
            import logging

            # The text may hold data, and does not leave this process.
            logging.getLogger("fastadmm.between").exception("a question was not answered")
            return _FAILED, b""
        return _ANSWERED, answer


def serve(path: str | Path, handler: Handler, known: Known | None = None) -> Server:
    """Answer what is asked at a socket, on threads of this process.

    The file is readable and writable for its owner and its group. A file that a dead process left is
    replaced.
    """
    path = Path(path).absolute()
    try:
        with _alone(path.parent), TemporaryDirectory(prefix=".", dir=path.parent) as private:
            # Made where nobody else can go, and shown when its mode is right.
            made = Path(private, "s")
            if max(len(os.fsencode(path)), len(os.fsencode(made))) > _LONGEST_PATH:
                raise StorageError(
                    f"{path}: too long for a socket, which has {_LONGEST_PATH} bytes; shorten it"
                )
            _free(path)
            listener = socket.socket(socket.AF_UNIX)
            try:
                listener.bind(str(made))
                listener.listen(_CONNECTIONS)
                made.chmod(0o660)
                os.link(made, path)
                return Server(listener, path, handler, known)
            except BaseException:
                listener.close()
                raise
    except OSError as error:
        if isinstance(error, FastadmmError):
            raise
        raise StorageError(f"{path}: cannot serve this socket: {error.strerror or error}") from error


def _hurry(connection: socket.socket, until: float) -> None:
    """Let what comes next on a connection end in time."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(None if left == math.inf else left)


def _send(connection: socket.socket, parts: list[bytes], until: float) -> None:
    """As much as there is room for in one go, without a copy: whoever waits for it wakes up once."""
    _hurry(connection, until)
    sent = connection.sendmsg(parts)
    for part in parts:
        if sent < len(part):
            _hurry(connection, until)
            connection.sendall(memoryview(part)[sent:])
        sent = max(0, sent - len(part))


def _receive(
    connection: socket.socket, size: int, until: float, heard: Callable[[], None] | None = None
) -> bytes:
    """Exactly so many bytes; ``heard`` is called with every piece of them."""
    content = BytesIO()  # room for what has been promised is made as it comes in
    while left := size - content.tell():
        _hurry(connection, until)
        part = connection.recv(min(left, _PIECE))
        if not part:
            raise ConnectionResetError
        content.write(part)
        if heard is not None:
            heard()
    return content.getvalue()


def _may_ask(connection: socket.socket, group: int) -> bool:
    """Whether the other end belongs to this user, to root, or to a member of the socket's group."""
    kind = getattr(socket, "SO_PEERCRED", None)
    if kind is None:
        return True  # the file's mode alone decides
    _, user, own = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, kind, struct.calcsize("3i")))
    return user in (0, os.geteuid()) or own == group or group in _groups(user)


@cache
def _groups(user: int) -> frozenset[int]:
    """Groups that the system's files name a user in."""
    try:
        entry = pwd.getpwuid(user)
        return frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid))
    except (KeyError, OSError):
        return frozenset()


def _end(connection: socket.socket) -> None:
    """Wake whoever waits for something on a socket."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


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
