"""Searches with the Hessian over all messages end where those on a face's or a hull's own messages end."""

import numpy as np
import pytest
from fastadmm.coordinator.proximal.chord_newton import Passes, SharedFace, minimise_on_shared_face
from fastadmm.coordinator.proximal.parts import HullPoint
from fastadmm.coordinator.proximal.shared_directions import SharedDirections
from fastadmm.coordinator.proximal.shared_hull import minimise_over_shared_hull
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import make_problem
from scipy.optimize import minimize

N, K = 80, 6


def case(loss, intercept):
    rng = np.random.default_rng(3)
    V = rng.normal(size=(K, N))
    y = rng.normal(size=N) if loss in ("squared", "huber") else (rng.random(N) < 0.4) * 1.0
    problem = make_problem([V.T], y, loss=loss, lam=1e-2, fit_intercept=intercept, offset=0.1 * V[0])
    shared = SharedDirections(N, Engine(1), 1, intercept)
    for k, message in enumerate(V[: K - 1]):
        shared.add_to([0], message, np.eye(k + 1)[k])
    c = rng.normal(size=K - 1)
    passes = Passes(problem, shared, Engine(1))
    passes.step(passes.at(HullPoint(c, 0.0, shared.combined(c))), np.ones(K - 1), 0.1)
    shared.add_to([0], V[-1], np.eye(K)[-1])  # after the Hessian was made
    known = rng.normal(size=K)
    return problem, shared, HullPoint(known, 0.3 * intercept, shared.combined(known)), rng


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["squared", "logistic", "huber"])
def test_faces(loss, intercept):
    problem, shared, known, rng = case(loss, intercept)
    engine = Engine(1)
    basis, _ = np.linalg.qr(rng.normal(size=(K, 3)))
    root, linear, anchor = rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=K)
    face = SharedFace(anchor, basis, linear, root @ root.T)
    passes = Passes(problem, shared, engine)
    near = known.coefficients, passes.at(known)
    w, place = minimise_on_shared_face(passes, face, np.ones(3), near, 1e-13, 1e4)

    def objective(v):
        c, g = anchor + basis @ v[:3], np.empty(N)
        value = problem.loss.evaluate(problem.offset + c @ shared.messages + v[3:].sum(), *rest, g, engine)
        bent = face.square @ v[:3]
        slope = basis.T @ (shared.messages @ g) + linear + bent
        return value + float((linear + 0.5 * bent) @ v[:3]), np.append(slope, [g.sum()] * intercept)

    rest = problem.y, problem.weight
    best = minimize(objective, np.zeros(3 + intercept), jac=True, method="BFGS", options={"gtol": 1e-9}).x
    np.testing.assert_allclose(w, best[:3], atol=1e-6)
    assert place.intercept == pytest.approx(best[3:].sum(), abs=1e-6)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["squared", "logistic", "huber"])
def test_hulls(loss, intercept):
    problem, shared, known, rng = case(loss, intercept)
    engine, points = Engine(1), rng.normal(size=(5, K))
    owner, linear, square = np.zeros(5, dtype=np.int64), 3.0 * rng.random(5), np.eye(5)
    first = np.eye(5)[0]
    messages, lead = points @ shared.messages, int(intercept)

    def objective(v):
        c, g = v[:5], np.empty(N)
        z = problem.offset + c @ messages + v[5:].sum()
        value = problem.loss.evaluate(z, problem.y, problem.weight, g, engine)
        slope = np.append(messages @ g + linear + square @ c, np.full(lead, g.sum()))
        return value + float(linear @ c) + 0.5 * float(c @ square @ c), slope

    best = minimize(
        objective, np.append(first, np.zeros(lead)), jac=True, method="SLSQP",
        bounds=[(0.0, 1.0)] * 5 + [(None, None)] * lead,
        constraints={"type": "eq", "fun": lambda v: v[:5].sum() - 1.0},
        options={"ftol": 1e-15, "maxiter": 500},
    )  # fmt: skip
    least = best.fun
    passes = Passes(problem, shared, engine)
    given = passes, points, linear, square, owner, first, known, 0.0, 1e-13
    found, value, _ = minimise_over_shared_hull(
        *given, least
    )  # nothing is gained on that: it goes to the end
    np.testing.assert_allclose(found.coefficients, best.x[:5] @ points, atol=1e-5)
    np.testing.assert_allclose(found.total, found.coefficients @ shared.messages, atol=1e-12)
    assert value == pytest.approx(least, rel=1e-9)
    gained = 10.0 * abs(least)
    early, more, _ = minimise_over_shared_hull(*given, least + gained)
    assert least * (1.0 - 1e-9) <= more <= least + 0.1 * gained
    np.testing.assert_allclose(early.total, early.coefficients @ shared.messages, atol=1e-12)


def test_directions_that_are_combined_keep_their_hessian():
    problem, shared, known, rng = case("squared", True)
    passes = Passes(problem, shared, Engine(1))
    passes.step(passes.at(known), np.ones(K), 0.0)
    rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    shared.recombine(0, rotation[:2])
    kept = shared.hessian.matrix
    rows = np.vstack([np.ones(N), shared.messages])
    np.testing.assert_allclose(kept, (rows * problem.weight) @ rows.T, atol=1e-10)
