"""How well fits would use many cores, counted on a machine that has few of them.

    python -P bench/cores.py [CASE ...] [--redraw]

Writes ``bench/cores.json`` and the block between ``<!-- cores:begin -->`` and ``<!-- cores:end -->`` in
``docs/streaming.md``. With names of cases only those are measured anew; ``--redraw`` measures nothing.

A fit runs on one thread that decides everything as if it were P. Every piece of every job is timed, and put
on the first of P cores that is free; the rest of the program counts as it is, on one core. That gives the
time of the critical path. What all pieces and the rest take together in the same run is the time of one core,
so that other programs, which slow down one run more than the next, change little. It leaves out what cores
share: the memory's bandwidth and the caches. Real fits with one and two threads, in turn, say how far the
counting can be trusted.
"""

from __future__ import annotations

import argparse
import heapq
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.engine.engine import Engine
from fastadmm.engine.rows import NUMBA_THREADS

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

MEASURED = ROOT / "bench" / "cores.json"
PAGE = ROOT / "docs" / "streaming.md"

CORES = (1, 2, 16, 64, 256)

#: Of these cores jobs are counted, and what is left on one.
MANY = "64"

#: Seconds to hand a job of compiled pieces to cores, for every doubling of them.
LAUNCH = 2e-6

#: Seconds of the interpreter, which only one thread has at a time, for an item of a job of Python functions.
INTERPRETER = 15e-6

#: Rows that are made at once.
AT_ONCE = 1 << 18

#: Of one call of a kernel that has several.
MOST_JOBS = 1 << 12

Array = np.ndarray


class Clock:
    """Processor time on one core, and on the cores that are counted.

    Parameters
    ----------
    cores : int
    """

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.saved = 0.0  # seconds that the counted cores save
        self.counting = 0.0  # and those that counting itself takes
        self.jobs, self.shared = 0, 0.0  # jobs that are shared, and seconds of all their pieces
        self.inside = self.short = False

    @staticmethod
    def now() -> float:
        """Seconds of this thread."""
        return time.thread_time()

    def job(self, seconds: Sequence[float], each: float) -> None:
        """Put the items of a job on cores; ``each`` is what handing over costs in all."""
        total, cores = sum(seconds), min(self.cores, len(seconds))
        free = [0.0] * cores
        for item in seconds:
            heapq.heapreplace(free, free[0] + item)
        path = max(free) + (each if cores > 1 else 0.0)
        if path < total:
            self.saved += total - path
            self.shared += total
            self.jobs += 1

    def run(self, n_threads: int, runner: Callable[..., Any], *arguments: Any) -> Any:
        """Stand in for Numba's threads: what a kernel does between its jobs, and before, is on one core."""
        if n_threads == 1:
            return runner(0, *arguments)
        share, log = counting_share()
        log[0] = 0
        found = runner(share, *arguments)
        begin = self.now()
        for pieces, seconds in log[1 : 1 + 2 * int(log[0])].reshape(-1, 2).tolist():
            number = int(pieces)
            self.job([seconds / number] * number, LAUNCH * self.cores.bit_length())
        self.counting += self.now() - begin
        return found


class CountedEngine(Engine):
    """Runs every job on one thread, and counts what more of them would do.

    Parameters
    ----------
    clock : Clock
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock.cores)
        self.clock = clock

    def _shared(
        self, function: Callable[[Any], Any], items: Iterable[Any], parallel: bool = True
    ) -> list[Any]:
        clock, items = self.clock, list(items)
        if clock.inside or clock.short or len(items) < 2:
            return [function(item) for item in items]
        if not parallel:
            clock.short = True
            try:
                return [function(item) for item in items]
            finally:
                clock.short = False
        found, seconds = [], []
        clock.inside = True
        try:
            for item in items:
                begin = clock.now()
                found.append(function(item))
                seconds.append(clock.now() - begin)
        finally:
            clock.inside = False
        begin = clock.now()
        clock.job(seconds, INTERPRETER * len(items))
        clock.counting += clock.now() - begin
        return found

    def _threads_for(self, ranges: Sequence[tuple[int, int]]) -> int:
        return 1 if self.inside or len(ranges) < 2 else self.clock.cores

    @property
    def inside(self) -> bool:
        return self.clock.inside


@contextmanager
def counted_threads(clock: Clock) -> Iterator[None]:
    """Let a clock have the jobs of compiled pieces that engines hand to Numba's threads."""
    threads = type(NUMBA_THREADS)
    run = threads.run
    threads.run = lambda _, *given: clock.run(*given)  # type: ignore[method-assign]
    try:
        yield
    finally:
        threads.run = run  # type: ignore[method-assign]


@cache
def counting_share() -> tuple[int, Array]:
    """What jobs of compiled pieces are shared by: in turn on one thread.

    Returns
    -------
    share : int
        Its address.
    log : ndarray of shape (1 + 2 * jobs,)
        How many jobs there were, and pieces and seconds of each. Whoever reads it sets the first to zero.
    """
    import ctypes

    from fastadmm.engine.rows import address_of
    from fastadmm.kernels.pieces import call_piece
    from numba import carray, njit, types
    from numba.extending import intrinsic

    @intrinsic
    def pointer(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

        return types.voidptr(address), generate

    log, now = np.zeros(1 + 2 * MOST_JOBS), np.zeros(2, dtype=np.int64)
    log_at, now_at = log.ctypes.data, now.ctypes.data
    read = ctypes.CDLL(None).clock_gettime
    read.argtypes, read.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_int
    counting_share.kept = now  # type: ignore[attr-defined]  # its address is known to machine code
    clock = time.CLOCK_THREAD_CPUTIME_ID

    def in_turn(code: int, what: int, pieces: int) -> None:
        own = carray(pointer(log_at), 1 + 2 * MOST_JOBS, np.float64)
        here = carray(pointer(now_at), 2, np.int64)
        read(clock, pointer(now_at))
        begin, job = here[0] + 1e-9 * here[1], min(int(own[0]), MOST_JOBS - 1)
        for piece in range(pieces):
            call_piece(code, what, piece)
        read(clock, pointer(now_at))
        own[1 + 2 * job], own[2 + 2 * job] = pieces, here[0] + 1e-9 * here[1] - begin
        own[0] = job + 1

    share = njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True)(in_turn)
    return address_of(share, (0, 0, 0)), log


def dense(rows: int, columns: int, parties: int) -> tuple[list[Array], Array]:
    """Normal features whose columns are correlated, and labels of a logistic model."""
    rng = np.random.default_rng(0)
    own = np.array_split(np.arange(columns), parties)
    blocks = [np.empty((rows, len(numbers))) for numbers in own]
    for start in range(0, rows, AT_ONCE):
        X = rng.standard_normal((min(AT_ONCE, rows - start), columns))
        X[:, 1:] += 0.5 * X[:, :-1]
        for block, numbers in zip(blocks, own):
            block[start : start + len(X)] = X[:, numbers]
    chance, weights = rng.random(rows), rng.standard_normal(columns) / 3.0
    z = sum(block @ weights[numbers] for block, numbers in zip(blocks, own))
    return blocks, np.where(chance < 1.0 / (1.0 + np.exp(-z)), 1.0, -1.0)


def sparse(rows: int, columns: int, entries: int, parties: int) -> tuple[list[Any], Array]:
    """Rows of so many entries each, in columns that are less frequent the higher their number."""
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    indices = (columns * rng.random((rows, entries)) ** 3).astype(np.int32)
    X = sp.csr_array(
        (np.ones(rows * entries), indices.ravel(), np.arange(rows + 1) * entries), (rows, columns)
    )
    X.sum_duplicates()
    y = np.where(X @ rng.standard_normal(columns) + rng.standard_normal(rows) > 0.0, 1.0, -1.0)
    X = X[:, rng.permutation(columns)].tocsc()
    parts = np.array_split(np.arange(columns), parties)
    return [X[:, part[0] : part[-1] + 1].tocsr() for part in parts], y


def strata(rows: int, columns: int, entries: int, parties: int) -> tuple[list[Any], Array]:
    """As :func:`sparse` in little memory: an entry in each of many strata, wider the higher their number."""
    import scipy.sparse as sp

    rng, y = np.random.default_rng(0), np.zeros(rows)
    own, wide = entries // parties, columns // parties
    edges = (np.arange(own + 1) + (wide - own) * (np.arange(own + 1) / own) ** 3).astype(np.int32)
    begin, width, blocks = edges[:-1], np.diff(edges), list[Any]()
    for _ in range(parties):
        indices = np.empty((rows, own), dtype=np.int32)
        for start in range(0, rows, 100_000):
            part = indices[start : start + 100_000]
            part[:] = begin + (width * rng.random(part.shape, dtype=np.float32)).astype(np.int32)
        np.minimum(indices, edges[1:] - 1, out=indices)
        ends = np.arange(rows + 1, dtype=np.int32) * own
        X = sp.csr_array((np.ones(rows * own), indices.ravel(), ends), (rows, wide))
        y += X @ rng.standard_normal(wide)
        blocks.append(X)
    return blocks, np.where(y + rng.standard_normal(rows) > 0.0, 1.0, -1.0)


#: Title, blocks and labels, and what the problem and the solver are told.
Case = tuple[str, Callable[[], tuple[list[Any], Array]], dict[str, Any], dict[str, Any]]

CASES: dict[str, Case] = {
    "dense-2": ("2,000,000 × 54, dense, 2 parties", lambda: dense(2_000_000, 54, 2), {}, {}),
    "dense-27": ("the same, 27 parties", lambda: dense(2_000_000, 54, 27), {}, {}),
    "l1": ("the same, 2 parties, l1", lambda: dense(2_000_000, 54, 2), {"regularizer": "l1"}, {}),
    "sharing": ("the same, ridge, `sharing`", lambda: dense(2_000_000, 54, 2), {}, {"scheme": "sharing"}),
    "sparse-2": (
        "1,000,000 × 100,000, 100 entries a row, 2 parties",
        lambda: sparse(1_000_000, 100_000, 100, 2),
        {},
        {},
    ),
    "sparse-50": ("the same, 50 parties", lambda: sparse(1_000_000, 100_000, 100, 50), {}, {}),
    "dense-large": ("5,000,000 × 54, dense, 2 parties", lambda: dense(5_000_000, 54, 2), {}, {}),
    "dense-huge": ("10,000,000 × 54, dense, 2 parties", lambda: dense(10_000_000, 54, 2), {}, {}),
    "dense-giant": ("20,000,000 × 54, dense, 2 parties", lambda: dense(20_000_000, 54, 2), {}, {}),
    "sparse-large": (
        "2,000,000 × 100,000, 100 entries in strata, 2 parties",
        lambda: strata(2_000_000, 100_000, 100, 2),
        {},
        {},
    ),
    "wide": ("100,000 × 1,000, dense, 2 parties", lambda: dense(100_000, 1_000, 2), {}, {}),
    "small": ("30,000 × 120, dense, 3 parties", lambda: dense(30_000, 120, 3), {}, {}),
}

#: Certified by every fit, except that none goes on for more than so many rounds.
GAP, ROUNDS = 1e-6, 30

#: Fits that are counted, and real ones with each number of threads in turn; but for the first none begins
#: after so many seconds.
REPEATS, LONG = 3, 10.0


def counted(problem: Any, options: Any, cores: int) -> tuple[Any, float, float, int, float]:
    """A fit's result, its seconds on so many cores and on one, jobs, and seconds outside of them."""
    from fastadmm.solver.loop import run_rounds
    from fastadmm.solver.solver import Solver

    clock = Clock(cores)
    with counted_threads(clock), CountedEngine(clock) as engine:
        begin = clock.now()
        solver = Solver(problem, options, engine)
        with engine.limited():  # as in `solve`
            result = run_rounds(solver)
        solver.method.close()
        del solver
    alone = clock.now() - begin - clock.counting
    return result, alone - clock.saved, alone, clock.jobs, alone - clock.shared


def real(problem: Any, options: Any, threads: int) -> float:
    """Wall seconds of a fit."""
    from dataclasses import replace

    from fastadmm.solver.solver import solve

    begin = time.perf_counter()
    solve(problem, replace(options, n_threads=threads))
    return time.perf_counter() - begin


def typical(problem: Any, options: Any, cores: int) -> tuple[float, float, int, float]:
    """Of several fits the one with the median speed-up: what :func:`counted` tells of it, but for the result.

    Memory that a fit gives back may take the machine below a virtual one long to give again.
    """
    found: list[tuple[float, float, int, float]] = []
    begin = time.perf_counter()
    while len(found) < REPEATS and (not found or time.perf_counter() - begin < LONG):
        _, *told = counted(problem, options, cores)
        found.append(tuple(told))
    return sorted(found, key=lambda own: own[1] / own[0])[len(found) // 2]


def measure(name: str) -> dict[str, Any]:
    """Rounds, seconds by cores, and the ratio of real fits with one thread and two."""
    from fastadmm.problem.problem import make_problem
    from fastadmm.solver.options import SolverOptions

    _, make, about, told = CASES[name]
    blocks, y = make()
    problem = make_problem(blocks, (y > 0.0).astype(float), **{"lam": 1e-4, **about})
    del blocks
    options = SolverOptions(gap=GAP, max_rounds=ROUNDS, **told)
    result, *_ = counted(problem, options, 2)  # compiles
    times = {str(cores): typical(problem, options, cores) for cores in CORES}
    ratios: list[float] = []
    begin = time.perf_counter()
    while not ratios or (len(ratios) < REPEATS and time.perf_counter() - begin < LONG):
        ratios.append(real(problem, options, 1) / real(problem, options, 2))
    return {
        "rounds": len(result.history),
        "entries": sum(block.density * block.shape[0] * block.shape[1] for block in problem.blocks),
        "seconds": {cores: found[0] for cores, found in times.items()},
        "alone": {cores: found[1] for cores, found in times.items()},
        "jobs": times[MANY][2],
        "serial": times[MANY][3],
        "real": statistics.median(ratios),
        "day": time.strftime("%Y-%m-%d"),
    }


def render(measured: dict[str, Any]) -> str:
    """The page's block."""
    machine, versions = measured["machine"], measured["machine"]["versions"]
    heads = ["jobs", "serial, ms", *(f"{cores} cores" for cores in CORES[1:])]
    days = sorted({case["day"] for case in measured["cases"].values()})
    lines = [
        f"Counted on {machine['cores']} cores ({machine['processor']}), fastadmm {versions['fastadmm']}; "
        f"revision {measured['revision']}, {' and '.join(days)}.",
        "",
        f"| problem | entries | rounds | one core, s | {' | '.join(heads)} | real, 2 threads |",
        "|---|---:|---:|---:|" + "---:|" * (len(heads) + 1),
    ]
    for name, case in measured["cases"].items():
        alone, seconds = case["alone"], case["seconds"]
        shares = [f"{alone[str(cores)] / seconds[str(cores)]:.1f}" for cores in CORES[1:]]
        counts = f"{case['entries']:.1e}".replace("e+0", "e"), str(case["rounds"])
        left = [str(case["jobs"]), f"{1e3 * case['serial']:.1f}"] if "jobs" in case else ["–", "–"]
        really = "–" if case["real"] is None else f"{case['real']:.1f}"
        cells = [CASES[name][0], *counts, f"{min(alone.values()):.2f}", *left, *shares, really]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Command line."""
    from machine import describe_machine, revision
    from page import replace_block

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--redraw", action="store_true")
    options = parser.parse_args()
    if set(options.cases) - set(CASES):
        parser.error(f"a case is one of {', '.join(CASES)}")
    measured: dict[str, Any] = {"cases": {}}
    if MEASURED.exists() and (options.cases or options.redraw):
        measured = json.loads(MEASURED.read_text("utf-8"))
    if not options.redraw:
        for name in options.cases or CASES:
            measured["cases"][name] = measure(name)
            print(name, measured["cases"][name], flush=True)
            measured["cases"] = {c: measured["cases"][c] for c in CASES if c in measured["cases"]}
            measured |= {"machine": describe_machine(), "revision": revision()}
            MEASURED.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    replace_block("cores", render(measured), PAGE)


if __name__ == "__main__":
    main()
