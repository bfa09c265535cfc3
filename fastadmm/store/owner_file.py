"""One owner's file: rows with their targets, and the public recipe that they went through before."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fastadmm.errors import InputError
from fastadmm.files.atomic import shown
from fastadmm.files.digest import strings_digest
from fastadmm.files.seal import refuse_unknown
from fastadmm.store.block_file import BlockFile, check_party_name
from fastadmm.store.elements import (
    bad,
    encode,
    read_array,
    read_attribute,
    read_strings,
    require_group,
    write_array,
    write_strings,
)
from fastadmm.store.label_file import read_classes
from fastadmm.store.writer import Writer

if TYPE_CHECKING:
    from scipy.sparse import csr_array

OWNER_TYPE = "fastadmm-owner"
OWNER_VERSIONS = ("1.0",)

_KEYS = ("X", "y", "var", "recipe")
_RECIPE = ("center", "scale", "components")


class OwnerWriter(Writer):
    """Writes an owner's rows piece by piece, in constant memory; a context manager."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str,
        kind: str,
        task: str,
        feature_names: Sequence[str],
        classes: tuple[str, str] | None = None,
        dtype: str = "float64",
        recipe: dict[str, np.ndarray] | None = None,
        public_path: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(path, public_path)
        self.name = check_party_name(name, self._shown)
        self.task, self.n_features, self.dtype = task, len(feature_names), np.dtype(dtype)
        self._names, self._classes, self._recipe = list(feature_names), classes, recipe or {}
        self._hash = hashlib.sha256(f"{kind} {self.dtype.name} {self.n_features}\n".encode())
        self._create(OWNER_TYPE, OWNER_VERSIONS[-1], force=True, ids=False)

    def append(self, X: np.ndarray | csr_array, y: np.ndarray) -> None:
        """Add rows. Shapes: X (k, d); y (k,)."""
        if isinstance(X, np.ndarray):
            X = np.ascontiguousarray(X, dtype=self.dtype)
            self._hash.update(X.data)
        else:
            X = X.astype(self.dtype, copy=False)
            for part in (X.data, X.indices.astype("<i8"), np.diff(X.indptr).astype("<i8")):
                self._hash.update(np.ascontiguousarray(part).data)
        self._grow("y", np.asarray(y))
        self._grow_block(X)
        self._hash.update(np.ascontiguousarray(y, dtype="<f8").data)
        self.n_samples += X.shape[0]
        self._sink.check()

    def _finish(self) -> None:
        if self.n_samples == 0:
            raise InputError(f"{self._shown}: owner {self.name!r} has no rows; an owner needs at least one")
        self._close_arrays(self.n_features)
        encode(self._file.create_group("var"), "dict")
        write_strings(self._file["var"], "names", self._names)
        encode(self._file.create_group("recipe"), "dict")
        for key, value in self._recipe.items():
            write_array(self._file["recipe"], key, np.asarray(value, dtype=np.float64))
        write_strings(self._file["recipe"], "names", self._names)
        about = {"name": self.name, "task": self.task, "n_samples": np.int64(self.n_samples)}
        about |= {"content-digest": f"sha256:{self._hash.hexdigest()}"}
        about |= {"names-digest": strings_digest(self._names)}
        about |= {"classes": list(self._classes)} if self._classes is not None else {}
        self._file.attrs.update(about)


class OwnerFile(BlockFile):
    """An owner's file, checked but not loaded. Made by :func:`open_owner`."""

    _encoding = OWNER_TYPE, OWNER_VERSIONS

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        with self._open() as file:
            refuse_unknown(file, _KEYS, shown(path))
            self._read_header(file)
            self.task = read_attribute(file, "task", str)
            self.feature_names = read_strings(require_group(file, "var"), "names")
            if len(self.feature_names) != self.n_features:
                raise bad(file, "var/names", f"{len(self.feature_names)} names for {self.n_features} columns")
            recipe = require_group(file, "recipe")
            self.source_names = read_strings(recipe, "names")
            self.recipe = {key: read_array(recipe, key, kind="f") for key in _RECIPE if key in recipe}
            self.classes = read_classes(file) if self.task == "classification" else None

    def targets(self) -> np.ndarray:
        """Read the targets, shape (n,)."""
        with self._open() as file:
            y = read_array(file, "y", ndim=1, length=self.n_samples, kind="f").astype(np.float64, copy=False)
        wrong, rule = ~np.isfinite(y), "is not finite"
        if not wrong.any() and self.task == "classification":
            wrong, rule = np.abs(y) != 1.0, "is not -1 or 1"
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InputError(f"{shown(self.path)}: key 'y': row {at + 1}: value {y[at]:g} {rule}")
        return y


def open_owner(path: str | os.PathLike[str]) -> OwnerFile:
    """Open an owner's file: checks its structure, does not load the rows."""
    return OwnerFile(path)
