"""Directions that a party forgets: the reflection, what is kept, and that few directions are enough."""

import numpy as np
import pytest
from fastadmm import SolverOptions, solve
from fastadmm.conversation.answering import Unanswerable
from fastadmm.coordinator.subspace.moves import Moves
from fastadmm.coordinator.subspace.subspace import SubspaceMethod
from fastadmm.engine.engine import Engine
from fastadmm.kernels.directions import reflect_rows
from fastadmm.parties.direction import DirectionParty
from fastadmm.parties.reflection import Turn
from fastadmm.problem.problem import make_problem
from hypothesis import given, settings
from hypothesis import strategies as st


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


def test_weights_and_newest_moves_are_kept():
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
    # Of several classes the weights and moves of each are kept.
    rng = np.random.default_rng(9)
    moves, mine, before = Moves(), np.arange(0, 24, 2), np.zeros((3, 8))
    for k in (16, 24):
        after = rng.normal(size=(3, k))
        moves.record(before, after, 6)
        np.testing.assert_array_equal(moves.rows[:3, : before.shape[1]], after[:, : before.shape[1]] - before)
        np.testing.assert_array_equal(moves.rows[:3, before.shape[1] :], after[:, before.shape[1] :])
        before = after
    assert moves.rows.shape == (6, 24)
    gone = moves.forgettable(before, mine, 3)
    np.testing.assert_allclose(gone @ gone.T, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(np.vstack([before, moves.rows])[:, mine] @ gone.T, 0.0, atol=1e-13)


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
            assert np.bincount(method.owner).tolist() == [min(k + 1, 2)] * 3
    assert told.count(["forget"] * 3) == 2
    for m, party in enumerate(method.parties):
        np.testing.assert_allclose(
            method.messages[method.owner == m],
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
