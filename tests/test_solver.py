"""The solver loop: when it stops, what it says, and the published optimum of a9a."""

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastadmm.problem.problem import make_problem
from fastadmm.solver.history import RoundRecord, Status
from fastadmm.solver.solver import Solver, SolverOptions, solve
from sklearn.datasets import load_svmlight_file


def small(loss="logistic", n=60, seed=0, **arguments):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(n, 7))
    z = matrix @ rng.normal(size=7)
    y = z + rng.normal(size=n) if loss == "squared" else (z + rng.normal(size=n) > 0).astype(float)
    problem = make_problem([matrix[:, :3], matrix[:, 3:]], y, loss=loss, **{"lam": 1e-2, **arguments})
    return matrix, y, problem


def test_limits_end_a_run():
    result = solve(small()[2], SolverOptions(gap=0.0, max_rounds=3))
    assert result.status is Status.MAX_ROUNDS
    assert len(result.history) == 3
    assert "round limit after 3 rounds, as gap 0 asks: no gap ends training; relative" in result.message
    result = solve(small()[2], SolverOptions(gap=0.0, max_seconds=1e-9))
    assert result.status is Status.TIME_LIMIT
    assert len(result.history) == 1
    assert "time limit" in result.message
    seen, endless = [], SolverOptions(gap=0.0)
    result = solve(small()[2], endless, monitor=seen.append, should_stop=lambda: len(seen) == 4)
    assert (result.status, result.history) == (Status.INTERRUPTED, seen)
    assert result.proof is None  # whoever stopped it waits for no proof


def test_results_and_records_stay():
    solver = Solver(small()[2], SolverOptions(gap=0.0, max_rounds=2))
    from fastadmm.solver.loop import run_rounds

    result = run_rounds(solver)
    before = [w.copy() for w in result.weights]
    solver.round()
    for a, b in zip(result.weights, before):
        np.testing.assert_array_equal(a, b)
    result = solve(small()[2], SolverOptions(max_rounds=4, gap=0.0))
    for record in result.history:
        text = json.dumps(record.to_json(), allow_nan=False)
        assert RoundRecord.from_json(json.loads(text)) == record
    numbers = (1, 0.5, math.inf, math.inf, 1.0, 0.0, math.nan, 1.0, 1.0, 0.1)
    odd = RoundRecord(*numbers, [1.0, math.inf], False, {"auc": math.nan})
    values = json.loads(json.dumps(odd.to_json(), allow_nan=False))
    assert values["objective"] is None
    assert values["weight_norms"] == [1.0, None]
    back = RoundRecord.from_json({**values, "a_later_version": 3})
    assert back.gap == math.inf
    assert back.test == {"auc": None}


@pytest.mark.parametrize("scheme", ["subspace", "sharing"])
@pytest.mark.parametrize("scale", [8.0, 1e-300, 1e300])
def test_the_scale_of_the_weights_does_not_matter(scale, scheme):
    matrix, y, problem = small()
    blocks = [matrix[:, :3], matrix[:, 3:]]
    scaled = make_problem(blocks, y, lam=1e-2, sample_weight=np.full(len(y), scale))
    assert scaled.total_weight == pytest.approx(len(y))
    one, two = (Solver(p, SolverOptions(scheme=scheme, gap=0.0)) for p in (problem, scaled))
    for _ in range(5):
        a, b = one.round(), two.round()
        assert b.penalty == a.penalty
        assert b.objective == pytest.approx(a.objective, rel=1e-12)


OPTIMUM = 0.333340752069  # at lambda 1e-3
WIDTHS = {1: [123], 2: [66, 57], 5: [25, 25, 25, 24, 24], 32: [4] * 27 + [3] * 5}


@pytest.fixture(scope="module")
def a9a(shared_data):
    matrix, y = load_svmlight_file(str(shared_data / "a9a.bz2"), n_features=123)
    return matrix.tocsc(), (y > 0).astype(float)


def train(a9a, lam, parties, **options):
    matrix, y = a9a
    bounds = list(itertools.accumulate(WIDTHS[parties], initial=0))
    blocks = [matrix[:, a:b].tocsr() for a, b in itertools.pairwise(bounds)]
    return solve(make_problem(blocks, y, lam=lam, fit_intercept=False), SolverOptions(**options))


@pytest.mark.representatives(1)
@pytest.mark.parametrize("parties", [1, 5, 32])
def test_a9a_has_one_optimum_however_the_columns_are_split(a9a, parties):
    result = train(a9a, 1e-3, parties)
    assert result.status is Status.CONVERGED
    assert result.gap <= 1e-6
    # the published value has 12 digits
    assert -1e-12 <= result.objective - OPTIMUM <= result.gap * OPTIMUM + 1e-12
    assert result.history[-1].gap_absolute >= result.objective - OPTIMUM - 1e-12


def documented_rounds():
    """Rows of the table of rounds in docs/solver.md, one parameter set per scheme."""
    text = (Path(__file__).parents[1] / "docs" / "solver.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (1e-\d) \| (\d+) \| ([\d /]+) \| ([\d /–]+) \|$", text, re.MULTILINE)
    assert len(rows) == 9
    for lam, parties, *cells in rows:
        for scheme, cell in zip(("subspace", "sharing"), cells):
            if cell != "–":
                rounds = [int(number) for number in cell.split("/")]
                marks = [pytest.mark.slow] if scheme == "sharing" and int(parties) > 2 else []
                yield pytest.param(scheme, float(lam), int(parties), rounds, marks=marks)


@pytest.mark.representatives(1)
@pytest.mark.parametrize(("scheme", "lam", "parties", "rounds"), list(documented_rounds()))
def test_documented_rounds_on_a9a(a9a, scheme, lam, parties, rounds):
    targets = [1e-3, 1e-6, 1e-9][: len(rounds)]
    directions = {"directions": "one"} if scheme == "subspace" else {}
    history = train(a9a, lam, parties, scheme=scheme, gap=targets[-1], **directions).history
    for target, documented in zip(targets, rounds, strict=True):
        measured = next(record.round for record in history if record.gap <= target)
        # other versions of the linear algebra round differently
        assert measured == pytest.approx(documented, rel=0.1, abs=1)


def problem(loss="hinge", **more):
    rng = np.random.default_rng(3)
    blocks = [rng.normal(size=(60, d)) * 10.0 ** rng.uniform(-1.0, 1.0, d) for d in (6, 5, 7)]
    z = blocks[0] @ rng.normal(size=6) + blocks[2][:, 0] + 3.0 * rng.logistic(size=60)
    y = np.digitize(z, [-5.0, 5.0]) * 1.0 if loss == "multinomial" else (z > 0.0) * 1.0
    return make_problem(blocks, z if loss in ("squared", "quantile") else y, loss=loss, lam=1e-3, **more)


def objective(given, weights, intercept):
    """From the data alone."""
    z = sum(block.matrix @ x for block, x in zip(given.blocks, weights, strict=True)) + intercept
    z = np.ascontiguousarray(z.T).ravel()
    solver = Solver(given, SolverOptions(n_threads=1))
    loss = given.loss.evaluate(z, given.y, given.weight, np.empty_like(z), solver.engine)
    columns = [
        (r, x.T if x.ndim == 2 else [x]) for r, x in zip(given.party_regularizers, weights, strict=True)
    ]
    return loss / given.total_weight + given.lam * sum(r.value(x) for r, own in columns for x in own)


CASES: list[tuple[str, dict[str, Any], dict[str, Any], list[int]]] = [
    ("logistic", {}, {"scheme": "sharing", "penalty": 0.001}, [5, 6, 8]),
    ("hinge", {"regularizer": "l1"}, {"scheme": "sharing"}, [4, 6, 9]),
    ("quantile", {"regularizer": "group_lasso"}, {"history": 6}, [7, 8, 10, 17]),
    ("multinomial", {"regularizer": "l1"}, {"scheme": "sharing"}, [3, 4]),
    ("squared", {}, {"scheme": "gauss-seidel"}, [16, 17]),
]


@pytest.mark.parametrize(("loss", "more", "options", "ends"), CASES, ids=str)
def test_the_lowest_of_all_rounds_is_returned(loss, more, options, ends):
    given, lower = problem(loss, **more), 0
    for rounds in ends:
        result = solve(given, SolverOptions(gap=1e-12, max_rounds=rounds, n_threads=1, **options))
        assert result.status is Status.MAX_ROUNDS
        least = min(record.objective for record in result.history)
        assert result.objective <= least * (1.0 + 1e-12)  # of a round's model norms are bounded
        # What was proved later holds for it, too.
        assert result.gap <= min(record.gap for record in result.history) * (1.0 + 1e-9)
        assert objective(given, result.weights, result.intercept) == pytest.approx(result.objective, rel=1e-9)
        if result.kept is not None:
            lower += 1
            assert f"the model of round {result.kept.round} is kept" in result.message
    assert 0 < lower < len(ends)
