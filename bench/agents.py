"""Measure what an exchange with agents costs beyond the parties' own work.

    python bench/agents.py [--rounds 20] [--rows 32561] [--sockets]

Data like a9a: 32,561 rows, 123 columns of which 11 % are not zero, three parties. Each exchange of a run is
timed twice: as the coordinator waits for it, and as the slowest party computes its answer; the difference is
protocol, journals on both sides, audit logs and, with ``--sockets``, gRPC. All agents are in this process and
write to one disk, so the numbers are upper bounds of what parties with machines of their own see.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.federation.agent import Agent
from fastadmm.federation.approve import agent_approve
from fastadmm.federation.coordinator import FederatedRun
from fastadmm.federation.hub import Hub
from fastadmm.rounds.coordinator_step import new_run
from fastadmm.rounds.host import Host
from fastadmm.runs.config import make_config
from fastadmm.runs.train import start_run
from fastadmm.store.partition import create_partition
from scipy import sparse

WIDTHS = (41, 41, 41)
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


class Clock:
    """Seconds of each exchange, as the coordinator and as the slowest party see it, and its bytes."""

    def __init__(self, stack: ExitStack) -> None:
        self.waited: list[float] = []
        self.worked: list[float] = []
        self.sent, self.received = 0, 0
        self._working: list[float] = []
        carry, answer = Hub.carry, Host.answer
        stack.callback(setattr, Hub, "carry", carry)
        stack.callback(setattr, Host, "answer", answer)

        def timed_carry(hub: Hub, exchange: Any) -> Any:
            self._working.clear()
            begin = time.perf_counter()
            answers = carry(hub, exchange)
            if self._working:
                self.waited.append(time.perf_counter() - begin)
                self.worked.append(max(self._working))
            return answers

        def timed_answer(host: Host, *arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return answer(host, *arguments)
            finally:
                self._working.append(time.perf_counter() - begin)

        setattr(Hub, "carry", timed_carry)  # noqa: B010 (a measurement)
        setattr(Host, "answer", timed_answer)  # noqa: B010


def federated(folder: Path, partition: Path, values: dict[str, Any], sockets: bool) -> Clock:
    """One run with agents."""
    names = [f"party-{m + 1}" for m in range(len(WIDTHS))]
    with ExitStack() as stack:
        new, fill = new_run(partition / "labels.h5", names, folder / "run", values, "bench")
        agents = {}
        for name in names:
            agents[name] = Agent(partition / f"{name}.h5", folder / name, threads=1)
            stack.callback(agents[name].close)

        def ask(name: str, raw: bytes, seconds: float) -> bytes:
            return agents[name].handle("bench", name, raw)

        if sockets:
            from fastadmm.federation.socket import Socket, serve

            ways = {}
            for name in names:
                stack.callback(serve(folder / f"{name}.sock", agents[name].handle).stop)
                ways[name] = Socket(folder / f"{name}.sock")

            def ask(name: str, raw: bytes, seconds: float) -> bytes:
                return ways[name].ask(name, raw, seconds, "bench")

        clock = Clock(stack)

        def counted(name: str, raw: bytes, seconds: float) -> bytes:
            answer = ask(name, raw, seconds)
            clock.sent += len(raw)
            clock.received += len(answer)
            return answer

        with new.begin(fill, force=False):
            run = FederatedRun(new, counted, lambda record: None)
            run.write_description("bench")
            for name in names:
                agent_approve(new.path / "run.json", partition / f"{name}.h5", folder / name)
            run.train()
            run.close()
    return clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=32_561)
    parser.add_argument("--sockets", action="store_true", help="through gRPC on Unix sockets")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        partition = data(folder, options.rows)
        for scheme in SCHEMES:
            values = {"lambda": 1e-5, "gap": 1e-12, "rounds": options.rounds, "scheme": scheme}
            own = folder / scheme
            own.mkdir()
            start_run(make_config({"data": str(partition), "threads": 1, **values}), own / "one")
            begin = time.perf_counter()
            start_run(make_config({"data": str(partition), "threads": 1, **values}), own / "two")
            whole = time.perf_counter() - begin
            clock = federated(own, partition, values, options.sockets)
            # The first exchanges open the run and compile.
            pairs = list(zip(clock.waited, clock.worked))[3:]
            beyond = [1e3 * (waited - worked) for waited, worked in pairs]
            n = len(clock.waited)
            print(
                f"{scheme}: {n} exchanges; one process {whole:.2f} s in all; an exchange "
                f"{1e3 * statistics.median(w for w, _ in pairs):.2f} ms, of which the slowest party "
                f"{1e3 * statistics.median(w for _, w in pairs):.2f} ms; beyond it median "
                f"{statistics.median(beyond):.2f} ms, tenth percentile {np.quantile(beyond, 0.1):.2f} ms; "
                f"{clock.sent / n / 1e3:.0f} kB out, {clock.received / n / 1e3:.0f} kB in for an exchange"
            )


if __name__ == "__main__":
    main()
