"""Checkpoints, which appear by one rename: the coordinator's state, and each party's weights, in files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.engine.spilled import let_go
from fastadmm.errors import FormatError, InputError
from fastadmm.files.atomic import atomic_directory, shown, storage_errors
from fastadmm.files.reading import read_json, retried
from fastadmm.files.seal import check_files, digest_of_files
from fastadmm.solver.run import Run
from fastadmm.store.elements import array_dataset, read_array, read_attribute, require_group, write_array
from fastadmm.store.h5file import create_h5, h5_errors, read_h5, refuse_oversized, refuse_packed

_COORDINATOR = "coordinator.h5"
_DIGESTS = "digests.json"
_ROWS = "fastadmm-rows-checkpoint"

#: Where messages are in what a solver exports.
MESSAGES = ("messages", "directions/messages")

#: Arrays of rows that have one dimension, also where there are several numbers for a row.
_FLAT = (
    *("total", "metric", "span_reference", "curvature", "repaired", "centre"),
    *("z", "u", "last_residual", "last_image"),
)

#: The newest checkpoint and one to fall back to, should the newest be damaged.
_KEEP = 2


@dataclass(frozen=True)
class Subject:
    """What a checkpoint is of."""

    run: str  # identifier of the run
    problem: str  # digest of the settings that decide what is computed, and of the data


def write_checkpoint(directory: Path, solver: Run, subject: Subject) -> Path:
    """Save the state of a solver after its last round."""
    with storage_errors(directory):
        directory.mkdir(mode=0o700, exist_ok=True)
    target = directory / f"round-{solver.n_rounds:08d}"
    if target.exists():
        return target
    retried(lambda: _write(target, solver, subject))
    for old in checkpoints(directory)[:-_KEEP]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def _write(target: Path, solver: Run, subject: Subject) -> None:
    with atomic_directory(target) as temporary:
        with create_h5(temporary / _COORDINATOR, "fastadmm-checkpoint") as file:
            write_tree(file, solver.export())
            file.attrs["run"], file.attrs["problem"] = subject.run, subject.problem
        for name, arrays in zip(solver.problem.names, solver.export_parties()):
            with create_h5(temporary / f"{name}.h5", "fastadmm-party-checkpoint") as file:
                file.attrs["name"] = name
                file.attrs["round"] = solver.n_rounds
                write_tree(file, dict(arrays))
        digests = digest_of_files(temporary) | solver.write_rows(_Writer(temporary))
        (temporary / _DIGESTS).write_text(json.dumps(digests, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class _Writer:
    """Writes what one of several workers has of the state, in a file of its own."""

    directory: Path

    def __call__(self, rank: int, rows: tuple[int, int], arrays: dict[str, np.ndarray]) -> dict[str, str]:
        name = f"rows-{rank:05d}.h5"
        with create_h5(self.directory / name, _ROWS) as file:
            file.attrs["start"], file.attrs["stop"] = rows
            for key, values in arrays.items():
                write_array(file, key, values.reshape(-1, rows[1] - rows[0]))
        return digest_of_files(self.directory, name)


@dataclass(frozen=True)
class Rows:
    """What of a checkpoint has a number for each row: in the coordinator's file, or in those of workers."""

    path: Path  # of the checkpoint
    digests: dict[str, str]  # of its files
    keys: tuple[str, ...]  # paths inside the method's state

    def read(
        self, start: int, stop: int, n_rows: int, place: Callable[[int], np.ndarray | None]
    ) -> dict[str, np.ndarray]:
        """Some rows of every array that is there."""
        parts, reached, held = [], start, _Held(start, place)
        for path in sorted(self.path.glob("rows-*.h5")):
            with read_h5(path, _ROWS) as file:
                ends = read_attribute(file, "start", int), read_attribute(file, "stop", int)
                first, last = max(start, ends[0]), min(stop, ends[1])
                if first < last and first == reached:
                    check_files(self.path, {path.name: self.digests[path.name]})
                    parts.append(self._arrays(file, ends, (first, last), held))
                    reached = last
        if not parts:
            with read_h5(self.path / _COORDINATOR, "fastadmm-checkpoint") as file:
                parts.append(self._arrays(require_group(file, "method"), (0, n_rows), (start, stop), held))
                reached = stop
        if reached != stop or any(part.keys() != parts[0].keys() for part in parts):
            raise FormatError(f"{shown(self.path)}: what workers wrote does not have all rows; damaged")
        found = {}
        for key in sorted(parts[0]):
            own = [part.pop(key) for part in parts]
            if key in MESSAGES and held.rows is not None:
                found[key] = held.rows
                continue
            together = own[0] if len(own) == 1 else np.concatenate(own, axis=1)
            found[key] = together.reshape(-1) if key.rpartition("/")[2] in _FLAT else together
        return found

    def _arrays(
        self, group: Any, ends: tuple[int, int], rows: tuple[int, int], held: _Held
    ) -> dict[str, np.ndarray]:
        own, width, found = slice(rows[0] - ends[0], rows[1] - ends[0]), ends[1] - ends[0], {}
        for key in self.keys:
            if key in group:
                there = held.of(group, key, rows) if key in MESSAGES else None
                if there is None:
                    found[key] = _columns(group, key, width, own)
                else:
                    _read_rows(group, key, width, own, there)
                    found[key] = there
        return found


class _Held:
    """Where messages are read to, once it is known how many there are."""

    def __init__(self, start: int, place: Callable[[int], np.ndarray | None]) -> None:
        self.start, self.place = start, place
        self.rows: np.ndarray | None = None

    def of(self, group: Any, key: str, rows: tuple[int, int]) -> np.ndarray | None:
        """Their place for some rows of all."""
        count = array_dataset(group, key).shape[0]
        if self.rows is None:
            self.rows = self.place(count)
        if self.rows is None:
            return None
        return self.rows[:count, rows[0] - self.start : rows[1] - self.start]


def _read_rows(group: Any, key: str, width: int, own: slice, out: np.ndarray) -> None:
    """Read columns of an array whose last axis is so long, chunk by chunk: it may be larger than memory."""
    item = array_dataset(group, key)
    refuse_packed(item)
    refuse_oversized(item)
    if item.shape != (len(out), width) or item.dtype.kind != "f":
        place = f"{shown(group.file.filename)}: key {key!r}"
        raise FormatError(f"{place}: shape {item.shape} instead of {(len(out), width)}")
    step = item.chunks[0] if item.chunks else 1
    for k in range(0, len(out), step):
        with h5_errors(group.file.filename, key):
            out[k : k + step] = item[k : k + step, own]
        let_go(out)


def _columns(group: Any, key: str, width: int, own: slice) -> np.ndarray:
    """Some columns of an array whose last axis is so long, or of a flat one."""
    item = array_dataset(group, key)
    refuse_packed(item)
    if item.size == 0 or own == slice(0, width):
        return read_array(group, key)
    if item.size % width:
        place = f"{shown(group.file.filename)}: key {key!r}"
        raise FormatError(f"{place}: {item.shape[-1]} rows instead of {width}")
    if item.ndim == 1 or item.shape[1] != width:
        return read_array(group, key).reshape(-1, width)[:, own]
    with h5_errors(group.file.filename, key):
        return np.asarray(item[:, own])


def checkpoints(directory: Path) -> list[Path]:
    """Whole checkpoints in ``directory``, oldest first."""
    return sorted(directory.glob("round-*")) if directory.is_dir() else []


def restore_checkpoint(path: Path, solver: Run, subject: Subject) -> None:
    """Put a solver into the saved state."""
    digests = _check_digests(path)
    keys = getattr(getattr(solver, "method", None), "row_keys", ())
    with read_h5(path / _COORDINATOR, "fastadmm-checkpoint") as file:
        saved = read_tree(file, [f"method/{key}" for key in keys])
        n_rounds = read_attribute(file, "n_rounds", int)
    found = Subject(saved.pop("run", subject.run), saved.pop("problem", subject.problem))
    if found != subject:
        what = "another run" if found.run != subject.run else "other settings or data than this run's"
        raise InputError(f"{shown(path)}: a checkpoint of {what}; nothing is gone on from: train anew")
    parties = []
    for name in solver.problem.names:
        with read_h5(path / f"{name}.h5", "fastadmm-party-checkpoint") as file:
            if read_attribute(file, "round", int) != n_rounds:
                raise FormatError(
                    f"{shown(path / name)}.h5: attribute 'round' differs from the coordinator's"
                )
            tree = read_tree(file)
            parties.append({key: value for key, value in tree.items() if isinstance(value, np.ndarray)})
    try:
        solver.restore({**saved, "rows": Rows(path, digests, keys)} if keys else saved, parties)
    except InputError as error:
        raise InputError(f"{shown(path)}: {error}") from None
    except (KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        # Files of a checkpoint lack something, or are of another problem: which file is not known here.
        raise FormatError(f"{shown(path)}: {error}: missing, or not of this problem's shape") from None


def _check_digests(path: Path) -> dict[str, str]:
    """Check all files but those of workers, and return what was written of each."""
    listed = path / _DIGESTS
    with storage_errors(listed, "read"):
        if not listed.exists():
            return {}
        try:
            digests = read_json(listed)
            if not digests or not all(isinstance(text, str) for item in digests.items() for text in item):
                raise ValueError("not a table of texts")
        except FormatError:  # names the file itself
            raise
        except (ValueError, AttributeError, TypeError) as error:
            raise FormatError(f"{shown(listed)}: damaged: {error}") from None
    check_files(path, {name: told for name, told in digests.items() if not name.startswith("rows-")})
    return digests


def write_tree(group: Any, tree: dict[str, Any]) -> None:
    """Write nested dictionaries of arrays and scalars into an HDF5 group."""
    for key, value in tree.items():
        if isinstance(value, dict):
            write_tree(group.create_group(key), value)
        elif isinstance(value, np.ndarray):
            write_array(group, key, value)
        else:
            group.attrs[key] = value


def read_tree(group: Any, but: Sequence[str] = ()) -> dict[str, Any]:
    """Inverse of :func:`write_tree`."""
    tree: dict[str, Any] = {
        key: value.item() if hasattr(value, "item") else value
        for key, value in group.attrs.items()
        if not key.startswith("encoding-")
    }
    for key, member in group.items():
        if not hasattr(member, "shape"):
            inner = [path.removeprefix(f"{key}/") for path in but if path.startswith(f"{key}/")]
            tree[key] = read_tree(require_group(group, key), inner)
            continue
        if key in but:
            continue
        refuse_packed(array_dataset(group, key))  # no state is: a small file is read in a short time
        tree[key] = read_array(group, key)
    return tree
