"""Compile kernels before they are needed, by small runs of what needs them."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
    folders = tempfile.TemporaryDirectory(prefix="fastadmm-")
    with folders as folder, watching(observe), _as_of_many_rows():
        _ = NUMBA_THREADS.share
        _default_path(Path(folder))
        if everything:
            _other_runs(Path(folder))
            _streamed(Path(folder))
            _owners(Path(folder))
            other_fits(_THREADS)
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
    from fastadmm.engine.engine import Engine
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
    for task in ("classification", "regression"):
        data = _partition(folder / f"{task}.parts", task)
        _train(folder, data, test=data)
    for kind in ("dense", "csr"):
        data = _large_partition(folder / f"{kind}.parts", kind)
        _train(folder, data, test=data, rounds=100, threads=_THREADS)
    _forms()


def _forms() -> None:
    """What depends on how much of a block is zero, and on how long a run is."""
    import scipy.sparse as sp

    from fastadmm.blocks.block import as_block
    from fastadmm.engine.engine import Engine
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
    parts = {task: folder / f"{task}.parts" for task in ("classification", "regression")}
    parts["counts"] = _partition(folder / "counts.parts", "counts")
    parts["classes"] = _partition(folder / "classes.parts", "classes")
    for settings in _settings():
        kind = settings.pop("kind")
        _train(folder, parts[kind], **settings)


def _streamed(folder: Path) -> None:
    """Kernels for tiles from a file, whose column indices are of the stored type."""
    from fastadmm.engine.engine import Engine
    from fastadmm.store import open_partition
    from fastadmm.store.streamed import load_block

    for party in open_partition(folder / "classification.parts").parties:
        block, engine = load_block(party, streamed=True), Engine(1)
        block.product(np.ones(party.n_features), engine)
        for count in (1, 2):
            block.transposed_products([np.ones(_ROWS)] * count, engine)
        block.column_squares(engine)


def _settings() -> Iterator[dict[str, Any]]:
    for name, loss in LOSSES.items():
        if name == "binomial":  # the kernels of logistic
            continue
        kind = "counts" if loss.link(1.0) is not None else "classes" if loss.vector else loss.task
        yield {"kind": kind, "loss": name}
        yield {"kind": kind, "loss": name, "scheme": "sharing", "lambda": 0.1}
    # Separable terms are solved by coordinate descent, groups by one of their own.
    for name, kind in {
        "logistic": "classification",
        "multinomial": "classes",
        "squared": "regression",
    }.items():
        yield {"kind": kind, "loss": name, "regularizer": "l1"}
    yield {"kind": "classification", "regularizer": "group_lasso"}
    yield {"kind": "classification", "constraint": "ball:1"}
    yield {
        "kind": "classification",
        "privacy": {"mode": "message", "epsilon": 5.0, "public_scaling": True},
        "lambda": 0.1,
    }
    yield {
        "kind": "classification",
        "privacy": {"mode": "fusion", "epsilon": 8.0, "delta": 1e-5, "public_scaling": True},
    }


def _train(folder: Path, data: Path, test: Path | None = None, **settings: Any) -> None:
    values = {"data": str(data), "threads": 1, "rounds": 3, "lambda": 1e-2, **settings}
    if test is not None:
        values["test"] = str(test)
    shutil.rmtree(folder / "run", ignore_errors=True)  # with its ledger, which force would keep
    start_run(make_config(values), folder / "run")


def _partition(path: Path, task: str) -> Path:
    """A party with a dense and one with a sparse block, and labels of a kind."""
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    dense, sparse = rng.normal(size=(_ROWS, 3)), sp.random_array((_ROWS, 8), density=0.4, rng=rng)
    classes: Sequence[str] | None = None
    if task == "counts":
        y = 1.0 + rng.poisson(2.0, _ROWS)  # the gamma loss takes no zeros
    elif task == "regression":
        y = rng.normal(size=_ROWS)
    else:
        classes = ("a", "b", "c") if task == "classes" else ("a", "b")
        y = (np.arange(_ROWS) % len(classes)).astype(float)
    with create_partition(path, task="regression" if classes is None else "classification") as writer:
        writer.party(n_features=3, kind="dense").append(dense)
        writer.party(n_features=8, kind="csr").append(sparse.tocsr())
        writer.labels(classes=classes).append(y)
    return path


def _large_partition(path: Path, kind: str) -> Path:
    """Two parties with many rows, all dense or all sparse."""
    rng = np.random.default_rng(0)
    form, width = (dense, 10) if kind == "dense" else (sparse, 30)
    with create_partition(path, task="classification") as writer:
        for _ in range(2):
            writer.party(n_features=width, kind=kind).append(form(rng, _MANY_ROWS, width))
        writer.labels(classes=("a", "b")).append(targets("logistic", _MANY_ROWS, rng))
    return path


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
    from fastadmm.engine.engine import Engine
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


Array = np.ndarray

#: Stored entries in a row of the sparse blocks.
_ENTRIES = 10

#: Rounds of most fits: enough to go through all that a round does.
_ROUNDS = 4


@dataclass
class _Fit:
    """Blocks, loss, other arguments of the problem, and options that differ from the usual ones."""

    blocks: list[Any]
    loss: str = "logistic"
    terms: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


def other_fits(n_threads: int) -> None:
    """Solve problems of all kinds but those of the default path."""
    for fit in (*_smooth_fits(), *_fits_with_kinks(), *_fits_of_classes(), *_fits_by_messages()):
        rng = np.random.default_rng(1)
        y = targets(fit.loss, fit.blocks[0].shape[0], rng)
        problem = make_problem(fit.blocks, y, loss=fit.loss, **fit.terms)
        usual: dict[str, Any] = {"max_rounds": _ROUNDS, "n_threads": n_threads}
        solve(problem, SolverOptions(**{**usual, **fit.options}))
        with Engine(n_threads) as engine:
            pooled = not fit.options and SCHEMES["pooled"].takes(problem, engine)
        if pooled:
            solve(problem, SolverOptions("pooled", **usual))


def dense(rng: np.random.Generator, n_rows: int, width: int) -> Array:
    """Normal columns."""
    return rng.normal(size=(n_rows, width))


def sparse(rng: np.random.Generator, n_rows: int, width: int, equal: bool = False) -> sp.csr_array:
    """A few entries in a row, about as many in each column."""
    each = min(_ENTRIES, max(1, width // 4))
    indices = np.sort((rng.integers(0, width, (n_rows, 1)) + np.arange(each) * (width // each)) % width)
    data = np.ones(indices.size) if equal else rng.normal(size=indices.size)
    indptr = np.arange(n_rows + 1) * each
    return sp.csr_array((data, indices.ravel(), indptr), shape=(n_rows, width))


def targets(loss: str, n_rows: int, rng: np.random.Generator) -> Array:
    """Targets in the domain of a loss."""
    if loss in ("squared", "huber"):
        return rng.normal(size=n_rows)
    return (np.arange(n_rows) % (3 if loss == "multinomial" else 2)).astype(float)


def _of(form: Any, n_rows: int, *widths: int, **more: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    return [form(rng, n_rows, width, **more) for width in widths]


def _smooth_fits() -> Iterator[_Fit]:
    """Dense and sparse columns, many rows and few."""
    yield _Fit(_of(dense, 20_000, 5, 5))
    yield _Fit(_of(dense, 80_000, 7, 7))  # columns that fill large pages
    yield _Fit(_of(dense, 600, 40, 40))
    yield _Fit(_of(dense, 2000, 300, 300))
    yield _Fit(_of(sparse, 20_000, 100, 100))
    yield _Fit(_of(sparse, 20_000, 10, 10))  # rows that are sampled
    for equal in (False, True):
        yield _Fit(_of(sparse, 20_000, 1000, 1000, equal=equal))
    yield _Fit(_of(dense, 20_000, 5, 5) + _of(sparse, 20_000, 100))
    for loss in ("logistic", "squared", "huber", "squared_hinge"):
        yield _Fit(_of(dense, 400, 800, 800), loss)
        yield _Fit(_of(sparse, 2000, 2500, 2500), loss)
        yield _Fit(_of(dense, 1000, 5, 5) + _of(sparse, 1000, 5000), loss)


def _fits_with_kinks() -> Iterator[_Fit]:
    """Kinks in the loss, then in the penalty."""
    for blocks in (_of(dense, 20_000, 10, 10), _of(dense, 400, 800, 800), _of(sparse, 2000, 2500, 2500)):
        yield _Fit(blocks, "hinge")
    yield _Fit(_of(dense, 2000, 5) + _of(sparse, 2000, 100), "hinge")
    for blocks in (_of(dense, 20_000, 10, 10), _of(sparse, 20_000, 1000, 1000), _of(dense, 200, 1000, 1000)):
        yield _Fit(blocks, terms={"regularizer": "l1"})
    yield _Fit(_of(dense, 20_000, 10, 10), terms={"regularizer": "group_lasso"})


def _fits_of_classes() -> Iterator[_Fit]:
    yield _Fit(_of(dense, 20_000, 10, 10), "multinomial")
    yield _Fit(_of(sparse, 5000, 4000, 4000), "multinomial")
    for blocks in (_of(dense, 80_000, 7, 7), _of(sparse, 5000, 300, 300)):
        yield _Fit(blocks, "multinomial", {"regularizer": "l1"})
    yield _Fit(_of(dense, 2000, 10, 10), "multinomial", {"regularizer": "group_lasso"})


def _fits_by_messages() -> Iterator[_Fit]:
    """Rounds by directions, and those of sharing until the penalty follows the curvature."""
    yield _Fit(_of(dense, 300, 500, 500), options={"history": 10})
    for asked in ("one", "both"):
        yield _Fit(_of(dense, 20_000, 10, 10), options={"directions": asked})
        yield _Fit(_of(sparse, 3000, 20_000, 20_000), options={"directions": asked})
    weights, sharing = np.linspace(0.1, 1.0, 600), {"scheme": "sharing", "gap": 0.0, "max_rounds": 14}
    for loss in ("logistic", "hinge"):
        yield _Fit(_of(dense, 600, 10, 10), loss, {"sample_weight": weights}, sharing)
