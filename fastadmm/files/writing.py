"""Write whole small JSON and TOML files, completely or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastadmm.files.atomic import atomic_file

__all__ = ["write_json", "write_toml"]


def write_json(path: Path, document: Mapping[str, Any], *, force: bool = True) -> None:
    """Write a JSON document; it holds no infinity and no NaN.

    Parameters
    ----------
    path : Path
    document : mapping
    force : bool
        Whether an existing file may be replaced.

    Raises
    ------
    StorageError
        If it cannot be written, or exists and may not be replaced.
    """
    with atomic_file(path, force=force) as temporary:
        temporary.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def write_toml(path: Path, document: Mapping[str, Any], *, force: bool = True) -> None:
    """Write a TOML document.

    Parameters
    ----------
    path : Path
    document : mapping
    force : bool
        Whether an existing file may be replaced.

    Raises
    ------
    StorageError
        If it cannot be written, or exists and may not be replaced.
    """
    import tomli_w

    with atomic_file(path, force=force) as temporary:
        temporary.write_text(tomli_w.dumps(document), encoding="utf-8")
