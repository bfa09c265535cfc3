"""Noise: the keystream to the letter, the transformation to rounding, the law by statistics."""

import math
import os
from decimal import Decimal

import numpy as np
import pytest
from fastadmm.kernels.chacha import LANES, chacha_group
from fastadmm.kernels.gaussian_noise import (
    _GROUP,
    MAX_ELEMENTS,
    MAX_SCALE,
    _cosine_sine,
    _normals,
    _radius,
    grid_normal,
    uniform,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import naive
from run_tools import refuses, without_compilation

EPS = np.finfo(float).eps
COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"

#: The key of RFC 8439 section 2.3.2, any nonce.
KEY = np.frombuffer(bytes(range(32)), dtype="<u4").astype(np.uint32)
NONCE = np.array([1, 2, 3], dtype=np.uint32)


def words_of(text):
    return np.frombuffer(bytes.fromhex(text), dtype="<u4").astype(np.uint32)


def normals(n, nonce=NONCE):
    """What grid_normal multiplies and rounds."""
    words, out = np.empty((16, LANES), np.uint32), np.empty((-(-n // _GROUP), _GROUP))
    for group, own in enumerate(out):
        _normals(KEY, nonce, group, words, own)
    return out.ravel()[:n]


def thousands(key, nonce, out, begin, end):
    grid = np.empty(end, np.int64)
    grid_normal(key, nonce, 1000.0, grid, begin, end)
    out[begin:end] = grid[begin:end]


@pytest.mark.parametrize(
    ("key", "nonce", "counter", "block"),
    [
        (  # section 2.3.2
            bytes(range(32)).hex(),
            "000000090000004a00000000",
            1,
            "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
            "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
        ),
        (  # appendix A.1, vector 1
            "00" * 32,
            "00" * 12,
            0,
            "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
            "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
        ),
    ],
)
def test_chacha_vectors_of_the_rfc(key, nonce, counter, block):
    words = np.zeros((16, LANES), np.uint32)
    chacha_group(words_of(key), words_of(nonce), counter, words)
    assert words[:, 0].astype("<u4").tobytes().hex() == block
    assert naive.chacha20_block(words_of(key), words_of(nonce), counter) == words[:, 0].tolist()


@pytest.mark.parametrize("counter", [0, 5, 2**31 - 3, 2**32 - 7])
def test_chacha_groups_against_its_twin(counter):
    rng = np.random.default_rng(counter)
    key, nonce = (rng.integers(0, 2**32, size, dtype=np.uint32) for size in (8, 3))
    words = np.zeros((16, LANES), np.uint32)
    chacha_group(key, nonce, counter, words)
    for lane in range(LANES):
        assert words[:, lane].tolist() == naive.chacha20_block(key, nonce, counter + lane)


@pytest.mark.parametrize("begin", [0, 100, 250])
def test_elements_against_their_twins(begin):
    end = begin + 260
    out, bits, grid = normals(end), np.empty(end), np.empty(end, np.int64)
    uniform(KEY, NONCE, bits, begin, end)
    grid_normal(KEY, NONCE, 1000.0, grid, begin, end)
    for i in range(begin, end, 7):
        assert out[i] == pytest.approx(naive.noise_normal(KEY, NONCE, i), rel=8 * EPS)
        assert bits[i] == (naive.noise_word(KEY, NONCE, i) >> 11) / 2**53
        assert grid[i] == round(1000.0 * out[i])


@pytest.mark.parametrize("word", [0, 1, 2**11, 2**52, 2**53 + 1, 2**63, 13043817825332782212, 2**64 - 1])
def test_radius_at_its_extremes(word):
    exact = float((-2 * ((Decimal(word) + Decimal("0.5")) / 2**64).ln()).sqrt())
    # next to u = 1 the word is rounded to 53 bits first
    assert _radius(np.uint64(word)) == pytest.approx(exact, rel=4 * EPS, abs=2e-8 if word > 2**63 else 0.0)
    assert 0.0 <= _radius(np.uint64(word)) < 9.5


def test_grid_normals_at_their_seams():
    for eighth in range(16):
        for step in (-2, -1, 0, 1, 2):
            word = ((eighth << 60) + step * 2**11) % 2**64
            turn = (word - 2**64 if word >= 2**63 else word) // 2**11
            quadrant, rest = divmod(turn + 2**50, 2**51)
            angle = 2 * math.pi * (rest - 2**50) / 2**53
            expected = (math.cos(angle), math.sin(angle))
            for _ in range(quadrant % 4):
                expected = (-expected[1], expected[0])
            assert _cosine_sine(np.uint64(word)) == pytest.approx(expected, rel=4 * EPS, abs=1e-300)
    # Grid normal rounds to nearest.
    n = 4000 if COMPILED else 300
    out, z = np.empty(n, np.int64), normals(n)
    for scale in (0.0, 0.3, 7.46 * 2.0**24, 2.0**28, MAX_SCALE):
        grid_normal(KEY, NONCE, scale, out, 0, n)
        np.testing.assert_array_equal(out, np.rint(scale * z).astype(np.int64))


@given(st.integers(0, 700), st.integers(0, 700))
@settings(max_examples=40, deadline=None)
def test_any_range_gives_the_same_elements(a, b):
    begin, end = min(a, b), max(a, b)
    whole, part = np.empty(700), np.full(700, -99.0)
    for function in (uniform, thousands):
        function(KEY, NONCE, whole, 0, 700)
        part[:] = -99.0
        function(KEY, NONCE, part, begin, end)
        np.testing.assert_array_equal(part[begin:end], whole[begin:end])
        assert (part[:begin] == -99.0).all()
        assert (part[end:] == -99.0).all()


def test_requests_that_would_repeat_or_overflow_are_refused():
    out, grid = np.empty(8), np.empty(8, np.int64)
    refuses(ValueError, "more elements", uniform, KEY, NONCE, out, MAX_ELEMENTS, MAX_ELEMENTS + 1)
    refuses(ValueError, "more elements", grid_normal, KEY, NONCE, 1.0, grid, MAX_ELEMENTS, MAX_ELEMENTS + 1)
    for scale in (-1.0, math.nan, math.inf, 2 * MAX_SCALE):
        refuses(ValueError, "scale", grid_normal, KEY, NONCE, scale, grid, 0, 8)


def test_the_law_of_the_noise():
    z = normals(1 << 20)
    assert stats.kstest(z, "norm").pvalue > 1e-3
    # the two members of a pair, each on its own
    pairs = z.reshape(-1, 4, 2, 16)
    for member in (0, 1):
        assert stats.kstest(pairs[:, :, member].ravel(), "norm").pvalue > 1e-3
    # Tails to five standard deviations.
    n, levels = 1 << 25, np.array([2.0, 3.0, 4.0, 4.5, 5.0])
    above, below = np.zeros(len(levels)), np.zeros(len(levels))
    for stream in range(8):
        out = normals(1 << 22, np.array([stream, 9, 9], dtype=np.uint32))
        above += [(out > level).sum() for level in levels]
        below += [(out < -level).sum() for level in levels]
    expected = n * stats.norm.sf(levels)
    for counts in (above, below):
        assert (stats.poisson.cdf(counts, expected) > 1e-4).all(), (counts, expected)
        assert (stats.poisson.sf(counts - 1, expected) > 1e-4).all(), (counts, expected)
    # Low bits of grid noise are uniform.
    n = 1 << 20
    out = np.empty(n, np.int64)
    for scale in (2.0**24, 1.7 * 2.0**28):
        grid_normal(KEY, NONCE, scale, out, 0, n)
        assert stats.chisquare(np.bincount(out & 255, minlength=256)).pvalue > 1e-3
        # and given the high bits: the sign, the size
        for part in (out[out > 0], out[np.abs(out) < 0.01 * scale], out[np.abs(out) > 3 * scale]):
            assert stats.chisquare(np.bincount(part & 15, minlength=16)).pvalue > 1e-3


@pytest.mark.parametrize(("sigma", "share"), [(1.0, 0.2), (7.46, 0.02), (20.0, 0.005)])
def test_low_order_bits_betray_naive_noise_but_not_the_grid(sigma, share):
    """Mironov's attack (2012): is an output possible under the other value at all?"""
    n = 1 << 20
    z = normals(n)

    def decided(y):
        # fl(1 + s) = y has no solution s: near 0 the sum is exact, so s must be y - 1
        return np.mean((np.abs(y) < 0.5) & ((y - 1.0) + 1.0 != y))

    assert decided(0.0 + sigma * z) > share
    assert decided(1.0 + sigma * z) == 0.0

    g = 2.0 ** (math.floor(math.log2(sigma)) - 28)
    noise = np.empty(n, np.int64)
    grid_normal(KEY, NONCE, sigma / g, noise, 0, n)
    for value in (0.0, 1.0):
        k = np.int64(np.rint(value / g)) + noise
        np.testing.assert_array_equal((k * g) / g, k)  # what is published is exactly k
        assert decided(k * g) == 0.0


@pytest.mark.repeats
@pytest.mark.skipif(not COMPILED, reason="already without compilation")
def test_noise_without_compilation():
    chosen = "vectors or twin or seams or extremes or nearest"
    without_compilation(chosen, __file__)
