"""Where a partition goes, and what is in it: checked before anything is read."""

from __future__ import annotations

import os
from pathlib import Path

from fastadmm.errors import ConfigError, StorageError
from fastadmm.files.atomic import refuse_parent, shown, storage_errors


def check_out(out: str | Path, force: bool) -> None:
    """Refuse early what the store would refuse only after reading everything."""
    with storage_errors(out):
        if not force and os.path.lexists(out) and not (os.path.isdir(out) and not os.listdir(out)):
            raise StorageError(f"{shown(out)}: exists already; choose another name or pass --force")
        refuse_parent(out)


#: What options may be.
_CHOICES = {
    "normalize": ("none", "l2"),
    "dtype": ("float64", "float32"),
    "task": ("auto", "classification", "regression"),
    "storage": ("auto", "dense", "csr"),
    "format": ("auto", "libsvm", "csv", "npz"),
    "overlap": ("refuse", "count"),
}


def check_choices(**options: str | None) -> None:
    """Refuse a value that an option does not have."""
    for option, value in options.items():
        if value is not None and value not in _CHOICES[option]:
            raise ConfigError(f"--{option} {value!r}: choose one of {', '.join(_CHOICES[option])}")
