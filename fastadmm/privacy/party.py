r"""A private party: it answers a public target with a noisy message and never shows the clean one.

The order is fixed: clip the target, solve, certify, clip the message, draw noise, store, charge the ledger,
send. Solving always takes the same number of steps, whatever the data, and ends in a release: where a
certificate failed it would be of the centre (:mod:`fastadmm.conversation.gate`).
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock, as_block
from fastadmm.conversation.gate import certified
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError
from fastadmm.parties.xupdate.choose import MAX_EIGEN_SIDE
from fastadmm.privacy.noise import Calibration, GridMessage, NoiseSource
from fastadmm.privacy.rows import clip_rows
from fastadmm.privacy.sensitivity import solver_error, solver_slack
from fastadmm.settings.privacy import MessagePrivacy

__all__ = ["MessageParty", "clipped_block", "fixed_ball_solution"]

#: Newton steps inside a bracket: 60 bisections alone would give 18 digits.
_STEPS = 60


def clipped_block(block: FeatureBlock, name: str) -> FeatureBlock:
    """:func:`clip_rows` of a block.

    Shapes: block, the result (N, d).
    """
    if type(block) is DenseBlock:
        return as_block(clip_rows(block.matrix), name)
    if type(block) is CSRBlock:
        return as_block(clip_rows(block.to_scipy()), name)
    raise ConfigError(f"{name}: privacy needs the features in memory")


def fixed_ball_solution(values: np.ndarray, right: np.ndarray, radius: float) -> tuple[np.ndarray, float]:
    r"""Minimise :math:`\tfrac12\sum_j \lambda_j x_j^2 - \langle p, x\rangle` over a ball, in constant time.

    Like :func:`fastadmm.parties.xupdate.ball.ball_solution`, without early exits, so that the time reveals
    nothing.

    Shapes: values, right, x (d,).
    """
    low, high, nu = 0.0, float(np.linalg.norm(right)) / radius, 0.0
    for _ in range(_STEPS):
        shifted = values + nu
        x = right / shifted
        square = float(x @ x)
        norm = np.sqrt(square)
        slope = float((x * x) @ (1.0 / shifted))
        low, high = (nu, high) if norm > radius else (low, nu)
        newton = nu + (norm / radius - 1.0) * square / (slope if slope > 0.0 else 1.0)
        nu = newton if low < newton < high else 0.5 * (low + high)
    inside = float(np.linalg.norm(right / values)) <= radius
    nu = 0.0 if inside else nu
    x = right / (values + nu)
    return (x if inside else x * (radius / float(np.linalg.norm(x)))), nu


class MessageParty:
    """Holder of a feature block in a run with noisy messages.

    Shapes: block (N, d); weights (d,).
    """

    def __init__(
        self,
        name: str,
        index: int,
        block: FeatureBlock,
        settings: MessagePrivacy,
        mu: float,
        level: Calibration,
        engine: Engine,
    ) -> None:
        if block.shape[1] > MAX_EIGEN_SIDE:
            raise ConfigError(
                f"{name}: {block.shape[1]} columns: a private x-update needs the Gram matrix of at most "
                f"{MAX_EIGEN_SIDE}; give the party fewer columns"
            )
        self.name, self.block, self.settings, self.mu = name, block, settings, mu
        self.level, self.engine = level, engine
        self.slack = solver_slack(settings, mu, block.shape[0])
        self.noise = NoiseSource(settings.sampler, settings.seed, index)
        self.weights = np.zeros(block.shape[1])
        self._values = self._vectors = np.zeros(0)
        self._prepared = False

    def prepare(self) -> None:
        """Factorise, once."""
        if not self._prepared:
            gram = self.block.gram(self.engine)
            try:
                values, self._vectors = scipy.linalg.eigh(gram, overwrite_a=True, check_finite=False)
            except scipy.linalg.LinAlgError:  # no answer to a target will have a certificate
                values, self._vectors = np.full(len(gram), np.nan), np.full(gram.shape, np.nan)
            self._values = np.maximum(values, 0.0)
            self._prepared = True

    def public_target(self, w: np.ndarray) -> np.ndarray:
        """A target as every bound takes it: clipped to [-W, W]."""
        limit = self.settings.clip_of_targets
        return np.clip(w, -limit, limit)

    def solve(self, w: np.ndarray) -> np.ndarray:
        r"""Set the weights to the answer to a target; return the certified message, which stays here.

        Theorem: ``docs/privacy.md#t6-inexact-solver``.

        Shapes: w, the result (N,).
        """
        self.prepare()
        w = self.public_target(w)
        radius = self.settings.ball
        right = self._vectors.T @ self.block.transposed_product(w, self.engine)
        coordinates, nu = fixed_ball_solution(self._values + self.mu, right, radius)
        self.weights = np.nan_to_num(self._vectors @ coordinates)
        message = self.block.product(self.weights, self.engine)
        error = self._certify(self.weights, nu, message, w)
        return certified(message, error, self.slack, self.settings.message_center)

    def _certify(self, x: np.ndarray, nu: float, message: np.ndarray, w: np.ndarray) -> float:
        """T6 at the point of the sphere (or ball) next to x, plus what lies between the two: rounding."""
        residual = self.block.transposed_product(message - w, self.engine) + (self.mu + nu) * x
        size, radius = float(np.linalg.norm(x)), self.settings.ball
        drift = abs(radius - size) if nu > 0.0 else max(size - radius, 0.0)
        moved = (float(self._values[-1]) + self.mu + nu) * drift
        between = float(np.linalg.norm(message)) * drift / max(size, 1e-300)
        return solver_error(float(np.linalg.norm(residual)) + moved, self.mu) + between

    def answer(self, w: np.ndarray, round: int) -> GridMessage:
        """Solve, clip, add noise; the clean message is dropped here.

        The caller has charged the release before it calls.

        Shapes: w (N,).
        """
        return self.noise.release(self.exact(w), self.level, round, self.engine)

    def exact(self, w: np.ndarray) -> np.ndarray:
        """The clipped message before noise, of shape (N,); only :meth:`answer` and audits may see it."""
        message = self.solve(w)
        b, c = self.settings.message_clip, self.settings.message_center
        return message if b is None else np.clip(message, c - b, c + b)
