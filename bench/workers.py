"""Runs of one and two workers, and without any, in turn: docs/streaming.md.

    python -P bench/workers.py [--turns 12] [--rows 1000000]

Needs ``fastadmm[mpi]`` and a quiet machine with two cores. Prints the seconds of every turn's rounds, and
medians; and how much faster two processes read memory than one: passes over dense rows wait for it.

A virtual machine gives memory that is free for seconds back to the one below it, and to get it again takes
longer than a fit. So memory is touched before every run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROWS, COLUMNS, ROWS_AT_ONCE = 1_000_000, 100, 50_000

#: Times that a process reads its memory, of which the median counts, and looks in one of them.
READINGS, LOOKS = 7, 4


def make(path: Path, rows: int) -> None:
    """Write two dense parties that know some of the same."""
    from fastadmm.store.partition import create_partition

    rng = np.random.default_rng(1)
    weights, half = rng.normal(size=COLUMNS) / 5.0, COLUMNS // 2
    with create_partition(path, task="classification") as partition:
        first, second = (partition.party(n_features=half, kind="dense") for _ in range(2))
        labels = partition.labels(classes=("0", "1"))
        for _ in range(0, rows, ROWS_AT_ONCE):
            X = rng.normal(size=(ROWS_AT_ONCE, COLUMNS))
            X[:, half:] += 0.5 * X[:, :half]
            first.append(X[:, :half])
            second.append(X[:, half:])
            labels.append((rng.random(ROWS_AT_ONCE) < 1.0 / (1.0 + np.exp(-X @ weights))) * 1.0)


def touch(rows: int) -> None:
    """Ask for memory, as much as a run and its copies may take, and leave it."""
    for array in [np.empty((rows, COLUMNS)) for _ in range(3)]:
        array.reshape(-1)[::512] = 1.0


def touched(rows: int) -> None:
    """Have a process do that."""
    process = multiprocessing.Process(target=touch, args=(rows,))
    process.start()
    process.join()


def read(numbers: int, begin: Any, taken: Any) -> None:
    """Read so many numbers, at the same time as the others that wait for the beginning."""
    array = np.ones(numbers)
    for reading in range(READINGS):
        begin.wait()
        start = time.perf_counter()
        for _ in range(LOOKS):
            array.max()
        taken.put((reading, time.perf_counter() - start))


def reading(rows: int, processes: int) -> float:
    """Seconds to read all features, shared by so many processes."""
    begin, taken = multiprocessing.Barrier(processes), multiprocessing.Queue()
    those = [
        multiprocessing.Process(target=read, args=(rows * COLUMNS // processes, begin, taken))
        for _ in range(processes)
    ]
    for process in those:
        process.start()
    times = [taken.get() for _ in range(READINGS * processes)]
    for process in those:
        process.join()
    slowest = [max(t for own, t in times if own == number) for number in range(READINGS)]
    return statistics.median(slowest) / LOOKS


def seconds(data: Path, run: Path, workers: int) -> float:
    """Of all rounds of a run; 0 workers is one process without ``--cluster``."""
    here = Path(sys.executable)
    command = [str(here.with_name("fastadmm")), "train", str(data), "--lambda", "1e-5", "--gap", "1e-9"]
    if workers:
        command = [str(here.with_name("mpiexec")), "-n", str(workers), *command, "--cluster", "mpi"]
    threads = {f"{name}_NUM_THREADS": "1" for name in ("NUMBA", "OMP", "OPENBLAS")}
    command += ["--quiet", "--out", str(run)]
    subprocess.run(command, env={**os.environ, **threads}, stdout=subprocess.DEVNULL, check=True)
    return float(json.loads((run / "rounds.jsonl").read_text("utf-8").splitlines()[-1])["seconds"])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--rows", type=int, default=ROWS)
    options = parser.parse_args()
    turns: list[list[float]] = []
    gains: list[float] = []
    with tempfile.TemporaryDirectory(dir=".") as folder:
        data = Path(folder, "workers.parts")
        make(data, options.rows)
        for turn in range(options.turns):
            turns.append([])
            for workers in range(3):
                touched(options.rows)
                turns[-1].append(seconds(data, Path(folder, f"run-{turn}-{workers}"), workers))
            print("no cluster, one worker, two: " + ", ".join(f"{t:.2f} s" for t in turns[-1]), flush=True)
            gains.append(reading(options.rows, 1) / reading(options.rows, 2))
    none, one, two = (statistics.median(own) for own in zip(*turns))
    print(f"one worker over none {one / none:.3f}; two workers {one / two:.2f} times as fast as one")
    print(f"two processes read memory {statistics.median(gains):.2f} times as fast as one")


if __name__ == "__main__":
    main()
