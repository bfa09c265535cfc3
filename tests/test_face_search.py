"""Proposals from faces promise what they bring, against the objective of all parties' weights."""

import numpy as np
import pytest
from fastadmm.coordinator.proximal.face_search import FaceSearch, Found
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, SolverOptions

PAIRS = [
    (regularizer, constraint)
    for regularizer in ("l1", "elastic_net", "group_lasso")
    for constraint in ("all", "nonnegative", "box:-0.2,0.3", "ball:0.4")
    if not (regularizer == "group_lasso" and constraint.startswith("box"))
]


def a_run(regularizer, constraint, loss, rounds, lam=1e-2):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(120, 12)) + rng.normal(size=(120, 1))
    y = X[:, :4] @ [1.0, -1.0, 0.5, 0.2] + rng.normal(size=120)
    more = {"loss": loss, "lam": lam, "regularizer": regularizer, "constraint": constraint}
    problem = make_problem([X[:, :5], X[:, 5:]], (y > 0.0) * 1.0 if loss == "logistic" else y, **more)
    solver = Solver(problem, SolverOptions(n_threads=1, scheme="proximal"))
    for _ in range(rounds):
        solver.round()
    return solver


def objective(solver, c, intercept):
    """From the parties' weights, each combined from its directions."""
    problem, shared = solver.problem, solver.coordinator.shared
    z, value = problem.offset + intercept, 0.0
    for m, party in enumerate(solver.parties):
        x = party.span.combine(c[shared.of(m)])
        z = z + party.block.product(x, solver.engine)
        value += party.penalty.value(x)
    return value + problem.loss.evaluate(z, problem.y, problem.weight, np.empty_like(z), solver.engine)


def keeps_signs(solver, search, c):
    """Whether a point of the faces is in the set, and its norms are what the faces' slopes say."""
    within = True
    for m, party in enumerate(solver.parties):
        mine = search.numbers[m]
        x = party.span.combine(c[mine])
        within &= np.allclose(party.penalty.constraint.project(x), x, atol=1e-10)
        norm = solver.coordinator.shares[m, 0] * party.penalty.regularizer.norm(x)
        within &= abs(norm - search.slope[mine] @ c[mine]) <= 1e-9 * (1.0 + norm)
    return within


@pytest.mark.representatives(8)
@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize(("regularizer", "constraint"), PAIRS)
def test_promises_are_kept(regularizer, constraint, loss, monkeypatch):
    taken: list[tuple[Found, bool]] = []
    solver = a_run(regularizer, constraint, loss, 0)
    search = FaceSearch.found

    def recorded(self):
        found = search(self)
        if found is not None:
            before = objective(solver, self.model.coefficients, self.model.intercept)
            after = objective(solver, found.point.coefficients, found.point.intercept)
            bent = regularizer == "group_lasso" or constraint.startswith("ball")
            assert self.value >= before * (1.0 - 1e-11)  # the most that it is
            within = keeps_signs(solver, self, found.point.coefficients)
            if within and not bent:
                assert self.value - after == pytest.approx(found.promised, abs=1e-11 * abs(before), rel=1e-6)
            taken.append((found, within))
        return found

    monkeypatch.setattr(FaceSearch, "found", recorded)
    gaps = [solver.round().gap for _ in range(15)]
    assert len(taken) >= 2
    assert any(within for _, within in taken) or regularizer == "group_lasso"  # norms of groups are curved
    assert min(gaps) < 1e-6
