"""One owner's file: rows with their targets, and the public recipe that they went through before.

A directory has one per owner, and ``owners.toml``, which says how often a record can occur.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fastadmm.errors import FormatError, InputError, StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.digest import strings_digest
from fastadmm.files.reading import read_toml
from fastadmm.files.seal import POSITIVE, check_seal, check_table, get_key, refuse_unknown
from fastadmm.store import elements as h5
from fastadmm.store.block_file import BlockFile, Writer, check_party_name
from fastadmm.store.h5file import check_version
from fastadmm.store.label_file import read_classes

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
        public_path: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(path, public_path)
        self.name = check_party_name(name, self._shown)
        self.task, self.n_features, self.dtype = task, len(feature_names), np.dtype(dtype)
        self._names, self._classes = list(feature_names), classes
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
        h5.encode(self._file.create_group("var"), "dict")
        h5.write_strings(self._file["var"], "names", self._names)
        h5.encode(self._file.create_group("recipe"), "dict")
        h5.write_strings(self._file["recipe"], "names", self._names)
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
            self.task = h5.read_attribute(file, "task", str)
            self.feature_names = h5.read_strings(h5.require_group(file, "var"), "names")
            if len(self.feature_names) != self.n_features:
                raise h5.bad(
                    file, "var/names", f"{len(self.feature_names)} names for {self.n_features} columns"
                )
            recipe = h5.require_group(file, "recipe")
            self.source_names = h5.read_strings(recipe, "names")
            self.recipe = {key: h5.read_array(recipe, key, kind="f") for key in _RECIPE if key in recipe}
            self.classes = read_classes(file) if self.task == "classification" else None

    def targets(self) -> np.ndarray:
        """Read the targets, shape (n,)."""
        with self._open() as file:
            y = h5.read_array(file, "y", ndim=1, length=self.n_samples, kind="f").astype(
                np.float64, copy=False
            )
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


MANIFEST = "owners.toml"
FORMAT = "fastadmm-owners"
#: 1.1, of older versions of this program: scaled by a public file, with which the owners share so many rows.
VERSIONS = ("1.0", "1.1")
_MANIFEST = {"format": (FORMAT,), "version": str, "owners": list, "kappa": POSITIVE, "digest?": str}
_MANIFEST |= {"repeated_records?": object, "sources?": object, "public_share?": float}


@dataclass(frozen=True, eq=False)
class Owners:
    """Owners of rows with the same features. Made by :func:`open_owners`."""

    path: Path
    owners: list[OwnerFile]  # in the order of the manifest
    kappa: int  # largest number of owners of one record; every budget is divided by it
    task: str
    classes: tuple[str, ...] | None  # original labels of -1 and 1

    @property
    def n_samples(self) -> int:
        """Rows of all owners together."""
        return sum(owner.n_samples for owner in self.owners)

    @property
    def names(self) -> list[str]:
        """Names of the owners."""
        return [owner.name for owner in self.owners]


def open_owners(path: str | os.PathLike[str]) -> Owners:
    """Open a directory of owners and check that they belong together."""
    manifest = Path(path) / MANIFEST
    with storage_errors(manifest, "read"):
        if not manifest.is_file():
            raise StorageError(f"{shown(path)}: no {MANIFEST}: not made by 'fastadmm owners convert'")
    values, place = read_toml(manifest), shown(manifest)
    check_version(manifest, get_key(values, "version", str, place), VERSIONS, "key 'version'")
    check_table(values, _MANIFEST, place)
    names, kappa = values["owners"], values["kappa"]
    if kappa > len(names):  # one record cannot be with more owners than there are
        raise FormatError(f"{place}: damaged ({len(names)} owners, kappa {kappa}); convert again")
    for name in names:
        check_party_name(name, f"{shown(manifest)}: key 'owners'", FormatError)
    # kappa divides every budget: a flipped bit there would claim more privacy than there is.
    check_seal(values, values.pop("digest", None), shown(manifest), "restore it, or convert again")
    owners = [open_owner(Path(path) / f"{name}.h5") for name in names]
    first = owners[0]
    for name, owner in zip(names, owners, strict=True):
        if owner.name != name:
            raise FormatError(f"{shown(owner.path)}: is the file of {owner.name!r}, not of {name!r}")
        if owner.feature_names != first.feature_names:
            raise InputError(
                f"{shown(owner.path)}: features differ from those of {first.name!r} "
                f"({owner.n_features} and {first.n_features}); all owners need the same, in the same order"
            )
        same = (owner.task, owner.classes) == (first.task, first.classes)
        same &= owner.recipe.keys() == first.recipe.keys()
        if not same or not all((owner.recipe[key] == first.recipe[key]).all() for key in owner.recipe):
            raise InputError(
                f"{shown(owner.path)}: targets or scaling are not those of {first.name!r}; convert together"
            )
    return Owners(Path(path), owners, kappa, first.task, first.classes)


DIGEST_BYTES = 16

#: Share of rows that public rows and the owners' may have in common beyond what chance would give.
_SHARED = 0.1


def record_digests(X: Any, labels: Sequence[str] | None = None) -> list[bytes]:
    """A digest of every record, however it is stored. Shapes: X (N, d)."""
    X = csr_array(X)  # makes one, or takes it as it is
    with np.errstate(over="ignore", under="ignore"):
        data = X.data.astype("<f4")
    kept = data != 0.0  # -0.0 and what float32 cannot tell from zero, too
    ends = np.concatenate([[0], np.cumsum(kept)])[X.indptr]
    data, indices = data[kept], X.indices[kept].astype("<i8")
    digests = []
    for i in range(X.shape[0]):
        part = slice(ends[i], ends[i + 1])
        raw = indices[part].tobytes() + data[part].tobytes()
        if labels is not None:
            raw += labels[i].encode("utf-8", "surrogatepass")
        digests.append(hashlib.blake2b(raw, digest_size=DIGEST_BYTES).digest())
    return digests


def shared_rows(public: list[bytes], owned: list[bytes]) -> tuple[float, str]:
    """How many rows a file that is said to be public and the owners have in common."""
    largest, reason = 0.0, ""
    for these, those, said in (
        (public, owned, "of its rows have the features of an owner's row"),
        (owned, public, "of the owners' rows have the features of a row of it"),
    ):
        known = Counter(those)
        share = sum(row in known for row in these) / len(these)
        # Rows of few codes recur: a fresh row is known with the chance of one less the share seen once.
        chance = 1.0 - sum(count == 1 for count in known.values()) / len(those)
        most = chance + _SHARED * (1.0 - chance)
        if not reason and (share > most or share == 1.0):
            reason = f"{share:.1%} {said}, where at most {most:.1%} may"
            if share == 1.0 and these is public:
                reason = "every row of it is a row of an owner"
        largest = max(largest, share)
    return largest, reason
