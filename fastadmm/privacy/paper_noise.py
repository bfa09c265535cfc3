"""The noise of Hu, Liu, Kong and Niu (2019) as a reference: it protects nothing (``docs/papers.md``).

No training here uses it: whoever sees messages of known columns reads the perturbed weights off them. Its
calibration is **unproved**: Lemma 1 there is false, and :func:`lemma_counter_example` is the witness
(``docs/privacy.md#lemma-1-is-false``).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.parties.proximal import Party

Array = np.ndarray

#: Singular values below this share of the largest squared one count as zero: the Gram matrix's own rounding.
_RANK = 1e-9


def noisy_weights(
    weights: Array, sigma: float, rng: np.random.Generator, shape: Array | None = None
) -> Array:
    """Weights plus noise of sigma times a shape. Shapes: weights (d_m,); shape (d_m, rank)."""
    if shape is None:
        return weights + sigma * rng.standard_normal(len(weights))
    return weights + sigma * (shape @ rng.standard_normal(shape.shape[1]))


def perturb(party: Party, sigma: float, rng: np.random.Generator, shape: Array | None = None) -> None:
    """Let a party add noise to its weights after each x-update, for good. Shapes: shape (d_m, rank)."""
    answer = party._stepped

    def stepped(message: Array) -> dict[str, Any]:
        if sigma != 0.0:
            party.weights = noisy_weights(party.weights, sigma, rng, shape)
            message = party.block.product(party.weights, party.engine)
        return answer(message)

    party._stepped = stepped  # type: ignore[method-assign]


def inverse_root(block: Array) -> Array:
    """V S⁻¹ of the positive singular values: the root of (DᵀD)⁺. Shapes: block (N, d_m)."""
    values, vectors = np.linalg.eigh(block.T @ block)
    kept = values > _RANK * values[-1]
    return vectors[:, kept] / np.sqrt(values[kept])


def lemma_sensitivity(
    n_columns: int, penalty: float, lam: float, derivative: float, bound: float, n_parties: int
) -> float:
    r"""Lemma 1 (false): :math:`C = \frac{3}{d_m\rho}\,[\lambda c_1 + (1 + M\rho) b_1]`."""
    if n_columns < 1 or not penalty > 0.0:
        raise ConfigError("paper calibration: at least one column and a positive penalty")
    return 3.0 / (n_columns * penalty) * (lam * derivative + (1.0 + n_parties * penalty) * bound)


def theorem_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    r"""Theorem 3 (unproved): :math:`\sigma = \sqrt{2\ln(1.25/\delta)}\, C/\varepsilon` per round."""
    if not (epsilon > 0.0 and 0.0 < delta < 1.0):
        raise ConfigError("paper calibration: epsilon must be positive, delta between 0 and 1")
    return math.sqrt(2.0 * math.log(1.25 / delta)) * sensitivity / epsilon


def corollary_epsilon(epsilon: float, rounds: int, slack: float) -> float:
    r"""Corollary 1, unproved: :math:`\sqrt{2T\ln(1/\delta')}\varepsilon + T\varepsilon(e^\varepsilon - 1)`"""
    if not 0.0 < slack < 1.0:
        raise ConfigError("paper calibration: the slack delta' must be between 0 and 1")
    advanced = math.sqrt(2.0 * rounds * math.log(1.0 / slack)) * epsilon
    return advanced + rounds * epsilon * math.expm1(epsilon)


@dataclass(frozen=True)
class CounterExample:
    """Neighbours farther apart than Lemma 1 allows. Shapes: first, second (N, d); target (N,)."""

    first: np.ndarray  # of shape (N, d): rows of norm 1, full column rank, spectral distance 1
    second: np.ndarray  # of shape (N, d): rows of norm 1, full column rank, spectral distance 1
    target: np.ndarray  # of shape (N,): z, of norm b_1
    distance: float  # l2 distance of the two messages
    lemma: float  # what Lemma 1 allows


def lemma_counter_example(
    n_columns: int, penalty: float = 1e3, lam: float = 1e-3, bound: float = 1.0
) -> CounterExample:
    """The counter-example to Lemma 1, of ±I and a constant column: ``docs/privacy.md#lemma-1-is-false``."""
    n = n_columns - 1
    if n < 1:
        raise ConfigError("counter-example: at least two columns")
    rows = 8 * n
    s = 1.0 / math.sqrt(rows)
    signs = math.sqrt(1.0 - s * s) * np.tile(np.vstack([np.eye(n), -np.eye(n)]), (4, 1))
    column, target = np.full(rows, s), np.full(rows, bound * s)
    flipped = np.where(np.arange(rows) < 2 * n, -column, column)
    first, second = (np.column_stack([signs, last]) for last in (column, flipped))
    ridge = lam / penalty * np.eye(n_columns)
    one, other = (D @ np.linalg.solve(D.T @ D + ridge, D.T @ target) for D in (first, second))
    lemma = lemma_sensitivity(n_columns, penalty, lam, 1.0, bound, 1)
    return CounterExample(first, second, target, float(np.linalg.norm(one - other)), lemma)
