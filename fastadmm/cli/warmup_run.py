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
from fastadmm.runs.config import make_config
from fastadmm.runs.train import start_run
from fastadmm.store import create_partition

#: Rows of the small runs: more than one block of a kernel's inner loop, less than a thread's piece.
_ROWS = 600

#: So many that a pass over them has several pieces, and Newton's method begins with samples of them.
_MANY_ROWS = 40_000

#: Of all runs: as many share pieces as on larger machines, which is what kernels depend on.
_THREADS = 2


def warm_up(say: Callable[[str, float], None] | None = None) -> dict[str, Any]:
    """Compile the kernels of the default path, unless their compiled form is there already."""
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


def _default_path(folder: Path) -> None:
    """What a first ``train`` compiles, for classes and for numbers."""
    for kind in ("classification", "regression"):
        data = _partition(folder, kind)
        _train(folder, data, test=str(data))
    rng = np.random.default_rng(0)
    dense = [rng.normal(size=(_MANY_ROWS, 10)) for _ in range(2)]
    sparse = [sp.random_array((_MANY_ROWS, 30), density=0.25, rng=rng, format="csr") for _ in range(2)]
    for name, blocks in (("dense", dense), ("csr", sparse)):
        data = _partition(folder, "classification", name, blocks)
        _train(folder, data, test=str(data), rounds=100, threads=_THREADS)
    alone = [rng.normal(size=(_ROWS, 4))]  # as parties of the demo
    _train(folder, _partition(folder, "classification", "alone", alone))
    _forms()


def _forms() -> None:
    """What depends on how much of a block is zero, and on how long a run is."""
    from fastadmm.blocks.block import as_block
    from fastadmm.kernels.directions import reflect_rows
    from fastadmm.kernels.vectors import sum_by_halves

    engine = Engine(1)
    sum_by_halves(np.zeros((2, 4)), np.empty(4), 0, 4)  # sums of many numbers
    as_block(np.ones((2, 100))).gram(engine, rough=True)
    as_block(np.eye(100))
    as_block(sp.csr_array(np.ones((2, 100)))).gram(engine)
    for entries, value in ((1, 2.0), (6, 2.0), (6, 1.0)):  # of a row: they decide who multiplies
        block = as_block(sp.csr_array(np.full((2, entries), value)))
        block.product(np.ones(entries), engine)
        block.products_into(np.ones((2, entries)), np.empty((2, 2)), engine)
        block.transposed_product(np.ones(2), engine)
    reflect_rows(np.eye(2), np.arange(2), np.ones(2), 0, 2)  # long runs forget directions


def _train(folder: Path, data: Path, **settings: Any) -> None:
    values = {"data": str(data), "threads": 1, "rounds": 3, "lambda": 1e-2, **settings}
    shutil.rmtree(folder / "run", ignore_errors=True)  # with its ledger, which force would keep
    start_run(make_config(values), folder / "run")


def _partition(folder: Path, kind: str, name: str = "", blocks: Sequence[Any] = ()) -> Path:
    """A party for each block, of a dense and a sparse one if none is given, and labels of a task."""
    rng, path = np.random.default_rng(0), folder / f"{name or kind}.parts"
    if not blocks:
        entries = sp.random_array((_ROWS, 8), density=0.4, rng=rng, format="csr")
        blocks = [rng.normal(size=(_ROWS, 3)), entries]
    classes, n_rows = ("a", "b") if kind == "classification" else None, blocks[0].shape[0]
    with create_partition(path, task=kind) as writer:
        for block in blocks:
            form = "csr" if sp.issparse(block) else "dense"
            writer.party(n_features=block.shape[1], kind=form).append(block)
        y = rng.normal(size=n_rows) if classes is None else (np.arange(n_rows) % 2).astype(float)
        writer.labels(classes=classes).append(y)
    return path
