"""Both directions in a round, in single precision: fewer rounds, and a certificate that knows of it."""

import numpy as np
import pytest
from fastadmm.blocks.block import DenseBlock
from fastadmm.conversation.calls import check_answer
from fastadmm.coordinator.subspace.rounded_messages import RoundedMessages
from fastadmm.coordinator.subspace.scheme import MOST_FIRST, answers_both
from fastadmm.coordinator.subspace.subspace import SOME_FIRST
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, FormatError
from fastadmm.parties.direction import DirectionParty, in_single_precision
from fastadmm.problem.problem import make_problem
from fastadmm.problem.traits import Traits
from fastadmm.solver.solver import Solver, SolverOptions, solve
from hypothesis import given, settings
from hypothesis import strategies as st

from resumed import assert_resumed_is_the_same
from run_tools import refuses

N = 60


def build(seed=0, loss="logistic", widths=(5, 8, 3), scale=1.0, **arguments):
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(N, 2))
    blocks = [
        scale * (rng.normal(size=(N, d)) + shared @ rng.normal(size=(2, d))) * 10.0 ** rng.uniform(-1, 1, d)
        for d in widths
    ]
    z = sum(block @ rng.normal(size=block.shape[1]) for block in blocks) / scale / 5
    noise = rng.normal(size=N)
    classes = loss in ("logistic", "squared_hinge", "hinge")
    y = (z + 2 * noise > 0).astype(float) if classes else z + noise
    options = {"loss": loss, "lam": 1e-3, "sample_weight": rng.uniform(0.2, 3.0, N), **arguments}
    return blocks, make_problem(blocks, y, **options)


def options(**more):
    return SolverOptions(**{"gap": 1e-8, "directions": "both", "max_rounds": 200, **more})


def directions_after_a_round(problem, **more):
    """How many each party has sent."""
    with (solver := Solver(problem, options(directions="auto", **more))).engine:
        solver.round()
    return [len(party.directions) for party in solver.parties]


def true_objective(blocks, problem, solver):
    weights = solver.party_weights()
    z = solver.intercept + sum(block @ x for block, x in zip(blocks, weights))
    with Engine(1) as engine:
        loss = problem.loss.evaluate(z, problem.y, problem.weight, np.empty(N), engine)
    penalty = sum(own.value(x) for own, x in zip(problem.party_regularizers, weights))
    return float((loss + problem.regularization * penalty) / problem.total_weight)


def check_certificates(blocks, problem, rounds, options):
    """Objective and bound of every round are of the weights that parties hold, not of messages."""
    best = solve(problem, SolverOptions(gap=1e-13, max_rounds=300, directions="one"))
    lower, upper = best.objective - best.record.gap_absolute, best.objective
    slack = 1e-13 * max(1.0, abs(upper))
    solver = Solver(problem, options)
    for _ in range(rounds):
        record = solver.round()
        exact = true_objective(blocks, problem, solver)
        assert exact <= record.objective + slack, "the objective is that of other weights"
        assert record.objective - record.gap_absolute <= upper + slack, "the bound lies above the optimum"
        assert exact - lower <= record.gap_absolute + (upper - lower) + slack
        if record.gap <= options.gap:
            break
    solver.close()


@pytest.mark.parametrize("value", [1.0, 1.9999999999, 3e-200, 7e300, 5e-324, 0.0])
def test_single_precision_keeps_24_bits_of_any_size(value):
    rng = np.random.default_rng(1)
    message = value * np.append(rng.uniform(-1, 1, 500), 1.0)
    short, scale = in_single_precision(message)
    assert short.dtype == np.float32
    assert np.log2(scale) == np.floor(np.log2(scale))
    error = np.abs(scale * short.astype(float) - message)
    assert (error <= 2.0**-24 * np.abs(message) + 2.0**-149 * scale).all()
    rounded = RoundedMessages(len(message))
    with Engine(1) as engine:
        rounded.learn(scale * short.astype(float)[np.newaxis], engine)
        assert (error <= rounded.spread(np.ones(1), engine)).all()


@pytest.mark.repeats
@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["logistic", "squared", "huber", "squared_hinge"]),
    st.booleans(),
    st.sampled_from([1e-1, 1e-3, 1e-6]),
    st.sampled_from([1e-3, 1.0, 1e3]),
    st.sampled_from(["both", "auto"]),
)
def test_objective_and_bound_hold_for_the_model_itself(seed, loss, intercept, lam, scale, asked):
    """Not only for the messages as they arrived; the bounds are compared in every round."""
    blocks, problem = build(seed, loss, lam=lam, fit_intercept=intercept, scale=scale)
    check_certificates(blocks, problem, 12, options(max_rounds=12, gap=1e-9, directions=asked))


def test_messages_are_rounded_images_and_the_errors_are_bounded(monkeypatch):
    monkeypatch.setattr("fastadmm.coordinator.subspace.subspace.directions_per_party", lambda parties: 6)
    blocks, problem = build()
    solver = Solver(problem, options(gap=1e-9))
    for _ in range(8):  # directions are forgotten from the fourth on
        solver.round()
        if solver.coordinator.rounded is None:  # restated: nothing to gain any more
            break
        coordinator = solver.coordinator
        for m, party in enumerate(solver.parties):
            mine = coordinator.owner == m
            assert mine.sum() <= 6
            error = np.abs(coordinator.messages[mine] - party.directions @ blocks[m].T)
            bound = coordinator.rounded.spread(np.ones(1), solver.engine)
            assert (error <= bound + 1e-15 * np.abs(coordinator.messages[mine]).max()).all()
            assert error.max() > 0.0
        c = coordinator.point.coefficients
        exact = sum(block @ x for block, x in zip(blocks, solver.party_weights()))
        spread = coordinator.rounded.spread(c, solver.engine)
        assert (np.abs(coordinator.point.total - exact) <= spread + 1e-14 * np.abs(exact).max()).all()
    assert solver.n_rounds > 4
    solver.close()


@pytest.fixture
def no_factor(monkeypatch):
    """Gram matrices are not factorised."""
    monkeypatch.setattr(
        "fastadmm.parties.direction.choose_metric_solver", lambda *shape: ("gradient", "forced")
    )


@pytest.mark.parametrize("factor", [True, False])
def test_a_round_contains_the_gradient_and_newtons_direction_or_its_curvature(factor, request):
    if not factor:
        request.getfixturevalue("no_factor")
    blocks, problem = build(fit_intercept=False)
    solver = Solver(problem, options())
    solver.prepare()
    gradient, curvature = solver.coordinator.primal.gradient.copy(), problem.weight / 4.0
    solver.round()
    for block, party in zip(blocks, solver.parties):
        residual = block.T @ gradient
        curved = block.T @ (curvature * (block @ residual))
        hessian = (block.T * curvature) @ block + problem.regularization * np.eye(block.shape[1])
        assert len(party.directions) == 2
        for direction in (residual, np.linalg.solve(hessian, residual) if factor else curved):
            inside = party.directions.T @ (party.directions @ direction)
            np.testing.assert_allclose(inside, direction, atol=1e-9 * np.linalg.norm(direction))
    solver.close()
    few = solve(problem, options(gap=1e-6))
    assert few.gap <= 1e-6
    assert len(few.history) < len(solve(problem, options(gap=1e-6, directions="one")).history)


@pytest.mark.parametrize(
    "more", [{"history": 4}, {"directions": "auto"}, {"directions": "auto", "gap": 1e-12}]
)
def test_resumed_to_the_bit(more):
    assert_resumed_is_the_same(build(4)[1], options(**{"gap": 0.0, **more}), rounds=4, after=5)


@pytest.mark.representatives(3)
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "squared_hinge"])
@pytest.mark.parametrize("lam", [1e-2, 1e-6])
def test_a_first_answer_of_all_directions_leaves_a_round_that_proves(loss, lam):
    _, problem = build(6, loss, lam=lam)
    all_of, both = (solve(problem, options(gap=1e-6, directions=asked)) for asked in ("auto", "both"))
    assert all_of.certified
    assert len(all_of.history) <= 2 < len(both.history)
    assert abs(all_of.objective - both.objective) <= 1e-6 * both.objective


@pytest.mark.parametrize("loss", ["hinge", "quantile", "multinomial", "logistic", "squared"])
def test_exact_messages_of_all_directions_leave_nothing_to_ask(loss):
    blocks, problem = build(6, "squared")
    y = np.digitize(problem.y, [-2.0, 2.0]) if loss == "multinomial" else problem.y
    y = (y > 0.0) * 1.0 if loss in ("hinge", "logistic") else y
    blocks[2][:, 2] = blocks[2][:, 0] - blocks[2][:, 1]  # rank 2
    solver = Solver(make_problem(blocks, y, loss=loss, lam=1e-2), options(gap=1e-10, directions="auto"))
    coordinator, exact, told, answered = solver.coordinator, [], [], solver.coordinator.exchange

    def heard():
        given, own = (coordinator.primal or coordinator.start()).gradient, coordinator.point.coefficients
        for m, party in enumerate(solver.parties):
            mine = coordinator.owner == m
            if loss == "multinomial":
                left = party.residual_classes(given.reshape(3, -1), own[:, mine])
            else:
                left = party.residual(given, own[mine])
            exact.append(np.sum(left * left))
        squared = yield from answered()
        told.extend(squared)
        return squared

    coordinator.exchange = heard
    while solver.stop_reason(record := solver.round()) is None:
        pass
    assert record.gap <= 1e-10
    assert solver.traffic.exchanges == 2 < solver.n_rounds + 1  # one for all directions, one for the proof
    np.testing.assert_allclose(told, exact, rtol=1e-6, atol=1e-18)
    assert [len(party.directions) for party in solver.parties] == [5, 8, 2]
    solver.close()


def test_only_parties_of_few_columns_are_asked_for_all_and_no_direction_is_sent_twice():
    blocks, _ = build(9, widths=(MOST_FIRST + 1, 7, 5))
    blocks[2][:, 4] = blocks[2][:, 0] - blocks[2][:, 1]  # rank 4
    y = (blocks[1][:, 0] > 0).astype(float)
    solver = Solver(make_problem(blocks, y, lam=1e-3), options(directions="auto"))
    solver.round()
    assert [len(party.directions) for party in solver.parties] == [SOME_FIRST, 7, 4]
    assert solver.coordinator.n_columns == MOST_FIRST + 1 + 7 + 4
    solver.round()
    assert [len(party.directions) for party in solver.parties][1:] == [7, 4]
    solver.close()
    narrow = make_problem(blocks, y, lam=1e-3)
    assert max(directions_after_a_round(narrow, history=3)) <= 3  # no more than is kept


def wide(turned=False):
    rng = np.random.default_rng(11)
    blocks = [rng.normal(size=(400, d)) * np.geomspace(1.0, 0.02, d) for d in (60, 90, 3)]
    blocks = [b @ np.linalg.qr(rng.normal(size=(b.shape[1],) * 2))[0] for b in blocks]
    y = (sum(b.sum(axis=1) for b in blocks) + rng.logistic(size=400) > 0) * 1.0
    turns = [np.linalg.qr(rng.normal(size=(b.shape[1],) * 2))[0] for b in blocks]
    return make_problem([b @ q if turned else b for b, q in zip(blocks, turns)], y, lam=1e-5)


def test_parties_of_many_columns_begin_with_leading_eigenvectors(request):
    auto, both = (len(solve(wide(), options(gap=1e-6, directions=d)).history) for d in ("auto", "both"))
    assert auto < 0.7 * both
    problem, turned = wide(), wide(turned=True)
    gradient = (problem.y - 0.5)[np.newaxis]
    asked = {"gradient": gradient, "coefficients": np.empty(0), "most": 20, "exact": True}
    with Engine(1) as engine:
        parties = [DirectionParty("p", p.blocks[1], 0.1, engine) for p in (problem, turned)]
        for party in parties:
            party.set_metric(problem.weight / 4.0)
        first, second = (party.answer("respond_first", asked)["messages"] for party in parties)
    np.testing.assert_allclose(first, second, atol=1e-4)  # Gram matrices may be rounded
    vectors = np.linalg.eigh(problem.blocks[1].matrix @ problem.blocks[1].matrix.T)[1]
    left = vectors[:, -5:] - first.T @ np.linalg.lstsq(first.T, vectors[:, -5:], rcond=None)[0]
    assert np.linalg.norm(left, axis=0).max() < 0.05  # the leading ones are found
    assert directions_after_a_round(problem) == [SOME_FIRST, SOME_FIRST, 3]
    request.getfixturevalue("no_factor")
    assert directions_after_a_round(wide()) == [2, 2, 3]  # without a factor as with both


@pytest.mark.parametrize(("scale", "before"), [(0.0, 0), (1.0, 0), (0.0, 1000)])
def test_a_gradient_that_says_nothing_takes_no_direction_s_place(scale, before):
    rng = np.random.default_rng(4)
    rare = np.zeros((N, 6))
    rare[[3, 9], [0, 1]] = 1.0  # in a single row each
    rare[[20, 30], 2] = 1.0  # in two
    rare[:, 3:5] = rng.normal(size=(N, 2))
    rare = np.pad(rare, ((before, 0), (0, 0)))  # the first rows show nothing
    gradient = scale * (np.arange(before + N) == 3)
    with Engine(1) as engine:
        party = DirectionParty("p", DenseBlock(rare), 0.1, engine)
        asked = {"gradient": gradient[np.newaxis], "coefficients": np.empty(0), "most": 6, "exact": True}
        answer = party.answer("respond_first", asked)
    assert len(answer["messages"]) == 5  # the rank: a column is empty
    np.testing.assert_allclose(answer["messages"].T @ answer["messages"], rare @ rare.T, atol=1e-12)


def test_a_first_answer_is_about_inner_products_of_rows_and_refused_beyond_what_was_asked():
    blocks, problem = build(2)
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(8, 8)))[0]
    asked = {
        "gradient": (problem.y - 0.5)[np.newaxis],
        "coefficients": np.empty(0),
        "most": 8,
        "exact": False,
    }
    with Engine(1) as engine:
        parties = [DirectionParty("p", DenseBlock(b), 0.1, engine) for b in (blocks[1], blocks[1] @ turn)]
        first, second = (party.answer("respond_first", asked) for party in parties)
    rows = [answer["scales"][:, None] * answer["short_messages"] for answer in (first, second)]
    np.testing.assert_allclose(*rows, atol=2e-6 * np.abs(rows[0]).max())
    np.testing.assert_allclose(rows[0].T @ rows[0], blocks[1] @ blocks[1].T, atol=1e-5 * 100)
    check_answer(("respond_first", asked), first, N, "here")
    with pytest.raises(FormatError, match="8 messages of at most 7"):
        check_answer(("respond_first", {**asked, "most": 7}), first, N, "here")
    with pytest.raises(FormatError, match="instead of messages"):
        check_answer(("respond_first", {**asked, "exact": True}), first, N, "here")


def test_a_run_goes_on_as_it_began():
    _, problem = build(5)
    one = Solver(problem, options(directions="one"))
    for _ in range(3):
        one.round()
    resumed = Solver(problem, options())
    resumed.restore(one.export(), one.export_parties())
    assert resumed.coordinator.rounded is None
    assert resumed.round().objective == one.round().objective
    for solver in (one, resumed):
        solver.close()


def nearly_equal():
    """Parties that nearly hold the same: large weights of opposite signs, whose messages nearly cancel."""
    rng = np.random.default_rng(12)
    base = rng.normal(size=(300, 6))
    y = (base @ rng.normal(size=6) + rng.logistic(size=300) > 0) * 1.0
    return make_problem([base + 1e-3 * rng.normal(size=base.shape) for _ in range(4)], y, lam=1e-8)


def test_restatements_in_double_precision_change_no_bit_of_a_resumed_run():
    problem = nearly_equal()
    solver = Solver(problem, options(gap=1e-11, max_rounds=60))
    kinds = []
    with solver.engine:
        for _ in range(60):
            record = solver.round()
            kinds.append(solver.coordinator.rounded is not None)
            if solver.stop_reason(record) is not None:
                break
    assert kinds[0]
    assert not kinds[-1]
    assert kinds == sorted(kinds, reverse=True)
    assert len(kinds) < 60
    at = kinds.index(False)
    assert at < len(kinds) - 1 or record.gap <= 1e-11
    # A run is resumed on either side of a restatement.
    problem = nearly_equal()
    straight = Solver(problem, options(gap=0.0))
    objectives, states = [], []
    for _ in range(16):
        states.append((straight.export(), straight.export_parties()) if straight.n_rounds else None)
        objectives.append(straight.round().objective)
    assert straight.coordinator.rounded is None
    for begun in range(1, 16):
        second = Solver(problem, options(gap=0.0))
        second.restore(*states[begun])
        assert second.round().objective == objectives[begun]
        second.close()
    straight.close()


@pytest.mark.parametrize(
    ("asked", "suited", "gap", "both"),
    [
        *(("auto", True, 1e-6, True), ("auto", False, 1e-6, False), ("auto", True, 1e-12, False)),
        *(("one", True, 1e-6, False), ("both", True, 1e-6, True), ("both", True, 1e-12, True)),
    ],
)
def test_choice(asked, suited, gap, both):
    assert answers_both(Traits(smooth=suited), SolverOptions(directions=asked, gap=gap)) == both


def test_refused_where_nothing_is_known_of_rounding():
    refuses(ConfigError, "directions: unknown choice 'two'", SolverOptions, directions="two")
    refuses(ConfigError, "scheme 'sharing' has none", SolverOptions, scheme="sharing", directions="both")
    rng = np.random.default_rng(8)
    bounded = make_problem([rng.normal(size=(N, 2))], rng.normal(size=N), loss="tukey", lam=0.1)
    refuses(ConfigError, "directions: 'both'", Solver, bounded, SolverOptions(directions="both"))
    kinks = make_problem([rng.normal(size=(N, 2))], rng.normal(size=N), loss="quantile", lam=0.1)
    refuses(ConfigError, "directions: 'both'", Solver, kinks, SolverOptions(directions="both"))


@pytest.mark.parametrize("directions", ["one", "both"])
@pytest.mark.parametrize("parties", [1, 2, 3])
def test_rounds_go_on_below_what_single_precision_hides(parties, directions):
    """With a tiny lambda and a large column bounds prove nothing for long: gains say when to restate."""
    for seed in range(6):
        rng = np.random.default_rng([parties, seed])
        x = rng.normal(size=(N, 4))
        x[:, 0] *= 10.0 ** rng.uniform(4.0, 7.5)
        y = x @ rng.normal(size=4) + rng.normal(size=N)
        centred = x - x.mean(axis=0)
        best = np.linalg.lstsq(centred / (size := centred.std(axis=0)), y - y.mean())[0] / size
        least = 0.5 * np.mean((y - y.mean() - centred @ best) ** 2)
        blocks = np.array_split(x, parties, axis=1)
        problem = make_problem(blocks, y, loss="squared", lam=1e-12)
        solver = Solver(problem, SolverOptions(scheme="subspace", directions=directions))
        for _ in range(15):
            solver.round()
        found = true_objective(blocks, problem, solver)
        assert found <= least * (1.0 + 1e-3) + 1e-12 * float(best @ best), (seed, found, least)
