"""Mode "fusion": each mechanism against its theorem: exact arithmetic, brute force, distinguishing games."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.blocks.block import as_block
from fastadmm.engine.engine import Engine
from fastadmm.kernels.randomised_level import randomised_levels
from fastadmm.privacy.accounting import delta_of, log_delta_of
from fastadmm.privacy.fusion_mechanisms import (
    _SHAPES,
    CONSTANT,
    MAX_EPSILON,
    NORM_QUERIES,
    Channel,
    choose_channel,
    find_row_norm,
    gradient_sensitivity,
    keep_probability,
    private_descent,
    release_moments,
    row_norms,
)
from fastadmm.privacy.fusion_party import FusionBudget, fusion_budget, make_message
from fastadmm.privacy.noise import NoiseSource
from fastadmm.privacy.public import flip_probability, randomise_labels, soft_targets
from fastadmm.settings.privacy import FusionPrivacy
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

ENGINE = Engine(1)
LEVELS, CLIPS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32), (1.5, 1.75, 2.0, 2.5, 3.0, 3.5)


def source(seed=0, party=1):
    return NoiseSource("insecure_test", seed, party)


def exact_counts(epsilon, k):
    """How many of the 2**53 uniforms keep the level, and how many draw each symbol anew, exactly."""
    keep = keep_probability(epsilon, k)
    kept = math.ceil(Fraction(keep) * 2**53)  # u < keep

    def first_of(j):
        """Smallest u at or above keep for which the kernel's own arithmetic gives a symbol of at least j."""
        low, high = kept, 2**53
        while low < high:
            middle = (low + high) // 2
            u = middle * 2.0**-53
            if min(int((u - keep) / (1.0 - keep) * k), k - 1) >= j:
                high = middle
            else:
                low = middle + 1
        return low

    edges = [first_of(j) for j in range(k)] + [2**53]
    return kept, [b - a for a, b in itertools.pairwise(edges)]


@pytest.mark.representatives(20)
def probabilities(channel, score):
    """Probability of each symbol, of shape (N, k), for scores of shape (N,)."""
    last, numbers = channel.n_levels - 1, np.arange(channel.n_levels)
    place = 0.5 * (np.clip((np.asarray(score) - channel.center) / channel.clip, -1.0, 1.0) + 1.0) * last
    level = np.maximum(1.0 - abs(place[:, None] - numbers), 0.0)
    return channel.keep * level + (1.0 - channel.keep) / channel.n_levels


def best_shape(epsilon):
    """Levels and clip whose symbols have the largest squared correlation with a Gaussian score."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(101)
    weights, best = weights / weights.sum(), (-1.0, 0, 0.0)
    for k, clip in itertools.product(LEVELS, CLIPS):
        channel, v = Channel(epsilon, k, 0.0, clip), np.linspace(-1.0, 1.0, k)
        p = probabilities(channel, nodes)
        mean, second = p @ v / channel.keep, weights @ (p @ (v * v)) / channel.keep**2
        quality = (weights @ (mean * nodes)) ** 2 / (second - (weights @ mean) ** 2)
        if quality > best[0] * (1.0 + 1e-9):
            best = quality, k, clip
    return best[1:]


def test_the_channel_chosen_from_public_numbers_is_what_a_search_finds():
    ends = [*(least for least, _, _ in _SHAPES[1:]), MAX_EPSILON]
    for (least, *_), end in zip(_SHAPES, ends):
        for epsilon in (least or 0.02, 0.5 * (least + end), end - 0.02):
            made = choose_channel(epsilon, -1.0, 2.0)
            assert (made.n_levels, made.clip / 2.0, made.center) == (*best_shape(epsilon), -1.0)
    assert choose_channel(40.0, -1.0, 2.0) == replace(made, epsilon=MAX_EPSILON)


@pytest.mark.parametrize("k", LEVELS)
@pytest.mark.parametrize("epsilon", [0.05, 0.4, 1.0, 2.8, 7.0, MAX_EPSILON])
def test_no_symbol_is_more_than_e_to_the_epsilon_likelier_for_one_record_than_for_another(epsilon, k):
    kept, anew = exact_counts(epsilon, k)
    assert kept + sum(anew) == 2**53
    # A record whose level is j with certainty against one whose level is another: the extreme points.
    ratios = [Fraction(kept + count, count) for count in anew]
    assert max(ratios) <= Fraction(math.exp(epsilon))
    assert float(min(ratios)) > math.exp(epsilon) * (1 - 1e-6)  # and nothing is given away


@given(
    epsilon=st.floats(0.01, 12), k=st.sampled_from(LEVELS), scores=st.lists(st.floats(-50, 50), min_size=2)
)
@settings(max_examples=100, deadline=None)
def test_symbol_probabilities_are_a_law_with_bounded_ratio_and_the_right_mean(epsilon, k, scores):
    channel = Channel(epsilon, k, -1.0, 2.0)
    score = np.array(scores)
    p = probabilities(channel, score)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert (p.max(axis=0) <= math.exp(epsilon) * p.min(axis=0) * (1 + 1e-12)).all()
    cut = np.clip(score, -3.0, 1.0)
    np.testing.assert_allclose(p @ channel.values(np.arange(k)), cut, atol=1e-9 / channel.keep)


def naive_levels(score, center, clip, keep, k, rounding, response):
    symbols = []
    for s, a, u in zip(score, rounding, response, strict=True):
        t = (s - center) / clip
        t = 1.0 if t > 1 else -1.0 if t < -1 else t
        place = (t + 1.0) / 2.0 * (k - 1)
        below = min(math.floor(place), k - 2)
        level = below + (1 if a < place - below else 0)
        symbols.append(level if u < keep else min(int((u - keep) / (1.0 - keep) * k), k - 1))
    return np.array(symbols, dtype=np.uint8)


@pytest.mark.parametrize("k", [2, 3, 16])
def test_kernel_is_its_naive_twin_on_any_row_range(k):
    rng = np.random.default_rng(k)
    n = 500
    score = np.concatenate([rng.normal(-1, 3, n - 4), [-1.0, 1.0, -3.0, 1e9]])
    rounding, response = rng.random(n), rng.random(n)
    arguments = (score, -1.0, 2.0, 0.37, k, rounding, response)
    levels = np.full(n, 255, dtype=np.uint8)
    for rows in ((0, 123), (123, 124), (124, n)):
        randomised_levels(*arguments, levels, *rows)
    np.testing.assert_array_equal(levels, naive_levels(*arguments))
    assert (levels < k).all()


def test_symbols_follow_their_law_in_a_channel_of_public_numbers():
    n = 200_000
    for k in (2, 5):
        channel = Channel(0.7, k, 0.5, 2.0)
        score = np.full(n, 1.3)
        levels = channel.release(score, source(k), 3, ENGINE)
        observed = np.bincount(levels, minlength=k) / n
        np.testing.assert_allclose(observed, probabilities(channel, score[:1])[0], atol=5 / math.sqrt(n))
        assert abs(channel.values(levels).mean() - 1.3) < 5 * channel.values(levels).std() / math.sqrt(n)


def record_gradient(row, target, weights, offset):
    """One record's summand; the row has norm at most 1."""
    extended = np.append(row, CONSTANT)
    return extended * (expit(extended @ weights + offset) - target)


@pytest.mark.parametrize("target", [0.0, 1.0, -0.58, 1.58, 3.0, -2.0])
def test_no_pair_of_records_moves_the_gradient_farther_than_the_theorem_says(target):
    bound = gradient_sensitivity(np.array([target]))
    rng = np.random.default_rng(0)

    def distance(v):
        rows = [x / max(1.0, np.linalg.norm(x)) for x in (v[:2], v[2:4])]
        one, other = (record_gradient(row, target, v[4:7], v[7]) for row in rows)
        return float(np.linalg.norm(one - other))

    worst = 0.0
    for _ in range(4):
        begin = rng.normal(size=8) * rng.choice([1.0, 10.0])
        found = minimize(lambda v: -distance(v), begin, method="Nelder-Mead", options={"maxiter": 400})
        worst = max(worst, -float(found.fun))
    # Opposite rows, and an offset that saturates the logistic function: the supremum.
    towards = 40.0 if abs(1.0 - target) > abs(target) else -40.0
    extreme = np.array([1.0, 0, -1.0, 0, 0, 0, 0, towards])
    worst = max(worst, distance(extreme))
    assert worst <= bound * (1 + 1e-12)
    assert worst >= 0.999 * bound


class Listening(NoiseSource):
    """Keeps what is about to get noise."""

    def __init__(self):
        super().__init__("insecure_test", 0, 1)
        self.heard = []

    def release(self, values, level, round, engine, stream=0):
        self.heard.append((np.array(values), level))
        return super().release(values, level, round, engine, stream)


def neighbours(n=30, d=3, seed=0):
    """Two blocks that differ in the features of record 4, one of them huge."""
    rng = np.random.default_rng(seed)
    one = rng.normal(size=(n, d))
    other = one.copy()
    one[4], other[4] = [1e6, 0, 0], [-1e-3, 5, 5]
    return one, other, (rng.random(n) < 0.4).astype(float)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_exact_values_of_neighbours_differ_by_at_most_their_sensitivity(wrap):
    # The first query of each mechanism sees equal pasts, so its exact values must be within the bound.
    one, other, y = neighbours()
    budget = FusionBudget(0.7, 0.02, 0.05, 0.03)
    heard = []
    for matrix in (one, other):
        listening = Listening()
        make_message(as_block(wrap(matrix)), y, y, budget, listening, ENGINE, row_norm=1.0)
        heard.append(listening.heard)
    (gradient, level), (twin, _) = heard[0][0], heard[1][0]
    assert 0.5 < np.linalg.norm(gradient - twin) <= 2.0
    assert level.sensitivity >= 2.0
    assert len(heard[0]) == 40 + 1  # nothing else gets noise; the symbols have their own


def test_moments_norms_and_costs_are_exact():
    one, _, y = neighbours()
    budget = fusion_budget(FusionPrivacy(epsilon=1.0))
    listening = Listening()
    make_message(as_block(one), y, y, budget, listening, ENGINE)
    spent = [level.gdp for _, level in listening.heard]
    assert len(spent) == NORM_QUERIES + 40 + 1
    assert math.hypot(*spent[:NORM_QUERIES]) == pytest.approx(budget.norm, rel=1e-12)
    assert math.hypot(*spent[NORM_QUERIES:-1]) == pytest.approx(budget.model, rel=1e-12)
    assert spent[-1] == pytest.approx(budget.moments, rel=1e-12)
    assert math.hypot(*spent) == pytest.approx(budget.gdp, rel=1e-12)
    # Norm count changes by one and the norm covers nine rows in ten.
    rng = np.random.default_rng(3)
    norms = np.concatenate([np.zeros(500), rng.uniform(1.0, 2.0, 9000), [1e5] * 500])
    found = find_row_norm(norms, 1.0, source(), 0, ENGINE)
    assert 1.9 <= found <= 2.4
    rare = np.zeros(10_000)
    rare[:400] = 3.0
    assert 3.0 <= find_row_norm(rare, 1.0, source(), 0, ENGINE) <= 3.4
    assert find_row_norm(np.zeros(100), 1.0, source(), 0, ENGINE) > 0
    # Moments move by at most two and are those of the scores.
    grid = np.linspace(-1, 1, 401)
    s, t = np.meshgrid(grid, grid)
    moved = np.sqrt((s - t) ** 2 + (s**2 - t**2) ** 2)
    assert moved.max() == pytest.approx(2.0)
    rng = np.random.default_rng(5)
    y = (rng.random(20_000) < 0.3).astype(float)
    score = rng.normal(-1.0 + y, 0.7)
    found = release_moments(score, y, -1.0, 2.0, source(), 0, ENGINE)
    for k in range(2):
        assert found.mean[k] == pytest.approx(score[y == k].mean(), abs=0.01)
        assert found.square[k] == pytest.approx(((score[y == k] + 1.0) ** 2).mean(), abs=0.02)
    mean, variance = found.overall
    assert mean == pytest.approx(score.mean(), abs=0.01)
    assert variance == pytest.approx(score.var(), abs=0.02)


def test_descent_with_little_noise_comes_near_the_fit():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(4000, 2)) / 3
    y = (rng.random(4000) < expit(3 * X[:, 0] - 1)).astype(float)
    norms = row_norms(as_block(X))
    fitted = private_descent(as_block(X), norms, norms.max(), y, 1e3, source(), 0, ENGINE)
    assert fitted.weights[0] == pytest.approx(3.0, abs=0.8)
    assert abs(fitted.weights[1]) < 0.3
    assert fitted.intercept == pytest.approx(-1.0, abs=0.3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0, 30.0])
@pytest.mark.parametrize("public_norm", [True, False])
def test_budget_is_spent_exactly(epsilon, public_norm):
    budget = fusion_budget(FusionPrivacy(epsilon=epsilon, row_norm=1.0 if public_norm else None))
    mu, symbol = budget.gdp, budget.symbol
    up = 1.0 / (1.0 + math.exp(-symbol))
    terms = ((up, epsilon - symbol), (1.0 - up, epsilon + symbol))
    delta = sum(p * math.exp(log_delta_of(mu, e)) for p, e in terms)
    assert delta == pytest.approx(1e-5, rel=1e-9)
    assert delta_of(mu, epsilon, (symbol,)) <= 1e-5
    assert (budget.norm == 0.0) == public_norm
    # better than adding epsilons: the sum rule would allow less noise-free mu
    assert delta_of(mu, epsilon - symbol) > 1e-5


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 20.0])
def test_label_response_has_bounded_ratio_and_unbiased_targets(epsilon):
    p = flip_probability(epsilon)
    flips = math.ceil(Fraction(p) * 2**53)
    assert Fraction(2**53 - flips, flips) <= Fraction(math.exp(epsilon))
    low, high = soft_targets(np.array([0.0, 1.0]), epsilon)
    assert (1 - p) * high + p * low == pytest.approx(1.0, abs=1e-9)
    assert (1 - p) * low + p * high == pytest.approx(0.0, abs=1e-9)
    y = (np.arange(100_000) % 3 == 0).astype(float)
    noisy = randomise_labels(y, epsilon, source(), 0, ENGINE)
    assert (noisy != y).mean() == pytest.approx(p, abs=0.01)
    assert flip_probability(math.inf) == 0.0
