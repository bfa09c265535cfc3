"""Owners of rows, measured: figures 2 to 11 of Wu et al., the forecast, what else buys fitness.

    python -P bench/owners.py            everything, some minutes; FASTADMM_DATA
    python -P bench/owners.py forecast   only that, into the same file; so problems, beyond
    python -P bench/owners.py --redraw   pages and pictures from the file alone

Writes ``bench/owners.json``, the blocks between ``<!-- owners-...:begin -->`` and ``end -->`` in
``docs/owners.md`` and ``docs/papers.md``, and pictures in ``docs/img``. Noise is seeded, from NumPy, and
protects nobody; only times differ between runs of the same versions.
"""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))  # its own modules

from datasets import find_data
from page import DOCS, drawing, keep, measured, table, write_blocks

ROUNDS = 100
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
DELTA = 1e-7

#: The paper states no c1: the best of these with hindsight.
STEPS = (0.1, 0.3, 0.5, 1.0, 1.3, 2.0, 3.0, 5.0, 10.0)
#: Repetitions in the search, for what is told, and in each scenario: fewer where every one reads the rows.
REPETITIONS = {"squared": (100, 100, 20), "hinge": (5, 20, 5)}


def lending(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """9000 loans after the paper's recipe, with a constant: integer codes, ten public components.

    The last 1000 rows are the public, held-out part; it also gives means and deviations.
    """
    import pandas as pd

    frame = pd.read_csv(data / "loans_full_schema.csv")
    rate = frame.pop("interest_rate").to_numpy(dtype=float)
    columns = []
    for name in frame.columns:
        column = frame[name]
        if column.dtype.kind not in "biuf":
            column = pd.Series(pd.factorize(column, sort=True)[0])
        columns.append(column.fillna(-1.0).to_numpy(dtype=float))
    X = np.column_stack(columns)
    public = slice(len(X) - 1000, len(X))
    center, scale = X[public].mean(axis=0), X[public].std(axis=0)
    X = (X - center) / np.where(scale > 0, scale, 1.0)
    _, vectors = np.linalg.eigh(X[public].T @ X[public])
    X = X @ vectors[:, ::-1][:, :10]
    X /= X[public].std(axis=0)
    y = (rate - rate[public].mean()) / rate[public].std()
    order = np.random.default_rng(0).permutation(9000)
    return np.column_stack([X, np.ones(len(X))])[:9000][order], y[:9000][order]


def fraud(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """90,000 card transactions, frauds as rare as they are, with a constant.

    The other 23,922 rows are the public, held-out part, which gives means and deviations.
    """
    import pandas as pd

    frame = pd.read_parquet(data.parent / "creditcard" / "creditcard.parquet").iloc[:, 2:]  # two row numbers
    y = np.where(frame.pop("label").to_numpy() > 0, 1.0, -1.0)
    X = frame.to_numpy(dtype=float)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    X = (X - X[90_000:].mean(axis=0)) / X[90_000:].std(axis=0)
    return np.column_stack([X, np.ones(len(X))])[:90_000], y[:90_000]


def synthetic_regression(n: int = 750_000) -> tuple[np.ndarray, np.ndarray]:
    """The paper's size: ten independent components, unit targets of which 30 % are noise."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 10))
    truth = rng.standard_normal(10)
    truth *= math.sqrt(0.7) / np.linalg.norm(truth)
    return X, X @ truth + math.sqrt(0.3) * rng.standard_normal(n)


def synthetic_fraud(n: int = 90_000) -> tuple[np.ndarray, np.ndarray]:
    """The paper's size for the SVM: ten components and a constant, classes apart in some of them."""
    rng = np.random.default_rng(2)
    y = np.where(rng.random(n) < 0.3, 1.0, -1.0)
    X = rng.standard_normal((n, 10)) + 0.5 * y[:, None] * (rng.standard_normal(10) > 0)
    return np.column_stack([X, np.ones(n)]), y


def people(
    X: np.ndarray, y: np.ndarray, loss: str, *, limit: float = math.inf, euclidean: bool = False
) -> Any:
    """All rows as one population; lambda is the paper's: 0 for regression, 1 for the SVM."""
    from fastadmm.owners.mechanism import LOSSES

    from owner_repetitions import Population

    return Population(X, y, LOSSES[loss], 1.0 if loss == "hinge" else 0.0, limit, euclidean)


def best_objective(population: Any) -> float:
    """f*: least squares in closed form; for the SVM certified by a duality gap of 1e-6."""
    return float(population.objective(best_model(population)[:, None])[0])


def best_model(population: Any) -> np.ndarray:
    """The minimiser of :func:`best_objective`."""
    if population.loss.name == "squared":
        return np.linalg.lstsq(population.X, population.y, rcond=None)[0]
    from fastadmm import SolverOptions, make_problem, solve

    problem = make_problem(
        [population.X], (population.y > 0) * 1.0, loss="hinge", lam=population.lam, fit_intercept=False
    )
    return np.asarray(solve(problem, SolverOptions(gap=1e-6)).weights[0])


def laplace_scale(xi: float, rounds: int, n: int, epsilon: np.ndarray | float) -> Any:
    """The paper's b = 2 Xi T / (n eps)."""
    return 2.0 * xi * rounds / (n * np.asarray(epsilon, dtype=float))


def train(
    population: Any, sizes: list[int], epsilons: list[list[float]], c1: float, xi: float,
    repetitions: int, record: bool = False,
) -> list[np.ndarray]:  # fmt: skip
    """Models of Algorithm 2 as printed, one column per case and repetition: of the last or of all rounds.

    `epsilons` holds the owners' budgets of every case; all cases share one pass over the rows.
    """
    from owner_repetitions import repeat_insecurely

    n = sum(sizes)
    scales = [
        np.repeat([float(laplace_scale(xi, ROUNDS, size, case[k])) for case in epsilons], repetitions)
        for k, size in enumerate(sizes)
    ]
    models, history = repeat_insecurely(
        population, method="algorithm2", step=c1, rounds=ROUNDS, theta_max=100.0, mechanism="laplace",
        scales=scales, weights=[size / n for size in sizes], repetitions=repetitions * len(epsilons), seed=n,
        record=record,
    )  # fmt: skip
    return history if record else [models]


def fitness(
    population: Any, optimum: float, sizes: list[int], epsilons: list[list[float]], c1: float, xi: float,
    repetitions: int, record: bool = False,
) -> np.ndarray:  # fmt: skip
    """psi of :func:`train`'s models, (cases, repetitions) or (rounds, cases, repetitions)."""
    models = train(population, sizes, epsilons, c1, xi, repetitions, record)
    values = [population.objective(m) / optimum - 1.0 for m in models]
    shaped = np.stack(values).reshape(len(values), len(epsilons), repetitions)
    return shaped if record else shaped[0]


def slope(x: np.ndarray, samples: np.ndarray) -> list[float]:
    """Slope of log mean psi against log x, with a 95 % interval by resampling repetitions."""
    rng = np.random.default_rng(0)
    logs = np.log(x)

    def fit(values: np.ndarray) -> float:
        return float(np.polyfit(logs, np.log(values.mean(axis=1)), 1)[0])

    drawn = [fit(samples[:, rng.integers(0, samples.shape[1], samples.shape[1])]) for _ in range(1000)]
    return [fit(samples), float(np.quantile(drawn, 0.025)), float(np.quantile(drawn, 0.975))]


def problem(loss: str, sizes: list[int], *named: tuple[int, float]) -> dict[str, Any]:
    """Loss, rows per owner for figures over n, where claims have numbers; the bound Xi is assumed."""
    return {"loss": loss, "sizes": sizes, "xi": 8.0, "named": named}


PROBLEMS = {
    "synthetic regression": problem(
        "squared", [10_000, 30_000, 100_000, 250_000], (250_000, 1.0), (250_000, 10.0), (350_000, 10.0)
    ),
    "synthetic SVM": problem("hinge", [3000, 10_000, 30_000], (30_000, 1.0)),
    "Lending Club": problem("squared", [300, 1000, 3000], (3000, 1.0), (3000, 10.0)),
    "card fraud": problem("hinge", [3000, 10_000, 30_000], (30_000, 1.0)),
}


def load(name: str, data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a problem."""
    if name == "synthetic regression":
        return synthetic_regression(1_050_000)
    if name == "synthetic SVM":
        return synthetic_fraud()
    return lending(data) if name == "Lending Club" else fraud(data)


SLOPES = (("ε", "slopes_epsilon"), ("n", "slopes_n"))


def measure_step(
    at: Callable[[int], tuple[Any, float]], spec: dict[str, Any], grid: tuple[float, ...], c1: float,
    repetitions: int,
) -> dict[str, Any]:  # fmt: skip
    """With one c1: means over n and epsilon, what remains without noise, slopes, what claims name."""
    psi, floors = {}, {}
    for n in spec["sizes"]:
        given = *at(n), [n] * 3
        psi[n] = fitness(*given, [[e] * 3 for e in grid], c1, spec["xi"], repetitions)
        floors[n] = float(fitness(*given, [[math.inf] * 3], c1, spec["xi"], 1)[0, 0])
    # What noise adds, where it dominates: at least ten times what 100 noiseless rounds leave.
    seen = {(n, k): psi[n][k].mean() > 10 * abs(floors[n]) for n in psi for k in range(len(grid))}
    added = {n: values - floors[n] for n, values in psi.items()}
    slopes_epsilon, slopes_n = {}, {}
    for n in psi:
        chosen = [k for k in range(len(grid)) if seen[n, k]]
        if len(chosen) >= 3:
            slopes_epsilon[str(n)] = slope(np.array(grid)[chosen], added[n][chosen])
    for k, e in enumerate(grid):
        sizes = [n for n in psi if seen[n, k]]
        if len(sizes) >= 3:
            slopes_n[str(e)] = slope(np.array(sizes), np.stack([added[n][k] for n in sizes]))
    return {
        "c1": c1,
        "floors": list(floors.values()),
        "means": [values.mean(axis=1).tolist() for values in psi.values()],
        "slopes_epsilon": slopes_epsilon,
        "slopes_n": slopes_n,
        "named": [
            {"n": n, "epsilon": e, **measure_named(at, spec, n, e, c1, repetitions, psi.get(n), grid)}
            for n, e in spec["named"]
        ],
    }


def measure_problem(name: str, data: Path) -> dict[str, Any]:
    """Every c1 of the grid; with the best, box plots over iterations and the four scenarios."""
    spec = PROBLEMS[name]
    X, y = load(name, data)
    watched = measure_detection if name == "card fraud" else lambda *_: None

    @functools.cache
    def at(n: int) -> tuple[Any, float]:
        population = people(X[: 3 * n], y[: 3 * n], spec["loss"])
        return population, best_objective(population)

    # Budgets at which noise is seen beside what 100 rounds leave: less for many rows, more for few and wide.
    factor = {"synthetic regression": 0.1}.get(name, 1.0)
    grid = tuple(round(factor * e, 6) for e in EPSILONS)
    searched, repetitions, few = REPETITIONS[spec["loss"]]
    steps = [measure_step(at, spec, grid, c1, searched) for c1 in STEPS]
    # With hindsight: the least mean log psi of the largest owners over all budgets.
    best = min(steps, key=lambda step: float(np.log(np.maximum(step["means"][-1], 1e-9)).mean()))
    if searched < repetitions:
        # So few repetitions may leave open whether slopes are the paper's.
        steps = [
            measure_step(at, spec, grid, step["c1"], repetitions)
            if step is best or maybe_straight(step)
            else step
            for step in steps
        ]
        best = next(step for step in steps if step["c1"] == best["c1"])
    largest = spec["sizes"][-1]
    population, optimum = at(largest)
    shown = [grid[0], grid[2], grid[4]]
    given = [[e] * 3 for e in shown], best["c1"], spec["xi"], repetitions
    history = fitness(population, optimum, [largest] * 3, *given, True)
    quartiles = np.quantile(history, (0.25, 0.5, 0.75), axis=2)
    return {
        "epsilons": list(grid),
        "sizes": spec["sizes"],
        "xi": spec["xi"],
        "repetitions": REPETITIONS[spec["loss"]],
        "rows": len(y),
        "parameters": int(X.shape[1]),
        # Xi is assumed, as in the paper: this share of the gradients at theta = 0 is larger.
        "beyond_xi": float((start_gradients(X, y) > spec["xi"]).mean()),
        "largest": float(start_gradients(X, y).max()),
        "detection": watched(population, spec["xi"], best["c1"], repetitions),
        **best,
        "steps": steps,
        "curves": {"epsilons": shown, "quartiles": quartiles.tolist()},
        "scenarios": measure_scenarios(X, y, spec, grid, best["c1"], few),
    }


def maybe_straight(step: dict[str, Any]) -> bool:
    """Whether the intervals of all slopes with one c1 reach what counts as -2."""
    found = [value for _, key in SLOPES for value in step[key].values()]
    return bool(found) and all(low <= -1.9 and high >= -2.1 for _, low, high in found)


def start_gradients(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """l1 norms of the records' gradients at theta = 0; no theta has larger ones of the hinge."""
    return np.abs(X).sum(axis=1) * np.abs(y)


def measure_named(
    at: Callable[[int], tuple[Any, float]], spec: dict[str, Any], n: int, epsilon: float, c1: float,
    repetitions: int, known: np.ndarray | None, grid: tuple[float, ...],
) -> dict[str, float]:  # fmt: skip
    """Mean psi at a size and budget of the paper: with the assumed Xi, and with one that all records meet."""
    population, optimum = at(n)

    def psi(xi: float) -> float:
        return float(fitness(population, optimum, [n] * 3, [[epsilon] * 3], c1, xi, repetitions).mean())

    measured = known is not None and epsilon in grid
    return {
        "psi": float(known[grid.index(epsilon)].mean()) if measured else psi(spec["xi"]),
        "psi_covering": psi(float(start_gradients(population.X, population.y).max())),
    }


def measure_detection(population: Any, xi: float, c1: float, repetitions: int) -> dict[str, Any]:
    """Frauds and false alarms at f*, and on average at eps = 1; psi of the best model without features."""
    y = population.y

    def count(models: np.ndarray) -> list[float]:
        alarms = population.X @ models > 0
        return [float(alarms[y > 0].sum(axis=0).mean()), float(alarms[y < 0].sum(axis=0).mean())]

    best = best_model(population)[:, None]
    margins = y * (population.X @ best)[:, 0]
    noisy = train(population, [len(y) // 3] * 3, [[1.0] * 3], c1, xi, repetitions)[0]
    # theta = (0, b) has f = b^2 / 2 + 1 - b mean(y) for |b| <= 1, smallest at b = mean(y).
    constant = 1.0 - 0.5 * float(y.mean()) ** 2
    return {
        "frauds": int((y > 0).sum()),
        "at_kink": float((np.abs(margins - 1.0) < 0.1).mean()),
        "optimum": count(best),
        "noisy": count(noisy),
        "constant": constant / float(population.objective(best)[0]) - 1.0,
    }


def measure_scenarios(
    X: np.ndarray, y: np.ndarray, spec: dict[str, Any], grid: tuple[float, ...], c1: float,
    repetitions: int,
) -> list[Any]:  # fmt: skip
    """Mean psi over n_1 and eps_1 for small or large, strict or generous second and third owners."""
    small, large = spec["sizes"][0] // 3, spec["sizes"][-1]
    found = []
    for others, budget in ((small, grid[0]), (small, grid[-1]), (large, grid[0]), (large, grid[-1])):
        rows = []
        for n in spec["sizes"]:
            sizes = [n, others, others]
            used = slice(0, sum(sizes))
            population = people(X[used], y[used], spec["loss"])
            psi = fitness(
                population, best_objective(population), sizes, [[e, budget, budget] for e in grid],
                c1, spec["xi"], repetitions,
            )  # fmt: skip
            rows.append(psi.mean(axis=1).tolist())
        found.append({"others": others, "budget": budget, "means": rows})
    return found


def measure_forecast(data: Path) -> list[dict[str, Any]]:
    """Measured over forecast mean gap of the constant step on the loans: eps, T and mechanisms."""
    from fastadmm.owners.forecast import Forecast, Member, Pilot
    from fastadmm.owners.mechanism import make_bound
    from fastadmm.settings.owners import OwnerSettings

    from owner_repetitions import repeat_insecurely

    X, y = lending(data)
    n = len(y)
    population = people(X, y, "squared")
    h, Q = np.linalg.eigh(X.T @ X / n)
    theta = np.linalg.solve(X.T @ X, X.T @ y)
    optimum = float(population.objective(theta[:, None])[0])
    pilot = Pilot(h, -(Q.T @ theta), 2 * optimum, "all rows")
    found = []
    for mechanism in ("laplace", "gaussian"):
        for rounds in (10, 40):
            for epsilon in (0.3, 1.0, 3.0, 10.0):
                members = tuple(Member(f"bank-{k}", 3000, epsilon) for k in range(3))
                settings = OwnerSettings(
                    "", mechanism=mechanism, delta=DELTA, rounds=rounds, method="constant", bound="clip:8"
                )
                bound = make_bound(settings, population.loss, len(h))
                forecast = Forecast(members, pilot, settings, 1.0 / float(h.max()), bound)
                variance = forecast.answer_variance(members[0], rounds)
                scale = math.sqrt(variance / 2 if mechanism == "laplace" else variance)
                models, _ = repeat_insecurely(
                    population, method="constant", step=forecast.step, rounds=rounds, theta_max=1e9,
                    mechanism=mechanism, scales=[scale] * 3, weights=[1 / 3] * 3, repetitions=400,
                    seed=rounds,
                )  # fmt: skip
                gap = float(population.objective(models).mean()) - optimum
                case = {"mechanism": mechanism, "rounds": rounds, "epsilon": epsilon, "measured": gap}
                told = {"forecast": forecast.gap().to_json(), "bound": forecast.bound()}
                found.append({**case, **told, "ratio": gap / forecast.gap().training})
    return found


def measure_beyond(data: Path) -> dict[str, Any]:
    """Relative fitness of every variant at equal (epsilon, delta), on the loans and on synthetic rows."""
    cases = {
        "Lending Club, 3 × 3000, ε = 10": (*lending(data), 3000, 10.0),
        "synthetic, 3 × 30000, ε = 1": (*(part[:90_000] for part in synthetic_regression()), 30_000, 1.0),
    }
    return {name: _beyond(X, y, n, epsilon) for name, (X, y, n, epsilon) in cases.items()}


def _beyond(X: np.ndarray, y: np.ndarray, n: int, epsilon: float) -> list[dict[str, Any]]:
    from fastadmm.privacy.accounting import noise_multiplier

    from owner_repetitions import repeat_insecurely

    p, xi, repetitions = X.shape[1], {"l1": 3.0, "l2": 1.0}, 50
    plain = people(X, y, "squared")
    optimum = best_objective(plain)
    beta = float(np.linalg.eigvalsh(X[-1000:].T @ X[-1000:] / 1000).max())
    zero = float(plain.objective(np.zeros((p, 1)))[0]) / optimum - 1

    def scale(mechanism: str, rounds: int) -> float:
        if mechanism == "laplace":
            return 2 * xi["l1"] * rounds / (n * epsilon)
        return 2 * xi["l2"] / n * noise_multiplier(epsilon, DELTA, rounds)

    def run(mechanism: str, method: str, rounds: int, step: float) -> float:
        norm = "l1" if mechanism == "laplace" else "l2"
        clipped = people(X, y, "squared", limit=xi[norm], euclidean=norm == "l2")
        models, _ = repeat_insecurely(
            clipped, method=method, step=step, rounds=rounds, theta_max=5.0, mechanism=mechanism,
            scales=[scale(mechanism, rounds)] * 3, weights=[1 / 3] * 3, repetitions=repetitions, seed=rounds,
        )  # fmt: skip
        return float((plain.objective(models) / optimum - 1).mean())

    def adaptive(rounds: int) -> float:
        from fastadmm.owners.learner import Learner

        clipped = people(X, y, "squared", limit=xi["l2"], euclidean=True)
        rng, sigma = np.random.default_rng(rounds), scale("gaussian", rounds) / math.sqrt(3)
        learners = [
            Learner("adaptive", p, rounds, step=1 / beta, theta_max=5.0, noise=sigma)
            for _ in range(repetitions)
        ]
        for _ in range(rounds):
            gradients = clipped.gradient(np.column_stack([learner.theta for learner in learners]))
            for k, learner in enumerate(learners):
                learner.receive(gradients[:, k] + sigma * rng.standard_normal(p))
        models = np.column_stack([learner.theta for learner in learners])
        return float((plain.objective(models) / optimum - 1).mean())

    rows: list[dict[str, Any]] = []

    def add(name: str, answers: str, step: str, rounds: int, psi: float) -> None:
        rows.append({"name": name, "answers": answers, "step": step, "rounds": rounds, "psi": psi})
        print(rows[-1], flush=True)

    add("no training (θ = 0)", "–", "–", 0, zero)
    for number, step in ((1, "ρ/(T²k), ρ = 1/β"), (2, "c₁/√k, c₁ = 1/β")):
        psi = run("laplace", f"algorithm{number}", 40, 1 / beta)
        add(f"Algorithm {number} as printed", "Laplace, l1 clip", step, 40, psi)
    for name, again, text, step, of in (
        ("constant step", "constant step", "Laplace, l1 clip", "1/β",
         lambda T: run("laplace", "constant", T, 1 / beta)),
        ("constant step", "constant step", "Gaussian, l2 clip", "1/β",
         lambda T: run("gaussian", "constant", T, 1 / beta)),
        ("step searched on released values", "the same", "Gaussian, l2 clip", "adaptive", adaptive),
    ):  # fmt: skip
        values = {T: of(T) for T in (5, 10, 20, 40, 80)}
        add(name, text, step, 40, values[40])
        best = min(values, key=values.__getitem__)
        add(f"{again}, best T of 5", text, step, best, values[best])
    return rows


def forecast_block(numbers: dict[str, Any]) -> str:
    """Measured over forecast."""
    cells = {(f["mechanism"], f["rounds"], f["epsilon"]): f for f in numbers["forecast"]}
    rows = []
    for mechanism in ("laplace", "gaussian"):
        for rounds in (10, 40):
            row = [mechanism, str(rounds)]
            for epsilon in (0.3, 1.0, 3.0, 10.0):
                f = cells[mechanism, rounds, epsilon]
                expected = f["forecast"]["optimisation"] + f["forecast"]["noise"]
                row.append(f"{f['measured']:.3g} / {expected:.3g}")
            rows.append(row)
    ratios = [f["ratio"] for f in numbers["forecast"]]
    slack = max(f["measured"] / f["bound"] for f in numbers["forecast"])
    return (
        table(["answers", "T", "ε = 0.3", "1", "3", "10"], rows)
        + f"\n\nQuotients lie between {min(ratios):.2f} and {max(ratios):.2f}; the proved bound is never "
        f"below the measured gap (largest quotient {slack:.2f})."
    )


def beyond_block(numbers: dict[str, Any]) -> str:
    """What each step beyond the paper buys."""
    names = list(numbers["beyond"])
    rows = []
    for k, first in enumerate(numbers["beyond"][names[0]]):
        items = [numbers["beyond"][name][k] for name in names]
        rounds = " / ".join(dict.fromkeys(str(item["rounds"]) for item in items))
        psi = [f"{item['psi']:.3g}" for item in items]
        rows.append([first["name"], first["answers"], first["step"], rounds, *psi])
    return table(["method", "answers", "step", "T", *names], rows)


def shares_block(numbers: dict[str, Any]) -> str:
    """Records beyond the assumed Xi, and what a Xi for all records would cost."""
    rows = []
    for name, found in numbers["problems"].items():
        for k, at in enumerate(found["named"]):
            first = [name, f"{found['xi']:g}", f"{100 * found['beyond_xi']:.3g} %", f"{found['largest']:.3g}"]
            psi = [f"{at['psi']:.2g}", f"{at['psi_covering']:.2g}"]
            rows.append([*(first if k == 0 else [""] * 4), f"{at['n']:,}", f"{at['epsilon']:g}", *psi])
    header = [
        "data", "Ξ assumed", "records beyond it at θ = 0", "largest", "n each", "ε", "ψ with the assumed Ξ",
        "ψ with the largest as Ξ",
    ]  # fmt: skip
    return table(header, rows)


def claims_block(numbers: dict[str, Any]) -> str:
    """The paper's claims, what was measured, and whether that agrees."""
    rows = claims(numbers)
    lines = ["| the paper | measured here | agrees |", "|---|---|---|"]
    for claim in dict.fromkeys(row[0] for row in rows):
        told = [row[1:] for row in rows if row[0] == claim]
        lines += [f"| {'' if k else claim} | {found} | {agrees} |" for k, (found, agrees) in enumerate(told)]
    return "\n".join(lines)


def claims(numbers: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Rows of :func:`claims_block`; what depends on c1 is judged at the best, and told for the others."""
    problems = numbers["problems"]
    cards = problems["card fraud"]
    found: list[tuple[str, str, str]] = []

    def add(claim: str, text: str, holds: bool, but: str = "") -> None:
        found.append((claim, text, ("yes" if holds else "**no**") + but))

    def judge(
        claim: str, p: dict[str, Any], text: str, holds: Callable[[dict[str, Any]], bool], but: str = ""
    ) -> None:
        at = [step["c1"] for step in p["steps"] if holds(step)]
        others = f" at the best c₁; yes at {_listed(at)}" if at else ", at every c₁"
        add(claim, text, holds(p), but if holds(p) else others)

    for name, n in (("synthetic regression", 250_000), ("Lending Club", 3000)):
        p = problems[name]
        one, ten = (psi_at(p, n, e)["psi"] for e in (1.0, 10.0))
        judge(
            "From ε = 1 to 10 ψ falls about 100-fold (loans, 3 × 250,000)",
            p,
            f"{name}, 3 × {n:,}: from {one:.2g} to {ten:.2g}, {one / ten:.3g}-fold",
            lambda step, n=n: 50 <= fall(step, n) <= 200,
        )
    card = psi_at(cards, 30_000, 1.0)
    within = 1 / 0.9 - 1
    share = f"{100 * cards['beyond_xi']:.0f} %"
    judge(
        "Cards, ε = 1, 3 × 30,000: within 90 % of the best fitness in 100 rounds",
        cards,
        f"ψ = {card['psi']:.2g}, so within {100 / (1 + card['psi']):.1f} %, with Ξ = {cards['xi']:g}",
        lambda step: psi_at(step, 30_000, 1.0)["psi"] <= within,
        f", but {share} of the records exceed that Ξ, so no ε holds",
    )
    judge(
        "The same with a Ξ that every record meets",
        cards,
        f"Ξ = {cards['largest']:.0f}: ψ = {card['psi_covering']:.2g}",
        lambda step: psi_at(step, 30_000, 1.0)["psi_covering"] <= within,
    )
    seen = cards["detection"]
    add(
        "A support vector machine that detects frauds",
        f"ψ of a model that sees no feature is {seen['constant']:.2g}, too. Of {seen['frauds']} frauds the "
        f"best model reports {seen['optimum'][0]:.0f} with {seen['optimum'][1]:.0f} false alarms; at ε = 1 "
        f"{seen['noisy'][0]:.0f} and {seen['noisy'][1]:.0f}",
        seen["constant"] > card["psi"],
        ", but a fitness of 90 % says nothing about frauds",
    )
    p = problems["synthetic regression"]
    large = psi_at(p, 350_000, 10.0)
    judge(
        "Loans, ε = 10, 3 × 350,000: similar",
        p,
        f"synthetic regression: ψ = {large['psi']:.2g}; with a Ξ that every record meets at θ = 0 "
        f"{large['psi_covering']:.2g}",
        lambda step: psi_at(step, 350_000, 10.0)["psi"] <= within,
    )
    for name, p in problems.items():
        lists = "; ".join(
            f"{what}: {', '.join(f'{v:.2f}' for v, _, _ in p[key].values()) or 'nowhere'}"
            for what, key in SLOPES
        )
        judge(
            "Log ψ against log ε and log n has slope −2, a perfect fit",
            p,
            f"{name}, where noise dominates: {lists}",
            lambda step: bool(slopes(step)) and all(abs(v + 2) <= 0.1 for v in slopes(step)),
        )
    add("Theorem 2 bounds the gap of Algorithm 1, and is tight", "[false](owners.md)", False)
    add("Theorem 3 bounds the gap of Algorithm 2", "[false as ε → ∞](owners.md)", False)
    ratios = [f["ratio"] for f in numbers["forecast"]]
    add(
        "The quality is predicted before training",
        "the paper's laws have constants that a run has to be fitted for; [our forecast](owners.md) needs "
        f"none: measured / forecast {min(ratios):.2f} to {max(ratios):.2f}",
        False,
        " by its laws; yes by our forecast",
    )
    for name in ("Lending Club", "card fraud"):
        p = problems[name]
        strict = p["scenarios"][0]
        first, last = strict["means"][-1][0], strict["means"][-1][-1]
        add(
            "No point in joining small strict owners, however large and generous the first one",
            f"{name}, {p['sizes'][-1]:,} rows with two owners of {strict['others']} at "
            f"ε = {strict['budget']:g}: ψ = {first:.2g} at ε₁ = {p['epsilons'][0]:g}, "
            f"{last:.2g} at {p['epsilons'][-1]:g}",
            first < 3 * last,
            ", by the [weights n_ℓ/n](owners.md#the-value-of-joining)",
        )
        end, floor = p["means"][-1][-1], p["floors"][-1]
        judge(
            "All large and generous: as good as without privacy",
            p,
            f"{name}, 3 × {p['sizes'][-1]:,} at ε = {p['epsilons'][-1]:g}: ψ = {end:.2g}, "
            f"without noise {floor:.2g}",
            lambda step: step["means"][-1][-1] <= 1.5 * step["floors"][-1],
        )
    return found


def psi_at(step: dict[str, Any], n: int, epsilon: float) -> dict[str, float]:
    """What was measured with one c1 at a size and budget that a claim names."""
    return next(at for at in step["named"] if (at["n"], at["epsilon"]) == (n, epsilon))


def fall(step: dict[str, Any], n: int) -> float:
    """By how much psi falls from eps = 1 to 10."""
    return psi_at(step, n, 1.0)["psi"] / psi_at(step, n, 10.0)["psi"]


def slopes(step: dict[str, Any]) -> list[float]:
    """All slopes with one c1, against eps and n."""
    return [value for _, key in SLOPES for value, _, _ in step[key].values()]


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _range(values: list[float]) -> str:
    return f"{min(values):.2f}…{max(values):.2f}" if values else "–"


def steps_block(numbers: dict[str, Any]) -> str:
    """What every c1 gives."""
    rows = []
    for name, p in numbers["problems"].items():
        told = {}
        if not name.startswith("synthetic"):
            told["slopes"] = [_range(slopes(step)) for step in p["steps"]]
        largest = p["sizes"][-1]
        if (largest, 10.0) in ((at["n"], at["epsilon"]) for at in p["named"]):
            told["fall"] = [f"{fall(step, largest):.3g}" for step in p["steps"]]
        for what, cells in told.items():
            marked = [f"**{c}**" if s["c1"] == p["c1"] else c for c, s in zip(cells, p["steps"])]
            rows.append(f"- {name}, {what}: {', '.join(marked)}")
    return "\n".join([f"c₁ = {_listed(list(STEPS))}:", "", *rows])


#: Blocks by page.
BLOCKS: dict[str, dict[str, Callable[[dict[str, Any]], str]]] = {
    "owners.md": {"forecast": forecast_block, "beyond": beyond_block},
    "papers.md": {"steps": steps_block, "shares": shares_block, "claims": claims_block},
}


COLOURS = ("#d55e00", "#e69f00", "#009e73", "#0072b2", "#a3417f")


def draw(numbers: dict[str, Any]) -> None:
    """One picture per loss (the paper's figures in its order), and one of the forecast."""
    with drawing({"font.size": 8, "axes.titlesize": 8.5}) as save:
        for loss, names in (
            ("regression", ("synthetic regression", "Lending Club")),
            ("svm", ("synthetic SVM", "card fraud")),
        ):
            save(f"owners-{loss}.svg", _draw_loss(numbers, names, 2 if loss == "regression" else 7))
        save("owners.svg", _draw_forecast(numbers))


def _draw_loss(numbers: dict[str, Any], names: tuple[str, str], first: int) -> Any:
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 9.6), layout="constrained")
    grid = figure.subplots(4, 5)
    for block, name in enumerate(names):
        found = numbers["problems"][name]
        top, bottom = grid[2 * block : 2 * block + 2]
        curves, sizes, epsilons = found["curves"], found["sizes"], found["epsilons"]
        quartiles = np.array(curves["quartiles"])
        for k, (axes, epsilon) in enumerate(zip(top[:3], curves["epsilons"])):
            rounds = np.arange(2, quartiles.shape[1] + 2)
            axes.vlines(rounds, quartiles[0, :, k], quartiles[2, :, k], color=COLOURS[3], linewidth=1.2)
            axes.plot(rounds, quartiles[1, :, k], color="black", linewidth=0.9)
            axes.set_yscale("log")
            axes.set_title(f"{name}\nψ over k, ε = {epsilon:g} (fig. {first})")
        means = np.array(found["means"])
        title = f"{name}\nψ over ε and n (fig. {first + 1})"
        _surface(top[3], epsilons, sizes, means, LogNorm, title)
        for k, n in enumerate(sizes):
            top[4].loglog(epsilons, means[k], "o-", color=COLOURS[k], markersize=3, label=f"n = {n}")
        for k, epsilon in enumerate(epsilons):
            label = f"ε = {epsilon:g}"
            bottom[0].loglog(sizes, means[:, k], "o-", color=COLOURS[k], markersize=3, label=label)
        top[4].set_title(f"{name}\nψ against ε (fig. {first + 2})")
        bottom[0].set_title(f"{name}\nψ against n (fig. {first + 3})")
        bottom[0].set_xticks(sizes, labels=[str(n) for n in sizes])
        bottom[0].set_xticks([], minor=True)
        top[4].legend(frameon=False, fontsize=6.5)
        bottom[0].legend(frameon=False, fontsize=6.5)
        scenarios = found["scenarios"]
        low = min(np.min(s["means"]) for s in scenarios)
        high = max(np.max(s["means"]) for s in scenarios)
        for axes, scenario in zip(bottom[1:], scenarios):
            others = f"{scenario['others']} rows, ε = {scenario['budget']:g}"
            title = f"{name}, owners 2 and 3:\n{others} (fig. {first + 4})"
            _surface(axes, epsilons, sizes, np.array(scenario["means"]), LogNorm, title, (low, high))
    return figure


def _surface(
    axes: Any, x: list[float], y: list[int], values: np.ndarray, norm: Any, title: str, ends: Any = None
) -> None:
    low, high = ends or (values.min(), values.max())
    scale = norm(max(low, 1e-12), high)
    axes.pcolormesh(
        np.arange(len(x) + 1), np.arange(len(y) + 1), np.maximum(values, 1e-12), cmap="cividis",
        norm=scale,
    )  # fmt: skip
    for i in range(len(y)):
        for j in range(len(x)):
            colour = "black" if scale(max(values[i, j], 1e-12)) > 0.6 else "white"
            place = {"ha": "center", "va": "center", "fontsize": 5.5, "color": colour}
            axes.text(j + 0.5, i + 0.5, f"{values[i, j]:.1g}", **place)
    axes.set_xticks(np.arange(len(x)) + 0.5, labels=[f"{e:g}" for e in x])
    axes.set_yticks(np.arange(len(y)) + 0.5, labels=[str(n) for n in y])
    axes.set_title(title)


def _draw_forecast(numbers: dict[str, Any]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for k, (mechanism, rounds) in enumerate(
        (("laplace", 10), ("laplace", 40), ("gaussian", 10), ("gaussian", 40))
    ):
        points = [f for f in numbers["forecast"] if (f["mechanism"], f["rounds"]) == (mechanism, rounds)]
        epsilons = [f["epsilon"] for f in points]
        expected = [f["forecast"]["optimisation"] + f["forecast"]["noise"] for f in points]
        left.loglog(epsilons, expected, color=COLOURS[k], label=f"{mechanism}, T = {rounds}")
        left.loglog(
            epsilons, [f["measured"] for f in points], "o", color=COLOURS[k], markersize=5, fillstyle="none"
        )
    left.set_xlabel("ε of each owner")
    left.set_ylabel("f − f*")
    left.set_title("lines: forecast before training; circles: measured")
    left.legend(frameon=False)
    name, rows = next(iter(numbers["beyond"].items()))
    labels = [f"{row['name']} ({row['answers'].split(',')[0]}, T = {row['rounds']})" for row in rows]
    right.barh(range(len(rows)), [row["psi"] for row in rows], color=COLOURS[3], height=0.6)
    right.set_yticks(range(len(rows)), labels=labels, fontsize=6.5)
    right.invert_yaxis()
    right.set_xscale("log")
    right.set_xlabel("ψ: relative excess over the best objective")
    right.set_title(name)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    return figure


def _short(value: Any) -> Any:
    """Six significant digits of every number."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [_short(item) for item in value]
    return {key: _short(item) for key, item in value.items()} if isinstance(value, dict) else value


def main() -> None:
    """Measure what is asked for, then write pages and pictures."""
    found = measured("owners")
    asked = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    if "--redraw" not in sys.argv[1:]:
        data = find_data("owners/loans_full_schema.csv", "creditcard/creditcard.parquet") / "owners"
        if not asked or "forecast" in asked:
            found["forecast"] = measure_forecast(data)
        if not asked or "beyond" in asked:
            found["beyond"] = measure_beyond(data)
        if not asked or "problems" in asked:
            for name in PROBLEMS:
                begin = time.monotonic()
                found.setdefault("problems", {})[name] = measure_problem(name, data)
                print(name, f"{time.monotonic() - begin:.0f} s", flush=True)
        keep("owners", _short(found), None)
    for page, blocks in BLOCKS.items():
        write_blocks(DOCS / page, {f"owners-{name}": make(found) for name, make in blocks.items()})
    draw(found)


if __name__ == "__main__":
    main()
