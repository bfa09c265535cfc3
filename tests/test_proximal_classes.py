"""`proximal` for several classes: every class of a party is a part of its own."""

import numpy as np
import pytest
from fastadmm.conversation.by_class import pack, unpack
from fastadmm.conversation.calls import CALLS
from fastadmm.coordinator.proximal.class_newton import ClassHessian
from fastadmm.coordinator.proximal.shared_directions import SharedDirections
from fastadmm.engine.engine import Engine
from fastadmm.errors import FormatError
from fastadmm.method.class_certificate import shifted
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, SolverOptions
from sklearn.datasets import load_iris

from resumed import assert_resumed_is_the_same

N, C = 40, 3


def make(regularizer="l1", constraint=None, intercept=True):
    rng = np.random.default_rng(3)
    blocks = [rng.normal(size=(N, d)) for d in (3, 5)]
    y = np.argmax(blocks[0] + blocks[1][:, :3] + rng.gumbel(size=(N, C)), axis=1)
    penalty = {"lam": 1e-2, "regularizer": regularizer, "constraint": constraint, "fit_intercept": intercept}
    weight = rng.uniform(0.5, 2.0, size=N)
    return make_problem(blocks, y, loss="multinomial", n_classes=C, sample_weight=weight, **penalty)


def test_few_rounds():
    X, y = load_iris(return_X_y=True)
    problem = make_problem([X[:, :2], X[:, 2:]], y, loss="multinomial", regularizer="l1", lam=1e-3)
    with Engine(1) as engine:
        solver = Solver(problem, SolverOptions(max_rounds=15), engine)
        while solver.last_record is None or solver.stop_reason(solver.last_record) is None:
            record = solver.round()
    assert solver.name == "proximal"
    assert record.gap <= 1e-6
    # Directions in common span all columns in few rounds.
    problem = make("l1")
    with Engine(1) as engine:
        solver = Solver(problem, SolverOptions(scheme="proximal", gap=0.0), engine)
        for _ in range(4):
            solver.round()
        shared = solver.method.shared
        assert shared.common
        assert len(shared) == C * len(shared.messages)
    assert_resumed_is_the_same(problem, SolverOptions(scheme="proximal", gap=0.0), 4, 1)


@pytest.mark.parametrize("seed", range(3))
def test_weights_that_all_classes_can_lose_do_not_cost_a_round_each(seed):
    rng, d = np.random.default_rng(seed), 18
    X = rng.normal(size=(300, d))
    y = (X @ rng.normal(size=(d, 7)) + rng.gumbel(size=(300, 7))).argmax(axis=1)
    # Few weights are zero: of each column the median class, and which one that is takes turns.
    problem = make_problem([X[:, :9], X[:, 9:]], y, loss="multinomial", regularizer="l1", lam=2e-4)
    with Engine(1) as engine:
        solver = Solver(problem, SolverOptions(), engine)
        for _ in range(10):  # takes 5 to 7; without the common shift 14 to 16
            record = solver.round()
            if record.gap <= 1e-6:
                break
    assert record.gap <= 1e-6


def test_a_resumed_run_takes_the_same_steps():
    assert_resumed_is_the_same(make("l1", "ball:0.7"), SolverOptions(gap=0.0), 4, 3)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_hessian_is_that_of_the_softmax(intercept):
    problem, rng = make(intercept=intercept), np.random.default_rng(5)
    classes, messages, z = np.array([0, 4, 2, 0, 4, 1]) % C, rng.normal(size=(6, N)), rng.normal(size=C * N)
    lead = C * intercept
    rows = np.zeros((lead + 6, C, N))  # as C N numbers each, intercepts first
    rows[np.arange(lead), np.arange(lead)] = 1.0
    rows[lead + np.arange(6), classes] = messages
    with Engine(1) as engine:
        p = problem.loss.probabilities(z, problem.y, problem.weight, engine)
        hessian = ClassHessian(lead)
        hessian.move(messages[:4], np.arange(4), classes[:4], p, problem.weight, engine)
        hessian.grow(messages, np.arange(6), classes, problem.weight, engine)
    mean = np.einsum("cn,kcn->kn", p, rows)
    naive = np.einsum("n,cn,kcn,lcn->kl", problem.weight, p, rows, rows)
    naive -= np.einsum("n,kn,ln->kl", problem.weight, mean, mean)
    np.testing.assert_allclose(hessian.matrix, naive, rtol=0, atol=1e-11)
    c, placed, shared = rng.normal(size=6), np.zeros((6, C, N)), SharedDirections(N, Engine(1), C)
    placed[np.arange(6), classes] = messages
    shared.owner, shared.rows = classes, np.arange(6)
    shared.store.adopt(messages)
    np.testing.assert_allclose(shared.combined(c), c @ placed.reshape(6, -1), rtol=0, atol=1e-12)
    np.testing.assert_allclose(shared.products_with(z), placed.reshape(6, -1) @ z, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(shifted(np.zeros(4), np.array([1.0, 2.0])), [1.0, 1.0, 2.0, 2.0])


def test_what_several_classes_answer_is_packed_and_checked():
    kinds = {"met": "flag?", "anchor": "vector?", "basis": "matrix?", "position": "nonnegative?"}
    one = {"met": True, "anchor": np.array([1.0, 2.0]), "basis": np.zeros((2, 0))}
    packed = pack([one, None, {"position": 0.5}], kinds)
    again = unpack(packed, kinds)
    assert again[1] is None
    assert again[0] is not None
    assert again[0]["met"] is True
    np.testing.assert_array_equal(again[0]["anchor"], one["anchor"])
    assert again[0]["basis"].shape == (2, 0)
    assert again[2] == {"position": 0.5}
    for key, value, text in (
        ("values", packed["values"][:-1], "ends before"),
        ("values", np.append(packed["values"], 1.0), "goes on"),
        ("layout", packed["layout"][:, :-1], "columns"),
        ("layout", packed["layout"] + 0.5, "no sizes"),
        ("layout", np.where(packed["layout"] == 2.0, 2.0**32, packed["layout"]), "no sizes"),
        ("layout", np.where(packed["layout"] == 2.0, 2.0**30, packed["layout"]), "ends before"),
    ):
        with pytest.raises(FormatError, match=text):
            unpack({**packed, key: value}, kinds)
    with pytest.raises(FormatError, match="'message' has not a row for each class"):
        unpack(
            {**pack([{"message": np.ones(4)}], CALLS["feasible_start"].answer), "message": np.ones((2, 4))},
            CALLS["feasible_start"].answer,
        )
