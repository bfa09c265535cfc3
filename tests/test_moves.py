"""Directions that a party forgets: the reflection, what is kept, and that few directions are enough."""

from contextlib import closing

import numpy as np
import pytest
from fastadmm import SolverOptions, solve
from fastadmm.conversation.answering import Unanswerable
from fastadmm.coordinator.subspace.moves import Moves
from fastadmm.coordinator.subspace.subspace import SubspaceMethod
from fastadmm.engine.engine import Engine
from fastadmm.kernels.directions import reflect_rows
from fastadmm.method.span_hessian import SpanHessian
from fastadmm.parties.direction import DirectionParty
from fastadmm.parties.reflection import Turn
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, run_rounds
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer


@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.data())
@settings(max_examples=50, deadline=None)
def test_a_turn_is_its_reflections_one_after_the_other(seed, k, data):
    rng, n = np.random.default_rng(seed), data.draw(st.integers(1, k - 1))
    basis = np.linalg.qr(rng.normal(size=(12, k)))[0].T
    gone = np.linalg.qr(rng.normal(size=(k, n)))[0].T
    if data.draw(st.booleans()):  # one that is where it is to be, as far as anyone can see
        gone = np.eye(k)[rng.permutation(k)[:n]]
    turn, turned = Turn(gone), basis.copy()
    for unit in turn.units:
        turned -= 2.0 * np.outer(unit, unit @ turned)
    np.testing.assert_allclose(turn.applied(basis), turned[n:], atol=1e-14)
    np.testing.assert_allclose(turn.rest @ basis, turned[n:], atol=1e-14)
    np.testing.assert_allclose(turned @ turned.T, np.eye(k), atol=1e-13)
    np.testing.assert_allclose(turned[n:] @ (gone @ basis).T, 0.0, atol=1e-14)


def test_what_is_forgotten_is_orthogonal_to_weights_and_newest_moves():
    rng = np.random.default_rng(1)
    moves, c = Moves(), np.zeros(0)
    mine = np.array([0, 2, 4, 6, 8])
    for k in range(2, 12, 2):  # two parties, a direction of each in a round
        after = rng.normal(size=k)
        moves.record(c, after, 3)
        c = after
    assert moves.rows.shape == (3, 10)
    q = moves.forgettable(c, mine)[0]
    assert np.linalg.norm(q) == pytest.approx(1.0, abs=1e-14)
    for kept in (c[mine], *moves.rows[:, mine]):
        assert abs(float(q @ kept)) <= 1e-14 * np.linalg.norm(kept)
    # Nothing has moved: something is forgotten all the same.
    still = Moves()
    still.record(np.zeros(4), np.zeros(4), 2)
    assert np.linalg.norm(still.forgettable(np.zeros(4), np.arange(4))[0]) == pytest.approx(1.0)


def test_with_a_hessian_what_is_forgotten_is_the_least_curved_beside_two_moves():
    rng = np.random.default_rng(7)
    moves, c, mine = Moves(), rng.normal(size=9), np.array([0, 1, 3, 4, 6, 8])
    moves.rows = rng.normal(size=(5, 9))
    factor = rng.normal(size=(6, 6))
    hessian = factor @ factor.T
    q = moves.forgettable(c, mine, hessian)[0]
    assert np.linalg.norm(q) == pytest.approx(1.0, abs=1e-14)
    kept = np.vstack([c[mine], moves.rows[:2, mine]])
    np.testing.assert_allclose(kept @ q, 0.0, atol=1e-13)
    # No other unit vector that these leave is curved less.
    for other in rng.normal(size=(200, 6)):
        other -= np.linalg.lstsq(kept.T, other, rcond=None)[0] @ kept
        assert q @ hessian @ q <= (1.0 + 1e-12) * (other @ hessian @ other) / (other @ other)
    # As few directions as are kept: one goes all the same.
    q = moves.forgettable(c, mine[:3], hessian[:3, :3])[0]
    np.testing.assert_allclose(kept[:2, :3] @ q, 0.0, atol=1e-13)


def test_of_several_classes_the_weights_and_moves_of_each_are_kept():
    rng = np.random.default_rng(9)
    moves, mine, before = Moves(), np.arange(0, 24, 2), np.zeros((3, 8))
    for k in (16, 24):
        after = rng.normal(size=(3, k))
        moves.record(before, after, 6)
        np.testing.assert_array_equal(moves.rows[:3, : before.shape[1]], after[:, : before.shape[1]] - before)
        np.testing.assert_array_equal(moves.rows[:3, before.shape[1] :], after[:, before.shape[1] :])
        before = after
    assert moves.rows.shape == (6, 24)
    gone = moves.forgettable(before, mine, np.diag(np.arange(12.0)), 3)
    np.testing.assert_allclose(gone @ gone.T, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(np.vstack([before, moves.rows])[:, mine] @ gone.T, 0.0, atol=1e-13)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_curvature_of_a_party_is_what_is_left_where_the_others_follow(intercept):
    rng = np.random.default_rng(8)
    messages, curvature = rng.normal(size=(6, 40)), rng.random(40)
    hessian, lam = SpanHessian(intercept), 0.3
    hessian.refresh(messages, curvature, Engine(1))
    full = np.vstack([np.ones((int(intercept), 40)), messages])
    whole = (full * curvature) @ full.T + np.diag([0.0] * intercept + [lam] * 6)
    places = [np.array([1, 4]), np.array([0, 2, 5])]
    left = hessian.left(6, lam)
    assert left is not None
    for turn, mine in enumerate(places):
        found = left.of(mine)
        assert found is not None
        own = mine + intercept
        rest = np.setdiff1d(np.arange(len(whole)), own)
        for direction in np.eye(len(own)):
            follow = -np.linalg.solve(whole[np.ix_(rest, rest)], whole[np.ix_(rest, own)] @ direction)
            step = np.zeros(len(whole))
            step[own], step[rest] = direction, follow
            assert direction @ found @ direction == pytest.approx(step @ whole @ step, rel=1e-6)
        if turn == 0:  # what the first party has forgotten is not there for the second
            gone = np.array([0.6, -0.8])
            left.forget(gone[np.newaxis], mine)
            whole[np.ix_(own, own)] += 1e8 * np.outer(gone, gone)
    assert hessian.left(7, lam) is None
    hessian.matrix = -hessian.matrix  # what rounding leaves of a Hessian need not be positive
    assert hessian.left(6, lam) is None


def test_two_parties_do_not_forget_the_same():
    """Of copies each may lose what the other keeps: asked at once, both lost it."""
    rng = np.random.default_rng(10)
    own = np.linalg.qr(rng.normal(size=(40, 4)))[0].T * np.array([[3.0], [2.0], [1.0], [0.5]])
    hessian, moves = SpanHessian(intercept=False), Moves()
    hessian.refresh(np.vstack([own, own]), np.ones(40), Engine(1))
    moves.rows = np.zeros((0, 8))
    places, left = [np.arange(4), np.arange(4, 8)], hessian.left(8, 1e-3)
    gone = moves.all_forgettable(np.zeros(8), places, left, [2, 2])
    kept = np.vstack([np.linalg.svd(each)[2][2:] for each in gone])
    assert np.linalg.matrix_rank(kept @ own, tol=1e-8) == 4


def test_rows_are_reflected_in_any_cut_of_the_columns():
    rng = np.random.default_rng(5)
    matrix, rows, unit = rng.normal(size=(5, 2100)), np.array([4, 0, 2]), rng.normal(size=3)
    unit /= np.linalg.norm(unit)
    expected, whole, cut = matrix.copy(), matrix.copy(), matrix.copy()
    for i in range(2100):
        share = sum(unit[j] * matrix[rows[j], i] for j in range(3))
        for j in range(3):
            expected[rows[j], i] -= 2.0 * unit[j] * share
    reflect_rows(whole, rows, unit, 0, 2100)
    for start, stop in ((0, 7), (7, 1500), (1500, 2100)):
        reflect_rows(cut, rows, unit, start, stop)
    np.testing.assert_allclose(whole, expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(cut, whole)


def test_parties_forget_in_one_exchange():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(60, 30))
    problem = make_problem(np.split(X, 3, axis=1), (X[:, 0] > 0) * 1.0, lam=1e-4)
    method = SubspaceMethod(problem, Engine(1), directions=2)
    method.parties = method.make_parties()
    told = []
    for k in range(4):
        talk, answers = method.round(), None
        try:
            while True:
                exchange = talk.send(answers)
                told.append([call.name for call in exchange.calls])
                answers = [
                    method.parties[call.party].answer(call.name, call.made()) for call in exchange.calls
                ]
        except StopIteration:
            assert np.bincount(method.coordinator.owner).tolist() == [min(k + 1, 2)] * 3
    assert told.count(["forget"] * 3) == 2
    for m, party in enumerate(method.parties):
        np.testing.assert_allclose(
            method.coordinator.messages[method.coordinator.owner == m],
            party.directions @ problem.blocks[m].matrix.T,
            atol=1e-12,
        )


def test_a_party_refuses_what_is_no_combination_of_its_directions():
    party = DirectionParty(
        "a", make_problem([np.eye(5)], np.arange(5) % 2.0, lam=0.1).blocks[0], 0.5, Engine(1)
    )
    party.directions = np.eye(5)[:3]
    for wrong in (np.ones(2), np.zeros(3)):
        with pytest.raises(Unanswerable, match="'forget'"):
            party.forget(wrong)
    party.forget(np.array([0.0, 1.0, 0.0]))
    np.testing.assert_array_equal(np.abs(party.directions), np.eye(5)[[0, 2]])


@pytest.mark.parametrize("directions", ["one", "both"])
def test_few_directions_cost_few_rounds_more(directions):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 120)) * 3.0 ** -rng.integers(0, 4, 120)
    y = (X @ rng.normal(size=120) + rng.normal(size=600) > 0) * 1.0
    problem = make_problem([X[:, :40], X[:, 40:80], X[:, 80:]], y, lam=1e-3)
    rounds = {}
    for history in (None, 8, 4):
        result = solve(problem, SolverOptions(gap=1e-6, history=history, directions=directions, n_threads=1))
        assert result.gap <= 1e-6
        rounds[history] = len(result.history)
    assert rounds[8] <= 2 * rounds[None]
    assert rounds[4] <= 4 * rounds[None]


def test_where_messages_are_short_a_limit_grows():
    rng = np.random.default_rng(5)
    base = rng.normal(size=(2000, 20))
    y = (base @ rng.normal(size=20) + rng.logistic(size=2000) > 0) * 1.0
    blocks = [base + 1e-3 * rng.normal(size=base.shape) for _ in range(2)]
    problem = make_problem(blocks, y, lam=1e-5, fit_intercept=False)
    rounds, kept = {}, {}
    for history in (8, 64):
        options = SolverOptions(gap=1e-6, history=history, directions="both", n_threads=1)
        with closing(Solver(problem, options)) as solver:
            rounds[history] = len(run_rounds(solver).history)
            kept[history] = int(np.bincount(solver.coordinator.owner).max())
    assert rounds[8] <= 2 * rounds[64]
    assert kept[8] <= 16


def test_stiff_directions_are_not_found_again():
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    problem = make_problem([X[:, :15], X[:, 15:]], y * 1.0, lam=1e-4, fit_intercept=False)
    options = SolverOptions(gap=1e-6, history=8, directions="both", max_rounds=16, n_threads=1)
    assert solve(problem, options).gap <= 1e-6  # 9 rounds with all directions; with the last moves alone 23
