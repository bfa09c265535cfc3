"""Wide tables with ridge in ``subspace``: the model with all columns, and how few rounds it takes."""

import numpy as np
import pytest
from fastadmm.conversation.calls import check_answer
from fastadmm.coordinator.subspace.few_rows import FewRows, has_few_rows, minimise_over_box
from fastadmm.engine.engine import Engine
from fastadmm.errors import FormatError
from fastadmm.parties.direction import DirectionParty
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, SolverOptions, solve

from resumed import assert_resumed_is_the_same
from scripts import script_of


def known(party_kernels, directions=None, rounds=6):
    rng = np.random.default_rng(0)
    n = len(party_kernels[0])
    problem = make_problem(party_kernels, rng.normal(size=n), lam=1e-3, loss="squared")
    options = SolverOptions(scheme="subspace", history=directions, directions="one", gap=0.0, n_threads=1)
    solver = Solver(problem, options)
    for _ in range(rounds):
        solver.round()
    return solver


def wide_blocks(n=20, widths=(600, 550)):
    rng = np.random.default_rng(1)
    return [rng.normal(size=(n, d)) for d in widths]


def test_where_rows_are_few():
    assert has_few_rows(100, 101)
    assert not has_few_rows(100, 100)
    assert not has_few_rows(2000, 9000)


@pytest.mark.representatives(7)
@pytest.mark.parametrize(
    ("seed", "rounds"),
    [
        (13, 20),  # plain columns: more than 150 rounds with gradients of the span's minimiser
        (10, 25),  # correlated columns, Poisson: the same
        (8, 40),  # badly scaled and doubled columns
        (233, 25),  # hinge, all samples beyond their margins at the optimum: the model itself is stiff
        (239, 40),
        (245, 60),  # the stiffest: Newton's method from bend to bend did not end
    ],
)
@pytest.mark.parametrize("directions", ["auto", "one", "both"])
def test_wide_tables_are_certified_soon(seed, rounds, directions):
    _, blocks, y, given = script_of("bench/few_rows.py").generate_ridge(seed)
    problem = make_problem([np.ascontiguousarray(block) for block in blocks], y, **given)
    if directions != "auto" and not problem.loss.smooth:
        pytest.skip("losses with kinks send one")
    # One direction in a round is half of the messages.
    most = rounds if directions != "one" and problem.loss.smooth else 2 * rounds
    options = SolverOptions(scheme="subspace", gap=1e-6, max_rounds=most, directions=directions, n_threads=1)
    assert solve(problem, options).gap <= 1e-6


@pytest.mark.parametrize("directions", [None, 4])
def test_what_was_asked_about_is_known_exactly(directions):
    """Also of what parties have forgotten since."""
    blocks = wide_blocks()
    coordinator = known(blocks, directions).method
    few, kernel = coordinator.few_rows, sum(block @ block.T for block in blocks)
    assert len(few.asked) == 6
    np.testing.assert_allclose(few.asked @ few.asked.T, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(few.images, few.asked @ kernel, rtol=1e-8, atol=1e-8)
    estimate = few._kernel(coordinator.messages, Engine(1))
    np.testing.assert_allclose(few.asked @ estimate, few.images, rtol=1e-7, atol=1e-6)
    seen = coordinator.messages.T @ coordinator.messages
    assert np.linalg.eigvalsh(estimate - seen)[0] > -1e-8


def test_both_directions_answer_two_questions_in_double_precision():
    blocks, rng = wide_blocks(), np.random.default_rng(7)
    y, kernel = rng.normal(size=20), sum(block @ block.T for block in blocks)
    problem = make_problem(blocks, y, lam=1e-3, loss="squared")
    solver = Solver(problem, SolverOptions(scheme="subspace", directions="both", gap=0.0, n_threads=1))
    solver.round()
    coordinator = solver.method
    # The first round also asks about what all rows have in common.
    np.testing.assert_allclose(coordinator.few_rows.asked[0], np.full(20, 20.0**-0.5), atol=1e-15)
    own = coordinator.point.gradient
    difference = coordinator.primal.gradient - own
    assert np.abs(difference).max() > 1e-6 * np.abs(own).max()
    solver.round()
    few = coordinator.few_rows
    assert len(few.asked) == 4
    assert len(coordinator.owner) == 8
    left = difference - few.asked.T @ (few.asked @ difference)
    assert np.linalg.norm(left) < 1e-9 * np.linalg.norm(difference)
    np.testing.assert_allclose(few.images, few.asked @ kernel, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_rows", [1, 2])
def test_a_party_answers_another_question_with_a_direction_of_its_own(n_rows):
    block, rng = wide_blocks()[0], np.random.default_rng(8)
    g, q, engine = rng.normal(size=20), rng.normal(size=20), Engine(1)

    party = DirectionParty("shop", make_problem([block], g, lam=1e-3, loss="squared").blocks[0], 1e-3, engine)
    answer = party.respond(g, np.zeros(0), newton=False, also=q if n_rows == 2 else None)
    sent = [answer[key] for key in ("message", "other") if key in answer]
    assert len(sent) == n_rows
    asked = block.T @ np.array([g, q][:n_rows]).T
    np.testing.assert_allclose(party.directions @ party.directions.T, np.eye(n_rows), atol=1e-12)
    np.testing.assert_allclose(party.directions.T @ (party.directions @ asked), asked, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.array(sent), party.directions @ block.T, rtol=1e-9, atol=1e-9)


def test_an_answer_to_a_question_that_was_not_asked_is_refused():
    asked = {"gradient": np.ones(5), "coefficients": np.ones(0), "newton": False}
    answer = {"squared_residual": 1.0, "message": np.ones(5), "other": np.ones(5)}
    check_answer(("respond", {**asked, "also": np.ones(5)}), answer, 5, "m")
    with pytest.raises(FormatError, match="'other' is a message that was not asked for"):
        check_answer(("respond", asked), answer, 5, "m")


def test_the_gradient_is_that_of_ridge_with_the_estimated_kernel():
    blocks = wide_blocks()
    rng = np.random.default_rng(2)
    problem = make_problem(blocks, rng.normal(size=20), lam=1e-2, loss="squared", fit_intercept=False)
    few, engine = FewRows(20), Engine(1)
    messages = np.array([block @ (block.T @ problem.y) for block in blocks])
    messages /= np.array([[np.linalg.norm(block.T @ problem.y)] for block in blocks])
    few.tolerance = 1e-20
    few.learn(problem.y, messages, 0, engine)
    assert few.aim(problem, messages, engine)
    estimate = few._kernel(messages, engine)
    scale = problem.regularization
    expected = -scale * np.linalg.solve(estimate + scale * np.eye(20), problem.y)
    np.testing.assert_allclose(few.dual, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("loss", ["squared", "quantile"])
def test_a_restored_run_takes_the_same_steps(loss):
    rng = np.random.default_rng(4)
    problem = make_problem(wide_blocks(), rng.normal(size=20), lam=1e-3, loss=loss)
    # In one process all columns are sent where the loss has kinks, and no model is needed.
    asked = "one" if loss == "quantile" else "auto"
    options = SolverOptions(scheme="subspace", gap=1e-12, n_threads=1, directions=asked)
    saved = assert_resumed_is_the_same(problem, options, rounds=3).export()
    saved["method"]["asked"] = saved["method"]["asked"][:, 1:]
    with pytest.raises(ValueError, match="asked"):
        Solver(problem, options).method.restore(saved["method"])


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_a_box_program_ends_at_its_conditions(balanced, scale):
    rng = np.random.default_rng(5)
    factor = rng.normal(size=(15, 25))
    hessian, linear = scale * factor @ factor.T + np.eye(15), 3.0 * rng.normal(size=15)
    low, high = -rng.random(15) / scale, rng.random(15) / scale
    u, multiplier = minimise_over_box(hessian, linear, low, high, balanced, 0.0)
    slope = hessian @ u + linear + multiplier
    assert multiplier == 0.0 or balanced
    assert not balanced or abs(u.sum()) <= 1e-10 * np.abs(u).sum()
    assert (low < u).all()
    assert (u < high).all()
    # A slope has the sign of the bound that it presses against, and none inside.
    assert np.abs(np.where(slope > 0.0, u - low, high - u) * slope).max() <= 1e-9 / scale


def test_a_box_program_stops_at_its_tolerance():
    hessian, linear = np.diag([1.0, 2.0]), np.array([-0.5, 9.0])
    u, _ = minimise_over_box(hessian, linear, -np.ones(2), np.ones(2), False, 1e-3)
    assert 0.5 * u @ hessian @ u + linear @ u <= -8.125 + 1e-3
