"""Audits from outside: noise on parameters, the paper's calibration and formulas."""

import math

import numpy as np
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError
from fastadmm.privacy.accounting import epsilon_of
from fastadmm.privacy.noise import NoiseSource, calibrate
from fastadmm.privacy.noise_tests import directions_check
from fastadmm.privacy.paper_noise import (
    corollary_epsilon,
    lemma_counter_example,
    lemma_sensitivity,
    theorem_sigma,
)

ENGINE = Engine(1)


# --- the paper's calibration, and noise on parameters
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


# --- the paper's formulas
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
        with pytest.raises(ConfigError, match="paper calibration"):
            bad()


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
