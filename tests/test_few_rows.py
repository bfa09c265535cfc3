"""Wide tables with ridge in ``subspace``: the model with all columns, and how few rounds it takes."""

import numpy as np
import pytest
from fastadmm.conversation.calls import check_answer
from fastadmm.coordinator.subspace.few_rows import FewRows, minimise_over_box
from fastadmm.engine.engine import Engine
from fastadmm.errors import FormatError
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


def test_an_answer_to_a_question_that_was_not_asked_is_refused():
    asked = {"gradient": np.ones(5), "coefficients": np.ones(0), "newton": False}
    answer = {"squared_residual": 1.0, "message": np.ones(5), "other": np.ones(5)}
    check_answer(("respond", {**asked, "also": np.ones(5)}), answer, 5, "m")
    with pytest.raises(FormatError, match="message, other, squared_residual do not go together"):
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
