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
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.blocks.block import DenseBlock
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, DivergenceError, InputError
from fastadmm.files.atomic import shown, storage_errors, write_json
from fastadmm.files.reading import read_json
from fastadmm.files.seal import damaged, seal_of
from fastadmm.problem.loss import Loss
from fastadmm.problem.problem import Problem, TestSet
from fastadmm.runs.claim import provenance_of
from fastadmm.runs.config import recorded, solver_options, without
from fastadmm.runs.folder import Display, RunFolder, stop_on_signal
from fastadmm.runs.load import check_run, load_run, same_content, seen_in_training
from fastadmm.settings.keys import DECISIVE, SETTINGS
from fastadmm.settings.run import RunConfig
from fastadmm.solver.early_stopping import predictor
from fastadmm.solver.history import Status
from fastadmm.solver.metrics import evaluation_metrics
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import solve
from fastadmm.store.partition import open_partition

#: With more parties all coalitions are too many, and each party is left out once instead.
MOST_PARTIES = 10

#: Metrics that a worth may be measured in, and whether a larger value is a better one.
_METRICS = ("auc", "accuracy", "log_loss", "brier", "r2", "rmse", "deviance", "d2", "mae")
HIGHER_IS_BETTER = {name: name in ("auc", "accuracy", "r2", "d2") for name in _METRICS}

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
        return vars(self) | {"members": list(self.members)}

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

    @property
    def joining_adds(self) -> float:
        """By how much the model of all is better than that of the label holder alone."""
        return self.better(self.everyone, 1 << self.label_party)

    def table(self) -> list[dict[str, Any]]:
        """One row per party."""
        shares: Any = self.shapley() or [None] * len(self.parties)
        rows = []
        for m, (name, share) in enumerate(zip(self.parties, shares, strict=True)):
            own, others = 1 << m, self.everyone & ~(1 << m)
            adds = {"adds_alone": self.better(own, 0), "adds_last": self.better(self.everyone, others)}
            about = {
                "name": name,
                "label_party": m == self.label_party,
                "alone": self.of(own),
                "without": self.of(others),
            }
            rows.append(about | adds | {"shapley": share})
        return rows

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "parties": self.parties,
            "metric": self.metric,
            "higher_is_better": HIGHER_IS_BETTER[self.metric],
            "label_party": self.parties[self.label_party],
            "none": self.of(0),
            "all": self.of(self.everyone),
            "label_party_alone": self.of(1 << self.label_party),
            "joining_adds": self.joining_adds,
            "table": self.table(),
            "shapley": {name: self.shapley(name) for name in self.metrics},
            "reason": self.reason,
            "coalitions": [self.coalitions[mask].to_json() for mask in sorted(self.coalitions)],
        }

    def chosen_metric(self, loss: Loss) -> str:
        """The metric that is shown: the one asked for, which has to be defined, or the usual one."""
        defined = self.metrics
        if self.metric and self.metric not in defined:
            said = f"is undefined for loss {loss.name} on this test set; choose {', '.join(defined)}"
            raise ConfigError(f"metric: {self.metric} {said}")
        usual = ("r2", "rmse") if loss.task == "regression" else ("auc", "log_loss", "accuracy")
        return self.metric or next(name for name in usual if name in defined)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Worth:
        """Inverse of :meth:`to_json`."""
        coalitions = {c.mask: c for c in map(Coalition.from_json, values["coalitions"])}
        label = values["parties"].index(values["label_party"])
        return cls(list(values["parties"]), values["metric"], label, coalitions, values["reason"])


#: Trains the model of some parties, by number, and measures it; None where it was interrupted.
Train = Callable[[tuple[int, ...]], Coalition | None]

#: Called with each coalition, and how many are done of how many.
Monitor = Callable[[Coalition, int, int], None]


def plan_coalitions(n_parties: int) -> list[tuple[int, ...]]:
    """Which coalitions to train, in order: those that say most come first."""
    everyone = tuple(range(n_parties))
    plan = [(), everyone, *((m,) for m in everyone)]
    plan += [everyone[:m] + everyone[m + 1 :] for m in everyone]
    for size in range(2, n_parties - 1) if n_parties <= MOST_PARTIES else ():
        plan += itertools.combinations(everyone, size)
    return list(dict.fromkeys(plan))


def play(
    names: Sequence[str],
    loss: Loss,
    train: Train,
    *,
    metric: str | None = None,
    label_party: int = 0,
    known: Mapping[int, Coalition] | None = None,
    monitor: Monitor | None = None,
) -> Worth | None:
    """The game of some parties, wherever they are; None where a coalition was interrupted."""
    check_metric(metric)
    plan, n = plan_coalitions(len(names)), len(names)
    done = {mask: c for mask, c in (known or {}).items() if c.members in plan}
    reason = f"{n} parties have {2**n} coalitions; Shapley values take them all and are computed for at most "
    reason = "" if n <= MOST_PARTIES else f"{reason}{MOST_PARTIES} parties"
    worth = Worth(list(names), metric or "", label_party, done, reason)
    for members in plan:
        if sum(1 << m for m in members) in done:
            continue
        coalition = train(members)
        if coalition is None:
            return None
        done[coalition.mask] = coalition
        if not members and metric is not None:  # before hours of training, not after
            worth.chosen_metric(loss)
        if monitor is not None:
            monitor(coalition, len(done), len(plan))
    return replace(worth, metric=worth.chosen_metric(loss))


def measure_worth(
    problem: Problem,
    options: SolverOptions | None = None,
    *,
    label_party: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
    **how: Any,
) -> Worth | None:
    """Train the coalitions of a problem's parties and measure each on the test set; None if stopped."""
    options = options or SolverOptions()
    if problem.test is None:
        raise InputError("worth: the problem has no test set: what data add is measured on held-out rows")
    if not 0 <= label_party < problem.n_parties:
        raise ConfigError(f"label_party: {label_party!r} is none of the {problem.n_parties} parties")

    def train(members: tuple[int, ...]) -> Coalition | None:
        # A fit of one round has not asked.
        return None if should_stop() else train_coalition(problem, options, members, should_stop)

    return play(problem.names, problem.loss, train, label_party=label_party, **how)


def check_metric(metric: str | None) -> None:
    """Refuse a metric that nobody knows."""
    if metric is not None and metric not in HIGHER_IS_BETTER:
        raise ConfigError(f"metric: unknown metric {metric!r}; choose {', '.join(HIGHER_IS_BETTER)}")


def train_coalition(
    problem: Problem,
    options: SolverOptions,
    members: Sequence[int],
    should_stop: Callable[[], bool] | None = None,
) -> Coalition | None:
    """Train one coalition in this process; None where it was stopped."""
    test = problem.test
    assert test is not None  # checked
    restricted, rows = _restricted(problem, test, members)
    result = solve(restricted, options, should_stop=should_stop)
    if result.status is Status.INTERRUPTED:
        return None
    if result.status is Status.DIVERGED:
        raise DivergenceError(f"worth: {', '.join(restricted.names)}: {result.message}")
    with Engine(options.n_threads) as engine, engine.limited():
        z = predictor(rows, result.weights, result.intercept, problem.loss, engine)
    every = evaluation_metrics(problem.loss, test.y, z, test.weight)
    about = {"objective": result.objective, "rounds": len(result.history), "status": str(result.status)}
    return Coalition.measured(members, every, result.gap, **about)


def _restricted(problem: Problem, test: TestSet, members: Sequence[int]) -> tuple[Problem, TestSet]:
    """Problem and test rows of some of the parties; those of nobody have one column of zeros."""
    names, sets, penalties = problem.names, problem.constraints, problem.party_regularizers
    zeros, rows = ([DenseBlock(np.zeros((n, 1)))] for n in (problem.n_samples, len(test.y)))
    about: dict[str, Any] = {
        "blocks": [problem.blocks[m] for m in members] or zeros,
        "names": [names[m] for m in members] or ["nobody"],
        "regularizers": [penalties[m] for m in members] or [penalties[0].of_party(0, 1, "nobody")],
        "constraints": [sets[m] for m in members] if sets else [],
    }
    restricted = replace(problem, **about, test=None, own_lambda=None)
    return restricted, replace(test, blocks=[test.blocks[m] for m in members] or list(rows))


def shapley_values(values: Sequence[float]) -> list[Fraction]:
    """Shapley value of every player."""
    n_players = len(values).bit_length() - 1
    if len(values) != 1 << n_players:
        raise ValueError(f"values: {len(values)} coalitions; a game has a power of two of them")
    exact = [Fraction(value) for value in values]  # OverflowError or ValueError where not finite
    # Whole numbers of orders: one division at the end.
    orders = [math.factorial(s) * math.factorial(n_players - s - 1) for s in range(n_players)]
    shares = []
    for player in (1 << i for i in range(n_players)):
        without = [mask for mask in range(len(exact)) if not mask & player]
        added = sum(orders[mask.bit_count()] * (exact[mask | player] - exact[mask]) for mask in without)
        shares.append(Fraction(added, math.factorial(n_players)))
    return shares


# --- of a run on disk: interrupted, it goes on where it was, to the same result -----------------------------


#: The finished document, in the run directory.
WORTH = "worth.json"

#: Coalitions that are done, until all are.
PARTIAL = "worth.partial"


#: What to do with a file of another kind, and what it is.
_OTHER = "delete it", "not what `fastadmm worth` writes"


def worth_of_run(
    run: Path,
    *,
    test: Path | None = None,
    metric: str | None = None,
    label_party: str | None = None,
    threads: int | None = None,
    display: Display | None = None,
) -> Worth | None:
    """Train the coalitions of a run's parties, and keep the result in it; None where it was interrupted."""
    display, folder, place = display or Display(), RunFolder(run), shown(run)
    folder.require()
    found = recorded(run, {} if threads is None else {"threads": threads})
    config = found.config
    if config.privacy.mode != "none":
        raise private_worth(place)
    # Coalitions train on all rows, to their gap: without early stopping, at the λ that the run ended with.
    config = without("worth", replace(config, lambda_=_lambda(folder, config)))
    config = config if test is None else replace(config, test=str(test))
    if config.test is None:
        said = "no test partition: what data add is measured on held-out rows; add --test"
        raise ConfigError(f"{place}: {said}")
    fingerprint = _fingerprint(config, found.provenance, run)
    problem = load_run(config, check_run(config, display)).problem
    if test is not None:
        tested = open_partition(test)
        assert tested.labels is not None  # check_run has asked for them
        for line in seen_in_training(run, tested.labels, lambda trained: same_content(tested, trained)):
            display.note(line)
    label = party_number(label_party, problem.names, place)
    with folder.held(), stop_on_signal() as should_stop:
        known, partial = coalitions_done(run, fingerprint), run / PARTIAL
        if known:
            display.note(f"{len(known)} coalitions are done already")
        elif partial.exists():
            display.note(f"{PARTIAL}: of other data or settings: begun anew")

        def monitor(coalition: Coalition, done: int, total: int) -> None:
            known[coalition.mask] = coalition
            every = [one.to_json() for one in known.values()]
            write_json(partial, {"fingerprint": fingerprint, "coalitions": every})
            who = " + ".join(problem.names[m] for m in coalition.members) or "nobody"
            display.round(f"{done}/{total} coalitions · {who}")

        how: dict[str, Any] = {"metric": metric, "label_party": label, "known": known, "monitor": monitor}
        worth = measure_worth(problem, solver_options(config), should_stop=should_stop, **how)
        if worth is not None:
            about = {"fingerprint": fingerprint, "test": Path(config.test).resolve().name}
            folder.write_json(WORTH, about | worth.to_json())
            partial.unlink(missing_ok=True)
    return worth


def read_worth(path: Path) -> Worth | None:
    """Read ``worth.json``; None where the file is absent."""
    with storage_errors(path, "read"), damaged(path, *_OTHER):
        return Worth.from_json(read_json(path)) if path.exists() else None


def _lambda(folder: RunFolder, config: RunConfig) -> float:
    """The run's λ; that of a path is in its result."""
    chosen = (folder.finished() or {}).get("lambda") if config.path else config.lambda_
    if not isinstance(chosen, int | float):
        raise ConfigError(f"{shown(folder.path)}: its path has not chosen a lambda yet; resume it first")
    return chosen


def _fingerprint(config: RunConfig, provenance: Any, run: Path) -> str:
    """Digest of everything that decides the coalitions' models and metrics."""
    data = provenance_of(open_partition(config.data))
    if isinstance(provenance, dict) and {k: provenance.get(k) for k in data} != data:
        said = f"not the data that {shown(run)} began with (digests differ); train anew"
        raise InputError(f"{shown(config.data)}: {said}")
    assert config.test is not None  # checked
    usual = RunConfig(config.data)
    names = {key: SETTINGS[key].name for key in DECISIVE}
    # Defaults are left out, so that a setting which a later version adds changes nothing.
    decisive = {k: getattr(config, n) for k, n in names.items() if getattr(config, n) != getattr(usual, n)}
    return seal_of({**decisive, "data": data, "test": provenance_of(open_partition(config.test))})


def coalitions_done(run: Path, fingerprint: str | None = None) -> dict[int, Coalition]:
    """Coalitions that the files of a run have, of these data and settings."""
    known: dict[int, Coalition] = {}
    for path in filter(Path.is_file, (run / WORTH, run / PARTIAL)):
        with damaged(path, *_OTHER):
            document = read_json(path)
            if fingerprint in (None, document["fingerprint"]):
                known |= {one.mask: one for one in map(Coalition.from_json, document["coalitions"])}
    return known


def private_worth(place: str) -> ConfigError:
    """What is said to whoever asks for the worth of private data."""
    said = "every coalition's model would be one more release of the same data, and multiply the budget"
    return ConfigError(f"{place}: a private run: {said}; the worth of private data is not measured")


def party_number(name: str | None, names: list[str], place: str) -> int:
    """Number of the label holder's party; the first one where none is named."""
    if name is not None and name not in names:
        raise ConfigError(f"{place}: no party {name!r}; its parties are {', '.join(names)}")
    return 0 if name is None else names.index(name)
