"""A file with one party's contribution to predictions: its part of every row's score, and nothing else."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastadmm.errors import FormatError
from fastadmm.files.atomic import shown
from fastadmm.store.compression import refuse_packed
from fastadmm.store.elements import array_dataset, read_array, read_attribute, write_array
from fastadmm.store.h5file import create_h5, read_h5
from fastadmm.store.ids import IdWriter, read_ids, verified_digest
from fastadmm.store.party_file import check_party_name

CONTRIBUTION = "fastadmm-contribution"


@dataclass(frozen=True)
class Contribution:
    """What one party adds to the scores of N rows. Shapes: values (N,) or (N, C)."""

    path: Path
    name: str  # the party
    model_id: str  # of the model whose weights these are
    values: np.ndarray  # of shape (N,) or (N, C): ``D_m x_m``; a fusion model's scale is not in it
    row_digest: str  # of the row ids, verified

    def ids(self) -> np.ndarray:
        """Row ids, of shape (N,): int64, or object holding str."""
        with read_h5(self.path, CONTRIBUTION) as file:
            return read_ids(file, len(self.values))


def write_contribution(
    path: str | os.PathLike[str],
    *,
    name: str,
    model_id: str,
    values: np.ndarray,
    ids: np.ndarray,
    force: bool = False,
) -> None:
    """Write a contribution file. Shapes: values (N,) or (N, C); ids (N,)."""
    with create_h5(path, CONTRIBUTION, force=force) as file:
        file.attrs["name"] = name
        file.attrs["model-id"] = model_id
        file.attrs["n_samples"] = np.int64(len(values))
        write_array(file, "contribution", np.asarray(values, dtype=np.float64))
        writer = IdWriter(file, path)
        writer.append(writer.prepare(ids, len(values)), len(values))
        file.attrs["row-digest"] = writer.close()


def open_contribution(path: str | os.PathLike[str]) -> Contribution:
    """Read a contribution file and check it."""
    with read_h5(path, CONTRIBUTION) as file:
        name = check_party_name(
            read_attribute(file, "name", str), f"{shown(path)}: attribute 'name'", FormatError
        )
        model_id = read_attribute(file, "model-id", str)
        n = read_attribute(file, "n_samples", int)
        if n < 1:
            raise FormatError(f"{shown(path)}: attribute 'n_samples' is {n}, not positive")
        refuse_packed(array_dataset(file, "contribution"))  # it comes from others
        values = np.asarray(read_array(file, "contribution", length=n, kind="f"), dtype=np.float64)
        digest = verified_digest(file, n)
    if values.ndim not in (1, 2):
        raise FormatError(f"{shown(path)}: key 'contribution' has {values.ndim} dimensions, not 1 or 2")
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values.reshape(n, -1)).all(axis=1))[0])
        raise FormatError(f"{shown(path)}: key 'contribution': row {row + 1} is not finite")
    return Contribution(Path(path), name, model_id, values, digest)
