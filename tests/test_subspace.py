"""Subspace Newton sharing: directions, messages and the minimum over their span, by explicit algebra."""

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.conversation.answering import Unanswerable
from fastadmm.coordinator.metric_limits import directions_per_party
from fastadmm.coordinator.subspace.subspace import SubspaceMethod
from fastadmm.engine.engine import Engine
from fastadmm.parties import direction as direction_party
from fastadmm.parties.direction import DirectionParty, choose_metric_solver
from fastadmm.parties.reflection import reflections
from fastadmm.problem.problem import make_problem
from fastadmm.solver.history import Status
from fastadmm.solver.solver import Solver, SolverOptions, solve
from hypothesis import given, settings
from hypothesis import strategies as st

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

    def refusing(shape, *options, **more):
        if isinstance(shape, tuple) and len(shape) == 2 and shape[1] == N and shape[0] > 9:
            raise MemoryError
        return empty(shape, *options, **more)

    records = [free.round() for _ in range(3)]
    monkeypatch.setattr("fastadmm.coordinator.subspace.subspace.np.empty", refusing)
    assert [bound.round().objective for _ in range(3)] == [record.objective for record in records]
    with pytest.raises(MemoryError):
        bound.round()


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
    assert [directions_per_party(m) for m in (1, 2, 8, 16, 64, 1000)] == [64, 64, 64, 32, 8, 8]


@pytest.mark.parametrize(
    ("shape", "density", "kind"),
    [
        *(((32561, 66), 0.0, "gram"), ((1024, 1024), 0.0, "gram"), ((38, 7129), 0.0, "kernel")),
        ((25000, 74851), 0.0, "gradient"),
        # A dense Gram matrix is made only where it is cheap.
        *(((6000, 641), 1.0, "gradient"), ((6000, 640), 1.0, "gram"), ((6000, 1000), 0.15, "gram")),
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


@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.data())
@settings(max_examples=50, deadline=None)
def test_several_directions_are_forgotten_by_reflections_in_a_row(seed, k, data):
    rng, n = np.random.default_rng(seed), data.draw(st.integers(1, k - 1))
    basis = np.linalg.qr(rng.normal(size=(12, k)))[0].T
    gone = np.linalg.qr(rng.normal(size=(k, n)))[0].T
    if data.draw(st.booleans()):  # one that is where it is to be, as far as anyone can see
        gone = np.eye(k)[rng.permutation(k)[:n]]
    turned, dropped = basis.copy(), []
    for unit, row in reflections(gone):
        turned -= 2.0 * np.outer(unit, unit @ turned)
        dropped.append(row)
    left = np.delete(turned, dropped, axis=0)
    np.testing.assert_allclose(left @ left.T, np.eye(k - n), atol=1e-13)
    np.testing.assert_allclose(left @ (gone @ basis).T, 0.0, atol=1e-14)


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
