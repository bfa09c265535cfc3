"""The same bits from any number of threads, and from a run that was stopped and resumed."""

import copy
from dataclasses import asdict

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.engine.engine import row_ranges
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, SolverOptions, solve

from resumed import assert_resumed_is_the_same

pytestmark = pytest.mark.usefixtures("idle_machine")


def data(n, widths, kind, loss="logistic", seed=0):
    rng = np.random.default_rng(seed)
    blocks = []
    for d in widths:
        block = rng.normal(size=(n, d))
        if kind == "sparse":
            block = sp.csr_array(np.where(rng.random((n, d)) < 0.3, block, 0.0))
        blocks.append(block)
    z = sum(block @ rng.normal(size=block.shape[1]) for block in blocks)
    y = z + rng.normal(size=n) if loss == "squared" else (z + rng.normal(size=n) > 0).astype(float)
    return blocks, y


def fields(record):
    """A record without its wall time."""
    values = asdict(record)
    del values["seconds"]
    return values


@pytest.mark.representatives(3)
@pytest.mark.parametrize(
    ("kind", "widths", "loss", "options"),
    [
        ("dense", [12], "logistic", {"scheme": "sharing", "x_update": "gram"}),
        ("dense", [3, 5, 2, 4, 6], "logistic", {"scheme": "sharing", "x_update": "cg"}),
        ("sparse", [3, 5, 2, 4, 6], "logistic", {"scheme": "sharing", "x_update": "gram"}),
        ("dense", [4, 3], "logistic", {"scheme": "subspace"}),
        ("dense", [4, 3], "squared", {"scheme": "subspace"}),
        ("dense", [4, 3], "logistic", {"scheme": "jacobi"}),
        ("dense", [4, 3], "squared", {"scheme": "gauss-seidel"}),
        ("dense", [2] * 40, "logistic", {"scheme": "auto"}),
    ],
)
def test_any_number_of_threads_gives_the_same_bits(kind, widths, loss, options):
    n = 25000
    assert len(row_ranges(n)) > 2
    blocks, y = data(n, widths, kind, loss)
    problem = make_problem(blocks, y, loss=loss, lam=1e-3)
    asked = [SolverOptions(n_threads=n_threads, max_rounds=8, gap=0.0, **options) for n_threads in (1, 2, 4)]
    one, *others = (solve(problem, own) for own in asked)
    for other in others:
        for a, b in zip(one.weights, other.weights, strict=True):
            np.testing.assert_array_equal(a, b)
        assert one.intercept == other.intercept
        assert [fields(r) for r in one.history] == [fields(r) for r in other.history]
    assert options["scheme"] != "sharing" or any(record.accelerated for record in one.history)


def correlated(x_update="auto", scheme="sharing", acceleration="auto", seed=2):
    """A problem on which some extrapolations are rejected."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(120, 6)) * 10.0 ** rng.uniform(-1, 1, 6)
    blocks = [common + 0.05 * rng.normal(size=(120, 6)) for _ in range(4)]
    y = (common @ np.ones(6) + rng.normal(size=120) > 0).astype(float)
    options = SolverOptions(
        scheme=scheme, acceleration=acceleration, gap=0.0, x_update=x_update, penalty=0.5, n_threads=1
    )
    return make_problem(blocks, y, lam=1e-5), options


@pytest.mark.representatives(3)
@pytest.mark.parametrize(
    ("scheme", "acceleration", "x_update"),
    [
        *(("sharing", "auto", x_update) for x_update in ("gram", "kernel", "cg")),
        ("sharing", "none", "cg"),
        ("jacobi", "none", "gram"),
        ("gauss-seidel", "anderson", "kernel"),
    ],
)
def test_a_resumed_run_continues_bit_for_bit(scheme, acceleration, x_update):
    problem, options = correlated(x_update, scheme, acceleration)
    for rounds in (1, 2, 3, 7, 15, 29):
        assert_resumed_is_the_same(problem, options, rounds, 30 - rounds)


def test_resumption_after_merged_directions_a_rejected_extrapolation_or_slow_growth(monkeypatch):
    problem, options = correlated()

    scout, rejected = Solver(problem, options), set()
    for k in range(1, 61):
        scout.round()
        # taken back: the memory is empty although there have been extrapolations
        if scout.coordinator.n_extrapolations > 0 and scout.coordinator.anderson.count == 0:
            rejected.add(k)
    assert rejected, "no extrapolation was rejected: the test needs a harder problem"
    for rounds in rejected:
        assert_resumed_is_the_same(problem, options, rounds, 10)
    # The divergence detector resumes too.
    rng = np.random.default_rng(4)
    block = rng.normal(size=(60, 4))
    y = (block @ rng.normal(size=4) + rng.normal(size=60) > 0).astype(float)
    problem = make_problem([block] * 3, y, lam=1e-4, fit_intercept=False)
    options = SolverOptions(scheme="jacobi", penalty=0.1)
    whole = solve(problem, options)
    first = Solver(problem, options)
    for _ in range(len(whole.history) - 10):
        assert first.stop_reason(first.round()) is None
    second = Solver(problem, options)
    second.restore(*copy.deepcopy((first.export(), first.export_parties())))
    statuses = [second.stop_reason(second.round()) for _ in range(10)]
    assert statuses[-1] == whole.status
    assert not any(statuses[:-1])
    # Also when directions have been merged.
    monkeypatch.setattr("fastadmm.coordinator.subspace.subspace.directions_per_party", lambda n_parties: 4)
    problem, _ = correlated()
    for rounds in (3, 4, 5, 6, 17):
        assert_resumed_is_the_same(problem, SolverOptions(scheme="subspace", gap=0.0), rounds, 30 - rounds)
