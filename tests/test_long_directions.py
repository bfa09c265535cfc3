"""Directions of so many columns that threads share them: as short ones, to the bit whoever computes."""

import numpy as np
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.kernels.directions import less_known
from fastadmm.parties import own_directions
from fastadmm.parties.own_directions import add_weights, orthonormal

COLUMNS = 20_001


def basis(k, columns=COLUMNS):
    """Orthonormal rows."""
    found = np.linalg.qr(np.random.default_rng(k).normal(size=(columns, k)))[0]
    return np.ascontiguousarray(found.T)


def test_what_is_known_is_taken_out():
    rng = np.random.default_rng(0)
    known, given, shares = rng.normal(size=(3, 3000)), rng.normal(size=3000), rng.normal(size=3)
    own, sums, part = np.full(3000, 7.0), np.ones(3), slice(5, 2900)
    less_known(known, shares, 0.5, given, own, known[:2], sums, 5, 2900)
    expected = 0.5 * (given - shares @ known)
    np.testing.assert_allclose(own[part], expected[part], rtol=1e-13, atol=1e-13)
    assert (own[[*range(5), *range(2900, 3000)]] == 7.0).all()
    left = expected[part]
    np.testing.assert_allclose(sums, 1.0 + np.array([*(known[:2, part] @ left), left @ left]), rtol=1e-12)


@pytest.mark.parametrize("k", [0, 1, 5])
@pytest.mark.parametrize("near", [1.0, 1e-6])
def test_long_ones_are_made_orthonormal_as_short_ones(k, near, monkeypatch):
    earlier = basis(k) if k else np.empty((0, COLUMNS))
    rng = np.random.default_rng(7)
    direction = near * rng.normal(size=COLUMNS) + rng.normal(size=k) @ earlier
    found = []
    for threads in (1, 3, 5):
        out = np.full(COLUMNS, np.nan)
        with Engine(threads) as engine:
            assert orthonormal(direction, earlier, out, engine)
        found.append(out)
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
    assert abs(np.linalg.norm(found[0]) - 1.0) < 1e-14
    assert np.abs(earlier @ found[0]).max(initial=0.0) < 1e-14
    monkeypatch.setattr(own_directions, "_LONG", 1 << 20)
    out = np.empty(COLUMNS)
    assert orthonormal(direction, earlier, out, Engine(1))
    np.testing.assert_allclose(found[0], out, atol=1e-9)


def test_nothing_new_is_no_direction():
    earlier, out, engine = basis(3), np.empty(COLUMNS), Engine(1)
    assert not orthonormal(np.array([1.0, -2.0, 3.0]) @ earlier, earlier, out, engine)
    for worthless in (0.0, np.inf, np.nan):
        assert not orthonormal(np.full(COLUMNS, worthless), earlier, out, engine)


@pytest.mark.parametrize("k", [0, 4])
def test_weights_are_added(k):
    rng = np.random.default_rng(1)
    directions, c, residual = rng.normal(size=(k, COLUMNS)), rng.normal(size=k), rng.normal(size=COLUMNS)
    expected, found = residual + 0.3 * (c @ directions), []
    for threads in (1, 4):
        out = residual.copy()
        with Engine(threads) as engine:
            square = add_weights(directions, c, 0.3, out, engine)
        np.testing.assert_allclose(out, expected, rtol=1e-13, atol=1e-13)
        assert square == pytest.approx(expected @ expected)
        found.append((out.tobytes(), square))
    assert found[0] == found[1]
