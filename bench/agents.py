"""Measure what an exchange with agents costs beyond the parties' own work, and the bytes of a round.

    python bench/agents.py [--rounds 25] [--rows 32561] [--parties 3] [--folders /tmp /dev/shm]

Data like a9a: 32,561 rows, 123 columns of which 11 % are not zero, three parties, each with an agent that is
a process of its own behind a socket. Each exchange of a run is timed as the coordinator waits for it, as the
slowest party computes its answer, and as one process takes for it that has all parties in it, on the same
processors. The difference to that is protocol, sockets, journals on both sides and audit logs. All agents
write to one disk and share this machine's processors, so the numbers are upper bounds of what parties with
machines of their own see: ``--parties 1`` has one party, whose agent has a processor to itself. The
processor's time depends less on what else runs here: at the coordinator that of a whole exchange, at a party
what is beyond its own work. What the disk costs is the difference between folders on a disk and in memory,
which are measured in turn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.between.agent import Agent
from fastadmm.between.consent import agent_approve, shown_digest
from fastadmm.between.coordinator import Coordinator
from fastadmm.between.host import Host
from fastadmm.between.hub import Hub
from fastadmm.between.socket import Socket, serve
from fastadmm.between.train import new_run
from fastadmm.conversation.calls import CALLS
from fastadmm.conversation.threads import Threads
from fastadmm.engine.free_cores import sleep_between_jobs
from fastadmm.runs.config import make_config
from fastadmm.runs.train import start_run
from fastadmm.store.partition import create_partition
from scipy import sparse

WIDTHS = [41, 41, 41]
SCHEMES = ("subspace", "sharing")


def data(folder: Path, n_rows: int) -> Path:
    """A partition like a9a."""
    rng = np.random.default_rng(0)
    blocks = [
        sparse.random(n_rows, d, 0.11, format="csr", random_state=rng, data_rvs=np.ones) for d in WIDTHS
    ]
    score = sum(block @ rng.normal(size=block.shape[1]) for block in blocks)
    y = (score > np.median(score)).astype(float)
    flipped = rng.random(n_rows) < 0.15
    with create_partition(folder / "d.parts", task="classification") as writer:
        for block in blocks:
            writer.party(n_features=block.shape[1], kind="csr").append(block)
        writer.labels(classes=("no", "yes")).append(np.where(flipped, 1 - y, y))
    return folder / "d.parts"


def agent(data: str, state: str, socket: str, times: str) -> None:
    """A party's process: seconds of each answer, of the party's work, and of the processor beyond it."""
    handle, answer, worked = Agent.handle, Host.answer, [0.0, 0.0]

    def timed_answer(host: Host, *arguments: Any) -> Any:
        begin, cpu = time.perf_counter(), time.thread_time()
        try:
            return answer(host, *arguments)
        finally:
            worked[:] = time.perf_counter() - begin, time.thread_time() - cpu

    setattr(Host, "answer", timed_answer)  # noqa: B010 (a measurement)
    own = Agent(Path(data), Path(state), threads=1)
    with open(times, "a", buffering=1) as log:

        def timed(*arguments: Any) -> bytes:
            begin, cpu = time.perf_counter(), time.thread_time()
            message = handle(own, *arguments)
            beyond = time.thread_time() - cpu - worked[1]
            log.write(json.dumps([time.perf_counter() - begin, worked[0], beyond]) + "\n")
            return message

        serve(socket, timed).wait()


class Clock:
    """Seconds of each exchange and of the coordinator's processor, and its bytes."""

    def __init__(self, stack: ExitStack) -> None:
        self.waited: list[float] = []
        self.cpu: list[float] = []
        self.sent, self.received = 0, 0
        carry = Hub.carry
        stack.callback(setattr, Hub, "carry", carry)

        def timed(hub: Hub, exchange: Any) -> Any:
            begin, cpu, sent = time.perf_counter(), time.process_time(), self.sent
            answers = carry(hub, exchange)
            if self.sent > sent:
                self.waited.append(time.perf_counter() - begin)
                self.cpu.append(time.process_time() - cpu)
            return answers

        setattr(Hub, "carry", timed)  # noqa: B010 (a measurement)


def federated(folder: Path, partition: Path, values: dict[str, Any]) -> tuple[Clock, np.ndarray]:
    """One run with agents; of each exchange and party what its agent measured, shape (exchanges, 3, 3)."""
    names = [f"party-{m + 1}" for m in range(len(WIDTHS))]
    with ExitStack() as stack:
        new, fill = new_run(partition / "labels.h5", names, folder / "run", values, "bench", say=print)
        ways = {}
        for name in names:
            files = [partition / f"{name}.h5", folder / name, folder / f"{name}.sock", folder / f"{name}.txt"]
            command = [sys.executable, "-P", __file__, "--agent", *map(str, files)]
            child = stack.enter_context(subprocess.Popen(command))
            stack.callback(child.kill)
            while not (folder / f"{name}.sock").exists():
                if child.poll() is not None:
                    raise SystemExit(f"the agent of {name} has ended")
                time.sleep(0.02)
            ways[name] = Socket(folder / f"{name}.sock")
        clock = Clock(stack)

        def ask(name: str, raw: bytes, seconds: float) -> bytes:
            answer = ways[name].ask(name, raw, seconds, "bench")
            clock.sent += len(raw)
            clock.received += len(answer)
            return answer

        with new.begin(fill, force=False):
            run = Coordinator(new, ask, lambda record: None)
            run.write_description("bench")
            for name in names:
                own = new.path / "run.json", partition / f"{name}.h5", folder / name
                agent_approve(*own, confirm=shown_digest(agent_approve(*own)[0]))
            run.advance()
            run.close()
        logs = [(folder / f"{name}.txt").read_text().splitlines() for name in names]
    return clock, np.array([[json.loads(line) for line in log] for log in logs]).swapaxes(0, 1)


def one_process(folder: Path, values: dict[str, Any]) -> list[float]:
    """Seconds of each exchange of the same run with all parties in this process."""
    carry, taken = Threads.carry, list[float]()

    def timed(threads: Threads, exchange: Any) -> Any:
        begin = time.perf_counter()
        answers = carry(threads, exchange)
        if any(CALLS[call.name].answer for call in exchange.calls):
            taken.append(time.perf_counter() - begin)
        return answers

    setattr(Threads, "carry", timed)  # noqa: B010 (a measurement)
    try:
        start_run(make_config({"data": str(folder / "d.parts"), **values}), folder / "one")
    finally:
        setattr(Threads, "carry", carry)  # noqa: B010
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--rows", type=int, default=32_561)
    parser.add_argument("--parties", type=int, choices=(1, 2, 3), default=3)
    parser.add_argument("--folders", nargs="+", default=[tempfile.gettempdir()])
    parser.add_argument("--agent", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sleep_between_jobs()  # as the commands do
    if options.agent:
        agent(*options.agent)
        return
    del WIDTHS[options.parties :]
    print(
        "| scheme | files in | exchanges | out, a party and round | in | waits | slowest party |"
        " one process | beyond it | processor: a party | coordinator |\n" + "|---|---|" + "---:|" * 9
    )
    for scheme in SCHEMES:
        for folder in options.folders:
            with tempfile.TemporaryDirectory(prefix="ba", dir=folder) as name:
                print(f"| {scheme} | {folder} | {cells(scheme, Path(name), options)} |", flush=True)


def cells(scheme: str, own: Path, options: argparse.Namespace) -> str:
    """A run's row of the table."""
    values = {"lambda": 1e-5, "gap": 0.0, "rounds": options.rounds, "scheme": scheme}
    values |= {"directions": "both"} if scheme == "subspace" else {}
    clock, parties = federated(own, data(own, options.rows), values)
    one = np.median(one_process(own, values)[3:])
    rounds = len((own / "run" / "rounds.jsonl").read_text().splitlines())
    # The first exchanges open the run and compile.
    waited, parties, cpu = np.array(clock.waited)[3:], parties[3:], np.array(clock.cpu)[3:]
    worked = parties[:, :, 1].max(axis=1)
    milliseconds = [waited, worked, one, waited - one, parties[:, :, 2], cpu]
    medians = " | ".join(f"{1e3 * np.median(part):.1f} ms" for part in milliseconds)
    sent, received = (part / rounds / len(WIDTHS) / 1e3 for part in (clock.sent, clock.received))
    return f"{len(clock.waited)} | {sent:.0f} kB | {received:.0f} kB | {medians}"


if __name__ == "__main__":
    main()
