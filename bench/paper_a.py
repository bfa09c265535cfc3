"""Figures 1 to 3 of Hu, Liu, Kong and Niu (2019, arXiv:1907.07735) again, with the paper's own equations.

    python -P bench/paper_a.py [--redraw]

Writes ``bench/paper_a.json`` (what was measured), the block between
``<!-- paper-a:begin -->`` and ``<!-- paper-a:end -->`` in ``docs/papers.md``
(made from that file alone) and ``docs/img/paper-a-*.svg``. Noise and the
starts of SGD are seeded: the same versions give the same numbers.

What follows the paper is the solver's scheme `jacobi` (equations 6 to 8) with
:func:`fastadmm.privacy.paper_noise.perturb` on the parties (its noise on the parameters),
and :func:`descend`, the baseline; :func:`frank_wolfe` is what one of its texts
compares with in words. ``--redraw`` measures nothing. The data are found as in
``bench/rounds.py``.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fastadmm.privacy.paper_noise import inverse_root, perturb

sys.path.insert(0, str(Path(__file__).resolve().parent))  # its own modules

from datasets import find_data
from page import DOCS, drawing, keep, measured, write_blocks

PAGE, MARK = DOCS / "papers.md", "paper-a"

#: rho of the paper in its summed scaling, where the curvature of one sample's logistic loss is 1/4.
PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
STEPS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
BATCH = 100
SEEDS = (0, 1, 2)
#: Epochs that a penalty is watched for; the curves' epochs times this are what SGD gets in the end.
WATCHED, LONGER = 60, 4
#: Delta and delta' of Theorem 3 and Corollary 1.
DELTA = 1e-5
#: Mini-batches by which what a party of FDML sees of the others may be out of date.
STALENESS = (10, 100)
#: Radii of Frank-Wolfe's l1 ball, in units of the optimum's norm.
RADII = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)


class Case(NamedTuple):
    """A data set, its test rows and how it runs; labels are 0/1.

    Parties end at the columns ``bounds``, the paper's split, or ``other``: 2 parties for 3 and 3 for 2.
    Lambda is per mean loss, N times smaller than the paper's; noise of size sigma is on each parameter.
    """

    key: str
    title: str
    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    bounds: list[int]
    other: list[int]
    lam: float
    epochs: int
    sigmas: tuple[float, ...]


def to_unit_range(X: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Columns brought to -1 ... 1 by the training rows, as LIBSVM's gisette_scale is; constant ones to 0."""
    low, high = X.min(axis=0), X.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    return [np.where(high > low, 2.0 * (part - low) / width - 1.0, 0.0) for part in (X, *others)]


def cases(data: Path) -> Iterator[Case]:
    """The paper's a9a, and what stands for its gisette."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(data / "a9a.bz2"), n_features=123)
    X_test, y_test = load_svmlight_file(str(data / "a9a.t.bz2"), n_features=123)
    rows = X.toarray(), (y > 0) * 1.0, X_test.toarray(), (y_test > 0) * 1.0
    yield Case("a9a", "a9a", *rows, [0, 66, 123], [0, 41, 82, 123], 1e-4, 50, (0.01, 0.03, 0.1, 0.3))
    found = np.load(data / "gisette_like.npz")
    X, X_test = to_unit_range(found["X_train"].astype(float), found["X_valid"].astype(float))
    rows = X, (found["y_train"] > 0) * 1.0, X_test, (found["y_valid"] > 0) * 1.0
    parties, sigmas = ([0, 2000, 4000, 5000], [0, 2500, 5000]), (0.003, 0.01, 0.03, 0.1)
    yield Case("gisette_like", "gisette_like (not gisette)", *rows, *parties, 1e-3, 50, sigmas)
    found = np.load(data / "mnist_4v9.npz")
    rows = found["X"] / 255.0, (found["y"] > 0) * 1.0, found["Xt"] / 255.0, (found["yt"] > 0) * 1.0
    parties, sigmas = ([0, 314, 628, 784], [0, 392, 784]), (0.01, 0.03, 0.1, 0.3)
    yield Case("mnist", "MNIST 4/9 (not gisette)", *rows, *parties, 1e-4, 50, sigmas)


def cut(X: np.ndarray, bounds: list[int]) -> list[np.ndarray]:
    """Consecutive columns of a dense matrix, one block per party."""
    return [np.ascontiguousarray(X[:, a:b]) for a, b in itertools.pairwise(bounds)]


class Workshop:
    """A case's problem for some cut of its columns, whose factorisations are made once for all runs."""

    def __init__(self, case: Case, bounds: list[int]) -> None:
        from fastadmm.problem.problem import TestSet, make_problem

        self.case, self.lam = case, case.lam
        self.blocks = cut(case.X, bounds)
        self.tests = cut(case.X_test, bounds)
        held_out = make_problem(self.tests, case.y_test, lam=1.0, fit_intercept=False)
        test = TestSet(held_out.blocks, held_out.y, held_out.weight, held_out.offset)
        self.problem = make_problem(self.blocks, case.y, lam=case.lam, fit_intercept=False, test=test)
        self._updates: list[Any] = []

    def run(self, scheme: str, epochs: int, gap: float = 0.0) -> dict[str, Any]:
        """Objective and test log loss after 0, 1, ... rounds of one of the product's schemes."""
        from fastadmm.solver.solver import Solver, SolverOptions

        return self._follow(Solver(self.problem, SolverOptions(scheme=scheme, gap=gap, n_threads=1)), epochs)

    def run_paper(
        self,
        epochs: int,
        penalty: float,
        sigmas: float | list[float] = 0.0,
        seed: int = 0,
        shapes: list[np.ndarray] | None = None,
    ) -> dict[str, Any]:
        """The same of the paper's Algorithm 1, with noise of some size on every parameter (of each party)."""
        from fastadmm.solver.solver import Solver, SolverOptions

        options = SolverOptions(scheme="jacobi", penalty=penalty, gap=0.0, n_threads=1)
        solver = Solver(self.problem, options)
        for m, party in enumerate(solver.parties):
            sigma = sigmas[m] if isinstance(sigmas, list) else sigmas
            perturb(party, sigma, np.random.default_rng([seed, m]), shapes[m] if shapes else None)
            if self._updates:
                party.update, party._factorised = self._updates[m], True  # another run's
        result = self._follow(solver, epochs)
        self._updates = [party.update for party in solver.parties]
        return result

    def _follow(self, solver: Any, epochs: int) -> dict[str, Any]:
        # All start at zero weights, where the logistic loss is log 2.
        objective, test, bound = [math.log(2.0)], [math.log(2.0)], 0.0
        diverged = None
        for epoch in range(1, epochs + 1):
            record = solver.round()
            objective.append(record.objective)
            test.append(record.test["log_loss"])
            state = getattr(solver.coordinator, "last", None)
            if state is not None:
                vectors = (state.z, state.u, *solver.party_weights())
                bound = max(bound, *(float(np.linalg.norm(v)) for v in vectors))
            if solver.diverged and diverged is None:
                diverged = epoch
            if 0.0 < record.gap <= solver.options.gap:
                break
        size = float(sum(np.abs(v).sum() for v in solver.party_weights()))
        solver.close()
        return {"objective": objective, "test": test, "diverged": diverged, "bound": bound, "l1": size}

    def run_sgd(self, step: float, epochs: int, seed: int = 0, staleness: int = 0) -> dict[str, Any]:
        """The same of the baseline; no number of it is a round of ours, an epoch sees each row once."""
        return self._watch(
            lambda watch: descend(self.blocks, self.case.y, self.lam, step, epochs, seed, watch, staleness)
        )

    def run_frank_wolfe(self, radius: float, epochs: int) -> dict[str, Any]:
        """The same of Frank and Wolfe's algorithm in an l1 ball; an epoch is a step, with all rows."""
        return self._watch(
            lambda watch: frank_wolfe(self.blocks, self.case.y, self.lam, radius, epochs, watch)
        )

    def _watch(self, run: Callable[[Callable[[list[np.ndarray]], None]], None]) -> dict[str, Any]:
        objective: list[float] = []
        test: list[float] = []

        def watch(weights: list[np.ndarray]) -> None:
            squares = sum(float(x @ x) for x in weights)
            objective.append(mean_loss(self.blocks, weights, self.case.y) + 0.5 * self.lam * squares)
            test.append(mean_loss(self.tests, weights, self.case.y_test))

        run(watch)
        return {"objective": objective, "test": test}


def mean_loss(blocks: list[np.ndarray], weights: list[np.ndarray], y: np.ndarray) -> float:
    """Mean logistic loss of the summed sub-models."""
    z = sum(block @ x for block, x in zip(blocks, weights, strict=True))
    return float(np.mean(np.logaddexp(0.0, z) - y * z))


def descend(
    blocks: list[np.ndarray],
    y: np.ndarray,
    lam: float,
    step: float,
    epochs: int,
    seed: int,
    watch: Callable[[list[np.ndarray]], None],
    staleness: int = 0,
) -> None:
    """SGD over distributed features (FDML, Hu et al. 2019): random start, mini-batches.

    For each mini-batch every party sends its local prediction; their sum, the shared prediction, gives
    every party its gradient. The step of mini-batch t is ``step / sqrt(t)``, FDML's schedule.
    Asynchronous, a party adds its own prediction to what it last saw of each other one's: weights up to
    ``staleness`` mini-batches old, each as many as is drawn, all equally likely. ``watch`` is called with the
    weights before the first epoch and after each.
    """
    rng, delays = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    d = sum(block.shape[1] for block in blocks)
    weights = [rng.normal(size=block.shape[1]) / math.sqrt(d) for block in blocks]
    watch(weights)
    past = deque([weights], maxlen=staleness + 1)
    t = 0
    for _ in range(epochs):
        order = rng.permutation(len(y))
        for begin in range(0, len(y), BATCH):
            t += 1
            rows = np.sort(order[begin : begin + BATCH])
            local = [block[rows] for block in blocks]
            late = delays.integers(len(past), size=(len(blocks), len(blocks)))
            np.fill_diagonal(late, 0)
            size = step / math.sqrt(t)
            new = []
            for m, part in enumerate(local):
                shared = sum(other @ past[-1 - late[m, k]][k] for k, other in enumerate(local))
                residual = (0.5 * (1.0 + np.tanh(0.5 * shared)) - y[rows]) / len(rows)
                new.append(weights[m] - size * (part.T @ residual + lam * weights[m]))
            weights = new
            past.append(weights)
        watch(weights)


def frank_wolfe(
    blocks: list[np.ndarray],
    y: np.ndarray,
    lam: float,
    radius: float,
    epochs: int,
    watch: Callable[[list[np.ndarray]], None],
) -> None:
    """Frank and Wolfe's algorithm over distributed features (Bellet et al. 2015): one column in each round.

    From zero; each party names the column with the largest entry of its gradient, the largest of all
    goes to everybody, and the step towards that corner of the l1 ball of this radius is the best one.
    """
    weights, z = [np.zeros(block.shape[1]) for block in blocks], np.zeros(len(y))
    watch(weights)
    for _ in range(epochs):
        residual = (0.5 * (1.0 + np.tanh(0.5 * z)) - y) / len(y)
        slopes = [block.T @ residual + lam * x for block, x in zip(blocks, weights, strict=True)]
        m = max(range(len(blocks)), key=lambda k: np.abs(slopes[k]).max())
        j = int(np.abs(slopes[m]).argmax())
        corner = [np.zeros_like(x) for x in weights]
        corner[m][j] = -radius * np.sign(slopes[m][j])
        there = blocks[m][:, j] * corner[m][j]
        moves = [c - x for c, x in zip(corner, weights, strict=True)]
        inner = sum(float(x @ v) for x, v in zip(weights, moves, strict=True))
        square = sum(float(v @ v) for v in moves)

        def slope(size: float, z: np.ndarray = z, v: np.ndarray = there - z) -> float:
            at = 0.5 * (1.0 + np.tanh(0.5 * (z + size * v))) - y
            return float(at @ v) / len(y) + lam * (inner + size * square)  # noqa: B023

        low, high = 0.0, 1.0
        for _ in range(40):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if slope(middle) < 0.0 else (low, middle)
        weights = [x + low * v for x, v in zip(weights, moves, strict=True)]
        z = z + low * (there - z)
        watch(weights)


def measure_case(case: Case) -> dict[str, Any]:
    """Everything the page shows of one data set."""
    shop = Workshop(case, case.bounds)
    optimum = shop.run("subspace", 1000, gap=1e-6)
    best = optimum["objective"][-1]
    penalties = [try_penalties(shop, best), try_penalties(Workshop(case, case.other), best)]
    penalties.sort(key=lambda tried: tried["parties"])
    mine = next(tried for tried in penalties if tried["parties"] == len(shop.blocks))
    rho = min(mine["runs"], key=lambda run: run["at_epochs"])["rho"]
    tried = [(shop.run_sgd(step, case.epochs)["objective"][-1], step) for step in STEPS]
    step = min(tried)[1]
    longer = shop.run_sgd(step, LONGER * case.epochs)
    plain = shop.run_paper(case.epochs, rho)
    curves = {
        "admm": plain,
        "sgd": {name: values[: case.epochs + 1] for name, values in longer.items()},
        "sharing": shop.run("sharing", case.epochs),
        "subspace": optimum,
    }
    print(case.key, "rho", rho, "step", step, {k: c["test"][-1] for k, c in curves.items()}, flush=True)
    found = {
        "title": case.title,
        "rows": [len(case.y), len(case.y_test)],
        "widths": [block.shape[1] for block in shop.blocks],
        "lambda": case.lam,
        "epochs": case.epochs,
        "optimum": {"objective": rounded(best), "test": rounded(optimum["test"][-1])},
        "penalties": penalties,
        "rho": rho,
        "step": step,
        "longer": {"epochs": LONGER * case.epochs, "test": rounded(longer["test"][-1])},
        "curves": {name: shown(curve) for name, curve in curves.items()},
        "noise": [measure_noise(shop, rho, sigma) for sigma in case.sigmas],
        "calibrated": calibrate(shop, rho, plain["bound"]),
        "baselines": baselines(shop),
    }
    return {**found, **measure_more(shop, found)}


def measure_more(shop: Workshop, found: dict[str, Any]) -> dict[str, Any]:
    """Beside what the paper draws: its other noise, Frank and Wolfe, FDML as it runs asynchronously."""
    case = shop.case
    shapes = [inverse_root(block) for block in shop.blocks]
    # Of the same size on the message, which is sigma^2 |D|_F^2 there and sigma^2 times the rank here.
    factors = [
        math.sqrt(float(np.vdot(block, block)) / shape.shape[1])
        for block, shape in zip(shop.blocks, shapes, strict=True)
    ]
    shaped = [
        measure_noise(shop, found["rho"], rounded([row["sigma"] * f for f in factors]), shapes=shapes)
        for row in found["noise"]
    ]
    size = shop.run("subspace", 1000, gap=1e-6)["l1"]
    balls = {radius: shop.run_frank_wolfe(radius * size, case.epochs) for radius in RADII}
    radius = min(balls, key=lambda r: balls[r]["objective"][-1])
    late = []
    for bound in STALENESS:
        # What is late asks for smaller steps, if for others.
        steps = [step for step in STEPS if 0.09 * found["step"] < step <= found["step"]]
        tried = {step: shop.run_sgd(step, case.epochs, staleness=bound) for step in steps}
        step = min(tried, key=lambda s: tried[s]["objective"][-1])
        late.append({"staleness": bound, "step": step, **shown(tried[step])})
    print(case.key, "radius", radius, "staleness", [(c["step"], c["test"][-1]) for c in late], flush=True)
    return {
        "rank": [shape.shape[1] for shape in shapes],
        "shaped": shaped,
        "frank_wolfe": {"norm": rounded(size), "radius": radius, **shown(balls[radius])},
        "asynchronous": late,
    }


def shown(curve: dict[str, Any]) -> dict[str, Any]:
    """What a figure draws of a run."""
    return {name: rounded(curve[name]) for name in ("objective", "test")}


def try_penalties(shop: Workshop, optimum: float) -> dict[str, Any]:
    """Algorithm 1 at every penalty: how far above the optimum it is in the end, and whether it runs away."""
    runs = []
    for rho in PENALTIES:
        values = shop.run_paper(WATCHED, rho)
        excess = [value / optimum - 1.0 for value in values["objective"]]
        ends = {"at_epochs": rounded(excess[shop.case.epochs]), "last": rounded(excess[-1])}
        runs.append({"rho": rho, **ends, "diverged": values["diverged"]})
    return {"parties": len(shop.blocks), "runs": runs}


def measure_noise(
    shop: Workshop,
    rho: float,
    sigmas: float | list[float],
    seeds: tuple[int, ...] = SEEDS,
    shapes: list[np.ndarray] | None = None,
) -> dict[str, Any]:
    """Algorithm 1 with noise, for every seed: test log loss of the first, and of all in the end."""
    runs = [shop.run_paper(shop.case.epochs, rho, sigmas, seed, shapes)["test"] for seed in seeds]
    return {"sigma": sigmas, "test": rounded(runs[0]), "last": [rounded(run[-1]) for run in runs]}


def calibrate(shop: Workshop, rho: float, bound: float) -> dict[str, Any]:
    """What Lemma 1 and Theorem 3 ask for at epsilon = 1 in each round, and what is left of the model then.

    b_1 is the largest norm of parameters, z and y that the run without noise had. The theorem speaks
    of noise on the message; sigma of a parameter is that, divided by the root mean square row norm.
    """
    from fastadmm.privacy.paper_noise import lemma_sensitivity, theorem_sigma

    n, parties = len(shop.case.y), len(shop.blocks)
    lemma = [lemma_sensitivity(b.shape[1], rho, shop.lam * n, 1.0, bound, parties) for b in shop.blocks]
    norms = [math.sqrt(float(np.vdot(b, b)) / n) for b in shop.blocks]
    sigmas = [theorem_sigma(1.0, DELTA, c) / norm for c, norm in zip(lemma, norms, strict=True)]
    return {
        "bound": rounded(bound),
        "lemma": rounded(lemma),
        "row_norm": rounded(norms),
        **measure_noise(shop, rho, rounded(sigmas), SEEDS[:1]),
    }


def baselines(shop: Workshop) -> dict[str, Any]:
    """Test log loss of logistic regression on all columns and on party 1's.

    `default`: scikit-learn's with its defaults (C = 1, an intercept), as in the paper, given enough
    iterations. `same`: the problem that Algorithm 1 solves, with the same lambda and no intercept.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    case = shop.case
    found: dict[str, Any] = {}
    for name, X, X_test in (
        ("pooled", case.X, case.X_test),
        ("party_1", shop.blocks[0], shop.tests[0]),
    ):
        default = LogisticRegression(max_iter=2000).fit(X, case.y)
        alone = Workshop(case._replace(X=X, X_test=X_test), [0, X.shape[1]]).run("subspace", 1000, gap=1e-6)
        found[name] = {
            "default": rounded(float(log_loss(case.y_test, default.predict_proba(X_test)))),
            "same": rounded(alone["test"][-1]),
        }
    return found


def rounded(value: Any) -> Any:
    """Numbers with six digits, so that a file's difference is one of results."""
    return [rounded(v) for v in value] if isinstance(value, list) else float(f"{value:.6g}")


def measure(chosen: Iterator[Case]) -> dict[str, Any]:
    """All cases."""
    return {
        "batch": BATCH,
        "seeds": len(SEEDS),
        "delta": DELTA,
        "watched": WATCHED,
        "steps": list(STEPS),
        "cases": {case.key: measure_case(case) for case in chosen},
    }


def epochs_to(values: list[float], level: float) -> int | None:
    """The first epoch at or below a level; None if there is none."""
    return next((k for k, value in enumerate(values) if value <= level), None)


def noise_kept(case: dict[str, Any]) -> list[float]:
    """Noise levels at which, for every seed, the model still beats party 1 on its own (scikit-learn)."""
    alone = case["baselines"]["party_1"]["default"]
    return [row["sigma"] for row in case["noise"] if max(row["last"]) < alone]


def state(run: dict[str, Any]) -> str:
    """A penalty's cell: how it ends."""
    if run["diverged"] is not None:
        return f"**diverges** ({run['diverged']})"
    return f"+{100 * run['last']:.2g} %" if run["last"] < 1 else f"×{1 + run['last']:.1f}"


def verdict(holds: bool) -> str:
    return "yes" if holds else "**no**"


def claims(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The paper's claims, what was measured and whether that agrees."""
    from fastadmm.privacy.paper_noise import corollary_epsilon

    rows: list[tuple[str, str, str]] = []

    def add(*row: str) -> None:
        rows.append(row)

    cases = found["cases"]
    a9a = cases["a9a"]
    admm, sgd = (a9a["curves"][name]["test"] for name in ("admm", "sgd"))
    slower, same = admm[5] > sgd[5], abs(admm[-1] - sgd[-1]) < 0.005
    add(
        "a9a: ADMM is slightly slower than SGD, the test log loss is the same in the end",
        f"after 5 epochs {admm[5]:.3f} against {sgd[5]:.3f}, after {a9a['epochs']} epochs "
        f"{admm[-1]:.3f} against {sgd[-1]:.3f}",
        verdict(slower and same),
    )
    for case in list(cases.values())[1:]:
        test = case["curves"]["admm"]["test"]
        few, name = epochs_to(test, 0.08), case["title"]
        add(
            "gisette: ADMM is at a test log loss of 0.08 after a few epochs",
            f"{name}: {'never' if few is None else f'after {few} epochs'}; {test[10]:.3f} after 10, "
            f"{test[-1]:.3f} after {case['epochs']}",
            verdict(few is not None and few <= 10),
        )
        sgd, longer = case["curves"]["sgd"]["test"], case["longer"]
        add(
            "gisette: SGD needs many more epochs and comes to 0.1 only",
            f"{name}: {sgd[10]:.3f} after 10 epochs, {sgd[-1]:.3f} after {case['epochs']}, "
            f"{longer['test']:.3f} after {longer['epochs']}",
            f"more epochs: {verdict(sgd[10] > test[10] and longer['test'] > test[-1])}; "
            f"0.1 only: {verdict(longer['test'] > 0.095)}",
        )
        pooled = case["baselines"]["pooled"]
        add(
            "gisette: ADMM is better than scikit-learn on all features, "
            "because it suits many features better",
            f"{name}: {test[-1]:.4f} against {pooled['default']:.4f} with scikit-learn's C = 1; "
            f"the exact optimum of ADMM's own problem (its λ) has {pooled['same']:.4f}",
            verdict(test[-1] < pooled["default"]) + explanation(test[-1], pooled),
        )
    for case in cases.values():
        best, last = case["optimum"]["objective"], case["epochs"]
        ours, theirs = case["curves"]["admm"], case["frank_wolfe"]
        add(
            "Frank-Wolfe is efficient for sparse features, ADMM more so for dense and for many ones "
            "(one of its texts)",
            f"{case['title']}: after {last} epochs the objective is {above(ours, best)} above "
            f"the optimum with ADMM, {above(theirs, best)} with Frank-Wolfe; test log loss "
            f"{ours['test'][-1]:.3f} against {theirs['test'][-1]:.3f}{behind(ours, theirs)}",
            verdict(ours["objective"][-1] < theirs["objective"][-1]),
        )
    for case in cases.values():
        together, alone = case["baselines"]["pooled"]["default"], case["baselines"]["party_1"]["default"]
        add(
            "All features are better than party 1's alone",
            f"{case['title']}: {together:.3f} against {alone:.3f}",
            verdict(together < alone),
        )
        kept = noise_kept(case)
        largest = case["noise"][-1]
        add(
            "Moderate noise still leaves a gain over party 1 alone, too much ruins the model",
            f"{case['title']}: gain kept at σ = {', '.join(f'{s:g}' for s in kept) or 'none'}; "
            f"at σ = {largest['sigma']:g} the log loss is {np.mean(largest['last']):.2f}",
            verdict(bool(kept) and np.mean(largest["last"]) > alone),
        )
    for case in cases.values():
        ranks = ", ".join(f"{r} of {w}" for r, w in zip(case["rank"], case["widths"], strict=True))
        add(
            "Noise N(0, σ²(DᵀD)⁻¹) on the parameters (three of its four texts)",
            f"{case['title']}: rank {ranks}" + (": no inverse" if case["rank"] != case["widths"] else ""),
            verdict(case["rank"] == case["widths"]),
        )
    total = corollary_epsilon(1.0, 20, found["delta"])
    add(
        "With less than 20 epochs the loss of privacy is contained",
        f"its own Corollary 1 says ε' = {total:.0f} for 20 epochs of the largest ε it allows, 1; "
        "in truth ε = ∞",
        verdict(False),
    )
    proofs = "[false for M ≥ 3](theory.md#jacobi-the-papers-algorithm-1): its bound lacks M"
    add("Theorems 1 and 2: Algorithm 1 converges, at the rate O(1/ε)", proofs, verdict(False))
    proofs = "[no proof](privacy.md#noise-on-parameters): Lemma 1 is false"
    add("Theorem 3: noise that makes a round private", proofs, verdict(False))
    return rows


def above(curve: dict[str, Any], optimum: float) -> str:
    """How far a curve ends above the optimum."""
    excess = curve["objective"][-1] / optimum - 1.0
    return f"{100 * excess:.2g} %" if excess < 1.0 else f"{100 * excess:.0f} %"


def behind(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Where ADMM's objective is the higher one after its first epoch, which leaves the weights at zero."""
    pairs = zip(ours["objective"], theirs["objective"], strict=True)
    epochs = [k for k, (a, b) in enumerate(pairs) if k > 1 and a > b]
    return f"; ADMM is behind from epoch {epochs[0]} to {epochs[-1]}" if epochs else ""


def all_curves(case: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every method of a figure's left half."""
    late = {f"late-{c['staleness']}": c for c in case["asynchronous"]}
    return {**case["curves"], **late, "frank-wolfe": case["frank_wolfe"]}


def explanation(admm: float, pooled: dict[str, float]) -> str:
    """What a win over scikit-learn comes from."""
    if admm >= pooled["default"]:
        return ""
    if pooled["same"] < pooled["default"]:
        return ", but from λ: pooled logistic regression with the same λ is better than C = 1, too"
    return ", but from stopping early: its own optimum is not better"


#: What the data are, where their name does not say it.
NOTES = {
    "gisette_like": "`gisette_like` stands for gisette: built from MNIST pixels in gisette's shape, "
    "columns scaled to −1 … 1 as LIBSVM's gisette is. Its log losses are not gisette's.",
    "mnist": "MNIST 4/9, from which gisette was made, is a second stand-in: pixels, columns cut 2 : 2 : 1.",
}


def block(found: dict[str, Any]) -> str:
    """The page's tables and figures."""
    cases = found["cases"]
    lines = [
        "| data | rows: training, test | columns of the parties | λ per mean loss | ρ | SGD's step |",
        "|---|---|---|---:|---:|---:|",
    ]
    for c in cases.values():
        widths = " + ".join(str(w) for w in c["widths"])
        rows = ", ".join(f"{n:,}" for n in c["rows"])
        lines.append(
            f"| {c['title']} | {rows} | {widths} | {c['lambda']:g} | {c['rho']:g} | {c['step']:g} / √t |"
        )
    lines += ["", " ".join(NOTES[key] for key in cases if key in NOTES)]
    lines += ["", "| the paper | measured here | agrees |", "|---|---|---|"]
    rows = claims(found)
    for claim in dict.fromkeys(row[0] for row in rows):
        told = [row[1:] for row in rows if row[0] == claim]
        lines += [f"| {'' if k else claim} | {found} | {agrees} |" for k, (found, agrees) in enumerate(told)]
    lines += [
        "",
        "Right in figures 1 and 2: test log loss of the paper's ADMM with noise σ on every parameter in "
        "every epoch; dashed: noise of the other shape, equally large on the message. ε = ∞ on every curve.",
        "",
    ]
    for key, c in cases.items():
        number = "1" if key == "a9a" else "2"
        lines += [
            f"![Objective and test log loss against epochs, and test log loss under noise: {c['title']}]"
            f"(img/{picture(key)})",
            "",
            f"*Figure {number}: {c['title']}, {len(c['widths'])} parties.*",
            "",
        ]
    lines += [
        "![Test log loss under noise beside pooled and local logistic regression](img/paper-a-bars.svg)",
        "",
        f"*Figure 3: test log loss after {cases['a9a']['epochs']} epochs under each noise level (mean and "
        f"range of {found['seeds']} runs), beside logistic regression on all columns and on party 1's. "
        "Only party 1's own model exposes nothing; ε = ∞ for the others.*",
        "",
        "Which ρ diverges:",
        "",
    ]
    header = " | ".join(f"ρ = {rho:g}" for rho in PENALTIES)
    lines += [f"| data | M | {header} |", "|---|---:|" + "---:|" * len(PENALTIES)]
    for c in cases.values():
        for tried in c["penalties"]:
            cells = " | ".join(state(run) for run in tried["runs"])
            lines.append(f"| {c['title']} | {tried['parties']} | {cells} |")
    lines += [
        "",
        f"Objective above the optimum after {found['watched']} epochs (×: times the optimum); where the "
        "solver's own check reported divergence, the epoch in brackets.",
        "",
        *more_block(found),
    ]
    return "\n".join(lines).replace(" (not gisette)", "")  # the notes say it once


def more_block(found: dict[str, Any]) -> list[str]:
    """The tables of :func:`measure_more`."""
    cases = found["cases"].values()
    lines = [
        "Every method on the same problem, objective above the optimum and test log loss in the end:",
        "",
        "| data | " + " | ".join(label for label, _ in LINES.values()) + " |",
        "|---|" + "---:|" * len(LINES),
    ]
    for c in cases:
        curves, best = all_curves(c), c["optimum"]["objective"]
        cells = (f"{above(curves[k], best)}, {curves[k]['test'][-1]:.4f}" for k in LINES)
        lines.append(f"| {c['title']} | " + " | ".join(cells) + " |")
    return lines


def picture(key: str) -> str:
    """File name of a case's figure."""
    return f"paper-a-{key.replace('_', '-')}.svg"


LINES = {
    "admm": ("ADMM sharing (the paper's)", "#d55e00"),
    "sgd": ("SGD (FDML)", "#555555"),
    "late-10": ("SGD, 10 batches late", "#999999"),
    "late-100": ("SGD, 100 batches late", "#cccccc"),
    "frank-wolfe": ("Frank-Wolfe", "#cc79a7"),
    "sharing": ("ours: sharing", "#009e73"),
    "subspace": ("ours: subspace", "#0072b2"),
}
LEGEND = {"loc": "upper right", "framealpha": 0.85, "edgecolor": "none", "fontsize": 8}
SHADES = ("#d55e00", "#fdae61", "#a6d96a", "#1a9850", "#542788")


def draw(found: dict[str, Any]) -> None:
    """All figures."""
    from matplotlib.figure import Figure

    cases = found["cases"]
    with drawing({"font.size": 9}) as save:
        for key, case in cases.items():
            figure = Figure(figsize=(9.6, 4.2), layout="constrained")
            left, right = figure.subplots(1, 2)
            draw_curves(left, case)
            draw_noise(right, case)
            save(picture(key), figure)
        figure = Figure(figsize=(3.2 * len(cases), 3.4), layout="constrained")
        for axes, case in zip(np.atleast_1d(figure.subplots(1, len(cases))), cases.values(), strict=True):
            draw_bars(axes, case)
        save("paper-a-bars.svg", figure)


def draw_curves(axes: Any, case: dict[str, Any]) -> None:
    for name, (label, colour) in LINES.items():
        curve = all_curves(case)[name]
        epochs = range(len(curve["objective"]))
        axes.plot(epochs, curve["objective"], color=colour, linewidth=1.6, label=label)
        axes.plot(epochs, curve["test"], color=colour, linewidth=1.2, linestyle=(0, (3, 2)))
    axes.set_ylim(0.9 * min(case["optimum"].values()), 0.8)
    axes.set_yscale("log")
    plain_ticks(axes)
    axes.set_xlabel("epoch")
    axes.set_ylabel("objective (solid), test log loss (dashed)")
    axes.set_title(f"(a) loss vs. epoch: {case['title']}", fontsize=9)
    axes.legend(**LEGEND)
    axes.grid(alpha=0.3)


def draw_noise(axes: Any, case: dict[str, Any]) -> None:
    runs = [(0.0, case["curves"]["admm"]["test"])] + [(r["sigma"], r["test"]) for r in case["noise"]]
    for (sigma, test), colour in zip(runs, SHADES, strict=True):
        axes.plot(range(len(test)), test, color=colour, linewidth=1.4, label=f"σ = {sigma:g}")
    for row, colour in zip(case["shaped"], SHADES[1:], strict=True):
        axes.plot(range(len(row["test"])), row["test"], color=colour, linewidth=1.1, linestyle=(0, (3, 2)))
    alone = case["baselines"]["party_1"]["default"]
    axes.axhline(alone, color="black", linewidth=1.0, linestyle=":", label="party 1 alone")
    axes.set_yscale("log")
    plain_ticks(axes)
    axes.set_xlabel("epoch")
    axes.set_ylabel("test log loss")
    axes.set_title("(b) test log loss under noise levels (ε = ∞)", fontsize=9)
    axes.legend(**LEGEND, ncols=2)
    axes.grid(alpha=0.3)


def draw_bars(axes: Any, case: dict[str, Any]) -> None:
    values = [
        ("pooled", [case["baselines"]["pooled"]["default"]], "#0072b2"),
        ("party 1", [case["baselines"]["party_1"]["default"]], "#555555"),
        ("σ = 0", [case["curves"]["admm"]["test"][-1]], SHADES[0]),
    ]
    values += [(f"{r['sigma']:g}", r["last"], c) for r, c in zip(case["noise"], SHADES[1:], strict=True)]
    top = 1.6 * case["baselines"]["party_1"]["default"]
    for x, (_, runs, colour) in enumerate(values):
        mean = float(np.mean(runs))
        axes.bar(x, min(mean, top), color=colour)
        if mean < top and len(runs) > 1:
            axes.vlines(x, min(runs), min(max(runs), top), color="black", linewidth=1.0)
        shown = f"{mean:.3f}" if mean < 1.0 else f"{mean:.3g}"
        axes.text(x, min(mean, top) + 0.01 * top, shown, ha="center", va="bottom", fontsize=7)
    axes.set_ylim(0.0, 1.1 * top)
    axes.set_xticks(range(len(values)), labels=[label for label, _, _ in values], fontsize=7, rotation=30)
    axes.set_ylabel("test log loss")
    axes.set_title(case["title"], fontsize=9)


def plain_ticks(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def main() -> None:
    """Measure unless told to redraw, then write page and figures."""
    if "--redraw" not in sys.argv[1:]:
        keep("paper_a", measure(cases(find_data("a9a.bz2"))), None)
    found = measured("paper_a")
    write_blocks(PAGE, {MARK: block(found)})
    draw(found)


if __name__ == "__main__":
    main()
