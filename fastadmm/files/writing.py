"""Write whole small JSON and TOML files, completely or not at all."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastadmm.files.atomic import atomic_file


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document, over an existing file too; it holds no infinity and no NaN."""
    _write(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def write_toml(path: Path, document: Mapping[str, Any]) -> None:
    """Write a TOML document."""
    import tomli_w

    _write(path, tomli_w.dumps(document))


def _write(path: Path, text: str) -> None:
    with atomic_file(path, force=True) as temporary:
        temporary.write_text(text, encoding="utf-8")
