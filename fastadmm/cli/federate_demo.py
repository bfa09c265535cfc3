"""The demonstration of ``fastadmm federate``: three laboratories and a coordinator on one machine."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.cli.demo_run import LAMBDA, PARTIES, convert_tables
from fastadmm.errors import StorageError
from fastadmm.federation.agent import AUDIT
from fastadmm.federation.approve import agent_approve
from fastadmm.federation.coordinator import RUN
from fastadmm.federation.stage import ADMIN, SERVER, Stage
from fastadmm.files.atomic import storage_errors
from fastadmm.files.reading import read_json
from fastadmm.files.writing import write_toml
from fastadmm.runs.combine import combine_contributions, partial_predict
from fastadmm.runs.config import make_config
from fastadmm.runs.train import start_run
from fastadmm.solver.metrics import classification_metrics
from fastadmm.store.label_file import open_labels
from fastadmm.store.model import open_model, open_party_model

__all__ = ["made", "run_federate_demo"]

_PROGRAM = (sys.executable, "-P", "-c", "from fastadmm.cli.start import main; main()")

#: Who is killed, and after how many answers.
_VICTIM, _ANSWERS = PARTIES[1], 3

_SECONDS = 150.0


def made(directory: Path) -> Path:
    """The directory, new."""
    with storage_errors(directory):
        directory.mkdir(parents=True)
    return directory.absolute()


def run_federate_demo(directory: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Provision, start, train, kill a party, go on, evaluate; no process is left.

    Parameters
    ----------
    directory : Path
        For everything; it exists and is empty.
    say : callable
        Shows one line per step.

    Returns
    -------
    dict
        ``same`` (whether the weights are those of one process, bit for bit), ``metrics``, ``rounds``,
        ``jobs``, ``processes`` (name, path, sees), ``seconds``.

    Raises
    ------
    FastadmmError
        If something fails; its line names the log.
    """
    begin = time.monotonic()
    with Stage(directory / "stage", PARTIES) as stage:
        stage.provision()
        say("nvflare provision; fastadmm federate harden: kits of a server and three sites, mutual TLS")
        for name in (SERVER, *PARTIES):
            stage.start(name)
        say("nvflare: the server and three sites start, on the loopback interface")
        homes = _houses(directory, say)
        for name in PARTIES:
            _agent(stage, homes, name)
        for name in PARTIES:
            _listening(stage, name)
        say("fastadmm agent run: each laboratory's own process, which has approved nothing yet")
        run = _coordinated(stage, homes, say)
        contributions = []
        for name in PARTIES:
            part = next((homes[name] / "state").glob(f"*/{name}.h5"))
            contributions.append(homes["coordinator"] / f"contribution-{name}.h5")
            partial_predict(part, homes[name] / "test.h5", contributions[-1])
        predictions = combine_contributions(run, contributions)
        labels = open_labels(homes["coordinator"] / "test-labels.h5")
        say("fastadmm predict --partial at each laboratory, fastadmm combine: the test patients")
        jobs = sum(line.endswith("is running") for line in _log(stage, "coordinator").splitlines())
    left = stage.processes()
    assert not left, left
    return {
        "same": _same(directory, homes),
        "metrics": classification_metrics(labels.y, predictions.mean),
        "rounds": read_json(run / "result.json")["rounds"],
        "message": read_json(run / "result.json")["message"],
        "jobs": jobs,
        "processes": _processes(stage, homes),
        "seconds": time.monotonic() - begin,
    }


def _houses(directory: Path, say: Callable[[str], None]) -> dict[str, Path]:
    """A directory per organisation, each with its own files and no others."""
    train, test = convert_tables(directory, say)
    homes = {name: directory / name for name in (*PARTIES, "coordinator")}
    for name, home in homes.items():
        home.mkdir(mode=0o700)
        for source, file in ((train, f"{name}.h5"), (test, "test.h5")):
            if name in PARTIES:
                shutil.copyfile(source.path / f"{name}.h5", home / file)
    shutil.copyfile(train.path / "labels.h5", homes["coordinator"] / "labels.h5")
    shutil.copyfile(test.path / "labels.h5", homes["coordinator"] / "test-labels.h5")
    return homes


def _agent(stage: Stage, homes: dict[str, Path], name: str) -> None:
    home, socket = homes[name], stage.sockets[name]
    options = ["--data", f"{home}/{name}.h5", "--state", f"{home}/state", "--socket", str(socket)]
    stage.spawn(f"agent-{name}", [*_PROGRAM, "agent", "run", *options, "--threads", "1"])


def _listening(stage: Stage, name: str) -> None:
    until = time.monotonic() + _SECONDS
    while not stage.sockets[name].is_socket():
        _wait(stage, f"agent-{name}", until)


def _coordinated(stage: Stage, homes: dict[str, Path], say: Callable[[str], None]) -> Path:
    """Begin the run, approve it, train, and kill a party meanwhile."""
    home = homes["coordinator"]
    federation = {
        "kit": str(stage.kits[ADMIN].path),
        "relay": str(stage.sockets[SERVER]),
        "parties": {name: f"nvflare:{name}" for name in PARTIES},
    }
    settings = {"data": str(home / "labels.h5"), "lambda": LAMBDA, "federation": federation}
    write_toml(home / "run.toml", settings)
    command = [*_PROGRAM, "federate", "train", str(home / "run.toml"), "-o", str(home / "run")]
    say("fastadmm federate train: begins the run, and is refused")
    stage.spawn("coordinator", command).wait(_SECONDS)
    if not (home / "run" / RUN).exists():
        raise StorageError(f"{_tail(stage, 'coordinator')}")
    say(f"  {_tail(stage, 'coordinator')}")
    for name in PARTIES:
        agent_approve(home / "run" / RUN, homes[name] / f"{name}.h5", homes[name] / "state")
    say("fastadmm agent approve run.json, at each laboratory; then fastadmm federate train again")
    training = stage.spawn("coordinator", command)
    audit, until = homes[_VICTIM] / "state" / AUDIT, time.monotonic() + _SECONDS
    while audit.read_text().count('"answer"') < _ANSWERS:
        _wait(stage, "coordinator", until, 0.002)
    stage.kill(f"agent-{_VICTIM}")
    for job in stage.jobs(_VICTIM):
        os.kill(job, signal.SIGKILL)
    say(f"kill -9: the agent of {_VICTIM} and its NVFlare job, after {_ANSWERS} answers")
    stage.sockets[_VICTIM].unlink()  # which it could not do itself
    _agent(stage, homes, _VICTIM)
    _listening(stage, _VICTIM)
    say(f"the agent of {_VICTIM} is started again, as its system would; the coordinator asks on")
    training.wait(_SECONDS)
    if not (home / "run" / "result.json").exists():
        raise StorageError(f"{_tail(stage, 'coordinator')}")
    return home / "run"


def _wait(stage: Stage, name: str, until: float, seconds: float = 0.05) -> None:
    if time.monotonic() > until or not stage.lives(name):
        raise StorageError(f"{stage.log(name)}: {name} ended early: {_tail(stage, name)}")
    time.sleep(seconds)


def _log(stage: Stage, name: str) -> str:
    return stage.log(name).read_text(encoding="utf-8", errors="replace")


def _tail(stage: Stage, name: str) -> str:
    return (_log(stage, name).splitlines() or ["nothing"])[-1]


def _same(directory: Path, homes: dict[str, Path]) -> bool:
    """Whether the parties' weights are those of a run in one process."""
    # What "auto" means where an exchange takes long.
    settings = {"data": str(directory / "train.parts"), "lambda": LAMBDA, "directions": "both"}
    start_run(make_config(settings), directory / "one-process")
    for one in open_model(directory / "one-process").parties:
        part, _ = open_party_model(next((homes[one.name] / "state").glob(f"*/{one.name}.h5")))
        if not np.array_equal(part.weights, one.weights):
            return False
    return True


def _processes(stage: Stage, homes: dict[str, Path]) -> list[tuple[str, str, str]]:
    kits = stage.kits
    rows = [
        (
            "coordinator",
            homes["coordinator"],
            "labels; one number per patient and message; no features",
        ),
        ("NVFlare's server", kits[SERVER].path, "its key; the bytes of requests and answers; no labels"),
    ]
    for name in PARTIES:
        rows.append((f"agent of {name}", homes[name], "its own columns and weights; gradients"))
        rows.append((f"NVFlare at {name}", kits[name].path, "its key; the bytes of this party's requests"))
    return [(name, str(path), sees) for name, path, sees in rows]
