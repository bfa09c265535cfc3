"""Bytes to bytes between two processes of one machine, on a Unix socket.

Whoever may write to the socket's file may ask: its owner, root, and its group. A question comes in one go:
half of one is soon given up. The two sides need not know what the bytes mean: what carries them between
organisations imports this module and nothing else of fastadmm.

A connection carries one question at a time. A question is its deadline in seconds, three sizes, and the
caller, the party and the bytes themselves; an answer is a status, a size and its bytes.
"""

import math
import os
import socket
import socketserver
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from io import BytesIO
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from fastadmm.errors import ExitCode, FastadmmError, InputError, StorageError

T = TypeVar("T")

#: Answers a question: who asks, which party is meant, and the question's bytes.
Handler = Callable[[str, str, bytes], bytes]

#: Is given lines for people.
Say = Callable[[str], None]

#: Whether a caller is known, and a question of so many bytes is one that it may ask.
Known = Callable[[str, int], bool]

#: Most bytes of a question or an answer.
LONGEST = 2**31 - 1

#: Longest path of a socket in bytes, a limit of the system's.
_LONGEST_PATH = 107

#: Seconds that questions under way have when the server stops.
_GRACE = 2.0

#: Seconds after which a connection that asks nothing ends.
_QUIET = 60.0

#: A question that has begun is there after so many seconds, and one more for each so many bytes.
_BEGUN, _PACE = 10.0, 4 << 20

#: Bytes of a question that is read whoever asks; and of all longer ones of unknown callers together.
_SHORT, STRANGERS = 2 << 20, 64 << 20

#: Bytes that there is room for before any of them has come.
_PIECE = 1 << 20

_QUESTION, _ANSWER = struct.Struct("<dHHQ"), struct.Struct("<BQ")
_ANSWERED, _UNREACHED, _FAILED = range(3)
_REASONS = ("", "it cannot be reached from there", "it failed while answering; its log says why")

_until: ContextVar[float] = ContextVar("until", default=math.inf)


class Lost(FastadmmError, ConnectionError):
    """A party did not answer: nobody is there, or not within the deadline."""

    exit_code = ExitCode.STORAGE


def pauses(seconds: float, first: float, most: float = 0.0) -> Iterator[float]:
    """Pauses that double up to the longest, until so many seconds from now are over."""
    end, lengths = time.monotonic() + seconds, (first * 2.0 ** min(k, 20) for k in count())
    return iter(lambda: max(0.0, min(next(lengths), max(first, most), end - time.monotonic())), 0.0)


def again(
    attempt: Callable[[], T],
    between: Iterable[float],
    say: Say = lambda line: None,
    *,
    over: threading.Event | None = None,
    kinds: tuple[type[Exception], ...] = (Lost,),
    words: str = "{}; next attempt in {:g} s",
) -> T:
    """What an attempt gives, which is made again after each pause until all is over; the last is final."""
    told, rest = "", iter(between)
    while True:
        try:
            return attempt()
        except kinds as error:
            if (pause := next(rest, None)) is None:
                raise
            text = words.format(error, pause)
            if text != told and not (over and over.is_set()):
                say(text)
            told = text
            if (over.wait if over else time.sleep)(pause):
                raise


def seconds_left() -> float | None:
    """Within a handler: seconds until the asker gives up; None where it waits for ever."""
    until = _until.get()
    return None if until == math.inf else max(0.0, until - time.monotonic())


class Socket:
    """Asks whoever serves a socket."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self._unused: list[socket.socket] = []  # appending and popping need no lock

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
            if status == _ANSWERED:
                return answer
            reason = _REASONS[min(status, _FAILED)]
        except TimeoutError:
            reason = f"no answer within {seconds or 0:g} s"
        except OSError as error:
            reason = error.strerror or "the connection has ended"
        raise Lost(f"{self.path}: party {party!r} is lost: {reason}")

    def __del__(self) -> None:
        for connection in self._unused:
            connection.close()

    def _answer(self, names: list[bytes], raw: bytes, until: float) -> tuple[int, bytes]:
        with suppress(ConnectionError, IndexError):  # it has ended meanwhile, or there is none
            return self._answer_on(self._unused.pop(), True, names, raw, until)
        return self._answer_on(socket.socket(socket.AF_UNIX), False, names, raw, until)

    def _answer_on(
        self, connection: socket.socket, connected: bool, names: list[bytes], raw: bytes, until: float
    ) -> tuple[int, bytes]:
        with ExitStack() as failed:
            failed.callback(connection.close)  # an answer that comes later is nobody's
            if not connected:
                _connect(connection, self.path, until)
            sizes = [len(name) for name in names]
            head = _QUESTION.pack(until - time.monotonic(), *sizes, len(raw))
            _send(connection, [head, *names, raw], until)
            status, size = _ANSWER.unpack(_receive(connection, _ANSWER.size, until))
            answer = _receive(connection, size, until)
            failed.pop_all()
        self._unused.append(connection)
        return status, answer


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A socket that is being served, until :meth:`stop`; :func:`serve` makes it."""

    daemon_threads, block_on_close, request_queue_size = True, False, 128

    def __init__(self, path: Path, made: Path, handler: Handler, known: Known) -> None:
        super().__init__(str(made), socketserver.BaseRequestHandler)
        self.path, self._handler, self._known = path, handler, known
        self._strangers = 0  # bytes of unknown callers
        self._lock = threading.Condition()
        self._answering = 0
        self._ended = threading.Event()
        made.chmod(0o660)
        os.link(made, path)
        self._file = path.lstat()  # somebody may put another in its place
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()

    def stop(self, grace: float = _GRACE) -> None:
        """Take no more questions, let those under way end, and remove the socket's file."""
        with suppress(FileNotFoundError):
            if os.path.samestat(self.path.lstat(), self._file):
                self.path.unlink()
        self._ended.set()
        self.shutdown()
        self.server_close()
        with self._lock:
            self._lock.wait_for(lambda: not self._answering, grace)

    def wait(self) -> None:
        """Until :meth:`stop`."""
        # A signal that reaches another thread does not wake this one, which has to raise what follows.
        while not self._ended.wait(1.0):
            pass

    def get_request(self) -> Any:
        """The next connection."""
        try:
            return super().get_request()
        except OSError:  # it asks for more files than a process may have
            time.sleep(0.1)
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The asker has gone, or there are more threads than a process may have: it asks again."""

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer the questions of a connection."""
        while self._answer(request):
            pass

    def _answer(self, request: socket.socket) -> bool:
        """Answer one question; whether another may follow."""
        head = _receive(request, _QUESTION.size, time.monotonic() + _QUIET)
        seconds, *sizes, size = _QUESTION.unpack(head)
        if not seconds > 0 or size > LONGEST:
            return False
        begin = time.monotonic()
        until = begin + _BEGUN + size / _PACE
        caller, party = (_receive(request, n, until).decode(errors="replace") for n in sizes)
        with self._room_for(caller, size) as there_is:
            if not there_is:
                return False
            raw = _receive(request, size, until)
            with self._lock:
                if self._ended.is_set():
                    return False
                self._answering += 1
            try:
                _until.set(begin + seconds)
                status, answer = self._handled(caller, party, raw)
                until = time.monotonic() + _BEGUN + len(answer) / _PACE
                _send(request, [_ANSWER.pack(status, len(answer)), answer], until)
            finally:
                with self._lock:
                    self._answering -= 1
                    self._lock.notify_all()
        return not self._ended.is_set()

    @contextmanager
    def _room_for(self, caller: str, size: int) -> Iterator[bool]:
        """Whether a question of this size is read: of a known caller, a short one, or few of strangers."""
        size = 0 if size <= _SHORT or self._known(caller, size) else size
        with self._lock:
            there_is = self._strangers + size <= STRANGERS
            self._strangers += size * there_is
        try:
            yield there_is
        finally:
            with self._lock:
                self._strangers -= size * there_is

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


def serve(path: str | Path, handler: Handler, known: Known = lambda caller, size: True) -> Server:
    """Answer what is asked at a socket, on threads of this process.

    The file is readable and writable for its owner and its group. A file that a dead process left is
    replaced.
    """
    path = Path(path).absolute()
    try:
        with TemporaryDirectory(prefix=".", dir=path.parent) as private:
            # Made where nobody else can go, and shown when its mode is right.
            made = Path(private, "s")
            if max(len(os.fsencode(path)), len(os.fsencode(made))) > _LONGEST_PATH:
                raise StorageError(
                    f"{path}: too long for a socket, which has {_LONGEST_PATH} bytes; shorten it"
                )
            _free(path)
            return Server(path, made, handler, known)
    except OSError as error:
        if isinstance(error, FastadmmError):
            raise
        raise StorageError(f"{path}: cannot serve this socket: {error.strerror or error}") from error


def _connect(connection: socket.socket, path: Path, until: float) -> None:
    while True:
        _hurry(connection, until)
        try:
            connection.connect(str(path))
            return
        except BlockingIOError:  # more wait there than the system keeps in a queue
            time.sleep(0.05)


def _hurry(connection: socket.socket, until: float) -> None:
    """Let what comes next on a connection end in time."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(None if left == math.inf else left)


def _send(connection: socket.socket, parts: list[bytes], until: float) -> None:
    """All in one go: whoever waits for it wakes up once."""
    _hurry(connection, until)
    connection.sendall(b"".join(parts))


def _receive(connection: socket.socket, size: int, until: float) -> bytes:
    """Exactly so many bytes."""
    content = BytesIO()  # room for what has been promised is made as it comes in
    while left := size - content.tell():
        _hurry(connection, until)
        part = connection.recv(min(left, _PIECE))
        if not part:
            raise ConnectionResetError
        content.write(part)
    return content.getvalue()


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
