"""A penalty per sample, after the loss's curvature: the rule, the rounds with it, and what they save."""

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.conversation.exchange import converse
from fastadmm.coordinator.admm.penalty_rule import CurvatureRule
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, SolverOptions, solve

import naive
from resumed import assert_resumed_is_the_same
from test_proximal import cancer


def rounds_to(problem, gap, **options):
    result = solve(problem, SolverOptions(scheme="sharing", gap=gap, max_rounds=600, n_threads=1, **options))
    assert result.gap <= gap
    return len(result.history)


def test_the_rule_and_where_it_stays_away():
    rule = CurvatureRule()
    assert [k for k in range(1, 40) if rule.due()] == [10, 30]
    other = CurvatureRule()
    other.restore(rule.export())
    assert other == rule
    found = CurvatureRule.metric(np.array([0.0, 0.1, 0.2, 0.3]), Engine(1))
    assert found is not None
    omega, penalty = found
    assert omega.mean() == pytest.approx(1.0)
    assert omega / omega[1] == pytest.approx([0.15, 1.0, 2.0, 3.0])
    assert penalty == pytest.approx(0.3 * 0.15)
    for useless in (np.ones(5), np.linspace(1.0, 1.4, 5), np.zeros(5), np.array([1.0, np.inf])):
        assert CurvatureRule.metric(useless, Engine(1)) is None

    # It stays away where it is not asked for or says nothing.
    def solver(problem, **options):
        return Solver(problem, SolverOptions(scheme="sharing", n_threads=1, **options)).coordinator

    assert solver(cancer(2)).curvature_rule is not None
    assert solver(cancer(2), penalty=0.1).curvature_rule is None
    assert solver(cancer(2), acceleration="none").curvature_rule is None
    assert solver(cancer(2, loss="hinge")).curvature_rule is None
    assert solver(cancer(2, loss="sigmoid")).curvature_rule is None
    jacobi = Solver(cancer(2), SolverOptions(scheme="jacobi", acceleration="anderson", n_threads=1))
    assert jacobi.coordinator.curvature_rule is None
    squared = Solver(cancer(2, loss="squared"), SolverOptions(scheme="sharing", gap=0.0, n_threads=1))
    for _ in range(11):
        squared.round()
    assert squared.coordinator.metric is None


@pytest.mark.parametrize("kind", ["plain", "intercept", "kernel", "cg"])
def test_rounds_with_a_penalty_per_sample_are_the_equations(kind):
    rng = np.random.default_rng(3)
    widths = (40, 35) if kind == "kernel" else (4, 3, 2)
    blocks = [rng.normal(size=(30, d)) for d in widths]
    blocks[0] = sp.csr_array(blocks[0])
    y = (rng.random(30) < 0.5).astype(float)
    weight, offset = rng.uniform(0.5, 2.0, 30), rng.normal(size=30)
    common = {"lam": 1e-2, "sample_weight": weight, "offset": offset}
    intercept = kind == "intercept"
    problem = make_problem(blocks, y, fit_intercept=intercept, **common)
    x_update = kind if kind in ("kernel", "cg") else "auto"
    options = SolverOptions(
        scheme="sharing", acceleration="none", penalty=0.1, gap=0.0, n_threads=1, x_update=x_update
    )
    solver = Solver(problem, options)
    solver.prepare()
    coordinator = solver.coordinator
    for _ in range(3):
        solver.round()
    before = coordinator.last
    converse(coordinator._reweight(before.total()), solver.driver.carry)
    assert coordinator.metric.max() > 2.0 * coordinator.metric.min()
    twin = naive.NaiveADMM(
        "sharing", blocks, y, loss="logistic", lam=1e-2, r=coordinator.penalties, s=weight, offset=offset,
        fit_intercept=intercept,
    )  # fmt: skip
    twin.state = naive.State(
        [w.copy() for w in solver.party_weights()], list(before.messages.copy()), before.z, before.u
    )
    tolerance = 1e-6 if kind == "cg" else 1e-9
    for _ in range(4):
        record, expected = solver.round(), twin.round()
        last = coordinator.last
        np.testing.assert_allclose(last.messages, expected.messages, atol=tolerance)
        np.testing.assert_allclose(last.z, expected.z, atol=tolerance)
        np.testing.assert_allclose(last.u, expected.u, atol=tolerance)
        assert record.augmented_lagrangian * 30 == pytest.approx(twin.lagrangian(expected), rel=1e-6)
        assert record.lyapunov == pytest.approx(twin.lyapunov(expected), rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("regularizer", ["l2", "l1"])
def test_it_certifies_what_is_true_in_fewer_rounds(regularizer, monkeypatch):
    problem = cancer(2, lam=1e-4, regularizer=regularizer)
    best = solve(problem, SolverOptions(gap=1e-9, max_rounds=300, n_threads=1)).objective
    result = solve(problem, SolverOptions(scheme="sharing", gap=1e-6, max_rounds=600, n_threads=1))
    assert result.gap <= 1e-6
    assert result.objective <= best * (1.0 + 1e-6)
    assert all(r.objective - r.gap_absolute <= best * (1.0 + 1e-9) for r in result.history)
    monkeypatch.setattr(CurvatureRule, "due", lambda self: False)
    if regularizer == "l2":  # elsewhere the penalty adapts as it is, and less is left to gain
        assert len(result.history) < 0.7 * rounds_to(problem, 1e-6)


@pytest.mark.representatives(3)
@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"regularizer": "l1"}], ids=str)
@pytest.mark.parametrize("after", [9, 10, 14])
def test_resumed_runs_go_on_to_the_bit(options, after):
    problem = cancer(3, lam=1e-3, **options)
    asked = SolverOptions(scheme="sharing", gap=0.0, n_threads=1)
    whole = assert_resumed_is_the_same(problem, asked, after, 20 - after)
    assert whole.coordinator.metric is not None
