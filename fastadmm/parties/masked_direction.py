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
from fastadmm.parties.direction import DirectionParty
from fastadmm.parties.masked import MaskedParty


class MaskedDirectionParty(MaskedParty, DirectionParty):
    """Holder of a feature block and of its parts of the summed directions. Shapes: directions (K, d)."""

    family = "subspace_sums"
    remembers = ("directions",)

    @classmethod
    def opened(cls, name: str, block: FeatureBlock, engine: Engine, terms: Mapping[str, Any]) -> Self:
        return cls(name, block, float(terms["regularization"]), engine)._begin(terms)

    def respond_masked(
        self, exchange: int, gradient: np.ndarray, coefficients: np.ndarray, units: np.ndarray, step: float
    ) -> dict[str, Any]:
        r"""Answer a loss gradient with the parts of two new directions: block gradient and block Newton.

        Shapes: gradient (N,); coefficients (K,); units (2,).
        Scaling: gradient summed scaling.
        """
        if len(units) != 2 or self.metric is None:
            raise Unanswerable("call 'respond_masked': not two factors, or there is no metric yet")
        residual = self.residual(gradient, coefficients)
        known = len(self.directions)
        for direction, unit in zip((-residual, self._newton_direction(residual)), units):
            direction = saturated(unit * direction, LARGEST)
            size = float(np.linalg.norm(direction))
            # Any direction is one, so a long one may be shortened: the range of its message is then known.
            fresh = direction / size if size > 1.0 else direction
            self.directions = np.vstack([self.directions, fresh])
        measured = [
            float(d @ e) for e in self.directions[max(0, known - 2) : known] for d in self.directions[:known]
        ]
        measured += [float(d @ e) for e in self.directions[known:] for d in self.directions]
        rows = np.concatenate([self.block.product(d, self.engine) for d in self.directions[known:]])
        return self.sealed(rows, step, [float(residual @ residual), *measured])

    def _newton_direction(self, residual: np.ndarray) -> np.ndarray:
        r"""Block Newton step; along the gradient alone, where the party cannot factorise."""
        if self._can_newton():
            return -self._newton(residual)
        assert self.metric is not None
        square = float(residual @ residual)
        image = self.block.product(residual, self.engine)
        bend = float(image @ (self.metric * image)) + self.regularization * square
        return -residual * (square / bend if bend > 0.0 else 0.0)

    def orthonormalise(self, factors: np.ndarray) -> None:
        """Replace the last two directions by combinations of all. Shapes: factors (n, K)."""
        if len(self.directions) < 2 or len(factors) > 2 or factors.shape[1] != len(self.directions):
            raise Unanswerable(
                f"call 'orthonormalise': factors {factors.shape} for {len(self.directions)} directions"
            )
        self.directions = np.vstack([self.directions[:-2], factors @ self.directions])

    def export(self) -> dict[str, np.ndarray]:
        return {**super().export(), **self.export_secrecy()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        super().restore(saved)
        self.restore_secrecy(saved)
