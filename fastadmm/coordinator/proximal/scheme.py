"""The declaration of the scheme ``proximal``: regularisers with kinks, and sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastadmm.method.scheme import Needs, Options, Scheme, Shape
from fastadmm.problem.traits import Traits

if TYPE_CHECKING:
    from fastadmm.method.method import Method

#: Vectors of a message's length beside messages: points of the hull, gradients, curvatures and what parties
#: work with, at least; beside their answers of a round; and the same with kinks in the loss or several
#: classes. bench/memory.py measures them.
_WORK, _WORK_BESIDE_ANSWERS, _WORK_OTHERWISE = 23, 16, 30


#: Hessians at a time.
_HESSIANS = 12


class Proximal(Scheme):
    """See :mod:`fastadmm.coordinator.proximal.proximal`."""

    name = "proximal"
    rounds = "ten to a few tens"
    remarks = (
        "the same idea for regularisers with kinks and for bounded weights ([solver.md](solver.md#proximal))"
    )
    # More have not been measured: its small problems grow with the cube of their number.
    needs = Needs(convex_penalty=True, uncoupled=True, most_parties=300, most_parts=1024)

    def why(self, traits: Traits, given: Sequence[str]) -> str:
        """Whatever `subspace` does not do."""
        return "regularizer or constraint beyond squared l2: fewest rounds"

    def method(self, traits: Traits) -> type[Method]:
        """One for one predictor per sample, one for several, one for losses that are not convex."""
        from fastadmm.coordinator.proximal.descent import DescentProximalMethod
        from fastadmm.coordinator.proximal.multinomial import MultinomialProximalMethod
        from fastadmm.coordinator.proximal.proximal import ProximalMethod

        if not traits.convex:
            return DescentProximalMethod
        return MultinomialProximalMethod if traits.vector else ProximalMethod

    def history(self, shape: Shape, options: Options) -> int:
        """Directions per party."""
        from fastadmm.coordinator.metric_limits import directions_for_faces

        return directions_for_faces(shape.n_parties * shape.n_outputs, shape.n_samples, shape.traits.smooth)

    def state_bytes(self, shape: Shape, history: int) -> tuple[int, int]:
        """All messages."""
        from fastadmm.coordinator.metric_limits import MOST_IN_COMMON

        kept = shape.n_outputs * _kept(shape, history)
        kept *= 2 if shape.traits.ball else 1  # of which combinations are formed
        # Beside pieces of messages, Hessians of steps and searches.
        system = shape.piece_bytes(kept) + 8 * _HESSIANS * kept**2 if shape.n_outputs == 1 else 0
        work = shape.n_parties + _WORK_OTHERWISE
        if shape.traits.smooth and shape.n_outputs == 1:
            work = max(_WORK, shape.n_parties + _WORK_BESIDE_ANSWERS)
        width = sum(shape.widths)
        together = shape.n_outputs > 1 and shape.n_outputs * width <= MOST_IN_COMMON
        if together:  # directions of a party soon span all of its columns
            kept = max(kept, 2 * width)
        rows = kept + work * shape.n_outputs
        coefficients = shape.n_outputs * width if together else kept
        # Newton's system has a row for every direction of every class; else it is small beside the messages.
        system += 8 * 4 * coefficients**2 if shape.n_outputs > 1 else 0
        system += shape.direction_bytes(history)
        return 8 * rows * shape.n_samples + system, 0

    def spilled_bytes(self, shape: Shape, options: Options, history: int) -> int:
        """All messages of one predictor per sample: of classes, and in balls, combinations are formed.

        ``shape``, ``options`` and ``history`` as of the method that this overrides.
        """
        from fastadmm.engine.spilled import CAN_SPILL

        if not CAN_SPILL or shape.traits.vector or shape.traits.ball:
            return 0
        return 8 * _kept(shape, history) * shape.n_samples


def _kept(shape: Shape, history: int) -> int:
    """Directions of all parties, of one class: one a round, and those that a run begins with."""
    from fastadmm.coordinator.metric_limits import all_at_once, directions_of_few_numbers

    if shape.n_outputs == 1 and all_at_once(shape.widths, shape.n_samples, None):
        return 2 * sum(shape.widths)  # moved from one place to another
    few = directions_of_few_numbers(shape.n_parties * shape.n_outputs, shape.n_samples)
    return sum(min(max(history, few) + 2, width) for width in shape.widths)
