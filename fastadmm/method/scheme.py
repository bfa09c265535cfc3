"""What a scheme declares of itself: what it needs, which options it has, what it takes, and how it is made.

Declarations import nothing heavy, so that options and their help can be made of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastadmm.engine.tree import leaves_of
from fastadmm.errors import ConfigError
from fastadmm.problem.traits import Traits

if TYPE_CHECKING:
    from fastadmm.engine.engine import Engine
    from fastadmm.method.method import Method
    from fastadmm.problem.problem import Problem

#: What the coordinator may see of messages: each, or only their sums.
SECRECY: tuple[str, ...] = ("none", "sums")


#: Vectors of a party's columns beside its directions.
_WORK_OF_COLUMNS = 20


#: What schemes read of :class:`fastadmm.solver.options.SolverOptions`, or of a configuration: scheme, gap,
#: penalty, acceleration, x_update, history, directions and secrecy, as they are explained there.
Options = Any


@dataclass(frozen=True)
class Needs:
    """Problems that a scheme is for."""

    smooth: bool = False  # whether it needs what Traits calls so
    ridge: bool = False  # whether it needs what Traits calls so
    convex: bool = False  # whether it needs what Traits calls so
    convex_penalty: bool = False  # whether it needs what Traits calls so
    log_sum: bool = False  # whether ``log_sum`` without a constraint will do in place of squared l2
    uncoupled: bool = False  # whether it needs sets without equations between weights
    one_predictor: bool = False  # whether it has one predictor per sample only
    most_parties: int | None = None
    most_parts: int | None = None  # of parties times predictors per sample

    def met_by(self, traits: Traits) -> bool:
        """Whether a problem of this kind has all of it."""
        return (
            (traits.smooth or not self.smooth)
            and (traits.ridge or not self.ridge or (self.log_sum and traits.log_sum))
            and (traits.convex or not self.convex)
            and (traits.convex_penalty or not self.convex_penalty)
            and not (traits.vector and self.one_predictor)
            and not (traits.coupled and self.uncoupled)
            and (self.most_parties is None or traits.n_parties <= self.most_parties)
            and (self.most_parts is None or traits.n_parties * traits.n_outputs <= self.most_parts)
        )

    def __str__(self) -> str:
        told = {
            "a convex regularizer": self.convex_penalty,
            "a smooth loss": self.smooth,
            f"regularizer l2 {'or log_sum ' * self.log_sum}without a constraint": self.ridge,
            "one predictor per sample": self.one_predictor,
            "no simplex or affine set": self.uncoupled,
            f"at most {self.most_parties} parties": self.most_parties is not None,
            f"at most {self.most_parts} parties times classes": self.most_parts is not None,
        }
        needed = [text for text, is_needed in told.items() if is_needed]
        text = " and ".join(filter(None, (", ".join(needed[:-1]), *needed[-1:])))
        return " with ".join(filter(None, ("a convex problem" if self.convex else "", text)))


@dataclass(frozen=True)
class Shape:
    """Numbers that memory and time of a run follow from."""

    traits: Traits
    n_samples: int
    n_outputs: int  # predictors per sample
    widths: Sequence[int]  # columns of each party
    densities: Sequence[float]  # share of each block's entries that are stored
    n_threads: int

    @property
    def n_parties(self) -> int:
        """M."""
        return len(self.widths)

    @property
    def message_size(self) -> int:
        """Numbers in one message."""
        return self.n_samples * self.n_outputs

    def direction_bytes(self, history: int) -> int:
        """Directions that parties keep, and vectors of their columns that they work with, of each class."""
        kept = min(history, max(self.widths)) + _WORK_OF_COLUMNS
        return 8 * self.n_outputs * kept * sum(self.widths)

    def piece_bytes(self, kept: int) -> int:
        """A leaf of so many messages times curvatures, for every thread that sums their Hessian."""
        leaves = leaves_of(self.n_samples)
        leaf = -(-self.n_samples // leaves)
        return 8 * kept * min(self.n_threads, leaves) * leaf

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """Shape of each block."""
        return [(self.n_samples, width) for width in self.widths]


def refuse_single(traits: Traits) -> None:
    """Refuse sums over a single party."""
    if traits.n_parties < 2:
        raise ConfigError(
            "secrecy: 'sums' needs at least two parties: the sum of one message is that message; leave it out"
        )


class Scheme(ABC):
    """One way for parties and coordinator to work together; an instance stands in the registry."""

    name: str  # as in options and records
    rounds: str  # how many rounds it takes, for the table of the documentation
    remarks: str  # what it does, for the same table
    needs: Needs = Needs()
    options: tuple[str, ...] = ()  # names of the options that it has, among those that not every scheme has

    @abstractmethod
    def why(self, traits: Traits, given: Sequence[str]) -> str:
        """One clause on why it was chosen; ``given`` are the options that were."""

    @abstractmethod
    def method(self, traits: Traits) -> type[Method]:
        """The method that runs it on problems of a kind."""

    def make(self, problem: Problem, options: Options, engine: Engine) -> Method:
        """The method for a problem."""
        kind: type = self.method(problem.traits)
        return kind(problem, engine, options.history)

    def takes(self, problem: Problem, engine: Engine) -> bool:
        """Whether it has a way for the problem's data."""
        return True

    @abstractmethod
    def history(self, shape: Shape, options: Options) -> int:
        """How much of the past it keeps."""

    @abstractmethod
    def state_bytes(self, shape: Shape, history: int) -> tuple[int, int]:
        """Bytes of the state with a round's work, and of what accelerates it, for a history so long."""

    def spilled_bytes(self, shape: Shape, options: Options, history: int) -> int:
        """What of the state can be in a scratch file: see :class:`fastadmm.engine.spilled.SpilledRows`."""
        return 0

    def factor_bytes(self, shape: Shape, options: Options) -> int:
        """Bytes of the parties' factorisations."""
        from fastadmm.parties.xupdate.choose import preparation_bytes

        ridge = shape.traits.ridge
        return sum(preparation_bytes(*block, options.x_update, ridge) for block in shape.blocks)
