"""``fastadmm inspect``: what is in a file, partition, directory of owners, model or run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    tell(as_json, plain(found), lambda: _view(found), **how)


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


_TITLES = {
    "party": "Party {name}",
    "labels": "Labels",
    "partition": "Partition {path}",
    "owner": "Owner {name}",
    "owners": "Owners of rows {path}",
    "run": "Run {path}",
    "model": "Model {path}",
    "hdf5": "{encoding} {version}",
}

#: What programs need, and what titles, sentences and tables of their own say.
_LEFT_OUT = ("kind", "path", "digest", "content_digest", "certificate", "config", "environment", "privacy")

#: What of a party or an owner only its own file is asked for.
_NARROW = ("in memory", "row digest", "private constants", "recipe", "task", "checked", "samples")


def _text(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value)) or "none"
    return f"{value:.6g}" if isinstance(value, float) else cell(value)


def _told(found: dict[str, Any]) -> dict[str, Any]:
    """An object by what its keys are called: sizes in units, and what belongs together in one text."""
    from fastadmm.settings.checks import format_bytes

    told: dict[str, Any] = {}
    for key, value in found.items():
        label = str(key).removeprefix("n_").replace("_", " ")
        if key == "counts":
            pairs = zip(told.pop("classes"), value)
            told |= {f"class {i}": f"{_text(name)}: {count:,}" for i, (name, count) in enumerate(pairs)}
        elif key == "transform":
            steps = [step for step in ("center", "scale") if value[step]]
            told[label] = steps + ([] if value["normalize"] == "none" else [f"rows {value['normalize']}"])
        elif key == "shards":
            told[label] = [f"{shard['path']} ({shard['n_samples']:,} rows)" for shard in value]
        elif key == "dtype" and "storage" in told:
            told["storage"] += f" {value}"
        elif key in ("memory_bytes", "file_bytes"):
            told["in memory" if key == "memory_bytes" else "on disk"] = format_bytes(value)
        elif key not in _LEFT_OUT:
            told[label] = _told(value) if isinstance(value, dict) else value
    return told


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value)


def _scalars(told: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What is no table, the keys of inner objects after a dot."""
    for key, value in told.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{inner}", item) for inner, item in _scalars(value))
        elif not _is_table(value):
            yield str(key), value


def _tables(found: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Lists of objects, wherever they are."""
    for key, value in found.items():
        if isinstance(value, dict) and key not in _LEFT_OUT:
            yield from _tables(value)
        elif key != "shards" and _is_table(value) and all(isinstance(item, dict) for item in value):
            yield value


def _facts(title: str, rows: Iterable[tuple[str, Any]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(printable(title)), title_justify="left", show_header=False, box=None)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in rows:
        table.add_row(Text(printable(key)), Text(_text(value)))
    return table


def _grid(table: list[dict[str, Any]]) -> Table:
    rows = [_told(row) for row in table]
    keys = {key: value for row in rows for key, value in row.items()}
    columns = [key for key, value in keys.items() if key not in _NARROW and not isinstance(value, dict)]
    return grid("", columns, ([_text(row.get(key)) for key in columns] for row in rows), simple=True)


def _view(found: dict[str, Any]) -> Iterator[Table | str]:
    """Tables and sentences about a path: single values, each list, and what a run or a model guarantees."""
    from fastadmm.privacy.published import KEPT_BACK, is_private

    told = _told(found)
    if found.get("result"):
        del told["last round"]
    if is_private(None, found.get("config")):
        told["not to be handed on"] = KEPT_BACK
    yield _facts(_TITLES[found["kind"]].format_map(found), _scalars(told))
    parts: list[dict[str, Any]] = []
    for table in _tables(found):
        parts = table
        if "kind" not in table[0]:
            yield _grid(table)
            continue
        for file in table:
            yield _facts(file["file"], [])
            yield from _view(file)
    for part in parts:
        if constants := part.get("private_constants"):
            said = f"{', '.join(constants)}: computed from its rows, so no epsilon is proved"
            yield _text(f"{part['name']}: {said}")
    if parts and parts[0].get("checked"):
        yield "All rows were read; checksums and digests agree."
    statement = found.get("privacy") or (found.get("model") or {}).get("privacy")
    if statement is not None:
        from fastadmm.files.atomic import shown
        from fastadmm.privacy.statement import PrivacyStatement

        known = PrivacyStatement.from_json(statement, f"{shown(found['path'])}: privacy")
        yield _facts("Privacy", known.table())
    if found.get("config"):
        yield _facts("Configuration", _scalars(found["config"]))
