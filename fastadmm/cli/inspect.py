"""``fastadmm inspect``: what is in a file, partition, directory of owners, model or run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastadmm.cli.app import app
from fastadmm.cli.options import JSON, argument, flag
from fastadmm.cli.tables import show
from fastadmm.cli.terminal import print_json
from fastadmm.files.escapes import printable

if TYPE_CHECKING:
    from rich.console import RenderableType


@app.command()
def inspect(
    path: Path = argument("A .h5 file, partition, directory of owners, model or run."),
    as_json: bool = JSON,
    check: bool = flag("Read all data and verify their digests.", "--check"),
) -> None:
    """Show the contents of a file, partition, directory of owners, model or run."""
    from fastadmm.cli.describe import describe

    found = describe(path, check=check)
    if as_json:
        # default=str: TOML has dates. Strict JSON has no NaN: they become null.
        options: Any = {"indent": 2, "default": str, "allow_nan": False, "ensure_ascii": False}
        print_json(_strict(found), **options)
        return
    show(*_VIEWS[found["kind"]](found))


#: Coefficients of a party's model file that are shown.
_LARGEST = 10


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    if isinstance(value, float) and value - value != 0.0:  # NaN and infinities
        return None
    return value


# --- tables ------------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value)
    text = str(value)
    # Names come from the user's data: control characters must not reach the terminal.
    return printable(text)


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _facts(title: str, rows: Iterable[tuple[str, Any]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(_text(title)), title_justify="left", show_header=False, box=None)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in rows:
        table.add_row(Text(_text(key)), Text(_text(value)))
    return table


def _grid(header: list[str], rows: Iterable[list[Any]]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for i, name in enumerate(header):
        table.add_column(name, overflow="fold", justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*(Text(_text(value)) for value in row))
    return table


def _transform(transform: dict[str, Any]) -> str:
    steps = [key for key in ("center", "scale") if transform[key]]
    if transform["normalize"] != "none":
        steps.append(f"rows {transform['normalize']}")
    return ", ".join(steps) or "none"


def _view_party(found: dict[str, Any]) -> Iterable[RenderableType]:
    yield _facts(
        f"Party {found['name']}",
        [
            ("samples", found["n_samples"]),
            ("features", found["n_features"]),
            ("storage", f"{found['storage']} {found['dtype']}"),
            ("non-zeros", found["nnz"]),
            ("density", found["density"]),
            ("in memory", _size(found["memory_bytes"])),
            ("on disk", _size(found["file_bytes"])),
            ("transform", _transform(found["transform"])),
            ("computed from its rows", ", ".join(found["private_constants"]) or "nothing"),
            ("first features", found["first_features"]),
            ("row digest", found["row_digest"]),
            ("digests checked", found["checked"]),
        ],
    )


def _label_rows(found: dict[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = [("task", found["task"])]
    if "classes" in found:
        rows += [
            (f"class {i}", f"{_text(name)}: {count:,}")
            for i, (name, count) in enumerate(zip(found["classes"], found["counts"]))
        ]
    else:
        rows += [(key, found[key]) for key in ("mean", "min", "max")]
    return [*rows, ("sample weights", found["sample_weight"]), ("offset", found["offset"])]


def _view_labels(found: dict[str, Any]) -> Iterable[RenderableType]:
    rows = [("samples", found["n_samples"]), *_label_rows(found), ("row digest", found["row_digest"])]
    yield _facts("Labels", rows)


def _view_partition(found: dict[str, Any]) -> Iterable[RenderableType]:
    from rich.text import Text

    rows = [("samples", found["n_samples"]), ("features", found["n_features"]), ("source", found["source"])]
    if shard := found.get("shard"):
        first, last = shard["rows"]
        rows.insert(
            1, ("shard", f"{shard['number']} of {shard['of']}: rows {first} to {last} of {shard['all_rows']}")
        )
    if shards := found.get("shards"):
        rows.insert(1, ("shards", ", ".join(f"{s['path']} ({s['n_samples']:,} rows)" for s in shards)))
    labels = found["labels"]
    rows += _label_rows(labels) if labels else [("task", found["task"]), ("labels", "none")]
    yield _facts(f"Partition {found['path']}", [*rows, ("row digest", found["row_digest"])])
    yield _grid(
        ["party", "features", "storage", "non-zeros", "density", "on disk", "transform", "file"],
        [
            [
                party["name"],
                party["n_features"],
                f"{party['storage']} {party['dtype']}",
                party["nnz"],
                party["density"],
                _size(party["file_bytes"]),
                _transform(party["transform"]),
                party["file"],
            ]
            for party in found["parties"]
        ],
    )
    for party in found["parties"]:
        if constants := party["private_constants"]:
            said = f"{', '.join(constants)}: computed from its rows, so no epsilon is proved"
            yield Text(_text(f"{party['name']}: {said}"))
    if found["parties"][0]["checked"]:
        yield "All digests agree."


def _target_rows(found: dict[str, Any]) -> list[tuple[str, Any]]:
    counts = zip(found.get("classes", ()), found.get("counts", ()))
    rows = [(f"class {_text(name)}", n) for name, n in counts]
    return [("task", found["task"]), *(rows or [(key, found[key]) for key in ("mean", "min", "max")])]


def _view_owner(found: dict[str, Any]) -> Iterable[RenderableType]:
    yield _facts(
        f"Owner {found['name']}",
        [
            ("samples", found["n_samples"]),
            ("features", found["n_features"]),
            ("storage", found["storage"]),
            ("in memory", _size(found["memory_bytes"])),
            ("on disk", _size(found["file_bytes"])),
            *_target_rows(found),
            ("public scaling", found["recipe"] or "none"),
            ("first features", found["first_features"]),
            ("all rows read", found["checked"]),
        ],
    )


def _view_owners(found: dict[str, Any]) -> Iterable[RenderableType]:
    first, kappa, share = found["owners"][0], found["kappa"], found["public_share"]
    yield _facts(
        f"Owners of rows {found['path']}",
        [
            ("samples", found["n_samples"]),
            ("features", found["n_features"]),
            ("task", found["task"]),
            ("classes", first.get("classes")),
            ("a record occurs with", "one owner" if kappa == 1 else f"up to {kappa} owners"),
            ("public scaling", first["recipe"] or "none"),
            ("public rows equal to owners'", None if share is None else f"{share:.1%}"),
            ("source", found["sources"]),
        ],
    )
    counts = [f"of class {_text(name)}" for name in first.get("classes", [])]
    yield _grid(
        ["owner", "samples", *counts, "storage", "on disk", "file"],
        [
            [
                owner["name"],
                owner["n_samples"],
                *owner.get("counts", []),
                owner["storage"],
                _size(owner["file_bytes"]),
                owner["file"],
            ]
            for owner in found["owners"]
        ],
    )
    if first["checked"]:
        yield "All rows were read; checksums agree."


def _scalars(table: Any) -> list[tuple[str, Any]]:
    if not isinstance(table, dict):
        return []
    rows: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            rows += [(f"{key}.{inner}", item) for inner, item in _scalars(value)]
        elif not (isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value)):
            rows.append((str(key), value))
    return rows


def _without_privacy(result: Any) -> Any:
    left = ("privacy", "certificate")  # the claim is said in a line
    return {k: v for k, v in result.items() if k not in left} if isinstance(result, dict) else result


def _view_run(found: dict[str, Any]) -> Iterable[RenderableType]:
    from fastadmm.privacy.published import KEPT_BACK, is_private

    result, last = found["result"], found["last_round"]
    rows = [("status", found["status"]), *([("claim", found["claim"])] if found["claim"] else [])]
    rows += [(key, value) for key, value in _scalars(_without_privacy(result)) if key != "status"]
    if result is None:
        rows += [(f"last round: {key}", value) for key, value in _scalars(last)]
    rows += [
        ("checkpoints", found["checkpoints"]),
        ("model", found["has_model"]),
        ("report", found["has_report"]),
    ]
    if is_private(None, found["config"]):
        rows.append(("not to be handed on", KEPT_BACK))
    yield _facts(f"Run {found['path']}", rows)
    parties = (result or {}).get("parties")
    if isinstance(parties, list) and all(isinstance(party, dict) for party in parties):
        columns = {"name": "party", "n_features": "features", "weight_norm": "weight norm", "file": "file"}
        if any("lambda" in party for party in parties):
            columns["lambda"] = "lambda"
        yield _grid([*columns.values()], [[party.get(key) for key in columns] for party in parties])
    yield from _privacy(found["privacy"], found["path"])
    if found["config"]:
        yield _facts("Configuration", _scalars(found["config"]))


def _privacy(statement: Any, path: str) -> Iterable[RenderableType]:
    """What a run or a model guarantees; a file older than statements has none."""
    if statement is not None:
        from fastadmm.files.atomic import shown
        from fastadmm.privacy.statement import PrivacyStatement

        yield _facts("Privacy", PrivacyStatement.from_json(statement, f"{shown(path)}: privacy").table())


def _view_hdf5(found: dict[str, Any]) -> Iterable[RenderableType]:
    yield _facts(f"{found['encoding']} {found['version']}", found["attributes"].items())
    yield _grid(
        ["key", "encoding", "shape", "dtype"],
        [[item["key"], item["encoding"], item.get("shape"), item.get("dtype")] for item in found["elements"]],
    )
    rows = found.get("coefficients", {}).get("coefficients", [])
    if rows:
        shown = sorted(rows, key=lambda row: -abs(row["scaled_weight"]))[:_LARGEST]
        names = [name for name in rows[0] if name not in ("party", "ratio", "ratio_to_reference")]
        yield _grid(names, [[row[name] for name in names] for row in shown])
        if len(rows) > len(shown):
            yield f"{len(rows) - len(shown)} more: fastadmm coefficients"


def _view_model(found: dict[str, Any]) -> Iterable[RenderableType]:
    manifest = {key: value for key, value in (found["model"] or {}).items() if key != "privacy"}
    claim = [("claim", found["claim"])] if found["claim"] else []
    yield _facts(f"Model {found['path']}", [*claim, *_scalars(manifest)])
    yield from _privacy((found["model"] or {}).get("privacy"), found["path"])
    for file in found["files"]:
        yield _facts(file["file"], [])
        yield from _VIEWS[file["kind"]](file)


_VIEWS: dict[str, Callable[[dict[str, Any]], Iterable[Any]]] = {
    "party": _view_party,
    "labels": _view_labels,
    "partition": _view_partition,
    "owner": _view_owner,
    "owners": _view_owners,
    "run": _view_run,
    "model": _view_model,
    "hdf5": _view_hdf5,
}
