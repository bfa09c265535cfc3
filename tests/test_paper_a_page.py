"""The page on the paper's experiments: made from measurements, true in words, with the paper's equations."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("bench_paper_a", ROOT / "bench" / "paper_a.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def test_page_equals_what_the_script_makes_of_the_measurements(script, measured):
    page = (ROOT / "docs" / "paper-a.md").read_text(encoding="utf-8")
    assert script.replace_block(page, script.block(measured)) == page, "run bench/paper_a.py --redraw"


@pytest.mark.repeats
def test_figures_are_what_the_script_draws(script, measured, tmp_path, monkeypatch):
    """The same file twice, from the measurements alone; the drawn text is paths, so fonts do not matter."""
    pytest.importorskip("matplotlib")
    for name in ("first", "second"):
        monkeypatch.setattr(script, "PICTURES", tmp_path / name)
        script.draw(measured)
    names = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert names == sorted([*(script.picture(key) for key in measured["cases"]), "paper-a-bars.svg"])
    for name in names:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
        assert (ROOT / "docs" / "img" / name).is_file()


def test_cases_are_the_papers(measured):
    assert {"a9a", "gisette_like", "mnist"} <= set(measured["cases"])
    assert measured["cases"]["a9a"]["rows"] == [32561, 16281]
    assert measured["cases"]["a9a"]["widths"] == [66, 57]
    assert measured["cases"]["gisette_like"]["rows"] == [6000, 1000]
    assert measured["cases"]["gisette_like"]["widths"] == [2000, 2000, 1000]
    for case in measured["cases"].values():
        assert sorted(tried["parties"] for tried in case["penalties"]) == [2, 3]


def test_what_the_page_says_in_words_is_true(script, measured):
    for case in measured["cases"].values():
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
        assert excess["frank-wolfe"] > excess["admm"]
        assert excess["sgd"] < excess["late-10"] < excess["late-100"]
    cases = measured["cases"]
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


def test_agreement_is_said_where_it_is_measured(script, measured):
    rows = script.claims(measured)
    assert rows[-1][2] == "**no**"
    assert "ε = ∞" in rows[-1][1]
    # what depends on the threshold of 0.08, once more from the curves
    for case in list(measured["cases"].values())[1:]:
        row = next(r for r in rows if "0.08" in r[0] and r[1].startswith(case["title"]))
        below = [k for k, v in enumerate(case["curves"]["admm"]["test"]) if v <= 0.08]
        assert (row[2] == "yes") == bool(below and below[0] <= 10)


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
    shapes = [script.noise_shape(block) for block in shop.blocks] if shaped else None
    got = shop.run_paper(case.epochs, 0.5, sigma, seed=5, shapes=shapes)["objective"]
    assert got[0] == math.log(2.0)
    expected = paper_epochs(case, bounds, 0.5, sigma, 5, case.epochs, shapes)
    np.testing.assert_allclose(got[1:], expected, rtol=1e-5)
    # the second run takes over the factorisations
    assert shop.run_paper(case.epochs, 0.5, sigma, seed=5, shapes=shapes)["objective"] == got


def test_shaped_noise_has_the_pseudo_inverse_as_its_covariance(script):
    rng = np.random.default_rng(0)
    block = rng.normal(size=(30, 3)) @ rng.normal(size=(3, 5))  # rank 3 of 5: no inverse
    shape = script.noise_shape(block)
    assert shape.shape == (5, 3)
    np.testing.assert_allclose(shape @ shape.T, np.linalg.pinv(block.T @ block), atol=1e-10)


def test_no_noise_is_the_solvers_own_scheme(script, case):
    from fastadmm.solver.solver import SolverOptions, solve

    shop = script.Workshop(case, case.bounds)
    mine = shop.run_paper(20, 0.5)["objective"]
    options = SolverOptions(scheme="jacobi", penalty=0.5, gap=0.0, max_rounds=20)
    theirs = [record.objective for record in solve(shop.problem, options).history]
    np.testing.assert_allclose(mine[1:], theirs, rtol=1e-10)


def test_sgd_uses_the_shared_prediction(script, case):
    """With batches of all rows an epoch is one gradient step of the pooled problem."""
    blocks = script.cut(case.X, case.bounds)
    seen = []
    script.descend(blocks, case.y, case.lam, 0.7, 2, 0, lambda weights: seen.append(np.concatenate(weights)))
    assert len(case.y) <= script.BATCH
    for k in (1, 2):
        z = case.X @ seen[k - 1]
        gradient = case.X.T @ (1.0 / (1.0 + np.exp(-z)) - case.y) / len(z) + case.lam * seen[k - 1]
        np.testing.assert_allclose(seen[k], seen[k - 1] - 0.7 / math.sqrt(k) * gradient, rtol=1e-12)


@pytest.mark.parametrize("staleness", [1, 3])
def test_asynchronous_sgd_adds_its_own_prediction_to_late_ones_of_the_others(script, case, staleness):
    """With one batch an epoch: each party's step is that of some age of the others, never above the bound."""
    blocks = script.cut(case.X, [0, 4, 7])
    seen = []
    script.descend(blocks, case.y, case.lam, 0.7, 25, 0, seen.append, staleness)
    ages = set()
    for k in range(1, 26):
        for m in (0, 1):
            mine, matches = blocks[m] @ seen[k - 1][m], []
            for age in range(k):
                z = mine + blocks[1 - m] @ seen[k - 1 - age][1 - m]
                gradient = (
                    blocks[m].T @ (1.0 / (1.0 + np.exp(-z)) - case.y) / len(z) + case.lam * seen[k - 1][m]
                )
                step = seen[k - 1][m] - 0.7 / math.sqrt(k) * gradient
                if np.allclose(seen[k][m], step, rtol=1e-10, atol=1e-13):
                    matches.append(age)
            assert len(matches) == 1, (k, m)
            ages.add(matches[0])
    assert ages == set(range(staleness + 1))


def test_frank_wolfe_comes_to_the_optimum_of_its_ball(script, case):
    """Against a general optimiser: x = p - q with p, q >= 0 that add up to the radius at most."""
    radius, d = 0.5, case.X.shape[1]
    seen = []
    script.frank_wolfe(script.cut(case.X, case.bounds), case.y, case.lam, radius, 400, seen.append)

    def value(x):
        z = case.X @ x
        return np.mean(np.logaddexp(0.0, z) - case.y * z) + 0.5 * case.lam * x @ x

    values = [value(np.concatenate(weights)) for weights in seen]
    assert np.diff(values).max() <= 1e-12
    assert [int((np.concatenate(w) != 0).sum()) for w in seen[:2]] == [0, 1]  # one column in each round
    assert np.abs(np.concatenate(seen[-1])).sum() <= radius + 1e-9
    best = minimize(
        lambda v: value(v[:d] - v[d:]), np.full(2 * d, 0.01), method="SLSQP", bounds=[(0, None)] * (2 * d),
        constraints={"type": "ineq", "fun": lambda v: radius - v.sum()}, tol=1e-12,
    )  # fmt: skip
    assert values[-1] == pytest.approx(best.fun, abs=2e-4)
    assert values[-1] >= best.fun - 1e-8


def test_columns_are_scaled_by_the_training_rows(script):
    X, X_test = np.array([[0.0, 5.0], [4.0, 5.0]]), np.array([[1.0, 7.0], [8.0, 5.0]])
    first, second = script.to_unit_range(X, X_test)
    np.testing.assert_array_equal(first, [[-1.0, 0.0], [1.0, 0.0]])
    np.testing.assert_array_equal(second, [[-0.5, 0.0], [3.0, 0.0]])


def test_real_gisette_is_read_from_libsvm_files(script, tmp_path):
    train, test = tmp_path / "gisette_scale", tmp_path / "gisette_scale.t"
    train.write_text("+1 1:-1 4999:0.5\n-1 2:0.25 5000:1\n", encoding="ascii")
    test.write_text("-1 3:1\n", encoding="ascii")
    case = script.read_gisette(train, test)
    assert case.X.shape == (2, 5000)
    assert case.X[1, 4999] == 1.0
    np.testing.assert_array_equal(case.y, [1.0, 0.0])
    assert [b - a for a, b in itertools.pairwise(case.bounds)] == [2000, 2000, 1000]


@pytest.mark.parametrize("content", [None, "+1 1:x\n", "+1 6000:1\n", "7 1:1\n", ""])
def test_wrong_gisette_files_end_with_one_line(script, tmp_path, content):
    path = tmp_path / "wrong"
    if content is not None:
        path.write_text(content, encoding="ascii")
    with pytest.raises(SystemExit, match=r"^bench/paper_a\.py: .*wrong: [^\n]*$"):
        script.read_gisette(path, path)


def test_missing_data_end_with_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-P", str(ROOT / "bench" / "paper_a.py")],
        env={"PATH": "", "FASTADMM_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr.strip() == (
        "bench/paper_a.py: a9a.bz2 not found; set FASTADMM_DATA to the directory with the data sets"
    )
