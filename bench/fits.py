"""Whole fits beside those of the peers, in one run: median times at the same achieved accuracy."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import datasets
from peers import PEERS, Tuned, available, objective, tune

#: Relative gap that ours certifies, and relative suboptimality that a peer must reach.
GAP = 1e-6

#: A peer whose only probe took this much longer than the best probe is not run again.
CONTENDER = 2.0

#: A peer is given up while it is tuned where a fit takes this much longer than the fastest known.
SLOW = 5.0

#: The same by several parties, each with its columns.
APART = "fastadmm, parties"

#: Repetitions; fewer where one fit of ours and of the contenders takes longer than ``LONG`` seconds.
REPEATS, FEW_REPEATS, LONG = 7, 3, 8.0


def cases(
    data: Path, quick: bool = False, only: str | None = None
) -> Iterator[tuple[datasets.Dataset, float, float]]:
    """Data set, lambda, and the seconds that one peer's tuning may take, about."""
    if quick:
        yield datasets.synthetic(20_000), 1e-4, 10.0
        return
    wanted: dict[str, tuple[Callable[[], datasets.Dataset], tuple[float, ...], float]] = {
        "a9a": (lambda: datasets.a9a(data), (1e-3, 1e-4, 1e-5), 2.0),
        "imdb": (lambda: datasets.imdb(data), (1e-4,), 8.0),
        "mnist": (lambda: datasets.mnist_4v9(data), (1e-4,), 10.0),
        "gisette": (lambda: datasets.gisette_like(data), (1e-2, 1e-3), 12.0),
        "synthetic": (datasets.synthetic, (1e-4,), 15.0),
    }
    for make, lambdas, budget in [wanted[only]] if only else wanted.values():
        dataset = make()
        for lam in lambdas:
            yield dataset, lam, budget


def measure_case(
    dataset: datasets.Dataset, lam: float, budget: float, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """One data set and lambda: ours and the fastest peers in turn, after tuning every peer."""
    from fastadmm import SolverOptions, make_problem, solve
    from fastadmm.blocks.block import as_block

    X, y, given = dataset.X, dataset.y, dataset.blocks
    # Outside the clock, as every peer's own copy of the data; how long it takes is reported beside.
    ready: list[float] = []
    for _ in range(FEW_REPEATS):
        begin = time.perf_counter()
        blocks = [as_block(block) for block in given]
        ready.append(time.perf_counter() - begin)

    def ours(gap: float = GAP, scheme: str = "pooled") -> Any:
        given = make_problem(blocks, y, lam=lam, fit_intercept=False)
        return solve(given, SolverOptions(scheme=scheme, gap=gap))

    exact = ours(1e-11)
    # The certified lower bound: no model is below it, so no peer's suboptimality is understated.
    optimum = exact.objective - exact.history[-1].gap_absolute
    result = ours()
    tuned: dict[str, Tuned | None] = {}
    for name in PEERS:
        if available(name):
            slow = SLOW * max(0.1, min(_probes(tuned).values(), default=math.inf))
            tuned[name] = tune(name, X, y, lam, optimum, GAP, budget, slow)
    probes = _probes(tuned)
    best = min(probes.values())
    jobs: dict[str, Callable[[], Any]] = {"fastadmm": ours}
    jobs |= {name: tuned[name].fit for name, t in probes.items() if t <= CONTENDER * best}  # type: ignore[union-attr, misc]
    jobs[APART] = lambda: ours(scheme="auto")
    apart = ours(scheme="auto")
    times: dict[str, list[float]] = {name: [] for name in jobs}
    repeats = REPEATS
    while len(times["fastadmm"]) < repeats:
        for name, job in jobs.items():
            begin = time.perf_counter()
            job()
            times[name].append(time.perf_counter() - begin)
        if sum(t[-1] for t in times.values()) > LONG:
            repeats = FEW_REPEATS
    medians = {name: statistics.median(t) for name, t in times.items()}
    parties = {
        "seconds": medians.pop(APART),
        "scheme": apart.program,
        "rounds": len(apart.history),
        "exchanges": apart.exchanges,
        "bytes": max(apart.party_bytes),
    }
    times.pop(APART)
    weights = np.concatenate(result.weights)
    case = {
        "data": dataset.name,
        "rows": int(X.shape[0]),
        "columns": int(X.shape[1]),
        "nonzeros": int(X.size if isinstance(X, np.ndarray) else X.nnz),
        "parties": len(blocks),
        "lambda": lam,
        "optimum": optimum,
        "gap": result.gap,
        "suboptimality": objective(X, y, lam, weights) / optimum - 1.0,
        "rounds": len(result.history),
        "apart": parties,
        "repeats": len(times["fastadmm"]),
        "ready": statistics.median(ready),
        "seconds": medians,
        "quartiles": {name: np.percentile(t, [25, 75]).tolist() for name, t in times.items()},
        "tuned": {
            name: None
            if t is None
            else {
                "tolerance": t.tolerance,
                "probe": t.seconds if t.fit is not None else None,
                "spent": t.seconds,
                "curve": t.curve,
            }
            for name, t in tuned.items()
        },
        # The rounds' clock starts after the problem is set up: what is left of the whole fit is set-up.
        "curve": _own_curve(exact, optimum, medians["fastadmm"], result),
    }
    say(summary(case))
    return case


def _probes(tuned: dict[str, Tuned | None]) -> dict[str, float]:
    """Seconds of the peers that reached the target."""
    return {name: t.seconds for name, t in tuned.items() if t is not None and t.fit is not None}


def _own_curve(exact: Any, optimum: float, seconds: float, result: Any) -> list[list[float]]:
    """Seconds, true relative suboptimality and certified gap after each round of the exact run."""
    before = max(0.0, seconds - result.history[-1].seconds)
    return [
        [before + record.seconds, record.objective / optimum - 1.0, record.gap] for record in exact.history
    ]


def best_peer(case: dict[str, Any]) -> tuple[str, float]:
    """The fastest peer and its median seconds."""
    found = {name: s for name, s in case["seconds"].items() if name != "fastadmm"}
    if not found:  # none of them was a contender: their only probe counts
        found = {name: t["probe"] for name, t in case["tuned"].items() if t and t["probe"]}
    name = min(found, key=lambda n: found[n])
    return name, found[name]


def summary(case: dict[str, Any]) -> str:
    """One line."""
    ours = case["seconds"]["fastadmm"]
    name, theirs = best_peer(case)
    return (
        f"{case['data']} {case['lambda']:g}: {ours:.3f} s ({case['rounds']} rounds), "
        f"best {name} {theirs:.3f} s, ratio {ours / theirs:.2f}; {case['seconds']}"
    )
