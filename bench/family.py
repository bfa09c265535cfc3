"""Sixty generated problems, ours beside the peers: ``docs/performance.md``.

    python -P bench/family.py [--cheapest 20] [--seconds 1] [--redraw]

Writes ``bench/family.json`` after every problem, from cheap to dear, and goes on where it was (remove the
file to begin anew), then the blocks of ``docs/performance.md``.
``--cheapest 60`` measures all. Every fit, ours and a peer's, has one thread, and what counts is the time of
its process on the processor: that depends little on what else the machine does.

A problem is drawn by its number: rows from 1e3 to 2e6, columns from 10 to 1e5, dense to 0.01 %, spread of
the columns' scales, correlation between parties, lambda, parties. Nobody chose them, and nothing may be tuned
to the odd ones: rules and constants are fitted on problems of even numbers and judged on odd ones.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

MEASURED = ROOT / "bench" / "family.json"


COUNT = 60

#: Non-zeros of a problem: what fits a small machine, and the least that says something.
FEWEST, MOST = 3e4, 2e7

#: Relative gap that ours certifies, and relative suboptimality that a peer must reach.
GAP = 1e-6

#: Fits in a row, ours and a peer's, of which the fastest counts; none of ours begins after so many seconds.
REPEATS, LONG = 3, 10.0

#: A peer's tolerances, loose to tight.
TOLERANCES = tuple(10.0**-k for k in range(1, 11))

#: The same problem by the parties that hold the columns, beside all columns pooled.
VARIANTS: dict[str, dict[str, Any]] = {
    "as parties": {"scheme": "auto"},
    "as parties, one direction a round": {"scheme": "subspace", "directions": "one"},
}

#: Peers of :mod:`peers` that are measured: the kinds that are ever fastest.
RIVALS = (
    "LIBLINEAR -s 0",
    "LIBLINEAR -s 7",
    "scikit-learn newton-cholesky",
    "scikit-learn newton-cg",
    "scikit-learn lbfgs",
    "snapml",
)

#: One thread for every library.
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}


class Member(NamedTuple):
    """What a number draws."""

    number: int
    rows: int
    columns: int
    parties: int
    density: float
    spread: float
    correlation: float
    lam: float


def member(number: int) -> Member:
    """The problem of a number: the first draw of its stream with a size within the limits."""
    rng = np.random.default_rng([20, number])
    while True:
        rows, columns = 10 ** rng.uniform(3, math.log10(2e6)), 10 ** rng.uniform(1, 5)
        density = 1.0 if rng.random() < 0.4 else 10 ** rng.uniform(-4, -0.5)
        found = Member(
            number,
            int(rows),
            int(columns),
            int(rng.choice([2, 3, 4, 8, 16])),
            density,
            float(10 ** rng.uniform(0, 1)),
            float(rng.uniform(0, 0.9)),
            float(10 ** rng.uniform(-5, -2)),
        )
        if (
            FEWEST <= rows * columns * density <= MOST
            and columns * density >= 3
            and columns >= 4 * found.parties
        ):
            return found


def cheapest(count: int) -> list[int]:
    """The numbers of fewest non-zeros, cheap to dear: as many even ones as odd ones."""

    def work(number: int) -> float:
        drawn = member(number)
        return drawn.rows * drawn.columns * drawn.density

    halves = [sorted(range(parity, COUNT, 2), key=work)[: (count + 1 - parity) // 2] for parity in (0, 1)]
    return sorted(halves[0] + halves[1], key=work)


def generate(drawn: Member) -> tuple[Any, np.ndarray, list[int]]:
    """Pooled features, labels 0/1 and the columns where parties end."""
    import scipy.sparse as sp

    rng = np.random.default_rng([21, drawn.number])
    n, d, parties = drawn.rows, drawn.columns, drawn.parties
    bounds = [d * k // parties for k in range(parties + 1)]
    own = math.sqrt(1.0 - drawn.correlation**2)
    width = min(b - a for a, b in pairwise(bounds))
    if drawn.density == 1.0:
        X: Any = rng.normal(size=(n, d))
        for a in bounds[1:-1]:
            X[:, a : a + width] = own * X[:, a : a + width] + drawn.correlation * X[:, :width]
    else:
        # Two of the sum below overlap at each entry: half the entries each.
        X = _sparse(n, d, drawn.density / 2, rng)
        first = _sparse(n, width, drawn.density / 2, rng)
        shared = [sp.hstack([first, sp.csr_matrix((n, b - a - width))]) for a, b in pairwise(bounds)]
        X = (own * X + drawn.correlation * sp.hstack(shared)).tocsr()
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    scale = drawn.spread ** rng.uniform(-1, 1, d)
    if sp.issparse(X):
        X.data *= scale[X.indices]
    else:
        X *= scale
    z = X @ (rng.normal(size=d) * (rng.random(d) < 0.5) / scale)
    z *= 2.0 / max(float(np.std(z)), 1e-12)
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-z))) * 1.0
    return X, y, bounds


def _sparse(n: int, d: int, density: float, rng: np.random.Generator) -> Any:
    """Normal entries; popular columns and rare ones, as words are."""
    import scipy.sparse as sp

    per_row = rng.poisson(density * d, n)
    rows = np.repeat(np.arange(n), per_row)
    columns = np.minimum((d * rng.random(len(rows)) ** 1.5).astype(np.int64), d - 1)
    X = sp.csr_matrix((rng.normal(size=len(rows)), (rows, columns)), shape=(n, d))
    X.sum_duplicates()
    return X


def measure(drawn: Member, seconds: float = 1.0) -> dict[str, Any]:
    """Ours, its variants and the peers on one problem; times are of this process on the processor."""
    from datasets import cut

    X, y, bounds = generate(drawn)
    found: dict[str, Any] = {"drawn": drawn._asdict()}
    return found | measure_on(X, y, cut(X, bounds), drawn.lam, seconds, VARIANTS)


def measure_on(
    X: Any, y: np.ndarray, parts: list[Any], lam: float, seconds: float, variants: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """:func:`measure` for pooled features X, of shape (N, d), labels, and the features of each party."""
    from fastadmm import SolverOptions, make_problem, solve
    from fastadmm.blocks.block import as_block

    from peers import PEERS, available, objective

    blocks = [as_block(part) for part in parts]

    def ours(gap: float = GAP, scheme: str = "pooled", **options: Any) -> Any:
        problem = make_problem(blocks, y, lam=lam, fit_intercept=False)
        return solve(problem, SolverOptions(scheme, gap=gap, max_rounds=2000, n_threads=1, **options))

    exact = ours(1e-9)
    optimum = exact.objective - exact.history[-1].gap_absolute
    found: dict[str, Any] = {"nonzeros": int(getattr(X, "nnz", X.size)), "optimum": optimum, "ours": {}}
    fits: dict[str, Callable[[], Any]] = {"fastadmm": ours}
    fits |= {name: lambda options=options: ours(**options) for name, options in variants.items()}
    for name, fit in fits.items():
        fit()  # compiles
        times: list[float] = []
        while len(times) < REPEATS and sum(times) < LONG:
            begin = time.process_time()
            result = fit()
            times.append(time.process_time() - begin)
        found["ours"][name] = {"rounds": len(result.history), "gap": result.gap, "seconds": min(times)}
    slow = max(0.2, 10.0 * found["ours"]["fastadmm"]["seconds"])
    found["peers"] = {
        name: _curve(PEERS[name](X, y, lam), X, y, lam, optimum, seconds, slow, objective)
        for name in RIVALS
        if available(name)
    }
    return found


def _curve(
    fit: Any, X: Any, y: np.ndarray, lam: float, optimum: float, budget: float, slow: float, objective: Any
) -> list[list[float]] | None:
    """Tolerance, seconds and relative suboptimality, until 1e-9 is reached or the time is spent."""
    from peers import quietly

    if fit is None:
        return None
    points: list[list[float]] = []
    spent = 0.0
    with quietly():
        for tolerance in TOLERANCES:
            repeats = REPEATS if not points or points[-1][1] < 0.1 else 1
            times = []
            for _ in range(repeats):
                begin = time.process_time()
                x = fit(tolerance, 5000)
                times.append(time.process_time() - begin)
            spent += sum(times)
            points.append([tolerance, min(times), objective(X, y, lam, x) / optimum - 1.0])
            if points[-1][2] <= 1e-9 or spent > budget or times[-1] > slow:
                break
    return points


def main() -> None:
    """Command line."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--cheapest", type=int, default=20, help=f"how many of the {COUNT}")
    parser.add_argument("--seconds", type=float, default=1.0, help="of one peer on one problem, about")
    parser.add_argument("--redraw", action="store_true", help="measure nothing")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        if hasattr(os, "sched_setaffinity"):  # a peer that asks how many cores there are finds one
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        print(json.dumps(measure(member(options.one), options.seconds)))
        return
    from machine import describe_machine, revision

    measured = json.loads(MEASURED.read_text("utf-8")) if MEASURED.exists() else {"problems": {}}
    for number in cheapest(options.cheapest) if not options.redraw else ():
        if str(number) in measured["problems"]:
            continue
        print(member(number), file=sys.stderr, flush=True)
        # A process of its own: no peer's threads or memory stay behind.
        command = [sys.executable, __file__, "--one", str(number), "--seconds", str(options.seconds)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **ONE_THREAD}
        )
        measured["problems"][str(number)] = json.loads(done.stdout)
        measured |= {"machine": describe_machine(), "revision": revision()}
        MEASURED.write_text(json.dumps(measured, indent=None) + "\n", encoding="utf-8")
    from family_page import write_page

    write_page(measured)


if __name__ == "__main__":
    main()
