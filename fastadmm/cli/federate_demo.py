"""The demonstration of ``fastadmm federate``: that of ``fastadmm demo``, each laboratory elsewhere."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.between.audit import AUDIT
from fastadmm.between.consent import agree, asked_files
from fastadmm.between.kit import INSTALL_HINT
from fastadmm.between.predict import PREDICTIONS
from fastadmm.between.stage import ADMIN, SERVER, Stage
from fastadmm.cli.demo_run import LAMBDA, PARTIES, run_demo
from fastadmm.errors import ConfigError, StorageError
from fastadmm.files.atomic import storage_errors, write_toml
from fastadmm.files.reading import read_json
from fastadmm.runs.predict import predict_partition, write_predictions
from fastadmm.store.model import open_model, open_party_model

_PROGRAM = (sys.executable, "-P", "-c", "from fastadmm.cli.start import main; main()")

#: Who is killed, and after how many answers of the run.
_VICTIM, _ANSWERS = PARTIES[1], 3

_SECONDS = 150.0


def made(directory: Path) -> Path:
    """The directory, new; nothing begins where a package is missing."""
    check_packages()
    with storage_errors(directory):
        directory.mkdir(mode=0o700, parents=True)
    return directory.absolute()


def check_packages() -> None:
    """Name what the demonstration needs and what is not installed."""
    if find_spec("nvflare") is None:
        raise ConfigError(f"federation: NVFlare is missing: this {INSTALL_HINT}")


def run_federate_demo(directory: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Provision, start, train, kill a party, go on, evaluate; no process is left."""
    check_packages()
    begin = time.monotonic()
    with Stage(directory / "stage", PARTIES) as stage:
        stage.provision()
        say("nvflare provision; fastadmm federate harden: kits of a server and three sites, mutual TLS")
        for name in (SERVER, *PARTIES):
            stage.start(name)
        say("nvflare: the server and three sites start, on the loopback interface")
        project = _Project(directory, stage, say)
        for name in PARTIES:
            project.agent(name)
        say("fastadmm agent run: each laboratory's own process, which has approved nothing yet")
        project.train()
        project.score()
        jobs = sum(line.endswith("is running") for line in project.log("coordinator").splitlines())
    left = stage.processes()
    assert not left, left
    same, same_predictions = project.compared()
    return {
        "same": same,
        "same_predictions": same_predictions,
        "metrics": read_json(project.run / "evaluation.json")["metrics"],
        "message": read_json(project.run / "result.json")["message"],
        "jobs": jobs,
        "processes": project.processes(),
        "seconds": time.monotonic() - begin,
    }


class _Project:
    """A directory per organisation, each with its own files and no others, and the steps."""

    def __init__(self, directory: Path, stage: Stage, say: Callable[[str], None]) -> None:
        self.stage, self.say, self.whole = stage, say, directory / "one-process"
        self.homes = {name: directory / name for name in (*PARTIES, "coordinator")}
        self.home = self.homes["coordinator"]
        self.run = self.home / "run"
        run_demo(self.whole, say=lambda line: None)
        for name, home in self.homes.items():
            home.mkdir(mode=0o700)
            own = "labels" if home == self.home else name
            for kind in ("train", "test"):
                shutil.copyfile(self.whole / f"{kind}.parts" / f"{own}.h5", home / f"{kind}.h5")
        say("files: each laboratory has measurements of the patients, the coordinator has diagnoses")
        federation = {
            "kit": str(stage.kits[ADMIN].path),
            "relay": str(stage.sockets[SERVER]),
            "parties": {name: f"nvflare:{name}" for name in PARTIES},
        }
        settings = {"data": "train.h5", "lambda": LAMBDA, "federation": federation}
        write_toml(self.home / "project.toml", settings)

    # --- the steps ----------------------------------------------------------------------------------------

    def train(self) -> None:
        """Begin the run, approve it, train, and kill a party meanwhile."""
        train = ("train", "project.toml", "-o", "run")
        self.refused(*train)
        self.approve()
        self.say(f"fastadmm federate {' '.join(train)}")
        training = self.spawn(*train)
        audit, until = self.state(_VICTIM) / AUDIT, time.monotonic() + _SECONDS
        before = audit.read_text().count('"answer"')
        while audit.read_text().count('"answer"') < before + _ANSWERS:
            self.wait("coordinator", until, 0.002)
        self.stage.kill(f"agent-{_VICTIM}")
        for job in self.stage.jobs(_VICTIM):
            os.kill(job, signal.SIGKILL)
        self.say(f"kill -9: the agent of {_VICTIM} and its NVFlare job, after {_ANSWERS} answers")
        self.stage.sockets[_VICTIM].unlink()  # which it could not do itself
        self.agent(_VICTIM)
        self.say(f"the agent of {_VICTIM} is started again, as its system would; the coordinator asks on")
        training.wait(_SECONDS)
        if not (self.run / "result.json").exists():
            raise StorageError(f"{self.tail('coordinator')}")

    def score(self) -> None:
        """Measure on the test patients."""
        evaluate = ("evaluate", "project.toml", "run", "test.h5", "-o", "evaluated")
        self.refused(*evaluate)
        self.approve(rows="test.h5")
        self.say(f"fastadmm federate {' '.join(evaluate)}")
        if self.spawn(*evaluate).wait(_SECONDS):
            raise StorageError(f"{self.stage.log('coordinator')}: {self.tail('coordinator')}")

    def approve(self, **named: str) -> None:
        """What each owner does with what its agent was asked for."""
        for name in PARTIES:
            own = {key: self.homes[name] / file for key, file in named.items()}
            (asked,) = asked_files(self.state(name))
            agree(asked, self.homes[name] / "train.h5", self.state(name), **own)
        self.say("fastadmm agent approve: at each laboratory, what it was asked for; then the same again")

    def compared(self) -> tuple[bool, bool]:
        """Whether weights and predictions are those of one process that has all files."""
        run_id = read_json(self.run / "run.json")["run"]
        parts = [self.state(name) / run_id / f"{name}.h5" for name in PARTIES]
        same = all(
            np.array_equal(open_party_model(part)[0].weights, one.weights)
            for part, one in zip(parts, open_model(self.whole / "run").parties, strict=True)
        )
        found = predict_partition(self.whole / "run", self.whole / "test.parts")
        with open(self.whole / PREDICTIONS, "w", encoding="utf-8", newline="") as file:
            write_predictions(file, found)
        predicted = (self.home / "evaluated" / PREDICTIONS).read_bytes()
        return same, predicted == (self.whole / PREDICTIONS).read_bytes()

    # --- processes ----------------------------------------------------------------------------------------

    def state(self, name: str) -> Path:
        """The agent's directory."""
        return self.homes[name] / "state"

    def agent(self, name: str) -> None:
        """Start the agent of a laboratory; until it answers."""
        socket = self.stage.sockets[name]
        where = ["--state", str(self.state(name)), "--socket", str(socket), "--threads", "1"]
        data = ["--data", str(self.homes[name] / "train.h5")]
        self.stage.spawn(f"agent-{name}", [*_PROGRAM, "agent", "run", *data, *where])
        until = time.monotonic() + _SECONDS
        while not socket.is_socket():
            self.wait(f"agent-{name}", until)

    def spawn(self, *arguments: str) -> Any:
        """A command of the coordinator."""
        return self.stage.spawn("coordinator", [*_PROGRAM, "federate", *arguments], self.home)

    def refused(self, *arguments: str) -> None:
        """A command that nobody has approved yet."""
        self.say(f"fastadmm federate {' '.join(arguments)}: waits for approvals")
        self.spawn(*arguments).wait(_SECONDS)
        if "fastadmm: waiting: " not in self.tail("coordinator"):
            raise StorageError(f"{self.tail('coordinator')}")
        self.say(f"  {self.tail('coordinator')}")

    def wait(self, name: str, until: float, seconds: float = 0.05) -> None:
        """A moment, if a process lives."""
        if time.monotonic() > until or not self.stage.lives(name):
            raise StorageError(f"{self.stage.log(name)}: {name} ended early: {self.tail(name)}")
        time.sleep(seconds)

    def log(self, name: str) -> str:
        """What a process has printed."""
        return self.stage.log(name).read_text(encoding="utf-8", errors="replace")

    def tail(self, name: str) -> str:
        """Its last line."""
        return (self.log(name).splitlines() or ["nothing"])[-1]

    def processes(self) -> list[tuple[str, str, str]]:
        """Who holds and sees what."""
        kits = self.stage.kits
        sees = "diagnoses; ids; a number per patient and message; each laboratory's scores; no features"
        rows = [
            ("coordinator", self.home, sees),
            ("NVFlare's server", kits[SERVER].path, "its key; the bytes of requests and answers; no labels"),
        ]
        for name in PARTIES:
            rows += [
                (f"agent of {name}", self.homes[name], "its own columns and weights; ids; gradients"),
                (f"NVFlare at {name}", kits[name].path, "its key; the bytes of this party's requests"),
            ]
        return [(name, str(path), sees) for name, path, sees in rows]
