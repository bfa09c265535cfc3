"""What the solver loop asks of a method: run a round, say what it proved, save and restore itself."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from fastadmm.conversation.exchange import Answers, Call, Exchange, Pace, Talk
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

_T = TypeVar("_T")

#: Rounds in which a gap is to fall by a tenth.
PATIENCE = 20

_FALLEN = 0.9

#: After so many without it, rounds may take more exchanges.
_SLOW = 2


class Saved:
    """What is saved and restored by a table of names: numbers, arrays, tuples of numbers, other such objects.

    An entry is a key and the path to the attribute, ``"total: point.total"``; the name alone where they are
    the same. What is None is not there, nor what is called ``"bound?"`` in runs that began without it. An
    array that has a size already keeps its shape.
    """

    #: In the order of a checkpoint; everything where there are none.
    SAVED: ClassVar[tuple[str, ...]] = ()

    def _places(self) -> Iterator[tuple[str, Any, str]]:
        """Key, holder and attribute of each entry."""
        for entry in self.SAVED or tuple(vars(self)):
            key, _, path = entry.partition(": ")
            *through, name = (path or key.rstrip("?")).split(".")
            holder = reduce(getattr, through, self)
            if holder is not None:
                yield key, holder, name

    def export(self) -> dict[str, Any]:
        """Everything that a resumed run needs to go on bit for bit."""
        held = {key: getattr(holder, name) for key, holder, name in self._places()}
        return {key.rstrip("?"): _exported(own) for key, own in held.items() if own is not None}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Inverse of :meth:`export`; KeyError or ValueError with a key that is missing or does not fit."""
        for marked, holder, name in self._places():
            key, held = marked.rstrip("?"), getattr(holder, name)
            if key not in saved and (held is None or key != marked):
                continue
            if isinstance(held, Saved):
                held.restore(saved[key])
            elif held is not None or not isinstance(saved[key], Mapping):  # of what this run does not have
                setattr(holder, name, _restored(key, held, saved[key]))


def _exported(value: Any) -> Any:
    if isinstance(value, Saved):
        return value.export()
    return np.array(value) if isinstance(value, tuple) else value


def _restored(key: str, held: Any, value: Any) -> Any:
    """A saved value as the one that is held."""
    if not isinstance(value if held is None else held, np.ndarray):
        return value if held is None else type(held)(value)
    array = np.array(value, dtype=None if held is None else held.dtype)
    if held is not None and (array.ndim != held.ndim or (held.size and array.shape != held.shape)):
        raise ValueError(key)
    return array


def check_pair(saved: Mapping[str, Any], one: str, other: str) -> None:
    """Raise ValueError where a state has one of two keys alone that belong together."""
    if (one in saved) != (other in saved):
        raise ValueError(other if one in saved else one)


def translated(
    talk: Talk[_T], ask: Callable[[Exchange], Exchange], hear: Callable[[Exchange, Answers], Answers]
) -> Talk[_T]:
    """A talk whose exchanges are asked as others, whose answers are heard as its own."""
    with closing(talk):
        try:
            exchange = next(talk)
            while True:
                answers = yield ask(exchange)
                exchange = talk.send(hear(exchange, answers))
        except StopIteration as end:
            return end.value


def rows_of_state(state: Mapping[str, Any], keys: Sequence[str]) -> dict[str, np.ndarray]:
    """What of a state has numbers for each row: the arrays of some keys, as far as they are there."""

    def inside(here: Any, name: str) -> Any:
        return here.get(name) if isinstance(here, Mapping) else None

    found: dict[str, Any] = {path: reduce(inside, path.split("/"), state) for path in keys}
    return {path: rows for path, rows in found.items() if rows is not None}


def without_rows(state: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """The rest of a state."""
    rest = {}
    for name, value in state.items():
        if name in keys:
            continue
        inner = [key.removeprefix(f"{name}/") for key in keys if key.startswith(f"{name}/")]
        rest[name] = without_rows(value, inner) if inner and isinstance(value, Mapping) else value
    return rest


def with_rows(state: Mapping[str, Any], rows: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The state again, from what the other two gave."""
    whole = dict(state)
    for path, values in rows.items():
        name, _, inner = path.partition("/")
        whole[name] = with_rows(whole.get(name, {}), {inner: values}) if inner else values
    return whole


@dataclass
class StallWatch(Saved):
    """State of the watch."""

    reference: float = math.inf  # gap when it had last fallen by a tenth
    n_still: int = 0  # rounds since then
    n_stalls: int = 0  # how often that were too many

    def stalls(self, gap: float) -> bool:
        """Take in a round's gap; True where it has not fallen by a tenth in so many rounds."""
        if gap <= _FALLEN * self.reference:
            self.reference, self.n_still = gap, 0
            return False
        self.n_still += 1
        if self.n_still < PATIENCE:
            return False
        self.reference, self.n_still = gap, 0
        self.n_stalls += 1
        return True

    @property
    def slow(self) -> bool:
        """Whether the gap has stalled before, or not fallen by a tenth lately."""
        return self.n_stalls > 0 or self.n_still >= _SLOW

    @property
    def remark(self) -> str:
        """What the end of a run says; empty where nothing stalled."""
        told = f"stalled {self.n_stalls} times: the gap had not fallen by a tenth in {PATIENCE} rounds"
        return told if self.n_stalls else ""


@dataclass(frozen=True)
class Measured:
    """What a round left behind, all in the summed scaling."""

    objective: float  # loss and regularisers at the weights after the round
    lower_bound: float  # a proved lower bound on the optimum
    primal_residual: float  # as in RoundRecord
    dual_residual: float  # as in RoundRecord
    augmented_lagrangian: float  # equations 5 and 13 of Hu et al
    lyapunov: float  # equations 5 and 13 of Hu et al
    penalty: float | None  # r; None where the method has none
    accelerated: bool  # whether the round started from an extrapolated state
    stationarity: float | None = None  # as in RoundRecord; None in convex problems
    bound_within: float = -math.inf


class Method(Saved, ABC):
    """A way to train, one round at a time.

    What speaks to parties is a talk (:mod:`fastadmm.conversation`), so that a round does not know where
    they are. Only what says so in its name or below touches the parties of this process themselves.
    """

    #: Name, as in options and records.
    name: str
    #: Whether convergence on every convex problem is a theorem.
    convergent: bool
    #: Whether a round's objective may be the most that it can be, instead of itself.
    bounds_objective: ClassVar[bool] = False
    #: Curvatures that parties were told last, and what a party in this process does not save.
    metric: np.ndarray | None = None
    not_saved: ClassVar[tuple[str, ...]] = ("metric",)
    #: Which calls of the table its parties answer.
    family: str
    #: Kind of its parties; how these solve their x-updates, where they have some.
    party_type: Any
    x_update: str = "auto"
    #: Where it keeps messages, if it keeps many.
    store: Any = None
    #: Of the run.
    problem: Problem
    engine: Engine
    #: What of :meth:`export` has numbers for each row, along the last axis: paths, with slashes.
    row_keys: tuple[str, ...] = ("witness",)
    #: Of methods that change something where the gap stands still.
    watch: StallWatch | None = None
    #: Best lower bound so far, summed scaling, of methods that keep one, and the dual vector that proved it:
    #: the loss's gradient at the model may prove less.
    bound: float = -math.inf
    witness: np.ndarray | None = None
    #: Whether rounds only estimate how far weights are from stationary, and :meth:`fresh_stationarity` tells.
    proves_stationarity: ClassVar[bool] = False
    #: With sums only: what asks for them; bound of a number in one party's message of the present weights.
    sums: Any = None
    longest: float = 0.0
    #: With sums only: how much of a round's gap, summed scaling, is there for the rounding of messages.
    hidden: float = 0.0
    #: Relative gap that rounds want, where they do; and what it has been multiplied by.
    wanted: float = 0.0
    tightened: float = 1.0

    def spill(self, directory: Path) -> None:
        """Keep messages in a scratch file; ``directory`` is where. Only of schemes that say they can."""
        self.store.directory = directory

    def take_many_rounds(self) -> None:
        """Ask for no more at first than later: early stopping chooses among the models of many rounds."""

    def close(self) -> None:
        """Give back what is large; nothing is asked of the method any more."""
        if self.store is not None:
            self.store.close()

    def place(self, count: int) -> np.ndarray | None:
        """Where so many ``messages`` are read to, for :meth:`restore` to take over; None for anywhere.

        Of shape (``count`` or more, N).
        """
        return None

    @property
    def remark(self) -> str:
        """What the end of a run says of its course; empty where that is nothing."""
        return "" if self.watch is None else self.watch.remark

    @cached_property
    def parties(self) -> Any:
        """The parties of this process, in the problem's order; made when they are first asked for."""
        return self.make_parties()

    def make_parties(self) -> Sequence[Any]:
        """New parties over the problem's blocks."""
        problem, made = self.problem, []
        given = {"n_classes": problem.n_outputs, "x_update": self.x_update}
        penalties = problem.party_regularizers, problem.party_constraints
        for name, block, *own in zip(problem.names, problem.blocks, *penalties):
            given["regularizer"], given["constraint"] = own
            taken = (given[key] for key in self.party_type.takes)
            made.append(self.party_type(name, block, problem.regularization, self.engine, *taken))
        return made

    def prepare_parties(self) -> None:
        """Check and factorise the blocks of the parties of this process."""
        for party in self.parties:
            party.prepare()

    def prepare(self) -> Talk[float]:
        """Evaluate the start; returns the summed loss at zero weights, best intercept."""
        yield from ()  # nothing has to be asked
        return self.reopen()

    @abstractmethod
    def reopen(self) -> float:
        """What :meth:`prepare` returns, for a run that goes on: nobody is asked."""

    @abstractmethod
    def begin_at(self, weights: Sequence[np.ndarray], intercept: Any) -> None:
        """Let the first round of a prepared method begin at given weights instead of at zero.

        x_m of shape (d_m,) per party and in its set; of a multinomial model of shape (d_m, C).
        """

    @abstractmethod
    def round(self) -> Talk[Measured]:
        """One round with every party."""

    def _measured(
        self, objective: float, lower_bound: float, squared: float, lyapunov: float, **more: float
    ) -> Measured:
        """What a round left behind whose z is the sum of the messages, and u the loss gradient there."""
        size = self.problem.n_parties * self.engine.all_rows(self.problem.n_samples)
        left = {"primal_residual": 0.0, "dual_residual": math.sqrt(squared / size)}
        about = {"augmented_lagrangian": objective, "lyapunov": lyapunov, **left, **more}
        return Measured(objective, lower_bound, penalty=None, accelerated=False, **about)

    @property
    @abstractmethod
    def intercept(self) -> Any:
        """Exact minimiser of the intercept at the current weights; 0 where none is fitted.

        A float; of a multinomial model of shape (C,).
        """

    def final_arguments(self, m: int) -> dict[str, Any]:
        """What party m needs to know its weights: see ``needs`` of its class."""
        return {}

    def weights(self) -> list[np.ndarray]:
        """x_m of shape (d_m,) per party of this process; of a multinomial model of shape (d_m, C)."""
        return [party.final_weights(**self.final_arguments(m)) for m, party in enumerate(self.parties)]

    @property
    def descends(self) -> bool:
        """Whether no round ends with a higher objective than it began with."""
        return False

    @property
    def total(self) -> np.ndarray | None:
        """Sum of the messages of the present weights, of shape (N,) or (C N,); None where it is not kept."""
        return None

    def about_weights(self, name: str, pace: Pace = Pace.TOGETHER, **arguments: Any) -> Exchange:
        """A call to every party that needs its present weights."""
        parties = range(self.problem.n_parties)
        return Exchange([Call(m, name, {**self.final_arguments(m), **arguments}) for m in parties], pace)

    def scores(self, rows: str) -> Talk[list[np.ndarray]]:
        """The parties' shares of the predictor of some rows, as :meth:`Answering.scores` names them."""
        answers = yield self.about_weights("scores", rows=rows)
        return [answer["scores"] for answer in answers]

    def fresh_stationarity(self) -> Talk[float]:
        """Relative stationarity of the present weights, from products with the columns themselves."""
        raise NotImplementedError

    def raise_bound(self, bound: float, u: np.ndarray) -> None:
        """Take in a lower bound and the dual vector that proves it, if it is the best so far.

        Shapes: u (N,) or (C N,).
        Scaling: bound summed scaling.
        """
        if bound > self.bound:
            self.bound, self.witness = bound, np.array(u).ravel()

    @property
    def witness_rows(self) -> np.ndarray | None:
        """The witness as it is saved, of shape (C, N)."""
        return None if self.witness is None else self.witness.reshape(self.problem.n_outputs, -1)

    @witness_rows.setter
    def witness_rows(self, rows: np.ndarray) -> None:
        self.witness = np.array(rows, dtype=np.float64).ravel()

    def tighten(self, factor: float) -> None:
        """Want a gap that is smaller by a factor: what rounds found proves less than they thought."""
        self.tightened *= factor
        self.wanted *= factor

    def weight_norms(self) -> list[float]:
        """Euclidean norm of every x_m."""
        return [float(np.linalg.norm(x)) for x in self.weights()]

    def export_parties(self) -> list[dict[str, np.ndarray]]:
        """Own arrays of each party of this process, but for what the coordinator knows."""
        found = [{"weights": x, **party.export()} for x, party in zip(self.weights(), self.parties)]
        return [{key: own[key] for key in own if key not in self.not_saved} for own in found]

    def restore_parties(self, parties: list[dict[str, np.ndarray]]) -> None:
        """Inverse of :meth:`export_parties`, after :meth:`restore`; earlier versions saved fewer arrays."""
        for m, (party, state) in enumerate(zip(self.parties, parties, strict=True)):
            party.restore({**party.export(), **state, **self.known_of(m)})
        self.weights()  # refuses directions of another number

    def known_of(self, m: int) -> dict[str, np.ndarray]:
        """What the coordinator has of party m's state."""
        return {} if self.metric is None else {"metric": self.metric}
