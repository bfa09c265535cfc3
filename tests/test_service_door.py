"""Who may speak to the scoring service, how much and how slowly; and how it ends."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import pytest

from run_tools import run, start, write_problem

pytest.importorskip("fastapi")

JSON = {"Content-Type": "application/json"}


@dataclass
class Service:
    process: subprocess.Popen[str]
    port: int
    row: dict[str, float]

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            given = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            connection.request(method, path, given, JSON if headers is None else headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def status(self, **headers):
        return self.ask("POST", "/contribution", {"row": self.row}, JSON | headers)[0]

    def connect(self, text):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        connection.sendall(text.replace("\n", "\r\n").encode())
        return connection


def post(length):
    """Head of a request, but for the empty line."""
    lines = ("POST /contribution HTTP/1.1", "Host: localhost", "Content-Type: application/json")
    return "\n".join((*lines, f"Content-Length: {length}\n"))


#: Seconds that a half-sent body has.
PATIENCE = "from fastadmm.runs import service\nservice._SECONDS = 3.0"


@contextmanager
def serving(home, *options):
    with start(
        "serve", home / "run", "--party", "party-1", "--port", "0", *options, prelude=PATIENCE
    ) as process:
        port = int(re.search(r":(\d+) ", process.stdout.readline())[1])  # type: ignore[index]
        service = Service(process, port, {})
        service.row = dict.fromkeys(service.ask("GET", "/health")[1]["columns"], 1.0)
        yield service


def ended(service, number=signal.SIGTERM):
    """Exit code, and what it said."""
    service.process.send_signal(number)
    _, said = service.process.communicate(timeout=30)
    return service.process.returncode, said


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("door")
    write_problem(home / "a.parts", 40, (2, 2))
    assert not run("train", home / "a.parts", "-q", "-o", home / "run")
    return home


@pytest.fixture(scope="module")
def service(home):
    with serving(home, "--allow-host", "scores.example", "--max-rows", 100) as service:
        yield service
        code, said = ended(service)
    assert (code, said) == (0, "")


def test_it_answers_to_its_own_names(service):
    own = ("localhost", "127.0.0.1", "[::1]:1", "LOCALHOST", "scores.example:80")
    for name in (*own, f"localhost:{service.port}"):
        assert service.status(Host=name) == 200, name
    for name in ("evil.example", "127.0.0.1.evil.example", "localhost.evil", "", "evil@localhost", "[::1"):
        for method, path in (("POST", "/contribution"), ("GET", "/health"), ("GET", "/openapi.json")):
            status, answer = service.ask(method, path, {"row": service.row}, JSON | {"Host": name})
            assert status == 421, name
            assert "row" not in answer
            assert "--allow-host" in answer["error"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "a/b"])
def test_it_takes_json_alone(service, kind):
    for headers in ({"Content-Type": kind}, {}):
        assert service.ask("POST", "/contribution", {"row": service.row}, headers)[0] == 415
    assert service.status(**{"Content-Type": "Application/JSON; charset=utf-8"}) == 200


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"[" * 1_000, 422, "too deep"),
        (b'{"row":' + b'{"a":' * 70 + b"1" + b"}" * 71, 422, "too deep"),
        (b'{"row":1,"row":2}', 422, "'row' occurs twice"),
        (b'{"row":{"\\ud800":1}}', 422, "surrogates"),
        (b'{"row":{"f1":1e400}}', 422, "is no finite number"),
        (b'{"row":{"f1":' + b"9" * 500 + b"}}", 422, "is no finite number"),
        (b'{"row":{"f1":NaN}}', 422, "NaN is no JSON number"),
        (b"", 422, "no JSON"),
        (b"\xff", 422, "no JSON"),
        (b"[" + b"0," * 20_000 + b"0]", 422, "too many values"),
        (b"[" + b" " * 300_000 + b"]", 413, "send fewer rows"),
    ],
)  # fmt: skip
def test_odd_bodies_are_one_line(service, body, status, says):
    found, answer = service.ask("POST", "/contribution", body)
    assert (found, says in answer["error"]) == (status, True), answer
    assert "\n" not in answer["error"]


@pytest.mark.parametrize("ids", [[[1]], [{"a": 1}], [None], [True], [1.5], [2**63], ["x" * 257], [1, 2], "1"])
def test_ids_are_texts_and_whole_numbers(service, ids):
    status, answer = service.ask("POST", "/contribution", {"row": service.row, "ids": ids})
    assert (status, "'ids'" in answer["error"]) == (422, True)
    assert service.ask("POST", "/contribution", {"row": service.row, "ids": ["ä"]})[1]["ids"] == ["ä"]


def test_clients_that_send_half_or_leave(service):
    head = post(1000)
    held = [service.connect(head + text) for text in ("\n", "\n{") * 8]
    begin = time.monotonic()
    assert service.ask("GET", "/health")[0] == 200
    for connection in held:
        while connection.recv(1 << 16):
            pass
        connection.close()
    assert time.monotonic() - begin > 2.0  # a connection that is never given up ends the test
    # Clients that leave leave no trace.
    head = post(1000) + "\n{"
    for text in (head, "GET /health HTTP/1.1\nHost: localhost\n\n", "\0\0\0\n\n", "GET / HTTP/9\n\n"):
        for _ in range(5):
            connection = service.connect(text)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
    assert service.ask("GET", "/health")[0] == 200  # and the fixture looks at standard error


@pytest.mark.repeats
def test_many_bodies_at_once_are_bounded(home):
    size = 6_000_000
    head = post(size) + "\n"
    refused = []

    def send():
        with service.connect(head) as connection:
            with suppress(OSError):
                connection.sendall(b" " * (size - 1))  # all but the last byte
            try:
                refused.append(connection.recv(64)[9:12] in (b"503", b"408"))  # too many, or too slow
            except OSError:
                refused.append(False)

    with serving(home, "--max-rows", 60_000) as service:
        threads = [threading.Thread(target=send) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert any(refused)
        status = Path(f"/proc/{service.process.pid}/status").read_text()
        assert int(re.search(r"VmHWM:\s+(\d+)", status)[1]) < 400_000  # type: ignore[index]
        assert ended(service) == (0, "")


def test_signals_end_it(home):
    with serving(home) as service:
        head = post(10) + "\n{"
        held = [service.connect(text) for text in ("", "POST", head)]
        code, said = ended(service)
    assert code == 0
    assert "Traceback" not in said
    for connection in held:
        connection.close()
    # An interrupt is an interrupt.
    with serving(home) as service:
        code, said = ended(service, signal.SIGINT)
    assert code == 130
    assert "Traceback" not in said


@pytest.mark.skipif(which("Rscript") is None, reason="no Rscript: the R of docs/predicting.md was not run")
def test_r_does_what_the_page_shows(tmp_path, monkeypatch):
    page = (Path(__file__).resolve().parents[1] / "docs" / "predicting.md").read_text(encoding="utf-8")
    text = page.partition("```r\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    assert not run("demo", "--out", "demo")
    with start("serve", "demo/run", "--port", "0") as process:
        port = re.search(r":(\d+) ", process.stdout.readline())[1]  # type: ignore[index, union-attr]
        Path("page.R").write_text(text.replace("8765", port), encoding="utf-8")
        subprocess.run(["Rscript", "page.R"], check=True)
