"""The noise of Hu, Liu, Kong and Niu (2019) as a reference: it protects nothing (``docs/papers.md``).

No training here uses it: whoever sees messages of known columns reads the perturbed weights off them.
"""

from typing import Any

import numpy as np

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
