"""Measure two ways to share the pieces of a kernel, and write the block in ``docs/architecture.md``.

    python bench/row_threads.py [--write]

Each in turn with the others, many times, with a pause before each, so that no thread of the last still
waits awake:

* a logistic gradient over 16 fixed pieces, by the caller alone, a crew, and ``prange``;
* whole fits by `subspace` to a gap of 1e-6, of synthetic data shaped like a9a and of dense data;
* either of them once more beside a process that keeps every core busy;
* the first call in a new process, with an empty compiler cache and with a full one.

With ``--write`` the numbers replace those in ``bench/row_threads.json`` and the block on the page.
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
PAGE = Path(__file__).resolve().parents[1] / "docs" / "architecture.md"
MARK = "row-threads"

ROWS = (2_000, 32_561, 500_000)
WAYS = ("alone", "crew", "prange")

#: Rows and columns of each party; share of entries that are not zero.
FITS: dict[str, tuple[int, tuple[int, ...], float]] = {
    "like a9a, 32,561 × 123, sparse": (32_561, (66, 57), 0.11),
    "dense, 20,000 × 54": (20_000, (27, 27), 1.0),
}

#: Long enough for threads that wait awake to go to sleep.
_PAUSE = 0.03


def engine_of(way: str) -> Any:
    """An engine that shares pieces in this way."""
    from fastadmm.engine.engine import Engine
    from fastadmm.engine.parallel_rows import ParallelRows

    engine = Engine(1 if way == "alone" else os.cpu_count())
    if way == "prange":
        engine.row_threads = ParallelRows
    return engine


def gradient(rows: int) -> Callable[[Any], None]:
    """A logistic gradient of so many rows on an engine."""
    from fastadmm.engine.engine import even_ranges
    from fastadmm.kernels.logistic import logistic_evaluate

    rng = np.random.default_rng(0)
    z, weight, out = rng.normal(size=rows), np.ones(rows), np.empty(rows)
    y, pieces = (rng.random(rows) < 0.5) * 1.0, even_ranges(rows, 16)
    return lambda engine: engine.over_rows(logistic_evaluate, pieces, z, y, weight, out)


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


def calls(rows: int, repeats: int, each: int = 20) -> dict[str, list[float]]:
    """Seconds of single calls by way: some of each in turn, so often."""
    work, found = gradient(rows), {way: [] for way in WAYS}
    engines = {way: engine_of(way) for way in WAYS}
    for turn in range(repeats + 1):
        for way, engine in engines.items():
            time.sleep(_PAUSE)
            work(engine)  # wakes whoever sleeps
            for _ in range(each):
                begin = time.perf_counter()
                work(engine)
                if turn:
                    found[way].append(time.perf_counter() - begin)
    for engine in engines.values():
        engine.close()
    return found


def fits(name: str, repeats: int) -> dict[str, list[float]]:
    """Seconds of fits by way."""
    from fastadmm.engine.engine import Engine
    from fastadmm.solver.solver import SolverOptions, solve

    problem, found, default = problem_of(*FITS[name]), {way: [] for way in WAYS}, Engine.row_threads
    for turn in range(repeats + 1):
        for way in WAYS:
            time.sleep(_PAUSE)
            engine = engine_of(way)
            Engine.row_threads = engine.row_threads
            begin = time.perf_counter()
            solve(problem, SolverOptions(scheme="subspace", gap=1e-6, n_threads=engine.n_threads))
            if turn:
                found[way].append(time.perf_counter() - begin)
    Engine.row_threads = default
    return found


def first(way: str) -> float:
    """Seconds of the first gradient in this process."""
    work, engine = gradient(100_000), engine_of(way)
    begin = time.perf_counter()
    work(engine)
    seconds = time.perf_counter() - begin
    engine.close()
    return seconds


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
    """Median and tenth percentile by way."""
    return {
        way: {"median": statistics.median(seconds), "quick": float(np.quantile(seconds, 0.1))}
        for way, seconds in found.items()
    }


def measure() -> dict[str, Any]:
    """All of it, as plain values."""
    cores = os.cpu_count() or 1
    found: dict[str, Any] = {"cores": cores, "load": os.getloadavg()[0]}
    found["calls"] = {f"{rows:,}": told(calls(rows, 30 if rows < 10**5 else 10)) for rows in ROWS}
    found["fits"] = {name: told(fits(name, 10)) for name in FITS}
    with busy(cores):
        found["busy calls"] = {f"{rows:,}": told(calls(rows, 3, 10)) for rows in ROWS[:2]}
        found["busy fits"] = {name: told(fits(name, 3)) for name in FITS}
    import numba

    found["layer"] = numba.threading_layer()
    with tempfile.TemporaryDirectory() as cache:
        found["first"] = {
            way: {kind: in_new_process(way, f"{cache}/{way}") for kind in ("empty", "full")} for way in WAYS
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
        f"`{found['layer']}`: median, and in brackets the tenth percentile. *Busy*: beside as many computing "
        "processes as there are cores.",
        "",
        "| job | caller alone | crew | `prange` |",
        "|---|---:|---:|---:|",
    ]

    def row(name: str, ways: dict[str, dict[str, float]]) -> None:
        cells = [f"{_time(ways[way]['median'])} ({_time(ways[way]['quick'])})" for way in WAYS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")

    for prefix in ("", "busy "):
        for rows, ways in found[f"{prefix}calls"].items():
            row(f"{prefix}gradient, {rows} rows", ways)
        for name, ways in found[f"{prefix}fits"].items():
            row(f"{prefix}fit, {name}", ways)
    for kind in ("empty", "full"):
        cells = [_time(found["first"][way][kind]) for way in WAYS]
        lines.append(f"| first call, {kind} compiler cache | " + " | ".join(cells) + " |")
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
