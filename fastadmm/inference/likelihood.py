"""The distribution that a loss is the negative log-likelihood of, and what is measured by it.

And information matrices of all parties' columns together: D' diag(s) D, with a column of ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, gammaln, logsumexp

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.problem.log_link_losses import NegativeBinomial, Tweedie
from fastadmm.problem.loss import Loss

Array = np.ndarray


@dataclass(frozen=True)
class Family:
    """A distribution and its link."""

    name: str
    log_likelihood: Callable[[Array, Array, Array, float], float]  # NaN where none is computed
    ratio: str = ""  # what exp(weight) is called; empty where it is nothing of interest
    variance: Callable[[Array], Array] | None = None
    information: Callable[[Array], Array] | None = None
    trials: bool = False  # whether sample weights are numbers of trials, and not relative

    @property
    def has_dispersion(self) -> bool:
        """Whether a dispersion is estimated."""
        return self.variance is not None


def _bernoulli(z: Array, y: Array, weight: Array, _: float) -> float:
    return float(weight @ (y * z - np.logaddexp(0.0, z)))


def _binomial(z: Array, y: Array, weight: Array, _: float) -> float:
    successes = weight * y
    ways = gammaln(weight + 1.0) - gammaln(successes + 1.0) - gammaln(weight - successes + 1.0)
    return _bernoulli(z, y, weight, 1.0) + float(ways.sum())


def _poisson(z: Array, y: Array, weight: Array, _: float) -> float:
    return float(weight @ (y * z - np.exp(z) - gammaln(y + 1.0)))


def _normal(z: Array, y: Array, weight: Array, _: float) -> float:
    """At the variance that makes it largest."""
    squares, n = float(weight @ (y - z) ** 2), float(weight.sum())
    with np.errstate(divide="ignore"):
        return float(-0.5 * n * (np.log(2.0 * np.pi * squares / n) + 1.0))


def _gamma(z: Array, y: Array, weight: Array, dispersion: float) -> float:
    shape, t = 1.0 / dispersion, np.log(y) - z
    front = shape * np.log(shape) - gammaln(shape) - shape
    return float(weight @ (front - shape * (np.expm1(t) - t) - np.log(y)))


def _multinomial(z: Array, y: Array, weight: Array, _: float) -> float:
    """Shapes: z (C, N)."""
    return float(weight @ (z[y.astype(int), np.arange(len(y))] - logsumexp(z, axis=0)))


def _negative_binomial(loss: NegativeBinomial) -> Family:
    alpha, size = loss.alpha, 1.0 / loss.alpha

    def log_likelihood(z: Array, y: Array, weight: Array, _: float) -> float:
        # The beta function keeps the digits that a difference of log Gammas loses where the size is large.
        ways = -betaln(size, y + 1.0) - np.log(y + size)
        at = z + np.log(alpha)
        return float(weight @ (y * at + ways - (y + size) * np.logaddexp(0.0, at)))

    def information(z: Array) -> Array:
        mean = np.exp(z)
        return np.asarray(mean / (1.0 + alpha * mean))

    return Family("negative binomial", log_likelihood, "rate ratio", information=information)


def _tweedie(loss: Tweedie) -> Family:
    return Family(
        "Tweedie",
        lambda *_: np.nan,  # an infinite series
        "mean ratio",
        variance=lambda mean: mean**loss.power,
        information=lambda z: np.asarray(np.exp((2.0 - loss.power) * z)),
    )


#: Of a loss, by its name.
FAMILIES: dict[str, Callable[..., Family]] = {
    "logistic": lambda _: Family("Bernoulli", _bernoulli, "odds ratio"),
    "binomial": lambda _: Family("binomial", _binomial, "odds ratio", trials=True),
    "poisson": lambda _: Family("Poisson", _poisson, "rate ratio"),
    "gamma": lambda _: Family("gamma", _gamma, "mean ratio", variance=np.square, information=np.ones_like),
    "tweedie": _tweedie,
    "negative_binomial": _negative_binomial,
    "squared": lambda _: Family("normal", _normal, variance=np.ones_like),
    "multinomial": lambda _: Family("multinomial", _multinomial, "odds ratio"),
}


def family_of(loss: Loss) -> Family | None:
    """Distribution that a loss is the negative log-likelihood of; None for a loss that is none."""
    return FAMILIES[loss.name](loss) if loss.name in FAMILIES else None


@dataclass(frozen=True)
class Rows:
    """What the rows say at a model's weights, of K predictors: one, or one for each class but the first.

    Shapes: z, null (N,) or (C, N); weight (N,); slopes (K, N); estimates (K p,).
    """

    z: Array  # predictors of the model, and of offset and intercept alone
    null: Array
    weight: Array
    slopes: Array  # derivatives of each row's loss
    curvature: Callable[[int, int], Array]  # second derivatives, of shape (N,), by two predictors
    estimates: Array  # predictor by predictor, the intercept last in each
    spread: Array | None = None  # p (1 - p) of fitted probabilities, of shape (N,); None where there are none


#: Columns that are spread out over the rows at a time.
_COLUMNS = 32


def joint_gram(blocks: Sequence[FeatureBlock], weight: Array, intercept: bool, engine: Engine) -> Array:
    """Weighted Gram matrix of all columns: the Hessian of a summed loss, for its curvature as weight.

    Shapes: weight (N,); the result (p, p).
    """
    starts = np.concatenate([[0], np.cumsum([block.shape[1] for block in blocks])]).astype(int)
    gram = np.zeros((starts[-1] + intercept,) * 2)
    for k, block in enumerate(blocks):
        own = slice(starts[k], starts[k + 1])
        gram[own, own] = block.gram(engine, weight)
        for begin in range(0, block.shape[1] if k else 0, _COLUMNS):
            chosen = np.arange(begin, min(begin + _COLUMNS, block.shape[1]))
            columns = block.matrix_product(np.eye(block.shape[1])[chosen], engine) * weight
            for m, other in enumerate(blocks[:k]):
                products = other.transposed_matrix_product(columns, engine)
                gram[starts[k] + chosen, starts[m] : starts[m + 1]] = products
                gram[starts[m] : starts[m + 1], starts[k] + chosen] = products.T
    if intercept:
        gram[-1] = gram[:, -1] = joint_products(blocks, weight, True, engine)
    return gram


def joint_products(blocks: Sequence[FeatureBlock], vector: Array, intercept: bool, engine: Engine) -> Array:
    """Products of all columns with a vector: the gradient of a summed loss, for its derivative in z.

    Shapes: vector (N,); the result (p,).
    """
    own = [block.transposed_product(vector, engine) for block in blocks]
    return np.concatenate([*own, [vector.sum()]] if intercept else own)
