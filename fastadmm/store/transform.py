"""The fitted, per-party scaling of features, stored next to the features it was fitted on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
from scipy.sparse import csr_array, issparse

from fastadmm.errors import FormatError, InputError
from fastadmm.files.atomic import shown
from fastadmm.privacy.origins import Constants
from fastadmm.store import elements as h5

_TYPE, _VERSION = "fastadmm-transform", "1.0"
_NORMALIZE = ("none", "l2")


@dataclass(frozen=True, eq=False)
class Transform:
    """Centre, then scale, then normalise the rows of one party's block. Shapes: center, scale (d,)."""

    normalize: str = "none"
    center: np.ndarray | None = None
    scale: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.normalize not in _NORMALIZE:
            raise InputError(f"transform: normalize {self.normalize!r} is not one of {', '.join(_NORMALIZE)}")
        given = {key: getattr(self, key) for key in ("center", "scale") if getattr(self, key) is not None}
        for key, value in given.items():
            try:
                value = np.array(value, dtype=np.float64)
            except (TypeError, ValueError):
                value = np.zeros(())
            if value.ndim != 1 or (self.n_features is not None and len(value) != self.n_features):
                raise InputError(f"transform: {key} must be a vector with a number for each column")
            bad = ~np.isfinite(value) | ((value <= 0) if key == "scale" else False)
            if bad.any():
                at = int(np.flatnonzero(bad)[0])
                rule = "finite and positive" if key == "scale" else "finite"
                raise InputError(f"transform: {key} of column {at + 1} is {value[at]}, not {rule}")
            value.setflags(write=False)  # frozen: the digest must stay true
            object.__setattr__(self, key, value)

    @property
    def is_identity(self) -> bool:
        """Whether :meth:`apply` changes nothing."""
        return self.normalize == "none" and self.center is None and self.scale is None

    def constants(self) -> tuple[Constants, ...]:
        """Where the numbers come from; see :mod:`fastadmm.privacy.origins`."""
        fitted = self.center is not None or self.scale is not None
        return (
            Constants(("normalize",), "norm of each row, by itself", "public"),
            Constants(("center", "scale"), "centres or scales of columns", "private" if fitted else "public"),
        )

    @property
    def n_features(self) -> int | None:
        """Number of columns it was fitted on; None where it takes any."""
        for value in (self.center, self.scale):
            if value is not None:
                return len(value)
        return None

    def apply(self, X: Any) -> Any:
        """Return a transformed copy of a block. Shapes: X, the result (n, d)."""
        sparse = issparse(X)
        X = csr_array(X) if sparse else np.asarray(X)
        if self.n_features is not None and X.shape[1] != self.n_features:
            raise InputError(
                f"transform: the block has {X.shape[1]} columns, but the transform was fitted on "
                f"{self.n_features}"
            )
        if sparse and self.center is not None:
            raise InputError("transform: a sparse block cannot be centred; store it dense or only scale it")
        dtype = np.float32 if X.dtype == np.float32 else np.float64
        out: np.ndarray = X.data.astype(dtype) if sparse else np.array(X, dtype=dtype, order="C")
        if self.center is not None:
            out -= self.center
        if self.scale is not None:
            out /= self.scale[X.indices] if sparse else self.scale
        if self.normalize == "l2":
            rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)) if sparse else None
            norms = _norms(out, rows, X.shape[0])
            out /= norms[:, np.newaxis] if rows is None else norms[rows]
        return csr_array((out, X.indices.copy(), X.indptr.copy()), shape=X.shape) if sparse else out

    def digest(self) -> str:
        """Return ``sha256:<hex>`` of the transform; equal exactly if the transforms are equal."""
        digest = hashlib.sha256(f"{_TYPE} {_VERSION}\n{self.normalize}\n".encode())
        for value in (self.center, self.scale):
            digest.update(b"-\n" if value is None else f"{len(value)}\n".encode())
            if value is not None:
                digest.update(np.ascontiguousarray(value, dtype="<f8").data)
        return "sha256:" + digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transform) and self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())

    def to_group(self, h5group: h5py.Group) -> None:
        """Write the transform into an empty HDF5 group."""
        h5.encode(h5group, _TYPE, _VERSION)
        h5group.attrs["normalize"] = self.normalize
        h5group.attrs["digest"] = self.digest()
        for key in ("center", "scale"):
            value = getattr(self, key)
            if value is not None:
                h5.write_array(h5group, key, value)

    @classmethod
    def from_group(cls, h5group: h5py.Group) -> Transform:
        """Read a transform that :meth:`to_group` wrote."""
        place = f"{shown(h5group.file.filename)}: key {h5group.name.strip('/')!r}"
        h5.check_encoding(h5group, _TYPE, (_VERSION,))
        arrays = {
            key: h5.read_array(h5group, key, ndim=1, kind="f") if key in h5group else None
            for key in ("center", "scale")
        }
        try:
            transform = cls(normalize=h5.read_attribute(h5group, "normalize", str), **arrays)
        except InputError as error:
            raise FormatError(f"{place}: {error}") from error
        if transform.digest() != h5.read_attribute(h5group, "digest", str):
            raise FormatError(f"{place}: does not agree with its digest; damaged or edited")
        return transform


def _norms(values: np.ndarray, rows: np.ndarray | None, n_rows: int) -> np.ndarray:
    """Norms of a block's rows, 1 for those of zeros; of a sparse one `rows` has the row of each value.

    Shapes: rows (nnz,); the result (n,).
    """
    # Dividing by the largest entry first, so that squares neither overflow nor vanish.
    if rows is None:
        largest = np.max(np.abs(values), axis=1, initial=0.0).astype(np.float64)
    else:
        largest = np.zeros(n_rows)
        np.maximum.at(largest, rows, np.abs(values))
    safe = np.where(largest > 0, largest, 1.0)
    scaled = values / (safe[:, np.newaxis] if rows is None else safe[rows])
    if rows is None:
        squares = np.einsum("ij,ij->i", scaled, scaled)
    else:
        squares = np.bincount(rows, weights=scaled * scaled, minlength=n_rows)
    norms = np.sqrt(squares) * safe
    return np.where(norms > 0, norms, 1.0)
