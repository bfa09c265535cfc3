"""Subspace Newton sharing: directions, messages and the minimum over their span, by explicit algebra."""

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.blocks.block import as_block
from fastadmm.coordinator.metric_limits import directions_per_party
from fastadmm.engine.engine import Engine
from fastadmm.method.span import SpanPoint, minimise_over_span
from fastadmm.parties import direction as direction_party
from fastadmm.parties.direction import choose_metric_solver
from fastadmm.problem.problem import make_problem
from fastadmm.solver.history import Status
from fastadmm.solver.solver import Solver, SolverOptions, solve

import naive

N = 70


def build(loss="logistic", seed=0, widths=(6, 9, 4), **arguments):
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(N, d)) for d in widths]
    blocks[1] = np.where(rng.random(blocks[1].shape) < 0.5, blocks[1], 0.0)
    z = sum(block @ rng.normal(size=block.shape[1]) for block in blocks) + 0.5
    y = z + rng.normal(size=N) if loss == "squared" else (z + 2 * rng.normal(size=N) > 0).astype(float)
    s, offset = rng.uniform(0.2, 3.0, N), rng.normal(size=N)
    given = [blocks[0], sp.csr_array(blocks[1]), *blocks[2:]]
    options = {"loss": loss, "lam": 1e-3, "sample_weight": s, "offset": offset, **arguments}
    return blocks, make_problem(given, y, **options)


def start(problem, directions="auto"):
    return Solver(problem, SolverOptions(scheme="subspace", gap=0.0, directions=directions))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_messages_are_images_of_orthonormal_directions_and_weights_their_combination(loss, intercept):
    blocks, problem = build(loss, fit_intercept=intercept)
    solver = start(problem)
    for _ in range(15):
        solver.round()
        coordinator = solver.coordinator
        total = np.zeros(N)
        for m, party in enumerate(solver.parties):
            X, c = party.directions, coordinator.coefficients(m)
            np.testing.assert_allclose(X @ X.T, np.eye(len(X)), rtol=0, atol=1e-12)
            np.testing.assert_allclose(
                coordinator.messages[coordinator.owner == m], X @ blocks[m].T, rtol=0, atol=1e-11
            )
            np.testing.assert_array_equal(solver.party_weights()[m], c @ X)
            total += blocks[m] @ (c @ X)
        np.testing.assert_allclose(coordinator.point.total, total, rtol=0, atol=1e-10)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_the_first_direction_is_the_block_newton_direction_and_the_second_the_gradient(loss):
    blocks, problem = build(loss)
    solver = start(problem, "one")
    solver.prepare()
    z = problem.offset + solver.intercept
    h = naive.loss_curvature(loss, z, problem.weight)
    h = np.maximum(h, 1e-6 * h.mean())
    g = naive.loss_gradient(loss, z, problem.y, problem.weight)
    newton = []
    for D in blocks:
        matrix = (D.T * h) @ D + problem.regularization * np.eye(D.shape[1])
        d = -np.linalg.solve(matrix, D.T @ g)
        newton.append(d / np.linalg.norm(d))
    solver.round()
    for party, d in zip(solver.parties, newton):
        np.testing.assert_allclose(party.directions[0], d, rtol=0, atol=1e-9)
    x, b = solver.party_weights(), solver.intercept
    g = naive.loss_gradient(
        loss, problem.offset + b + sum(D @ w for D, w in zip(blocks, x)), problem.y, problem.weight
    )
    solver.round()
    for party, D, w, first in zip(solver.parties, blocks, x, newton):
        d = -(D.T @ g + problem.regularization * w)
        d -= (d @ first) * first
        np.testing.assert_allclose(party.directions[1], d / np.linalg.norm(d), rtol=0, atol=1e-8)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_the_span_is_minimised(loss, intercept):
    """Orthonormal directions make the span an ordinary problem in the messages."""
    rng = np.random.default_rng(3)
    _, problem = build(loss, fit_intercept=intercept)
    V = rng.normal(size=(7, N))
    with Engine(1) as engine:
        begin = SpanPoint(rng.normal(size=7), 0.3 if intercept else 0.0, np.empty(0))
        begin.total = begin.coefficients @ V
        point = minimise_over_span(problem, V, begin, 1e-14, engine)
        again = minimise_over_span(problem, V, point, 0.0, engine)
    best = naive.optimum(loss, V.T, problem.y, problem.lam, problem.weight, problem.offset, intercept)
    # Near its minimum the objective's rounding, 1e-16, hides steps of 1e-8.
    np.testing.assert_allclose(point.coefficients, best.weights, rtol=0, atol=1e-8)
    assert point.intercept == pytest.approx(best.intercept, abs=1e-8)
    np.testing.assert_allclose(point.total, point.coefficients @ V, rtol=0, atol=1e-11)
    value = [
        naive.objective(
            loss, p.coefficients, p.intercept, V.T, problem.y, problem.lam, problem.weight, problem.offset
        )
        for p in (begin, point, again)
    ]
    assert value[0] > value[1] >= value[2] - 1e-15
    assert value[1] == pytest.approx(best.objective, rel=1e-12)


@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("lam", [1e-1, 1e-6])
def test_the_objective_never_increases_also_when_directions_are_merged(lam, limit, monkeypatch):
    if limit:
        monkeypatch.setattr(
            "fastadmm.coordinator.subspace.subspace.directions_per_party", lambda n_parties: limit
        )
    _, problem = build(lam=lam, widths=(12, 11, 10))
    solver = start(problem)
    objectives = []
    for _ in range(40):
        objectives.append(solver.round().objective)
        if limit:
            assert all(len(party.directions) <= limit for party in solver.parties)
    assert (np.diff(objectives) <= 1e-14).all()
    assert limit is None or len(solver.coordinator.owner) == 3 * limit


def test_merging_changes_neither_weights_nor_messages(monkeypatch):
    blocks, problem = build(widths=(12, 11, 10))
    free, bound = start(problem, "one"), start(problem, "one")
    for _ in range(4):
        free.round()
        bound.round()
    monkeypatch.setattr(bound.coordinator, "limit", 4)
    for party in bound.parties:
        assert len(party.directions) == 4
    free_record = bound.round()  # the fifth direction makes a merge necessary
    monkeypatch.undo()
    record = free.round()
    # A merge replaces two coefficients by their norm, which rounds.
    assert free_record.objective == pytest.approx(record.objective, rel=1e-14)
    for a, b, D, party, m in zip(
        free.party_weights(), bound.party_weights(), blocks, bound.parties, range(3)
    ):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)
        assert len(party.directions) == 4
        np.testing.assert_allclose(party.directions @ party.directions.T, np.eye(4), rtol=0, atol=1e-12)
        coordinator = bound.coordinator
        np.testing.assert_allclose(
            coordinator.messages[coordinator.owner == m], party.directions @ D.T, rtol=0, atol=1e-11
        )


def test_messages_are_never_held_twice(monkeypatch):
    monkeypatch.setattr("fastadmm.coordinator.subspace.subspace.directions_per_party", lambda n_parties: 4)
    solver = start(build(widths=(12, 11, 10))[1])
    solver.round()
    place = solver.coordinator.messages.ctypes.data
    for _ in range(8):
        solver.round()
        assert solver.coordinator.messages.ctypes.data == place


def test_room_for_fewer_messages_where_the_system_has_no_more(monkeypatch):
    free, bound = start(build()[1], "one"), start(build()[1], "one")
    empty = np.empty

    def refusing(shape, **options):
        if isinstance(shape, tuple) and len(shape) == 2 and shape[1] == N and shape[0] > 9:
            raise MemoryError
        return empty(shape, **options)

    records = [free.round() for _ in range(3)]
    monkeypatch.setattr("fastadmm.coordinator.subspace.subspace.np.empty", refusing)
    assert [bound.round().objective for _ in range(3)] == [record.objective for record in records]
    with pytest.raises(MemoryError):
        bound.round()


def test_single_precision_and_sides_agree():
    rng = np.random.default_rng(8)
    problem = make_problem([rng.normal(size=(30, 45))], (rng.random(30) > 0.5).astype(float), lam=1e-2)
    engine, messages = Engine(1), {}
    for kind in ("kernel", "gram"):
        party = direction_party.DirectionParty("wide", problem.blocks[0], problem.regularization, engine)
        assert party.kind == "kernel"
        party.kind = kind
        party.set_metric(0.1 + np.linspace(0.0, 1.0, 30))
        gradients = np.random.default_rng(9).normal(size=(3, 30))
        sent = [party.respond(g, np.zeros(k), newton=True) for k, g in enumerate(gradients)]
        messages[kind] = [answer["message"] for answer in sent]
    np.testing.assert_allclose(messages["kernel"], messages["gram"], rtol=1e-8, atol=1e-8)
    # Single precision neither overflows nor is used for few columns.
    large = as_block(np.full((400, 80), 1e17))
    party = direction_party.DirectionParty("a", large, 1e35, Engine(1))
    assert not party._rough_is_enough(np.full(400, 0.25))
    few = direction_party.DirectionParty("a", as_block(np.ones((400, 8))), 1e35, Engine(1))
    assert not few._rough_is_enough(np.full(400, 0.25))


def test_gradients_alone_converge_too(monkeypatch):
    monkeypatch.setattr(direction_party, "choose_metric_solver", lambda *shape: ("gradient", "forced"))
    _, problem = build()
    result = solve(problem, SolverOptions(scheme="subspace", gap=1e-8, max_rounds=200))
    assert result.status is Status.CONVERGED


def test_the_end_and_the_number_of_directions():
    """With as many directions as columns the model is exact; parties then have nothing new to send."""
    blocks, problem = build(widths=(2, 3, 2))
    solver = start(problem)
    for _ in range(12):
        record = solver.round()
    assert [len(party.directions) for party in solver.parties] == [2, 3, 2]
    matrix = np.hstack(blocks)
    best = naive.optimum(
        "logistic", matrix, problem.y, problem.lam, problem.weight, problem.offset, problem.fit_intercept
    )
    assert record.objective == pytest.approx(best.objective, rel=1e-13)
    assert record.gap < 1e-10
    # Number of directions.
    assert [directions_per_party(m) for m in (1, 2, 8, 16, 64, 1000)] == [64, 64, 64, 32, 8, 8]


@pytest.mark.parametrize(
    ("shape", "density", "kind"),
    [
        *(((32561, 66), 0.0, "gram"), ((1024, 1024), 0.0, "gram"), ((38, 7129), 0.0, "kernel")),
        ((25000, 74851), 0.0, "gradient"),
        # A dense Gram matrix is made only where it is cheap.
        *(((6000, 1000), 1.0, "gradient"), ((6000, 500), 1.0, "gram")),
        *(((6000, 1000), 0.15, "gradient"), ((6000, 1000), 0.02, "gram")),
    ],
)
def test_choice_by_shape_and_density(shape, density, kind):
    name, reason = choose_metric_solver(shape, density=density)
    assert name == kind
    assert kind[:4] in reason.lower()


@pytest.mark.parametrize(("lam", "rough"), [(1e-2, True), (1e-9, False)])
def test_single_precision_where_the_regulariser_covers_its_errors(lam, rough):
    rng = np.random.default_rng(7)
    block = rng.normal(size=(400, 80))
    problem = make_problem([block], (block[:, 0] > 0).astype(float), lam=lam, fit_intercept=False)
    party = direction_party.DirectionParty("a", problem.blocks[0], problem.regularization, Engine(1))
    curvature = rng.uniform(0.1, 0.25, 400)
    assert party._rough_is_enough(curvature) is rough
    exact = block.T * curvature @ block + problem.regularization * np.eye(80)
    party.set_metric(curvature)
    assert party._can_newton()
    gradient = rng.normal(size=80)
    wanted = np.linalg.solve(exact, gradient)
    error = np.abs(party._newton(gradient) - wanted).max() / np.abs(wanted).max()
    assert error < 1e-12 or (rough and error < 1e-5)
