"""The audit's tests of noise keep their level and have the power that they print."""

import math

import numpy as np
import pytest
from fastadmm.privacy import noise_tests
from fastadmm.privacy.noise_tests import (
    at_distances,
    directions_check,
    law_check,
    links_check,
    outcomes_check,
    patterns_check,
    rank_bounds,
    reuse_check,
    size_check,
    tails_check,
)
from scipy.stats import binom

TIMES, N = 400, 300


def coins(rng, n=N, epsilon=1.0, claim=1.0):
    """Randomised responses of two inputs, at an epsilon and as claimed."""
    kept = rng.binomial(n, 1.0 / (1.0 + math.exp(-epsilon)), size=2)
    return outcomes_check("coins", {"all": np.array([[kept[0], n - kept[0]], [n - kept[1], kept[1]]])}, claim)


def releases(rng):
    return [rng.normal(size=N // 4) for _ in range(4)]


def on_grid(values, step):
    return np.rint(values / step) * step


CHECKS = {
    "size": lambda rng: size_check({"here": rng.normal(size=N)}),
    "law": lambda rng: law_check(rng.normal(size=N)),
    "link": lambda rng: links_check({"rounds": [(rng.normal(size=N), rng.normal(size=N))]}),
    "tails": lambda rng: tails_check(rng.normal(size=N)),
    # Grids of a release have 2**28 steps per sigma, here 2**13, or up to twice as many.
    "reuse, coarse grid": lambda rng: reuse_check(on_grid(rng.normal(size=2000), 2.0**-13)),
    "reuse, fine grid": lambda rng: reuse_check(on_grid(rng.normal(size=2000), 0.84 * 2.0**-13)),
    "outcomes": coins,
    "parts": lambda rng: size_check({str(k): rng.normal(size=50) for k in range(8)}),
    "distances": lambda rng: links_check(at_distances(releases(rng))),
    "patterns": lambda rng: patterns_check(releases(rng), releases(rng)),
    "directions": lambda rng: directions_check(rng.normal(size=(128, 16))),
}


@pytest.mark.representatives(4)
@pytest.mark.parametrize("name", CHECKS)
def test_false_alarms_are_as_rare_as_their_level_says(name, monkeypatch):
    monkeypatch.setattr(noise_tests, "LEVEL", 0.05)
    monkeypatch.setattr(noise_tests, "_SAME", 2.0**-13)
    rng = np.random.default_rng(0)
    alarms = sum(CHECKS[name](rng).flagged for _ in range(TIMES))
    assert alarms <= binom.isf(1e-4, TIMES, 0.05)
    if name in ("size", "law", "link"):  # exact, so that not even power is given away
        assert alarms >= binom.ppf(1e-4, TIMES, 0.05)


def test_bounds_of_ranks_and_outcomes():
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = np.linalg.svd(rng.normal(size=(256, 64)), compute_uv=False)
        low, high = rank_bounds(64, 256)
        assert 0 < low < values[-1]
        assert values[0] < high
    # The epsilon of outcomes.
    rng = np.random.default_rng(2)
    found = [coins(rng, 20_000, epsilon=2.0) for _ in range(50)]
    assert all(check.flagged and 1.8 < check.epsilon < 2.0 for check in found)
    assert coins(rng, 200, epsilon=40.0).flagged
