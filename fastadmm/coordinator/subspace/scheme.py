"""The declaration of the scheme ``subspace``: squared l2 with every loss, and ``log_sum``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastadmm.coordinator.scheme import Needs, Options, Scheme, Shape
from fastadmm.errors import ConfigError
from fastadmm.problem.traits import Traits

if TYPE_CHECKING:
    from fastadmm.coordinator.method import Method
    from fastadmm.engine.engine import Engine
    from fastadmm.problem.problem import Problem

__all__ = ["DIRECTIONS", "Subspace", "choose_directions"]

#: What parties may answer with in a round.
DIRECTIONS: tuple[str, ...] = ("auto", "one", "both")

#: Messages in single precision are not asked to certify a smaller relative gap.
_SINGLE_GAP = 1e-9

#: Fewest directions per party that a limit of memory leaves: of one predictor per sample and a smooth convex
#: loss, which keeps the last moves beside the weights, at the price of rounds; and of all others.
_LEAST_MOVES, _LEAST_DIRECTIONS = 4, 8

#: Vectors of a message's length besides messages (predictors, targets, gradients, curvature, and the parties'
#: own); for several classes; and at least so many with kinks, near which rows are copied. See
#: bench/memory.py.
_WORK, _WORK_OF_CLASSES, _WORK_NEAR_KINKS = 12, 14, 42


#: The same of classes with all columns.
_WORK_OF_NARROW_CLASSES = 10

#: Share of the rows that are near kinks and copied, with many directions.
_NEAR_KINKS = 1 / 8

#: N x N matrices of the model for few rows: the approximation of K, its factor, a Hessian and its factor.
_MODEL_OF_FEW_ROWS = 8


class Subspace(Scheme):
    """See :mod:`fastadmm.coordinator.subspace.subspace`."""

    name = "subspace"
    rounds = "about ten"
    remarks = (
        "parties send Newton directions; the coordinator minimises over the span of all messages so far. "
        "Kinks in the loss are smoothed, less and less from round to round"
    )
    needs = Needs(ridge=True, log_sum=True)
    options: tuple[str, ...] = ("directions",)
    rare = "only runs of many rounds, or whose loss bends at many rows"

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
        from fastadmm.coordinator.multinomial.multinomial import MultinomialMethod
        from fastadmm.coordinator.subspace.descent import DescentSubspaceMethod
        from fastadmm.coordinator.subspace.log_sum import LogSumSubspaceMethod
        from fastadmm.coordinator.subspace.smoothed import SmoothedSubspaceMethod
        from fastadmm.coordinator.subspace.subspace import SubspaceMethod

        if traits.log_sum:
            return LogSumSubspaceMethod
        if not traits.convex:
            return DescentSubspaceMethod
        if traits.vector:
            return MultinomialMethod
        return SubspaceMethod if traits.smooth else SmoothedSubspaceMethod

    def make(self, problem: Problem, options: Options, engine: Engine, elsewhere: bool) -> Method:
        both, _ = choose_directions(problem.traits, options, elsewhere)
        method = self.method(problem.traits)
        from fastadmm.coordinator.multinomial.multinomial import MultinomialMethod
        from fastadmm.coordinator.subspace.subspace import SubspaceMethod

        if method is MultinomialMethod:
            return self._of_classes(problem, options, engine, elsewhere)
        if method is not SubspaceMethod:
            kinks = not (problem.traits.smooth or problem.traits.log_sum or problem.traits.vector)
            if kinks and problem.convex and (other := _of_kinks(problem, options, engine, elsewhere)):
                return other
            other = super().make(problem, options, engine, elsewhere)
            if problem.traits.log_sum or not problem.traits.smooth:
                other.coordinator.at_hand = _at_hand(options, elsewhere)
            return other
        # With "one" or "both", calls are the same wherever parties are, and nothing may reveal columns.
        cheap = _at_hand(options, elsewhere)
        history = options.history
        few = _few_rows(problem.n_samples, [b.shape[1] for b in problem.blocks])
        if history is None and cheap and not few:
            shapes = [block.whole_shape for block in problem.blocks]
            history = _worth(shapes[0][0], [d for _, d in shapes], [b.density for b in problem.blocks])
        from fastadmm.coordinator.subspace.stacked import StackedSubspaceMethod

        how, passes = "", 0.0
        if cheap and options.history is None:
            how, passes = _all_rows(problem, engine, history)
        if how or passes:
            made: SubspaceMethod = StackedSubspaceMethod(how, problem, engine, history, passes)
        else:
            made = SubspaceMethod(problem, engine, history, both)
        made.coordinator.at_hand = cheap
        made.by_size = cheap and made.coordinator.few_rows is None
        made.coordinator.forecast.wanted = options.gap
        return made

    def _of_classes(self, problem: Problem, options: Options, engine: Engine, elsewhere: bool) -> Method:
        from fastadmm.blocks.side_by_side import can_stand_side_by_side
        from fastadmm.coordinator.multinomial.narrow import NarrowMultinomialMethod, all_columns_pay
        from fastadmm.coordinator.multinomial.stacked import StackedMultinomialMethod
        from fastadmm.coordinator.multinomial.work import products_pay

        blocks, classes = problem.blocks, problem.n_outputs
        n, widths = engine.all_rows(problem.n_samples), [block.shape[1] for block in blocks]
        if _at_hand(options, elsewhere) and options.history is None:
            at_once = all_columns_pay(n, widths, classes)
            stored = [block.density for block in blocks]
            if can_stand_side_by_side(blocks) and products_pay(n, widths, stored, classes, at_once):
                return StackedMultinomialMethod(problem, engine, options.gap)
            if at_once:
                return NarrowMultinomialMethod(problem, engine, options.gap)
        made = super().make(problem, options, engine, elsewhere)
        made.coordinator.wanted = options.gap
        return made

    def notes(self, traits: Traits, options: Options, elsewhere: bool) -> list[str]:
        both, why = choose_directions(traits, options, elsewhere)
        if not traits.convex and not traits.log_sum:
            return []
        if (traits.log_sum or not traits.smooth) and _at_hand(options, elsewhere):
            return [
                "answers of a round: both directions while there is room, or all columns, whichever is less "
                "work (in one process)"
            ]
        if _at_hand(options, elsewhere):
            several = "one direction of each class" if traits.vector else "one direction, both"
            return [f"answers of a round: {several} or all columns, whichever is least work (in one process)"]
        return [f"answers of a round: {'both directions' if both else 'one direction'} ({why})"]

    def history(self, shape: Shape, options: Options) -> tuple[int, int]:
        """Directions per party."""
        from fastadmm.coordinator.metric_limits import (
            directions_for_few_rows,
            directions_for_kinks,
            directions_per_party,
        )
        from fastadmm.coordinator.multinomial.multinomial import class_directions_per_party

        if shape.n_outputs == 1:
            if self.models_few_rows(shape) and shape.traits.smooth:
                return directions_for_few_rows(shape.n_parties, shape.n_samples), _LEAST_MOVES
            if not shape.traits.smooth:
                return directions_for_kinks(shape.n_parties, shape.n_samples), _LEAST_DIRECTIONS
            if not shape.traits.convex:
                return directions_per_party(shape.n_parties), _LEAST_DIRECTIONS
            if options.directions == "auto":
                return _worth(shape.n_samples, shape.widths, shape.densities), _LEAST_MOVES
            return directions_per_party(shape.n_parties), _LEAST_MOVES
        most = class_directions_per_party(shape.n_parties, shape.n_samples, shape.n_outputs)
        return most, min(_LEAST_DIRECTIONS, most)

    def state_bytes(self, shape: Shape, history: int) -> tuple[int, int]:
        """All messages, and one more of each party while a round is on its way."""
        kept, work = _kept(shape, history), _WORK_OF_CLASSES if shape.n_outputs > 1 else _WORK
        if not shape.traits.smooth:
            from fastadmm.coordinator.subspace.near_rows import MOST_SHARE

            share = _NEAR_KINKS if shape.usual else MOST_SHARE
            work = max(_WORK_NEAR_KINKS, _WORK + math.ceil(share * kept))
        columns = kept + (shape.n_parties + work) * shape.n_outputs
        if shape.usual and shape.n_outputs > 1 and kept == sum(shape.widths):
            columns = kept + _WORK_OF_NARROW_CLASSES * shape.n_outputs
        if self.models_few_rows(shape):
            columns += _MODEL_OF_FEW_ROWS * shape.n_samples + 2 * history
        # Where rounding hides what is left of a gap, the gradient is repaired (repaired_gradient.py).
        repairs = shape.piece_bytes(kept) if shape.n_outputs == 1 and not shape.usual else 0
        return 8 * columns * shape.n_samples + shape.direction_bytes(history) + repairs, 0

    def columns_bytes(self, shape: Shape) -> int | None:
        """A copy of all rows, unless there is one sparse party, and a Hessian with its partial sums.

        ``shape`` as of the method that this overrides.
        """
        from fastadmm.coordinator.metric_limits import directions_for_kinks
        from fastadmm.coordinator.proximal.kinked_work import bytes_of_system, columns_pay
        from fastadmm.coordinator.subspace.dense_kinks import bytes_of_saddle
        from fastadmm.coordinator.subspace.whole_span import bytes_of_few_rows, bytes_side_by_side
        from fastadmm.coordinator.subspace.work_of_ways import BENDS, SPARSE_SPAN

        n, traits = shape.n_samples, shape.traits
        if not shape.as_they_are or not traits.convex or traits.log_sum or shape.n_outputs > 1:
            return None
        if _few_rows(n, shape.widths):
            if not traits.smooth:
                return None
            own = bytes_of_few_rows(n, shape.widths, shape.densities)
            return own + 8 * (shape.n_parties + _WORK) * n
        most, rounds = directions_for_kinks(shape.n_parties, n), BENDS
        if traits.smooth:
            most, rounds = _worth(n, shape.widths, shape.densities), SPARSE_SPAN
        taken = bytes_side_by_side(n, shape.widths, shape.densities, most, shape.quadratic, rounds)
        if taken is None and not traits.smooth:
            taken = bytes_of_saddle(n, shape.widths, shape.densities, most)
            return None if taken is None else taken + 8 * (shape.n_parties + _WORK) * n
        if taken is None:
            return None
        if not traits.smooth and columns_pay(n, shape.widths, shape.densities, sum(shape.widths)):
            taken += bytes_of_system(n, sum(shape.widths))  # an interior point method goes on
        return taken + 8 * (shape.n_parties + _WORK) * n

    def models_few_rows(self, shape: Shape) -> bool:
        """Whether the coordinator keeps a model with all columns."""
        convex = shape.traits.convex and not shape.traits.log_sum
        return convex and shape.n_outputs == 1 and _few_rows(shape.n_samples, shape.widths)

    def spilled_bytes(self, shape: Shape, options: Options, history: int) -> int:
        """All messages, unless they are rounded, which are looked through.

        ``shape``, ``options`` and ``history`` as of the method that this overrides.
        """
        from fastadmm.engine.spilled import CAN_SPILL

        traits = shape.traits
        if not (CAN_SPILL and traits.convex) or options.secrecy != "none":
            return 0
        if choose_directions(traits, options, elsewhere=False)[0]:
            return 0
        in_file = _kept(shape, history) + (0 if traits.vector else shape.n_parties)
        return 8 * in_file * shape.n_samples

    def updates(self, shape: Shape, options: Options) -> list[str]:
        """Solvers of a metric."""
        from fastadmm.parties.direction import choose_metric_solver

        return [choose_metric_solver(*block)[0] for block in zip(shape.blocks, shape.densities)]

    def factor_bytes(self, shape: Shape, options: Options) -> int:
        """Factors, computed anew in each metric, by as many parties at once as there are threads."""
        if shape.usual and self.models_few_rows(shape):  # gradient directions, while its model proves more
            return 0
        side = {"gram": shape.widths, "kernel": [shape.n_samples] * shape.n_parties}
        solvers = self.updates(shape, options)
        squares = sorted((side[s][m] ** 2 if s in side else 0 for m, s in enumerate(solvers)), reverse=True)
        # The kernel side is kept beside its factor; a Gram matrix is summed from up to four parts.
        return 16 * sum(squares) + 5 * 8 * sum(squares[: shape.n_threads])

    def passes(self, update: str) -> int:
        """For the gradient and the direction."""
        return 3 if update == "kernel" else 2

    def span_work(self, shape: Shape, history: int) -> float:
        """The Hessian over all messages."""
        return 2.0 * shape.n_samples * float(_kept(shape, history)) ** 2


def _all_rows(problem: Problem, engine: Engine, history: int | None) -> tuple[str, float]:
    """The best method on all columns, if any, and the passes of dual coordinate ascent to try before.

    ``history``: messages that a party may keep; None with few rows.
    """
    from fastadmm.coordinator.metric_limits import directions_for_few_rows
    from fastadmm.coordinator.subspace.row_ascent import passes_worth_a_try
    from fastadmm.coordinator.subspace.stacked import goes_by_stacked_rows, of_few_rows

    if history is not None:
        how = goes_by_stacked_rows(problem, engine, history)
        return how, passes_worth_a_try(problem, engine, history)
    most = directions_for_few_rows(problem.n_parties, problem.n_samples)
    return of_few_rows(problem, engine), passes_worth_a_try(problem, engine, most)


def _of_kinks(problem: Problem, options: Options, engine: Engine, elsewhere: bool) -> Method | None:
    """The method for losses with kinks that reads all columns in place, if that is best; else None."""
    from fastadmm.coordinator.metric_limits import directions_for_kinks
    from fastadmm.coordinator.subspace.row_ascent import passes_worth_a_try
    from fastadmm.coordinator.subspace.stacked import goes_by_stacked_rows
    from fastadmm.coordinator.subspace.stacked_smoothed import StackedSmoothedMethod
    from fastadmm.coordinator.subspace.work_of_ways import BENDS

    if not _at_hand(options, elsewhere) or options.history is not None:
        return None
    most = directions_for_kinks(problem.n_parties, engine.all_rows(problem.n_samples))
    few = _few_rows(problem.n_samples, [block.shape[1] for block in problem.blocks])
    how = "" if few else goes_by_stacked_rows(problem, engine, most, BENDS)
    passes = passes_worth_a_try(problem, engine, most)
    if not (how or passes):
        return None
    made = StackedSmoothedMethod(how, problem, engine, options.history, passes)
    made.coordinator.at_hand, made.coordinator.forecast.wanted = True, options.gap
    return made


def _at_hand(options: Options, elsewhere: bool) -> bool:
    """Whether rounds cost only arithmetic, and answers may reveal what must not leave a machine."""
    return options.directions == "auto" and not elsewhere


def _worth(n_samples: int, widths: Sequence[int], densities: Sequence[float]) -> int:
    from fastadmm.coordinator.metric_limits import directions_worth

    return directions_worth(n_samples, widths, densities)


def _few_rows(n_samples: int, widths: Sequence[int]) -> bool:
    from fastadmm.coordinator.subspace.few_rows import has_few_rows

    return has_few_rows(n_samples, sum(widths))


def _kept(shape: Shape, history: int) -> int:
    """Directions of all parties, one per class of a message; orthogonal, so at most as many as columns.

    A round adds two, or in one process all columns if they are few; and a run may start with one.
    """
    from fastadmm.coordinator.metric_limits import (
        directions_for_kinks,
        directions_of_few_numbers,
        directions_per_party,
    )
    from fastadmm.coordinator.multinomial.narrow import all_columns_pay
    from fastadmm.coordinator.subspace.memory_of_ways import most_columns_of_kinks
    from fastadmm.coordinator.subspace.whole_span import whole_span_pays
    from fastadmm.coordinator.subspace.work_of_ways import BENDS, SPAN

    columns, rounds = (shape.widths, shape.densities), SPAN if shape.traits.smooth else BENDS
    if shape.n_outputs > 1:
        whole = all_columns_pay(shape.n_samples, shape.widths, shape.n_outputs)
    else:
        most = history
        if not shape.traits.smooth and history >= directions_for_kinks(shape.n_parties, shape.n_samples):
            most = most_columns_of_kinks(shape.n_samples, shape.widths, history)
        whole = whole_span_pays(shape.n_samples, *columns, most, shape.quadratic, rounds)
    if whole:
        return sum(shape.widths)
    if shape.n_outputs == 1:  # where messages are short, a limit grows
        few = directions_of_few_numbers(shape.n_parties, shape.n_samples)
        if shape.traits.smooth:
            few = min(few, directions_per_party(shape.n_parties))
        history = max(history, few)
    each = shape.n_outputs * min(history, 2 * shape.rounds + 1, shape.messages)
    return sum(min(each, width) for width in shape.widths)


def choose_directions(traits: Traits, options: Options, elsewhere: bool) -> tuple[bool, str]:
    """Whether parties answer with both directions in a round, and why."""
    asked, suited = options.directions, traits.convex and traits.smooth and not traits.vector
    if asked == "both" and not suited:
        raise ConfigError(
            "directions: 'both' needs a smooth convex loss and one predictor per sample; choose 'one' or "
            "'auto'"
        )
    if asked != "auto":
        return asked == "both", "asked for"
    if not suited:
        return False, "loss with kinks, not convex, or with several predictors per sample"
    if options.gap < _SINGLE_GAP:
        return False, "the gap is too small for messages in single precision"
    if elsewhere:
        return True, "a round is an exchange: two directions in single precision are no more bytes"
    return False, "in one process messages need not be short"
