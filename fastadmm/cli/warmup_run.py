"""Compile kernels before they are needed, by small runs of what needs them."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastadmm.engine.engine import Engine
from fastadmm.problem.losses import LOSSES
from fastadmm.problem.multinomial import Multinomial
from fastadmm.problem.problem import make_problem
from fastadmm.runs.config import make_config
from fastadmm.runs.train import start_run
from fastadmm.schemes.registry import SCHEMES
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import solve
from fastadmm.store import create_partition

Array = np.ndarray

#: Rows of the small runs: more than one block of a kernel's inner loop, less than a thread's piece.
_ROWS = 600

#: So many that a pass over them has several pieces, and Newton's method begins with samples of them.
_MANY_ROWS = 40_000

#: Of all runs: as many share pieces as on larger machines, which is what kernels depend on.
_THREADS = 2


def warm_up(everything: bool = False, say: Callable[[str, float], None] | None = None) -> dict[str, Any]:
    """Compile the kernels of the default path, or all, unless their compiled form is there already."""
    from fastadmm.engine.rows import NUMBA_THREADS
    from fastadmm.kernels.cache import cache_base
    from fastadmm.kernels.compilation import watching

    compiled: list[dict[str, Any]] = []

    def observe(name: str, seconds: float | None) -> None:
        if seconds is not None:
            compiled.append({"kernel": name, "seconds": seconds})
            if say is not None:
                say(name, seconds)

    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fastadmm-") as folder, watching(observe), _as_of_many_rows():
        _ = NUMBA_THREADS.share
        _default_path(Path(folder))
        if everything:
            _other_runs(Path(folder))
            _streamed(Path(folder))
            _owners(Path(folder))
            _other_fits()
            _rest()
    base = cache_base()
    return {
        "compiled": compiled,
        "seconds": time.perf_counter() - begin,
        "directory": str(base) if base is not None else None,
    }


@contextmanager
def _as_of_many_rows() -> Iterator[None]:
    """Let small runs call the kernels of many rows, and act as if nobody else kept cores busy."""
    from fastadmm.engine.free_cores import FreeCores

    before = Engine.few_leaves, FreeCores.among
    Engine.few_leaves, FreeCores.among = 0, lambda self, n_threads: n_threads  # type: ignore[method-assign]
    try:
        yield
    finally:
        Engine.few_leaves, FreeCores.among = before  # type: ignore[method-assign]


# --- runs on files -----------------------------------------------------------------------------------


def _default_path(folder: Path) -> None:
    """What a first ``train`` compiles, for classes and for numbers."""
    for kind in ("classification", "regression"):
        data = _partition(folder, kind)
        _train(folder, data, test=str(data))
    for name, blocks in (("dense", dense(_MANY_ROWS, 10, 10)), ("csr", sparse(_MANY_ROWS, 30, 30))):
        data = _partition(folder, "classification", name, blocks)
        _train(folder, data, test=str(data), rounds=100, threads=_THREADS)
    _train(folder, _partition(folder, "classification", "alone", dense(_ROWS, 4)))  # as parties of the demo
    _forms()


def _forms() -> None:
    """What depends on how much of a block is zero, and on how long a run is."""
    from fastadmm.blocks.block import as_block
    from fastadmm.kernels.directions import reflect_rows
    from fastadmm.kernels.vectors import add_by_halves

    engine = Engine(1)
    add_by_halves(np.zeros((2, 4)), 0, 4)  # sums of many numbers
    as_block(np.ones((2, 100))).gram(engine, rough=True)
    as_block(np.eye(100))
    as_block(sp.csr_array(np.ones((2, 100)))).gram(engine)
    for entries, value in ((1, 2.0), (6, 2.0), (6, 1.0)):  # of a row: they decide who multiplies
        block = as_block(sp.csr_array(np.full((2, entries), value)))
        block.product(np.ones(entries), engine)
        block.products_into(np.ones((2, entries)), np.empty((2, 2)), engine)
        block.transposed_product(np.ones(2), engine)
    reflect_rows(np.eye(2), np.arange(2), np.ones(2), 0, 2)  # long runs forget directions


def _other_runs(folder: Path) -> None:
    """One short run for every kernel that a setting of ``train`` leads to."""
    data = {kind: folder / f"{kind}.parts" for kind in ("classification", "regression")}
    data |= {kind: _partition(folder, kind) for kind in ("counts", "classes")}
    message, fusion = {"mode": "message", "epsilon": 5.0}, {"mode": "fusion", "epsilon": 8.0, "delta": 1e-5}
    runs: list[dict[str, Any]] = [
        {"loss": name, **more}
        for name in LOSSES
        if name != "binomial"  # the kernels of logistic
        for more in ({}, {"scheme": "sharing", "lambda": 0.1})
    ]
    # Separable terms are solved by coordinate descent, groups by one of their own.
    runs += [{"loss": name, "regularizer": "l1"} for name in ("logistic", "multinomial", "squared")]
    runs += [{"regularizer": "group_lasso"}, {"constraint": "ball:1"}]
    runs += [{"privacy": {**message, "public_scaling": True}, "lambda": 0.1}]
    runs += [{"privacy": {**fusion, "public_scaling": True}}]
    for settings in runs:
        _train(folder, data[_kind(settings.get("loss", "logistic"))], **settings)


def _streamed(folder: Path) -> None:
    """Kernels for tiles from a file, whose column indices are of the stored type."""
    from fastadmm.store import open_partition
    from fastadmm.store.streamed import load_block

    for party in open_partition(folder / "classification.parts").parties:
        block, engine = load_block(party, streamed=True), Engine(1)
        block.product(np.ones(party.n_features), engine)
        for count in (1, 2):
            block.transposed_products([np.ones(_ROWS)] * count, engine)
        block.column_squares(engine)


def _train(folder: Path, data: Path, **settings: Any) -> None:
    values = {"data": str(data), "threads": 1, "rounds": 3, "lambda": 1e-2, **settings}
    shutil.rmtree(folder / "run", ignore_errors=True)  # with its ledger, which force would keep
    start_run(make_config(values), folder / "run")


def _partition(folder: Path, kind: str, name: str = "", blocks: Sequence[Any] = ()) -> Path:
    """A party for each block, of a dense and a sparse one if none is given, and labels of a kind."""
    rng, path = np.random.default_rng(0), folder / f"{name or kind}.parts"
    if not blocks:
        entries = sp.random_array((_ROWS, 8), density=0.4, rng=rng, format="csr")
        blocks = [rng.normal(size=(_ROWS, 3)), entries]
    classes = {"classification": ("a", "b"), "classes": ("a", "b", "c")}.get(kind)
    with create_partition(path, task="regression" if classes is None else "classification") as writer:
        for block in blocks:
            form = "csr" if sp.issparse(block) else "dense"
            writer.party(n_features=block.shape[1], kind=form).append(block)
        writer.labels(classes=classes).append(_targets(kind, blocks[0].shape[0], rng))
    return path


def _kind(loss: str) -> str:
    """Kind of the labels that a loss takes."""
    own = LOSSES[loss]
    return "counts" if own.link(1.0) is not None else "classes" if own.vector else own.task


def _targets(kind: str, n_rows: int, rng: np.random.Generator) -> Array:
    if kind == "counts":
        return 1.0 + rng.poisson(2.0, n_rows)  # the gamma loss takes no zeros
    if kind == "regression":
        return rng.normal(size=n_rows)
    return (np.arange(n_rows) % (3 if kind == "classes" else 2)).astype(float)


# --- owners of rows, and what no command runs ----------------------------------------------------------


def _owners(folder: Path) -> None:
    """Answers of owners with dense and sparse rows, with either noise."""
    from fastadmm.data_tools.owners import Reading, convert_owners
    from fastadmm.owners.run import start_owner_run
    from fastadmm.settings.owners import make_settings

    rng = np.random.default_rng(0)
    table = np.column_stack([rng.integers(0, 2, 60), rng.normal(size=(60, 3))])
    source = folder / "rows.csv"
    np.savetxt(source, table, delimiter=",", header="label,a,b,c", comments="")
    for storage in ("dense", "csr"):
        data = folder / f"{storage}.owners"
        convert_owners([source], data, sizes=[30, 30], reading=Reading(label="label"), storage=storage)
        for loss in ("logistic", "squared"):
            for noise in ({"mechanism": "laplace"}, {"mechanism": "gaussian", "delta": 1e-6}):
                values = {"data": str(data), "epsilon": "1", "rounds": 2, "loss": loss, **noise}
                values |= {"bound": "features:1", "threads": 1}
                if loss == "squared":
                    values["target_bound"] = 1.0
                shutil.rmtree(folder / "owners", ignore_errors=True)
                start_owner_run(make_settings(values), folder / "owners")


def _rest() -> None:
    """Kernels that only functions of the library lead to."""
    from fastadmm.blocks.block import CSRBlock
    from fastadmm.engine.pages import free
    from fastadmm.kernels.bounded import bounded
    from fastadmm.kernels.chacha import chacha_blocks
    from fastadmm.kernels.gaussian_noise import standard_normal, uniform

    key, nonce, out = np.arange(8, dtype=np.uint32), np.arange(3, dtype=np.uint32), np.empty(4)
    standard_normal(key, nonce, out, 0, 4)
    uniform(key, nonce, out, 0, 4)
    chacha_blocks(key, nonce, 0, np.empty((16, 16), dtype=np.uint32))
    indicators, one = CSRBlock(np.ones((3, 2))), Engine(1)
    indicators.gram(one)
    three = np.ones(3)
    bounded.conjugate(three, three, three, (0.0, 1.0), 0, 3)
    classes = np.ones((2, 3))
    Multinomial().action(classes, three, classes, Engine(1))  # a second step in the span
    free([np.empty(1 << 23)], Engine(_THREADS))  # as at the end of a large fit


# --- fits in memory --------------------------------------------------------------------------------------

#: Stored entries in a row of the sparse blocks.
_ENTRIES = 10

#: Rounds of most fits: enough to go through all that a round does.
_ROUNDS = 4


def dense(n_rows: int, *widths: int) -> list[Any]:
    """Normal columns."""
    rng = np.random.default_rng(0)
    return [rng.normal(size=(n_rows, width)) for width in widths]


def sparse(n_rows: int, *widths: int, equal: bool = False) -> list[Any]:
    """A few entries in a row, about as many in each column."""
    rng, blocks = np.random.default_rng(0), []
    for width in widths:
        each = min(_ENTRIES, max(1, width // 4))
        starts = rng.integers(0, width, (n_rows, 1))
        indices = np.sort((starts + np.arange(each) * (width // each)) % width)
        data = np.ones(indices.size) if equal else rng.normal(size=indices.size)
        indptr = np.arange(n_rows + 1) * each
        blocks.append(sp.csr_array((data, indices.ravel(), indptr), shape=(n_rows, width)))
    return blocks


def _other_fits() -> None:
    """Solve problems of all kinds but those of the default path."""
    for blocks, loss, terms, options in _fits():
        y = _targets(_kind(loss), blocks[0].shape[0], np.random.default_rng(1))
        problem = make_problem(blocks, y, loss=loss, **terms)
        usual: dict[str, Any] = {"max_rounds": _ROUNDS, "n_threads": _THREADS}
        solve(problem, SolverOptions(**{**usual, **options}))
        with Engine(_THREADS) as engine:
            pooled = not options and SCHEMES["pooled"].takes(problem, engine)
        if pooled:
            solve(problem, SolverOptions("pooled", **usual))


_Fit = tuple[list[Any], str, dict[str, Any], dict[str, Any]]


def _fits() -> Iterator[_Fit]:
    """Blocks, loss, other arguments of the problem, and options that differ from the usual ones."""

    def fit(blocks: list[Any], loss: str = "logistic", **terms: Any) -> _Fit:
        options: dict[str, Any] = {
            name: terms.pop(name) for name in ("history", "directions") if name in terms
        }
        return blocks, loss, terms, options

    def forms(rows: int, width: int, short: int, columns: int) -> list[list[Any]]:
        return [dense(20_000, 10, 10), dense(rows, width, width), sparse(short, columns, columns)]

    # Dense and sparse columns, many rows and few.
    yield fit(dense(20_000, 5, 5))
    yield fit(dense(80_000, 7, 7))  # columns that fill large pages
    yield fit(dense(600, 40, 40))
    yield fit(dense(2000, 300, 300))
    yield fit(sparse(20_000, 100, 100))
    yield fit(sparse(20_000, 10, 10))  # rows that are sampled
    for equal in (False, True):
        yield fit(sparse(20_000, 1000, 1000, equal=equal))
    yield fit(dense(20_000, 5, 5) + sparse(20_000, 100))
    for loss in ("logistic", "squared", "huber", "squared_hinge"):
        yield fit(dense(400, 800, 800), loss)
        yield fit(sparse(2000, 2500, 2500), loss)
        yield fit(dense(1000, 5, 5) + sparse(1000, 5000), loss)
    # Kinks in the loss, then in the penalty.
    for blocks in forms(400, 800, 2000, 2500):
        yield fit(blocks, "hinge")
    yield fit(dense(2000, 5) + sparse(2000, 100), "hinge")
    for blocks in forms(200, 1000, 20_000, 1000):
        yield fit(blocks, regularizer="l1")
    yield fit(dense(20_000, 10, 10), regularizer="group_lasso")
    # Several classes.
    yield fit(dense(20_000, 10, 10), "multinomial")
    yield fit(sparse(5000, 4000, 4000), "multinomial")
    for blocks in (dense(80_000, 7, 7), sparse(5000, 300, 300)):
        yield fit(blocks, "multinomial", regularizer="l1")
    yield fit(dense(2000, 10, 10), "multinomial", regularizer="group_lasso")
    # Rounds by directions, and those of sharing until the penalty follows the curvature.
    yield fit(dense(300, 500, 500), history=10)
    for asked in ("one", "both"):
        yield fit(dense(20_000, 10, 10), directions=asked)
        yield fit(sparse(3000, 20_000, 20_000), directions=asked)
    weights, sharing = np.linspace(0.1, 1.0, 600), {"scheme": "sharing", "gap": 0.0, "max_rounds": 14}
    for loss in ("logistic", "hinge"):
        yield dense(600, 10, 10), loss, {"sample_weight": weights}, sharing
