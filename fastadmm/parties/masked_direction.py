r"""A party in a subspace run of which the coordinator sees sums only.

All parties' directions of a round are one direction :math:`d = (d_1, \dots, d_M)` with one coefficient, so
requests are the same for every party. Directions become orthonormal jointly: the coordinator learns their
inner products, as sums, and tells all parties how to combine them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.answering import Unanswerable
from fastadmm.conversation.gate import LARGEST, saturated
from fastadmm.engine.engine import Engine
from fastadmm.parties.direction import DirectionParty, public_rows
from fastadmm.parties.masked import MaskedParty

#: Most directions of an answer: of few columns all are fewer bytes than most runs take without them.
MOST_AT_ONCE = 128


class MaskedDirectionParty(MaskedParty, DirectionParty):
    """Holder of a feature block and of its parts of the summed directions. Shapes: directions (K, d)."""

    family = "subspace_sums"
    remembers = ("directions",)

    @classmethod
    def opened(cls, name: str, block: FeatureBlock, engine: Engine, terms: Mapping[str, Any]) -> Self:
        return cls(name, block, float(terms["regularization"]), engine)._begin(terms)

    def respond_masked(
        self,
        exchange: int,
        gradient: np.ndarray,
        coefficients: np.ndarray,
        units: np.ndarray,
        measured: int,
        step: float,
    ) -> dict[str, Any]:
        r"""Answer a loss gradient with parts of new directions: block gradient, block Newton, random ones.

        The last are :math:`D_m^\top s` for public random vectors s, so that of all parties together they are
        :math:`D^\top s`. Inner products of directions are told of the new ones, and of the last ``measured``
        before them.

        Shapes: gradient (N,); coefficients (K,); units (2,) or (n,).
        Scaling: gradient summed scaling.
        """
        known, fresh = len(self.directions), len(units)
        if not 2 <= fresh <= MOST_AT_ONCE or measured > known or self.metric is None:
            raise Unanswerable(
                f"call 'respond_masked': {fresh} factors, {measured} of {known} directions to measure, or no "
                "metric yet"
            )
        residual = self.residual(gradient, coefficients)
        wanted = [-residual, self._newton_direction(residual)]
        if fresh > 2:
            n = self.engine.all_rows(self.block.shape[0])
            wanted += list(self._public_images(0, fresh - 2, public_rows(fresh - 2, n)))
        for direction, unit in zip(wanted, units):
            direction = saturated(unit * direction, LARGEST)
            size = float(np.linalg.norm(direction))
            # Any direction is one, so a long one may be shortened: the range of its message is then known.
            short = direction / size if size > 1.0 else direction
            self.directions = np.vstack([self.directions, short])
        own, before = self.directions, known - measured
        numbers = [float(d @ e) for e in own[before:known] for d in own[:known]]
        numbers += [float(d @ e) for e in own[known:] for d in own]
        rows = np.concatenate([self.block.product(d, self.engine) for d in own[known:]])
        return self.sealed(rows, step, [float(residual @ residual), *numbers])

    def _newton_direction(self, residual: np.ndarray) -> np.ndarray:
        r"""Block Newton step; along the gradient alone, where the party cannot factorise."""
        if self._can_newton():
            return -self._newton(residual)
        assert self.metric is not None
        square = float(residual @ residual)
        image = self.block.product(residual, self.engine)
        bend = float(image @ (self.metric * image)) + self.regularization * square
        return -residual * (square / bend if bend > 0.0 else 0.0)

    def orthonormalise(self, factors: np.ndarray, kept: int) -> None:
        """Replace all directions but the first ones by combinations of all. Shapes: factors (n, K)."""
        count = len(self.directions)
        if not len(factors) <= count - kept <= MOST_AT_ONCE or factors.shape[1] != count:
            raise Unanswerable(
                f"call 'orthonormalise': factors {factors.shape} for {count} directions, {kept} of them kept"
            )
        self.directions = np.vstack([self.directions[:kept], factors @ self.directions])

    def export(self) -> dict[str, np.ndarray]:
        return {**super().export(), **self.export_secrecy()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        super().restore(saved)
        self.restore_secrecy(saved)
