"""The demonstration of ``fastadmm federate``: all of a project, where what passes, passes over NVFlare."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.between.approval_file import ALIGN, PREDICT, open_task_approval, write_approval
from fastadmm.between.audit import AUDIT
from fastadmm.between.consent import agent_approve, shown_digest
from fastadmm.between.kit import INSTALL_HINT
from fastadmm.between.party_tasks import FEATURES
from fastadmm.between.predict import PREDICTIONS
from fastadmm.between.stage import ADMIN, SERVER, Stage
from fastadmm.cli.demo_run import LAMBDA, PARTIES, patients
from fastadmm.data_tools.convert_tables import convert_tables
from fastadmm.data_tools.per_table import TableRows
from fastadmm.data_tools.psi import library
from fastadmm.errors import ConfigError, StorageError
from fastadmm.files.atomic import storage_errors, write_toml
from fastadmm.files.reading import read_json
from fastadmm.runs.config import make_config
from fastadmm.runs.predict import predict_tables, write_predictions
from fastadmm.runs.train import start_run
from fastadmm.store.model import open_model, open_party_model

_PROGRAM = (sys.executable, "-P", "-c", "from fastadmm.cli.start import main; main()")

#: Who is killed, and after how many answers of the run.
_VICTIM, _ANSWERS = PARTIES[1], 3

#: Of each laboratory's table, patients that it lacks.
_ABSENT = 6

_SECONDS = 150.0


def made(directory: Path) -> Path:
    """The directory, new; nothing begins where a package is missing."""
    check_packages()
    with storage_errors(directory):
        directory.mkdir(mode=0o700, parents=True)
    return directory.absolute()


def check_packages() -> None:
    """Name what the demonstration needs and what is not installed."""
    library()
    if find_spec("nvflare") is None:
        raise ConfigError(f"federation: NVFlare is missing: this {INSTALL_HINT}")


def run_federate_demo(directory: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Provision, start, align, train, kill a party, go on, evaluate, predict; no process is left."""
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
        for name in PARTIES:
            project.listening(name)
        say("fastadmm agent run --rows: each laboratory's own process, which has approved nothing yet")
        project.align()
        run = project.train()
        project.score()
        jobs = sum(line.endswith("is running") for line in project.log("coordinator").splitlines())
    left = stage.processes()
    assert not left, left
    same, same_predictions = project.compared()
    return {
        "same": same,
        "same_predictions": same_predictions,
        "metrics": read_json(run / "evaluation.json")["metrics"],
        "rounds": read_json(run / "result.json")["rounds"],
        "message": read_json(run / "result.json")["message"],
        "jobs": jobs,
        "processes": project.processes(),
        "seconds": time.monotonic() - begin,
    }


class _Project:
    """A directory per organisation, each with its own files and no others, and the steps."""

    def __init__(self, directory: Path, stage: Stage, say: Callable[[str], None]) -> None:
        self.directory, self.stage, self.say = directory, stage, say
        self.homes = {name: directory / name for name in (*PARTIES, "coordinator")}
        self.home = self.homes["coordinator"]
        for home in self.homes.values():
            home.mkdir(mode=0o700)
        _write_tables(self.homes)
        say("tables: each laboratory has measurements of its patients, the coordinator has diagnoses")
        federation = {
            "kit": str(stage.kits[ADMIN].path),
            "relay": str(stage.sockets[SERVER]),
            "parties": {name: f"nvflare:{name}" for name in PARTIES},
        }
        settings = {"data": "train/labels.h5", "lambda": LAMBDA, "federation": federation}
        write_toml(self.home / "project.toml", settings)

    # --- the steps ----------------------------------------------------------------------------------------

    def align(self) -> None:
        """Which patients do all have?"""
        align = ("align", "project.toml", "train.csv", "--id", "id", "--label", "diagnosis", "-o", "train")
        self.refused(*align)
        self.approve("train.csv")
        self.coordinator(*align)
        self.say("agents: each has converted its own table")
        for name in PARTIES:
            # For the test patients, too.
            approval = open_task_approval(self.state(name) / ALIGN)
            more = replace(approval, requests=2, rows=10_000, file=str(self.homes[name] / "test.csv"))
            write_approval(more, force=True)
        test = ("align", "project.toml", "test.csv", "--id", "id", "--label", "diagnosis", "-o", "test")
        self.coordinator(*test, "--like", "train/labels.h5")

    def train(self) -> Path:
        """Begin the run, approve it, train, and kill a party meanwhile."""
        train = ("train", "project.toml", "-o", "run")
        self.refused(*train)
        self.approve("train.csv")
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
        self.listening(_VICTIM)
        self.say(f"the agent of {_VICTIM} is started again, as its system would; the coordinator asks on")
        training.wait(_SECONDS)
        if not (self.home / "run" / "result.json").exists():
            raise StorageError(f"{self.tail('coordinator')}")
        return self.home / "run"

    def score(self) -> None:
        """Measure on the test patients, and predict them."""
        evaluate = ("evaluate", "project.toml", "run", "test/labels.h5", "-o", "evaluated")
        self.refused(*evaluate)
        self.approve("test.csv")
        for name in PARTIES:
            (path,) = self.state(name).glob(f"*/{PREDICT}")
            approval = open_task_approval(path)
            write_approval(replace(approval, requests=2, rows=2 * approval.rows), force=True)
        self.coordinator(*evaluate)
        self.coordinator("predict", "project.toml", "run", "test/rows.json", "-o", "predicted")

    def approve(self, table: str) -> None:
        """What each owner does with what its agent was asked for."""
        for name in PARTIES:
            home, state = self.homes[name], self.state(name)
            (asked,) = (state / "asked").glob("*.json")
            data = state / FEATURES / f"{name}.h5"
            approve = partial(agent_approve, asked, data, state, rows=home / table, id="id")
            approve(confirm=shown_digest(approve()[0]))
        self.say("fastadmm agent approve: at each laboratory, what it was asked for; then the same again")

    def compared(self) -> tuple[bool, bool]:
        """Whether weights and predictions are those of one process that has all tables."""
        out, homes = self.directory / "one-process", self.homes
        out.mkdir(mode=0o700)
        convert_tables(
            self.home / "train.csv",
            [homes[name] / "train.csv" for name in PARTIES],
            out / "train.parts",
            id="id",
            label="diagnosis",
            names=",".join(PARTIES),
        )
        start_run(make_config({"data": str(out / "train.parts"), "lambda": LAMBDA}), out / "run")
        run_id = read_json(self.home / "run" / "run.json")["run"]
        parts = [self.state(name) / run_id / f"{name}.h5" for name in PARTIES]
        same = all(
            np.array_equal(open_party_model(part)[0].weights, one.weights)
            for part, one in zip(parts, open_model(out / "run").parties, strict=True)
        )
        rows = TableRows("id", alignment=self.home / "test" / "rows.json")
        found, _ = predict_tables(out / "run", [homes[name] / "test.csv" for name in PARTIES], rows)
        with open(out / PREDICTIONS, "w", encoding="utf-8", newline="") as file:
            write_predictions(file, found)
        predicted = (self.home / "predicted" / PREDICTIONS).read_bytes()
        return same, predicted == (out / PREDICTIONS).read_bytes()

    # --- processes ----------------------------------------------------------------------------------------

    def state(self, name: str) -> Path:
        """The agent's directory."""
        return self.homes[name] / "state"

    def agent(self, name: str) -> None:
        """Start the agent of a laboratory."""
        where = ["--state", str(self.state(name)), "--socket", str(self.stage.sockets[name])]
        rows = ["--party", name, "--rows", str(self.homes[name] / "train.csv"), "--id", "id"]
        self.stage.spawn(f"agent-{name}", [*_PROGRAM, "agent", "run", *rows, *where, "--threads", "1"])

    def listening(self, name: str) -> None:
        """Until it answers."""
        until = time.monotonic() + _SECONDS
        while not self.stage.sockets[name].is_socket():
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

    def coordinator(self, *arguments: str) -> None:
        """A command that is answered."""
        self.say(f"fastadmm federate {' '.join(arguments)}")
        if self.spawn(*arguments).wait(_SECONDS):
            raise StorageError(f"{self.stage.log('coordinator')}: {self.tail('coordinator')}")

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
        sees = "diagnoses; ids that all have; a number per patient and message; each laboratory's scores"
        rows = [
            ("coordinator", self.home, f"{sees}; no features"),
            ("NVFlare's server", kits[SERVER].path, "its key; the bytes of requests and answers; no labels"),
        ]
        for name in PARTIES:
            own = "its own columns and weights; ids that all have; gradients"
            rows.append((f"agent of {name}", self.homes[name], own))
            rows.append(
                (f"NVFlare at {name}", kits[name].path, "its key; the bytes of this party's requests")
            )
        return [(name, str(path), sees) for name, path, sees in rows]


def _write_tables(homes: dict[str, Path]) -> None:
    """Patients of scikit-learn's breast cancer data: columns by laboratory, rows in an order of its own."""
    import pandas as pd
    from sklearn.model_selection import train_test_split

    of_lab, frame, diagnosis = patients()
    numbers = np.arange(len(frame))
    parts = train_test_split(numbers, test_size=0.25, random_state=0, stratify=diagnosis == "benign")
    order = np.random.default_rng(0)
    for kind, rows in zip(("train", "test"), parts):
        tables = {"coordinator": (pd.DataFrame({"diagnosis": diagnosis}), order.permutation(rows))}
        tables |= {name: (frame[own], order.permutation(rows)[_ABSENT:]) for name, own in of_lab.items()}
        for name, (table, held) in tables.items():
            own = table.iloc[held].copy()
            own.insert(0, "id", [f"patient-{i}" for i in held])
            own.to_csv(homes[name] / f"{kind}.csv", index=False, lineterminator="\n")
