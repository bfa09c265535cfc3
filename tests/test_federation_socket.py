"""Bytes over a Unix socket: equal on both sides, one clear error when nobody answers, and no file left."""

import math
import os
import signal
import socket
import stat
import struct
import sys
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from types import SimpleNamespace

import pytest
from fastadmm.between import carrier, nvflare_app, predict
from fastadmm.between import socket as transport
from fastadmm.between.nvflare_app import write_socket
from fastadmm.between.socket import Lost, Socket, seconds_left, serve
from fastadmm.errors import StorageError

from run_tools import refuses, running


def echo(caller, party, raw):
    return b"\0".join([caller.encode(), party.encode(), raw])


@contextmanager
def serving(path, handler=echo):
    server = serve(path, handler)
    try:
        yield server
    finally:
        server.stop(0)


def test_every_byte_and_name_arrives_and_several_ask(tmp_path):
    with serving(tmp_path / "s") as server:
        raw = bytes(range(256)) * 40_000  # beyond what is sent or taken at once
        assert Socket(tmp_path / "s").ask("Zürich\n1", raw, 60, caller="site, α") == echo(
            "site, α", "Zürich\n1", raw
        )
        assert Socket(tmp_path / "s").ask("b", b"", 60) == b"\0b\0"
        begin = time.monotonic()
        server.stop(30.0)
        assert time.monotonic() - begin < 20.0  # nothing is under way
    # Several ask at the same time.
    together = threading.Barrier(5, timeout=60)

    def wait(caller, party, raw):
        together.wait()
        return raw

    with serving(tmp_path / "s", wait), ThreadPoolExecutor(5) as pool:
        assert list(pool.map(lambda i: Socket(tmp_path / "s").ask("a", bytes([i]), 60), range(5))) == [
            bytes([i]) for i in range(5)
        ]


def test_a_signal_that_another_thread_takes_ends_the_waiting(tmp_path):
    with serving(tmp_path / "s") as server:
        taken = threading.Timer(0.3, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT))
        late = threading.Timer(20, server.stop)
        taken.start()
        late.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                server.wait()
            assert late.is_alive()
        finally:
            late.cancel()


def test_who_does_not_answer_is_lost_within_the_deadline_and_found_again(tmp_path):
    ended = threading.Event()

    def slow(caller, party, raw):
        left = seconds_left()
        assert left is not None
        assert left <= 0.4
        ended.wait(60)
        return raw

    with pytest.raises(Lost, match="s: party 'bank' is lost: No such file or directory"):
        Socket(tmp_path / "s").ask("bank", b"", 5)
    with serving(tmp_path / "s", slow):
        begin = time.monotonic()
        refuses(Lost, r"no answer within 0\.4 s", Socket(tmp_path / "s").ask, "bank", b"", 0.4)
        assert time.monotonic() - begin < 2.4
        ended.set()
    with pytest.raises(Lost):
        Socket(tmp_path / "s").ask("bank", b"", 5)
    with serving(tmp_path / "s"):
        assert Socket(tmp_path / "s").ask("bank", b"x", 60) == b"\0bank\0x"


def test_one_lost_question_leaves_others_alone_and_errors_say_nothing(tmp_path, caplog):
    def by_party(caller, party, raw):
        time.sleep(1.0)
        if party == "lost":
            raise Lost("elsewhere")
        return raw

    with serving(tmp_path / "s", by_party), ThreadPoolExecutor(2) as pool:
        other = pool.submit(Socket(tmp_path / "s").ask, "other", b"x", 60)
        with pytest.raises(Lost, match="'lost' is lost: it cannot be reached from there"):
            Socket(tmp_path / "s").ask("lost", b"", 60)
        assert other.result() == b"x"

    # An error of the answerer says nothing of its data.
    def fail(caller, party, raw):
        raise ValueError("patient 17")

    with serving(tmp_path / "s", fail), pytest.raises(Lost) as caught:
        Socket(tmp_path / "s").ask("a", b"", 60)
    assert "patient" not in str(caught.value)
    assert "its log says why" in str(caught.value)
    assert "patient 17" in caplog.text


def test_owner_and_group_alone_may_ask_and_junk_ends_its_connection_alone(tmp_path):
    with serving(tmp_path / "s"):
        assert stat.S_IMODE((tmp_path / "s").lstat().st_mode) == 0o660
        assert os.listdir(tmp_path) == ["s"]
    assert os.listdir(tmp_path) == []
    # Bytes that are no question end their connection alone.
    with serving(tmp_path / "s"):
        for junk in (b"\0" * 20, b"\xff" * 20):  # no time left; more bytes than a question has
            with socket.socket(socket.AF_UNIX) as other:
                other.connect(str(tmp_path / "s"))
                other.sendall(junk)
                assert other.recv(1) == b""
        assert Socket(tmp_path / "s").ask("a", b"x", 60) == b"\0a\0x"
    # A connection carries questions until its server is replaced.
    asker, threads = Socket(tmp_path / "s"), set[threading.Thread]()

    def answered(answer):
        threads.add(threading.current_thread())
        return answer

    for answer in (b"first", b"second"):
        with serving(tmp_path / "s", lambda caller, party, raw, answer=answer: answered(answer)):
            assert [asker.ask("a", b"", 60) for _ in range(3)] == [answer] * 3
    assert len(threads) == 2


def test_a_living_socket_is_kept_a_dead_one_replaced(tmp_path):
    with serving(tmp_path / "s"):
        refuses(StorageError, "s: somebody serves this socket already", serve, tmp_path / "s", echo)
        assert Socket(tmp_path / "s").ask("a", b"x", 60) == b"\0a\0x"
    code = (
        "import sys, time; from fastadmm.between.socket import serve\n"
        "serve(sys.argv[1], lambda *_: b'dead'); print('up', flush=True); time.sleep(600)"
    )
    with running([sys.executable, "-P", "-c", code, tmp_path / "s"]) as child:
        assert child.stdout.readline() == "up\n"
    assert (tmp_path / "s").is_socket()
    with serving(tmp_path / "s"):
        assert Socket(tmp_path / "s").ask("a", b"x", 60) == b"\0a\0x"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("file", "file: exists already and is no socket"),
        ("none/s", "s: cannot serve this socket: No such file or directory"),
        ("x" * 110, "too long for a socket, which has 107 bytes"),
    ],
)
def test_a_path_that_cannot_be_served(path, message, tmp_path):
    (tmp_path / "file").write_text("mine")
    refuses(StorageError, message, serve, tmp_path / path, echo)
    assert (tmp_path / "file").read_text() == "mine"
    assert os.listdir(tmp_path) == ["file"]


def test_what_is_only_promised_takes_no_memory():
    near, far = socket.socketpair()
    with near, far:
        far.sendall(b"x")
        far.shutdown(socket.SHUT_WR)
        tracemalloc.start()
        with pytest.raises(ConnectionResetError):
            transport._receive(near, transport.LONGEST, math.inf)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 3 << 20


def test_a_server_that_can_start_no_thread_goes_on(tmp_path, monkeypatch):
    with serving(tmp_path / "s"):
        start, failures = threading.Thread.start, [RuntimeError("can't start new thread")]

        def fail_once(thread):
            if failures:
                raise failures.pop()
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", fail_once)
        with pytest.raises(Lost):
            Socket(tmp_path / "s").ask("a", b"", 60)
        assert Socket(tmp_path / "s").ask("a", b"x", 60) == b"\0a\0x"


def test_a_job_that_its_coordinator_leaves_ends_soon_if_nobody_asks(tmp_path, monkeypatch):
    site = SimpleNamespace(name="bank", version=lambda: "1")
    collab = SimpleNamespace(
        main=lambda method: method,
        clients=[site],
        context=SimpleNamespace(abort_signal=SimpleNamespace(triggered=False)),
        workspace=SimpleNamespace(get_site_config_dir=lambda: tmp_path),
    )
    monkeypatch.setitem(sys.modules, "nvflare.collab", SimpleNamespace(collab=collab))
    monkeypatch.setitem(sys.modules, "nvflare", SimpleNamespace(collab=collab))
    monkeypatch.setattr(nvflare_app, "_LEFT", 0.5)
    write_socket(tmp_path, tmp_path / "s")
    with ThreadPoolExecutor(1) as pool:
        relay = pool.submit(nvflare_app.CoordinatorRelay().relay)
        while not (tmp_path / "s").exists():
            time.sleep(0.01)
        for question in (nvflare_app.LEAVE, nvflare_app.HELLO):
            assert Socket(tmp_path / "s").ask("", question, 60) == b'{"bank": "1"}'
        time.sleep(1.0)
        assert not relay.done()  # somebody came back in time
        Socket(tmp_path / "s").ask("", nvflare_app.LEAVE, 60)
        relay.result(60)
    assert not (tmp_path / "s").exists()


def raw_question(caller, size):
    """The beginning of one, without its bytes."""
    return struct.pack("<dHHQ", 600.0, len(caller), 1, size) + caller + b"A"


def ended(connection, seconds):
    """Whether the other end closes within this time."""
    connection.settimeout(seconds)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


@contextmanager
def strangers(path, questions):
    connections = [socket.socket(socket.AF_UNIX) for _ in questions]
    try:
        for connection, question in zip(connections, questions, strict=True):
            connection.connect(str(path))
            connection.sendall(question)
        yield connections
    finally:
        for connection in connections:
            connection.close()


def test_unknown_callers_hold_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(transport, "_SHORT", 1 << 10)
    monkeypatch.setattr(transport, "STRANGERS", 1 << 20)
    server = serve(tmp_path / "s", echo, lambda caller, size: caller == "bank")
    try:
        # Too long for all strangers together; and two that fit one by one, not together.
        with strangers(tmp_path / "s", [raw_question(b"evil", 2 << 20)]) as (far,):
            assert ended(far, 5)
        first, second = raw_question(b"evil", 700 << 10), raw_question(b"worse", 700 << 10)
        with strangers(tmp_path / "s", [first]) as (held,):
            assert not ended(held, 0.5)
            with strangers(tmp_path / "s", [second]) as (refused,):
                assert ended(refused, 5)
            assert Socket(tmp_path / "s").ask("A", bytes(3 << 20), 60, "bank")[:5] == b"bank\0"
            assert Socket(tmp_path / "s").ask("A", bytes(1 << 9), 60, "evil")[:5] == b"evil\0"
        time.sleep(0.3)
        assert Socket(tmp_path / "s").ask("A", bytes(700 << 10), 60, "evil")[:5] == b"evil\0"
    finally:
        server.stop(0)


def test_half_a_question_is_given_up(tmp_path, monkeypatch):
    half = raw_question(b"evi", 1000) + b"half"
    monkeypatch.setattr(transport, "_BEGUN", 0.3)
    with (
        serving(tmp_path / "s"),
        strangers(tmp_path / "s", [half]) as (slow,),
    ):
        assert Socket(tmp_path / "s").ask("A", b"x", 60) == b"\0A\0x"
        for _ in range(5):  # drop by drop is no better
            time.sleep(0.1)
            with suppress(OSError):
                slow.sendall(b".")
        assert ended(slow, 5)


def test_a_command_that_scores_leaves_the_job_to_the_next(monkeypatch):
    asked = []
    setup = SimpleNamespace(opened=lambda say, ends=True: nullcontext(asked.append(ends)))
    monkeypatch.setattr(predict, "read_setup", lambda config: setup)
    monkeypatch.setattr(predict, "ask_predictions", lambda *given: None)
    predict.federate_predict("f.toml", "run", "rows", "out")
    assert asked == [False]


def test_a_session_that_is_lost_is_not_asked_again(tmp_path, monkeypatch):
    asked = []

    def ended(*command):
        asked.append(command)
        raise Lost("its session ended")

    def absent(*command):
        asked.append(command)
        return {"clients": [{"client_name": "bank"}] * (len(asked) > 2)}

    kit = SimpleNamespace(host="h", port=1)
    monkeypatch.setattr(carrier, "_LOOK", 0.01)
    for command, times in ((ended, 1), (absent, 3)):  # a site may just be coming back
        asked.clear()
        monkeypatch.setattr(carrier, "session", lambda kit, command=command: nullcontext(command))
        connected = carrier.Carrier(kit, tmp_path / "s", {"Bank": "bank"})._connected
        with ExitStack() as stack:
            if command is ended:
                refuses(Lost, "its session ended", connected, stack)
            else:
                assert connected(stack) is command
        assert len(asked) == times
