"""Regularisers, sets, their x-updates and certificates, against other solvers."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.blocks.block import as_block
from fastadmm.coordinator.admm.penalty_rule import PenaltyRule
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError
from fastadmm.parties.xupdate.choose import choose_penalised
from fastadmm.parties.xupdate.proximal_gradient import ProximalGradient
from fastadmm.problem.constraints import (
    Affine,
    AllSpace,
    Ball,
    Box,
    Constraint,
    NonNegative,
    Simplex,
    get_constraint,
)
from fastadmm.problem.penalty import PartyPenalty, check_compatible
from fastadmm.problem.problem import make_problem
from fastadmm.problem.regularizers import (
    L1,
    ElasticNet,
    GroupLasso,
    NoRegularizer,
    SquaredL2,
)
from fastadmm.problem.traits import Traits
from fastadmm.schemes.registry import choose_scheme
from fastadmm.solver.solver import Solver, SolverOptions, solve
from fastadmm.store.model import open_model
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.preprocessing import scale

from run_tools import refuses, run, write_blocks

D = 8
GROUPS = GroupLasso((((0, 3, 1), (2, 4), (5, 6, 7)),))
REGULARIZERS = [SquaredL2(), L1(), ElasticNet(0.3), GroupLasso().of_party(0, D, "p"), GROUPS, NoRegularizer()]
SETS = [
    *(AllSpace(), NonNegative(), Box(-0.3, 0.5), Box(0.1, math.inf), Box(-math.inf, 0.2), Ball(0.7)),
    *(Simplex(0.7), get_constraint("sum:0.5"), Affine.of(np.cos(np.arange(16.0)).reshape(2, 8), [0.5, -1.0])),
]


def together(regularizer, constraint):
    try:
        check_compatible(regularizer, constraint)
    except ConfigError:
        return False
    return True


PAIRS = [pair for pair in itertools.product(REGULARIZERS, SETS) if together(*pair)]


def pair_name(value):
    return value.text if isinstance(value, Constraint) else str(getattr(value, "name", value))


def split(X, parties):
    return np.array_split(X, parties, axis=1)


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X), y.astype(float)


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return scale(X), (y - 100.0) / y.std()


@pytest.mark.representatives(12)
@pytest.mark.parametrize(("regularizer", "constraint"), PAIRS, ids=pair_name)
def test_prox_and_conjugate_belong_together(regularizer, constraint):
    rng = np.random.default_rng(1)
    penalty = PartyPenalty(regularizer, constraint, 0.4)
    for size in (0.1, 1.0, 10.0):
        v = size * rng.standard_normal(D)
        x = penalty.prox(v, 1.0)
        assert np.allclose(constraint.project(x), x, rtol=1e-15, atol=0)
        # v - x is a subgradient at x: Fenchel-Young holds with equality ...
        q = v - x
        conjugate = penalty.conjugate(q)
        if math.isinf(conjugate):  # rounding: q is a combination of the equations' rows, or nearly feasible
            rows, values = constraint.equations(D)
            conjugate = rows @ q @ values if len(rows) else penalty.conjugate(q * penalty.largest_scale(q))
        assert penalty.value(x) + conjugate == pytest.approx(q @ x, abs=1e-12 * size**2 + 1e-12)
        # ... and with inequality everywhere else.
        for _ in range(20):
            other = constraint.project(size * rng.standard_normal(D))
            p = rng.standard_normal(D)
            p *= penalty.largest_scale(p)
            assert penalty.value(other) + penalty.conjugate(p) >= p @ other - 1e-12


@given(
    st.integers(0, 10**6),
    st.sampled_from([(0.0, 0.0), (0.5, 0.0), (0.5, 0.3), (0.0, 0.3)]),
    st.sampled_from([(-math.inf, math.inf), (0.0, math.inf), (-0.2, 0.1), (0.1, 0.3)]),
)
@settings(max_examples=40, deadline=None)
def test_gram_descent_against_its_twin(seed, h, box):
    from fastadmm.kernels.gram_descent import gram_descent

    rng = np.random.default_rng(seed)
    block = rng.standard_normal((12, 5))
    block[:, rng.integers(5)] = 0.0
    gram, right = block.T @ block, block.T @ rng.standard_normal(12)
    x, gradient = np.zeros(5), np.empty(5)
    assert gram_descent(gram, -right, np.zeros(5), *h, *box, x, gradient, 1e-13, 100_000)
    twin = np.clip(np.zeros(5), *box)
    for _ in range(2000):
        before = twin.copy()
        for j in range(5):
            centre = right[j] - gram[j] @ twin + gram[j, j] * twin[j]
            curvature = gram[j, j] + h[1]
            best = np.sign(centre) * max(abs(centre) - h[0], 0.0) / curvature if curvature > 0 else 0.0
            twin[j] = min(max(best, box[0]), box[1])
        if (twin == before).all():
            break
    assert np.allclose(x, twin, atol=1e-9)
    assert np.allclose(gradient, gram @ x - right, atol=1e-11)
    origin, around = rng.standard_normal(5), np.zeros(5)  # the same problem, told from another point
    assert gram_descent(gram, gram @ origin - right, origin, *h, *box, around, gradient, 1e-13, 100_000)
    assert np.allclose(around, x, atol=1e-9)
    assert np.allclose(gradient, gram @ x - right, atol=1e-9)


def test_scales_columns_and_weights_at_their_ends():
    q = np.array([3.0, -1.0, 0.5] + [0.0] * 5)
    for regularizer, constraint in PAIRS:
        penalty = PartyPenalty(regularizer, constraint, 0.4)
        scale_ = penalty.largest_scale(q)
        assert 0.0 <= scale_ <= 1.0
        assert math.isfinite(penalty.conjugate(scale_ * q))
        if scale_ < 1.0:
            assert penalty.conjugate((scale_ * (1 + 1e-9) + 1e-9) * q) == math.inf
    assert PartyPenalty(L1(), AllSpace(), 0.6).largest_scale(q) == pytest.approx(0.2)
    assert PartyPenalty(NoRegularizer(), AllSpace(), 1.0).largest_scale(q) == 0.0
    # Gram descent beside a large weight leaves no more than asked.
    from fastadmm.kernels.gram_descent import gram_descent

    gram = np.array([[1e12, 0.0, 0.0], [0.0, 1.0, 0.99], [0.0, 0.99, 1.0]])
    slope, origin = np.array([0.0, -1.0, -1.0]), np.array([1.0, 0.0, 0.0])
    x, gradient = origin.copy(), np.empty(3)
    assert gram_descent(gram, slope, origin, 0.0, 0.0, -np.inf, np.inf, x, gradient, 1e-4, 10_000)
    assert np.abs(gradient).max() < 2e-4
    # More columns than a gram matrix holds.
    rng = np.random.default_rng(3)
    block = sp.random_array((60, 5000), density=0.05, rng=rng, format="csr")
    y = block @ np.where(np.arange(5000) < 5, 3.0, 0.0) + 0.01 * rng.standard_normal(60)
    problem = make_problem([block], y, loss="squared", lam=1e-2, regularizer="l1", fit_intercept=False)
    solver = Solver(problem, SolverOptions(scheme="proximal", gap=1e-4, max_rounds=200))
    assert isinstance(solver.parties[0].update, ProximalGradient)
    while (record := solver.round()).gap > 1e-4:
        assert record.round < 200
    solver.close()


@pytest.mark.parametrize(("regularizer", "constraint"), PAIRS, ids=pair_name)
def test_up_to_the_free_scale_the_conjugate_is_zero(regularizer, constraint):
    penalty = PartyPenalty(regularizer, constraint, 0.4)
    for q in (10.0, 0.01) * np.random.default_rng(2).standard_normal((5, D, 1)).repeat(2, axis=2):
        for one in q.T:
            free = penalty.free_scale(one)
            assert 0.0 <= free <= 1.0
            if free > 0.0:
                assert penalty.conjugate(free * one) == 0.0
            if 0.0 < free < 1.0:
                assert penalty.conjugate((1.0 + 1e-6) * free * one) > 0.0


@pytest.mark.representatives(12)
@pytest.mark.parametrize(("regularizer", "constraint"), PAIRS, ids=pair_name)
def test_x_updates_reach_the_fixed_point(regularizer, constraint):
    rng = np.random.default_rng(2)
    block = rng.standard_normal((40, D))
    block[:, 3], block[:, 5] = block[:, 2], 0.0
    block[:, 6] = block[:, 0] + 1e-3 * block[:, 6]  # nearly collinear: slow for plain descent
    w = block @ rng.standard_normal(D) + rng.standard_normal(40)
    lipschitz = np.linalg.norm(block, 2) ** 2
    with Engine(1) as engine:
        for matrix, mu in itertools.product((block, sp.csr_array(block)), (20.0, 0.01)):
            update, _ = choose_penalised(as_block(matrix), regularizer, constraint)
            update.prepare(engine)
            x = update.solve(w, mu, np.zeros(D), engine)
            penalty = PartyPenalty(regularizer, constraint, mu)
            moved = penalty.prox(x - block.T @ (block @ x - w) / lipschitz, 1 / lipschitz) - x
            assert np.abs(moved).max() <= 1e-8
            assert np.allclose(constraint.project(x), x, rtol=1e-15, atol=0)


# One loss for each pair, so that every loss meets every regulariser and every set.
@pytest.mark.representatives(3)
@pytest.mark.parametrize(
    ("regularizer", "constraint", "loss"),
    [(r, c, ("logistic", "squared", "hinge")[(REGULARIZERS.index(r) + SETS.index(c)) % 3]) for r, c in PAIRS],
    ids=pair_name,
)
def test_no_gap_below_the_truth(loss, regularizer, constraint):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((80, 2 * D))
    y = (X[:, 0] + 0.5 * X[:, 9] + rng.standard_normal(80) > 0).astype(float)
    if isinstance(regularizer, GroupLasso):
        regularizer = GroupLasso((regularizer.groups[0],) * 2) if regularizer.groups else regularizer
    rows = {"sample_weight": rng.uniform(0.5, 2, 80), "offset": 0.1 * rng.standard_normal(80)}
    asked = {"loss": loss, "lam": 0.03, "regularizer": regularizer, "constraint": constraint}
    problem = make_problem(split(X, 2), y, **asked, **rows)
    records = solve(problem, SolverOptions(gap=0, scheme="sharing", max_rounds=300, n_threads=1)).history
    best = min(r.objective for r in records)
    for record in records[:120]:
        assert record.gap_absolute >= (record.objective - best) - 1e-12
        assert record.lyapunov >= 0
    bounded = constraint.radius < math.inf or math.inf not in map(abs, constraint.bounds)
    if isinstance(regularizer, NoRegularizer) and not bounded:
        # A gap is proved only where no gradient pulls a weight outwards; never where both ways are open.
        assert constraint.bounds != (-math.inf, math.inf) or all(r.gap == math.inf for r in records)
    elif loss != "hinge":
        assert records[-1].gap <= 1e-4
        assert records[-1].lyapunov <= 1e-2 * records[0].lyapunov


def test_penalties_rules_and_schemes():
    rule = PenaltyRule()
    factors = [rule.factor(4.0, 1.0) for _ in range(12)]
    assert [k + 1 for k, f in enumerate(factors) if f != 1.0] == [3, 6, 12]
    assert factors[2] == pytest.approx(2.0)
    assert rule.factor(math.nan, 0.0) == 1.0
    second = PenaltyRule()
    second.restore(rule.export())
    assert [second.factor(1e-9, 1.0) for _ in range(11)][-1] == pytest.approx(1 / 30)
    assert all(rule.factor(1.2, 1.0) == 1.0 for _ in range(5000))
    # Scheme is chosen and checked.
    kinks = Traits(ridge=False)
    assert choose_scheme(SolverOptions())[0].name == "subspace"
    assert choose_scheme(SolverOptions(), kinks)[0].name == "proximal"
    with pytest.raises(ConfigError, match="needs regularizer l2 or log_sum without a constraint"):
        choose_scheme(SolverOptions(scheme="subspace"), kinks)
    refuses(ConfigError, "x_update", choose_scheme, SolverOptions(x_update="gram"), kinks)
    # Texts of sets come back.
    for constraint in SETS:
        assert get_constraint(constraint.text) == constraint


def test_a_given_penalty_stays(diabetes):
    X, y = diabetes
    problem = make_problem([X], y, loss="squared", lam=0.01, regularizer="l1")
    for penalty in (None, 0.05):
        history = solve(
            problem, SolverOptions(scheme="sharing", gap=0, max_rounds=8, penalty=penalty)
        ).history
        assert len({record.penalty for record in history}) == (1 if penalty else 3)


def test_command_line_and_model(cancer, tmp_path):
    X, y = cancer
    data = write_blocks(tmp_path / "a.parts", split(X, 2), y)
    options = ("--regularizer", "elastic_net", "--set", "l1_ratio=0.3", "--set", "constraint=nonnegative")
    config = tmp_path / "run.toml"
    config.write_text("history = 20\n")  # by directions: more rounds than one
    options += ("--config", config)
    assert run("train", data, "--lambda", "0.01", "--out", tmp_path / "run", *options) == 0
    model = open_model(tmp_path / "run")
    assert model.penalty == {"regularizer": "elastic_net", "l1_ratio": 0.3, "constraint": "nonnegative"}
    assert min(party.weights.min() for party in model.parties) >= 0
    # Stopped at a limit and resumed: the same bits.
    assert run("train", data, "--lambda", "0.01", "--rounds", "1", "--out", tmp_path / "two", *options) == 7
    assert run("resume", tmp_path / "two", "--rounds", "1000") == 0
    for one, two in zip(model.parties, open_model(tmp_path / "two").parties):
        assert np.array_equal(one.weights, two.weights)
    assert run("train", data, "--out", tmp_path / "no", "--scheme", "subspace", *options) == 5
