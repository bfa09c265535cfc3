"""Weights that nothing bounds: doubles prove a gap to the best model of a size, not to the best of all."""

import itertools
import json
import math
import statistics
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import solve
from fastadmm.blocks.block import CSRBlock, DenseBlock
from fastadmm.engine.engine import Engine
from fastadmm.parties.face import FaceParty
from fastadmm.problem.bounded_models import column_deviations
from fastadmm.problem.constraints import get_constraint
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import make_problem
from fastadmm.problem.regularizers import get_regularizer
from fastadmm.reports import compare_runs
from fastadmm.reports.records import comparison_rows
from fastadmm.runs.config import make_config
from fastadmm.runs.train import start_run
from fastadmm.solver.history import RoundRecord, Status
from fastadmm.solver.loop import run_rounds
from fastadmm.solver.solver import Solver, SolverOptions
from fastadmm.store.model import open_model
from scipy.optimize import nnls

from problems import make_vertical_classification
from rounds_tools import begin, data_of, separate, train
from run_tools import printed, result_of, run, write_blocks


def test_a_run_without_a_bound_on_weights_ends_and_says_what_it_proved():
    rng = np.random.default_rng(4)
    blocks = [rng.normal(size=(50, 4)) for _ in range(2)]
    y = np.hstack(blocks) @ rng.normal(size=8) + rng.normal(size=50)
    problem = make_problem(
        blocks, y, loss="squared", regularizer="none", constraint="nonnegative", fit_intercept=False
    )
    with Engine(1) as engine:
        solver = Solver(problem, SolverOptions(max_rounds=60), engine)
        result = run_rounds(solver)
        # A run that was stopped before its result ends in the same way.
        again = Solver(problem, SolverOptions(max_rounds=60), engine)
        again.restore(solver.export(), solver.export_parties())
        assert again.last_record is not None
        assert again.stop_reason(again.last_record) is Status.CONVERGED
    assert result.status is Status.CONVERGED
    assert "among models in which no column contributes more than 1000 standard deviations" in result.message
    assert not result.certified
    assert 0.0 <= result.record.gap_within <= 1e-6
    assert RoundRecord.from_json(result.record.to_json()) == result.record
    best, residual = nnls(np.hstack(blocks), y)
    assert result.objective == pytest.approx(residual**2 / 100, rel=1e-6)
    np.testing.assert_allclose(np.concatenate(result.weights), best, atol=1e-4)


@pytest.mark.representatives(2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("intercept", [False, True])
def test_what_is_claimed_is_true_of_models_of_a_size_that_data_fix(intercept, seed, monkeypatch):
    """The bound is that of models whose columns contribute 1000 of the target's deviations at most."""
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(30, 3)) * 10.0 ** rng.uniform(-3, 3, size=3) for _ in range(2)]
    columns = np.hstack(blocks) / np.hstack(blocks).std(axis=0)
    y = columns @ rng.normal(size=6) + rng.normal(size=30)
    problem = make_problem(blocks, y, loss="squared", regularizer="none", fit_intercept=intercept)
    claims = []
    with Engine(1) as engine:
        solver = Solver(problem, SolverOptions(scheme="proximal", max_rounds=20, gap=1e-2), engine)
        find = solver.method._bound_within
        monkeypatch.setattr(
            solver.method, "_bound_within", lambda *given: claims.append(find(*given)) or claims[-1]
        )
        result = run_rounds(solver)
    assert result.record.gap_within is not None
    matrix = np.hstack(blocks)
    centred = matrix - matrix.mean(axis=0) * intercept
    size, target = np.sqrt((centred**2).mean(axis=0)), y - y.mean() * intercept
    u = solver.coordinator.sent
    reach = 1000.0 * np.sqrt((target**2).mean())
    least = -(np.abs(centred.T @ u) / size).sum() * reach - 0.5 * u @ u - u @ y
    assert claims[-1] == pytest.approx(least, rel=1e-6)
    full = np.column_stack([matrix, np.ones(30)]) if intercept else matrix
    best = np.linalg.lstsq(full, y)[0]
    assert claims[-1] <= 0.5 * ((full @ best - y) ** 2).sum() * (1.0 + 1e-12)


def far_columns(seed):
    """A time stamp, whose spread is a share of 1e-8 of its mean, and another column; a line in both."""
    rng = np.random.default_rng(seed)
    steps, other = np.cumsum(rng.integers(1, 900, size=200)) * 1.0, rng.normal(size=200)
    y = steps / steps.std() + 0.3 * other + 0.1 * rng.normal(size=200)
    return [(1.7e12 + steps)[:, None], other[:, None]], y


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("scheme", ["auto", "proximal"])
def test_rounding_noise_for_weights_proves_nothing(scheme, columns):
    """What an answer contributes does not say how far others may go."""
    for seed in range(3):
        blocks, y = far_columns(seed)
        problem = make_problem(blocks[:columns], y, loss="squared", regularizer="none")
        result = solve(problem, SolverOptions(scheme=scheme, max_rounds=60))
        full = np.column_stack([*(b - b.mean() for b in blocks[:columns]), np.ones(200)])
        best = 0.5 * np.mean((y - full @ np.linalg.lstsq(full, y)[0]) ** 2)
        within = result.record.gap_within
        if result.status is Status.CONVERGED:
            assert within is not None
            assert result.objective <= best * (1.0 + 2.0 * max(within, 1e-6)), (seed, result.message)


@pytest.mark.parametrize("sparse", [False, True])
def test_deviations_of_far_columns(sparse):
    rng = np.random.default_rng(8)
    near = rng.normal(size=(300, 4)) * [1.0, 10.0, 0.1, 0.0]
    matrix = near + np.array([0.0, 1e3, 1e9, 7.3])
    matrix[::3, 0] = 0.0
    block = CSRBlock(sp.csr_array(matrix)) if sparse else DenseBlock(matrix)
    with Engine(1) as engine:
        found = column_deviations(block, engine)
    exact = [float(statistics.pstdev(map(Fraction, column.tolist()))) for column in matrix.T]
    np.testing.assert_allclose(found, exact, rtol=1e-9)
    assert found[3] == 0.0


def test_columns_are_measured_from_zero_unless_a_gradient_sums_to_zero():
    block = DenseBlock(3.0 + np.random.default_rng(8).normal(size=(9, 2)))
    with Engine(1) as engine:
        party = FaceParty("a", block, 0.0, engine, get_regularizer("none"), get_constraint("all"))
        party.prepare()
        party.set_metric(np.ones(9))
        for gradient, sizes in ((np.ones(9), party.span.scale), (np.arange(9) - 4.0, party.deviations)):
            party.best_response(gradient, party.feasible_start()["coefficients"])
            np.testing.assert_array_equal(party.sizes, sizes)


@pytest.mark.parametrize("intercept", [True, False])
def test_parties_elsewhere_measure_their_columns(intercept, tmp_path):
    """All that they know of an intercept is whether gradients sum to zero."""
    separate(data_of(tmp_path, "regression"), tmp_path)
    begin(tmp_path, loss="squared", regularizer="none", intercept=intercept, rounds=40)
    directory, _ = train(tmp_path)
    result = result_of(directory)
    assert result["status"] == "converged"
    assert 0.0 <= result["gap_within"] <= 1e-6


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run without a bound on its weights, with a gap to all models that is too large, and one with."""
    home = tmp_path_factory.mktemp("endless")
    blocks, y, _ = make_vertical_classification(200, (3, 2))
    write_blocks(home / "a.parts", blocks, y, task="regression")
    options = {"data": str(home / "a.parts"), "loss": "squared"}
    start_run(make_config({**options, "regularizer": "none"}), home / "run")
    start_run(make_config(options), home / "ridge")
    file = home / "run" / "result.json"
    # As where an early gradient pulled no weight in a direction without end.
    file.write_text(json.dumps({**json.loads(file.read_text()), "gap": 0.5}))
    return home


@pytest.mark.parametrize("history", [None, 20])
@pytest.mark.parametrize("loss", ["hinge", "quantile"])
def test_losses_with_kinks_are_proved_among_bounded_models(loss, history):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 6))
    z = x @ rng.normal(size=6) + 1.5 * rng.normal(size=60)
    problem = make_problem(
        [x[:, :3], x[:, 3:]], 1.0 * (z > 0.0) if loss == "hinge" else z, loss=loss, regularizer="none"
    )
    with Engine(1) as engine:
        solver = Solver(problem, SolverOptions(max_rounds=500, history=history), engine)
        result = run_rounds(solver)
    assert result.status is Status.CONVERGED
    assert result.certified_within


@pytest.mark.parametrize("regularizer", ["l1", "group_lasso"])
def test_columns_too_large_for_their_lambda(regularizer):
    """Rounding of a gradient of 1e12 outweighs a lambda of 1e-6, however good the model is."""
    rng = np.random.default_rng(3)
    size = np.array([1.0, 1e2, 1e4, 1e7])
    blocks = [rng.normal(size=(60, 4)) * size for _ in range(2)]
    y = 1e5 * (rng.normal(size=60) + np.hstack(blocks) @ (rng.normal(size=8) / np.tile(size, 2)))
    problem = make_problem(blocks, y, loss="squared", regularizer=regularizer, lam=1e-6)
    result = solve(problem, SolverOptions(scheme="proximal", max_rounds=200))
    assert result.status is Status.CONVERGED
    assert not result.certified
    assert 0.0 <= result.record.gap_within <= 1e-6
    best, *_ = np.linalg.lstsq(np.column_stack([*blocks, np.ones(60)]), y)
    left = y - np.column_stack([*blocks, np.ones(60)]) @ best
    # Least squares bounds the lasso from below; its penalty is at most that of these weights.
    assert result.objective >= left @ left / 120 * (1 - 1e-9)
    assert result.objective <= (left @ left / 120 + 1e-6 * 3 * np.abs(best).sum()) * (1 + 1e-6)


@pytest.mark.parametrize("regularizer", ["none", "l1"])
@pytest.mark.parametrize(
    ("constraint", "q"), [("box:-5,inf", -2.0), ("box:-inf,5", 2.0), ("nonnegative", -2.0)]
)
def test_a_gap_among_bounded_models_covers_the_end_of_an_open_box(regularizer, constraint, q):
    penalty = PartyPenalty(get_regularizer(regularizer).of_party(0, 1, "a"), get_constraint(constraint), 0.4)
    x, pull, one = np.array([1.0]), np.array([q]), np.array([1.0])
    low, high = penalty.constraint.bounds
    models = np.linspace(max(low, -100.0), min(high, 100.0), 1001)[:, None]
    most = max(float(pull @ other) - penalty.value(other) for other in models)
    assert penalty.gap_within(x, pull, 0.0, one, 100.0) >= penalty.value(x) + most - q - 1e-9


_SETS = ("all", "nonnegative", "box:-5,inf", "box:-inf,5", "box:-inf,0", "box:-1,2")


@pytest.mark.parametrize(
    ("regularizer", "constraint"),
    [(norm, at) for norm in ("l1", "elastic_net") for at in _SETS]
    + [("group_lasso", "all"), ("group_lasso", "nonnegative")],  # norms of groups go with no box
)
def test_at_the_free_scale_no_vector_near_q_costs_anything(regularizer, constraint):
    of_party = get_regularizer(regularizer).of_party(0, 2, "a")
    penalty, corners = PartyPenalty(of_party, get_constraint(constraint), 0.4), np.array([-1.0, 0.0, 1.0])
    for q in itertools.product((-0.5, -0.1, 0.0, 0.1, 2.0), repeat=2):
        for error in (0.0, 0.3, np.array([0.0, 5.0])):
            scale = penalty.free_scale(np.array(q), error)
            near = [np.array(q) + error * np.array(part) for part in itertools.product(corners, repeat=2)]
            assert max(penalty.conjugate(scale * (1.0 - 1e-12) * other) for other in near) <= 1e-12


@pytest.mark.parametrize("regularizer", ["l1", "group_lasso"])
@pytest.mark.parametrize("constraint", ["nonnegative", "all"])
def test_excess_of_a_norm_bounds_what_it_leaves(regularizer, constraint):
    rng = np.random.default_rng(1)
    q, scale = rng.normal(size=5), rng.uniform(0.1, 9.0, size=5)
    penalty = PartyPenalty(get_regularizer(regularizer).of_party(0, 5, "a"), get_constraint(constraint), 0.4)
    assert penalty.homogeneous
    x = rng.uniform(-1.0, 1.0, size=(4_000, 5)) * rng.choice([0.0, 1.0], size=(4_000, 5)) / scale
    x = np.array([penalty.constraint.project(own) for own in x])
    reached = max(q @ own - penalty.value(own) for own in x)
    assert 0.0 < reached <= penalty.excess(q, scale)
    if regularizer == "l1":  # column by column: the bound is met at a corner
        at = np.sign(q) * (np.abs(q) > 0.4) / scale
        at = penalty.constraint.project(at)
        assert penalty.excess(q, scale) == pytest.approx(q @ at - penalty.value(at))
    within = q / (np.linalg.norm(q) / 0.4)
    assert penalty.excess(within, scale) == 0.0


@pytest.mark.parametrize("constraint", ["nonnegative", "all"])
def test_excess_is_the_conjugate_over_weights_of_bounded_size(constraint):
    rng = np.random.default_rng(1)
    q, scale = rng.normal(size=5), rng.uniform(0.1, 9.0, size=5)
    penalty = PartyPenalty(get_regularizer("none"), get_constraint(constraint), 1.0)
    assert penalty.homogeneous
    x = np.where(rng.random((4_000, 5)) < 0.5, 1.0, -1.0) * rng.random((4_000, 5)).round() / scale
    x = np.array([penalty.constraint.project(own) for own in x])
    assert penalty.excess(q, scale) == pytest.approx((x @ q).max())
    assert penalty.largest_scale(q) == 0.0
    signed = -np.abs(q) if constraint == "nonnegative" else 0.0 * q
    assert penalty.largest_scale(signed) == 1.0
    assert penalty.conjugate(signed) == 0.0


def test_what_is_bounded_has_no_excess_and_pages_claim_no_more(runs, capsys):
    for regularizer, constraint in (("l2", "nonnegative"), ("none", "ball:1"), ("none", "box:-1,1")):
        penalty = PartyPenalty(get_regularizer(regularizer), get_constraint(constraint), 1.0)
        assert not penalty.homogeneous
    assert math.isinf(get_constraint("all").radius)
    # Records and pages claim no more.
    result = result_of(runs / "run")
    assert result["status"] == "converged"
    assert 0.0 <= result["gap_within"] <= 1e-6
    assert "gap_within" not in result_of(runs / "ridge")
    certificate = open_model(runs / "run" / "model").certificate
    assert certificate["gap_within"] == result["gap_within"]
    assert run("report", runs / "run", "-o", runs / "report.html") == 0
    page = (runs / "report.html").read_text(encoding="utf-8")
    assert "the target gap is reached and proved" not in page
    assert "no choice of weights can do better" not in page
    assert "a standard deviation of no column contributes more than" in page
    comparison = compare_runs([runs / "run", runs / "ridge"])
    assert dict(comparison_rows(comparison))["status"] == ["certified within", "certified"]
    assert comparison.to_json()["runs"][0]["gap_within"] == result["gap_within"]
    assert "gap_within" in printed(capsys, "card", runs / "run")
