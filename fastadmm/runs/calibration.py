"""How fast this machine is, measured in a fraction of a second: what a plan's seconds are made of."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["Calibration", "calibrate"]

_READ_BYTES = 64 * 2**20
_PIECE_BYTES = 2 * 2**20
_SIDE = 384


@dataclass(frozen=True)
class Calibration:
    """Rates of one thread."""

    read: float  # bytes per second of a file, as the system serves them now (from its cache or from the disk)
    flops: float  # multiplications and additions per second of a matrix product
    stream: float  # bytes per second that a product of a matrix in memory with a vector gets through
    sparse: float  # stored entries per second of a sparse product


def _best(call: Callable[[], object]) -> float:
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return max(min(seconds), 1e-9)


def _read_rate(path: Path) -> float:
    """Bytes per second of one sequential read; only what is read first is as cold as it was."""
    buffer = bytearray(_PIECE_BYTES)
    done = 0
    begin = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while done < _READ_BYTES:
            count = file.readinto(buffer)
            if not count:
                break
            done += count
    return max(done, 1) / max(time.perf_counter() - begin, 1e-9)


def calibrate(files: list[Path]) -> Calibration:
    """Measure this machine, on one thread."""
    from fastadmm.engine.engine import Engine
    from fastadmm.kernels.csr import csr_product

    rng = np.random.default_rng(0)
    square = rng.normal(size=(_SIDE, _SIDE))
    rows, width = 4096, 256
    matrix, x = rng.normal(size=(rows, width)), rng.normal(size=width)
    per_row = 32
    indptr = np.arange(0, rows * per_row + 1, per_row, dtype=np.int64)
    indices = rng.integers(0, width, rows * per_row).astype(np.uint32)
    data, out = matrix.ravel()[: rows * per_row], np.empty(rows)
    with Engine(1).limited():
        csr_product(indptr, indices, data, x, out, 0, 1)  # compiles
        return Calibration(
            read=_read_rate(max(files, key=os.path.getsize)),
            flops=2.0 * _SIDE**3 / _best(lambda: square @ square),
            stream=matrix.nbytes / _best(lambda: matrix @ x),
            sparse=len(data) / _best(lambda: csr_product(indptr, indices, data, x, out, 0, rows)),
        )
