"""Losses: kernels against obvious twins, proximal identities, and whole fits against other solvers."""

import io
import math
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, InputError
from fastadmm.problem.losses import LOSSES, get_loss, parse_loss
from fastadmm.problem.problem import make_problem
from fastadmm.problem.traits import Traits
from fastadmm.schemes.registry import choose_scheme
from fastadmm.solver.history import Status
from fastadmm.solver.metrics import deviance_metrics, evaluation_metrics
from fastadmm.solver.solver import Solver, SolverOptions, solve
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import nbinom
from sklearn.linear_model import TweedieRegressor
from sklearn.metrics import d2_tweedie_score, mean_tweedie_deviance

import naive
from run_tools import refuses, run, told

ENGINE = Engine(1)
EPS = np.finfo(float).eps
DOCUMENT = Path(__file__).parents[1] / "docs" / "losses.md"

LABELS = ("hinge", "squared_hinge", "smoothed_hinge")
LOG_LINK = ("poisson", "gamma", "tweedie", "negative_binomial")
KINKS = ("hinge", "quantile")


def terms(loss, z, y):
    """Size of what the formula adds up: rounding is in units of it."""
    p, log = loss.parameters, np.log(np.maximum(y, 1e-300)) * (y > 0)
    match loss.name:
        case "poisson":
            return np.abs(y * z) + y * np.abs(log) + np.exp(z)
        case "gamma":
            return (1 + np.abs(z - log)) * y * np.exp(-z) + np.abs(z) + np.abs(log) + 1
        case "tweedie":
            a, b = p["power"] - 1, 2 - p["power"]
            return (1 + np.abs(z - log)) * (y * np.exp(-a * z) / a + np.exp(b * z) / b + y**b)
        case "negative_binomial":
            k = 1 / p["alpha"]
            return (y + k) * (1 + np.log1p(np.exp(z) / k) + np.log1p(y / k)) + y * np.abs(z - log)
    return 0.0 * z


def derivatives(loss, z, y):
    """Left and right derivative."""
    t, m, p = 2 * y - 1, (2 * y - 1) * z, loss.parameters
    match loss.name:
        case "logistic":
            g = 1 / (1 + np.exp(-z)) - y
        case "squared":
            g = z - y
        case "huber":
            g = np.clip(z - y, -p["delta"], p["delta"])
        case "quantile":
            return np.where(z > y, 1 - p["tau"], -p["tau"]), np.where(z >= y, 1 - p["tau"], -p["tau"])
        case "hinge":
            inner, outer = np.where(m < 1, -1.0, 0.0), np.where(m <= 1, -1.0, 0.0)
            return np.where(t > 0, outer, -inner), np.where(t > 0, inner, -outer)
        case "squared_hinge":
            g = -2 * t * np.maximum(0, 1 - m)
        case "smoothed_hinge":
            g = -t * np.clip((1 - m) / p["gamma"], 0, 1)
        case "poisson":
            g = np.exp(z) - y
        case "gamma":
            g = 1 - y * np.exp(-z)
        case "tweedie":
            g = np.exp((2 - p["power"]) * z) - y * np.exp((1 - p["power"]) * z)
        case "negative_binomial":
            g = (np.exp(z) - y) / (1 + p["alpha"] * np.exp(z))
    return g, g


def prox(loss, v, shift, y, s, r):
    """Minimisers of ``s l(z + shift) + r/2 (z - v)^2``, elementwise, by bisection on the derivative."""

    def end(sign, side):
        """A point beyond each minimiser: the derivative points back."""
        far = np.full(len(v), float(sign))
        while (short := sign * (s * derivatives(loss, v + far + shift, y)[side] + r * far) < 0).any():
            far[short] *= 2
        return v + far

    low, high = end(-1, 0), end(1, 1)
    for _ in range(200):
        middle = (low + high) / 2
        right = s * derivatives(loss, middle + shift, y)[1] + r * (middle - v) > 0
        low, high = np.where(right, low, middle), np.where(right, middle, high)
    return (low + high) / 2


def draw_targets(loss, rng, n):
    if loss.name in LABELS:
        return rng.integers(0, 2, n).astype(float)
    if loss.name == "logistic":
        return np.where(rng.random(n) < 0.5, rng.integers(0, 2, n), rng.random(n)).astype(float)
    if loss.name in ("poisson", "negative_binomial"):
        return np.where(rng.random(n) < 0.3, 0.0, np.floor(10 ** rng.uniform(0, 3, n)))
    if loss.name in ("gamma", "tweedie"):
        y = 10 ** rng.uniform(-3, 3, n)
        return y if loss.name == "gamma" else np.where(rng.random(n) < 0.3, 0.0, y)
    return rng.normal(size=n) * 10 ** rng.uniform(-2, 2, n)


VARIANTS = [
    # the others: test_multinomial.py, test_nonconvex.py; binomial has the kernels of logistic
    *(loss for loss in LOSSES.values() if loss.convex and not loss.vector and loss.name != "binomial"),
    get_loss("huber", delta=1e-3),
    get_loss("huber", delta=250.0),
    get_loss("quantile", tau=0.9),
    get_loss("quantile", tau=0.01),
    get_loss("smoothed_hinge", gamma=1e-3),
    get_loss("smoothed_hinge", gamma=20.0),
    get_loss("tweedie", power=1.05),
    get_loss("tweedie", power=1.9),
    get_loss("negative_binomial", alpha=0.05),
    get_loss("negative_binomial", alpha=50.0),
]
every_loss = pytest.mark.parametrize(
    "loss", VARIANTS, ids=lambda x: x.name + "".join(f"-{v:g}" for v in x.parameters.values())
)


def targets_of(loss, most, otherwise):
    """Targets of a loss up to a size."""
    if loss.task == "classification":
        return st.sampled_from([0.0, 1.0])
    match loss.name:
        case "poisson" | "negative_binomial":
            return st.integers(0, int(most)).map(float)
        case "gamma":
            return st.floats(1e-3, most)
        case "tweedie":
            return st.just(0.0) | st.floats(1e-3, most)
    return otherwise


def draw(loss, seed, n=200, reach=12.0):
    rng = np.random.default_rng(seed)
    y = draw_targets(loss, rng, n)
    z = rng.normal(size=n) * 10 ** rng.uniform(-2, math.log10(reach), n)
    z = np.clip(z, -30, 30) + (y if loss.task == "regression" and loss.name not in LOG_LINK else 0)
    z[:2] = (2 * y[:2] - 1) if loss.name in LABELS else y[:2] if loss.name in ("huber", "quantile") else z[:2]
    s = np.where(rng.random(n) < 0.1, 0.0, 10 ** rng.uniform(-3, 3, n))
    return rng, z, y, s


@every_loss
def test_curvature_grows_no_faster_than_a_self_concordant_loss_says(loss):
    if not loss.self_concordant:
        assert loss.name not in LOG_LINK
        return
    _, z, y, s = draw(loss, 3)
    here, there = np.empty(len(z)), np.empty(len(z))
    loss.curvature(z, y, s, here, ENGINE)
    for step in (-1.0, -0.1, 1e-3, 0.5):
        loss.curvature(z + step, y, s, there, ENGINE)
        assert (there <= np.exp(abs(step)) * here * (1.0 + 1e-12)).all()


@every_loss
def test_value_gradient_and_curvature(loss):
    _, z, y, s = draw(loss, 1)
    g, h = np.full(len(z), np.nan), np.full(len(z), np.nan)
    total = loss.evaluate(z, y, s, g, ENGINE)
    each = s * naive.value(loss, z, y)
    rounding = s @ terms(loss, z, y)
    assert total == pytest.approx(math.fsum(each), rel=1e-13, abs=20 * EPS * float(rounding))
    left, right = derivatives(loss, z, y)
    slack = 1e-13 * s * (1 + np.abs(z) + np.abs(y) + np.exp(np.minimum(z, 30)) + terms(loss, z, y))
    assert (s * left - slack <= g).all()
    assert (g <= s * right + slack).all()
    loss.curvature(z, y, s, h, ENGINE)
    assert (h >= 0).all()
    step = 1e-6 * (1 + np.abs(z))
    before, after = derivatives(loss, z - step, y)[1], derivatives(loss, z + step, y)[0]
    difference = s * (after - before) / (2 * step)
    parameter = min(loss.parameters.values(), default=1.0)
    settled = np.ones(len(z), bool)
    if loss.name not in ("logistic", "squared", *LOG_LINK):  # not across a corner of the derivative
        a, b = np.empty(len(z)), np.empty(len(z))
        loss.curvature(z - step, y, s, a, ENGINE)
        loss.curvature(z + step, y, s, b, ENGINE)
        settled = (a == b) & (h == a) & (difference * 2 * step < 0.5 * s * max(parameter, 1e-4))
    noise = 1e-9 * s * (1 + np.abs(y) + np.exp(z) + terms(loss, z, y)) / step * 1e-6
    np.testing.assert_array_less(np.abs(h - difference)[settled], (1e-4 * h + noise + 1e-300)[settled])
    assert settled.mean() > 0.5


@every_loss
@pytest.mark.parametrize("exponent", [-5, -2, 0, 2, 5])
def test_prox_against_bisection(loss, exponent):
    rng, v, y, s = draw(loss, 10 + exponent, n=80)
    r, shift = 10.0**exponent, rng.normal(size=len(v))
    s = np.where(s > 0, rng.uniform(0.1, 10, len(v)), 0.0)
    z, g = rng.normal(size=len(v)) * 1e3, np.full(len(v), np.nan)
    rows = SimpleNamespace(y=y, weight=s)
    sums = loss.prox(v, shift, rows, r, z, g, ENGINE)
    expected = prox(loss, v, shift, y, s, r)
    size = 1 + np.abs(v) + np.abs(shift) + np.abs(y) * (s / r if loss.name in LOG_LINK else 1)
    np.testing.assert_array_less(np.abs(z - expected), 1e-12 * size + 4 * EPS * s / r)
    check_prox(loss, v, shift, y, s, r, z, g)
    assert sums[0] == pytest.approx(math.fsum(g), abs=1e-11 * np.abs(g).sum() + 1e-300)
    step = 1e-6
    up, down, unused = np.empty(len(v)), np.empty(len(v)), z.copy()
    high = loss.prox(v, shift + step, rows, r, unused, up, ENGINE)
    low = loss.prox(v, shift - step, rows, r, unused, down, ENGINE)
    assert min(low[1], sums[1], high[1]) - 1e-6 * len(v) * r <= (high[0] - low[0]) / (2 * step) + 1e-3 * r
    assert sums[1] >= 0.0


def check_prox(loss, v, shift, y, s, r, z, g):
    """Moreau: ``v = z + g/r`` and ``g`` is a subgradient at z, exactly in the conjugate's domain."""
    # Stationarity, up to rounding of z.
    unit = {"gamma": 1.0, "negative_binomial": np.abs(y) + 1 / loss.parameters.get("alpha", 1.0)}
    unit = unit.get(loss.name, np.abs(y))
    size = np.abs(v) + np.abs(shift) + np.abs(y) + np.abs(g) / r + s * unit / r + 1
    np.testing.assert_array_less(np.abs(v - z - g / r), 32 * EPS * size)
    for i in range(len(v)):
        one = slice(i, i + 1)
        dual = loss.conjugate(g[one], y[one], s[one], ENGINE)
        assert math.isfinite(dual), i
        # Fenchel-Young with equality
        unused = np.empty(1)
        primal = loss.evaluate(z[one] + shift[one], y[one], s[one], unused, ENGINE)
        product = g[i] * (z[i] + shift[i])
        scale = abs(primal) + abs(dual) + abs(product) + (abs(g[i]) + s[i] * abs(y[i])) * size[i]
        assert abs(primal + dual - product) <= 64 * EPS * (scale + s[i] * size[i]), i


@pytest.mark.representatives(7)
@every_loss
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_prox_on_any_numbers(loss, data):
    v, shift = data.draw(st.floats(-1e3, 1e3)), data.draw(st.floats(-50, 50))
    s, r = data.draw(st.floats(1e-3, 1e3)), 10.0 ** data.draw(st.floats(-4, 4))
    y = data.draw(targets_of(loss, 1e6, st.floats(-1e3, 1e3)))
    arrays = [np.array([x]) for x in (v, shift, y, s)]
    rows = SimpleNamespace(y=arrays[2], weight=arrays[3])
    z, g = np.array([data.draw(st.floats(-1e3, 1e3))]), np.empty(1)
    _, slope = loss.prox(*arrays[:2], rows, r, z, g, ENGINE)
    assert 0.0 <= slope <= r * (1 + 4 * EPS)
    check_prox(loss, *arrays, r, z, g)


@pytest.mark.parametrize(
    ("loss", "low", "high"),
    [
        (get_loss("logistic"), -1.0, 0.0),
        (get_loss("hinge"), -1.0, 0.0),
        (get_loss("smoothed_hinge"), -1.0, 0.0),
        (get_loss("squared_hinge"), -math.inf, 0.0),
        (get_loss("huber", delta=3.0), -3.0, 3.0),
        (get_loss("quantile", tau=0.25), -0.25, 0.75),
        (get_loss("poisson"), -1.0, math.inf),
        (get_loss("gamma"), -math.inf, 1.0),
        (get_loss("tweedie"), -math.inf, math.inf),
        (get_loss("negative_binomial", alpha=0.25), -1.0, 4.0),
    ],
)
def test_conjugate_is_infinite_outside_its_domain(loss, low, high):
    y, s = np.ones(1), np.array([2.0])

    def at(u):
        return loss.conjugate(np.array([u]), y, s, ENGINE)

    for end, outside in ((low, -1), (high, 1)):
        if math.isfinite(end):
            assert math.isfinite(at(2 * end))
            assert at(math.nextafter(2 * end, outside * math.inf)) == math.inf
        else:
            assert math.isfinite(at(outside * 1e6))
    assert loss.conjugate(np.zeros(1), y, np.zeros(1), ENGINE) == 0.0
    assert loss.conjugate(np.full(1, 1e-9), y, np.zeros(1), ENGINE) == math.inf


def test_poisson_loss_keeps_its_digits_at_the_minimum():
    loss, g = get_loss("poisson"), np.empty(1)
    y, t = np.array([1e6]), 1e-5
    found = loss.evaluate(np.log(y) + t, y, np.ones(1), g, ENGINE)
    assert found == pytest.approx(1e6 * (t * t / 2 + t**3 / 6), rel=1e-8)
    assert loss.evaluate(np.array([800.0]), y, np.ones(1), g, ENGINE) == math.inf


@pytest.mark.parametrize("power", [1.0001, 1.3, 1.5, 1.95, 1.9999])
def test_tweedie_conjugate_is_never_below_the_supremum(power):
    """Else the bound of a certificate is none; against fifty digits."""
    import mpmath as mp

    loss, rng = get_loss("tweedie", power=power), np.random.default_rng(3)
    with mp.workdps(50):
        for _ in range(12):
            y, s = 10.0 ** rng.uniform(-4, 4), 10.0 ** rng.uniform(-2, 2)
            u = float(rng.choice([-1.0, 1.0])) * 10.0 ** rng.uniform(-6, 4) * s * y ** (2 - power)
            found = loss.conjugate(np.array([u]), np.array([y]), np.array([s]), ENGINE)
            a, b, size = mp.mpf(power) - 1, 2 - mp.mpf(power), mp.mpf(s) * mp.mpf(y) ** (2 - mp.mpf(power))
            c = mp.mpf(u) / size
            # Bracketed on the side of the root, then by bisection: slow and sure.
            low, high = (0, mp.log(1 + c) / b) if c > 0 else (-mp.log(1 - c) / a, 0)
            for _ in range(170):
                middle = (low + high) / 2
                above = mp.exp(b * middle) - mp.exp(-a * middle) > c
                low, high = (low, middle) if above else (middle, high)
            up, down = mp.expm1(b * low) / b, mp.expm1(-a * low) / a
            exact = mp.mpf(u) * mp.log(mp.mpf(y)) + size * (c * low - up - down)
            parts = float(abs(mp.mpf(u) * mp.log(mp.mpf(y))) + size * (c * low + abs(up) + abs(down)))
            assert float(mp.mpf(found) - exact) >= -2 * EPS * float(abs(u * math.log(y)))
            assert float(mp.mpf(found) - exact) <= 32 * EPS * parts


@pytest.mark.parametrize("alpha", [1e-9, 1e-3, 1.0, 1e6])
def test_negative_binomial_keeps_its_digits_from_poisson_to_the_heaviest_tails(alpha):
    import mpmath as mp

    loss, rng = get_loss("negative_binomial", alpha=alpha), np.random.default_rng(4)
    one, g = np.ones(1), np.empty(1)
    with mp.workdps(320):
        for count in (0.0, 1.0, 7.0, 1e6):
            for z in (*rng.uniform(-40, 40, 6), math.log(max(count, 1.0)) + 1e-4, 650.0, -650.0):
                found = loss.evaluate(np.array([z]), np.array([count]), one, g, ENGINE)
                mean, y, k = mp.exp(mp.mpf(z)), mp.mpf(count), 1 / mp.mpf(alpha)
                exact = (y + k) * mp.log((k + mean) / (k + y)) - (y * (mp.mpf(z) - mp.log(y)) if y else 0)
                slope = (mean - y) * k / (k + mean)
                assert abs(found - float(exact)) <= 1e-13 * float(exact + abs(slope) * abs(z) + y * 1e-3)
                assert g[0] == pytest.approx(float(slope), rel=1e-12, abs=1e-13 * count * abs(z))
                dual = loss.conjugate(g, np.array([count]), one, ENGINE)
                assert abs(found + dual - g[0] * z) <= 1e-13 * (found + abs(dual) + abs(g[0] * z) + count)


@pytest.mark.parametrize("alpha", [1.0, 1e3, 1e6, 1e9])
def test_negative_binomial_prox_keeps_its_digits_in_the_heaviest_tails(alpha):
    import mpmath as mp

    loss, one = get_loss("negative_binomial", alpha=alpha), np.ones(1)
    with mp.workdps(40):
        for count, centre, r in ((1e6, 14.0, 1.0), (1e6, -8.0, 1e-6), (7.0, 0.5, 1e-3), (0.0, 6.0, 1.0)):
            z, g = np.zeros(1), np.empty(1)
            rows = SimpleNamespace(y=one * count, weight=one)
            total, _ = loss.prox(np.array([centre]), np.zeros(1), rows, r, z, g, ENGINE)
            low, high = centre - 1 / mp.mpf(alpha) / r, centre + mp.mpf(count) / r
            for _ in range(140):
                middle = (low + high) / 2
                mean = mp.exp(middle)
                slope = (mean - count) / (1 + alpha * mean)
                low, high = (low, middle) if slope + r * (middle - centre) > 0 else (middle, high)
            assert z[0] == pytest.approx(float(low), rel=1e-14)
            assert g[0] == pytest.approx(float(slope), rel=1e-8)
            assert total == g[0]


@every_loss
def test_a_range_of_rows_touches_only_its_rows(loss):
    _, z, y, s = draw(loss, 3, n=1300)
    kernels, extra, n = loss.kernels(), loss.kernel_arguments(), 1300
    start, stop = 400, 1290
    whole, part = np.zeros((4, n)), np.full((4, n), -99.0)
    part[3, start:stop] = 0.0
    for out, rows in ((whole, (0, n)), (part, (start, stop))):
        kernels.evaluate(z, y, s, extra, out[0], *rows)
        kernels.curvature(z, y, s, extra, out[1], *rows)
        kernels.prox(z, np.zeros(n), y, s, extra, 0.5, out[3], out[2], *rows)
    np.testing.assert_array_equal(part[:, start:stop], whole[:, start:stop])
    assert (part[:, :start] == -99.0).all()
    assert (part[:, stop:] == -99.0).all()
    assert kernels.evaluate(z, y, s, extra, part[0], 5, 5) == 0.0
    assert (part[:, :start] == -99.0).all()
    both = [kernels.conjugate(whole[2], y, s, extra, *rows) for rows in ((0, 700), (700, n))]
    assert kernels.conjugate(whole[2], y, s, extra, 0, n) == pytest.approx(sum(both), rel=1e-12)


def data_for(loss, seed=0, n=60):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(n, 7))
    matrix[:, 6] = matrix[:, 0] + 0.1 * matrix[:, 6]
    z = matrix @ rng.normal(size=7) * 0.5 + 0.4
    if loss.task == "classification":
        y = (z + rng.normal(size=n) > 0).astype(float)
    elif loss.name == "poisson":
        y = rng.poisson(np.exp(z)).astype(float)
    elif loss.name in LOG_LINK:
        y = np.exp(z) * rng.gamma(2.0, 0.5, n)
        if loss.name == "tweedie":
            y[rng.random(n) < 0.3] = 0.0
        elif loss.name == "negative_binomial":
            y = rng.poisson(y).astype(float)
    else:
        y = z + rng.standard_t(2, n)
    s = np.where(rng.random(n) < 0.1, 0.0, rng.uniform(0.2, 3.0, n))
    return matrix, y, s, 0.3 * rng.normal(size=n)


HARD = {
    "every residual on a flat piece": ("huber", {"delta": 1e-4}, 1.0),
    "every margin below the parabola": ("smoothed_hinge", {"gamma": 1e-3}, 1e-3),
    "large counts": ("poisson", None, 1.0),
    "large sums": ("tweedie", {"power": 1.2}, 1.0),
    "large skewed targets": ("gamma", None, 1.0),
    "large overdispersed counts": ("negative_binomial", {"alpha": 0.01}, 1.0),
    "columns of different sizes": ("squared_hinge", None, np.array([1e-3, 1, 1e3, 1, 1e2, 1, 1])),
}


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("case", HARD)
def test_subspace_never_gets_worse_and_certifies_hard_cases(case, intercept):
    name, parameters, scale = HARD[case]
    loss = get_loss(name, **(parameters or {}))
    matrix, y, *_ = data_for(loss, seed=6, n=150)
    y = y * 1e5 if name in LOG_LINK else y * 100 if name == "huber" else y
    blocks = np.split(matrix * scale, [3], axis=1)
    problem = make_problem(
        blocks, y, loss=name, loss_parameters=parameters, lam=1e-5, fit_intercept=intercept
    )
    solver = Solver(problem, SolverOptions(scheme="subspace", gap=1e-6, n_threads=1))
    before = math.inf
    for _ in range(100):
        record = solver.round()
        assert record.objective <= before * (1 + 1e-13)
        before = record.objective
        if record.gap <= 1e-6:
            break
    assert record.gap <= 1e-6


@pytest.mark.parametrize("name", ["huber", "squared_hinge"])
def test_a_nearly_perfect_fit_is_certified(name, monkeypatch):
    """Gradients as small as rounding in z do not sum to zero; repaired they still prove a bound."""
    rng = np.random.default_rng(1)
    matrix = 100.0 * rng.normal(size=(8, 20))
    y = np.array([0.0, 1.0] * 4) if name == "squared_hinge" else rng.normal(size=8)
    problem = make_problem([matrix[:, :9], matrix[:, 9:]], y, loss=name, lam=1e-4)
    result = solve(problem, SolverOptions(gap=1e-6, max_rounds=60))
    assert result.status is Status.CONVERGED
    assert result.objective < 1e-6
    monkeypatch.setattr("fastadmm.method.certificate._REPAIRABLE", 0.0)
    plain = solve(problem, SolverOptions(gap=1e-6, max_rounds=60))
    # Now and then rounding leaves a sum of nothing, and a bound without repair: not sooner.
    histories = (result.history, plain.history)
    first = [next((k for k, record in enumerate(h) if math.isfinite(record.gap)), 60) for h in histories]
    assert first[0] <= first[1]


@pytest.mark.parametrize("name", KINKS)
def test_smoothed_losses_approach_the_loss_from_below(name):
    loss = get_loss(name)
    matrix, y, s, _ = data_for(loss)
    z, engine, g = matrix @ np.linspace(-1.0, 1.0, matrix.shape[1]), Engine(1), np.empty(len(y))
    exact = loss.evaluate(z, y, s, g, engine)
    for width in (1.0, 1e-2, 1e-4):
        value_there = loss.smoothed(width).evaluate(z, y, s, g, engine)
        assert exact - 0.5 * width * s.sum() <= value_there * (1 + 1e-14) <= exact * (1 + 2e-14)
        # the identity behind the certificate: the conjugates differ by width / 2 u^2
        tighter = loss.smoothed(width).conjugate(g, y, s, engine) - loss.conjugate(g, y, s, engine)
        square = float(np.sum(g[s > 0] ** 2 / s[s > 0]))
        assert tighter == pytest.approx(0.5 * width * square, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("huber", {"tau": 1}, "loss: huber has no parameter 'tau'; it has delta"),
        ("huber", {"delta": 0}, "loss: huber: delta 0.0 must be positive and finite"),
        ("huber", {"delta": "wide"}, "loss: huber: delta 'wide' is not a number"),
        ("quantile", {"tau": 1.0}, "loss: quantile: tau 1.0 must be between 0 and 1"),
        ("smoothed_hinge", {"gamma": -1}, "loss: smoothed_hinge: gamma -1.0 must be positive and finite"),
        ("tweedie", {"power": 2}, "loss: tweedie: power 2.0 must be between 1 and 2"),
        ("negative_binomial", {"alpha": 0}, "loss: negative_binomial: alpha 0.0 must be positive and finite"),
    ],
)
def test_wrong_parameters_are_one_line(name, parameters, message):
    given = {"loss": name, "loss_parameters": parameters}
    assert refuses(ConfigError, "", make_problem, [np.eye(3)], [0, 1, 1], **given).startswith(message)


def test_parameters_follow_the_name_and_are_part_of_the_loss():
    problem = make_problem([np.eye(3)], [0, 1, 1], loss="huber", loss_parameters={"delta": 2})
    assert problem.loss == get_loss("huber", delta=2.0)
    assert problem.loss.parameters == {"delta": 2.0}
    assert get_loss("huber").parameters == {"delta": 1.0}
    assert get_loss("quantile").parameters == {"tau": 0.5}
    assert get_loss("smoothed_hinge").parameters == {"gamma": 1.0}
    # A parameter follows the name.
    assert parse_loss("huber:2.5") == get_loss("huber", delta=2.5)
    assert parse_loss("quantile") == get_loss("quantile")
    for text, message in (("squared:2", "squared has no parameter"), ("cauchy:1", "unknown loss 'cauchy'")):
        refuses(ConfigError, message, parse_loss, text)


@pytest.mark.parametrize(
    ("name", "y", "message"),
    [
        *((name, [0, 1, 0.5], "y: target 0.5 in row 2 is not 0 or 1; this loss takes") for name in LABELS),
        *((name, [-1, 1, 1], "y: target -1.0 in row 0 is not 0 or 1") for name in LABELS),
        *((name, [1, 1, 1], "y: only one class is present (1); two are needed") for name in LABELS),
        ("poisson", [1, -2, 0], "y: target -2.0 in row 1 is negative; the poisson loss needs counts"),
        ("poisson", [0, 0, 0], "y: all targets are zero; the poisson loss needs a positive one"),
        ("gamma", [1, 0, 2], "y: target 0.0 in row 1 is not positive; the gamma loss needs targets above 0"),
        ("tweedie", [1, 0, -2], "y: target -2.0 in row 2 is negative; the tweedie loss needs targets of 0"),
        ("tweedie", [0, 0, 0], "y: all targets are zero; the tweedie loss needs a positive one"),
        ("negative_binomial", [1, 0, 2.5], "y: target 2.5 in row 2 is not a whole number; the negative_bin"),
        ("negative_binomial", [1, -1, 2], "y: target -1.0 in row 1 is negative; the negative_binomial loss"),
        ("binomial", [0, 3, 1], "y: target 3.0 in row 1 is outside [0, 1]; the binomial loss needs succes"),
        ("binomial", [0, 0, 0], "y: no successes at all; the binomial loss needs some to fit an intercept"),
        ("poisson", [1, math.inf, 0], "y: value inf in row 1"),
        ("quantile", [1, math.nan, 0], "y: value nan in row 1"),
    ],
)
def test_targets_outside_the_domain(name, y, message):
    assert refuses(InputError, "", make_problem, [np.eye(3)], y, loss=name).startswith(message)


def test_zero_counts_and_hinge_losses():
    problem = make_problem([np.eye(3)], np.zeros(3), loss="poisson", fit_intercept=False, lam=0.1)
    assert solve(problem, SolverOptions(gap=1e-9)).status is Status.CONVERGED
    # Hinge losses write no probability.
    from fastadmm.runs.predict import Predictions, write_predictions

    score, file = np.array([0.5, -2.0]), io.StringIO()
    mean = get_loss("hinge").predict_mean(score)
    model = SimpleNamespace(loss="hinge")
    write_predictions(file, Predictions(np.arange(2), score, mean, ["b", "a"], model, None))
    assert file.getvalue() == "id,score,label\n0,0.5,b\n1,-2.0,a\n"
    np.testing.assert_array_equal(mean, score)


def test_documented_losses_are_the_ones_of_the_program():
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*?) \| `(\w+)` \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    assert [name for name, *_ in rows] == list(LOSSES)
    for name, parameter, scheme in rows:
        loss = LOSSES[name]
        assert scheme == choose_scheme(SolverOptions(), Traits(smooth=loss.smooth))[0].name
        expected = " ".join(f"`{k}` = {v:g}" for k, v in loss.parameters.items()) or "none"
        assert parameter == expected


@pytest.mark.parametrize("name", ["quantile", "squared", "huber"])
@pytest.mark.parametrize("level", [0.0, 3.0])
def test_constant_targets_leave_nothing_to_fit(name, level):
    matrix = np.random.default_rng(0).normal(size=(50, 4))
    problem = make_problem([matrix[:, :2], matrix[:, 2:]], np.full(50, level), loss=name, lam=1e-3)
    result = solve(problem, SolverOptions(max_rounds=5))
    assert result.status is Status.CONVERGED
    assert result.objective == 0.0
    assert result.intercept == pytest.approx(level)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A table of amounts with zeros, as two parties."""
    folder, rng = tmp_path_factory.mktemp("families"), np.random.default_rng(5)
    X = rng.normal(size=(80, 4))
    y = np.exp(0.5 * X[:, 0] - 0.3 * X[:, 3]) * rng.gamma(2.0, 0.5, 80) * (rng.random(80) > 0.3)
    pd.DataFrame(X, columns=list("abcd")).assign(amount=y).to_csv(folder / "t.csv", index=False)
    convert = ["convert", folder / "t.csv", "--label", "amount", "--task", "regression", "--parties", 2]
    assert run(*convert, "-o", folder / "t.parts") == 0
    line = ["train", folder / "t.parts", "--loss", "tweedie:1.7", "--lambda", 1e-2, "--gap", 1e-10, "-q"]
    assert run(*line, "-o", folder / "run") == 0
    return folder


def test_a_model_keeps_the_power(home, capsys):
    table = pd.read_csv(home / "t.csv")
    X, y = table[list("abcd")].to_numpy(), table["amount"].to_numpy()
    peer = TweedieRegressor(power=1.7, link="log", alpha=1e-2, tol=1e-12, max_iter=10_000).fit(X, y)
    assert tomllib.loads((home / "run" / "model" / "model.toml").read_text("utf-8"))["loss"] == "tweedie:1.7"
    metrics = told(capsys, "evaluate", home / "run", home / "t.parts")["metrics"]
    mean = peer.predict(X)
    assert metrics["deviance"] == pytest.approx(mean_tweedie_deviance(y, mean, power=1.7), rel=1e-6)
    assert metrics["d2"] == pytest.approx(d2_tweedie_score(y, mean, power=1.7), rel=1e-6)
    assert run("predict", home / "run", home / "t.parts", "-o", home / "predicted.csv") == 0
    np.testing.assert_allclose(pd.read_csv(home / "predicted.csv")["prediction"], mean, rtol=1e-4)


@pytest.mark.parametrize(
    ("loss", "power"), [("poisson", 1.0), ("gamma", 2.0), ("tweedie", 1.5), ("squared", None)]
)
def test_deviance_is_that_of_scikit_learn(loss, power):
    rng = np.random.default_rng(1)
    z, s = rng.normal(size=30), rng.uniform(0.0, 2.0, 30)
    y = np.exp(z) * rng.gamma(2.0, 0.5, 30)
    found = deviance_metrics(get_loss(loss), y, z, s)
    if power is None:
        assert found == {}
        return
    own = {"power": power, "sample_weight": s}
    assert found["deviance"] == pytest.approx(mean_tweedie_deviance(y, np.exp(z), **own), rel=1e-12)
    assert found["d2"] == pytest.approx(d2_tweedie_score(y, np.exp(z), **own), rel=1e-12)
    assert deviance_metrics(get_loss(loss), -y, z) == {"deviance": None, "d2": None}
    assert deviance_metrics(get_loss(loss), np.full(30, 2.0), z)["d2"] is None
    assert list(evaluation_metrics(get_loss(loss), y, z)) == ["rmse", "mae", "r2", "deviance", "d2"]


def test_deviances_need_their_parameter():
    rng = np.random.default_rng(2)
    loss, z = get_loss("negative_binomial", alpha=0.4), rng.normal(size=40)
    y = rng.poisson(np.exp(z)).astype(float)

    def likelihood(mean):
        return float(nbinom.logpmf(y, 2.5, 2.5 / (2.5 + mean)).sum())

    with Engine(1) as engine:
        value = loss.evaluate(z, y, np.ones(40), np.empty(40), engine)
    assert value == pytest.approx(likelihood(np.maximum(y, 1e-300)) - likelihood(np.exp(z)), rel=1e-10)
    # Models name a parameter that judging needs.
    assert {name for name, loss in LOSSES.items() if loss.in_model} == {"tweedie", "negative_binomial"}
    assert get_loss("huber", delta=2.0).text == "huber"
    assert get_loss("negative_binomial", alpha=0.25).text == "negative_binomial:0.25"
