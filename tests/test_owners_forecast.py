"""The forecast: the recursion against simulations and closed forms, bounds, coalitions, pilots."""

import math
from dataclasses import replace

import numpy as np
import pytest
from fastadmm.data_tools.owners import convert_owners
from fastadmm.owners.forecast import (
    Forecast,
    Member,
    Pilot,
    assumed_pilot,
    corrected_bound,
    fit_pilot,
    linear_response,
)
from fastadmm.owners.mechanism import LOSSES, make_bound
from fastadmm.settings.owners import OwnerSettings
from fastadmm.store.owner_file import open_owners

from owners_data import write_owners
from run_tools import refused, run
from scripts import script_of

repetitions = script_of("bench/owner_repetitions.py")


def population(seed=0, n=4000, p=6, lam=0.01):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) @ np.diag(np.geomspace(1.0, 0.3, p))
    y = X @ rng.normal(size=p) + rng.normal(size=n)
    return repetitions.Population(X, y, LOSSES["squared"], lam)


def pilot_of(people):
    n = len(people.y)
    h, Q = np.linalg.eigh(people.X.T @ people.X / n + people.lam * np.eye(people.X.shape[1]))
    theta = np.linalg.solve(
        people.X.T @ people.X / n + people.lam * np.eye(len(h)), people.X.T @ people.y / n
    )
    optimum = float(people.objective(theta[:, None])[0])
    residual = float(np.mean((people.X @ theta - people.y) ** 2))
    return Pilot(h, -(Q.T @ theta), residual, "all rows"), optimum


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("rounds", [10, 40])
def test_forecast_is_the_measured_mean_gap(mechanism, rounds):
    """Within 15 % over epsilon from 0.3 to 10: the requirement, on 400 repetitions."""
    people = population()
    pilot, optimum = pilot_of(people)
    sizes = [1000, 3000]
    for epsilon in (0.3, 1.0, 3.0, 10.0):
        members = tuple(Member(f"o{k}", n, epsilon * (1 + k)) for k, n in enumerate(sizes))
        settings = OwnerSettings("", mechanism=mechanism, delta=1e-6, rounds=rounds, method="constant")
        bound = make_bound(replace(settings, bound="clip:4"), people.loss, len(pilot.h))
        forecast = Forecast(members, pilot, settings, 1.0 / float(pilot.h.max()), bound)
        variances = [forecast.answer_variance(m, rounds) for m in members]
        scales = [math.sqrt(v / 2 if mechanism == "laplace" else v) for v in variances]
        models, _ = repetitions.repeat_insecurely(
            people, method="constant", step=forecast.step, rounds=rounds, theta_max=1e9, mechanism=mechanism,
            scales=scales, weights=[0.25, 0.75], repetitions=400, seed=int(10 * epsilon),
        )  # fmt: skip
        measured = float(people.objective(models).mean()) - optimum
        assert forecast.gap().training == pytest.approx(measured, rel=0.15)
        assert measured <= 1.1 * forecast.bound()


def test_bounds_and_averages_of_forecasts():
    people = population()
    pilot, optimum = pilot_of(people)
    for method, step in (("algorithm2", 0.5), ("strongly_convex", 2.0), ("algorithm1", 300.0)):
        response = linear_response(method, step, pilot.h, pilot.e, 30)
        _, history = repetitions.repeat_insecurely(
            people, method=method, step=step, rounds=30, theta_max=1e9, mechanism="gaussian", scales=[0.3],
            weights=[1.0], repetitions=3000, seed=1, record=True,
        )  # fmt: skip
        assert len(history) == len(response[0])
        for k in (0, 4, len(history) - 1):
            measured = float(people.objective(history[k]).mean()) - optimum
            assert response[0][k] + 0.09 * response[1][k] == pytest.approx(measured, rel=0.1, abs=1e-9)
    # One coordinate, no noise: the paper promises a gap that goes to 0 with T; its own steps do not move.
    h, e = np.array([1.0]), np.array([1.0])
    for T, least in ((10, 0.94), (100, 0.998), (1000, 0.99998)):
        gap = linear_response("algorithm1", 1.0, h, e, T)[0].min()
        assert gap / 0.5 > least
        assert corrected_bound(1.0, 1.0, 0.5, T, 0.5, 0.0) >= linear_response("constant", 0.5, h, e, T)[0][-1]


def members_of(*triples):
    return tuple(Member(name, n, epsilon) for name, n, epsilon in triples)


EXAMPLE = members_of(("a", 20_000, 1.0), ("b", 20_000, 1.0), ("tiny", 500, 0.05))


def example(members=EXAMPLE, step=1.0, **options):
    pilot = assumed_pilot(0.2, 1.0, 10, 1.0)
    settings = OwnerSettings("", **{"method": "constant", "bound": "clip:1", **options})
    return Forecast(members, pilot, settings, step, make_bound(settings, LOSSES["squared"], 10))


def test_best_rounds_and_owners_that_are_left_out():
    forecast = example()
    best, gap = forecast.best_coalition()
    assert [m.name for m in best] == ["a", "b"]
    assert forecast.marginal_value("tiny") < 0 < forecast.marginal_value("a")
    assert gap.total < forecast.gap().total
    assert forecast.warnings() == []
    assert "does not move" in " ".join(example(method="algorithm1").warnings())
    # weights by budget never punish a joiner
    fair = example(weights="budget")
    assert fair.noise_variance() < fair.noise_variance(EXAMPLE[:2])
    assert fair.marginal_value("tiny") > 0
    assert [m.name for m in fair.best_coalition()[0]] == ["a", "b", "tiny"]
    # Best rounds is the best.
    forecast = example(EXAMPLE[:2], step=0.3)
    best = forecast.best_rounds(most=400)
    every = min(forecast.gap(rounds=T).total for T in range(1, 401))
    assert best.total <= every * 1.01
    assert forecast.best_rounds(most=66).rounds == 59  # of 60, in steps of 8 % up to the end
    # Many owners are dropped one by one.
    triples = [(f"good{k}", 5000, 1.0) for k in range(10)] + [(f"bad{k}", 50, 0.01) for k in range(5)]
    best, _ = example(members_of(*triples)).best_coalition()
    assert {m.name for m in best} == {f"good{k}" for k in range(10)}


def test_the_pilot_of_small_columns_is_the_least_squares_fit(tmp_path):
    X, theta = 1e-4 * np.random.default_rng(1).normal(size=(90, 3)), [1e4, 2e4, 3e4]
    np.savez(tmp_path / "p.npz", X=X, y=X @ theta)
    data = convert_owners([tmp_path / "p.npz"], tmp_path / "p", sizes=[40, 50])
    bound = make_bound(OwnerSettings("", bound="clip:1"), LOSSES["squared"], 3)
    pilot = fit_pilot(data, LOSSES["squared"], bound, 0.0, False)
    assert np.linalg.norm(pilot.e) == pytest.approx(np.linalg.norm(theta))


def test_logistic_pilot_is_the_hessian_at_the_optimum(tmp_path):
    path, parts = write_owners(tmp_path / "o", sizes=(800,))
    bound = make_bound(OwnerSettings("", bound="clip:1"), LOSSES["logistic"], 4)
    pilot = fit_pilot(open_owners(path), LOSSES["logistic"], bound, 0.05, True)
    from sklearn.linear_model import LogisticRegression

    X = np.column_stack([parts[0][0], np.ones(800)])
    theta = (
        LogisticRegression(C=1 / (800 * 0.05), fit_intercept=False, tol=1e-10).fit(X, parts[0][1]).coef_[0]
    )
    weight = 1 / (2 + 2 * np.cosh(X @ theta))
    h = np.linalg.eigvalsh((X.T * weight) @ X / 800 + 0.05 * np.eye(5))
    assert pilot.h == pytest.approx(h, rel=1e-4)
    assert not pilot.quadratic
    assert np.linalg.norm(pilot.e) == pytest.approx(np.linalg.norm(theta), rel=1e-4)


def test_the_owners_rows_among_others_and_stored_otherwise_are_no_public_pilot(tmp_path, capsys):
    rng = np.random.default_rng(3)
    X, more = rng.normal(size=(120, 4)), rng.normal(size=(150, 4))
    for name, rows, storage in (
        ("o", X, "dense"),
        ("pilot", np.vstack([more, X]), "csr"),
        ("fine", more, "csr"),
    ):
        np.savez(tmp_path / f"{name}.npz", X=rows, y=rows.sum(axis=1))
        half = len(rows) // 2
        convert_owners(
            [tmp_path / f"{name}.npz"], tmp_path / name, sizes=[half, len(rows) - half], storage=storage
        )
    bound = ["--bound", "features:4", "--set", "target_bound=4"]
    arguments = ["forecast", tmp_path / "o", "--epsilon", "1", *bound]
    error = refused(capsys, 5, *arguments, "--pilot", tmp_path / "pilot")
    assert (
        "44.4% of its rows have the features of an owner's row, where at most 10.0% may, and a pilot" in error
    )
    assert run(*arguments, "--pilot", tmp_path / "fine") == 0
