"""The page on the paper's experiments: made from measurements, true in words, with the paper's equations."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from scripts import script_of

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def script():
    return script_of("bench/paper_a.py")


@pytest.fixture(scope="module")
def measured():
    return json.loads((ROOT / "bench" / "paper_a.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def case(script):
    rng = np.random.default_rng(3)
    X, X_test = rng.normal(size=(60, 7)), rng.normal(size=(40, 7))
    truth = rng.normal(size=7)
    y, y_test = ((part @ truth + rng.logistic(size=len(part)) > 0) * 1.0 for part in (X, X_test))
    return script.Case("small", "small", X, y, X_test, y_test, [0, 3, 5, 7], [0, 4, 7], 1e-2, 6, (0.1,))


# --- the page
def test_cases_are_the_papers(measured):
    assert {"a9a", "gisette_like", "mnist"} <= set(measured["cases"])
    assert measured["cases"]["a9a"]["rows"] == [32561, 16281]
    assert measured["cases"]["a9a"]["widths"] == [66, 57]
    assert measured["cases"]["gisette_like"]["rows"] == [6000, 1000]
    assert measured["cases"]["gisette_like"]["widths"] == [2000, 2000, 1000]
    for case in measured["cases"].values():
        assert sorted(tried["parties"] for tried in case["penalties"]) == [2, 3]


def test_what_the_page_says_in_words_is_true(script, measured):
    cases = measured["cases"]
    for case in cases.values():
        optimum = case["optimum"]["objective"]
        reached = {
            name: script.epochs_to(curve["objective"], optimum * 1.0001)
            for name, curve in case["curves"].items()
        }
        ours = reached.pop("subspace")
        assert all(other is None or ours < other for other in reached.values())
        assert case["curves"]["sharing"]["objective"][-1] < 1.05 * optimum
        # no weights before the second epoch
        assert case["curves"]["admm"]["objective"][1] == pytest.approx(math.log(2.0), abs=1e-5)
        # the penalty is the best of the grid
        mine = next(t for t in case["penalties"] if t["parties"] == len(case["widths"]))
        best = next(run for run in mine["runs"] if run["rho"] == case["rho"])
        assert best["at_epochs"] == min(run["at_epochs"] for run in mine["runs"])
        assert case["step"] in measured["steps"]
        # from harmless to ruin
        alone = case["baselines"]["party_1"]["default"]
        assert script.noise_kept(case)
        assert np.mean(case["noise"][-1]["last"]) > alone
        # Theorem 3 leaves no model: worse than no model at all
        assert min(case["calibrated"]["last"]) > math.log(2.0)
        assert case["baselines"]["pooled"]["same"] < case["baselines"]["party_1"]["same"]
        assert case["calibrated"]["sigma"][0] > case["noise"][-1]["sigma"]
        # Frank-Wolfe is behind; late predictions cost something, and more the later they are
        excess = {k: c["objective"][-1] / optimum - 1 for k, c in script.all_curves(case).items()}
        assert excess["frank-wolfe"] > excess["admm"]  # in the end; on MNIST not always on the way
        assert bool(script.behind(case["curves"]["admm"], case["frank_wolfe"])) == (case is cases["mnist"])
        assert excess["sgd"] < excess["late-10"] < excess["late-100"]
    behind = {k: c["frank_wolfe"]["objective"][-1] / c["optimum"]["objective"] for k, c in cases.items()}
    assert min(behind, key=behind.get) == "a9a"
    a9a, like = cases["a9a"], cases["gisette_like"]
    for case, better in ((a9a, True), (like, False)):
        for plain, shaped in zip(case["noise"][1:], case["shaped"][1:], strict=True):
            assert (np.mean(shaped["last"]) < np.mean(plain["last"])) is np.bool_(better)


def test_note_on_mnist_is_true(script, measured):
    mnist = measured["cases"]["mnist"]
    assert mnist["rho"] == min(script.PENALTIES)
    assert max(mnist["curves"]["admm"]["objective"]) > 2.0 * math.log(2.0)


def test_some_penalty_diverges_with_two_and_with_three_parties(measured):
    for parties in (2, 3):
        assert any(
            run["diverged"] is not None or run["last"] > 1.0
            for case in measured["cases"].values()
            for tried in case["penalties"]
            if tried["parties"] == parties
            for run in tried["runs"]
        )


def test_other_noise_and_baselines_are_measured_on_the_same_problem(script, measured):
    for case in measured["cases"].values():
        assert [row["staleness"] for row in case["asynchronous"]] == list(script.STALENESS)
        curves = script.all_curves(case)
        assert set(curves) == set(script.LINES)
        assert {len(c["objective"]) for name, c in curves.items() if name != "subspace"} == {
            case["epochs"] + 1
        }
        optimum = case["optimum"]["objective"]
        assert all(min(curve["objective"]) >= optimum * (1 - 2e-6) for curve in curves.values())
        # the shaped noise is calibrated to the plain one's size, so it grows with it
        sizes = [
            row["sigma"][0] / plain["sigma"] for row, plain in zip(case["shaped"], case["noise"], strict=True)
        ]
        assert max(sizes) == pytest.approx(min(sizes), rel=1e-4)
    a9a = measured["cases"]["a9a"]
    assert (a9a["rank"], a9a["widths"]) == ([56, 53], [66, 57])


# --- what is run
def paper_epochs(case, bounds, rho, sigma, seed, epochs, shapes=None):
    """Equations 6 to 8 with noise on the parameters, by a general optimiser; the objective of each epoch."""
    blocks = [case.X[:, a:b] for a, b in itertools.pairwise(bounds)]
    n, lam = len(case.y), case.lam * len(case.y)
    generators = [np.random.default_rng([seed, m]) for m in range(len(blocks))]
    x = [np.zeros(block.shape[1]) for block in blocks]
    z, dual = np.zeros(n), np.zeros(n)
    found = []
    for _ in range(epochs):
        messages = [block @ v for block, v in zip(blocks, x, strict=True)]
        new = []
        for m, block in enumerate(blocks):
            others = sum(messages) - messages[m] - z

            def lagrangian(v, block=block, others=others, dual=dual):
                gap = others + block @ v
                value = 0.5 * lam * (v @ v) + dual @ (block @ v) + 0.5 * rho * (gap @ gap)
                return value, lam * v + block.T @ (dual + rho * gap)

            new.append(minimize(lagrangian, x[m], jac=True, tol=1e-13).x)
        for m, (v, g) in enumerate(zip(new, generators, strict=True)):
            x[m] = v + sigma * (
                shapes[m] @ g.standard_normal(shapes[m].shape[1]) if shapes else g.standard_normal(len(v))
            )
        total = sum(block @ v for block, v in zip(blocks, x, strict=True))

        def central(v, total=total, dual=dual):
            value = (
                np.sum(np.logaddexp(0.0, v) - case.y * v) - dual @ v + 0.5 * rho * np.sum((total - v) ** 2)
            )
            return value, 1.0 / (1.0 + np.exp(-v)) - case.y - dual - rho * (total - v)

        z = minimize(central, z, jac=True, tol=1e-13).x
        dual = dual + rho * (total - z)
        loss = np.mean(np.logaddexp(0.0, total) - case.y * total)
        found.append(loss + 0.5 * case.lam * sum(v @ v for v in x))
    return found


@pytest.mark.parametrize(("sigma", "shaped"), [(0.0, False), (0.1, False), (1.0, True)])
@pytest.mark.parametrize("bounds", [[0, 4, 7], [0, 3, 5, 7]])
def test_curves_are_the_papers_equations(script, case, bounds, sigma, shaped):
    shop = script.Workshop(case, bounds)
    shapes = [script.inverse_root(block) for block in shop.blocks] if shaped else None
    got = shop.run_paper(case.epochs, 0.5, sigma, seed=5, shapes=shapes)["objective"]
    assert got[0] == math.log(2.0)
    expected = paper_epochs(case, bounds, 0.5, sigma, 5, case.epochs, shapes)
    np.testing.assert_allclose(got[1:], expected, rtol=1e-5)
    # the second run takes over the factorisations
    assert shop.run_paper(case.epochs, 0.5, sigma, seed=5, shapes=shapes)["objective"] == got
