"""Random problems of every convex kind: which are not certified at 1e-6 within 200 rounds?

    nice python -P bench/stalls.py --from 0 --to 100 --json found.json  # goes on after what the file holds
    python -P bench/stalls.py --seeds 17,404                            # these alone
    python -P bench/stalls.py --page  # docs/performance.md from bench/stalls.json, nothing is solved

One process, one thread. Losses x regularisers x sets x weights x intercept; wide, tall, constant, duplicate,
sparse and badly scaled columns; 1 to 200 parties. From seed 200000 on columns are far from zero, with heavy
tails, counts beside indicators, categories, or rows repeated. A problem follows from its seed alone, and
rounds do not depend on the clock.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
MEASURED, PAGE = ROOT / "bench" / "stalls.json", ROOT / "docs" / "performance.md"

GAP = 1e-6
MAX_ROUNDS = 200

CLASSIFICATION = ("logistic", "hinge", "squared_hinge", "smoothed_hinge")
LOSSES = (*CLASSIFICATION, "squared", "huber", "quantile", "poisson", "multinomial")
REGULARIZERS = ("l2", "l1", "elastic_net", "group_lasso", "none")
SETS = ("all", "nonnegative", "box", "ball", "mixed")
SHAPES = ("square", "wide", "tall", "many parties")
COLUMNS = (
    "plain",
    "constant",
    "duplicate",
    "badly scaled",
    "very badly scaled",
    "large",
    "sparse",
    "copies",
    "correlated",
)
WEIGHTS = ("none", "spread", "zeros")

#: From this seed on columns can also be like those of tables that nobody has scaled.
UNSCALED_FROM = 200_000
UNSCALED = ("far from zero", "heavy tails", "counts and indicators", "categories", "repeated rows")


@dataclass
class Case:
    """One problem, and in words what it is."""

    seed: int
    kind: dict[str, Any]
    blocks: list[np.ndarray]
    y: np.ndarray
    arguments: dict[str, Any]


def generate(seed: int) -> Case:
    """The problem of a seed."""
    rng = np.random.default_rng([1_019, seed])

    def pick(options: tuple[str, ...]) -> str:
        return options[int(rng.integers(len(options)))]

    kind: dict[str, Any] = {"loss": pick(LOSSES), "regularizer": pick(REGULARIZERS), "set": pick(SETS)}
    columns = COLUMNS if seed < UNSCALED_FROM else UNSCALED
    kind.update(shape=pick(SHAPES), columns=pick(columns), weights=pick(WEIGHTS))
    if kind["regularizer"] == "none" and kind["set"] == "all":
        kind["set"] = "ball"
    if kind["regularizer"] == "group_lasso" and kind["set"] in ("box", "mixed"):
        kind["set"] = "ball"
    widths, n = _shape(kind["shape"], rng)
    blocks = _columns(kind["columns"], n, widths, rng)
    y, n_classes = _targets(kind["loss"], blocks, n, rng)
    lam, intercept = 10.0 ** rng.uniform(-5.0, -1.0), bool(rng.integers(2))
    arguments: dict[str, Any] = {"loss": kind["loss"], "regularizer": kind["regularizer"], "lam": lam}
    arguments["fit_intercept"] = intercept
    if kind["regularizer"] == "group_lasso" and rng.integers(2):
        size = int(rng.integers(1, 4))
        groups = [[list(range(a, min(a + size, d))) for a in range(0, d, size)] for d in widths]
        arguments["regularizer_parameters"] = {"groups": groups}
    if kind["loss"] == "quantile":
        arguments["loss_parameters"] = {"tau": float(rng.uniform(0.1, 0.9))}
    if kind["set"] != "all":
        arguments["constraint"] = _sets(kind["set"], len(widths), rng)
    if n_classes:
        arguments["n_classes"] = n_classes
    if kind["weights"] != "none":
        weight = np.exp(rng.normal(scale=2.0, size=n)) if kind["weights"] == "spread" else np.ones(n)
        if kind["weights"] == "zeros":
            weight[rng.random(n) < 0.3] = 0.0
            weight[0] = 1.0
            # Row k is of class k, and a class without weight is refused.
            classes = n_classes or (2 if kind["loss"] in CLASSIFICATION else 0)
            missing = np.setdiff1d(np.arange(classes), y[weight > 0.0]).astype(np.int64)
            weight[missing] = 1.0
        arguments["sample_weight"] = weight
    kind.update(n=n, d=sum(widths), parties=len(widths), lam=lam, intercept=intercept)
    return Case(seed, kind, blocks, y, arguments)


def _shape(shape: str, rng: np.random.Generator) -> tuple[list[int], int]:
    """Widths of the parties, and rows."""
    if shape == "many parties":
        parties = int(9.0 * (200.5 / 9.0) ** rng.random())
        return [int(d) for d in rng.integers(1, 3, size=parties)], int(rng.integers(15, 60))
    parties = int(rng.integers(1, 6))
    n = int(rng.integers(8, 40))
    if shape == "tall":
        return [int(d) for d in rng.integers(1, 7, size=parties)], int(rng.integers(60, 200))
    if shape == "wide":
        return [int(d) for d in rng.integers(1 + n // parties, 2 + 3 * n // parties, size=parties)], n
    return [int(d) for d in rng.integers(1, 2 + n // parties, size=parties)], n


def _columns(columns: str, n: int, widths: list[int], rng: np.random.Generator) -> list[np.ndarray]:
    blocks = [rng.normal(size=(n, d)) for d in widths]
    some = int(rng.integers(len(blocks)))
    if columns == "constant":
        for block in blocks:
            block[:, int(rng.integers(block.shape[1]))] = 10.0 ** rng.uniform(-1.0, 3.0)
    elif columns == "duplicate":
        for block in blocks:
            block[:, -1] = block[:, 0] * (1.0 + 1e-6 * rng.normal() * rng.integers(2))
    elif columns == "badly scaled":
        blocks = [block * 10.0 ** rng.uniform(-2.0, 2.0, size=block.shape[1]) for block in blocks]
    elif columns == "very badly scaled":
        blocks = [block * 10.0 ** rng.uniform(-5.0, 5.0, size=block.shape[1]) for block in blocks]
    elif columns == "large":
        blocks = [block * 10.0 ** rng.uniform(2.0, 6.0, size=block.shape[1]) for block in blocks]
    elif columns == "sparse":
        density = rng.uniform(0.02, 0.3)
        blocks = [np.where(rng.random(block.shape) > density, 0.0, block) for block in blocks]
        blocks[some][:] = 0.0
    elif columns == "copies":
        blocks = [np.ascontiguousarray(blocks[0][:, : min(widths)])] * len(blocks)
        widths[:] = [min(widths)] * len(blocks)
    elif columns == "correlated":
        common = rng.normal(size=(n, 2))
        blocks = [0.1 * block + common @ rng.normal(size=(2, block.shape[1])) for block in blocks]
    elif columns in UNSCALED:
        blocks = _unscaled(columns, blocks, rng)
    return blocks


def _unscaled(columns: str, blocks: list[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    n = len(blocks[0])
    if columns == "far from zero":
        return [block + 10.0 ** rng.uniform(0.0, 6.0, size=block.shape[1]) for block in blocks]
    if columns == "heavy tails":
        return [
            np.where(rng.random(b.shape[1]) < 0.5, rng.standard_cauchy(b.shape), np.exp(3.0 * b))
            for b in blocks
        ]
    if columns == "counts and indicators":
        few = [rng.random(block.shape[1]) < 0.5 for block in blocks]
        return [np.where(own, b > 1.0, np.floor(np.exp(4.6 + 3.0 * b))) for own, b in zip(few, blocks)]
    if columns == "categories":
        drawn = [rng.zipf(1.5, size=n) % block.shape[1] for block in blocks]
        return [np.eye(block.shape[1])[own] for own, block in zip(drawn, blocks)]
    rows = rng.integers(max(2, n // 8), size=n)
    return [block[rows] for block in blocks]


def _targets(
    loss: str, blocks: list[np.ndarray], n: int, rng: np.random.Generator
) -> tuple[np.ndarray, int | None]:
    """Targets that follow the columns, with noise; and how many classes."""
    classes = int(rng.integers(3, 6)) if loss == "multinomial" else 1
    z = np.zeros((n, classes))
    for block in blocks:
        size = np.maximum(np.sqrt((block * block).mean(axis=0)), 1e-12)
        z += (block / size) @ rng.normal(size=(block.shape[1], classes))
    z *= 2.0 / max(float(np.sqrt((z * z).mean())), 1e-12)
    if loss == "multinomial":
        y = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
        y[:classes] = np.arange(classes)
        return y, classes
    z = z[:, 0]
    if loss in CLASSIFICATION:
        y = (z + rng.logistic(size=n) > 0.0).astype(float)
        y[:2] = 0.0, 1.0
    elif loss == "poisson":
        y = rng.poisson(np.exp(np.clip(z, -4.0, 3.0))).astype(float)
        y[0] += 1.0
    else:
        y = (z + rng.standard_t(3, size=n)) * 10.0 ** rng.uniform(-1.0, 1.0)
    return y, None


def _sets(name: str, parties: int, rng: np.random.Generator) -> str | list[str]:
    size = 10.0 ** rng.uniform(-1.0, 1.0)
    named = {"nonnegative": "nonnegative", "box": f"box:{-size:.3g},{0.5 * size:.3g}"}
    named["ball"] = f"ball:{size:.3g}"
    if name != "mixed":
        return named[name]
    return [(*named.values(), "all")[int(rng.integers(4))] for _ in range(parties)]


def solve_one(seed: int) -> dict[str, Any]:
    """Rounds, gap and end of a seed's problem, with the default settings."""
    from fastadmm.problem.problem import make_problem
    from fastadmm.solver.solver import Solver, SolverOptions, run_rounds

    case = generate(seed)
    found: dict[str, Any] = {"seed": seed, **case.kind}
    begin = time.process_time()
    try:
        problem = make_problem(case.blocks, case.y, **case.arguments)
        solver = Solver(problem, SolverOptions(gap=GAP, max_rounds=MAX_ROUNDS, n_threads=1))
        solver.prepare()
        result = run_rounds(solver)
    except Exception as error:  # a fault is a finding too
        return {**found, "status": "error", "error": f"{type(error).__name__}: {error}"}
    gaps = [record.gap for record in result.history]
    best = next(k for k, gap in enumerate(gaps, 1) if gap <= 2.0 * min(gaps))
    return {
        **found,
        "scheme": solver.method.name,
        "status": result.status.value,
        "rounds": len(gaps),
        "gap": result.gap if math.isfinite(result.gap) else None,
        "objective": result.objective,
        "gap_absolute": result.record.gap_absolute,
        "still_since": best,
        "seconds": round(time.process_time() - begin, 2),
    }


def certified(found: dict[str, Any]) -> bool:
    """Whether a problem was solved in time."""
    return found["status"] == "converged"


def among_bounded(found: dict[str, Any]) -> bool:
    """Whether that is proved among models of bounded size only: nothing bounds some weights."""
    return certified(found) and not (found["gap"] is not None and found["gap"] <= GAP)


def run(seeds: list[int], path: Path | None) -> list[dict[str, Any]]:
    """All problems of some seeds and of a file, which is written anew after each; a line for each."""
    known = json.loads(path.read_text())["cases"] if path is not None and path.exists() else []
    found = {case["seed"]: case for case in known}
    for seed in seeds:
        if seed in found:
            continue
        found[seed] = solve_one(seed)
        print(*found[seed].values(), file=sys.stderr, flush=True)
        if path is not None:
            cases = [found[key] for key in sorted(found)]
            lines = ",\n".join(json.dumps(case) for case in cases)
            path.write_text(f'{{"cases": [\n{lines}\n],\n"summary": {json.dumps(summary(cases))}}}\n')
    return [found[key] for key in sorted(found)]


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts over all problems, and the share that failed by each trait."""
    failed = [case for case in found if not certified(case)]
    rounds = [case["rounds"] for case in found if certified(case)]
    traits = {}
    for key in ("loss", "regularizer", "set", "shape", "columns", "weights"):
        total = Counter(case[key] for case in found)
        bad = Counter(case[key] for case in failed)
        traits[key] = {name: [bad[name], total[name]] for name in sorted(total)}
    return {
        "problems": len(found),
        "uncertified": len(failed),
        "rounds_mean": float(np.exp(np.mean(np.log(rounds)))) if rounds else None,
        "rounds_percentiles": {str(p): float(np.percentile(rounds, p)) for p in (50, 90, 99, 100) if rounds},
        "uncertified_of": traits,
        "seconds": round(sum(case.get("seconds", 0.0) for case in found), 1),
    }


def page(found: list[dict[str, Any]]) -> str:
    """The block of docs/performance.md."""
    seeds = sorted(case["seed"] for case in found)
    ends = [a for a in seeds if a - 1 not in seeds], [a for a in seeds if a + 1 not in seeds]
    spans = " and ".join(f"{a} to {b}" for a, b in zip(*ends))
    lines = [
        f"Seeds {spans}, used for nothing else before they were measured:",
        "",
        "| shape | problems | certified | among models of bounded size | uncertified |",
        "|---|---:|---:|---:|---:|",
    ]
    for shape in (*SHAPES, "**together**"):
        of = [case for case in found if shape in (case["shape"], "**together**")]
        bounded, failed = sum(map(among_bounded, of)), len(of) - sum(map(certified, of))
        lines.append(f"| {shape} | {len(of)} | {len(of) - bounded - failed} | {bounded} | {failed} |")
    told = summary(found)
    percentiles = told["rounds_percentiles"]
    lines += [
        "",
        f"Solved ones took {told['rounds_mean']:.1f} rounds in the geometric mean; 90 % took at most ",
    ]
    lines[-1] += f"{percentiles['90']:.0f}."
    failures = [case for case in found if not certified(case)]
    if failures:
        lines += ["", "Uncertified: " + "; ".join(map(_named, failures)) + "."]
    return "\n".join(lines) + "\n"


def _named(case: dict[str, Any]) -> str:
    gap = "no bound" if case.get("gap") is None else f"gap {case['gap']:.0e}"
    words = (case["loss"], case["regularizer"], case["set"], case["columns"])
    return f"{case['seed']} ({', '.join(words)}; {case['parties']} parties; {gap})"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--from", dest="first", type=int, default=0, help="first seed")
    parser.add_argument("--to", dest="end", type=int, default=100, help="first seed that is left out")
    parser.add_argument("--seeds", help="these seeds instead, with commas between")
    parser.add_argument("--json", type=Path, help="write everything here, after each problem")
    parser.add_argument(
        "--page", action="store_true", help="write docs/performance.md from bench/stalls.json"
    )
    given = parser.parse_args()
    if given.page:
        sys.path.insert(0, str(Path(__file__).resolve().parent))
        from page import replace_block

        replace_block("stalls", page(json.loads(MEASURED.read_text(encoding="utf-8"))["cases"]), PAGE)
        return
    seeds = list(range(given.first, given.end))
    if given.seeds:
        seeds = [int(seed) for seed in given.seeds.split(",")]
    found = run(seeds, given.json)
    failed = [case for case in found if not certified(case)]
    print(json.dumps({"uncertified": failed, "summary": summary(found)}, indent=1))


if __name__ == "__main__":
    main()
