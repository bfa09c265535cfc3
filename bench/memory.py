"""What a run holds beside its data, and what its plan said, for every scheme.

    python -P bench/memory.py [--rows N] [--streamed [--write]] [SCHEME ...]

Each run is a process of its own. Its peak less that of the same run on a few rows, less the data, is told in
vectors of N numbers; so is the plan. What each scheme's ``state_bytes`` counts was chosen by this.
With ``--streamed``, whole peaks and plans under the least limit that leaves all directions: blocks are
streamed and messages in a scratch file, where the scheme can do that; with ``--write`` they are the block
between ``<!-- peaks:begin -->`` and ``<!-- peaks:end -->`` in ``docs/streaming.md``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from page import DOCS, replace_block  # noqa: E402

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


def write(path: Path, n: int, loss: str, parties: int, width: int) -> None:
    """A made partition."""
    from fastadmm.store.partition import create_partition

    rng = np.random.default_rng(4)
    blocks = [rng.standard_normal((n, width)) for _ in range(parties)]
    z = sum(block @ rng.standard_normal(width) for block in blocks)
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * z / np.std(z)))).astype(float)
    names = ("a", "b")
    if loss == "multinomial":
        y, names = y + (blocks[0][:, 0] > 0.0), ("a", "b", "c")
    with create_partition(path, task="classification") as writer:
        for k, block in enumerate(blocks):
            writer.party(f"p{k}", kind="dense").append(block)
        writer.labels(classes=names).append(y)


def train(values: dict[str, Any]) -> list[int]:
    """Peak, and what the plan has beside data, buffers and program, of one run."""
    from fastadmm.runs.config import make_config
    from fastadmm.runs.plan import peak_memory
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
    from fastadmm.store.partition import open_partition

    config, partition = make_config(values), open_partition(values["data"])
    labels = partition.labels
    assert labels is not None
    outputs = 3 if config.loss == "multinomial" else 1

    def plan_under(limit: int | None) -> Plan:
        return make_plan(partition.parties, [], len(labels.y), config, outputs, limit, config.threads)

    plan, limit = plan_under(None), 0
    smaller = plan.total
    while plan.total <= smaller:
        limit, smaller = smaller, int(0.99 * smaller)
        plan = plan_under(smaller)
    return limit


def run_whole(values: dict[str, Any]) -> list[int]:
    """Peak, plan, and what of it is in a scratch file, under the least limit."""
    from fastadmm.runs.config import make_config
    from fastadmm.runs.plan import peak_memory
    from fastadmm.runs.train import plan_run, start_run

    config = make_config({**values, "memory": str(least_limit(values))})
    plan = plan_run(config)
    with tempfile.TemporaryDirectory() as folder:
        start_run(config, Path(folder) / "run")
    return [peak_memory() or 0, plan.total, plan.spilled]


def whole_peak(told: str) -> list[int] | None:
    """What :func:`run_whole` says, in a process of its own; None where that takes too long."""
    command = [sys.executable, "-P", __file__, "--streamed", "--run", told]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LONG)
    except subprocess.TimeoutExpired:
        return None
    found: list[int] = json.loads(done.stdout.splitlines()[-1])
    return found


def main_streamed(n: int, schemes: list[str], write_page: bool) -> None:
    """Measure each run under a limit, print it, and write planned over peak to the page."""
    ratios = []
    for scheme, loss, parties, width, rounds, options in STREAMED:
        if schemes and scheme not in schemes:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "d.parts"
            write(path, n, loss, parties, width)
            values = {"data": str(path), "loss": loss, "scheme": scheme, "rounds": rounds, "gap": 0.0}
            told = json.dumps({**values, "lambda": 1e-5, "threads": 2, **options})
            whole_peak(told)  # compiles
            found = whole_peak(told)
        print(scheme, loss, parties, width, options, found, flush=True)
        if found is not None:
            ratios.append(found[1] / found[0])
    if write_page:
        replace_block("peaks", streamed_block(n, ratios), DOCS / "streaming.md")


def streamed_block(n: int, ratios: list[float]) -> str:
    """What the page says of runs under a limit."""
    return (
        f"{len(ratios)} runs of {n:,} rows, under a limit that streams as much as can be: planned at least "
        f"{min(ratios):.2f} of the peak.\n"
    )


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("schemes", nargs="*")
    parser.add_argument("--rows", type=int, help="300,000; streamed 100,000")
    parser.add_argument("--streamed", action="store_true", help="runs under a limit")
    parser.add_argument("--write", action="store_true", help="the page's table of runs under a limit")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        values = json.loads(given.run)
        print(json.dumps(run_whole(values) if given.streamed else train(values)))
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
