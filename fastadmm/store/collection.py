"""A directory with one file per owner and ``owners.toml``, which says how often a record can occur."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import FormatError, InputError, StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.reading import read_toml
from fastadmm.files.seal import check_seal, refuse_unknown
from fastadmm.store.h5file import check_version
from fastadmm.store.manifest import get_key
from fastadmm.store.owner_file import OwnerFile, open_owner
from fastadmm.store.party_file import check_party_name

MANIFEST = "owners.toml"
_KEYS = ("format", "version", "owners", "kappa", "repeated_records", "sources", "public_share", "digest")
FORMAT = "fastadmm-owners"
#: 1.1: says how many rows a public file and the owners have in common.
VERSIONS = ("1.0", "1.1")


@dataclass(frozen=True, eq=False)
class Owners:
    """Owners of rows with the same features. Made by :func:`open_owners`."""

    path: Path
    owners: list[OwnerFile]  # in the order of the manifest
    kappa: int  # largest number of owners of one record; every budget is divided by it
    task: str
    classes: tuple[str, ...] | None  # original labels of -1 and 1
    public_share: float | None = None

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
    names, kappa = get_key(values, "owners", list, place), get_key(values, "kappa", int, place)
    share = None if "public_share" not in values else get_key(values, "public_share", float, place)
    # One record cannot be with more owners than there are.
    if values.get("format") != FORMAT or not 1 <= kappa <= len(names):
        what = f"format {values.get('format')!r}, {len(names)} owners, kappa {kappa}"
        raise FormatError(f"{place}: damaged ({what}); convert again")
    for name in names:
        check_party_name(name, f"{shown(manifest)}: key 'owners'", FormatError)
    # kappa divides every budget: a flipped bit there would claim more privacy than there is.
    refuse_unknown(values, _KEYS, shown(manifest))
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
    return Owners(Path(path), owners, kappa, first.task, first.classes, share)


DIGEST_BYTES = 16

#: Share of rows that public rows and the owners' may have in common beyond what chance would give.
_SHARED = 0.1


def record_digests(X: Any, labels: Sequence[str] | None = None) -> list[bytes]:
    """A digest of every record, however it is stored. Shapes: X (N, d)."""
    from scipy.sparse import csr_array

    X = csr_array(X)  # makes one, or takes it as it is
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()  # which sorts as well
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
