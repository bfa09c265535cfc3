"""Cholesky factors without the interpreter's lock, and parties that factorise side by side."""

import numpy as np
import pytest
from fastadmm.blocks.block import DenseBlock
from fastadmm.engine.engine import Engine
from fastadmm.parties.cholesky import cholesky, solve_factorised
from fastadmm.parties.direction import DirectionParty


@pytest.mark.parametrize("n", [1, 7, 150])
def test_factor_and_solution(n):
    rng = np.random.default_rng(n)
    half, right = rng.normal(size=(n, n + 3)), rng.normal(size=n)
    whole = half @ half.T
    given = np.triu(whole)
    given[np.tril_indices(n, -1)] = np.nan  # nobody looks there
    factor = cholesky(given)
    np.testing.assert_allclose(np.tril(factor), np.linalg.cholesky(whole), rtol=1e-9, atol=1e-9)
    before = right.copy()
    np.testing.assert_allclose(whole @ solve_factorised(factor, right), right, rtol=1e-7, atol=1e-7)
    assert np.array_equal(right, before)


def test_a_matrix_that_is_not_positive_definite_has_no_factor():
    assert cholesky(np.array([[1.0, 2.0], [2.0, 1.0]])) is None
    with pytest.raises(ValueError, match="C-contiguous"):
        cholesky(np.eye(3)[:, ::2])


@pytest.mark.parametrize("kind", ["gram", "kernel", "gradient"])
@pytest.mark.parametrize("newton", [False, True])
def test_what_a_party_does_before_it_answers_changes_no_bit(kind, newton):
    rng, found = np.random.default_rng(3), []
    X, h = rng.normal(size=(40, 6)), rng.uniform(0.1, 1.0, 40)
    gradients = rng.normal(size=(3, 40))
    for prepares in (False, True):
        with Engine(1) as engine:
            party, own = DirectionParty("a", DenseBlock(X), 0.3, engine), []
            party.kind = kind
            for gradient, metric in zip(gradients, (h, None, 2.0 * h)):
                if metric is not None:
                    party.set_metric(metric)
                c = np.ones(len(party.directions))
                told = {"gradient": gradient, "coefficients": c, "newton": newton}
                if prepares:
                    work = party.prepared("respond", told)
                    assert (work is not None) == (newton and kind == "gram")
                    if work is not None:
                        work()
                answer = party.answer("respond", told)
                own += [answer["squared_residual"], answer["message"].tobytes()]
        found.append(own)
    assert found[0] == found[1]
