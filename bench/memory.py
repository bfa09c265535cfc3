"""What a run holds beside its data, and what its plan said, for every scheme.

    python -P bench/memory.py [--rows N] [--streamed [--write]] [SCHEME ...]

Each run is a process of its own. Its peak less that of the same run on a few rows, less the data, is told in
vectors of N numbers; so is the plan. What each scheme's ``state_bytes`` counts was chosen by this.
With ``--streamed``, whole peaks and plans under the least limit that leaves all directions: blocks are
streamed and messages in a scratch file, where the scheme can do that; with ``--write`` they are the block
between ``<!-- peaks:begin -->`` and ``<!-- peaks:end -->`` in ``docs/streaming.md``. With
``--usual`` the same of runs in memory with default settings, the block ``usual-peaks`` there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from page import replace_block  # noqa: E402

PAGE = ROOT / "docs" / "streaming.md"

FEW = 2000

#: Seconds that a run under a limit may take.
LONG = 200.0

#: Scheme, loss, parties, columns of each, rounds, further options.
CASES: list[tuple[str, str, int, int, int, dict[str, Any]]] = [
    ("pooled", "logistic", 2, 4, 5, {}),
    ("pooled", "logistic", 2, 40, 5, {}),
    ("pooled", "logistic", 2, 40, 5, {"regularizer": "l1"}),
    ("pooled", "hinge", 2, 40, 5, {}),
    ("pooled", "multinomial", 2, 40, 5, {}),
    ("pooled", "multinomial", 2, 40, 5, {"regularizer": "l1"}),
    ("subspace", "logistic", 2, 4, 14, {}),
    ("subspace", "logistic", 8, 4, 14, {}),
    ("subspace", "logistic", 2, 40, 14, {}),
    ("subspace", "hinge", 2, 4, 14, {}),
    ("subspace", "hinge", 4, 40, 20, {}),
    ("subspace", "multinomial", 2, 4, 14, {}),
    ("subspace", "multinomial", 8, 4, 14, {}),
    ("subspace", "logistic", 2, 20, 14, {"secrecy": "sums"}),
    ("subspace", "logistic", 8, 20, 14, {"secrecy": "sums"}),
    ("proximal", "logistic", 8, 4, 10, {"regularizer": "l1"}),
    ("proximal", "logistic", 4, 40, 15, {"regularizer": "l1"}),
    ("proximal", "hinge", 2, 40, 30, {"regularizer": "l1"}),
    ("proximal", "hinge", 4, 40, 30, {"regularizer": "l1"}),
    ("proximal", "multinomial", 4, 4, 10, {"regularizer": "l1"}),
    ("sharing", "logistic", 2, 4, 14, {}),
    ("sharing", "logistic", 8, 4, 14, {}),
    ("sharing", "hinge", 8, 4, 14, {}),
    ("sharing", "multinomial", 2, 4, 14, {}),
    ("jacobi", "logistic", 2, 4, 6, {}),
    ("jacobi", "logistic", 8, 4, 6, {}),
    ("gauss-seidel", "multinomial", 2, 4, 6, {}),
]


#: The same for runs under a limit.
STREAMED: list[tuple[str, str, int, int, int, dict[str, Any]]] = [
    ("subspace", "logistic", 2, 40, 25, {}),
    ("subspace", "logistic", 4, 100, 20, {}),
    ("subspace", "logistic", 8, 40, 20, {}),
    ("subspace", "hinge", 4, 40, 15, {}),
    ("subspace", "multinomial", 2, 20, 14, {}),
    ("subspace", "logistic", 4, 100, 8, {"directions": "both"}),
    ("proximal", "logistic", 4, 40, 25, {"regularizer": "l1"}),
    ("proximal", "squared", 4, 100, 12, {"constraint": "nonnegative"}),
    ("proximal", "logistic", 8, 40, 25, {"regularizer": "l1"}),
    ("proximal", "hinge", 4, 40, 12, {"regularizer": "l1"}),
    ("proximal", "logistic", 2, 40, 15, {"constraint": "ball:1"}),
    ("sharing", "logistic", 4, 40, 14, {}),
]


#: In memory with default settings: loss, rows, parties, columns of each, share of entries, further options.
USUAL: list[tuple[str, int, int, int, float, dict[str, Any]]] = [
    ("logistic", 200_000, 4, 100, 1.0, {}),
    ("logistic", 30_000, 3, 300, 1.0, {}),
    ("logistic", 100_000, 2, 5000, 0.003, {"lambda": 1e-4}),
    ("logistic", 2000, 2, 10_000, 1.0, {"lambda": 1e-3}),
    ("logistic", 800, 2, 2000, 1.0, {"lambda": 1e-3}),
    ("hinge", 50_000, 2, 20, 1.0, {"lambda": 1e-4}),
    ("hinge", 50_000, 4, 100, 0.05, {"lambda": 1e-4}),
    ("multinomial", 100_000, 2, 30, 1.0, {"lambda": 1e-4}),
    ("logistic", 200_000, 8, 40, 1.0, {"secrecy": "sums"}),
    ("logistic", 200_000, 25, 8, 1.0, {"lambda": 1e-3, "regularizer": "l1"}),
    ("squared", 200_000, 2, 200, 1.0, {"lambda": 1e-2, "regularizer": "l1"}),
    ("logistic", 300_000, 2, 40, 1.0, {"lambda": 1e-3, "regularizer": "l1"}),
    ("logistic", 200_000, 3, 100, 0.03, {"lambda": 1e-4, "regularizer": "l1"}),
    ("logistic", 100_000, 2, 5000, 0.003, {"lambda": 1e-4, "regularizer": "l1"}),
    ("logistic", 800, 2, 2000, 1.0, {"lambda": 1e-2, "regularizer": "l1"}),
    ("multinomial", 100_000, 2, 30, 1.0, {"lambda": 1e-3, "regularizer": "l1"}),
    ("squared", 200_000, 4, 50, 1.0, {"lambda": 1e-4, "constraint": "nonnegative"}),
    ("logistic", 150_000, 3, 30, 1.0, {"scheme": "sharing", "rounds": 30}),
]


def write(path: Path, n: int, loss: str, parties: int, width: int, density: float = 1.0) -> None:
    """A made partition; with sparse blocks where less than all entries are there."""
    from fastadmm.data_tools.synthetic import make_vertical_classification
    from fastadmm.store import create_partition

    if density < 1.0:
        write_sparse(path, n, parties, width, density)
        return
    blocks, y, _ = make_vertical_classification(n, (width,) * parties, seed=4)
    names = ("a", "b")
    if loss == "multinomial":
        y, names = y + (blocks[0][:, 0] > 0.0), ("a", "b", "c")
    with create_partition(path, task="classification") as writer:
        for k, block in enumerate(blocks):
            writer.party(f"p{k}", kind="dense").append(block)
        writer.labels(classes=names).append(y)


def write_sparse(path: Path, n: int, parties: int, width: int, density: float) -> None:
    """A made partition of two classes, that a fifth of the columns tell."""
    import scipy.sparse as sp
    from fastadmm.store import create_partition

    rng, z = np.random.default_rng(4), np.zeros(n)
    with create_partition(path, task="classification") as writer:
        for k in range(parties):
            block = sp.random(n, width, density, "csr", random_state=rng, data_rvs=rng.standard_normal)
            z += block @ (rng.normal(size=width) * (rng.random(width) < 0.2))
            writer.party(f"p{k}", kind="csr").append(block)
        writer.labels(classes=("a", "b")).append((z + rng.normal(size=n) * z.std() > 0.0) * 1.0)


def train(values: dict[str, Any]) -> list[int]:
    """Peak, and what the plan has beside data, buffers and program, of one run."""
    from fastadmm.runs.config import make_config
    from fastadmm.runs.environment import peak_memory
    from fastadmm.runs.train import plan_run, start_run

    config = make_config(values)
    plan = plan_run(config)
    with tempfile.TemporaryDirectory() as folder:
        start_run(config, Path(folder) / "run")
    return [peak_memory() or 0, plan.state + plan.acceleration + plan.factorisation, plan.data]


def measure(n: int, case: tuple[str, str, int, int, int, dict[str, Any]]) -> tuple[float, float]:
    """Vectors that a run held, and that its plan has."""
    scheme, loss, parties, width, rounds, options = case
    found = []
    for size in (n, FEW, FEW, n):  # the first two may compile, which takes memory of its own
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "d.parts"
            write(path, size, loss, parties, width)
            values = {"data": str(path), "loss": loss, "scheme": scheme, "rounds": rounds, "gap": 0.0}
            told = json.dumps({**values, "lambda": 1e-6, "threads": 2, **options})
            command = [sys.executable, "-P", __file__, "--run", told]
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found.append(json.loads(printed.splitlines()[-1]))
    (few, _, _), (peak, planned, data) = found[2:]
    return (peak - few - data) / (8 * n), planned / (8 * n)


def least_limit(values: dict[str, Any]) -> int:
    """The least limit, to one part in a hundred, under which a run keeps as much of the past as without."""
    from fastadmm.runs.config import make_config
    from fastadmm.runs.plan import Plan, make_plan
    from fastadmm.store import open_partition

    config, partition = make_config(values), open_partition(values["data"])
    labels = partition.labels
    assert labels is not None
    outputs = 3 if config.loss == "multinomial" else 1

    def plan_under(limit: int | None) -> Plan:
        return make_plan(partition.parties, [], len(labels.y), config, outputs, limit, config.threads)

    plan, limit = plan_under(None), 0
    smaller = plan.total
    while plan.total <= smaller and not plan.reduced:
        limit, smaller = smaller, int(0.99 * smaller)
        plan = plan_under(smaller)
    return limit


def run_whole(values: dict[str, Any], limited: bool) -> list[int]:
    """Peak, plan, what of it is in a scratch file, and all that it allows; under the least limit or none."""
    from fastadmm.runs.config import make_config
    from fastadmm.runs.environment import peak_memory
    from fastadmm.runs.train import plan_run, start_run

    config = make_config({**values, "memory": str(least_limit(values))} if limited else values)
    plan = plan_run(config)
    with tempfile.TemporaryDirectory() as folder:
        result = start_run(config, Path(folder) / "run")
    planned = plan.total + plan.compiler if "stalled" in str(result) else plan.usual
    return [peak_memory() or 0, planned, plan.spilled, plan.total]


def whole_peak(told: str, cold: bool = False, way: str = "--streamed") -> list[int] | None:
    """What :func:`run_whole` says, in a process of its own; None where that takes too long."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, **({"NUMBA_CACHE_DIR": cache} if cold else {})}
        command = [sys.executable, "-P", __file__, way, "--run", told]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, env=environment, timeout=LONG
            )
        except subprocess.TimeoutExpired:
            return None
    found: list[int] = json.loads(done.stdout.splitlines()[-1])
    return found


def main_streamed(n: int, schemes: list[str], write_page: bool) -> None:
    """Measure each run under a limit, print it, and write planned over peak to the page."""
    warm_ratios, cold_ratios = [], []
    compiled: set[str] = set()  # one cold run of each scheme: it takes as long as many others
    for scheme, loss, parties, width, rounds, options in STREAMED:
        if schemes and scheme not in schemes:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "d.parts"
            write(path, n, loss, parties, width)
            values = {"data": str(path), "loss": loss, "scheme": scheme, "rounds": rounds, "gap": 0.0}
            told = json.dumps({**values, "lambda": 1e-5, "threads": 2, **options})
            whole_peak(told)  # compiles
            warm = whole_peak(told)
            cold = whole_peak(told, True) if scheme not in compiled else None
        print(scheme, loss, parties, width, options, warm, cold, flush=True)
        if warm is not None:
            warm_ratios.append(warm[1] / warm[0])
        if cold is not None:
            compiled.add(scheme)
            cold_ratios.append(cold[1] / cold[0])
    if write_page:
        replace_block("peaks", streamed_block(n, warm_ratios, cold_ratios), PAGE)


def span(ratios: list[float]) -> str:
    """Least and largest of some ratios."""
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def streamed_block(n: int, warm: list[float], cold: list[float]) -> str:
    """What the page says of runs under a limit."""
    return (
        f"{len(warm)} runs of {n:,} rows, under a limit that streams as much as can be: planned over peak "
        f"{span(warm)}; where nothing had been compiled, {span(cold)}.\n"
    )


def usual_block(ratios: list[float]) -> str:
    """What the page says of runs in memory."""
    return (
        f"{len(ratios)} runs in memory with default settings, of 800 to 300,000 rows: planned for most runs "
        f"over the peak {span(ratios)}.\n"
    )


def main_usual(write_page: bool) -> None:
    """The same of runs in memory."""
    ratios = []
    for loss, n, parties, width, density, options in USUAL:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "d.parts"
            write(path, n, loss, parties, width, density)
            told = json.dumps({"data": str(path), "loss": loss, "lambda": 1e-5, "threads": 2, **options})
            whole_peak(told, way="--usual")  # compiles
            found = whole_peak(told, way="--usual")
        print(loss, n, parties, width, density, options, found, flush=True)
        if found is not None:
            ratios.append(found[1] / found[0])
    if write_page:
        replace_block("usual-peaks", usual_block(ratios), PAGE)


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("schemes", nargs="*")
    parser.add_argument("--rows", type=int, help="300,000; streamed 100,000")
    parser.add_argument("--streamed", action="store_true", help="runs under a limit")
    parser.add_argument("--usual", action="store_true", help="runs in memory with default settings")
    parser.add_argument("--write", action="store_true", help="the page's table of runs under a limit")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        values = json.loads(given.run)
        whole = given.streamed or given.usual
        print(json.dumps(run_whole(values, given.streamed) if whole else train(values)))
        return
    if given.usual:
        main_usual(write_page=given.write)
        return
    if given.streamed:
        main_streamed(given.rows or 100_000, given.schemes, write_page=given.write)
        return
    print(f"{'scheme':13}{'loss':12} M   d  held  planned  ratio")
    ratios = []
    for case in CASES:
        if given.schemes and case[0] not in given.schemes:
            continue
        held, planned = measure(given.rows or 300_000, case)
        ratios.append(held / planned)
        scheme, loss, parties, width, _, options = case
        more = " ".join(f"{key}={value}" for key, value in options.items())
        print(
            f"{scheme:13}{loss:12}{parties:2d}{width:4d}{held:7.1f}{planned:8.1f}{ratios[-1]:7.2f} {more}",
            flush=True,
        )
    print(f"held over planned: {np.min(ratios):.2f} to {np.max(ratios):.2f}")


if __name__ == "__main__":
    main()
