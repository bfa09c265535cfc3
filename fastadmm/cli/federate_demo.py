"""``fastadmm federate demo``: the tables of ``demo``, each laboratory a process of its own."""

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from fastadmm.between.consent import agree, asked_files
from fastadmm.between.train import federate
from fastadmm.cli.demo_run import LAMBDA, PARTIES, STORY, convert_tables
from fastadmm.errors import FastadmmError, StorageError, WaitingError
from fastadmm.files.atomic import shown, write_toml
from fastadmm.runs.config import make_config
from fastadmm.runs.train import start_run
from fastadmm.solver.history import RoundRecord
from fastadmm.store.model import open_model, open_party_model

_AGENT = (sys.executable, "-P", "-c", "from fastadmm.cli.start import main; main()", "agent", "run")

#: How long an agent may take to listen.
_SECONDS = 150.0


class _Laboratory:
    """A party's process, with files and a socket of its own."""

    def __init__(self, home: Path, data: Path, socket: Path) -> None:
        self.home, self.data, self.socket = home, data, socket
        self.state, self.log = home / "state", home / "log.txt"
        home.mkdir(mode=0o700)
        self.start()

    def start(self) -> None:
        """Start the agent."""
        where = ["--data", self.data, "--state", self.state, "--socket", self.socket, "--threads", "1"]
        with open(self.log, "ab") as log:
            command = [*_AGENT, *map(str, where)]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait(self) -> None:
        """Wait until the agent listens."""
        until = time.monotonic() + _SECONDS
        while not self.socket.is_socket():
            if time.monotonic() > until or self.process.poll() is not None:
                raise StorageError(f"{shown(self.log)}: the agent of {self.home.name} ended early")
            time.sleep(0.05)

    def kill(self) -> None:
        """End the agent as a failure of its machine does."""
        self.process.kill()
        self.process.wait()
        self.socket.unlink(missing_ok=True)  # which it could not do itself

    def approve(self) -> None:
        """Approve what was asked for, as its owner does after looking at it."""
        (asked,) = asked_files(self.state)
        agree(asked, self.data, self.state)

    def weights(self) -> bytes:
        """The party's part of the model, which only the party has."""
        (part,) = self.state.glob(f"*/{self.home.name}.h5")
        return open_party_model(part)[0].weights.tobytes()


def run_federate_demo(directory: Path, say: Callable[[str], None]) -> None:
    """Start, train, kill a party, go on, and compare with one process; no process is left."""
    say(STORY)
    train, _ = convert_tables(directory, lambda line: None)
    start_run(make_config({"data": str(train.path), "lambda": LAMBDA}), directory / "one-process")
    with TemporaryDirectory(prefix="fastadmm-") as sockets, ExitStack() as stack:  # their paths must be short
        labs = {}
        for name in PARTIES:
            data = train.path / f"{name}.h5"
            labs[name] = _Laboratory(directory / name, data, Path(sockets) / f"{name}.sock")
            stack.callback(labs[name].kill)
        for lab in labs.values():
            lab.wait()
        say("fastadmm agent run: each laboratory's own process, which has approved nothing yet")
        config, victim = directory / "project.toml", labs[PARTIES[1]]
        addresses = {name: f"unix:{lab.socket}" for name, lab in labs.items()}
        labels = str(train.path / "labels.h5")
        write_toml(config, {"data": labels, "lambda": LAMBDA, "federation": {"parties": addresses}})

        def rounds(record: RoundRecord) -> None:
            if record.round == 1:
                victim.kill()
                say(f"kill -9: the agent of {victim.home.name}, after the first round")
                victim.start()
                victim.wait()
                say("it is started again, as its system would do; all go on")

        say("fastadmm federate train project.toml -o run")
        try:
            federate(config, directory / "run", say, rounds)
        except WaitingError as error:
            say(f"  waiting: {error}")
        for lab in labs.values():
            lab.approve()
        say("fastadmm agent approve: at each laboratory; then the same again")
        document = federate(config, directory / "run", say, rounds)
        found = [lab.weights() for lab in labs.values()]
    if found != [part.weights.tobytes() for part in open_model(directory / "one-process").parties]:
        raise FastadmmError("federate demo: weights differ from those of one process; please report it")
    say(f"{document['message']}; weights equal those of one process to the last bit")
    say("Here all processes ran as you, and have ended; between organisations each has a user of its own.")
