"""Where a partition goes: checked before anything is read."""

from __future__ import annotations

import os
from pathlib import Path

from fastadmm.errors import StorageError
from fastadmm.files.atomic import refuse_parent, shown, storage_errors


def check_out(out: str | Path, force: bool) -> None:
    """Refuse early what the store would refuse only after reading everything."""
    with storage_errors(out):
        if not force and os.path.lexists(out) and not (os.path.isdir(out) and not os.listdir(out)):
            raise StorageError(f"{shown(out)}: exists already; choose another name or pass --force")
        refuse_parent(out)
