"""Losses with kinks on ``proximal``: how wide they are smoothed; steps at a party and along a line."""

import itertools

import numpy as np
import pytest
from fastadmm.blocks.block import as_block
from fastadmm.coordinator.proximal.parts import HullPoint
from fastadmm.coordinator.proximal.segment_search import SegmentPenalty, best_position
from fastadmm.coordinator.smoothing import Smoothing
from fastadmm.engine.engine import Engine
from fastadmm.method.line_length import best_length
from fastadmm.parties.xupdate.choose import choose_penalised
from fastadmm.problem.constraints import get_constraint
from fastadmm.problem.problem import make_problem
from fastadmm.problem.regularizers import get_regularizer
from fastadmm.solver.history import Status
from fastadmm.solver.solver import SolverOptions, solve
from scipy.optimize import minimize_scalar
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.preprocessing import scale

N = 60


def small_problem(loss, regularizer="l1"):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((N, 6))
    y = (X[:, 0] > 0.3) * 1.0 if loss == "hinge" else X @ rng.standard_normal(6) + rng.standard_normal(N)
    weight = rng.uniform(0.5, 2.0, N)
    weight[:3] = 0.0
    return make_problem(
        [X[:, :3], X[:, 3:]], y, loss=loss, lam=1e-2, regularizer=regularizer, sample_weight=weight
    )


@pytest.mark.parametrize("loss", ["hinge", "quantile"])
@pytest.mark.parametrize("width", [2.0, 0.3, 1e-3])
def test_a_centre_is_its_own_gradient_and_costs_nothing(loss, width):
    problem, rng = small_problem(loss), np.random.default_rng(5)
    used = problem.weight > 0.0
    with Engine(1) as engine:
        smoothing = Smoothing(problem, engine)
        smoothing.width = width

        def kinks():
            return np.where(problem.y > 0.5, 1.0, -1.0) if loss == "hinge" else problem.y

        z = rng.standard_normal(N)
        centre = smoothing.gradient(z)
        before = smoothing.bias(z, centre)
        smoothing.move(centre, 0.5)
        # At its kink every slope is a subgradient: the smoothed loss keeps that of the centre.
        assert smoothing.gradient(kinks()) == pytest.approx(centre, abs=1e-12)
        assert smoothing.bias(kinks(), centre) == pytest.approx(0.0, abs=1e-12)
        # Elsewhere a step of the proximal point method goes towards a subgradient, and what it costs is this.
        u = smoothing.gradient(z)
        p, c = u[used] / problem.weight[used], centre[used] / problem.weight[used]
        ends = (0.0, -np.sign(kinks()[used])) if loss == "hinge" else (-0.5, 0.5)
        far = np.where((p - c > 0.0), np.maximum(*ends) - p, p - np.minimum(*ends))
        formula = smoothing.width * float(problem.weight[used] @ (np.abs(p - c) * far))
        assert smoothing.bias(z, u) == pytest.approx(formula, rel=1e-9, abs=1e-12)
        assert smoothing.bias(z, u) <= before + 1e-12


def sparse_rows(n, d, regularizer="l2"):
    """As many rows meet their kinks in the end as there are columns."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((n, d)) < 0.04, rng.standard_normal((n, d)), 0.0)
    z = X @ rng.standard_normal(d)
    y = (2.0 * z / z.std() + rng.logistic(size=n) > 0.0) * 1.0
    return make_problem([X[:, : d // 2], X[:, d // 2 :]], y, loss="hinge", lam=1e-4, regularizer=regularizer)


def test_many_rows_or_weights_at_kinks_do_not_stall():
    """Narrow parabolas did: a gap of 4e-6 after 200 rounds."""
    fit = solve(sparse_rows(4000, 200), SolverOptions(gap=1e-6, max_rounds=130))
    assert fit.status is Status.CONVERGED
    # Directions that were forgotten did: a gap of 8e-4 after 200 rounds.
    options = SolverOptions(gap=1e-6, max_rounds=140)
    assert solve(sparse_rows(4000, 200, "l1"), options).status is Status.CONVERGED


@pytest.mark.representatives(7)
@pytest.mark.parametrize(
    ("loss", "lam", "regularizer", "asked"),
    [
        *itertools.product(
            ["hinge", "quantile"], [1e-2, 1e-3], ["l1", "elastic_net", "group_lasso"],
            [{"scheme": "proximal", "gap": 1e-6, "max_rounds": 40}],
        ),
        *itertools.product(["hinge", "quantile"], [1e-1, 1e-4], ["l2"], [{"gap": 1e-4, "max_rounds": 14}]),
    ],
)  # fmt: skip
def test_few_rounds_for_losses_with_kinks(loss, lam, regularizer, asked):
    """With ridge about ten, as the page says."""
    X, y = (load_breast_cancer if loss == "hinge" else load_diabetes)(return_X_y=True)
    X, more = scale(X), {"loss": loss, "lam": lam, "regularizer": regularizer}
    blocks = np.array_split(X, 3, axis=1) if regularizer == "l2" else [X[:, a::3] for a in range(3)]
    problem = make_problem(blocks, y if loss == "hinge" else scale(y), **more)
    assert solve(problem, SolverOptions(**asked)).status is Status.CONVERGED


@pytest.mark.representatives(5)
@pytest.mark.parametrize("constraint", ["all", "nonnegative", "box:-0.1,0.1"])
@pytest.mark.parametrize("columns", ["few factors", "powers", "more than rows", "pairs"])
def test_dependent_columns_are_solved_to_the_end(columns, constraint):
    # A weight that has just left its kink ends a Newton step before it has begun, pass after pass.
    rng = np.random.default_rng(0)
    block = {
        "few factors": rng.standard_normal((200, 4)) @ rng.standard_normal((4, 40))
        + 1e-4 * rng.standard_normal((200, 40)),
        "powers": np.linspace(0.0, 1.0, 200)[:, None] ** np.arange(40),
        "more than rows": rng.standard_normal((20, 40)),
        "pairs": np.repeat(rng.standard_normal((200, 20)), 2, axis=1) + 1e-7 * rng.standard_normal((200, 40)),
    }[columns]
    w = block @ rng.standard_normal(40) + 0.1 * rng.standard_normal(len(block))
    gram, right = block.T @ block, block.T @ w
    chosen, limit = get_regularizer("l1"), get_constraint(constraint)
    curvature = np.diag(gram)
    with Engine(1) as engine:
        update, _ = choose_penalised(as_block(block), chosen, limit)
        assert update.name == "coordinate"
        update.prepare(engine)
        x = np.zeros(40)
        for mu in (10.0, 1.0, 1e-2, 1e-5):
            x = update.solve(w, mu, x, engine)
            centre = curvature * x - (gram @ x - right)
            best = np.sign(centre) * np.maximum(np.abs(centre) - mu, 0.0) / curvature
            violation = np.abs(np.clip(best, *limit.bounds) - x) * np.sqrt(curvature)
            scale = ((np.abs(right) + curvature * np.abs(x) + mu) / np.sqrt(curvature)).max()
            assert violation.max() <= 1e-11 * scale  # ten times the tolerance: gram and w are rounded too


@pytest.mark.parametrize(("linear", "square"), [*itertools.product((-3.0, 2.0, 40.0), (0.0, 5.0))])
def test_length_along_a_line_is_the_best(linear, square):
    X = np.random.default_rng(9).standard_normal((N, 2))
    problem = make_problem([X[:, :1], X[:, 1:]], (X[:, 0] > 0.0) * 1.0)
    base, along = 0.1 * X[:, 1], 4.0 * X[:, 0]

    def value(t):
        loss = problem.loss.evaluate(base + t * along, problem.y, problem.weight, np.empty(N), engine)
        return loss + linear * t + 0.5 * square * t * t

    with Engine(1) as engine:
        found = best_length(problem, base, along, linear, square, engine)
        gradient = np.empty(N)
        problem.loss.evaluate(base + along, problem.y, problem.weight, gradient, engine)
        end = float(gradient @ along) + linear + square
        assert best_length(problem, base, along, linear, square, engine, end) == pytest.approx(
            found, rel=1e-5
        )
        best = minimize_scalar(value, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-10})
    assert 0.0 <= found <= 1.0
    assert found == pytest.approx(best.x, abs=1e-5)


def steep_line():
    """One row's loss rises by forty powers of ten along it, the others fall."""
    X = np.random.default_rng(1).standard_normal((N, 2))
    base, along = np.full(N, -3.0), np.full(N, -1.0)
    base[0], along[0] = -30.0, 120.0
    problem = make_problem([X[:, :1], X[:, 1:]], (np.arange(N) == 1) * 1.0, loss="poisson", regularizer="l1")
    return problem, base, along


def test_lengths_and_positions_where_a_segment_turns_steep():
    problem, base, along = steep_line()
    with Engine(1) as engine:
        found = best_length(problem, base, along, 0.0, 0.0, engine)
        ends = [float((np.exp(base + t * along) - problem.y) @ along) for t in (found - 2e-6, found + 2e-6)]
    assert ends[0] < 0.0 < ends[1]
    # Position on a segment that turns steep is where the slope is zero.
    problem, base, along = steep_line()
    model, proposal = HullPoint(np.zeros(0), 0.0, base), HullPoint(np.zeros(0), 0.0, base + along)
    flat = SegmentPenalty(np.array([0.0, 1.0]), np.zeros(2), (0.0, 0.0, 0.0), 0.0, 0.0)
    with Engine(1) as engine:
        found = best_position(problem, model, proposal, [flat], engine)
        ends = [float((np.exp(base + t * along) - problem.y) @ along) for t in (found - 4e-9, found + 4e-9)]
    assert ends[0] < 0.0 < ends[1]
