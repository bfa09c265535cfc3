"""Many columns in one process: passes over working sets and Gram matrices, with classes, too."""

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.blocks.block import as_block
from fastadmm.blocks.side_by_side import Columns
from fastadmm.engine.engine import Engine
from fastadmm.kernels import class_descent
from fastadmm.parties.face_classes import common_shift


def blocks_of(dense):
    """Two blocks, and all their columns; one of them is constant and one empty."""
    rng = np.random.default_rng(180)
    X = rng.normal(size=(120, 60))
    X = X if dense else np.where(rng.random(X.shape) < 0.1, X, 0.0)
    X[:, -2:] = 1.0, 0.0
    given = [X[:, :20], X[:, 20:]]
    return [as_block(own if dense else sp.csr_array(own)) for own in given], X


@pytest.mark.parametrize("dense", [False, True])
def test_columns_are_those_of_the_blocks(dense):
    (blocks, whole), rng = blocks_of(dense), np.random.default_rng(1)
    columns, chosen = Columns(blocks, Engine(1)), np.array([2, 5, 40, 59])
    assert columns.dense == dense
    c = rng.normal(size=60)
    np.testing.assert_allclose(columns.product(c), whole @ c, atol=1e-10)
    np.testing.assert_allclose(columns.squares(), (whole**2).sum(axis=0), atol=1e-10)
    h = rng.random(120)
    own = columns.some(chosen).gram(Engine(1), h)
    np.testing.assert_allclose(own, whole[:, chosen].T @ (h[:, np.newaxis] * whole[:, chosen]), atol=1e-10)


def sparsest_shift(weights, alpha, beta):
    """The best shift of one column's weights; of several the nearest to 0 that makes a weight 0."""
    if beta > 0.0:
        return common_shift(weights, alpha, beta)
    ranked, n = np.sort(weights, axis=0), len(weights)
    low, high = ranked[(n - 1) // 2], ranked[n // 2]
    return np.where(np.abs(low) <= np.abs(high), low, high)


def curvature(likely, weight):
    """W of every row, of shape (N, C, C)."""
    return weight[:, None, None] * (
        np.einsum("ci,ce->ice", likely, np.eye(len(likely))) - np.einsum("ci,ei->ice", likely, likely)
    )


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    "terms", [(0.3, 0.0, -np.inf, np.inf), (0.3, 0.1, -np.inf, np.inf), (0.3, 0.1, -0.4, 0.5)]
)
def test_a_pass_over_classes_beside_dense_arithmetic(terms, intercept, compressed):
    """A block is minimised slowly there: by coordinate descent and shifts until nothing moves."""
    rng, n, d, classes = np.random.default_rng(4), 50, 6, 4
    dense = np.where(rng.random((n, d)) < 0.5, rng.normal(size=(n, d)), 0.0)
    likely, weight = rng.dirichlet(np.ones(classes), size=n).T.copy(), rng.random(n)
    bend, slope = likely * weight, 2.0 * rng.normal(size=(classes, d))
    slope -= slope.mean(axis=0)  # as every gradient's
    matrix = sp.csc_array(dense)
    arrays = matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint16), matrix.data
    if not compressed:
        arrays = np.arange(d + 1) * n, np.empty(0, np.uint16), dense.T.copy().ravel()
    chosen, whole = np.array([4, 0, 3, 1, 5]), curvature(likely, weight)
    blocks, cross = np.empty((2, 5, classes, classes))
    class_descent.class_blocks(*arrays, likely, bend, chosen, blocks, cross, 0, 5)
    np.testing.assert_allclose(blocks, np.einsum("ij,ice->jce", dense[:, chosen] ** 2, whole), atol=1e-12)
    np.testing.assert_allclose(cross, np.einsum("ij,ice->jce", dense[:, chosen], whole), atol=1e-12)
    inverse, first = np.zeros((0, 0)), np.zeros(0)
    if intercept:
        inverse, first = np.linalg.pinv(whole.sum(axis=0)), rng.normal(size=classes)
        first -= first.mean()
        blocks -= cross @ inverse @ cross
    places = np.zeros(d, dtype=np.int64)
    places[chosen] = np.arange(5)
    l1, l2, low, high = terms
    start = np.clip(rng.normal(size=(classes, d)), low, high)
    start[:, 0] = 0.0
    x, image, moved, order = start.copy(), np.zeros((classes, n)), np.zeros(2 + classes), chosen.copy()
    given = arrays, (likely, bend, blocks, cross, places), (inverse, first), slope, terms
    class_descent.descend_class_columns(*given, order, np.inf, x, image, moved)

    def gradient(y):
        q = np.einsum("ij,cj->ic", dense, y - start)
        if intercept:
            pulled = first + np.einsum("ice,ie->c", whole, q)
            q = q - inverse @ pulled
        return slope + np.einsum("ij,ice,ie->cj", dense, whole, q)

    y = start.copy()
    for j in chosen:
        block = blocks[places[j]]
        for _ in range(40):
            for c in range(classes):
                pull = block[c, c] * y[c, j] - gradient(y)[c, j]
                y[c, j] = np.clip(np.sign(pull) * max(abs(pull) - l1, 0.0) / (block[c, c] + l2), low, high)
            if np.isinf(low):
                y[:, j] -= sparsest_shift(y[:, j : j + 1], l1, l2)[0]
    np.testing.assert_allclose(x, y, atol=2e-2)  # ten rounds of a block, to a hundredth
    q = np.einsum("ij,cj->ic", dense, x - start)
    np.testing.assert_allclose(image, np.einsum("ice,ie->ci", whole, q), atol=1e-10)
    if intercept:
        np.testing.assert_allclose(moved[2:], np.einsum("ice,ie->c", whole, q), atol=1e-10)
    for _ in range(500):
        class_descent.descend_class_columns(*given, chosen, np.inf, x, image, moved)
    at = (gradient(x) + l2 * x)[:, chosen]
    x = x[:, chosen]
    inside = (x > low) & (x < high)
    assert (np.abs(at[x == 0.0]) <= l1 + 1e-7).all()
    np.testing.assert_allclose(at[(x != 0.0) & inside], -l1 * np.sign(x[(x != 0.0) & inside]), atol=1e-7)
    assert (at[x == low] >= l1 - 1e-7).all()
    assert (at[x == high] <= -l1 + 1e-7).all()
