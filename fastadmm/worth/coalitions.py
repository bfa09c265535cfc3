r"""A model for every coalition of parties, and what their test metrics say of each party.

Every coalition trains on the same rows and labels, with the same loss, penalty and λ, on the
columns of its members alone, to the same certified gap. The coalition of nobody is the model
that is an intercept only.

The Shapley value of player i in a game v over the players 1..M is

.. math:: \phi_i = \sum_{S \not\ni i} \frac{|S|!\,(M - |S| - 1)!}{M!}\,\bigl(v(S \cup i) - v(S)\bigr),

the mean of what i adds over all M! orders in which the players may come together
(Shapley, 1953). It is the only division of v(all) - v(none) that is symmetric,
gives nothing to a player who adds nothing, and is linear in v.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from fastadmm.blocks.block import DenseBlock
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, DivergenceError, InputError
from fastadmm.problem.loss import Loss
from fastadmm.problem.problem import Problem, TestSet
from fastadmm.solver.early_stopping import predictor
from fastadmm.solver.history import Status
from fastadmm.solver.metrics import evaluation_metrics
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import solve
from fastadmm.solver.warm_start import StartingPoint

#: With more parties all coalitions are too many, and each party is left out once instead.
MOST_PARTIES = 10

#: Bytes of weights that are kept to begin at.
_MOST_WEIGHTS = 256 * 2**20

#: Metrics that a worth may be measured in, and whether a larger value is a better one.
HIGHER_IS_BETTER = {
    "auc": True,
    "accuracy": True,
    "log_loss": False,
    "brier": False,
    "r2": True,
    "rmse": False,
    "deviance": False,
    "d2": True,
    "mae": False,
}

Array = np.ndarray


@dataclass(frozen=True)
class Coalition:
    """The model that some of the parties train together."""

    members: tuple[int, ...]  # numbers of the parties, ascending
    metrics: dict[str, float | None]  # on the test set; None where undefined (the AUC of one class)
    objective: float  # f at the model, per mean loss
    gap: float | None  # certified relative gap; None where the problem has none
    rounds: int
    status: str  # why training stopped

    @property
    def mask(self) -> int:
        """Binary number whose digits say who is a member."""
        return sum(1 << m for m in self.members)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        names = ("metrics", "objective", "gap", "rounds", "status")
        return {"members": list(self.members), **{name: getattr(self, name) for name in names}}

    @classmethod
    def measured(
        cls, members: Sequence[int], metrics: Mapping[str, Any], gap: float | None, **trained: Any
    ) -> Coalition:
        """A coalition whose model has these metrics, among others; ``trained`` are the other fields."""
        known = {name: metrics[name] for name in HIGHER_IS_BETTER if name in metrics}
        certified = gap if gap is not None and math.isfinite(gap) else None
        return cls(tuple(members), known, gap=certified, **trained)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Coalition:
        """Inverse of :meth:`to_json`."""
        return cls(**{**values, "members": tuple(values["members"])})


@dataclass(frozen=True)
class Worth:
    """What each party's columns add to the test metric."""

    parties: list[str]  # their names
    metric: str  # the one that table is about; every other one of the coalitions' can be asked for
    label_party: int  # number of the party that holds the labels, and can always train alone
    coalitions: dict[int, Coalition]  # by mask
    reason: str = ""  # why there are no Shapley values; empty where there are

    @property
    def everyone(self) -> int:
        """Mask of the coalition of all parties."""
        return (1 << len(self.parties)) - 1

    @property
    def metrics(self) -> list[str]:
        """Metrics that are defined for every coalition."""
        known = list(self.coalitions.values())
        return [name for name in known[0].metrics if all(c.metrics[name] is not None for c in known)]

    def of(self, mask: int, metric: str | None = None) -> float:
        """The metric of one coalition."""
        value = self.coalitions[mask].metrics[metric or self.metric]
        assert value is not None  # :attr:`metrics` lists what is defined
        return value

    def better(self, mask: int, than: int, metric: str | None = None) -> float:
        """By how much one coalition is better than another: positive is better, whatever the metric."""
        difference = self.of(mask, metric) - self.of(than, metric)
        return difference if HIGHER_IS_BETTER[metric or self.metric] else -difference

    def shapley(self, metric: str | None = None) -> list[float] | None:
        """Shapley value of every party: its share of what all are better than nobody."""
        if len(self.coalitions) != 1 << len(self.parties):
            return None
        sign = 1.0 if HIGHER_IS_BETTER[metric or self.metric] else -1.0
        values = [sign * self.of(mask, metric) for mask in range(len(self.coalitions))]
        return [float(share) for share in shapley_values(values)]

    def table(self, metric: str | None = None) -> list[dict[str, Any]]:
        """One row per party."""
        shares = self.shapley(metric)
        rows = []
        for m, name in enumerate(self.parties):
            own, others = 1 << m, self.everyone & ~(1 << m)
            rows.append(
                {
                    "name": name,
                    "label_party": m == self.label_party,
                    "alone": self.of(own, metric),
                    "without": self.of(others, metric),
                    "adds_alone": self.better(own, 0, metric),
                    "adds_last": self.better(self.everyone, others, metric),
                    "shapley": None if shares is None else shares[m],
                }
            )
        return rows

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        label = 1 << self.label_party
        return {
            "parties": self.parties,
            "metric": self.metric,
            "higher_is_better": HIGHER_IS_BETTER[self.metric],
            "label_party": self.parties[self.label_party],
            "none": self.of(0),
            "all": self.of(self.everyone),
            "label_party_alone": self.of(label),
            "joining_adds": self.better(self.everyone, label),
            "table": self.table(),
            "shapley": {name: self.shapley(name) for name in self.metrics},
            "reason": self.reason,
            "coalitions": [self.coalitions[mask].to_json() for mask in sorted(self.coalitions)],
        }

    @classmethod
    def of_game(
        cls,
        names: Sequence[str],
        loss: Loss,
        metric: str | None,
        label_party: int,
        coalitions: dict[int, Coalition],
        exact: bool,
    ) -> Worth:
        """What coalitions that were trained say, in a metric that is defined for all of them."""
        worth, reason = cls(list(names), metric or "", label_party, coalitions), ""
        if not exact and len(names) <= MOST_PARTIES:
            reason = "Shapley values were not asked for"
        elif not exact:
            reason = (
                f"{len(names)} parties have {2 ** len(names)} coalitions; Shapley values take them all "
                f"and are computed for at most {MOST_PARTIES} parties"
            )
        return replace(worth, reason=reason, metric=worth.chosen_metric(loss))

    def chosen_metric(self, loss: Loss) -> str:
        """The metric that is shown: the one asked for, which has to be defined, or the usual one."""
        defined = self.metrics
        if self.metric and self.metric not in defined:
            raise ConfigError(
                f"metric: {self.metric} is undefined for loss {loss.name} on this test set; choose "
                f"{', '.join(defined)}"
            )
        usual = ("r2", "rmse") if loss.task == "regression" else ("auc", "log_loss", "accuracy")
        return self.metric or next(name for name in usual if name in defined)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Worth:
        """Inverse of :meth:`to_json`."""
        known = [Coalition.from_json(c) for c in values["coalitions"]]
        return cls(
            list(values["parties"]),
            values["metric"],
            values["parties"].index(values["label_party"]),
            {c.mask: c for c in known},
            values["reason"],
        )


#: Called with each coalition, its model, and how many are done of how many.
Monitor = Callable[[Coalition, StartingPoint, int, int], None]


def plan_coalitions(n_parties: int, exact: bool) -> list[tuple[int, ...]]:
    """Which coalitions to train, in order: those that say most come first."""
    everyone = tuple(range(n_parties))
    plan: dict[tuple[int, ...], None] = dict.fromkeys([(), everyone, *((m,) for m in everyone)])
    plan.update(dict.fromkeys(tuple(k for k in everyone if k != m) for m in everyone))
    if exact:
        for size in range(2, n_parties - 1):
            plan.update(dict.fromkeys(itertools.combinations(everyone, size)))
    return list(plan)


def measure_worth(
    problem: Problem,
    options: SolverOptions | None = None,
    *,
    metric: str | None = None,
    label_party: int = 0,
    exact: bool | None = None,
    known: Mapping[int, Coalition] | None = None,
    known_models: Mapping[int, StartingPoint] | None = None,
    monitor: Monitor | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Worth | None:
    """Train the coalitions of a problem's parties and measure each on the test set; None if stopped."""
    options, n_parties = options or SolverOptions(), problem.n_parties
    test = problem.test
    if test is None:
        raise InputError("worth: the problem has no test set: what data add is measured on held-out rows")
    exact = chosen_exact(n_parties, metric, exact)
    if not 0 <= label_party < n_parties:
        raise ConfigError(f"label_party: {label_party!r} is none of the {n_parties} parties")
    plan = plan_coalitions(n_parties, exact)
    done = {mask: c for mask, c in (known or {}).items() if c.members in plan}
    # Not where it would decide which of several local solutions is found.
    models = dict(known_models or {}) if problem.convex and weights_fit(problem, len(plan)) else None
    with Engine(options.n_threads) as engine:
        for members in plan:
            if sum(1 << m for m in members) in done:
                continue
            if should_stop is not None and should_stop():  # a fit of one round has not asked
                return None
            trained = _train(problem, test, options, members, engine, should_stop, models)
            if trained is None:
                return None
            coalition, model = trained
            if not members and metric is not None:  # before hours of training, not after
                Worth([], metric, 0, {0: coalition}).chosen_metric(problem.loss)
            done[coalition.mask] = coalition
            if models is not None:
                models[coalition.mask] = model
            if monitor is not None:
                monitor(coalition, model, len(done), len(plan))
    return Worth.of_game(problem.names, problem.loss, metric, label_party, done, exact)


def chosen_exact(n_parties: int, metric: str | None, exact: bool | None) -> bool:
    """Whether all coalitions are trained; refuses too many of them, and a metric that nobody knows."""
    if metric is not None and metric not in HIGHER_IS_BETTER:
        raise ConfigError(f"metric: unknown metric {metric!r}; choose {', '.join(HIGHER_IS_BETTER)}")
    if exact and n_parties > MOST_PARTIES:
        raise ConfigError(
            f"exact: {n_parties} parties have {2**n_parties} coalitions; "
            f"Shapley values are computed for at most {MOST_PARTIES} parties"
        )
    return n_parties <= MOST_PARTIES if exact is None else exact


def nobody(problem: Problem, options: SolverOptions) -> Coalition:
    """The coalition of nobody, whose model is an intercept."""
    assert problem.test is not None
    with Engine(options.n_threads) as engine:
        trained = _train(problem, problem.test, options, (), engine, None, None)
    assert trained is not None  # nobody stops it
    return trained[0]


def weights_fit(problem: Problem, n_coalitions: int) -> bool:
    """Whether the weights of all coalitions may be kept: each begins at the best of its parts."""
    width = sum(block.shape[1] for block in problem.blocks) * problem.n_outputs
    return 8 * width * n_coalitions <= _MOST_WEIGHTS


def _train(
    problem: Problem,
    test: TestSet,
    options: SolverOptions,
    members: Sequence[int],
    engine: Engine,
    should_stop: Callable[[], bool] | None,
    models: Mapping[int, StartingPoint] | None,
) -> tuple[Coalition, StartingPoint] | None:
    """Train one coalition; None where it was stopped."""
    restricted, rows = _restricted(problem, test, members)
    start = None if models is None else _start(restricted, members, models)
    result = solve(restricted, options, should_stop=should_stop, start=start)
    if result.status is Status.INTERRUPTED:
        return None
    if result.status is Status.DIVERGED:
        raise DivergenceError(f"worth: {', '.join(restricted.names)}: {result.message}")
    with engine.limited():
        z = predictor(rows, result.weights, result.intercept, problem.loss, engine)
    every = evaluation_metrics(problem.loss, test.y, z, test.weight)
    about = {"objective": result.objective, "rounds": len(result.history), "status": str(result.status)}
    coalition = Coalition.measured(members, every, result.gap, **about)
    return coalition, StartingPoint(result.weights, result.intercept)


def _start(
    problem: Problem, members: Sequence[int], models: Mapping[int, StartingPoint]
) -> StartingPoint | None:
    """The model of the coalition without its last member, with weights of zero for that one.

    Always the same part of the same coalition, so that where a call was interrupted changes no bit.
    """
    known = models.get(sum(1 << m for m in members[:-1])) if len(members) > 1 else None
    if known is None:
        return None
    d, classes = problem.blocks[-1].shape[1], problem.n_outputs
    added = np.zeros((d, classes) if problem.loss.vector else d)
    return StartingPoint([*known.weights, added], known.intercept)


def _restricted(problem: Problem, test: TestSet, members: Sequence[int]) -> tuple[Problem, TestSet]:
    """Problem and test rows of some of the parties; those of nobody have one column of zeros."""
    if members:
        blocks, rows = [problem.blocks[m] for m in members], [test.blocks[m] for m in members]
        names = [problem.names[m] for m in members]
        penalties = [problem.party_regularizers[m] for m in members]
    else:
        blocks = [DenseBlock(np.zeros((problem.n_samples, 1)))]
        rows = [DenseBlock(np.zeros((len(test.y), 1)))]
        names, penalties = ["nobody"], [problem.party_regularizers[0].of_party(0, 1, "nobody")]
    restricted = replace(
        problem,
        blocks=blocks,
        names=names,
        regularizers=penalties,
        constraints=[problem.constraints[m] for m in members] if problem.constraints else [],
        test=None,
        own_lambda=None,
    )
    return restricted, replace(test, blocks=rows)


def shapley_values(values: Sequence[float]) -> list[Fraction]:
    """Shapley value of every player."""
    n_players = len(values).bit_length() - 1
    if len(values) != 1 << n_players:
        raise ValueError(f"values: {len(values)} coalitions; a game has a power of two of them")
    exact = [Fraction(value) for value in values]  # OverflowError or ValueError where not finite
    total = math.factorial(n_players)
    # Whole numbers of orders: one division at the end.
    orders = [math.factorial(s) * math.factorial(n_players - s - 1) for s in range(n_players)]
    shares = []
    for i in range(n_players):
        player = 1 << i
        added = sum(
            orders[mask.bit_count()] * (exact[mask | player] - exact[mask])
            for mask in range(len(exact))
            if not mask & player
        )
        shares.append(Fraction(added, total))
    return shares
