"""The declaration of the scheme ``proximal``: regularisers with kinks, and sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastadmm.coordinator.scheme import CG_STEPS, Needs, Options, Scheme, Shape
from fastadmm.problem.traits import Traits

if TYPE_CHECKING:
    from fastadmm.coordinator.method import Method

__all__ = ["Proximal"]


class Proximal(Scheme):
    """See :mod:`fastadmm.coordinator.proximal.proximal`."""

    name = "proximal"
    rounds = "ten to a few tens"
    remarks = (
        "the same idea for regularisers with kinks and for bounded weights ([solver.md](solver.md#proximal))"
    )
    # More have not been measured: its small problems grow with the cube of their number.
    needs = Needs(convex=True, most_parties=300, most_parts=1024)

    def why(self, traits: Traits, given: Sequence[str]) -> str:
        """Whatever `subspace` does not do."""
        return "regularizer or constraint beyond squared l2: fewest rounds"

    def method(self, traits: Traits) -> type[Method]:
        """One for one predictor per sample, one for several."""
        from fastadmm.coordinator.proximal.multinomial import MultinomialProximalMethod
        from fastadmm.coordinator.proximal.proximal import ProximalMethod

        return MultinomialProximalMethod if traits.vector else ProximalMethod

    def history(self, shape: Shape, options: Options) -> tuple[int, int]:
        """Directions per party, however short memory is."""
        from fastadmm.coordinator.metric_limits import directions_for_faces

        most = directions_for_faces(shape.n_parties * shape.n_outputs, shape.n_samples)
        return most, most

    def state_bytes(self, shape: Shape, history: int) -> tuple[int, int]:
        """All messages."""
        # The store doubles when it is full; beside it the parts of it on faces, and the points of the hull.
        store = 8 * shape.message_size * shape.n_parties * (3 * (history + 1) + 12)
        # Newton's system has a row for every direction of every class; else it is small beside the store.
        unknowns = shape.n_outputs * sum(min(history, width) for width in shape.widths)
        return store + (8 * 4 * unknowns * unknowns if shape.n_outputs > 1 else 0), 0

    def passes(self, update: str) -> int:
        """For best response, face and search."""
        return 5 + (2 * CG_STEPS if update == "proximal" else 0)
