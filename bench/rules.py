"""What every way to the weights costs, and whether rules choose the cheapest: a block of ``docs/family.md``.

    python -P bench/rules.py [--problems 60] [--seconds 20] [--redraw]

Problems are those of :mod:`family` from number 1800 on, which nothing else measures. Each is solved by every
way that it allows, whatever rules would choose, on one thread. Costs of the ways
(``fastadmm/coordinator/subspace/work_of_ways.py``) are then fitted anew to the problems of even numbers, and
both they and the rules as they are judged on the odd ones: by how many times as long the chosen way takes as
the best one. Writes ``bench/rules.json`` after every problem, and goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

MEASURED = ROOT / "bench" / "rules.json"
PAGE = ROOT / "docs" / "family.md"

FIRST, MOST = 1800, 1e7

#: As :func:`fastadmm.coordinator.subspace.scheme._all_rows` answers; None where messages have all columns.
WAYS: dict[str, tuple[str, float] | None] = {
    "directions": ("", 0.0),
    "at once": None,
    "gram": ("gram", 0.0),
    "products": ("products", 0.0),
    "kernel": ("kernel", 0.0),
    "ascent": ("", 100.0),
}

#: Ways that took so many times as long as the best are not repeated.
FAR, TURNS = 3.0, 4

Array = np.ndarray
Shape = dict[str, Any]


@contextmanager
def forced(way: str) -> Iterator[None]:
    """Take this way, whatever rules say; ``""``: the one that they choose."""
    from fastadmm.coordinator.subspace import scheme, subspace

    if not way:
        yield
        return
    answer, together = WAYS[way] or ("", 0.0), WAYS[way] is None
    with (
        mock.patch.object(scheme, "_all_rows", return_value=answer),
        mock.patch.object(subspace, "whole_span_pays", return_value=together),
    ):
        yield


def shape_of(blocks: list[Any], n_parties: int) -> Shape:
    """What rules know of a problem."""
    from fastadmm.blocks.side_by_side import mean_row_square
    from fastadmm.coordinator.metric_limits import directions_for_few_rows, directions_worth
    from fastadmm.coordinator.subspace.few_rows import has_few_rows
    from fastadmm.engine.engine import Engine

    n, widths, densities = (
        blocks[0].shape[0],
        [block.shape[1] for block in blocks],
        [block.density for block in blocks],
    )
    few = has_few_rows(n, sum(widths))
    most = directions_for_few_rows(n_parties, n) if few else directions_worth(n, widths, densities)
    with Engine(1) as engine:
        square = float(mean_row_square(blocks, engine, apart=True))
    return {"n": n, "widths": widths, "densities": densities, "square": square, "most": most, "few": few}


def open_ways(shape: Shape) -> list[str]:
    """Those that a problem allows."""
    from fastadmm.coordinator.subspace.memory_of_ways import hessian_fits

    n, widths = shape["n"], shape["widths"]
    found = ["directions", "ascent"]
    if shape["few"]:
        return [*found, "kernel", "products"]
    if max(widths) <= shape["most"]:
        found.append("at once")
    if hessian_fits(n, widths, shape["most"]):
        found.append("gram")
    return [*found, "products"]


def measure(number: int) -> Iterator[dict[str, Any]]:
    """The shape of a problem, then what each way takes; in seconds of the processor."""
    from fastadmm import SolverOptions, make_problem, solve
    from fastadmm.blocks.block import as_block

    from datasets import cut
    from family import GAP, generate, member

    drawn = member(number)
    X, y, bounds = generate(drawn)
    blocks = [as_block(block) for block in cut(X, bounds)]
    shape = shape_of(blocks, drawn.parties)
    yield {"shape": shape}
    found: dict[str, float] = {}
    for turn in range(TURNS):
        for way in ["", *open_ways(shape)]:
            if turn > 1 and found.get(way, np.inf) > FAR * min(found.values()):
                continue
            with forced(way):
                begin = time.process_time()
                problem = make_problem(blocks, y, lam=drawn.lam, fit_intercept=False)
                result = solve(problem, SolverOptions(gap=GAP, max_rounds=400, n_threads=1))
                seconds = time.process_time() - begin
            if turn and result.gap <= GAP:  # not with what a first fit in a process takes
                found[way] = min(seconds, found.get(way, np.inf))
        yield {"seconds": found}


def features(way: str, shape: Shape) -> Array:
    """What the cost of a way is linear in: nanoseconds of a row."""
    from fastadmm.coordinator.subspace import work_of_ways as work
    from fastadmm.coordinator.subspace.row_samples import strides

    n, widths, densities = shape["n"], shape["widths"], shape["densities"]
    columns, parties = sum(widths), len(widths)
    entries = sum(width * density for width, density in zip(widths, densities))
    if way == "directions":
        return np.array([entries, 1.0, max(1.0, parties / 3.0) / n])
    if way == "at once":
        return np.array([columns**2, columns, 1.0, 1.0 / n])
    solved = (work._SQUARE * columns**2 + work._FACTOR * columns**3) / n
    if way == "gram" and min(densities) == 1.0:
        least, cube = [1, *strides(n, columns, False)][-1], columns**3 / n
        return np.array([columns, 1.0, columns**2 / least + cube / 10.0, 1.0 / n])
    if way == "gram":
        pairs = max(1.0, columns / work._CACHED_COLUMNS) ** work._GROWTH * shape["square"]
        return np.array([pairs, solved, entries, 1.0, 1.0 / n])
    if way == "kernel":
        return np.array([entries * n, float(n) ** 2, 1.0 / n])
    near = columns <= work._FIRST_COLUMNS
    return np.array([entries * near, entries * (not near), 1.0, columns / n, 1.0 / n])


def kind(way: str, shape: Shape) -> str:
    """Ways of dense rows, of sparse ones and of few of them differ."""
    few = "few" if shape["few"] else "many"
    return f"{way}, {few} {'dense' if min(shape['densities']) == 1.0 else 'sparse'} rows"


def fitted(problems: dict[str, Any]) -> Callable[[str, Shape], float]:
    """Costs as the problems of even numbers have them: least squares of relative errors."""
    from scipy.optimize import nnls

    rows: dict[str, list[tuple[Array, float]]] = {}
    for number, problem in problems.items():
        shape = problem["shape"]
        for way, seconds in problem["seconds"].items():
            if int(number) % 2 == 0 and way not in ("", "ascent"):
                cost = seconds * 1e9 / shape["n"]
                rows.setdefault(kind(way, shape), []).append((features(way, shape) / cost, cost))
    found = {}
    for name, own in rows.items():
        A = np.array([row for row, _ in own])
        size = np.maximum(np.abs(A).max(axis=0), 1e-300)
        found[name] = nnls(A / size, np.ones(len(A)))[0] / size
    return lambda way, shape: float(features(way, shape) @ found[kind(way, shape)])


def judged(problems: dict[str, Any], parity: int) -> list[list[str]]:
    """Rows of the table for one half."""
    half = {k: p for k, p in problems.items() if int(k) % 2 == parity}
    cost = fitted(problems)

    def cheapest(problem: dict[str, Any]) -> float:
        ways = [way for way in problem["seconds"] if way not in ("", "ascent")]
        return float(problem["seconds"][min(ways, key=lambda way: cost(way, problem["shape"]))])

    def least(problem: dict[str, Any], ascent: bool) -> float:
        ways = [way for way in problem["seconds"] if way and (ascent or way != "ascent")]
        return min(problem["seconds"][way] for way in ways)

    name_of_half = "even: fitted on" if parity == 0 else "odd: held out"
    rows = []
    for name, ratios in (
        ("rules as they are", [p["seconds"][""] / least(p, True) for p in half.values()]),
        ("least cost, as fitted", [cheapest(p) / least(p, False) for p in half.values()]),
        ("always directions", [p["seconds"]["directions"] / least(p, True) for p in half.values()]),
    ):
        far = sum(ratio > 1.3 for ratio in ratios)
        mean = statistics.geometric_mean(ratios)
        rows.append([name_of_half, name, f"{mean:.2f}", f"{max(ratios):.2f}", f"{far} of {len(ratios)}"])
    return rows


def write_page(problems: dict[str, Any]) -> None:
    """The block of the page."""
    from page import replace_block

    lines = [
        "| problems | chosen | geometric mean | worst | above 1.3 |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    lines += ["| " + " | ".join(row) + " |" for parity in (0, 1) for row in judged(problems, parity)]
    replace_block("rules", "\n".join(lines) + "\n", PAGE)


def main() -> None:
    """Command line."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=20.0, help="for all ways of a problem")
    parser.add_argument("--redraw", action="store_true", help="measure nothing")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        for found in measure(options.one):
            print(json.dumps(found), flush=True)
        return
    from family import _ONE_THREAD, member
    from machine import describe_machine, revision

    measured = json.loads(MEASURED.read_text("utf-8")) if MEASURED.exists() else {"problems": {}}
    number, taken = FIRST, 0
    while taken < options.problems and not options.redraw:
        drawn = member(number)
        if drawn.rows * drawn.columns * drawn.density <= MOST:
            taken += 1
            if str(number) not in measured["problems"]:
                print(drawn, file=sys.stderr, flush=True)
                with subprocess.Popen(
                    [sys.executable, "-P", __file__, "--one", str(number)],
                    stdout=subprocess.PIPE,
                    text=True,
                    env={**os.environ, **_ONE_THREAD},
                ) as child:
                    try:
                        said, _ = child.communicate(timeout=options.seconds)
                    except subprocess.TimeoutExpired:
                        child.kill()
                        said, _ = child.communicate()
                told = [json.loads(line) for line in said.splitlines()]
                measured["problems"][str(number)] = {**told[0], **told[-1]}
                measured |= {"machine": describe_machine(), "revision": revision()}
                MEASURED.write_text(json.dumps(measured) + "\n", encoding="utf-8")
        number += 1
    problems = {k: p for k, p in measured["problems"].items() if len(p.get("seconds", ())) > 2}
    write_page(problems)


if __name__ == "__main__":
    main()
