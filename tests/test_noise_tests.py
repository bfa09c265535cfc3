"""The audit's tests of noise keep their level and have the power that they print."""

import math
import re

import numpy as np
import pytest
from fastadmm import Privacy
from fastadmm.privacy import fusion, noise_tests
from fastadmm.privacy.noise_tests import (
    directions_check,
    distances_check,
    frequency_check,
    law_check,
    link_check,
    mean_check,
    noticed_share,
    parts_check,
    patterns_check,
    rank_bounds,
    reuse_check,
    size_check,
    uniform_check,
)
from fastadmm.privacy.response_audit import audit_labels
from scipy.stats import binom

TIMES, N = 400, 300


def coins(rng, probability, n=N):
    """A frequency check of honest coins whose truth is due with a probability of 0.7."""
    count = int((rng.random(n) < probability).sum())
    return frequency_check(count, n, 0.7, "coins", lambda p: math.log(p / (1 - p + 1e-300)), 0.85)


def releases(rng):
    return [rng.normal(size=N // 4) for _ in range(4)]


def on_grid(values, step):
    return np.rint(values / step) * step


CHECKS = {
    "size": lambda rng: size_check(rng.normal(size=N), "here"),
    "mean": lambda rng: mean_check(rng.normal(size=N)),
    "law": lambda rng: law_check(rng.normal(size=N)),
    "uniform": lambda rng: uniform_check(rng.random(N), "here"),
    "link": lambda rng: link_check([(rng.normal(size=N), rng.normal(size=N))], "rounds"),
    # Grids of a release have 2**28 steps per sigma, here 2**13, or up to twice as many.
    "reuse, coarse grid": lambda rng: reuse_check(on_grid(rng.normal(size=2000), 2.0**-13), "rounds"),
    "reuse, fine grid": lambda rng: reuse_check(on_grid(rng.normal(size=2000), 0.84 * 2.0**-13), "rounds"),
    "frequency": lambda rng: coins(rng, 0.7),
    "parts": lambda rng: parts_check({str(k): rng.normal(size=50) for k in range(8)}),
    "distances": lambda rng: distances_check(releases(rng)),
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
    if name in ("size", "mean", "law", "uniform", "link"):  # exact, so that not even power is given away
        assert alarms >= binom.ppf(1e-4, TIMES, 0.05)


def test_rank_bounds_hold():
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = np.linalg.svd(rng.normal(size=(256, 64)), compute_uv=False)
        low, high = rank_bounds(64, 256)
        assert 0 < low < values[-1]
        assert values[0] < high


def test_power_is_what_the_check_says():
    # At the level of an audit, noise smaller by what is printed is found in 99 % of the cases.
    rng = np.random.default_rng(1)
    n, times = 5_000, 400
    share = noticed_share(n)
    found = sum(size_check(share * rng.normal(size=n), "here").flagged for _ in range(times))
    assert binom.cdf(found, times, 0.99) > 1e-4
    assert binom.sf(found - 1, times, 0.99) > 1e-4
    assert 1 - noticed_share(200_000) < 0.0105  # 1 % of its size, with the numbers of an audit by default
    check = mean_check(rng.normal(size=n))
    shift = float(re.search(r"a mean of (\S+) sigma", check.power)[1])
    found = sum(mean_check(rng.normal(size=n) + shift).flagged for _ in range(times))
    assert binom.cdf(found, times, 0.98) > 1e-4  # the shift is printed with two digits


def test_power_of_frequencies():
    rng = np.random.default_rng(2)
    printed = float(re.search(r"notice (\S+) in place", coins(rng, 0.7, 20_000).power)[1])
    p = 1 / (1 + math.exp(-printed))
    found = sum(coins(rng, p, 20_000).flagged for _ in range(100))
    assert binom.cdf(found, 100, 0.98) > 1e-4  # epsilon is printed with four digits


@pytest.mark.repeats
def test_rare_labels_are_as_random_as_common_ones():
    # A small label epsilon needs many labels for its soft targets, and gets them.
    settings = Privacy(mode="fusion", epsilon=1.0, label_epsilon=0.02)
    checks = audit_labels(settings, 1_000, fusion.publish_labels)
    assert len(checks) == 6
    assert not any(check.flagged for check in checks)
