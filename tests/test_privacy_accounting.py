"""Accounting: the closed form at 60 digits, dp-accounting's PLD and RDP, compositions by brute force."""

import itertools
import math

import numpy as np
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError
from fastadmm.privacy.accounting import (
    compose_gdp,
    delta_of,
    epsilon_of,
    gdp_of,
    log_delta_of,
    noise_multiplier,
    zcdp_budget,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_of,
)
from fastadmm.privacy.noise import NoiseSource, calibrate
from fastadmm.privacy.noise_tests import directions_check
from fastadmm.privacy.paper_noise import (
    corollary_epsilon,
    lemma_counter_example,
    lemma_sensitivity,
    theorem_sigma,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from run_tools import refuses

MUS = [1e-8, 1e-4, 1e-2, 0.3, 0.49, 0.5, 0.51, 1.0, 2.0, 5.0, 20.0, 60.0]
EPSILONS = [0.0, 1e-6, 1e-3, 0.1, 0.5, 1.0, 4.0, 16.0, 64.0, 1000.0, -0.5, -3.0, -30.0]


def closed_form(mu, epsilon):
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        value = mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)
        return mpmath.log(value)


@pytest.mark.parametrize("mu", MUS)
def test_law_equals_the_closed_form_also_in_the_tails(mu):
    for epsilon in EPSILONS:
        exact = closed_form(mu, epsilon)
        if exact < -1e6:  # 60 digits of the reference itself are used up
            continue
        assert abs(log_delta_of(mu, epsilon) - exact) <= 1e-12 * max(1, abs(exact))


def test_limits_and_pure_budgets():
    assert log_delta_of(0.0, 1.0) == -math.inf
    assert delta_of(math.inf, 5.0) == 1.0
    assert delta_of(0.0, -1.0) == pytest.approx(1 - math.exp(-1))
    assert epsilon_of(math.inf, 1e-5) == epsilon_of(1.0, 0.0) == math.inf
    assert epsilon_of(0.0, 0.0, (1.0, 2.0)) == 3.0
    assert epsilon_of(1e-9, 1e-5) == 0.0
    assert math.exp(log_delta_of(40.0, 0.5)) == pytest.approx(1.0)
    # Budget spent by pure mechanisms is an error.
    refuses(ConfigError, "already spent", gdp_of, 1.0, 1e-5, (1.5,))
    refuses(ConfigError, "delta", epsilon_of, 1.0, 1.5)
    refuses(ConfigError, "rounds", noise_multiplier, 1.0, 1e-5, 0)


@given(st.floats(-3, 3), st.floats(-12, -0.5))
def test_epsilon_and_mu_are_inverse_and_safe(log_mu, log_delta):
    mu, delta = 10**log_mu, 10**log_delta
    epsilon = epsilon_of(mu, delta)
    assert delta_of(mu, epsilon) <= delta
    if 1e-9 < epsilon < 600:
        back = gdp_of(epsilon, delta)
        assert back == pytest.approx(mu, rel=1e-9)
        assert delta_of(back, epsilon) <= delta


@pytest.mark.parametrize(("epsilon", "rounds"), [(0.5, 1), (1.0, 10), (4.0, 7), (16.0, 100)])
def test_rounds_compose_to_the_budget(epsilon, rounds):
    multiplier = noise_multiplier(epsilon, 1e-6, rounds)
    assert epsilon_of(compose_gdp([1 / multiplier] * rounds), 1e-6) == pytest.approx(epsilon, rel=1e-9)


def test_mechanisms_compose_exactly_or_from_above():
    # brute force over all outcomes of the dominating pairs
    pure, epsilon = (0.7, 0.3, 1.1), 1.3
    up = [math.exp(e) / (1 + math.exp(e)) for e in pure]
    excess = 0.0
    for outcome in itertools.product((0, 1), repeat=3):
        p = math.prod(u if o else 1 - u for u, o in zip(up, outcome))
        q = math.prod(1 - u if o else u for u, o in zip(up, outcome))
        excess += max(p - math.exp(epsilon) * q, 0.0)
    assert delta_of(0.0, epsilon, pure) == pytest.approx(excess, rel=1e-12)
    assert delta_of(0.0, sum(pure), pure) == 0.0
    # Gaussian with pure is exact.
    mu, pure, epsilon = 0.8, 0.6, 1.2
    x = np.linspace(-12, 12, 400_001)
    p0, p1 = norm.pdf(x, mu), norm.pdf(x, 0.0)
    up = math.exp(pure) / (1 + math.exp(pure))
    density = np.maximum(p0 * up - math.exp(epsilon) * p1 * (1 - up), 0)
    density += np.maximum(p0 * (1 - up) - math.exp(epsilon) * p1 * up, 0)
    assert delta_of(mu, epsilon, (pure,)) == pytest.approx(np.trapezoid(density, x), rel=1e-8)
    assert epsilon_of(mu, 1e-5, (pure,)) < epsilon_of(mu, 1e-5) + pure
    left = gdp_of(2.0, 1e-5, (pure,))
    assert epsilon_of(left, 1e-5, (pure,)) == pytest.approx(2.0, rel=1e-9)
    # Many pure mechanisms stay an upper bound.
    several = [0.01 * (k + 1) for k in range(20)]  # 2^20 patterns: some are added plainly
    assert delta_of(0.5, 3.0, several) >= delta_of(0.5, 3.0, several[:10])
    assert epsilon_of(0.5, 1e-5, several) <= epsilon_of(0.5, 1e-5) + sum(several) + 1e-9
    equal = epsilon_of(0.0, 1e-5, [0.1] * 100)
    assert equal < 10.0  # far below plain addition


def test_zcdp_is_an_upper_bound_and_its_inverses_agree():
    for epsilon in (0.5, 1.0, 4.0, 16.0):
        mu = gdp_of(epsilon, 1e-5)
        rho = zcdp_of([mu])
        bound = zcdp_epsilon(rho, 1e-5)
        assert epsilon < bound < 1.15 * epsilon
        assert zcdp_delta(rho, bound) <= 1e-5
        budget = zcdp_budget(epsilon, 1e-5)
        assert zcdp_epsilon(budget, 1e-5) == pytest.approx(epsilon, rel=1e-8)
        # a grid of orders, as an obvious twin
        alphas = 1 + np.geomspace(1e-4, 1e4, 40_000)
        logs = (alphas - 1) * (alphas * rho - bound) - np.log(alphas - 1) + alphas * np.log1p(-1 / alphas)
        assert zcdp_delta(rho, bound) == pytest.approx(np.exp(logs.min()), rel=1e-4)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_dp_accounting_agrees(epsilon):
    dp = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    # Our sensitivity is for our adjacency; the relation below only means "Gaussian with sensitivity 1".
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    event = dp.SelfComposedDpEvent(dp.GaussianDpEvent(noise_multiplier(epsilon, 1e-5, 5)), 5)
    pld = PLDAccountant(relation).compose(event).get_epsilon(1e-5)
    rdp = RdpAccountant(neighboring_relation=relation).compose(event).get_epsilon(1e-5)
    assert pld == pytest.approx(epsilon, rel=1e-3)
    assert rdp >= epsilon


ENGINE = Engine(1)


def test_the_papers_calibration_and_noise():
    case = lemma_counter_example(66)
    exact = epsilon_of(case.distance / theorem_sigma(1.0, 1e-5, case.lemma), 1e-5)
    assert exact == pytest.approx(23.8, abs=0.1)
    # Parameter noise is refused without sampling its size.
    rng = np.random.default_rng(0)
    A = rng.normal(size=(72, 10))
    for sigma in (1e-2, 1.0, 1e4):
        assert directions_check(sigma * rng.normal(size=(288, 10)) @ A.T).flagged
    level, source = calibrate(1.0, 2.0, 72), NoiseSource()
    drawn = [source.release(np.zeros(72), level, k, ENGINE).values for k in range(288)]
    assert not directions_check(np.array(drawn) / level.sigma).flagged


def test_paper_formulas_equal_values_by_hand():
    # C = 3 / (66 * 0.1) * (0.01 * 1 + (1 + 2 * 0.1) * 2) = 0.45454545 * 2.41
    assert lemma_sensitivity(66, 0.1, 0.01, 1.0, 2.0, 2) == pytest.approx(1.0954545454545455, rel=1e-14)
    # sqrt(2 ln 125000) = 4.844805262605389
    assert theorem_sigma(1.0, 1e-5, 2.0) == pytest.approx(9.689610525210778, rel=1e-12)
    assert theorem_sigma(0.5, 1e-5, 1.0) == pytest.approx(9.689610525210778, rel=1e-12)
    # sqrt(20 ln 1e5) + 10 (e - 1) = 15.17427 + 17.18282
    assert corollary_epsilon(1.0, 10, 1e-5) == pytest.approx(32.357089, abs=1e-5)
    assert corollary_epsilon(1.0, 50, 1e-5) == pytest.approx(119.8448, abs=1e-3)
    for bad in (lambda: lemma_sensitivity(0, 1, 1, 1, 1, 1), lambda: theorem_sigma(0, 1e-5, 1)):
        refuses(ConfigError, "paper calibration", bad)


@pytest.mark.parametrize(("d", "ratio"), [(4, 1.15), (10, 2.88), (66, 19.0), (123, 35.5)])
def test_counter_example_breaks_the_lemma_within_its_assumptions(d, ratio):
    case = lemma_counter_example(d)
    for D in (case.first, case.second):
        np.testing.assert_allclose(np.linalg.norm(D, axis=1), 1.0, rtol=1e-12)
        assert np.linalg.matrix_rank(D) == d
    assert np.linalg.norm(case.first - case.second, 2) == pytest.approx(1.0, rel=1e-9)
    assert (np.abs(case.first - case.second).max(axis=0) > 0).sum() == 1
    assert np.linalg.norm(case.target) == pytest.approx(1.0)
    weights = [np.linalg.lstsq(D, case.target, rcond=None)[0] for D in (case.first, case.second)]
    assert all(np.linalg.norm(x) <= 1.0 + 1e-9 for x in weights)
    assert case.distance / case.lemma == pytest.approx(ratio, rel=5e-3)
    assert case.distance / case.lemma == pytest.approx(d / (2 * math.sqrt(3)), rel=5e-3)
