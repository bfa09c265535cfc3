"""A party of mode "message": it answers a public target with a noisy message and never shows the clean one.

The order is fixed: clip the target, solve, certify, clip the message, draw noise, store, charge the ledger,
send. Solving always takes the same number of steps, whatever the data, and ends in a release.
"""

import hashlib
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.linalg

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock, as_block
from fastadmm.conversation.answering import Unanswerable
from fastadmm.conversation.gate import LARGEST, certified
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError
from fastadmm.parties.xupdate.choose import MAX_EIGEN_SIDE
from fastadmm.privacy.accounting import noise_multiplier, zcdp_budget, zcdp_of
from fastadmm.privacy.ledger import Charge, Spent
from fastadmm.privacy.noise import Calibration, GridMessage, calibrate
from fastadmm.privacy.private_run import PrivateParty
from fastadmm.privacy.releases import Books, Payment, Releases
from fastadmm.privacy.sensitivity import (
    Sensitivity,
    clip_rows,
    message_sensitivity,
    solver_error,
    solver_slack,
)
from fastadmm.privacy.statement import EXACT_WEIGHTS, PartyGuarantee, PrivacyStatement
from fastadmm.settings.privacy import MessagePrivacy

#: Newton steps inside a bracket: 60 bisections alone would give 18 digits.
_STEPS = 60


def clipped_block(block: FeatureBlock, name: str) -> FeatureBlock:
    """:func:`clip_rows` of a block. Shapes: block, the result (N, d)."""
    if type(block) is DenseBlock:
        return as_block(clip_rows(block.matrix), name)
    if type(block) is CSRBlock:
        return as_block(clip_rows(block.to_scipy()), name)
    raise ConfigError(f"{name}: privacy needs the features in memory")


def fixed_ball_solution(values: np.ndarray, right: np.ndarray, radius: float) -> tuple[np.ndarray, float]:
    r"""Minimise :math:`\tfrac12\sum_j \lambda_j x_j^2 - \langle p, x\rangle` over a ball, in constant time.

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


MODELS_NOT_COVERED = (
    "the local models x_m, predictions made with them and any figure measured with them (T7: message noise "
    "does not cover them)"
)


def message_level(settings: MessagePrivacy, mu: float, n_samples: int) -> tuple[Sensitivity, Calibration]:
    """How far one record moves a message, by a theorem of ``docs/privacy.md``, and the noise this takes."""
    s, sensitivity = settings, message_sensitivity(settings, mu, n_samples)
    if s.sampler == "discrete":
        multiplier = math.sqrt(s.rounds / (2.0 * zcdp_budget(s.epsilon, s.delta)))
    else:
        multiplier = noise_multiplier(s.epsilon, s.delta, s.rounds)
    return sensitivity, calibrate(sensitivity.value, multiplier, n_samples)


def message_guarantee(
    name: str, settings: MessagePrivacy, mu: float, n_samples: int, spent: Spent, reason: str
) -> PartyGuarantee:
    """What a party is guaranteed, with all T rounds charged, and messages that had to be drawn again."""
    sensitivity, level = message_level(settings, mu, n_samples)
    return PartyGuarantee(
        name=name,
        mechanism="gaussian message" if settings.sampler != "discrete" else "discrete gaussian message",
        theorem=sensitivity.theorem,
        sensitivity=level.sensitivity,
        sigma=level.sigma,
        rounds=settings.rounds,
        gdp=max(level.gdp * math.sqrt(settings.rounds), spent.total_gdp),
        reason=reason,
    )


class MessageParty(PrivateParty):
    """Holder of clipped rows that sends noisy messages. Shapes: block (N, d); weights (d,)."""

    family = "message"
    clips_rows = True

    def __init__(self, name: str, block: FeatureBlock, books: Books, mu: float, engine: Engine) -> None:
        if block.shape[1] > MAX_EIGEN_SIDE:
            raise ConfigError(
                f"{name}: {block.shape[1]} columns: a private x-update needs the Gram matrix of at most "
                f"{MAX_EIGEN_SIDE}; give the party fewer columns"
            )
        self.name, self.block, self.books, self.mu, self.engine = name, block, books, mu, engine
        self.settings = books.settings
        self.level = message_level(self.settings, mu, block.shape[0])[1]
        self.slack = solver_slack(self.settings, mu, block.shape[0])
        self.noise, self.stored = books.noise(), Releases(books.releases)
        self.kind, self.reason = "private ball", f"mu {mu:.4g}, sigma {self.level.sigma:.6g}"
        self.weights = np.zeros(block.shape[1])
        self._rounds = range(1, self.settings.rounds + 1)

    @classmethod
    def opened(cls, name: str, block: FeatureBlock, engine: Engine, terms: Mapping[str, Any]) -> Self:
        """A party by the terms of a session, which also hold its own ``books``."""
        books: Books = terms["books"]
        if not float(terms["penalty"]) > 0.0:
            raise Unanswerable("argument 'penalty': mode 'message' needs a positive one")
        mu = float(terms["regularization"]) / float(terms["penalty"])
        if not 1.0 / LARGEST <= mu <= LARGEST:
            raise Unanswerable("arguments 'regularization' and 'penalty': their ratio is out of range")
        return cls(name, clipped_block(block, name), books, mu, engine)

    @cached_property
    def eigen(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues of the Gram matrix, of shape (d,), and its eigenvectors, of shape (d, d)."""
        gram = self.block.gram(self.engine)
        try:
            values, vectors = scipy.linalg.eigh(gram, overwrite_a=True, check_finite=False)
        except scipy.linalg.LinAlgError:  # no answer to a target will have a certificate
            values, vectors = np.full(len(gram), np.nan), np.full(gram.shape, np.nan)
        return np.maximum(values, 0.0), vectors

    def public_target(self, w: np.ndarray) -> np.ndarray:
        """A target as every bound takes it: clipped to [-W, W]."""
        limit = self.settings.clip_of_targets
        return np.clip(w, -limit, limit)

    def solve(self, w: np.ndarray) -> np.ndarray:
        """The certified clean message: ``docs/privacy.md#t6-inexact-solver``. Shapes: w, result (N,)."""
        (values, vectors), w = self.eigen, self.public_target(w)
        right = vectors.T @ self.block.transposed_product(w, self.engine)
        coordinates, nu = fixed_ball_solution(values + self.mu, right, self.settings.ball)
        self.weights = np.nan_to_num(vectors @ coordinates)
        message = self.block.product(self.weights, self.engine)
        error = self._certify(self.weights, nu, message, w)
        return certified(message, error, self.slack)

    def _certify(self, x: np.ndarray, nu: float, message: np.ndarray, w: np.ndarray) -> float:
        """T6 at the point of the sphere (or ball) next to x, plus what lies between the two: rounding."""
        residual = self.block.transposed_product(message - w, self.engine) + (self.mu + nu) * x
        size, radius = float(np.linalg.norm(x)), self.settings.ball
        drift = abs(radius - size) if nu > 0.0 else max(size - radius, 0.0)
        moved = (float(self.eigen[0][-1]) + self.mu + nu) * drift
        between = float(np.linalg.norm(message)) * drift / max(size, 1e-300)
        return solver_error(float(np.linalg.norm(residual)) + moved, self.mu) + between

    def noised(self, w: np.ndarray, round: int) -> GridMessage:
        """Solve, clip, add noise; the clean message is dropped here. Shapes: w (N,)."""
        return self.noise.release(self.exact(w), self.level, round, self.engine)

    def exact(self, w: np.ndarray) -> np.ndarray:
        """The clipped message before noise, of shape (N,); only :meth:`noised` and audits may see it."""
        message, b = self.solve(w), self.settings.message_clip
        return message if b is None else np.clip(message, -b, b)

    def charge(self, number: int) -> Charge:
        """What the message of a round costs."""
        mu = self.level.gdp
        cost = {"rho": zcdp_of([mu])} if self.settings.sampler == "discrete" else {"gdp": mu}
        return Charge.to(self.books.account, self.books.run, f"message {number}", **cost)

    def planned(self) -> dict[str, list[Charge]]:
        """What each message costs."""
        return {self._name(t): [self.charge(t)] for t in self._rounds}

    def payment(self, number: int) -> Payment:
        """What a message still costs, with the ledger that pays it."""
        return self.books.payment([self.charge(number)])

    def noisy(self, target: np.ndarray, round: int) -> dict[str, Any]:
        """The message of a round: stored, or drawn once. Shapes: target (N,)."""
        if round not in self._rounds:
            raise Unanswerable(f"call 'noisy': round {round} of {self.settings.rounds}")

        def draw() -> dict[str, Any]:
            message = self.noised(target, round)
            return {"integers": message.integers, "grid": message.grid}

        def values(sent: Mapping[str, Any]) -> np.ndarray:
            return GridMessage(sent["integers"], float(sent["grid"])).values

        public = np.ascontiguousarray(self.public_target(target))
        question = hashlib.sha256(public.tobytes()).hexdigest()
        paid = self.payment(round)
        return {"message": self.stored.obtain(self._name(round), question, paid, draw, values)}

    def _name(self, round: int) -> str:
        """Name of a message that is stored."""
        return f"round-{round:06d}-{self.name}"

    def settle(self, target: np.ndarray) -> None:
        """Answer the last public target for itself: the model, which is not sent. Shapes: target (N,)."""
        self.solve(target)

    def statement(self) -> PrivacyStatement:
        """What the run guarantees this party."""
        guarantee = message_guarantee(self.name, self.settings, self.mu, self.block.shape[0], *self.spent())
        seen = {"coordinator": f"record ids and order, N, {self.settings.rounds} noisy message(s)"}
        return self.stated(guarantee, seen, (MODELS_NOT_COVERED,), EXACT_WEIGHTS)

    def export(self) -> dict[str, np.ndarray]:
        """Nothing: what was sent is stored as a release."""
        return {}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Nothing to do."""
