"""Proximal Newton steps over all columns of many rows begin with samples of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.coordinator.proximal import stacked
from fastadmm.coordinator.proximal.sampled_columns import begins_with_samples
from fastadmm.problem.problem import Problem

from resumed import assert_resumed_is_the_same

N, WIDTHS = 20_000, (9, 11)


def problem(loss: str = "logistic", **more: Any) -> Problem:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, sum(WIDTHS)))
    X[:, 1:] += 0.5 * X[:, :-1]
    z = X @ (rng.normal(size=X.shape[1]) * (rng.random(X.shape[1]) < 0.5)) + 0.4
    y = {
        "logistic": (z + rng.logistic(size=N) > 0.0) * 1.0,
        "poisson": rng.poisson(np.exp(np.clip(0.4 * z, -3.0, 2.0))) * 1.0,
        "huber": z + rng.standard_t(2, size=N),
    }[loss]
    blocks = [np.ascontiguousarray(own) for own in np.split(X, [WIDTHS[0]], axis=1)]
    return make_problem(blocks, y, loss=loss, **{"regularizer": "l1", "lam": 3e-3, **more})


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    found: list[bool] = []
    exact = stacked.sampled_columns

    def watched(*given: Any) -> Any:
        found.append(True)
        return exact(*given)

    monkeypatch.setattr(stacked, "sampled_columns", watched)
    return found


CASES = [
    {},
    {"regularizer": "elastic_net", "fit_intercept": True},
    {"sample_weight": np.random.default_rng(1).uniform(0.0, 2.0, N), "offset": np.linspace(-1.0, 1.0, N)},
    {"constraint": "nonnegative", "fit_intercept": True},
]


@pytest.mark.parametrize("more", CASES)
@pytest.mark.parametrize("loss", ["logistic", "poisson", "huber"])
def test_the_minimiser_is_that_of_all_rows(
    loss: str, more: dict[str, Any], starts: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = problem(loss, **more)
    found = [solve(given, SolverOptions(gap=1e-7, n_threads=threads)) for threads in (1, 2)]
    assert starts == [True, True]
    assert found[0].certified
    assert len(found[0].history) <= 2
    for one, two in zip(found[0].weights, found[1].weights, strict=True):
        assert one.tobytes() == two.tobytes()
    monkeypatch.setattr(stacked, "begins_with_samples", lambda *_: False)
    exact = solve(given, SolverOptions(gap=1e-9))
    assert len(starts) == 2
    assert exact.certified
    assert abs(found[0].objective - exact.objective) <= 2e-7 * exact.objective


def test_a_resumed_run_is_the_same() -> None:
    assert_resumed_is_the_same(problem(), SolverOptions(gap=0.0, max_rounds=4), 1)


def test_samples_are_for_many_rows_and_few_columns() -> None:
    assert begins_with_samples(N, [20, 20], [1.0, 1.0], False)
    assert begins_with_samples(N, [3, 2], [1.0, 1.0], False)
    assert not begins_with_samples(N, [3, 9], [1.0, 0.2], False)  # both kinds
    assert not begins_with_samples(N, [70, 70], [1.0, 1.0], False)
    assert not begins_with_samples(5000, [10, 10], [1.0, 1.0], False)
    assert not begins_with_samples(N, [20, 20], [1.0, 1.0], True)  # one Hessian is enough
