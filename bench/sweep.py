"""One read of the data beside its parts timed apart, and the table in ``docs/streaming.md``.

    python bench/sweep.py [--megabytes 400] [--write]

A round of ``sharing`` without an intercept makes messages, z-update, loss, certificate and the next
x-update's products in one read (:mod:`fastadmm.coordinator.admm.sweep`). Beside it, on the same blocks and
in turn: all products D x, the images D'v of the next target alone and of the three vectors that
the round needs, and the z-update; for dense blocks also a mere read of all values (a dot product of every
tile with itself).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from page import replace_block

MEASURED = Path(__file__).with_suffix(".json")
MARK = "sweep"
REPEATS = 9


def blocks(kind: str, megabytes: int) -> list[Any]:
    """Two parties' blocks of about so many megabytes together."""
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    d, per_row = (400, 400) if kind == "dense" else (2000, 60)
    n = megabytes * 10**6 // (2 * per_row * (8 if kind == "dense" else 12))
    if kind == "dense":
        return [rng.normal(size=(n, d)) for _ in range(2)]
    made = []
    for _ in range(2):
        columns = np.sort(rng.integers(0, d - per_row, (n, per_row)), axis=1) + np.arange(per_row)
        indptr = np.arange(0, n * per_row + 1, per_row)
        made.append(sp.csr_array((rng.normal(size=n * per_row), columns.ravel(), indptr), (n, d)))
    return made


def medians(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of calls that take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(REPEATS + 1):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            if repeat:  # the first compiles and touches everything
                seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in seconds.items()}


def measure(kind: str, megabytes: int, n_threads: int) -> dict[str, Any]:
    """One line of the table."""
    from fastadmm.coordinator.admm.schemes import get_scheme
    from fastadmm.coordinator.admm.state import SharedState
    from fastadmm.coordinator.admm.sweep import Sweep
    from fastadmm.coordinator.admm.z_update import update_z_u
    from fastadmm.engine.engine import Engine, row_ranges
    from fastadmm.parties.proximal import Party
    from fastadmm.problem.problem import make_problem

    data = blocks(kind, megabytes)
    rng = np.random.default_rng(1)
    n = data[0].shape[0]
    problem = make_problem(data, (rng.random(n) < 0.5).astype(float), lam=1e-4, fit_intercept=False)
    engine, scheme, r = Engine(n_threads), get_scheme("sharing"), 0.01
    parties = [Party(name, b, problem.regularization, engine) for name, b in zip("ab", problem.blocks)]
    sweep = Sweep(problem, scheme, parties, engine)
    state, new = SharedState(2, n), SharedState(2, n)
    state.vector[:] = rng.normal(size=len(state.vector))
    weights = [rng.normal(size=b.shape[1]) / 20.0 for b in problem.blocks]
    vectors = list(rng.normal(size=(3, n)))
    total, z, u = rng.normal(size=n), np.empty(n), np.empty(n)

    def z_update() -> None:
        z[:] = state.z
        update_z_u(problem, total, state.u, r, z, u, 0.0, engine)

    def each(call: Callable[[Any], object]) -> None:
        engine.map(call, problem.blocks)

    def look(block: Any) -> float:
        def piece(rows: tuple[int, int]) -> float:
            return sum(float(np.vdot(tile, tile)) for _, tile in block.tiles(rows))

        return sum(engine.map(piece, row_ranges(n)))

    calls: dict[str, Callable[[], object]] = {
        "sweep": lambda: sweep.read(weights, state, new, r),
        "products": lambda: [b.product(x, engine) for b, x in zip(problem.blocks, weights)],
        "one image": lambda: each(lambda b: b.transposed_products(vectors[:1], engine)),
        "three images": lambda: each(lambda b: b.transposed_products(vectors, engine)),
        "z-update": z_update,
    }
    if kind == "dense":
        calls["read"] = lambda: [look(b) for b in problem.blocks]
    with engine.limited():
        seconds = medians(calls)
    engine.close()
    size = sum(b.nbytes for b in problem.blocks)
    return {"kind": kind, "threads": n_threads, "bytes": size, "seconds": seconds}


def render(found: list[dict[str, Any]]) -> str:
    """What the page shows."""
    lines = [
        "| blocks | threads | one read | products | images of w | of three vectors | z-update "
        "| to the sum with images of w | of three | of a mere read |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for line in found:
        s = line["seconds"]
        shared = s["products"] + s["z-update"]
        cells = [s["sweep"], s["products"], s["one image"], s["three images"], s["z-update"]]
        speed = f"{s['read'] / s['sweep']:.0%}" if "read" in s else "–"
        lines.append(
            f"| {line['kind']}, {line['bytes'] / 1e6:.0f} MB | {line['threads']} | "
            + " | ".join(f"{1e3 * cell:.0f} ms" for cell in cells)
            + f" | {s['sweep'] / (shared + s['one image']):.2f} "
            f"| {s['sweep'] / (shared + s['three images']):.2f} | {speed} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = [measure(k, options.megabytes, threads) for k in ("sparse", "dense") for threads in (1, 2)]
    print(render(found))
    if options.write:
        MEASURED.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        replace_block(MARK, render(found))


if __name__ == "__main__":
    main()
