"""Which rows are held out of training."""

from __future__ import annotations

import hashlib

import numpy as np
from fastadmm.data_tools.csv_table import is_number
from fastadmm.errors import ConfigError, InputError


def parse_share(text: str | None) -> float | None:
    """The share of rows that ``--split`` holds out."""
    if text is None:
        return None
    share = float(text) if is_number(text) else 0.0
    if not 0.0 < share < 1.0:
        raise ConfigError(f"--split {text!r}: give a share of the rows, such as 0.3")
    return share


def held_out(ids: np.ndarray, share: float, path: str) -> np.ndarray:
    """The rows with the smallest hashes of their ids: the same everywhere, and they tell nothing of the ids.

    Shapes: ids, the result (N,).
    """
    texts = map(str, ids.tolist())
    digests = (hashlib.blake2b(t.encode(), digest_size=8, key=b"fastadmm split").digest() for t in texts)
    hashes = np.frombuffer(b"".join(digests), dtype=">u8")
    aside = np.abs(np.arange(1, len(ids)) - share * len(ids))
    held = hashes <= np.sort(hashes)[np.argmin(aside)] if len(aside) else np.ones(len(ids), dtype=bool)
    if held.all():
        raise InputError(f"{path}: --split {share:g}: leaves no row for training")
    return held
