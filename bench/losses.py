"""Fits of every kind of loss beside the peers of each.

    python -P bench/losses.py [CASE ...] [--redraw]

Writes ``bench/losses.json`` and the block between ``<!-- losses:begin -->`` and ``<!-- losses:end -->`` in
``docs/performance.md``. With names of cases only those are measured anew; ``--redraw`` measures nothing.
Peers that are installed take part: ``pip install celer skglm glum liblinear-official``.

Ours certifies a relative gap of 1e-6; a peer's time is that of the loosest tolerance of a grid whose model is
within 1e-6 of the optimum. Ours and the fastest peers run in turn; the ratio is the median of the turns'.
Times are the process's processor time with one thread: busy machines change it least.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # threads of a peer's BLAS or OpenMP that wait count as processor time
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

MEASURED = ROOT / "bench" / "losses.json"
PAGE = ROOT / "docs" / "performance.md"

GAP = 1e-6

#: Gap of the run whose lower bound counts as the optimum.
SHARP_GAP = 3e-9

#: A peer's tuning ends after so many seconds; one this much slower than the fastest is not run again.
BUDGET, CONTENDER, REPEATS = 20.0, 1.5, 5

TOLERANCES = tuple(10.0 ** (-k / 2) for k in range(1, 25))

Array = np.ndarray


def _a9a(data: Path) -> tuple[Any, Array]:
    import datasets

    dataset = datasets.a9a(data)
    return dataset.X, dataset.y


def _classes(data: Path) -> tuple[Any, Array]:
    rng = np.random.default_rng(0)
    n, d, classes = 20_000, 54, 7
    X = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3 * rng.normal(size=(d, d)) / math.sqrt(d))
    z = X @ (0.5 * rng.normal(size=(d, classes))) + rng.gumbel(size=(n, classes))
    return X, z.argmax(axis=1).astype(float)


def _housing(data: Path) -> tuple[Any, Array]:
    from sklearn.preprocessing import PolynomialFeatures, scale

    table = np.loadtxt(data / "cal_housing.data", delimiter=",", skiprows=1)
    X = scale(PolynomialFeatures(3, include_bias=False).fit_transform(scale(table[:, :-1])))
    return X, scale(table[:, -1])


def _counts(data: Path) -> tuple[Any, Array]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200_000, 40))
    return X, rng.poisson(np.exp(X @ (0.1 * rng.normal(size=40)))).astype(float)


#: Title, data, loss, regulariser, lambda, parties.
CASES: dict[str, tuple[str, Callable[[Path], tuple[Any, Array]], str, str, float, int]] = {
    "hinge": ("hinge, a9a", _a9a, "hinge", "l2", 1e-3, 2),
    "l1-3": ("logistic with l1, a9a", _a9a, "logistic", "l1", 1e-3, 2),
    "l1-4": ("logistic with l1, a9a", _a9a, "logistic", "l1", 1e-4, 2),
    "multinomial": ("multinomial, 20,000 × 54, 7 classes", _classes, "multinomial", "l2", 1e-3, 3),
    "classes-l1": ("multinomial with l1, the same", _classes, "multinomial", "l1", 1e-3, 3),
    "ridge": ("squared, housing to third powers, 20,640 × 164", _housing, "squared", "l2", 1e-3, 4),
    "lasso": ("squared with l1, the same", _housing, "squared", "l1", 1e-3, 4),
    "poisson": ("Poisson, 200,000 × 40", _counts, "poisson", "l2", 1e-4, 4),
}


def blocks_of(X: Any, parties: int) -> list[Any]:
    """Consecutive columns, about as many for each party; a9a as its paper cuts it."""
    from datasets import cut

    d = X.shape[1]
    bounds = [0, 66, d] if (d, parties) == (123, 2) else [d * k // parties for k in range(parties + 1)]
    return cut(X, bounds)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what solvers say about iterations that they were not given."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def processor_seconds(call: Callable[[], object]) -> float:
    """Of one call, all threads of the process together."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def measure(name: str, data: Path) -> dict[str, Any]:
    """One case."""
    from fastadmm import SolverOptions, make_problem, solve
    from fastadmm.blocks.block import as_block

    from loss_peers import OBJECTIVES, PEERS, available

    title, make, loss, regularizer, lam, parties = CASES[name]
    X, y = make(data)
    blocks = [as_block(block) for block in blocks_of(X, parties)]

    def ours(gap: float = GAP) -> Any:
        problem = make_problem(blocks, y, loss=loss, regularizer=regularizer, lam=lam, fit_intercept=False)
        return solve(problem, SolverOptions(scheme="pooled", gap=gap, max_rounds=2000, n_threads=1))

    def value(w: Array) -> float:
        size = float(np.abs(w).sum()) if regularizer == "l1" else 0.5 * float((w * w).sum())
        return OBJECTIVES[loss](X @ w, y) + lam * size

    sharp = ours(SHARP_GAP)
    optimum = sharp.objective - sharp.history[-1].gap_absolute
    result = ours()
    weights = np.concatenate(result.weights)
    if not math.isclose(value(weights), result.objective, rel_tol=1e-9):
        raise AssertionError(f"{name}: {value(weights)} is not {result.objective}")

    fits: dict[str, tuple[Callable[[], Array], float, float]] = {}
    for peer, prepare in PEERS[loss, regularizer].items():
        if not available(peer):
            continue
        fit, spent = prepare(X, y, lam), 0.0
        with quiet():
            for tolerance in TOLERANCES:
                begin = time.process_time()
                w = fit(tolerance, 100_000)
                seconds = time.process_time() - begin
                spent += seconds
                if value(w) <= optimum + GAP * abs(optimum):
                    fits[peer] = (lambda fit=fit, t=tolerance: fit(t, 100_000)), tolerance, seconds
                    break
                if spent > BUDGET:
                    break
        log(f"  {peer}: {f'{fits[peer][2]:.3f} s' if peer in fits else f'> {spent:.1f} s'}")
    fastest = min((seconds for _, _, seconds in fits.values()), default=math.inf)
    jobs = {peer: job for peer, (job, _, seconds) in fits.items() if seconds <= CONTENDER * fastest}
    times: dict[str, list[float]] = {peer: [] for peer in ("fastadmm", *jobs)}
    with quiet():
        for _ in range(REPEATS):
            times["fastadmm"].append(processor_seconds(ours))
            for peer, job in jobs.items():
                times[peer].append(processor_seconds(job))
    medians = {peer: statistics.median(t) for peer, t in times.items()}
    best = min(jobs, key=lambda peer: medians[peer])
    ratios = [a / b for a, b in zip(times["fastadmm"], times[best])]

    return {
        "title": title,
        "lambda": lam,
        "parties": parties,
        "rounds": len(result.history),
        "gap": result.gap,
        "optimum": optimum,
        "seconds": medians,
        "best": best,
        "ratio": statistics.median(ratios),
        "others": {peer: seconds for peer, (_, _, seconds) in fits.items()},
        "tolerances": {peer: tolerance for peer, (_, tolerance, _) in fits.items()},
    }


def render(measured: dict[str, Any]) -> str:
    """The block of the page."""
    from page import exponent, table

    rows = []
    for case in measured["cases"].values():
        label = f"{case['title']}, M = {case['parties']}"
        rows.append(
            [
                label,
                exponent(case["lambda"]),
                f"{case['rounds']} rounds, {_time(case['seconds']['fastadmm'])}",
                f"{case['best']}, {_time(case['seconds'][case['best']])}",
                f"{case['ratio']:.2f}",
            ]
        )
    text = table(["problem", "λ", "fastadmm, pooled", "fastest peer", "ratio"], rows, 4)
    machine = measured["machine"]
    versions = ", ".join(f"{name} {v}" for name, v in measured["versions"].items())
    return f"{text}\n\nMeasured on {machine['processor']}, one thread, {versions}.\n"


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def log(text: str) -> None:
    """Say what is being done."""
    print(text, file=sys.stderr, flush=True)


def versions() -> dict[str, str]:
    """Of ours and of the peers that are installed."""
    from importlib import metadata

    found = {}
    for package in ("fastadmm", "scikit-learn", "liblinear-official", "celer", "skglm", "glum"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def main() -> None:
    """Command line."""
    from datasets import find_data
    from machine import describe_machine
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
    if MEASURED.exists():
        measured = json.loads(MEASURED.read_text("utf-8"))
    if not options.redraw:
        for name in options.cases or CASES:
            log(name)
            measured["cases"][name] = measure(name, find_data("a9a.bz2"))
            measured["cases"] = {c: measured["cases"][c] for c in CASES if c in measured["cases"]}
            measured |= {"machine": describe_machine(), "versions": versions()}
            MEASURED.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    replace_block("losses", render(measured), PAGE)


if __name__ == "__main__":
    main()
