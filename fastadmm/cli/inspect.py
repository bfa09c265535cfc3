"""``fastadmm inspect``: what is in a file, partition, directory of owners, model or run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastadmm.cli.app import app
from fastadmm.cli.options import JSON, argument, flag
from fastadmm.cli.terminal import cell, grid, tell
from fastadmm.files.escapes import printable

if TYPE_CHECKING:
    from rich.table import Table


@app.command()
def inspect(
    path: Path = argument("A .h5 file, partition, directory of owners, model or run."),
    as_json: bool = JSON,
    check: bool = flag("Read all data and verify their digests.", "--check"),
) -> None:
    """Show the contents of a file, partition, directory of owners, model or run."""
    from fastadmm.cli.describe import describe
    from fastadmm.files.atomic import plain

    found = describe(path, check=check)
    # Strict JSON has no NaN: they become null. TOML has dates, HDF5 bytes.
    how: dict[str, Any] = {"default": _as_text, "allow_nan": False, "ensure_ascii": False}
    tell(as_json, plain(found), lambda: _view(found, check), **how)


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


#: Keys that are shown by what they mean.
_SAID = {"private_constants": "computed from its rows, so no epsilon is proved"}


def _view(found: dict[str, Any], check: bool) -> Iterator[Table | str]:
    """All that was found, with the statement of privacy in words."""
    from fastadmm.cli.privacy import aligned
    from fastadmm.files.atomic import shown
    from fastadmm.privacy.published import KEPT_BACK, is_private
    from fastadmm.privacy.statement import PrivacyStatement

    held = [(found.get(part) or {}).pop("privacy", None) for part in ("result", "model")]
    statement = found.pop("privacy", None) or held[1]
    yield from _lines(found)
    if is_private(None, found.get("config")):
        yield f"not to be handed on: {KEPT_BACK}"
    if check and found["kind"] in ("party", "owner", "partition", "owners"):
        yield "All rows were read; checksums and digests agree."
    if statement is not None:
        known = PrivacyStatement.from_json(statement, f"{shown(found['path'])}: privacy")
        yield from aligned("privacy:", known.table())


def _lines(found: dict[str, Any], indent: str = "") -> Iterator[Table | str]:
    """A line for each value, further in for those of inner objects; a table for a list of objects."""
    for key, value in found.items():
        if isinstance(value, dict):
            yield f"{indent}{printable(str(key))}:"
            yield from _lines(value, f"{indent}  ")
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            # Inner objects and digests are for programs, or for the file itself.
            inner = (dict, list)
            plain = {k: None for row in value for k, v in row.items() if not isinstance(v, inner)}
            header = [k for k in plain if k != "checked" and not k.endswith("digest")]
            rows = ([_text(row.get(k)) for k in header] for row in value)
            yield grid(
                printable(f"{key}:"), [printable(k.replace("_", " ")) for k in header], rows, simple=True
            )
            for row in value:
                own = indent + printable(str(row.get("name", row.get("file"))))
                lists = {k: item for k, item in row.items() if isinstance(item, list) and item}
                for k, item in lists.items():
                    yield f"{own}: {_SAID.get(k, printable(str(k)))}: {_text(item)}"
        else:
            name = _SAID.get(key, key) if value else key
            yield f"{indent}{printable(str(name))}: {_text(value)}"


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    return cell(_as_text(value) if isinstance(value, bytes) else value)
