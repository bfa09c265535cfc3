"""Other ways to choose directions and bounds in `subspace`, over most cases of bench/rounds.py.

    python -P bench/directions.py

Writes ``bench/directions.json`` (what was measured) and the block between
``<!-- directions:begin -->`` and ``<!-- directions:end -->`` in
``docs/convergence.md`` (made from that file alone); ``--redraw`` only the
latter. Nothing here depends on the clock. Wide blocks are rotated into the
span of their rows, which changes no message.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.conversation.exchange import converse
from fastadmm.conversation.threads import Threads
from fastadmm.coordinator.subspace.direction_choice import DirectionChoice
from fastadmm.coordinator.subspace.subspace import SubspaceCoordinator, SubspaceMethod
from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import LowerBound
from fastadmm.parties.direction import MAX_GRAM_SIDE, DirectionParty
from fastadmm.problem.problem import Problem, make_problem
from scipy.special import xlogy

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from rounds import LAMBDAS, PARTIES, datasets, find_data, geometric_mean, split  # noqa: E402

PAGE = ROOT / "docs" / "convergence.md"
MEASURED = ROOT / "bench" / "directions.json"
BEGIN, END = "<!-- directions:begin -->", "<!-- directions:end -->"
TARGET, LIMIT = 1e-6, 100

#: Left out: the coupled variants solve a system of all a party's columns in every round.
LEFT_OUT = ("mnist 4/9", "dorothea")

#: Gradients whose combinations are dual points in the last variant but two.
_WINDOW = 8


class Kinds(DirectionChoice):
    """Kinds in a fixed cycle."""

    cycle = "N"

    def newton(self) -> bool:
        """Whether the next directions are Newton directions."""
        return self.cycle[self.n_rounds % len(self.cycle)] == "N"


class CoupledParty(DirectionParty):
    """Newton direction of a party that knows how the others will answer with what they have sent."""

    coordinator: SubspaceCoordinator
    number: int
    metric: np.ndarray

    def set_metric(self, curvature: np.ndarray) -> None:
        """Keep the metric and the Gram matrix too."""
        super().set_metric(curvature)
        self.metric = curvature
        self.gram = self.block.gram(self.engine, curvature)
        self.gram[np.diag_indices(len(self.gram))] += self.regularization

    def others(self) -> tuple[np.ndarray, np.ndarray]:
        """What the others can do: images, and inner products of the weights behind them."""
        messages = self.coordinator.messages[self.coordinator.owner != self.number]
        return messages, np.eye(len(messages))

    def _newton(self, residual: np.ndarray) -> np.ndarray:
        images, products = self.others()
        if not len(images):
            return np.linalg.solve(self.gram, residual)
        weighted = images * self.metric
        cross = np.stack([self.block.transposed_product(row, self.engine) for row in weighted])
        values, vectors = np.linalg.eigh(weighted @ images.T + self.regularization * products)
        kept = values > 1e-12 * values.max()
        root = (vectors[:, kept] / np.sqrt(values[kept])).T @ cross
        return np.linalg.solve(self.gram - root.T @ root, residual)


class AggregateParty(CoupledParty):
    """As before, but it knows the sums of the others' messages alone, round by round."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sums: list[np.ndarray] = []
        self.coefficients: list[np.ndarray] = []

    def respond(self, gradient: np.ndarray, coefficients: np.ndarray, newton: bool) -> Any:
        """Note what the others have reached, then answer."""
        point, owner = self.coordinator.point, self.coordinator.owner
        theirs = np.where(owner == self.number, 0.0, point.coefficients[: len(owner)])
        if theirs.any():
            self.sums.append(theirs @ self.coordinator.messages)
            self.coefficients.append(theirs)
        return super().respond(gradient, coefficients, newton)

    def others(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums of their messages in earlier rounds."""
        if not self.sums:
            return np.zeros((0, len(self.metric))), np.zeros((0, 0))
        width = len(self.coefficients[-1])
        c = np.stack([np.pad(row, (0, width - len(row))) for row in self.coefficients])
        return np.stack(self.sums), c @ c.T


class SingleParty(DirectionParty):
    """Messages rounded to single precision."""

    def respond(self, gradient: np.ndarray, coefficients: np.ndarray, newton: bool) -> Any:
        """The answer, rounded."""
        answer = super().respond(gradient, coefficients, newton)
        if "message" in answer:
            answer["message"] = answer["message"].astype(np.float32).astype(np.float64)
        return answer


class PairCoordinator(SubspaceCoordinator):
    """Every party sends both directions in every round."""

    parties: list[DirectionParty]

    def _places(self, parties: int) -> np.ndarray:
        return np.empty((parties, self.problem.n_samples))  # not where they stay: a second one comes between

    def _append(self, m: int, message: np.ndarray) -> None:
        super()._append(m, message)
        assert self.primal is not None
        second = self.parties[m].respond(self.primal.gradient, self.coefficients(m), False)
        if "message" in second:
            super()._append(m, second["message"])


def dual_value(u: np.ndarray, products: float, problem: Problem) -> float:
    """Dual objective of the logistic loss, from the sum of the parties' squared norms of D'u."""
    p = u + problem.y
    if p.min() < 0.0 or p.max() > 1.0:
        return -np.inf
    return -float((xlogy(p, p) + xlogy(1 - p, 1 - p)).sum()) - products / (2 * problem.regularization)


def best_combination(U: np.ndarray, G: np.ndarray, problem: Problem) -> float:
    """Best bound over all linear combinations of gradients (rows of U), G: inner products of the D'u."""

    def value(t: np.ndarray) -> float:
        return dual_value(t @ U, float(t @ G @ t), problem)

    units = np.eye(len(U))
    single = [value(unit) for unit in units]
    t = units[int(np.argmax(single))] * (1 - 1e-6) + 1e-6 / len(U)
    best = value(t)
    for _ in range(30):
        p = np.clip(problem.y + t @ U, 1e-300, 1 - 1e-16)
        slope = -(U @ np.log(p / (1 - p))) - G @ t / problem.regularization
        curvature = (U / (p * (1 - p))) @ U.T + G / problem.regularization
        curvature[np.diag_indices(len(t))] *= 1 + 1e-12
        step = np.linalg.lstsq(curvature, slope, rcond=None)[0]
        length = 1.0
        while length > 1e-6 and not value(t + length * step) > best:
            length *= 0.5
        if length <= 1e-6 or slope @ step < 1e-10 * abs(best):
            break
        t = t + length * step
        best = value(t)
    return max(best, *single)


def rounds_needed(
    problem: Problem,
    engine: Engine,
    party: type[DirectionParty] = DirectionParty,
    cycle: str = "",
    pairs: bool = False,
    exact: bool = False,
    window: int = 0,
) -> int:
    """Rounds until the target is certified; LIMIT where it is not.

    ``exact``: objective and bound are computed from data and weights, for messages that are rounded.
    """
    method = SubspaceMethod(problem, engine)
    coordinator: Any = PairCoordinator(problem, engine) if pairs else method.coordinator
    parties: Any = [
        party(name, block, problem.regularization, engine)
        for name, block in zip(problem.names, problem.blocks)
    ]
    for number, one in enumerate(parties):
        one.coordinator, one.number = coordinator, number
        if one.kind == "gradient" and one.block.shape[0] <= MAX_GRAM_SIDE:
            one.kind = "gram"  # rotated: its kernel matrix is what the scheme would factorise
    coordinator.parties = method.parties = parties
    method.coordinator = coordinator
    if cycle:
        coordinator.directions = type("Cycle", (Kinds,), {"cycle": cycle})()
    threads = Threads(engine, parties)
    method.prepare_parties()
    converse(method.prepare(), threads.carry)
    bound, gradients, shadows = LowerBound(), [], []
    for number in range(1, LIMIT + 1):
        assert coordinator.primal is not None
        gradient = coordinator.primal.gradient.copy()
        measured = converse(method.round(), threads.carry)
        objective, lower = measured.objective, measured.lower_bound
        if exact or window:
            shadow = np.concatenate([b.transposed_product(gradient, engine) for b in problem.blocks])
            gradients, shadows = [*gradients[-7:], gradient], [*shadows[-7:], shadow]
        if exact:
            weights = method.weights()
            z = sum(block.product(x, engine) for block, x in zip(problem.blocks, weights))
            loss = problem.loss.evaluate(z, problem.y, problem.weight, np.empty(len(z)), engine)
            objective = loss + 0.5 * problem.regularization * sum(float(x @ x) for x in weights)
            lower = dual_value(gradient, float(shadow @ shadow), problem)
        _, relative = bound.update(objective, lower)
        if window and TARGET < relative < 30 * TARGET:
            Y = np.stack(shadows)
            _, relative = bound.update(objective, best_combination(np.stack(gradients), Y @ Y.T, problem))
        if relative <= TARGET:
            return number
    return LIMIT


#: What is tried: what the page says, and how.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("default", {}),
    "newton": ("block Newton always", {"cycle": "N"}),
    "gradient": ("block gradient always", {"cycle": "G"}),
    "turns": ("the two in turn", {"cycle": "NG"}),
    "aggregate": (
        "block Newton, assuming that the others repeat the sums of their earlier moves",
        {"party": AggregateParty},
    ),
    "coupled": (
        "block Newton, knowing every message of the others (parties would need them all)",
        {"party": CoupledParty},
    ),
    "combination": (
        f"bound: the best linear combination of the last {_WINDOW} gradients",
        {"window": _WINDOW},
    ),
    "pair": ("both directions in every round: two messages", {"cycle": "N", "pairs": True}),
    "single": (
        "both, in single precision: two messages in the bytes of one",
        {"cycle": "N", "pairs": True, "party": SingleParty, "exact": True},
    ),
}


#: Measured, but not for readers: hardly different from the default.
UNSHOWN = ("turns", "aggregate", "combination")


def narrow(block: Any) -> Any:
    """The block, or one of at most N columns with the same D D'."""
    if block.shape[1] <= block.shape[0]:
        return block
    kernel = block @ block.T
    values, vectors = np.linalg.eigh(kernel.toarray() if hasattr(kernel, "toarray") else kernel)
    kept = values > 1e-12 * values.max()
    return vectors[:, kept] * np.sqrt(values[kept])


def problems() -> Iterator[tuple[str, int, float, Problem]]:
    """The cases of bench/rounds.py, without those left out."""
    for name, X, y in datasets(find_data()):
        if name in LEFT_OUT:
            continue
        for parties in PARTIES:
            blocks = [narrow(block) for block in split(name, X, parties)]
            for lam in LAMBDAS:
                yield name, parties, lam, make_problem(blocks, y, lam=lam, fit_intercept=False)


def block(measured: dict[str, Any]) -> str:
    """The page's table."""
    cases = measured["cases"]
    lines = [
        f"{len(cases)} cases of the above, without {' and '.join(LEFT_OUT)}; "
        f"rounds until {measured['target']:g} is certified:",
        "",
        "| directions, or bound | geometric mean | worst | M = 2 | M = 8 |",
        "|---|---:|---:|---:|---:|",
    ]
    mean: Callable[[list[int]], str] = lambda values: f"{geometric_mean(values):.1f}"  # noqa: E731
    for key, (title, _) in VARIANTS.items():
        if key in UNSHOWN:
            continue
        counts = [case["rounds"][key] for case in cases]
        halves = [[c["rounds"][key] for c in cases if c["parties"] == m] for m in PARTIES]
        worst = max(counts)
        shown = f"over {LIMIT}" if worst >= LIMIT else str(worst)
        lines.append(f"| {title} | {mean(counts)} | {shown} | {mean(halves[0])} | {mean(halves[1])} |")
    return "\n".join(lines)


def main() -> None:
    """Measure unless told to redraw, then write the page."""
    if "--redraw" not in sys.argv[1:]:
        cases = []
        with Engine(1) as engine:
            for name, parties, lam, problem in problems():
                rounds = {key: rounds_needed(problem, engine, **how) for key, (_, how) in VARIANTS.items()}
                cases.append({"data": name, "parties": parties, "lambda": lam, "rounds": rounds})
                print(name, parties, lam, rounds, flush=True)
        document = {"target": TARGET, "cases": cases}
        MEASURED.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{block(measured)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
