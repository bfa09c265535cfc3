"""Non-convex losses and penalty: rounds to a stationary point, the rate of Theorem 2, and outliers.

    python -P bench/nonconvex.py

Writes ``bench/nonconvex.json`` (what was measured), the block between
``<!-- nonconvex:begin -->`` and ``<!-- nonconvex:end -->`` in ``docs/losses.md``
(made from that file alone) and ``docs/img/nonconvex.svg``. ``--redraw`` only
makes the page again, ``--random`` measures the random problems alone. Nothing here depends on the clock.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))  # its own modules

from datasets import find_data
from page import replace_block

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "losses.md"
MEASURED = ROOT / "bench" / "nonconvex.json"
PICTURE = ROOT / "docs" / "img" / "nonconvex.svg"
MARK = "nonconvex"

LIMIT = 1000
LEVELS = (1e-2, 1e-3, 1e-4, 1e-5)
EPSILONS = tuple(10.0**-k for k in range(1, 7))
PARTIES = (2, 8)
LAM = 1e-3


def housing(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """California housing, features and target standardised."""
    from sklearn.preprocessing import scale

    table = np.loadtxt(data / "cal_housing.data", delimiter=",", skiprows=1)
    return scale(table[:, :-1]), scale(table[:, -1])


def corrupt(y: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Targets of which a random share is replaced by 20 standard deviations."""
    hit = np.random.default_rng(seed).random(len(y)) < share
    return np.where(hit, 20.0, y)


def cases(data: Path) -> Iterator[tuple[str, str, str, Any, np.ndarray]]:
    """Data set, loss, regulariser, features and targets."""
    for name, X, y, bounded, convex in data_sets(data):
        for loss in bounded:
            yield name, loss, "l2", X, y
        yield name, convex, "log_sum:0.3", X, y


def data_sets(data: Path) -> Iterator[tuple[str, Any, np.ndarray, tuple[str, ...], str]]:
    """Name, features, targets, losses that are not convex, and one that is."""
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_svmlight_file
    from sklearn.preprocessing import scale

    X, y = load_svmlight_file(str(data / "a9a.bz2"), n_features=123)
    yield "a9a", X.tocsc(), (y > 0) * 1.0, ("sigmoid",), "logistic"
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", scale(X), y * 1.0, ("sigmoid",), "logistic"
    X, y = load_diabetes(return_X_y=True)
    X, y = scale(X), corrupt(scale(y), 0.1, 0)
    yield "diabetes", X, y, ("tukey", "welsch"), "huber"
    X, y = housing(data)
    y = corrupt(y, 0.1, 0)
    yield "housing", X, y, ("tukey", "welsch"), "huber"


def first_below(values: list[float], level: float) -> int | None:
    """Number of the first round at or below a level; None if there is none."""
    return next((k + 1 for k, value in enumerate(values) if value <= level), None)


def measure_rounds(data: Path) -> list[dict[str, Any]]:
    """Rounds to each level of stationarity, by scheme; and of ``sharing`` its V."""
    from fastadmm.problem.problem import make_problem
    from fastadmm.solver.solver import SolverOptions, solve

    found = []
    for name, loss, regularizer, X, y in cases(data):
        for parties in PARTIES:
            d = X.shape[1]
            bounds = [d * k // parties for k in range(parties + 1)]
            blocks = [X[:, a:b] for a, b in itertools.pairwise(bounds)]
            problem = make_problem(blocks, y, loss=loss, lam=LAM, regularizer=regularizer)
            case: dict[str, Any] = {
                "data": name,
                "loss": loss,
                "regularizer": regularizer,
                "parties": parties,
                "rounds": {},
            }
            for scheme in ("subspace", "sharing"):
                options = SolverOptions(scheme=scheme, stationarity=LEVELS[-1], max_rounds=LIMIT)
                history = solve(problem, options).history
                values = [float(r.stationarity or 0.0) for r in history]
                case["rounds"][scheme] = [first_below(values, level) for level in LEVELS]
                case[f"objective_{scheme}"] = history[-1].objective
                if scheme == "sharing":
                    lagrangian = [r.augmented_lagrangian for r in history]
                    case["descends"] = bool(np.all(np.diff(lagrangian) <= 1e-12 * abs(lagrangian[0])))
                    case["penalty"] = history[-1].penalty
                    v = [r.lyapunov for r in history]
                    case["rate"] = [first_below(v, eps * v[0]) for eps in EPSILONS]
                    smallest = np.minimum.accumulate(v)
                    case["constant"] = float(np.max(smallest * np.arange(1, len(v) + 1)) / v[0])
            found.append(case)
            print(case, flush=True)
    return found


def measure_outliers(data: Path) -> list[dict[str, Any]]:
    """Test error of housing models whose training targets are partly corrupted."""
    from fastadmm.problem.problem import make_problem
    from fastadmm.solver.solver import SolverOptions, solve

    X, y = housing(data)
    train = np.random.default_rng(1).random(len(y)) < 0.7
    found = []
    for share in (0.0, 0.05, 0.1, 0.2, 0.3):
        target = corrupt(y, share, 2)
        row: dict[str, Any] = {"share": share}
        for loss in ("squared", "huber", "quantile", "tukey", "welsch"):
            problem = make_problem(np.array_split(X[train], 2, axis=1), target[train], loss=loss, lam=LAM)
            result = solve(problem, SolverOptions(gap=1e-4))
            z = X[~train] @ np.concatenate(result.weights) + result.intercept
            row[loss] = float(np.sqrt(np.mean((z - y[~train]) ** 2)))
        found.append(row)
        print(row, flush=True)
    return found


PENALTIES = (
    {"regularizer": "l1"},
    {"regularizer": "elastic_net"},
    {"regularizer": "group_lasso"},
    {"regularizer": "none", "constraint": "nonnegative"},
    {"constraint": "nonnegative"},
    {"regularizer": "none", "constraint": "box:-0.3,0.5"},
    {"regularizer": "l1", "constraint": "box:-1,1"},
    {"regularizer": "none", "constraint": "ball:1.5"},
    {"regularizer": "l1", "constraint": "nonnegative"},
    {"constraint": "ball:0.7"},
)


def random_problem(seed: int) -> Any:
    """Of a bounded loss with a norm or a set, of 20 to 600 rows: correlated columns, outliers, weights."""
    from fastadmm.problem.problem import make_problem

    rng = np.random.default_rng(seed)
    n, widths = (
        int(np.exp(rng.uniform(np.log(20), np.log(600)))),
        rng.integers(1, 13, int(rng.integers(1, 6))),
    )
    d = int(widths.sum())
    X = rng.normal(size=(n, d)) + rng.choice([0, 0.7, 2.0]) * rng.normal(size=(n, 2)) @ rng.normal(
        size=(2, d)
    )
    X /= X.std(axis=0)
    if rng.random() < 0.2:
        X *= np.exp(rng.normal(size=d))
    truth = rng.normal(size=d) * (rng.random(d) < 0.5)
    z = X @ truth / max(1.0, float(np.linalg.norm(truth))) * rng.choice([0.5, 2, 5])
    loss, c = (("sigmoid", None), ("tukey", 4.685), ("tukey", 1.5), ("welsch", 2.11), ("welsch", 1.0))[
        int(rng.integers(5))
    ]
    penalty: dict[str, Any] = dict(PENALTIES[int(rng.integers(len(PENALTIES)))])
    if loss == "sigmoid":
        y = (z + rng.logistic(size=n) > np.median(z)) * 1.0
        y[:2] = 0.0, 1.0
    else:
        y = z + rng.normal(size=n) * rng.choice([0.3, 1.0])
        y = np.where(rng.random(n) < rng.choice([0.0, 0.1, 0.3]), y + 10.0 * rng.choice([-1, 1, 1], n), y)
    return make_problem(
        np.split(X, np.cumsum(widths)[:-1], axis=1),
        y,
        loss=loss,
        loss_parameters=None if c is None else {"c": c},
        lam=10 ** rng.uniform(-4, -1),
        fit_intercept=bool(rng.random() < 0.7),
        sample_weight=rng.uniform(0.1, 3.0, n) if rng.random() < 0.2 else None,
        **penalty,
    )


def proximal_gradient(problem: Any, steps: int = 20_000, tolerance: float = 1e-6) -> float:
    """Objective where pooled proximal gradient with backtracking ends, from the same start."""
    from fastadmm.coordinator.stationarity import start_point
    from fastadmm.engine.engine import Engine

    engine, total = Engine(1), problem.total_weight
    X = np.hstack([block.matrix for block in problem.blocks])
    cuts, gradient = np.cumsum([b.shape[1] for b in problem.blocks])[:-1], np.empty(problem.n_samples)

    def at(x: np.ndarray, b: float) -> tuple[float, np.ndarray, float]:
        z = problem.offset + b + X @ x
        value = problem.loss.evaluate(z, problem.y, problem.weight, gradient, engine)
        return value, X.T @ gradient, float(gradient.sum()) * problem.fit_intercept

    x, b, t, first = np.zeros(X.shape[1]), start_point(problem, engine).intercept, 1.0 / total, 0.0
    loss, slope, rise = at(x, b)
    for _ in range(steps):
        there = np.split(x - t * slope, cuts)
        step = np.concatenate([own.prox(v, t) for own, v in zip(problem.penalties, there, strict=True)]) - x
        up = -t * rise
        trial = at(x + step, b + up)
        square = float(step @ step) + up * up
        if trial[0] > loss + slope @ step + rise * up + square / (2 * t) + 1e-13 * abs(loss):
            t *= 0.5
            continue
        x, b, (loss, slope, rise) = x + step, b + up, trial
        first = first or square**0.5 / t
        if square**0.5 <= tolerance * first * t:
            break
        t *= 1.3
    values = [own.value(v) for own, v in zip(problem.penalties, np.split(x, cuts), strict=True)]
    return float((loss + sum(values)) / total)


def measure_random(seeds: range = range(5000, 5160)) -> dict[str, int]:
    """Random problems by ``proximal``, and where proximal gradient ends."""
    from fastadmm.solver.solver import SolverOptions, solve

    found = dict.fromkeys(("problems", "stationary", "median", "most", "above", "below"), 0)
    rounds = []
    for seed in seeds:
        problem = random_problem(seed)
        result = solve(problem, SolverOptions(max_rounds=100, n_threads=1))
        over = result.objective - proximal_gradient(problem)
        rounds.append(result.history[-1].round)
        found["stationary"] += str(result.status) == "stationary"
        found["above"] += over > 1e-6
        found["below"] += over < -1e-6
    return {**found, "problems": len(seeds), "median": int(np.median(rounds)), "most": max(rounds)}


def cell(value: int | None) -> str:
    """A number of rounds; a dash where the limit came first."""
    return "–" if value is None else str(value)


def block(measured: dict[str, Any]) -> str:
    """The page's tables."""
    shown = range(1, len(LEVELS), 2)
    levels = " / ".join(f"{LEVELS[k]:.0e}" for k in shown)
    lines = [
        f"λ = {LAM:g}, with intercept, default options, at most {measured['limit']} rounds. Rounds to a "
        f"relative stationarity of {levels} (–: not reached):",
        "",
        "| data | loss | regulariser | M | `subspace` | `sharing` | objective, `sharing` over `subspace` |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for c in measured["cases"]:
        if c["parties"] < max(case["parties"] for case in measured["cases"]):
            continue
        rounds = [" / ".join(cell(c["rounds"][s][k]) for k in shown) for s in ("subspace", "sharing")]
        ratio = c["objective_sharing"] / c["objective_subspace"]
        lines.append(
            f"| {c['data']} | `{c['loss']}` | `{c['regularizer']}` | {c['parties']} "
            f"| {rounds[0]} | {rounds[1]} | {ratio:.4f} |"
        )
    lines += [
        "",
        "An O(1/ε) rate bounds T·min Vᵗ/V¹; over all rounds T of these runs of `sharing` it is at most "
        f"{max(c['constant'] for c in measured['cases']):.1f}.",
    ]
    drawn = measured["random"]
    lines += [
        "",
        f"Of {drawn['problems']} random problems of bounded losses with norms and sets, "
        f"{drawn['stationary']} are stationary by `proximal` in at most 100 rounds (median "
        f"{drawn['median']}).",
    ]
    names = ("squared", "huber", "quantile", "tukey", "welsch")
    lines += [
        "",
        "California housing, two parties, some training targets replaced by 20 standard deviations: "
        "root mean squared error on untouched test rows, in standard deviations of the target, losses with "
        "their default parameters:",
        "",
        "| corrupted | " + " | ".join(f"`{name}`" for name in names) + " |",
        "|---:|" + "---:|" * len(names),
    ]
    for row in measured["outliers"]:
        lines.append(f"| {row['share']:.0%} | " + " | ".join(f"{row[name]:.3f}" for name in names) + " |")
    return "\n".join(lines)


def draw(measured: dict[str, Any]) -> None:
    """Rounds against 1/epsilon, one line per case, and the slope of O(1/epsilon)."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    colours = {"sigmoid": "#0072b2", "tukey": "#d55e00", "welsch": "#009e73", "log_sum": "#cc79a7"}
    with mpl.rc_context({"svg.hashsalt": "fastadmm", "svg.fonttype": "path", "font.size": 10}):
        figure = Figure(figsize=(7.2, 3.6), layout="constrained")
        axes = figure.add_subplot()
        seen = set()
        for c in measured["cases"]:
            points = [(1 / eps, t) for eps, t in zip(EPSILONS, c["rate"], strict=True) if t is not None]
            kind = c["loss"] if c["regularizer"] == "l2" else "log_sum"
            label = None if kind in seen else kind
            seen.add(kind)
            axes.plot(*zip(*points, strict=True), marker="o", ms=3, color=colours[kind], label=label, lw=1.3)
        axes.plot([1e1, 1e3], [1e1, 1e3], color="0.5", ls=(0, (4, 3)), lw=1.2, label="slope of O(1/ε)")
        axes.set(xscale="log", yscale="log", xlabel="1/ε", ylabel="first round with Vᵗ ≤ ε V¹")
        axes.set_ylim(0.9, 2 * measured["limit"])
        axes.grid(alpha=0.3)
        axes.legend(loc="upper left", frameon=False)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        PICTURE.parent.mkdir(exist_ok=True)
        figure.savefig(PICTURE, format="svg", metadata={"Date": None, "Creator": None})


def main() -> None:
    """Measure unless told to redraw, then write page and picture."""
    if "--random" in sys.argv[1:]:
        measured = json.loads(MEASURED.read_text(encoding="utf-8")) | {"random": measure_random()}
        MEASURED.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    elif "--redraw" not in sys.argv[1:]:
        data = find_data("cal_housing.data")
        measured = {"limit": LIMIT, "cases": measure_rounds(data), "outliers": measure_outliers(data)}
        measured["random"] = measure_random()
        MEASURED.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    replace_block(MARK, f"{block(measured)}\n", PAGE)
    draw(measured)


if __name__ == "__main__":
    main()
