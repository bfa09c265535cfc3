"""The column ``obs/ids``: which sample each row is, and the digest that pins the order of rows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import FormatError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.digest import RowDigest, row_digest
from fastadmm.store.elements import (
    GrowingArray,
    check_text,
    encode,
    plain_dataset,
    read_array,
    read_attribute,
    read_strings,
    require_group,
)

if TYPE_CHECKING:
    import h5py


class IdWriter:
    """Writes row ids in pieces; without ids, the numbers 0..N-1."""

    def __init__(self, file: h5py.File, public_path: str | os.PathLike[str]) -> None:
        self._group = file.create_group("obs")
        encode(self._group, "dict")
        self._place = f"{shown(public_path)}: key 'obs/ids'"
        self._kind = ""  # "default", "int64" or "utf-8" after the first rows
        self._n = 0

    def prepare(self, ids: Any, n_rows: int) -> tuple[str, np.ndarray]:
        """Validate ids of the next `n_rows` rows without writing; the result goes to :meth:`append`."""
        if ids is None or not n_rows:
            kind, values = "default", np.arange(self._n, self._n + n_rows, dtype=np.int64)
        else:
            values = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids))
            if values.shape != (n_rows,):
                raise InputError(f"{self._place}: {values.shape} ids for {n_rows} rows; give one id per row")
            if values.dtype.kind in "iu":
                if values.dtype.kind == "u" and values.max() > np.iinfo(np.int64).max:
                    raise InputError(f"{self._place}: id {values.max()} does not fit int64; give it as text")
                kind, values = "int64", values.astype(np.int64)
            elif values.dtype.kind in "UOT":
                kind, values = "utf-8", values.astype(object)
                for i, text in enumerate(values):
                    check_text(text, f"{self._place}: row {self._n + i + 1}")
            else:
                raise InputError(f"{self._place}: ids of type {values.dtype}; give integers or text")
        if n_rows and self._kind not in ("", kind):
            raise InputError(
                f"{self._place}: row {self._n + 1}: ids change from {self._kind} to {kind}; give the same "
                "kind for all rows"
            )
        return kind, values

    def append(self, prepared: tuple[str, np.ndarray]) -> None:
        """Write what :meth:`prepare` returned."""
        kind, values = prepared
        if not len(values):
            return
        if not self._kind:
            self._kind = kind
            text = kind == "utf-8"
            how = {"encoding": "string-array"} if text else {"compression": "gzip"}
            self._column = GrowingArray(self._group, "ids", _text_dtype() if text else "<i8", **how)
            self._digest = RowDigest("utf-8" if text else "int64")
        self._column.append(values)
        self._digest.update(values)
        self._n += len(values)

    def close(self) -> str:
        """Write the rest; return the row digest."""
        self._column.close()
        return self._digest.text()


def _text_dtype() -> Any:
    import h5py

    return h5py.string_dtype("utf-8")


def read_ids(file: h5py.File, n_samples: int) -> np.ndarray:
    """Read the row ids: int64, or object (str), shape (n_samples,)."""
    group = require_group(file, "obs")
    place = f"{shown(file.filename)}: key 'obs/ids'"
    encoding = read_attribute(plain_dataset(group, "ids"), "encoding-type", str)
    if encoding == "string-array":
        ids = np.array(read_strings(group, "ids"), dtype=object)
        if len(ids) != n_samples:
            raise FormatError(f"{place}: has {len(ids)} entries instead of {n_samples}")
        return ids
    return read_array(group, "ids", ndim=1, length=n_samples, kind="iu", compressed=True).astype(
        np.int64, copy=False
    )


def verified_digest(file: h5py.File, n_samples: int) -> str:
    """Recompute the row digest from the ids and compare it with the attribute."""
    digest = row_digest(read_ids(file, n_samples))
    if digest != read_attribute(file, "row-digest", str):
        raise FormatError(
            f"{shown(file.filename)}: attribute 'row-digest' does not agree with key 'obs/ids'; "
            "the rows were damaged or edited, convert the file again"
        )
    return digest
