r"""A party: a proximal oracle over a private block.

Given a public target w, it answers with the message :math:`a_m = D_m x_m`. It
keeps nothing that the coordinator would need to restart it: its factorisation
is a cache, its weights are its last answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fastadmm.blocks.block import FeatureBlock, check_scale
from fastadmm.conversation.answering import Answering, checked
from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.choose import choose_penalised
from fastadmm.problem.constraints import Constraint, get_constraint
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.regularizers import Regularizer, get_regularizer


class Opened(Answering):
    """A party that a run begins with its regularisation and some more of what the call ``start`` says."""

    #: What it is made of beside name, block, regularisation and engine, in this order.
    takes: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def opened(cls, name: str, block: FeatureBlock, engine: Engine, terms: Mapping[str, Any]) -> Self:
        given = dict(terms)
        if "regularizer" in cls.takes:
            share = terms["l1_ratio"]
            regularizer = get_regularizer(terms["regularizer"], {"l1_ratio": share} if share >= 0 else None)
            given["regularizer"] = regularizer.of_party(terms["position"], block.shape[1], name)
            given["constraint"] = get_constraint(terms["constraint"])
            given["constraint"].check_columns(block.shape[1], name)
        made: Any = cls
        return made(name, block, float(terms["regularization"]), engine, *(given[key] for key in cls.takes))

    def prepare(self) -> None:
        check_scale(self.block, self.name, self.engine)


def squared(v: np.ndarray) -> float:
    """Squared norm of a vector, or of all numbers of a matrix."""
    return float(v @ v) if v.ndim == 1 else float(np.sum(v * v))


class Party(Opened):
    """Holder of one feature block and its weights: of one predictor per sample, or of C.

    Shapes: block (N, d); weights, dual (d,) or (C, d); metric (N,).
    Scaling: regularization summed scaling.
    """

    family = "admm"
    takes: ClassVar[tuple[str, ...]] = ("x_update", "regularizer", "constraint")
    exchanges_per_column = 2

    @staticmethod
    def shows_columns(regularizer: str, constraint: str) -> bool:
        # Squared l2, one group of all columns, all space and a ball leave functions of D D' alone.
        if regularizer not in ("l2", "none", "group_lasso"):
            return True
        return constraint.partition(":")[0] not in ("all", "ball")

    def __init__(
        self,
        name: str,
        block: FeatureBlock,
        regularization: float,
        engine: Engine,
        x_update: str,
        regularizer: Regularizer,
        constraint: Constraint,
    ) -> None:
        self.name, self.block, self.regularization, self.engine = name, block, regularization, engine
        self.penalty = PartyPenalty(regularizer, constraint, regularization)
        self._choice = regularizer, constraint, x_update
        self.update, self.reason = choose_penalised(block, *self._choice)
        self.metric: np.ndarray | None = None
        self.dual: np.ndarray = np.zeros(block.shape[1])
        self.weights = np.zeros(block.shape[1])
        self._factorised = False

    @property
    def kind(self) -> str:
        """Name of the x-update."""
        return self.update.name

    def prepare(self) -> None:
        """Factorise, once; free to repeat after a restart."""
        super().prepare()
        self._factorise()

    def _factorise(self) -> None:
        if not self._factorised:
            self.update.prepare(self.engine)
            self._factorised = True

    def set_metric(self, curvature: np.ndarray) -> None:
        r"""Give every sample a penalty of its own, :math:`r \omega_i`. Shapes: curvature (N,)."""
        self.metric = curvature
        block = WeightedBlock(self.block, curvature, self.engine)
        self.update, _ = choose_penalised(block, *self._choice)
        self._factorised = False  # where it is needed: the next step may be in another process

    def step(self, w: np.ndarray, scaled_penalty: float) -> dict[str, Any]:
        r"""Answer a target with a message.

        Shapes: w (N,).
        Scaling: scaled_penalty summed scaling.
        """
        self._factorise()
        block = self.update.block  # the party's own, or that in the metric
        target = self.engine.times(block.root, w) if isinstance(block, WeightedBlock) else w
        scale = self.regularization / scaled_penalty
        self.weights = self.update.solve(target, scale, self.weights, self.engine)
        return self._stepped(self.block.product(self.weights, self.engine))

    def _stepped(self, message: np.ndarray) -> dict[str, Any]:
        norm = float(np.linalg.norm(self.weights))
        return {"message": message, "penalty": float(self.penalty_value()), "norm": norm}

    def _images(self, *vectors: np.ndarray) -> list[np.ndarray]:
        """Transposed products with vectors of shape (N,) or (C, N)."""
        if vectors[0].ndim == 1:
            return self.block.transposed_products(vectors, self.engine)
        return [self.block.transposed_matrix_product(v, self.engine) for v in vectors]

    def certify(self, gradient: np.ndarray, pull: np.ndarray) -> dict[str, Any]:
        r"""This party's share of the duality gap and of V^t, for squared l2 without a set.

        Shapes: gradient, pull (N,) or (C, N).
        Scaling: gradient summed scaling.
        """
        scale = self.regularization
        image, lagrangian = self._images(gradient, pull)
        residual = image + scale * self.weights
        # prox of (lambda W / 2)|x|^2 at x - q is (x - q) / (1 + lambda W)
        mapped = (scale * self.weights + lagrangian) / (1.0 + scale)
        return {"gap": squared(residual) / (2.0 * scale), "stationarity": squared(mapped)}

    def stationarity(self, pull: np.ndarray) -> dict[str, Any]:
        r"""Squared prox-gradient map of equation 13, for any regulariser and set.

        Shapes: pull (N,) or (C, N).
        """
        (image,) = self._images(pull)
        each = zip(np.atleast_2d(self.weights), np.atleast_2d(image))
        mapped = np.array([self.penalty.gradient_map(x, own) for x, own in each])
        return {"value": squared(mapped.reshape(image.shape))}

    def dual_scale(self, u: np.ndarray) -> dict[str, Any]:
        r"""Largest :math:`\alpha \le 1` for which :math:`h_m^*(-\alpha D_m^\top u)` is finite.

        Shapes: u (N,) or (C, N).
        """
        self.dual = -self._images(u)[0]
        return {"value": min(float(self.penalty.largest_scale(own)) for own in np.atleast_2d(self.dual))}

    def dual_value(self, scale: float) -> dict[str, Any]:
        r""":math:`h_m^*(-\alpha D_m^\top u)` at a scale that every party allows, for the last u."""
        return {"value": float(sum(self.penalty.conjugate(scale * own) for own in np.atleast_2d(self.dual)))}

    def penalty_value(self) -> float:
        r"""Regulariser :math:`\lambda W R_m(x_m)`, summed scaling."""
        if not self.penalty.is_ridge:
            return float(sum(self.penalty.value(own) for own in np.atleast_2d(self.weights)))
        return 0.5 * self.regularization * squared(self.weights)

    def final_weights(self) -> np.ndarray:
        return self.weights.T

    def export(self) -> dict[str, np.ndarray]:
        own = {"weights": self.weights, "dual": self.dual}
        return own if self.metric is None else {**own, "metric": self.metric}

    def restore(self, saved: Mapping[str, Any]) -> None:
        weights, dual = (checked(saved, key, self.weights.shape) for key in ("weights", "dual"))
        if "metric" in saved:
            self.set_metric(checked(saved, "metric", self.block.shape[:1]))
        self.weights, self.dual = weights, dual


Array = np.ndarray


class WeightedBlock(FeatureBlock):
    r"""Rows of another block times :math:`\sqrt{w_i}`, so that least squares on it is weighted.

    Shapes: block (N, d); weight (N,).
    """

    def __init__(self, block: FeatureBlock, weight: Array, engine: Engine) -> None:
        self.inner, self.weight, self.root = block, weight, engine.each(np.sqrt, weight)
        self.shape, self.nbytes, self.density = block.shape, weight.nbytes, block.density
        self.all_rows = block.all_rows

    def product_into(self, x: Array, out: Array, engine: Engine) -> None:
        self.inner.product_into(x, out, engine)
        engine.times(out, self.root, out)

    def products_into(self, x: Array, out: Array, engine: Engine) -> None:
        self.inner.products_into(x, out, engine)
        out *= self.root

    def transposed_products(self, vectors: Sequence[Array], engine: Engine) -> list[Array]:
        return self.inner.transposed_products([engine.times(self.root, v) for v in vectors], engine)

    def matrix_product(self, x: Array, engine: Engine) -> Array:
        return self.root * self.inner.matrix_product(x, engine)

    def upper_gram(self, engine: Engine, weight: Array | None = None, rough: bool = False) -> Array:
        return self.inner.upper_gram(engine, self.weight if weight is None else self.weight * weight, rough)

    def kernel_gram(self) -> Array:
        return self.root[:, None] * self.inner.kernel_gram() * self.root

    def column_squares(self, engine: Engine) -> Array:
        return np.diag(self.gram(engine)).copy()
