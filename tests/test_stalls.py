"""Runs of ``proximal`` whose gap stands still: noticed, counted, mended, and resumed to the same bits."""

import math
from itertools import pairwise

import numpy as np
import pytest
from fastadmm.method import method as stall_watch
from fastadmm.method.method import PATIENCE, StallWatch
from fastadmm.problem.problem import make_problem
from fastadmm.solver.history import Status
from fastadmm.solver.loop import run_rounds
from fastadmm.solver.solver import Solver, SolverOptions, solve
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import scale

from resumed import assert_resumed_is_the_same
from scripts import script_of

stalls = script_of("bench/stalls.py")


def wide_in_a_ball(loss, constraint="ball:0.5"):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(12, 20))
    z = X @ rng.normal(size=20)
    y = (z > 0.0) * 1.0 if loss == "hinge" else z
    return make_problem(
        [X[:, :8], X[:, 8:14], X[:, 14:]], y, loss=loss, lam=1e-3, regularizer="l1", constraint=constraint
    )


def generated(seed):
    """A problem of the campaign that looks for stalls."""
    case = stalls.generate(seed)
    return make_problem(case.blocks, case.y, **case.arguments)


@pytest.mark.parametrize("seed", [444, 1706])
def test_badly_scaled_columns_leave_directions_orthonormal(seed):
    """Rounding that passed for a direction made coefficients of 1e10, and objectives of 1e46."""
    solver = Solver(generated(seed), SolverOptions(n_threads=1))
    records = [solver.round() for _ in range(14)]
    objectives = [record.objective for record in records]
    # At the optimum a sum of some hundred numbers may go up by what rounds.
    assert all(b <= a * (1.0 + 1e-13) for a, b in pairwise(objectives))
    assert records[-1].gap < 1e-6


@pytest.mark.parametrize(
    ("seed", "rounds"),
    [
        (5162, 40),  # slopes that the loss's kinks round by more than the gap allows
        (60, 30),  # the same, where nothing bounds weights
        (5163, 60),  # a ball that is far larger than the weights
        (1413, 20),  # searches that pass the bounds of everything that is free
        (556, 30),  # weights of 1e-62, left of rounding, that counted as free
        # Several classes, whose loss hardly bends where a search comes to.
        pytest.param(5027, 60, marks=pytest.mark.repeats),
    ],
)
def test_columns_of_very_different_sizes_are_certified(seed, rounds):
    solver = Solver(generated(seed), SolverOptions(gap=stalls.GAP, max_rounds=rounds, n_threads=1))
    result = run_rounds(solver)
    if seed == 5163:  # of an objective of 1e-8, rounding of the proof alone may exceed what is asked
        assert result.status in (Status.CONVERGED, Status.AT_ROUNDING)
        assert result.proof.gap_absolute - result.proof.rounding <= stalls.GAP * result.objective
    else:
        assert result.status is Status.CONVERGED


@pytest.mark.parametrize(
    ("n", "width", "loss", "lam"),
    [
        (40, 100, "squared", 1e-4),
        pytest.param(50, 150, "squared", 1e-3, marks=pytest.mark.repeats),
        pytest.param(50, 150, "huber", 1e-4, marks=pytest.mark.repeats),
    ],
)
def test_wide_tables_that_l1_interpolates_are_certified(n, width, loss, lam):
    """About as many weights are free as there are rows: two parties need more than 64 directions each."""
    rng = np.random.default_rng(1)
    X = scale(rng.normal(size=(n, 2 * width)))
    x = np.zeros(2 * width)
    x[rng.choice(2 * width, 15, replace=False)] = rng.normal(size=15)
    y = scale(X @ x + 0.1 * rng.normal(size=n))
    problem = make_problem(
        [X[:, :width], X[:, width:]], y, loss=loss, lam=lam, regularizer="l1", fit_intercept=True
    )
    solver = Solver(problem, SolverOptions(max_rounds=300, n_threads=1))
    assert run_rounds(solver).status is Status.CONVERGED
    assert len(solver.coordinator.shared) > 2 * 64


@pytest.mark.parametrize(("seed", "history"), [(95350, 8), (95363, 8), (96099, 8)])
def test_few_directions_are_more_where_the_gap_hardly_falls(seed, history):
    """With as many weights at kinks and bounds as directions, nothing was free on any face."""
    solver = Solver(
        generated(seed), SolverOptions(gap=stalls.GAP, max_rounds=350, history=history, n_threads=1)
    )
    assert run_rounds(solver).status is Status.CONVERGED
    assert max(len(party.directions) for party in solver.parties) > history


def test_gaps_that_stand_still():
    watch = StallWatch()
    assert not any(watch.stalls(math.inf) for _ in range(3 * PATIENCE))  # nothing is proved yet
    assert not any(watch.stalls(0.95**k) for k in range(90))
    falls_slowly = [watch.stalls(1e-3 * 0.999**k) for k in range(2 * PATIENCE + 1)]
    assert [k for k, stalls in enumerate(falls_slowly) if stalls] == [PATIENCE, 2 * PATIENCE]
    again = StallWatch()
    again.restore(watch.export())
    assert again == watch
    # A search had come to where the loss bends by 1e40: no step moved any more, and none was promised.
    solver = Solver(generated(52064), SolverOptions(gap=stalls.GAP, history=64, n_threads=1))
    objectives = [solver.round().objective for _ in range(40)]
    # From round 13 to 33 nothing had moved.
    assert objectives[-1] < 0.7 * objectives[12]
    assert all(b < a for a, b in pairwise(objectives[12::4]))
    # Sharing balances its penalty where the gap stands still.
    options = SolverOptions(scheme="sharing", gap=1e-9, max_rounds=200, n_threads=1)
    watched, alone = Solver(far_from_balance(), options), Solver(far_from_balance(), options)
    alone.method.watch = None
    gaps = [min(solver.round().gap_absolute for _ in range(200)) for solver in (watched, alone)]
    assert watched.method.watch.n_stalls == watched.coordinator.rule.n_stalls > 0
    assert gaps[0] < 0.5 * gaps[1]
    assert "stalled" in watched.method.remark
    given = Solver(far_from_balance(), SolverOptions(scheme="sharing", penalty=1.0, n_threads=1))
    assert given.method.watch is None  # the iteration as it is printed


def far_from_balance():
    X, y = load_diabetes(return_X_y=True)
    X = scale(X)
    return make_problem([X[:, :5], X[:, 5:]], scale(y), loss="quantile", lam=1e-5)


@pytest.mark.parametrize("scheme", [pytest.param("auto", marks=pytest.mark.repeats), "sharing"])
def test_a_stalled_run_resumes_to_the_same_bits(scheme, monkeypatch):
    monkeypatch.setattr(stall_watch, "PATIENCE", 2 if scheme == "sharing" else 1)
    problem = far_from_balance() if scheme == "sharing" else wide_in_a_ball("hinge")
    options = SolverOptions(scheme=scheme, gap=0.0, history=5, n_threads=1)
    whole = Solver(problem, options)
    for _ in range(14):
        whole.round()
    assert whole.method.watch.n_stalls
    for rounds in (7, 8):  # before a step and after one
        assert_resumed_is_the_same(problem, options, rounds, 14 - rounds)


def test_a_stall_is_told(monkeypatch):
    monkeypatch.setattr(stall_watch, "PATIENCE", 1)
    result = solve(wide_in_a_ball("hinge"), SolverOptions(gap=1e-9, max_rounds=8, n_threads=1))
    assert result.status is Status.MAX_ROUNDS
    assert "stalled" in result.message
