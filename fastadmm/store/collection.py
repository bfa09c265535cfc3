"""A directory with one file per owner and ``owners.toml``, which says how often a record can occur."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fastadmm.errors import FormatError, InputError, StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.reading import read_toml
from fastadmm.files.seal import check_seal, refuse_unknown
from fastadmm.store.h5file import check_version
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
    classes: tuple[str, str] | None  # original labels of -1 and 1
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
    values = read_toml(manifest)
    try:
        check_version(manifest, str(values["version"]), VERSIONS, "key 'version'")
        names, kappa = list(values["owners"]), int(values["kappa"])
        # One record cannot be with more owners than there are.
        share = None if "public_share" not in values else float(values["public_share"])
        if values["format"] != FORMAT or not 1 <= kappa <= len(names):
            raise ValueError(f"format {values['format']!r}, {len(names)} owners, kappa {kappa}")
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{shown(manifest)}: damaged ({error}); convert again") from None
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
        if (owner.task, owner.classes) != (first.task, first.classes):
            raise InputError(
                f"{shown(owner.path)}: targets differ in kind from those of {first.name!r}; convert together"
            )
        same = owner.recipe.keys() == first.recipe.keys() and all(
            (owner.recipe[key] == first.recipe[key]).all() for key in owner.recipe
        )
        if not same:
            raise InputError(f"{shown(owner.path)}: scaled differently from {first.name!r}; convert together")
    return Owners(Path(path), owners, kappa, first.task, first.classes, share)
