"""Measure what threads gain, alone and beside others, and write the block in ``docs/streaming.md``.

    python bench/row_threads.py [--write]

Three ways in turn with each other, many times:

* *one thread*;
* *all threads*: as many as have a core to themselves;
* *unwatched*: all threads, whoever else computes.

What is measured: a logistic gradient over 16 fixed pieces; whole fits by `subspace` to a gap of 1e-6, alone,
beside one and two processes that only compute, and right after jobs of this process whose OpenBLAS or OpenMP
threads still wait awake; the first call in a new process with an empty compiler cache and with a full one.

It takes some two minutes. With ``--write`` the numbers replace those in ``bench/row_threads.json`` and the
block on the page.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from page import replace_block

MEASURED = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "streaming.md"
MARK = "row-threads"

ROWS = (2_000, 32_561, 500_000)
WAYS = ("one thread", "all threads", "unwatched")

#: Rows and columns of each party; share of entries that are not zero.
FITS: dict[str, tuple[int, tuple[int, ...], float]] = {
    "like a9a, 32,561 × 123, sparse": (32_561, (66, 57), 0.11),
    "dense, 20,000 × 54": (20_000, (27, 27), 1.0),
    "sparse, 130,000 × 123": (130_000, (66, 57), 0.11),
}

#: Long enough for threads that wait awake to go to sleep.
_PAUSE = 0.03


@contextmanager
def going(way: str) -> Iterator[int]:
    """How many threads compute in this way."""
    from fastadmm.engine import free_cores
    from fastadmm.engine.free_cores import FREE_CORES

    watching = FREE_CORES._running
    if way == "unwatched":
        FREE_CORES._running = lambda: 0
        FREE_CORES._free = FREE_CORES._cores
    try:
        yield 1 if way == "one thread" else os.cpu_count() or 1
    finally:
        FREE_CORES._running = watching
        FREE_CORES._next_look = -free_cores._OLD


def gradient(rows: int) -> Callable[[Any], None]:
    """A logistic gradient of so many rows on an engine."""
    from fastadmm.engine.engine import even_ranges
    from fastadmm.kernels.logistic import logistic

    rng = np.random.default_rng(0)
    z, weight, out = rng.normal(size=rows), np.ones(rows), np.empty(rows)
    y, pieces = (rng.random(rows) < 0.5) * 1.0, even_ranges(rows, 16)
    return lambda engine: engine.over_rows(logistic.evaluate, pieces, z, y, weight, (), out)


def problem_of(rows: int, widths: tuple[int, ...], filled: float) -> Any:
    """A classification problem of two parties; sparse blocks hold indicators."""
    import scipy.sparse as sp
    from fastadmm.problem.problem import make_problem

    rng = np.random.default_rng(0)
    blocks: list[Any] = []
    z = rng.normal(size=rows)
    for d in widths:
        block = rng.normal(size=(rows, d)) if filled == 1.0 else (rng.random((rows, d)) < filled) * 1.0
        z += block @ rng.normal(size=d) / np.sqrt(filled * d)
        blocks.append(block if filled == 1.0 else sp.csr_array(block))
    return make_problem(blocks, (z > np.median(z)) * 1.0, lam=1e-4)


def rest() -> None:
    """Let all threads go to sleep."""
    time.sleep(_PAUSE)


def openblas() -> None:
    """A product of matrices on all threads of BLAS."""
    from threadpoolctl import threadpool_limits

    matrix = np.ones((600, 600))
    with threadpool_limits(os.cpu_count(), user_api="blas"):
        matrix @ matrix


def openmp() -> None:
    """Nearest points on all threads of scikit-learn's OpenMP."""
    from sklearn.metrics import pairwise_distances_argmin
    from threadpoolctl import threadpool_limits

    points = np.arange(40_000.0).reshape(2_000, 20)
    with threadpool_limits(os.cpu_count(), user_api="openmp"):
        pairwise_distances_argmin(points, points)


def in_turns(work: Callable[[int], Any], repeats: int, before: Callable[[], Any]) -> dict[str, list[float]]:
    """Seconds of work with so many threads, by way; the first round does not count."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(repeats + 1):
        for way in WAYS[turn % 3 :] + WAYS[: turn % 3]:
            before()
            with going(way) as n_threads:
                begin = time.perf_counter()
                work(n_threads)
                if turn:
                    found[way].append(time.perf_counter() - begin)
    return found


def calls(rows: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of single calls, by way: means of twenty that follow each other."""
    from fastadmm.engine.engine import Engine

    work = gradient(rows)
    engines = {n: Engine(n) for n in (1, os.cpu_count() or 1)}

    def twenty(n_threads: int) -> None:
        for _ in range(20):
            work(engines[n_threads])

    found = in_turns(twenty, repeats, rest)
    return {way: [one / 20 for one in seconds] for way, seconds in found.items()}


def fits(problem: Any, repeats: int, before: Callable[[], Any]) -> dict[str, list[float]]:
    """Seconds of fits, by way."""
    from fastadmm.solver.solver import SolverOptions, solve

    def fit(n_threads: int) -> None:
        solve(problem, SolverOptions(scheme="subspace", gap=1e-6, n_threads=n_threads))

    return in_turns(fit, repeats, before)


def first(way: str) -> float:
    """Seconds of the first gradient in this process."""
    from fastadmm.engine.engine import Engine

    work = gradient(100_000)
    with going(way) as n_threads:
        begin = time.perf_counter()
        work(Engine(n_threads))
        return time.perf_counter() - begin


def in_new_process(way: str, cache: str) -> float:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--first", way]
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that do nothing but compute."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def told(found: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """By way: quickest, median, and the median of the ratios to one thread in the same turn."""
    return {
        way: {
            "quickest": min(seconds),
            "median": statistics.median(seconds),
            "ratio": statistics.median(a / b for a, b in zip(seconds, found[WAYS[0]])),
        }
        for way, seconds in found.items()
    }


def measure(repeats: int = 8) -> dict[str, Any]:
    """All of it, as plain values."""
    found: dict[str, Any] = {"cores": os.cpu_count() or 1, "load": os.getloadavg()[0]}
    found["calls"] = {f"{rows:,}": told(calls(rows, repeats)) for rows in ROWS}
    problems = {name: problem_of(*shape) for name, shape in FITS.items()}
    found["fits"] = {}
    for place, others, before in (
        ("alone", 0, rest),
        ("beside one busy process", 1, rest),
        ("beside two busy processes", 2, rest),
        ("after OpenBLAS", 0, openblas),
        ("after OpenMP", 0, openmp),
    ):
        with busy(others):
            found["fits"][place] = {name: told(fits(p, repeats, before)) for name, p in problems.items()}
    import numba

    found["layer"] = numba.threading_layer()
    with tempfile.TemporaryDirectory() as cache:
        found["first"] = {
            way: {kind: in_new_process(way, f"{cache}/{way}") for kind in ("empty", "full")}
            for way in (WAYS[0], WAYS[2])
        }
    return found


def _time(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1.0:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def render(found: dict[str, Any]) -> str:
    """What the page shows of the measured numbers."""
    lines = [
        f"On {found['cores']} cores (load average at the start {found['load']:.1f}), Numba's layer "
        f"`{found['layer']}`: quickest time, and in brackets the median of the ratios to one thread in the "
        "same turn. *Unwatched*: all threads, whoever else computes.",
        "",
        "| job | one thread | all threads | unwatched |",
        "|---|---:|---:|---:|",
    ]

    def row(name: str, ways: dict[str, dict[str, float]]) -> None:
        cells = [_time(ways[WAYS[0]]["quickest"])]
        cells += [f"{_time(ways[way]['quickest'])} ({ways[way]['ratio']:.2f})" for way in WAYS[1:]]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")

    for rows, ways in found["calls"].items():
        row(f"gradient, {rows} rows", ways)
    for place, fitted in list(found["fits"].items())[:2]:  # alone, and beside one busy process
        for name, ways in fitted.items():
            row(f"fit {place}, {name}", ways)
    one, all_of_them = (found["first"][way] for way in (WAYS[0], WAYS[2]))
    for kind in ("empty", "full"):
        ratio = all_of_them[kind] / one[kind]
        cells = f"{_time(one[kind])} | – | {_time(all_of_them[kind])} ({ratio:.2f})"
        lines.append(f"| first call, {kind} compiler cache | {cells} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--first", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first:
        print(first(options.first))
        return
    found = measure()
    print(render(found))
    if options.write:
        MEASURED.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        replace_block(MARK, render(found), PAGE)


if __name__ == "__main__":
    main()
