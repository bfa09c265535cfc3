"""Working sets of columns for l1: the same optimum as over all columns, for every kind of block."""

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.blocks.block import as_block

N = 12_000


def problem(kind, loss="squared", regularizer="l1", **more):
    rng = np.random.default_rng(7)
    dense = [rng.normal(size=(N, 40)), rng.normal(size=(N, 30))]
    sparse = [sp.random(N, 90, 0.05, "csr", random_state=k) for k in (1, 2)]
    blocks = {"dense": dense, "sparse": sparse, "mixed": [dense[0], sparse[0], dense[1]]}[kind]
    z = sum(block[:, :9] @ rng.normal(size=9) for block in blocks)
    z = z / z.std() + 0.3 * rng.normal(size=N)
    y = z if loss == "squared" else (z > 0.0) * 1.0
    given = {"loss": loss, "regularizer": regularizer, "lam": 2e-3, **more}
    return make_problem([as_block(block) for block in blocks], y, **given)


@pytest.mark.parametrize("kind", ["dense", "sparse", "mixed"])
@pytest.mark.parametrize("loss", ["squared", "logistic", "huber"])
@pytest.mark.parametrize("more", [{}, {"constraint": "nonnegative"}, {"regularizer": "elastic_net"}])
def test_few_rounds_end_where_those_of_parties_do(kind, loss, more):
    given = problem(kind, loss, **more)
    found, known = (
        solve(given, SolverOptions(scheme="pooled", gap=1e-8)),
        solve(given, SolverOptions(gap=1e-8, scheme="proximal")),
    )
    assert found.certified
    assert len(found.history) <= 3
    assert found.objective == pytest.approx(known.objective, rel=3e-8)


@pytest.mark.parametrize("kind", ["dense", "sparse", "mixed"])
def test_bits_do_not_depend_on_threads(kind):
    alone, several = (
        solve(problem(kind, "logistic"), SolverOptions(scheme="pooled", n_threads=k)) for k in (1, 3)
    )
    for x, y in zip(alone.weights, several.weights, strict=True):
        np.testing.assert_array_equal(x, y)
