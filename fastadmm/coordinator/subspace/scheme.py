"""The declaration of the scheme ``subspace``: squared l2 with every loss, and ``log_sum``.

The declaration of the scheme ``subspace`` where the coordinator sees sums only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastadmm.method.scheme import Needs, Options, Scheme, Shape, refuse_single
from fastadmm.problem.traits import Traits

if TYPE_CHECKING:
    from fastadmm.engine.engine import Engine
    from fastadmm.method.method import Method
    from fastadmm.problem.problem import Problem

#: What parties may answer with in a round.
DIRECTIONS: tuple[str, ...] = ("auto", "one", "both")

#: Most columns of a party that sends all of its directions in its first answer: more bytes than a whole run
#: of pairs takes beyond it. With kinks, runs end when nearly all have been sent anyway.
MOST_FIRST, MOST_FIRST_OF_KINKS = 40, 128

#: Messages in single precision are not asked to certify a smaller relative gap.
_SINGLE_GAP = 1e-9


#: Vectors of a message's length besides messages (predictors, targets, gradients, curvature, and the parties'
#: own), and for several classes. See bench/memory.py.
_WORK, _WORK_OF_CLASSES = 12, 14

#: N x N matrices of the model for few rows: the approximation of K, its factor, a Hessian and its factor.
_MODEL_OF_FEW_ROWS = 8


class Subspace(Scheme):
    """See :mod:`fastadmm.coordinator.subspace.subspace`."""

    name = "subspace"
    rounds = "two to ten"
    remarks = (
        "parties send Newton directions; the coordinator minimises over the span of all messages so far. "
        "Kinks in the loss are smoothed, less and less from round to round"
    )
    needs = Needs(ridge=True, log_sum=True)
    options: tuple[str, ...] = ("directions",)

    def why(self, traits: Traits, given: Sequence[str]) -> str:
        """By the loss."""
        if not traits.smooth:
            return "squared l2, and the loss's kinks can be smoothed: fewest rounds"
        if traits.log_sum:
            return "smooth loss with log_sum: monotone descent in fewest rounds"
        if not traits.convex:
            return "smooth non-convex loss with squared l2: monotone descent in fewest rounds"
        return "smooth loss with squared l2: fewest rounds"

    def method(self, traits: Traits) -> type[Method]:
        """One for each kind of loss."""
        from fastadmm.coordinator.subspace.descent import DescentSubspaceMethod, LogSumSubspaceMethod
        from fastadmm.coordinator.subspace.multinomial import MultinomialMethod
        from fastadmm.coordinator.subspace.smoothed import SmoothedSubspaceMethod
        from fastadmm.coordinator.subspace.subspace import SubspaceMethod

        if traits.log_sum:
            return LogSumSubspaceMethod
        if not traits.convex:
            return DescentSubspaceMethod
        if traits.vector:
            return MultinomialMethod
        return SubspaceMethod if traits.smooth else SmoothedSubspaceMethod

    def make(self, problem: Problem, options: Options, engine: Engine) -> Method:
        from fastadmm.coordinator.subspace.multinomial import MultinomialMethod
        from fastadmm.coordinator.subspace.subspace import SubspaceMethod

        traits, both = problem.traits, answers_both(problem.traits, options)
        kind: Any = self.method(traits)
        more = {"both": both} if kind is SubspaceMethod else {}
        made: SubspaceMethod = kind(problem, engine, options.history, **more)
        if options.directions == "auto" and traits.convex and not traits.log_sum:
            made.answer_at_once(MOST_FIRST if traits.smooth else MOST_FIRST_OF_KINKS)
        if kind in (SubspaceMethod, MultinomialMethod):
            made.wanted = options.gap
        return made

    def history(self, shape: Shape, options: Options) -> int:
        """Directions per party."""
        from fastadmm.coordinator.metric_limits import (
            directions_for_few_rows,
            directions_for_kinks,
            directions_per_party,
        )
        from fastadmm.coordinator.subspace.multinomial import class_directions_per_party

        if shape.n_outputs == 1:
            if self.models_few_rows(shape) and shape.traits.smooth:
                return directions_for_few_rows(shape.n_parties, shape.n_samples)
            if not shape.traits.smooth:
                return directions_for_kinks(shape.n_parties, shape.n_samples)
            return directions_per_party(shape.n_parties)
        return class_directions_per_party(shape.n_parties, shape.n_samples, shape.n_outputs)

    def state_bytes(self, shape: Shape, history: int) -> tuple[int, int]:
        """All messages, and one more of each party while a round is on its way."""
        kept, work = _kept(shape, history), _WORK_OF_CLASSES if shape.n_outputs > 1 else _WORK
        # Messages of a first answer are moved from one place to another, party by party.
        most = MOST_FIRST if shape.traits.smooth else MOST_FIRST_OF_KINKS
        moved = min(most, max(shape.widths))
        if shape.traits.smooth and shape.n_outputs == 1:  # of half the bytes
            moved = -(-moved // 2)
        columns = kept + moved + (shape.n_parties + work) * shape.n_outputs
        if self.models_few_rows(shape):
            columns += _MODEL_OF_FEW_ROWS * shape.n_samples + 2 * history
        # Of messages times roots of curvatures, of which threads sum a Hessian.
        pieces = shape.piece_bytes(kept) if shape.n_outputs == 1 else 0
        return 8 * columns * shape.n_samples + shape.direction_bytes(history) + pieces, 0

    def models_few_rows(self, shape: Shape) -> bool:
        """Whether the coordinator keeps a model with all columns."""
        from fastadmm.coordinator.subspace.few_rows import has_few_rows

        convex = shape.traits.convex and not shape.traits.log_sum
        return convex and shape.n_outputs == 1 and has_few_rows(shape.n_samples, sum(shape.widths))

    def spilled_bytes(self, shape: Shape, options: Options, history: int) -> int:
        """All messages, unless they are rounded, which are looked through.

        ``shape``, ``options`` and ``history`` as of the method that this overrides.
        """
        from fastadmm.engine.spilled import CAN_SPILL

        traits = shape.traits
        if not (CAN_SPILL and traits.convex) or options.secrecy != "none":
            return 0
        if answers_both(traits, options):
            return 0
        in_file = _kept(shape, history) + (0 if traits.vector else shape.n_parties)
        return 8 * in_file * shape.n_samples

    def factor_bytes(self, shape: Shape, options: Options) -> int:
        """Factors, computed anew in each metric, by as many parties at once as there are threads."""
        from fastadmm.parties.direction import choose_metric_solver

        kinds = [choose_metric_solver(*block)[0] for block in zip(shape.blocks, shape.densities)]
        sides = [{"gram": d, "kernel": n}.get(kind, 0) for kind, (n, d) in zip(kinds, shape.blocks)]
        squares = sorted((side**2 for side in sides), reverse=True)
        # The kernel side is kept beside its factor; a Gram matrix is summed from up to four parts.
        return 16 * sum(squares) + 5 * 8 * sum(squares[: shape.n_threads])


def _kept(shape: Shape, history: int) -> int:
    """Directions of all parties, one per class of a message; orthogonal, so at most as many as columns."""
    return sum(min(shape.n_outputs * history, width) for width in shape.widths)


def pairs_suit(traits: Traits) -> bool:
    """Whether parties can answer with both directions in a round."""
    return traits.convex and traits.smooth and not traits.vector


def answers_both(traits: Traits, options: Options) -> bool:
    """Whether parties answer with both directions in a round: in single precision no more bytes than one."""
    if options.directions == "auto":
        return pairs_suit(traits) and options.gap >= _SINGLE_GAP
    return options.directions == "both"


#: Vectors of a message's length beside the summed and the masked ones; bench/memory.py measures them.
_WORK_OF_SUMS = 18


class SummedSubspace(Subspace):
    """See :mod:`fastadmm.coordinator.subspace.summed`."""

    needs = Needs(ridge=True, convex=True, one_predictor=True)
    options: tuple[str, ...] = ()

    def method(self, traits: Traits) -> type[Method]:
        """One for smooth losses, one for kinks; refused for a single party."""
        from fastadmm.coordinator.subspace.summed import SummedSmoothedMethod, SummedSubspaceMethod

        refuse_single(traits)
        return SummedSubspaceMethod if traits.smooth else SummedSmoothedMethod

    def make(self, problem: Problem, options: Options, engine: Engine) -> Method:
        return Scheme.make(self, problem, options, engine)

    def history(self, shape: Shape, options: Options) -> int:
        """Directions of all parties together."""
        from fastadmm.coordinator.metric_limits import directions_of_sums

        return directions_of_sums(shape.widths, shape.n_samples)

    def state_bytes(self, shape: Shape, history: int) -> tuple[int, int]:
        """All summed messages, and the masked ones of a round: at first of all columns, if they are few."""
        from fastadmm.coordinator.metric_limits import first_of_sums

        fresh = max(2, first_of_sums(shape.widths, shape.n_samples))
        own = history + fresh + 3 * fresh // 2 * shape.n_parties + _WORK_OF_SUMS
        return 8 * own * shape.message_size, 0
