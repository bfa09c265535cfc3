"""Sensitivities: never below what an adversary finds, and tight where the record says so."""

import itertools
import math

import numpy as np
import pytest
from fastadmm.errors import ConfigError
from fastadmm.privacy.adversary import concrete_rows, find_worst_pair
from fastadmm.privacy.message_party import fixed_ball_solution
from fastadmm.privacy.sensitivity import (
    clip_rows,
    column_sensitivity,
    message_sensitivity,
    replace_one_sensitivity,
    solver_error,
    solver_slack,
    weights_sensitivity,
    zero_out_sensitivity,
)
from fastadmm.settings.privacy import Privacy

from run_tools import refuses


def answer(A, w, mu, ball):
    """x-update, independent of the adversary's two-column formulas; mu tiny stands for zero."""
    values, vectors = np.linalg.eigh(A.T @ A)
    x, _ = fixed_ball_solution(np.maximum(values, 0) + max(mu, 1e-12), vectors.T @ (A.T @ w), ball)
    return vectors @ x


def zero_out_of_weights(*case):
    return weights_sensitivity(*case, "zero_out")


def random_rows(rng, n, d):
    rows = rng.normal(size=(n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) * rng.choice([1.0, 0.3, 0.01], size=(n, 1))


def zero_out(*cases):
    """Cases of deleted records, where the bound is reached."""
    return [(case, {"adjacency": "zero_out", "starts": 8}, zero_out_sensitivity, 0.99) for case in cases]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "search", "bound_of", "least"),
    [
        *zero_out((1, 1, 0.1), (1, 0.5, 1), (1, 3, 0.1), (1, 3, 5), (2, 2, 10), (1, 6, 0.01)),
        *zero_out((5, 3, 20, 1), (5, 5, 100, 1), (10, 5, 100, 2), (10, 10, 1000, 1), (5, 2, 1, 1)),
        *(
            (case, {"starts": 12}, replace_one_sensitivity, least)
            for case, least in (
                *(((1, 1, 0.1), 0.99), ((1, 0.5, 1), 0.99), ((2, 2, 10), 0.99), ((1, 6, 0.01), 0.99)),
                *(((1, 3, 0.1), 0.965), ((1, 3, 5), 0.925), ((5, 3, 20, 1), 0.97), ((5, 5, 100, 1), 0.985)),
                *(((10, 5, 100, 2), 0.985), ((10, 10, 1000, 1), 0.99), ((5, 2, 1, 1), 0.72)),
            )
        ),
        *(
            (case, {"adjacency": "zero_out", "kind": "weights", "starts": 8}, zero_out_of_weights, least)
            for case, least in (
                ((1, 1, 4), 0.99),
                ((1, 3, 20), 0.99),
                ((5, 1, 50), 0.99),
                ((2, 2, 0.25), 0.89),
            )
        ),
    ],
)
def test_bounds_are_nearly_reached(case, search, bound_of, least):
    found, bound = find_worst_pair(*case, **search).distance, bound_of(*case).value
    assert least * bound <= found <= bound


def test_a_found_pair_exists_as_rows():
    """The search works on a Gram matrix; real rows of norm at most 1 give the same distance."""
    pair = find_worst_pair(2, 2, 10, starts=2)
    first, second, w = concrete_rows(pair, 2.0)
    assert (np.linalg.norm(np.vstack([first, second]), axis=1) <= 1 + 1e-12).all()
    assert np.abs(w).max() <= 2.0
    assert ((first != second).any(axis=1)).sum() <= 1
    distance = np.linalg.norm(first @ answer(first, w, 10, 2) - second @ answer(second, w, 10, 2))
    assert distance == pytest.approx(pair.distance, rel=1e-6)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("seed", range(4))
def test_random_matrices_never_exceed_any_bound(seed):
    rng = np.random.default_rng(seed)
    for _ in range(400):
        n, d = int(rng.integers(2, 25)), int(rng.integers(1, 4))
        ball, target = 10.0 ** rng.uniform(-1, 1, size=2)
        mu = float(rng.choice([0.0, *(10.0 ** rng.uniform(-2, 2, size=3))]))
        b = 10.0 ** rng.uniform(-1, 1)
        A = random_rows(rng, n, d)
        w = np.clip(rng.normal(size=n) * target * rng.choice([0.3, 3.0]), -target, target)
        changed, zeroed = A.copy(), A.copy()
        changed[0], zeroed[0] = random_rows(rng, 1, d)[0], 0.0
        x, y, x0 = (answer(D, w, mu, ball) for D in (A, changed, zeroed))
        moved, gone = A @ x - changed @ y, A @ x - zeroed @ x0
        assert np.linalg.norm(moved) <= replace_one_sensitivity(ball, target, mu).value * (1 + 1e-9)
        assert np.linalg.norm(gone) <= zero_out_sensitivity(ball, target, mu).value * (1 + 1e-9)
        clip = lambda m: np.clip(m, -b, b)  # noqa: E731, B023
        moved = clip(A @ x) - clip(changed @ y)
        assert np.linalg.norm(moved) <= replace_one_sensitivity(ball, target, mu, b).value * (1 + 1e-9)
        gone = clip(A @ x) - clip(zeroed @ x0)
        assert np.linalg.norm(gone) <= zero_out_sensitivity(ball, target, mu, b).value * (1 + 1e-9)
        for other, adjacency in ((y, "replace_one"), (x0, "zero_out")):
            bound = weights_sensitivity(ball, target, mu, adjacency).value
            assert np.linalg.norm(x - other) <= bound * (1 + 1e-9)


def test_formulas_are_the_largest_corners():
    rng = np.random.default_rng(0)
    for _ in range(200):
        B, W = 10.0 ** rng.uniform(-1, 1, size=2)
        best = max(
            -2 * p * q + w * (p + q - r - s) + p * r + q * s
            for p, q, r, s, w in itertools.product((-B, B), (-B, B), (-B, B), (-B, B), (-W, W))
        )
        # mu = 0: twice T1 is never the smaller one by more than the corner's square root
        exact = min(math.sqrt(best), 2 * zero_out_sensitivity(B, W).value)
        assert replace_one_sensitivity(B, W).value == pytest.approx(exact, rel=1e-9)
    # Zero out formula is the largest value.
    rng = np.random.default_rng(0)
    for _ in range(100):
        B, W, mu = 10.0 ** rng.uniform(-1, 1, size=3)
        p, p0 = np.meshgrid(np.linspace(-B, B, 201), np.linspace(-B, B, 201))
        values = [w * (p - p0) + p * p0 - mu * (p - p0) ** 2 for w in (-W, W)]
        bound = zero_out_sensitivity(B, W, mu).value
        assert 0.999 * bound <= math.sqrt(np.max(values)) <= bound


@pytest.mark.parametrize(("mu", "least"), [(100, 0.996), (10, 0.98), (1, 0.84)])
def test_column_bound_without_a_ball_is_tight(mu, least):
    # one column, one direction: A = s e, w = e; the column moves by e
    s = np.linspace(-1.0, 30.0, 200_001)
    message = lambda t: t * t / (t * t + mu)  # noqa: E731
    found = float(np.abs(message(s + 1.0) - message(s)).max())
    bound = column_sensitivity(1.0, 1.0, mu).value
    assert least * bound <= found <= bound


def random_move(rng, shape):
    """A matrix of spectral norm 1: of any rank, of rank one, or with all singular values 1."""
    left, values, right = np.linalg.svd(rng.normal(size=shape), full_matrices=False)
    kind = rng.integers(3)
    values = values / values[0] if kind == 0 else np.where(np.arange(len(values)) > 0, kind - 1.0, 1.0)
    return (left * values) @ right


def test_column_bounds_hold_for_any_move_of_the_block():
    """Every A + E with |E| <= U, of one column or of many; from random starts the worst E is climbed to."""
    rng = np.random.default_rng(1)
    worst = {None: 0.0, 0.3: 0.0}
    for _ in range(12):
        n, d = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        mu, w = 10.0 ** rng.uniform(0, 2), rng.normal(size=n)
        for ball, before in worst.items():
            bound = column_sensitivity(1.0, float(np.linalg.norm(w)), mu, ball).value
            A, E = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 1), random_move(rng, (n, d))
            best, step = -1.0, 1.0
            for _ in range(30):
                B = A + step * rng.normal(size=A.shape) if best >= 0.0 else A
                F = E + step * rng.normal(size=E.shape) if best >= 0.0 else E
                F = F / np.linalg.norm(F, 2)
                x, y = (answer(D, w, mu, ball or 1e6) for D in (B, B + F))
                found = float(np.linalg.norm(B @ x - (B + F) @ y)) / bound
                if found > best:
                    best, A, E = found, B, F
                else:
                    step *= 0.9
            worst[ball] = max(before, best)
    assert all(0.75 < ratio <= 1 + 1e-9 for ratio in worst.values()), worst
    assert column_sensitivity(1e9, 3.0, 1.0).value == pytest.approx(3.0)  # never more than |w|


def test_a_raw_column_moves_the_clipped_rows_by_no_more():
    """Rows are clipped after the column has moved, so whole rows change: by at most |u| in Frobenius norm."""
    rng = np.random.default_rng(2)
    rows_moved = 0
    for _ in range(100):
        n, d, mu = int(rng.integers(1, 6)), int(rng.integers(2, 5)), 10.0 ** rng.uniform(0, 2)
        raw = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 1)
        u = rng.normal(size=n)
        u /= np.linalg.norm(u)
        moved = raw.copy()
        moved[:, 0] += u
        A, B = clip_rows(raw), clip_rows(moved)
        assert np.linalg.norm(A - B) <= 1.0 + 1e-12
        rows_moved += not np.allclose(A[:, 1:], B[:, 1:])
        w = rng.normal(size=n)
        for ball in (None, 0.3):
            bound = column_sensitivity(1.0, float(np.linalg.norm(w)), mu, ball).value
            x, y = (answer(D, w, mu, ball or 1e6) for D in (A, B))
            assert np.linalg.norm(A @ x - B @ y) <= bound * (1 + 1e-9)
    assert rows_moved > 30


def test_certificates_hold_for_inexact_answers():
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(800):
        n, d, mu = 6, 2, 10.0 ** rng.uniform(-2, 1)
        A, w = random_rows(rng, n, d), rng.normal(size=n)
        if rng.random() < 0.5:
            A = rng.normal(size=(1, 1)) * np.sqrt(mu)
            w = w[:1]
            d = 1
        ball = 10.0 ** rng.uniform(-1, 1)
        exact = answer(A, w, mu, ball)
        guess = exact + rng.normal(size=d) * 10.0 ** rng.uniform(-6, 0)
        on_sphere = np.linalg.norm(exact) > ball * (1 - 1e-9) or np.linalg.norm(guess) > ball
        if on_sphere:
            guess *= ball / np.linalg.norm(guess)
        gradient = A.T @ (A @ guess - w) + mu * guess
        nu = max(0.0, -float(gradient @ guess) / float(guess @ guess)) if on_sphere else 0.0
        bound = solver_error(float(np.linalg.norm(gradient + nu * guess)), mu)
        error = float(np.linalg.norm(A @ (guess - exact)))
        assert error <= bound + 1e-9
        worst = max(worst, error / max(bound, 1e-7))
    assert worst > 0.97
    # The slack is public and covers rounding.
    settings = Privacy(mode="message", epsilon=1.0)
    assert solver_slack(settings, 32.6, 32_561) == 1e-6  # a9a with default settings
    size = 1e6 * 16.0 + 1e-4 * 8.0
    rounding = 2.0**-53 * (1e6 + 4 * 4096) * size / 1e-2
    assert solver_slack(settings, 1e-4, 1_000_000) == pytest.approx(rounding)


@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out", "column"])
def test_settings_choose_the_smallest_bound(adjacency):
    settings = Privacy(mode="message", epsilon=1.0, adjacency=adjacency)
    got = message_sensitivity(settings, 100.0, 50)
    exact = {
        "replace_one": replace_one_sensitivity(8, 8, 100, 2).value,
        "zero_out": zero_out_sensitivity(8, 8, 100, 2).value,
        "column": column_sensitivity(1.0, 8 * math.sqrt(50), 100, 8).value,
    }[adjacency]
    assert got.value == pytest.approx(exact + 2e-6, rel=1e-12)


@pytest.mark.parametrize("case", [(0.0, 1, 1), (1, math.inf, 1), (1, 1, -1.0), (math.nan, 1, 1)])
def test_bad_constants_are_errors(case):
    refuses(ConfigError, "sensitivity", replace_one_sensitivity, *case)
    refuses(ConfigError, "message clip", zero_out_sensitivity, 1, 1, 1, 0.0)
    refuses(ConfigError, "column", column_sensitivity, 1.0, 1.0, 0.0)
