"""Checkpoints, which appear by one rename: the coordinator's state, and each party's weights, in files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.engine.spilled import let_go
from fastadmm.errors import FormatError, InputError
from fastadmm.files.atomic import atomic_directory, shown, storage_errors
from fastadmm.files.reading import retried
from fastadmm.files.seal import check_files, damaged, digest_of_files
from fastadmm.runs.folder import document_in
from fastadmm.solver.run import Run
from fastadmm.store.elements import array_dataset, read_array, read_attribute, require_group, write_array
from fastadmm.store.h5file import create_h5, h5_errors, read_h5, refuse_oversized, refuse_packed

_COORDINATOR = "coordinator.h5"
_DIGESTS = "digests.json"
_ROWS = "fastadmm-rows-checkpoint"

#: Where messages are in what a solver exports.
MESSAGES = ("messages", "directions/messages")

#: Arrays that have a line of their own for each of several numbers of a row; all others have one dimension.
_LINES = (*MESSAGES, "witness", "asked", "asked_images")

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
                file.attrs["name"], file.attrs["round"] = name, solver.n_rounds
                write_tree(file, dict(arrays))
        digests = digest_of_files(temporary) | solver.write_rows(partial(_write_rows, temporary))
        (temporary / _DIGESTS).write_text(json.dumps(digests, indent=2) + "\n", encoding="utf-8")


def _write_rows(
    directory: Path, rank: int, rows: tuple[int, int], arrays: dict[str, np.ndarray]
) -> dict[str, str]:
    """Write what one of several workers has of the state, in a file of its own."""
    name = f"rows-{rank:05d}.h5"
    with create_h5(directory / name, _ROWS) as file:
        file.attrs["start"], file.attrs["stop"] = rows
        for key, values in arrays.items():
            write_array(file, key, values.reshape(-1, rows[1] - rows[0]))
    return digest_of_files(directory, name)


@dataclass(frozen=True)
class Rows:
    """What of a checkpoint has a number for each row: in the coordinator's file, or in those of workers."""

    path: Path  # of the checkpoint
    digests: dict[str, str]  # of its files
    keys: tuple[str, ...]  # paths inside the method's state

    def read(
        self, start: int, stop: int, n_rows: int, place: Callable[[int], np.ndarray | None]
    ) -> dict[str, np.ndarray]:
        """Some rows of every array that is there; ``place`` has room for so many messages, or is nowhere."""
        parts: list[dict[str, np.ndarray]] = []
        reached, held = start, None

        def take(group: Any, ends: tuple[int, int], last: int) -> None:
            """Rows up to the last one, of the rows between these ends that a group has."""
            nonlocal reached, held
            found = {}
            for key in filter(group.__contains__, self.keys):
                item, out = array_dataset(group, key), None
                if key in MESSAGES:
                    held = place(item.shape[0]) if held is None else held
                    out = None if held is None else held[: item.shape[0], reached - start : last - start]
                rows = slice(reached - ends[0], last - ends[0])
                found[key] = _columns(group, key, item, ends[1] - ends[0], rows, out)
            parts.append(found)
            reached = last

        for path in sorted(self.path.glob("rows-*.h5")):
            with read_h5(path, _ROWS) as file:
                ends = read_attribute(file, "start", int), read_attribute(file, "stop", int)
                if ends[0] <= reached < min(stop, ends[1]):
                    check_files(self.path, {path.name: self.digests[path.name]})
                    take(file, ends, min(stop, ends[1]))
        if not parts:
            with read_h5(self.path / _COORDINATOR, "fastadmm-checkpoint") as file:
                take(require_group(file, "method"), (0, n_rows), stop)
        if reached != stop or any(part.keys() != parts[0].keys() for part in parts):
            raise FormatError(f"{shown(self.path)}: what workers wrote does not have all rows; damaged")
        whole = {}
        for key in sorted(parts[0]):
            own = [part.pop(key) for part in parts]
            if key in MESSAGES and held is not None:
                whole[key] = held
                continue
            together = own[0] if len(own) == 1 else np.concatenate(own, axis=1)
            whole[key] = together if key in _LINES else together.reshape(-1)
        return whole


def _columns(group: Any, key: str, item: Any, width: int, own: slice, out: np.ndarray | None) -> np.ndarray:
    """Some columns of an array whose last axis is so long, or of a flat one.

    To a place they are read chunk by chunk: they may be larger than memory.
    """
    file = shown(group.file.filename)
    refuse_packed(item)
    if out is None:
        if item.size == 0 or own == slice(0, width):
            return read_array(group, key)
        if item.size % width:
            raise FormatError(f"{file}: key {key!r}: {item.shape[-1]} rows instead of {width}")
        if item.ndim == 1 or item.shape[1] != width:
            return read_array(group, key).reshape(-1, width)[:, own]
        with h5_errors(group.file.filename, key):
            return np.asarray(item[:, own])
    refuse_oversized(item)
    if item.shape != (len(out), width) or item.dtype.kind != "f":
        raise FormatError(f"{file}: key {key!r}: shape {item.shape} instead of {(len(out), width)}")
    step = item.chunks[0] if item.chunks else 1
    for k in range(0, len(out), step):
        with h5_errors(group.file.filename, key):
            out[k : k + step] = item[k : k + step, own]
        let_go(out)
    return out


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
                place = f"{shown(path / name)}.h5"
                raise FormatError(f"{place}: attribute 'round' differs from the coordinator's")
            tree = read_tree(file).items()
            parties.append({key: value for key, value in tree if isinstance(value, np.ndarray)})
    with fitting(path):
        solver.restore({**saved, "rows": Rows(path, digests, keys)} if keys else saved, parties)


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Say of which checkpoint it is what a run cannot go on from."""
    with damaged(path, "train anew", "a part is missing, or not of this problem's shape"):
        try:
            yield
        except (InputError, FormatError) as error:
            raise type(error)(f"{shown(path)}: {error}") from None


def _check_digests(path: Path) -> dict[str, str]:
    """Check all files but those of workers, and return what was written of each."""
    listed = path / _DIGESTS
    digests = document_in(listed)
    if digests is None:
        return {}
    if not digests or {*map(type, digests.values())} != {str}:
        raise FormatError(f"{shown(listed)}: damaged: not a table of texts")
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
        elif key not in but:
            refuse_packed(array_dataset(group, key))  # no state is: a small file is read in a short time
            tree[key] = read_array(group, key)
    return tree
