"""The declaration of the scheme ``proximal``: regularisers with kinks, and sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastadmm.coordinator.scheme import CG_STEPS, Needs, Options, Scheme, Shape
from fastadmm.problem.traits import Traits

if TYPE_CHECKING:
    from fastadmm.coordinator.method import Method
    from fastadmm.engine.engine import Engine
    from fastadmm.problem.problem import Problem

__all__ = ["Proximal"]

#: Vectors of a message's length beside messages: points of the hull, gradients, curvatures and what parties
#: work with, at least; beside their answers of a round; and the same with kinks in the loss or several
#: classes. bench/memory.py measures them.
_WORK, _WORK_BESIDE_ANSWERS, _WORK_OTHERWISE = 23, 16, 30


#: The same of several classes with all columns; Hessians at a time.
_WORK_OF_NARROW_CLASSES, _HESSIANS = 12, 12


class Proximal(Scheme):
    """See :mod:`fastadmm.coordinator.proximal.proximal`."""

    name = "proximal"
    rounds = "ten to a few tens"
    remarks = (
        "the same idea for regularisers with kinks and for bounded weights ([solver.md](solver.md#proximal))"
    )
    # More have not been measured: its small problems grow with the cube of their number.
    needs = Needs(convex=True, most_parties=300, most_parts=1024)
    accelerates_late = True
    rare = "only runs of many rounds, or whose gap has stalled"

    def why(self, traits: Traits, given: Sequence[str]) -> str:
        """Whatever `subspace` does not do."""
        return "regularizer or constraint beyond squared l2: fewest rounds"

    def method(self, traits: Traits) -> type[Method]:
        """One for one predictor per sample, one for several."""
        from fastadmm.coordinator.proximal.multinomial import MultinomialProximalMethod
        from fastadmm.coordinator.proximal.proximal import ProximalMethod

        return MultinomialProximalMethod if traits.vector else ProximalMethod

    def make(self, problem: Problem, options: Options, engine: Engine, elsewhere: bool) -> Method:
        if not elsewhere and options.history is None:
            from fastadmm.coordinator.proximal.kinked_columns import (
                KinkedColumnsMethod,
                goes_by_interior_points,
            )
            from fastadmm.coordinator.proximal.narrow import NarrowProximalMethod, goes_by_all_columns
            from fastadmm.coordinator.proximal.narrow_classes import NarrowClassesMethod
            from fastadmm.coordinator.proximal.stacked import (
                StackedClassesMethod,
                StackedProximalMethod,
                goes_by_sparse_columns,
            )
            from fastadmm.coordinator.proximal.wide import WideProximalMethod, goes_by_columns

            if way := goes_by_sparse_columns(problem, engine):
                stacked = StackedClassesMethod if problem.traits.vector else StackedProximalMethod
                return stacked(way, problem, engine, options.gap)
            if goes_by_columns(problem, engine):
                return WideProximalMethod(problem, engine)
            if goes_by_interior_points(problem, engine):
                return KinkedColumnsMethod(problem, engine, options.gap)
            if goes_by_all_columns(problem, engine):
                narrow = NarrowClassesMethod if problem.traits.vector else NarrowProximalMethod
                return narrow(problem, engine, options.gap)
        return super().make(problem, options, engine, elsewhere)

    def history(self, shape: Shape, options: Options) -> tuple[int, int]:
        """Directions per party, however short memory is."""
        from fastadmm.coordinator.metric_limits import directions_for_faces

        most = directions_for_faces(shape.n_parties * shape.n_outputs, shape.n_samples, shape.traits.smooth)
        return most, most

    def state_bytes(self, shape: Shape, history: int) -> tuple[int, int]:
        """All messages; the differences of a run that goes on with steps of sharing."""
        from fastadmm.coordinator.admm.coordinator import acceleration_memory
        from fastadmm.coordinator.metric_limits import MOST_IN_COMMON
        from fastadmm.coordinator.proximal.wide import MOST_COLUMNS, MOST_ROWS

        if shape.usual and _narrow_classes(shape):
            columns = sum(shape.widths)
            work = shape.n_outputs * (shape.n_parties + _WORK_OF_NARROW_CLASSES)
            return 8 * (columns + work) * shape.n_samples + 8 * (shape.n_outputs * columns) ** 2, 0
        kept = shape.n_outputs * _kept(shape, history)
        kept *= 2 if shape.traits.ball else 1  # of which combinations are formed
        # Beside pieces of messages, Hessians of steps and searches.
        system = shape.piece_bytes(kept) + 8 * _HESSIANS * kept**2 if shape.n_outputs == 1 else 0
        if shape.n_outputs == 1 and shape.n_samples <= min(MOST_ROWS, sum(shape.widths) - 1):
            # Columns as they are made and as they are joined, and those of a face with its weights.
            kept = max(kept, 4 * min(MOST_COLUMNS, sum(shape.widths)))
        work = shape.n_parties + _WORK_OTHERWISE
        if shape.traits.smooth and shape.n_outputs == 1:
            work = max(_WORK, shape.n_parties + _WORK_BESIDE_ANSWERS)
        width = sum(shape.widths)
        together = shape.n_outputs > 1 and shape.n_outputs * width <= MOST_IN_COMMON
        if together:  # all columns may be sent at once
            kept = max(kept, width)
        rows = kept + work * shape.n_outputs
        coefficients = shape.n_outputs * width if together else kept
        # Newton's system has a row for every direction of every class; else it is small beside the messages.
        system += 8 * 4 * coefficients**2 if shape.n_outputs > 1 else 0
        memory = acceleration_memory(shape.n_parties, shape.message_size)
        steps = (2 * memory + 5) * (shape.n_parties + 1) if memory else 0
        system += shape.direction_bytes(history)
        return 8 * rows * shape.n_samples + system, 8 * steps * shape.message_size

    def columns_bytes(self, shape: Shape) -> int | None:
        """Columns of a wide table, columns one by one, or rows side by side and a Hessian.

        ``shape`` as of the method that this overrides.
        """
        from fastadmm.blocks.stored import dense_columns
        from fastadmm.coordinator.proximal.kinked_work import bytes_of_columns
        from fastadmm.coordinator.proximal.narrow import all_columns_pay, most_columns
        from fastadmm.coordinator.proximal.sampled_columns import bytes_of_sets
        from fastadmm.coordinator.proximal.wide import FEW_COLUMNS, MOST_COLUMNS, MOST_ROWS
        from fastadmm.coordinator.subspace.memory_of_ways import MOST_ON_GRAM, bytes_of_copy, bytes_of_hessian
        from fastadmm.coordinator.subspace.whole_span import bytes_of_samples, bytes_side_by_side
        from fastadmm.coordinator.subspace.work_of_ways import FACES, of_first_set

        n, traits, width = shape.n_samples, shape.traits, sum(shape.widths)
        if not shape.as_they_are:
            return None
        if shape.n_outputs > 1:
            return self._class_columns_bytes(shape)
        taken = None
        if traits.smooth and shape.penalty_is_a_sum:
            most = most_columns(n, shape.widths)
            # The Gram matrix of the columns in use is a last resort; few runs have more than chosen first.
            on_gram = of_first_set(n, shape.widths, shape.densities) if shape.usual else MOST_ON_GRAM
            taken = bytes_side_by_side(
                n, shape.widths, shape.densities, most, shape.quadratic, FACES, min(on_gram, MOST_ON_GRAM)
            )
            columns = n, shape.widths, shape.densities
            if taken is None and shape.kinks_at_zero and all_columns_pay(*columns, shape.quadratic):
                dense = dense_columns(*columns[1:], apart=False)
                samples = bytes_of_samples(n, width, dense, shape.quadratic)
                taken = math.ceil(bytes_of_copy(*columns, apart=False) + bytes_of_hessian(width) + samples)
            if taken is not None and shape.kinks_at_zero:
                # Let go of before columns are taken one by one; their Hessian is smaller than that of all.
                own = bytes_of_sets(*columns, shape.quadratic, shape.usual)
                taken = max(taken, own)
        if taken is None and shape.kinks_at_zero and n <= min(MOST_ROWS, width - 1):
            many = min(MOST_COLUMNS, width) if not shape.usual else min(FEW_COLUMNS + n // 2, width)
            taken = 8 * 4 * many * n
        elif taken is None and not traits.smooth and traits.convex and shape.penalty_is_a_sum:
            taken = bytes_of_columns(n, shape.widths, shape.densities, shape.kinks_at_zero)
        return None if taken is None else taken + 8 * (shape.n_parties + _WORK) * n

    def _class_columns_bytes(self, shape: Shape) -> int | None:
        """Bytes of the columns that several classes need."""
        from fastadmm.coordinator.subspace.memory_of_ways import bytes_of_columns
        from fastadmm.coordinator.subspace.whole_span import classes_pay_one_by_one

        columns = shape.n_samples, shape.widths, shape.densities, shape.n_outputs
        smooth = shape.traits.smooth and shape.penalty_is_a_sum
        if not (smooth and classes_pay_one_by_one(*columns, _narrow_classes(shape))):
            return None
        work = shape.n_parties + _WORK_OTHERWISE
        return bytes_of_columns(*columns) + 8 * work * shape.n_outputs * shape.n_samples

    def spilled_bytes(self, shape: Shape, options: Options, history: int) -> int:
        """All messages of one predictor per sample: of classes, and in balls, combinations are formed.

        ``shape``, ``options`` and ``history`` as of the method that this overrides.
        """
        from fastadmm.engine.spilled import CAN_SPILL

        if not CAN_SPILL or shape.traits.vector or shape.traits.ball:
            return 0
        return 8 * _kept(shape, history) * shape.n_samples

    def passes(self, update: str) -> int:
        """For best response, face and search."""
        return 5 + (2 * CG_STEPS if update == "proximal" else 0)


def _kept(shape: Shape, history: int) -> int:
    """Directions of all parties, of one class: one a round, and those that a run begins with."""
    from fastadmm.coordinator.metric_limits import directions_of_few_numbers
    from fastadmm.coordinator.proximal.narrow import all_columns_pay

    smooth = shape.traits.smooth and shape.penalty_is_a_sum
    columns = shape.n_samples, shape.widths, shape.densities
    if shape.n_outputs == 1 and smooth and all_columns_pay(*columns, shape.quadratic):
        return sum(shape.widths)
    few = directions_of_few_numbers(shape.n_parties * shape.n_outputs, shape.n_samples)
    each = min(max(history, few) + 2, shape.rounds + 2, shape.messages)
    return sum(min(each, width) for width in shape.widths)


def _narrow_classes(shape: Shape) -> bool:
    """Whether the columns of several classes are all sent at once."""
    from fastadmm.coordinator.metric_limits import MOST_IN_COMMON
    from fastadmm.coordinator.multinomial.narrow import all_columns_pay

    common = 1 < shape.n_outputs <= MOST_IN_COMMON / sum(shape.widths)
    pays = common and all_columns_pay(shape.n_samples, shape.widths, shape.n_outputs)
    return pays and shape.traits.smooth and shape.penalty_is_a_sum
