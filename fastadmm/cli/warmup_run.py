"""Compile kernels before they are needed, by small runs of what needs them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp

from fastadmm.engine.engine import Engine
from fastadmm.engine.free_cores import FreeCores
from fastadmm.runs.config import make_config
from fastadmm.runs.train import start_run
from fastadmm.store.partition import create_partition

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

    # Small runs are to call the kernels of many rows, and act as if nobody else kept cores busy.
    of_many_rows = patch.object(Engine, "few_leaves", 0)
    all_cores = patch.object(FreeCores, "among", lambda self, n_threads: n_threads)
    folder_of_runs = tempfile.TemporaryDirectory(prefix="fastadmm-")
    with folder_of_runs as folder, watching(observe), of_many_rows, all_cores:
        _ = NUMBA_THREADS.share
        _default_path(Path(folder))
    base = cache_base()
    return {"compiled": compiled, "directory": str(base) if base is not None else None}


def _default_path(folder: Path) -> None:
    """What a first ``train`` compiles, for classes and for numbers."""
    rng = np.random.default_rng(0)
    mixed = [rng.normal(size=(_ROWS, 3)), _sparse(rng, (_ROWS, 8), 0.4)]
    alone = [rng.normal(size=(_ROWS, 4))]  # as parties of the demo
    dense = [rng.normal(size=(_MANY_ROWS, 10)) for _ in range(2)]
    sparse = [_sparse(rng, (_MANY_ROWS, 30), 0.25) for _ in range(2)]
    many = {"rounds": 100, "threads": _THREADS}
    _train(folder, "classification", mixed, tested=True)
    _train(folder, "regression", mixed, tested=True)
    for blocks in (dense, sparse):
        _train(folder, "classification", blocks, tested=True, **many)
    _train(folder, "classification", alone)
    _forms()


def _sparse(rng: np.random.Generator, shape: tuple[int, int], density: float) -> Any:
    return sp.random_array(shape, density=density, rng=rng, format="csr")


def _forms() -> None:
    """What depends on how much of a block is zero, and on how long a run is."""
    from fastadmm.blocks.block import as_block

    engine = Engine(1)
    as_block(np.ones((2, 100))).gram(engine, rough=True)
    as_block(np.eye(100))
    as_block(sp.csr_array(np.ones((2, 100)))).gram(engine)
    for entries, value in ((1, 2.0), (6, 2.0), (6, 1.0)):  # of a row: they decide who multiplies
        block = as_block(sp.csr_array(np.full((2, entries), value)))
        block.product(np.ones(entries), engine)
        block.products_into(np.ones((2, entries)), np.empty((2, 2)), engine)
        block.transposed_product(np.ones(2), engine)


def _train(folder: Path, task: str, blocks: Sequence[Any], *, tested: bool = False, **settings: Any) -> None:
    """Train on a party for each block."""
    data, n_rows = folder / "data.parts", blocks[0].shape[0]
    with create_partition(data, task=task, force=True) as writer:
        for block in blocks:
            form = "csr" if sp.issparse(block) else "dense"
            writer.party(n_features=block.shape[1], kind=form).append(block)
        if task == "regression":
            writer.labels().append(np.random.default_rng(0).normal(size=n_rows))
        else:
            writer.labels(classes=("a", "b")).append(np.arange(n_rows) % 2)
    values = {"data": str(data), "threads": 1, "rounds": 3, "lambda": 1e-2, **settings}
    shutil.rmtree(folder / "run", ignore_errors=True)  # with its ledger, which force would keep
    start_run(make_config(values | ({"test": str(data)} if tested else {})), folder / "run")
