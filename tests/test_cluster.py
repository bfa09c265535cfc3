"""Rows over workers: the same weights, to the bit, for any number of workers and threads."""

import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.cluster.comm import RowEngine, add_nodes, nodes_of
from fastadmm.engine.tree import node_range
from fastadmm.errors import ConfigError
from fastadmm.method import method as stall_watch
from fastadmm.problem.problem import make_problem
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import solve

from workers import ThreadComm, mpi_command, on_workers, solve_rows

N = 33_003


@cache
def problem_of(loss):
    rng = np.random.default_rng(0)
    dense, ones = rng.normal(size=(N, 4)), sp.random(N, 30, density=0.2, format="csr", random_state=1)
    ones.data[:] = 1.0
    z = dense @ rng.normal(size=4) + ones @ rng.normal(size=30) * 0.3
    y = {"logistic": (z + rng.logistic(size=N) > 0) * 1.0, "poisson": rng.poisson(np.exp(0.3 * z)) * 1.0}
    weight, offset = rng.uniform(0.5, 2.0, N), 0.1 * rng.normal(size=N)
    return make_problem(
        [dense, ones, np.ascontiguousarray(dense[:, :2]) ** 2],
        y.get(loss, z + rng.normal(size=N)),
        loss=loss,
        lam=1e-3,
        sample_weight=weight,
        offset=offset,
    )


def weights_of(result):
    weights = [own.ravel() for own in result.weights]
    return np.hstack([*weights, result.intercept, result.objective, result.gap])


@pytest.mark.representatives(1)
@pytest.mark.parametrize("loss", ["logistic", "squared", "poisson"])
def test_workers_find_the_weights_of_one_process(loss):
    problem, options = problem_of(loss), SolverOptions(gap=1e-7, n_threads=1)
    alone = weights_of(solve(problem, options))
    for size in (2, 3) if loss == "logistic" else (4,):
        for found in on_workers(size, lambda comm: solve_rows(problem, comm, options)):
            np.testing.assert_array_equal(weights_of(found), alone)


FEW = 20_011  # four leaves

#: Beyond smooth losses of one predictor with squared l2; a run of one that stalls takes steps of sharing.
OTHERS = {
    "hinge": {"loss": "hinge"},
    "quantile": {"loss": "quantile"},
    "classes by products": {"loss": "multinomial"},
    "l1": {"loss": "logistic", "regularizer": "l1"},
    "groups": {"loss": "squared", "regularizer": "group_lasso"},
    "box": {"loss": "logistic", "constraint": "box:-0.1,0.1"},
    "ball": {"loss": "huber", "constraint": "ball:0.5"},
    "kinks and l1": {"loss": "hinge", "regularizer": "l1"},
    "classes and l1": {"loss": "multinomial", "regularizer": "l1"},
    "classes in balls": {"loss": "multinomial", "constraint": "ball:0.5"},
}


@cache
def other_problem(name):
    rng = np.random.default_rng(1)
    dense = rng.normal(size=(FEW, 3))
    sparse = sp.random(FEW, 12, density=0.2, format="csr", random_state=1)
    z = dense @ [1.0, -0.5, 0.0] + sparse @ rng.normal(size=12)
    classes = np.argmax(np.c_[z, -z, 0.5 * z * z] + rng.gumbel(size=(FEW, 3)), axis=1)
    loss = OTHERS[name]["loss"]
    y = classes * 1.0 if loss == "multinomial" else z + rng.logistic(size=FEW)
    y = (y > 0.0) * 1.0 if loss in ("hinge", "logistic") else y
    return make_problem([dense, sparse], y, lam=1e-3, **OTHERS[name])


@pytest.mark.representatives(4)
@pytest.mark.parametrize("stalled", [False, True])
@pytest.mark.parametrize("name", OTHERS)
def test_kinks_classes_and_other_regularisers(name, stalled, monkeypatch):
    problem, options = other_problem(name), SolverOptions(gap=1e-6, max_rounds=8, n_threads=1)
    if stalled:
        monkeypatch.setattr(stall_watch, "PATIENCE", 2)
        monkeypatch.setattr(stall_watch, "_FALLEN", 0.0)
    alone = every_weight_of(solve(problem, options))
    for size in (3, 4):
        for found in on_workers(size, lambda comm: solve_rows(problem, comm, options)):
            np.testing.assert_array_equal(every_weight_of(found), alone)


def test_workers_measure_and_refuse_as_one_process_does():
    """Without a regulariser, columns far from zero among them."""
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(40_000, 3)) + 1e5
    sparse = sp.random_array((40_000, 5), density=0.3, rng=rng, format="csr")
    y = dense[:, 0] - 1e5 + sparse.sum(axis=1) + 0.1 * rng.normal(size=40_000)
    problem = make_problem([dense, sparse], y, loss="squared", regularizer="none")
    options = SolverOptions(max_rounds=30)
    alone = solve(problem, options)
    for found in on_workers(3, lambda comm: solve_rows(problem, comm, options)):
        np.testing.assert_array_equal(every_weight_of(found), every_weight_of(alone))
        assert found.record.gap_within == alone.record.gap_within
    # What cannot be shared is refused in a line.
    problem = problem_of("squared")
    for scheme in ("sharing", "pooled"):
        options = SolverOptions(scheme=scheme)
        (found,) = on_workers(1, lambda comm, options=options: solve_rows(problem, comm, options))
        assert f"scheme '{scheme}' cannot be shared by rows yet" in str(found)
    with pytest.raises(ValueError, match="are not those of rank 0"):
        RowEngine(ThreadComm(0, 2, None, None), N).leaves(N)


def every_weight_of(result):
    return np.concatenate([np.ravel(v) for v in (*result.weights, result.intercept, result.gap)])


def test_nodes_cover_the_rows():
    for size in (1, 2, 3, 4, 5, 7, 8):
        assert all(nodes_of(N, rank, size) for rank in range(size))  # none without rows
        nodes = [node for rank in range(size) for node in nodes_of(10**6, rank, size)]
        ends = [node_range(10**6, *node) for node in nodes]
        assert ends[0][0] == 0
        assert ends[-1][1] == 10**6
        assert all(a[1] == b[0] for a, b in pairwise(ends))
        assert add_nodes({node: np.array([b - a]) for node, (a, b) in zip(nodes, ends)}) == 10**6
    with pytest.raises(ConfigError, match="9 workers for 33003 rows, which make 8 leaf"):
        nodes_of(N, 0, 9)


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from fastadmm.cluster.comm import MpiComm
from test_cluster import SolverOptions, every_weight_of, problem_of
from workers import solve_rows
comm = MpiComm()
found = every_weight_of(solve_rows(problem_of("logistic"), comm, SolverOptions(max_rounds=8, n_threads=1)))
if comm.rank == comm.size - 1:
    print(found.tobytes().hex())
"""


@pytest.mark.repeats
def test_products_of_old_processors_depend_on_addresses(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")  # nothing elsewhere
    tests, found = str(Path(__file__).parent), []
    for workers in (1, 4):
        done = mpi_command(workers, [sys.executable, "-c", PROGRAM, tests])
        assert done.returncode == 0, done.stderr
        found.append(done.stdout)
    assert found[0] == found[1]
