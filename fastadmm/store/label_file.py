"""The label holder's file: labels, their original names, optional weights and offsets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fastadmm.errors import InputError
from fastadmm.files.atomic import shown
from fastadmm.files.seal import refuse_unknown
from fastadmm.problem.targets import MAX_CLASSES
from fastadmm.store import elements as h5
from fastadmm.store.block_file import Writer
from fastadmm.store.encoder import CellReading
from fastadmm.store.h5file import h5_errors, read_h5

LABELS_TYPE = "fastadmm-labels"
#: 1.1: more than two classes; files with fewer are still written as 1.0.
LABELS_VERSIONS = ("1.0", "1.1")
TASKS = ("classification", "regression")
_COLUMNS = ("y", "sample_weight", "offset")
_KEYS = (*_COLUMNS, "obs")
_AT_ONCE = 1 << 18  # rows


def _fault(values: np.ndarray, key: str, n_classes: int | None, first_row: int = 0) -> str:
    """What is wrong with the first value that is not allowed, and its row (from 1); empty where all are."""
    bad, rule = ~np.isfinite(values), "is not finite; fill or drop missing values"
    if not bad.any() and key == "y" and n_classes is not None:
        bad = (values < 0.0) | (values != np.floor(values)) | (values >= n_classes)
        rule = f"is no class number from 0 to {n_classes - 1}"
        if n_classes == 2:
            rule = "is not 0 or 1; classification needs two classes, stored as 0 and 1"
    elif not bad.any() and key == "sample_weight":
        bad, rule = values < 0, "is negative; weights must be zero or positive"
    if not bad.any():
        return ""
    at = int(np.argmax(bad))
    return f"row {first_row + at + 1}: value {values[at]} {rule}"


def check_two_classes(labels: LabelData) -> None:
    """Refuse labels of one class, as a model is made of them."""
    used = labels.y if labels.sample_weight is None else labels.y[labels.sample_weight > 0.0]
    if labels.classes is not None and (used == used[0]).all():
        only = labels.classes[int(used[0])]
        raise InputError(
            f"{shown(labels.path)}: all {len(used)} labels are {only!r}: two classes are needed; add rows of "
            "another"
        )


def check_weights(total: float, path: str) -> None:
    """Refuse weights that are all zero."""
    if total <= 0:
        raise InputError(f"{path}: key 'sample_weight': all weights are zero; at least one must be positive")


def write_columns(writer: LabelWriter, labels: LabelData, ids: np.ndarray | None) -> None:
    """Write labels that are in memory to a label file, some at a time. Shapes: ids (N,)."""
    columns = {key: getattr(labels, key) for key in _COLUMNS} | {"ids": ids}
    for start in range(0, labels.n_samples, _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        writer.append(**{key: None if v is None else v[rows] for key, v in columns.items()})


class LabelWriter(Writer):
    """Writes the label file piece by piece, in constant memory; a context manager."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        task: str,
        classes: Sequence[str] | None = None,
        force: bool = False,
        public_path: str | os.PathLike[str] | None = None,
        reading: str = "",
        label_epsilon: float | None = None,
        exposure: bool = False,
    ) -> None:
        super().__init__(path, public_path)
        if task not in TASKS:
            raise InputError(f"{self._shown}: task {task!r} is not one of {', '.join(TASKS)}")
        self.task = task
        self._reading, self._exposure = reading, exposure
        self._epsilon = None if label_epsilon is None else float(label_epsilon)
        names = self._classes = None if classes is None else tuple(classes)
        place = f"{self._shown}: attribute 'classes'"
        if (names is None) != (task != "classification"):
            what = "regression has no classes" if names is not None else "not given; name the two classes"
            raise InputError(f"{place}: {what}")
        for name in names or ():
            h5.check_text(name, place)
        if names is not None and (not 2 <= len(names) <= MAX_CLASSES or len(set(names)) < len(names)):
            wanted = f"two different labels are needed, or up to {MAX_CLASSES}"
            raise InputError(f"{place}: {list(names)!r}; {wanted}")
        self._create(LABELS_TYPE, LABELS_VERSIONS[0], force=force)
        self._total_weight = 0.0

    def append(self, y: Any, *, sample_weight: Any = None, offset: Any = None, ids: Any = None) -> None:
        """Add samples. Shapes: y, sample_weight, offset, ids (k,)."""
        self._require_open()
        given = {"y": y, "sample_weight": sample_weight, "offset": offset}
        columns = {k: self._vector(k, v) for k, v in given.items() if v is not None or k == "y"}
        k = len(columns["y"])
        n_classes = None if self._classes is None else len(self._classes)
        for key, values in columns.items():
            if len(values) != k:
                raise self._bad(key, f"{len(values)} values for {k} labels")
            if fault := _fault(values, key, n_classes, self.n_samples):
                raise self._bad(key, fault)
        if self.n_samples and (other := sorted(columns.keys() ^ self._arrays.keys())):
            raise self._bad(other[0], f"row {self.n_samples + 1}: give it for all samples or none")
        prepared = self._ids.prepare(ids, k)
        if k == 0:
            return
        for key, values in columns.items():
            self._grow(key, values)
        self._ids.append(prepared)
        self.n_samples += k
        self._total_weight += float(columns.get("sample_weight", np.zeros(0)).sum())
        self._sink.check()

    def _vector(self, key: str, value: Any) -> np.ndarray:
        values = np.asarray(value)
        if values.dtype.kind not in "biuf":
            raise self._bad(key, f"row {self.n_samples + 1}: values must be numbers")
        if values.ndim != 1:
            raise self._bad(key, f"has {values.ndim} dimensions instead of 1")
        return values.astype(np.float64)

    def _finish(self) -> None:
        if self.n_samples == 0:
            raise self._bad("y", "no labels were written; the source is empty")
        attributes = self._file.attrs
        if self._classes is not None:
            if len(self._classes) > 2:
                attributes["encoding-version"] = LABELS_VERSIONS[1]
            names = np.array(self._classes, dtype=object)
            attributes.create("classes", names, dtype=h5py.string_dtype("utf-8"))
        if "sample_weight" in self._arrays:
            check_weights(self._total_weight, self._shown)
        self._close_arrays()
        self.row_digest = self._ids.close()
        optional: dict[str, Any] = {"reading": self._reading or None, "label-epsilon": self._epsilon}
        optional["exposure"] = np.int64(1) if self._exposure else None
        about = {"task": self.task, "n_samples": np.int64(self.n_samples), "row-digest": self.row_digest}
        attributes.update(about | {key: value for key, value in optional.items() if value is not None})


@dataclass(frozen=True, eq=False)
class LabelData:
    """The labels, loaded and validated. Made by :func:`open_labels`, or read from a table or source.

    Shapes: y, sample_weight, offset (N,).
    """

    path: Path  # the file, or table or source
    n_samples: int  # N
    task: str  # what `y` is
    y: np.ndarray  # of shape (N,)
    classes: tuple[str, ...] | None  # original labels of 0, 1 and so on; None for regression
    sample_weight: np.ndarray | None = None  # of shape (N,): where the file has them
    offset: np.ndarray | None = None  # of shape (N,): where the file has them
    row_digest: str = ""  # of the row ids, verified; empty of labels that are in no file yet
    reading: str = ""  # how labels of a table are read as numbers; ``""``: plainly
    label_epsilon: float | None = None
    exposure: bool = False  # whether offsets are logarithms of exposures

    def ids(self) -> np.ndarray:
        """Return the row ids, shape (N,): int64, or object holding str."""
        with read_h5(self.path, LABELS_TYPE, LABELS_VERSIONS) as file:
            return h5.read_ids(file, self.n_samples)


def read_classes(file: h5py.File, least: int = 2, most: int = 2) -> tuple[str, ...]:
    """Original labels of the classes, from a file's attributes."""
    with h5_errors(file.filename):
        found = [c.decode() if isinstance(c, bytes) else c for c in np.ravel(file.attrs.get("classes", []))]
    right = least <= len(found) <= most and len(set(found)) == len(found)
    if not right or not all(isinstance(c, str) for c in found):
        wanted = "three or more" if least > 2 else "two"
        raise h5.bad_attribute(file, "classes", f"is not {wanted} different strings")
    return tuple(found)


def open_labels(path: str | os.PathLike[str]) -> LabelData:
    """Read and validate a label file."""
    with read_h5(path, LABELS_TYPE, LABELS_VERSIONS) as file:
        refuse_unknown(file, _KEYS, shown(path))
        task = h5.read_attribute(file, "task", str)
        if task not in TASKS:
            raise h5.bad_attribute(file, "task", f"is {task!r}, not one of {', '.join(TASKS)}")
        n_samples = h5.read_positive(file, "n_samples")
        classes = None
        if task == "classification":
            several = h5.read_attribute(file, "encoding-version", str) != LABELS_VERSIONS[0]
            classes = read_classes(file, *((3, MAX_CLASSES) if several else ()))
        columns: dict[str, np.ndarray] = {}
        for key in _COLUMNS:
            if key == "y" or key in file:
                values = h5.read_array(file, key, ndim=1, length=n_samples, kind="f")
                columns[key] = values.astype(np.float64, copy=False)
                if fault := _fault(columns[key], key, len(classes) if classes else None):
                    raise InputError(f"{shown(path)}: key {key!r}: {fault}")
        if "sample_weight" in columns and "shard" not in file.attrs:
            check_weights(float(columns["sample_weight"].sum()), shown(path))
        reading = h5.read_optional(file, "reading", str) or ""
        try:
            CellReading.parse(reading)
        except (TypeError, ValueError):
            raise h5.bad_attribute(file, "reading", f"is {reading!r}; damaged or edited") from None
        epsilon = h5.read_optional(file, "label-epsilon", float)
        if epsilon is not None and not epsilon > 0.0:
            raise h5.bad_attribute(file, "label-epsilon", f"is {epsilon!r}; damaged or edited")
        return LabelData(
            Path(path),
            n_samples,
            task,
            classes=classes,
            row_digest=h5.verified_digest(file, n_samples),
            reading=reading,
            label_epsilon=epsilon,
            exposure="exposure" in file.attrs,
            **{key: columns.get(key) for key in _COLUMNS},  # type: ignore[arg-type]  # there is y
        )
