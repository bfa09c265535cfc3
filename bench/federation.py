"""What an exchange costs between organisations: over a socket, and over NVFlare with mutual TLS.

Usage: python bench/federation.py [QUESTIONS]

A server and three sites on the loopback interface, agents that send a question back. A message of a9a
(N = 32,561 float64) has 260 kB. Printed: median and 90 % quantile, of one party and of three at once.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from fastadmm.federation.carrier import Carrier
from fastadmm.federation.socket import Socket, serve
from fastadmm.federation.stage import ADMIN, SERVER, Stage

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
            for words, size in SIZES.items():
                raw = bytes(size)
                cells = [
                    milliseconds(lambda raw=raw: socket.ask("", raw, 60), times),
                    milliseconds(lambda raw=raw: carrier.ask(SITES[0], raw, 60), times),
                    milliseconds(
                        lambda raw=raw: list(pool.map(lambda name: carrier.ask(name, raw, 60), SITES)), times
                    ),
                ]
                print(
                    f"| {words} | "
                    + " | ".join(f"{mid:.1f} ms ({high:.1f} ms)" for mid, high in cells)
                    + " |"
                )
            socket.close()
        for server in servers:
            server.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
