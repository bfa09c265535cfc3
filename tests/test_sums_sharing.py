"""Sums only in ADMM sharing: the iterates of messages that are seen, and certificates that stay proofs."""

import numpy as np
import pytest
from fastadmm.conversation.answering import Unanswerable
from fastadmm.conversation.calls import check_answer
from fastadmm.errors import ConfigError, FormatError
from fastadmm.secrecy.least import THRESHOLDS, at_or_above, least_share
from fastadmm.secrecy.masks import PairwiseMasks
from fastadmm.solver.history import Status
from fastadmm.solver.solver import Solver, SolverOptions, solve
from fastadmm.solver.warm_start import StartingPoint
from hypothesis import given
from hypothesis import strategies as st

from test_sums import N, build, check_certificates, sums, true_objective

#: A loss, with what makes the problem another one.
PROBLEMS = [
    ("logistic", {}),
    ("logistic", {"regularizer": "l1"}),
    ("squared", {"regularizer": "elastic_net", "constraint": "nonnegative"}),
    ("hinge", {}),
    ("huber", {"regularizer": "group_lasso"}),
    ("quantile", {"constraint": "ball:0.5"}),
]


def sharing(**more):
    return sums(**{"scheme": "sharing", **more})


@pytest.mark.representatives(3)
@pytest.mark.parametrize(("loss", "penalty"), PROBLEMS)
@pytest.mark.parametrize("relaxed", [True, False])
def test_the_rounds_of_messages_that_are_seen(loss, penalty, relaxed):
    """As far as rounding goes: later, acceleration magnifies it where there are kinks."""
    _, problem = build(1, loss, lam=1e-2, **penalty)
    options = {"scheme": "sharing", "gap": 0.0, **({} if relaxed else {"acceleration": "none"})}
    one, other = Solver(problem, sharing(**options)), Solver(problem, SolverOptions(**options))
    for _ in range(14):
        found, wanted = one.round(), other.round()
        assert found.objective == pytest.approx(wanted.objective, rel=1e-9)
        # Thresholds are 4.5 % apart; far from the optimum the bound is not linear in the scale.
        assert found.gap_absolute <= 1.2 * wanted.gap_absolute + 1e-9
        for key in ("dual_residual", "lyapunov", "augmented_lagrangian", "primal_residual", "penalty"):
            assert getattr(found, key) == pytest.approx(getattr(wanted, key), rel=1e-5, abs=1e-9), key
        assert found.accelerated == wanted.accelerated
    for x, y in zip(one.party_weights(), other.party_weights()):
        assert x == pytest.approx(y, rel=1e-6, abs=1e-8)
    one.close()
    other.close()


@pytest.mark.representatives(2)
@pytest.mark.parametrize(("loss", "penalty"), PROBLEMS)
@pytest.mark.parametrize("bits", [36, 62])
def test_objective_and_bound_hold_for_the_model_itself(monkeypatch, loss, penalty, bits):
    """With 36 bits in place of 62 rounding is what keeps the gap open: the certificate says so."""
    monkeypatch.setattr("fastadmm.secrecy.grid._BITS", bits)
    blocks, problem = build(2, loss, lam=1e-2, **penalty)
    check_certificates(blocks, problem, 15, scheme="sharing")


def test_a_coarse_grid_keeps_the_gap_open(monkeypatch):
    monkeypatch.setattr("fastadmm.secrecy.grid._BITS", 30)
    _, problem = build(2, lam=1e-2)
    solver = Solver(problem, sharing())
    gaps = [solver.round().gap for _ in range(40)]
    assert 1e-8 < min(gaps) < 1e-2
    solver.close()


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_messages_are_within_their_range_and_off_by_no_more_than_their_bound(monkeypatch, scale):
    monkeypatch.setattr("fastadmm.secrecy.grid._BITS", 34)
    blocks, problem = build(4, scale=scale, lam=1e-3)
    solver = Solver(problem, sharing(gap=0.0))
    off = []
    for _ in range(45):  # the penalty follows the curvature after 10 and 30
        before = solver.coordinator.state
        solver.round()
        c = solver.coordinator
        exact = [block @ x for block, x in zip(blocks, solver.party_weights())]
        total = (c.last.images + (c.relaxation - 1.0) * before.images) / c.relaxation
        off.append(np.abs(total - sum(exact)).max() / c.spread)
    assert 0.05 < max(off) <= 1.0
    assert c.metric is not None
    solver.close()


def test_masks_change_no_bit_of_a_run(monkeypatch):
    _, problem = build(1, regularizer="l1", lam=1e-2)
    masked = solve(problem, sharing(max_rounds=8))
    monkeypatch.setattr(PairwiseMasks, "hide", lambda self, meant, transcript: meant)
    plain = solve(problem, sharing(max_rounds=8))
    for one, other in zip(masked.history, plain.history, strict=True):
        assert {**one.to_json(), "seconds": 0} == {**other.to_json(), "seconds": 0}
    assert all((a == b).all() for a, b in zip(masked.weights, plain.weights))


@pytest.mark.representatives(1)
@pytest.mark.parametrize(("loss", "penalty"), PROBLEMS[:4])
def test_resumed_to_the_bit(loss, penalty):
    _, problem = build(4, loss, **penalty)
    options = sharing(history=3, gap=0.0)
    straight, begun, resumed = (Solver(problem, options) for _ in range(3))
    for _ in range(16):
        last = straight.round()
    for _ in range(12):  # the metric is set after round 10
        begun.round()
    resumed.restore(begun.export(), begun.export_parties())
    assert resumed.parties[0].keys != begun.parties[0].keys
    for _ in range(4):
        record = resumed.round()
    assert {**record.to_json(), "seconds": 0} == {**last.to_json(), "seconds": 0}
    assert all((a == b).all() for a, b in zip(resumed.party_weights(), straight.party_weights()))
    for solver in (straight, begun, resumed):
        solver.close()


@pytest.mark.parametrize("regularizer", ["l2", "l1"])
def test_begun_at_given_weights(regularizer):
    blocks, problem = build(9, regularizer=regularizer, lam=1e-2)
    cold = solve(problem, sharing(gap=1e-7))
    assert cold.status is Status.CONVERGED
    start = StartingPoint(cold.weights, cold.intercept)
    warm = solve(problem, sharing(gap=1e-6), start=start)
    assert warm.status is Status.CONVERGED
    assert len(warm.history) < len(cold.history)
    solver = Solver(problem, sharing(), start=start)
    record = solver.round()
    assert true_objective(blocks, problem, solver) <= record.objective * (1 + 1e-13)
    solver.close()


def test_chosen_where_directions_have_no_sum():
    _, problem = build(1, regularizer="l1")
    _, ridge = build(1)
    for own, options, scheme in (
        (problem, {}, "sharing"),
        (ridge, {}, "subspace"),
        (ridge, {"penalty": 1.0}, "sharing"),
    ):
        solver = Solver(own, sums(**options))
        assert (solver.scheme.name, solver.parties[0].family.split("_")[1]) == (scheme, "sums")
        solver.close()


def test_a_constraint_without_zero_is_refused():
    _, problem = build(1, constraint="box:0.5,1")
    with pytest.raises(ConfigError, match="a constraint that zero weights meet, not 'box:0"):
        Solver(problem, sharing())


# --- the least of shares ----------------------------------------------------------------------------------
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6))
def test_the_least_share_is_one_that_all_allow(shares):
    least = least_share(sum(at_or_above(share) for share in shares), len(shares))
    exact = min(shares)
    assert least <= exact
    assert least > 0.0 or exact < 2.0**-39
    assert 1.0 - least <= 2.0 ** (1 / 16) * (1.0 - exact) + 2.0**-39


def test_thresholds_fall_from_one():
    assert THRESHOLDS[0] == 1.0
    assert (np.diff(THRESHOLDS) < 0.0).all()
    assert THRESHOLDS[-1] == 2.0**-40


# --- what a party does not answer -------------------------------------------------------------------------
def test_a_decision_that_is_not_of_this_run_is_refused():
    _, problem = build(7)
    solver = Solver(problem, sharing())
    for _ in range(3):
        solver.round()
    party = solver.parties[0]
    kept = len(party.moves)
    assert kept == 2
    asked = {"shift": np.ones(N), "scaled_penalty": 1.0, "relaxation": 1.6, "step": 2.0**-40}
    for slot, count in ((3, 4), (0, 3), (2, 2), (1, 1)):
        wrong = {**asked, "slot": slot, "kept": count, "exchange": party.answered + 1}
        with pytest.raises(Unanswerable, match=f"difference {slot} of {count}, but 2 are kept"):
            party.answer("step_masked", wrong)
    told = {"gradient": np.ones(N), "pull": np.ones(N), "accepted": True, "slot": 0, "kept": 0}
    with pytest.raises(Unanswerable, match="3 weights for 0 differences"):
        party.answer("certify_masked", {**told, "weights": np.ones(3), "exchange": party.answered + 1})
    with pytest.raises(Unanswerable, match="unknown here"):
        party.answer("step", {"w": np.ones(N), "scaled_penalty": 1.0})
    solver.close()


def test_counts_of_another_length_are_no_answer():
    answer = {"rows": np.zeros(3, dtype=np.int64), "numbers": np.zeros(16, dtype=np.int64)}
    with pytest.raises(FormatError, match=f"'rows' has 3 words instead of {len(THRESHOLDS)}"):
        check_answer(("certify_penalised_masked", {}), answer, N, "m")
