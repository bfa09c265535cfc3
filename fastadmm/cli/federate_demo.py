"""The demonstration of ``fastadmm federate``: that of ``demo``, each laboratory a process of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastadmm.between.consent import agree, asked_files
from fastadmm.between.predict import PREDICTIONS, federate_evaluate
from fastadmm.between.train import federate
from fastadmm.cli.demo_run import LAMBDA, PARTIES, run_demo
from fastadmm.errors import StorageError, WaitingError
from fastadmm.files.atomic import storage_errors, write_toml
from fastadmm.runs.predict import predict_partition, write_predictions
from fastadmm.solver.history import RoundRecord
from fastadmm.store.model import open_model, open_party_model

_AGENT = (sys.executable, "-P", "-c", "from fastadmm.cli.start import main; main()", "agent", "run")

#: Who is killed.
_VICTIM = PARTIES[1]

_SECONDS = 150.0


def made(directory: Path) -> Path:
    """The directory, new."""
    with storage_errors(directory):
        directory.mkdir(mode=0o700, parents=True)
    return directory.absolute()


def run_federate_demo(directory: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Start, train, kill a party, go on, evaluate, and compare with one process; no process is left."""
    begin = time.monotonic()
    whole = directory / "one-process"
    run_demo(whole, say=lambda line: None)
    with TemporaryDirectory(prefix="fastadmm-") as sockets, ExitStack() as stack:  # their paths must be short
        project = _Project(directory, Path(sockets), say)
        stack.callback(project.close)
        document, evaluation = project.train(), project.score()
    parts = [next(project.state(name).glob(f"*/{name}.h5")) for name in PARTIES]
    with open(whole / PREDICTIONS, "w", encoding="utf-8", newline="") as file:
        write_predictions(file, predict_partition(whole / "run", whole / "test.parts"))
    predicted = (project.home / "evaluated" / PREDICTIONS).read_bytes()
    return {
        "same": all(
            open_party_model(part)[0].weights.tobytes() == one.weights.tobytes()
            for part, one in zip(parts, open_model(whole / "run").parties, strict=True)
        ),
        "same_predictions": predicted == (whole / PREDICTIONS).read_bytes(),
        "metrics": evaluation["metrics"],
        "message": document["message"],
        "seconds": time.monotonic() - begin,
    }


class _Project:
    """A directory per organisation, each with its own files and no others, and the steps."""

    def __init__(self, directory: Path, sockets: Path, say: Callable[[str], None]) -> None:
        self.directory, self.say, self.home = directory, say, directory / "coordinator"
        self.sockets = {name: sockets / f"{name}.sock" for name in PARTIES}
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        for name, own in {"coordinator": "labels", **dict(zip(PARTIES, PARTIES))}.items():
            made(directory / name)
            for kind in ("train", "test"):
                source = directory / "one-process" / f"{kind}.parts" / f"{own}.h5"
                shutil.copyfile(source, directory / name / f"{kind}.h5")
        say("files: each laboratory has measurements of the patients, the coordinator has diagnoses")
        self.config = self.home / "project.toml"
        addresses = {name: f"unix:{socket}" for name, socket in self.sockets.items()}
        write_toml(
            self.config,
            {"data": str(self.home / "train.h5"), "lambda": LAMBDA, "federation": {"parties": addresses}},
        )
        for name in PARTIES:
            self.start(name)
        say("fastadmm agent run: each laboratory's own process, which has approved nothing yet")

    def state(self, name: str) -> Path:
        """The agent's directory."""
        return self.directory / name / "state"

    def start(self, name: str) -> None:
        """Start the agent of a laboratory; until it answers."""
        home, socket = self.directory / name, self.sockets[name]
        where = ["--state", str(self.state(name)), "--socket", str(socket), "--threads", "1"]
        with open(home / "log.txt", "ab") as log:
            command = [*_AGENT, "--data", str(home / "train.h5"), *where]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.agents[name] = process
        until = time.monotonic() + _SECONDS
        while not socket.is_socket():
            if time.monotonic() > until or process.poll() is not None:
                raise StorageError(f"{home / 'log.txt'}: the agent of {name} ended early; this says why")
            time.sleep(0.05)

    def kill(self, name: str) -> None:
        """As a failure of its machine does."""
        self.agents[name].kill()
        self.agents[name].wait()
        self.sockets[name].unlink(missing_ok=True)  # which it could not do itself

    def close(self) -> None:
        """End all agents."""
        for name in self.agents:
            self.kill(name)

    def train(self) -> dict[str, Any]:
        """Begin the run, approve it, train, and kill a party meanwhile."""

        def rounds(record: RoundRecord) -> None:
            if record.round == 1:
                self.kill(_VICTIM)
                self.say(f"kill -9: the agent of {_VICTIM}, after the first round")
                self.start(_VICTIM)
                self.say(f"the agent of {_VICTIM} is started again, as its system would; all go on")

        what = "fastadmm federate train project.toml -o run"
        return self.approved(what, lambda: federate(self.config, self.home / "run", self.say, rounds))

    def score(self) -> dict[str, Any]:
        """Measure on the test patients."""
        what, out = (
            "fastadmm federate evaluate project.toml run test.h5 -o evaluated",
            self.home / "evaluated",
        )
        files = self.config, self.home / "run", self.home / "test.h5", out
        return self.approved(what, lambda: federate_evaluate(*files, say=self.say), rows="test.h5")

    def approved(self, what: str, go: Callable[[], dict[str, Any]], **named: str) -> dict[str, Any]:
        """A command that nobody has approved yet, and again after each owner has looked at it."""
        self.say(what)
        try:
            return go()
        except WaitingError as error:
            self.say(f"  waiting: {error}")
        for name in PARTIES:
            own = {key: self.directory / name / file for key, file in named.items()}
            (asked,) = asked_files(self.state(name))
            agree(asked, self.directory / name / "train.h5", self.state(name), **own)
        self.say("fastadmm agent approve: at each laboratory, what it was asked for; then the same again")
        return go()
