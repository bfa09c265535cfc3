"""What ``make bench-compare`` follows: kernels, products, rounds, fits, streaming, conversion, memory ...

All data are generated, so that anybody can repeat it, and everything runs on one thread. A call takes some
milliseconds or more, so that waking up counts for little; it may return amounts that are followed, too.
"""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from datasets import synthetic
from turns import cpu_seconds

pytestmark = pytest.mark.benchmark(timer=cpu_seconds)

ROWS = 1 << 15

#: Every loss, and what its targets are.
LOSSES = {
    **dict.fromkeys(("logistic", "hinge", "smoothed_hinge", "squared_hinge", "sigmoid"), "label"),
    **dict.fromkeys(("squared", "huber", "quantile", "tukey", "welsch"), "number"),
    **dict.fromkeys(("poisson", "tweedie", "negative_binomial"), "count"),
    **{"gamma": "positive", "binomial": "share", "multinomial": "class"},
}


def often(times, call):
    """A call that repeats another."""

    def repeated():
        for _ in range(times):
            call()

    return repeated


def targets(rng, kind, n):
    """Targets of one kind."""
    made = {
        "label": lambda: (rng.random(n) < 0.3) * 1.0,
        "number": lambda: rng.normal(size=n),
        "count": lambda: rng.poisson(2.0, n) * 1.0,
        "positive": lambda: rng.gamma(2.0, size=n) + 0.01,
        "share": lambda: rng.random(n),
        "class": lambda: rng.integers(0, 3, n) * 1.0,
    }
    return made[kind]()


@pytest.mark.parametrize("what", ["value and gradient", "z-update"])
@pytest.mark.parametrize("name", LOSSES)
def bench_loss(in_turns, name, what):
    from fastadmm.engine.engine import Engine
    from fastadmm.problem.losses import LOSSES as known

    loss, engine, rng = known[name], Engine(1), np.random.default_rng(0)
    y, weight = targets(rng, LOSSES[name], ROWS), np.ones(ROWS)
    size, rows = ROWS * loss.n_outputs(y), SimpleNamespace(y=y, weight=weight)
    v, z, gradient, shift = 2.0 * rng.normal(size=size), np.zeros(size), np.empty(size), np.zeros(size)
    # Above the negative curvature of the losses that are not convex.
    penalty = 0.05 + loss.weak_convexity

    def update():
        z[:] = 0.0
        loss.prox(v, shift, rows, penalty, z, gradient, engine)

    if what == "z-update":
        in_turns(often(4, update))
    else:
        in_turns(often(10, lambda: loss.evaluate(v, y, weight, gradient, engine)))


@pytest.mark.parametrize("what", ["normal", "uniform", "discrete Laplace"])
def bench_noise(in_turns, what):
    rng, n = np.random.default_rng(0), 1 << 17
    if what == "discrete Laplace":
        from fastadmm.kernels.owner_gradient import discrete_laplace

        words, whole = rng.integers(0, 2**64, n, dtype=np.uint64), np.zeros(n, dtype=np.int64)
        in_turns(often(4, lambda: discrete_laplace(words, 1 << 40, whole, 0)))
        return
    from fastadmm.kernels.gaussian_noise import grid_normal, uniform

    key, nonce, out = np.arange(8, dtype=np.uint32), np.arange(3, dtype=np.uint32), np.empty(n)
    grid = np.empty(n, dtype=np.int64)
    draw = {
        "normal": lambda: grid_normal(key, nonce, 1e6, grid, 0, n),
        "uniform": lambda: uniform(key, nonce, out, 0, n),
    }
    in_turns(often(8, draw[what]))


@pytest.mark.parametrize("what", ["D x", "D' v", "Gram", "weighted Gram"])
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def bench_product(in_turns, kind, what):
    from fastadmm.blocks.block import as_block
    from fastadmm.engine.engine import Engine

    rng, n = np.random.default_rng(0), 2 * ROWS if kind == "sparse" else ROWS // 4
    matrix = sp.random_array((n, 200), density=0.1, format="csr", rng=rng)
    block, engine = as_block(matrix if kind == "sparse" else matrix.toarray()), Engine(1)
    x, v, weight = rng.normal(size=200), rng.normal(size=n), rng.random(n)
    calls = {
        "D x": often(8, lambda: block.product(x, engine)),
        "D' v": often(8, lambda: block.transposed_product(v, engine)),
        "Gram": often(1, lambda: block.gram(engine)),
        "weighted Gram": often(1, lambda: block.gram(engine, weight)),
    }
    in_turns(calls[what])


@pytest.fixture(scope="module")
def sparse():
    """Four sparse parties, 50,000 rows."""
    return synthetic(50_000)


@pytest.mark.parametrize("scheme", ["subspace", "sharing", "jacobi", "gauss-seidel"])
def bench_round(in_turns, sparse, scheme):
    from fastadmm import make_problem
    from fastadmm.solver.solver import Solver, SolverOptions

    problem = make_problem(sparse.blocks, sparse.y, lam=1e-4, fit_intercept=False)

    def prepared():
        solver = Solver(problem, SolverOptions(scheme=scheme, gap=0.0, n_threads=1))
        solver.prepare()
        solver.round()
        return solver

    in_turns(lambda solver: solver.round(), setup=prepared, pairs=15)


FITS = {
    "logistic": {"lam": 1e-4},
    "logistic, intercept": {"lam": 1e-4, "fit_intercept": True},
    "logistic l1": {"lam": 1e-3, "regularizer": "l1"},
    "logistic group lasso": {"lam": 1e-3, "regularizer": "group_lasso"},
    "logistic, pooled": {"lam": 1e-4, "scheme": "pooled"},
    "squared": {"lam": 1e-3, "loss": "squared"},
    "lasso": {"lam": 1e-2, "loss": "squared", "regularizer": "l1"},
    "poisson": {"lam": 1e-3, "loss": "poisson"},
    "hinge": {"lam": 1e-2, "loss": "hinge"},
    "multinomial": {"lam": 1e-3, "loss": "multinomial"},
}


@pytest.mark.parametrize("kind", FITS)
def bench_fit(in_turns, kind):
    """Of 6,000 rows, to 1e-6."""
    from fastadmm import SolverOptions, make_problem, solve

    options = {"fit_intercept": False, **FITS[kind]}
    scheme = options.pop("scheme", "auto")
    rng, n = np.random.default_rng(0), 6000
    # Columns of different parties are correlated by what they have in common.
    X = rng.normal(size=(n, 40)) + rng.normal(size=(n, 3)) @ rng.normal(size=(3, 40))
    z = X @ rng.normal(size=40) / 8.0
    y = {
        "squared": z + rng.normal(size=n),
        "poisson": rng.poisson(np.exp(np.clip(z, -3, 3))).astype(float),
        "multinomial": np.digitize(z + rng.normal(size=n), [-1.0, 0.0, 1.0]).astype(float),
    }.get(options.get("loss", ""), (z + rng.logistic(size=n) > 0.0) * 1.0)
    blocks = [X[:, :15], X[:, 15:30], X[:, 30:]]

    def fit():
        asked = SolverOptions(scheme=scheme, max_rounds=300, n_threads=1)
        last = solve(make_problem(blocks, y, **options), asked).history[-1]
        assert last.gap <= 1e-6
        return {"rounds": last.round, "exchanges": last.exchanges}

    in_turns(fit, pairs=15)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """LIBSVM text, 400,000 non-zeros."""
    from sklearn.datasets import dump_svmlight_file

    dataset = synthetic(20_000)
    path = tmp_path_factory.mktemp("data") / "data.libsvm"
    dump_svmlight_file(dataset.X, dataset.y, str(path), zero_based=False)
    return path


def partition_of(source, name):
    """The text as a partition of two parties."""
    from fastadmm.data_tools.convert import convert

    return convert(source, source.with_name(name), columns="100,100", force=True).path


def bench_convert(in_turns, source):
    in_turns(lambda: partition_of(source, "convert.parts") and None, pairs=15)


def bench_streaming(in_turns, source):
    """Passes over a block that stays in its file."""
    from fastadmm.engine.engine import Engine
    from fastadmm.store.partition import open_partition
    from fastadmm.store.streamed import load_block

    party = open_partition(partition_of(source, "streaming.parts")).parties[0]
    block, engine, rng = load_block(party, streamed=True), Engine(1), np.random.default_rng(0)
    x, v = rng.normal(size=100), rng.normal(size=20_000)

    def passes():
        block.product(x, engine)
        block.transposed_product(v, engine)

    in_turns(often(4, passes))
    block.stream.close()


def program(text, *arguments):
    """Run a program to its end in a process of its own; what it printed."""
    command = [sys.executable, "-P", "-c", text, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("what", ["import", "help"])
def bench_start(in_turns, what):
    text = "import fastadmm" if what == "import" else "from fastadmm.cli.app import main; main()"
    in_turns(lambda: program(text, "--help") and None, pairs=15)


TRAIN = """
import pathlib, sys
from fastadmm.runs.config import make_config
from fastadmm.runs.plan import peak_memory
from fastadmm.runs.train import start_run
start_run(make_config({"data": sys.argv[1], "gap": 0.5, "threads": 1}), pathlib.Path(sys.argv[2]), force=True)
print(peak_memory())
"""


def bench_train(in_turns, source):
    """A run of few rounds from files, and the peak of its memory."""
    data, run = partition_of(source, "train.parts"), source.with_name("run")
    in_turns(lambda: {"bytes": int(program(TRAIN, data, run).splitlines()[-1])}, pairs=15)
