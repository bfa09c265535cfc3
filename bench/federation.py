"""What an exchange costs between organisations: over a socket, and over NVFlare with mutual TLS.

Usage: python bench/federation.py [QUESTIONS]

A server and three sites on the loopback interface, agents that send a question back. A message of a9a
(N = 32,561 float64) has 260 kB. Printed: median and 90 % quantile, of one party and of three at once; the
processors' time of all NVFlare's processes; their memory; and the disk that NVFlare takes.
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory

from fastadmm.between.carrier import Carrier
from fastadmm.between.socket import Socket, serve

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from nvflare_stage import ADMIN, SERVER, Stage

SITES = ("bank", "shop", "phone")
SIZES = {"1 kB": 1_000, "260 kB (a9a)": 8 * 32_561, "8 MB": 8_000_000}


def milliseconds(work: Callable[[], object], times: int) -> tuple[float, float]:
    """Median and 90 % quantile."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        taken.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(taken), statistics.quantiles(taken, n=10)[-1]


def processors(stage: Stage) -> float:
    """Seconds that the stage's processes have computed so far."""
    ticks = 0
    for pid in stage.processes():
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory(pids: list[int]) -> float:
    """MB that these processes hold, what they share counted once."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1e3


def disk() -> float:
    """MB of NVFlare and of what is installed for it and not for fastadmm."""
    own, found = needed("fastadmm"), needed("nvflare")
    files = [file for name in found - own for file in distribution(name).files or ()]
    return sum(path.stat().st_size for file in files if (path := Path(str(file.locate()))).is_file()) / 1e6


def needed(name: str) -> set[str]:
    """A distribution and all that it requires, without extras."""
    found, todo = set[str](), [name]
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop().lower())
        try:
            requires = distribution(name).requires or []
        except PackageNotFoundError:  # not for this system
            continue
        if name not in found:
            found.add(name)
            todo += [re.split(r"[^\w.-]", text)[0] for text in requires if "extra ==" not in text]
    return found


def main(times: int) -> None:
    with TemporaryDirectory(prefix="fa") as directory, Stage(Path(directory), SITES) as stage:
        stage.provision()
        for name in (SERVER, *SITES):
            stage.start(name)
        servers = [serve(stage.sockets[name], lambda caller, party, raw: raw) for name in SITES]
        begin = time.perf_counter()
        with (
            Carrier(stage.kits[ADMIN], stage.sockets[SERVER], {name: name for name in SITES}) as carrier,
            ThreadPoolExecutor(len(SITES)) as pool,
        ):
            carrier.ask(SITES[0], b"", 60)
            print(f"from nothing to a running job: {time.perf_counter() - begin:.0f} s\n")
            socket = Socket(stage.sockets[SITES[0]])
            print("| message there and back | socket alone | NVFlare, one party | NVFlare, three at once |")
            print("|---|---:|---:|---:|")
            held = {}
            for words, size in SIZES.items():
                raw, spent = bytes(size), processors(stage)
                cells = [
                    milliseconds(lambda raw=raw: socket.ask("", raw, 60), times),
                    milliseconds(lambda raw=raw: carrier.ask(SITES[0], raw, 60), times),
                    milliseconds(
                        lambda raw=raw: list(pool.map(lambda site: carrier.ask(site, raw, 60), SITES)), times
                    ),
                ]
                print(
                    f"| {words} | "
                    + " | ".join(f"{mid:.1f} ms ({high:.1f} ms)" for mid, high in cells)
                    + " |"
                )
                held[words] = [memory(stage.jobs(name)) for name in (SERVER, SITES[0])]
                spent = 1e3 * (processors(stage) - spent) / (4 * times)
                print(f"  {spent:.0f} ms of all processors for a question", file=sys.stderr)
            jobs = {pid for name in (SERVER, *SITES) for pid in stage.jobs(name)}
            alone = memory(sorted(set(stage.processes()) - jobs)) / (1 + len(SITES))
            print(f"\nmemory of a server or a site: {alone:.0f} MB, and of a job beside it")
            for words, (server, site) in held.items():
                print(f"  {server:.0f} MB at the server, {site:.0f} MB at a site, after messages of {words}")
            print(f"disk: {disk():.0f} MB beside what fastadmm itself needs")
        for server in servers:
            server.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
