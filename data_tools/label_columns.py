"""Labels of rows, collected block by block, checked and mapped once; and what tables keep beside them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.data_tools.alignment import Alignment, rows_of, table_ids
from fastadmm.data_tools.cell_text import written
from fastadmm.data_tools.column_types import are_truths, as_numbers, read_column, recognise
from fastadmm.data_tools.columns import Column, is_number, listed, nearest, words_of
from fastadmm.data_tools.per_table import TableOptions
from fastadmm.data_tools.tables import Cells, Table, read_table
from fastadmm.errors import ConfigError, InputError
from fastadmm.problem.class_names import event_of
from fastadmm.problem.targets import MAX_CLASSES as MOST
from fastadmm.store.encoder import CellReading
from fastadmm.store.label_file import LabelData

#: Integer labels with 3 to this many distinct values may be classes or a target: the user has to say.
MAX_CLASSES = 20


def label_text(value: float | str) -> str:
    """Canonical text of a label: ``"1"`` for 1, 1.0, ``"+1"`` and ``"1.0"``; other text is kept."""
    try:
        number = float(value)
    except ValueError:
        return str(value)
    if not math.isfinite(number):
        return str(value)
    return str(int(number)) if number == int(number) and abs(number) < 2**53 else repr(number)


class LabelCollector:
    """Collects the labels of a source; 8 bytes per sample."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._chunks: list[np.ndarray] = []  # float64, or int64 codes into _words for blocks with text
        self._words: dict[str, int] = {}

    def _refused(self, problem: str) -> InputError:
        return InputError(f"{self.path}: {problem}")

    def append(self, labels: np.ndarray) -> None:
        """Add a block's labels."""
        if labels.dtype == object:
            found = words_of(labels.tolist())
            self.append_words(found.codes, found.words)
        else:
            self._chunks.append(np.array(labels, dtype=np.float64))

    def append_words(self, codes: np.ndarray, words: Sequence[str]) -> None:
        """Add a block's labels that are text."""
        known = [self._words.setdefault(label_text(word), len(self._words)) for word in words]
        if len(self._words) > MOST:
            shown = listed(sorted(self._words), 5)
            problem = f"labels are text with more than {MOST} distinct values ({shown})"
            raise self._refused(f"{problem}: choose another label column")
        self._chunks.append(np.array(known, dtype=np.int64)[codes])

    def finish(
        self,
        task: str = "auto",
        classes: tuple[str, ...] | None = None,
        positive: str | None = None,
        *,
        ask: bool = True,
    ) -> LabelData:
        """Check all labels and map them; ``ask`` refuses two words that do not tell which is class 1."""
        if self._words:
            if task == "regression":
                raise self._refused(f"label {self._word!r} is not a number, as a regression needs")
            texts, coded = self._coded_words()
        else:
            y = np.concatenate(self._chunks) if self._chunks else np.empty(0)
            distinct = np.empty(0) if task == "regression" else np.unique(y)
            if task == "regression" or (task == "auto" and classes is None and self._is_target(distinct)):
                if positive is not None:
                    raise ConfigError(
                        f"--positive {positive!r}: the labels are of a regression, which has no classes"
                    )
                return LabelData(Path(self.path), len(y), "regression", y, None)
            texts, coded = [label_text(value) for value in distinct], np.searchsorted(distinct, y)
        self._chunks = []
        if classes is None:
            names = self._classes(texts, positive, ask)
        else:
            names = classes
            for text in texts:
                if text not in names:
                    problem = f"label {text!r} is none of the classes of training{nearest(text, names)}"
                    raise self._refused(problem)
            if positive is not None:
                raise ConfigError(f"--positive {positive!r}: the classes are those of --like")
        numbers = np.array([names.index(text) for text in texts], dtype=np.float64)
        return LabelData(Path(self.path), len(coded), "classification", numbers[coded], names)

    @property
    def _word(self) -> str:
        return next(word for word in self._words if not is_number(word))

    def _is_target(self, distinct: np.ndarray) -> bool:
        """Whether numbers are those of a regression; a few whole ones may also be classes."""
        if 2 < len(distinct) <= MAX_CLASSES and np.all(distinct == np.round(distinct)):
            raise self._refused(
                f"{len(distinct)} distinct whole-number labels ({_listing(distinct)}): for a regression pass "
                "--task regression, for classes --task classification"
            )
        return len(distinct) > 2

    def _coded_words(self) -> tuple[list[str], np.ndarray]:
        """Different labels in order, and which each row has."""
        if any(chunk.dtype == np.float64 for chunk in self._chunks):
            raise self._refused(
                f"labels are numbers in some files, but {self._word!r} in others: write them alike"
            )
        coded, texts = np.concatenate(self._chunks), list(self._words)
        seen: dict[str, int] = {}
        for code, text in enumerate(texts):
            first = seen.setdefault(" ".join(text.split()).casefold(), code)
            if first != code:
                rows = [int((coded == k).sum()) for k in (first, code)]
                raise self._refused(
                    f"labels {texts[first]!r} ({rows[0]} rows) and {text!r} ({rows[1]} rows) differ only by "
                    "case or spaces: write them alike"
                )
        order = sorted(range(len(texts)), key=texts.__getitem__)
        return [texts[i] for i in order], np.argsort(order)[coded]

    def _classes(self, texts: list[str], positive: str | None, ask: bool) -> tuple[str, ...]:
        """The distinct labels, which are in sorted order; of two, the event is class 1."""
        if len(texts) == 1:
            raise self._refused(
                f"only one class, label {texts[0]!r} in every row: nothing to learn; to evaluate a model on "
                "these rows, pass --like"
            )
        if len(texts) > MOST:
            advice = "; for a regression pass --task regression" if all(map(is_number, texts)) else ""
            raise self._refused(
                f"{len(texts)} classes ({_listing(texts)}), but at most {MOST} are supported{advice}"
            )
        if positive is not None and ((positive := label_text(positive)) not in texts or len(texts) != 2):
            raise ConfigError(f"{self.path}: --positive {positive!r}: the labels are {_listing(texts)}")
        if len(texts) != 2:
            return tuple(texts)
        event = positive if positive is not None else event_of(texts)
        if event is None and ask and not all(map(is_number, texts)):
            first, second = map(repr, texts)
            raise self._refused(
                f"labels {first} and {second}: which one is counted, as class 1? pass "
                f"--positive {shlex.quote(texts[1])} or --positive {shlex.quote(texts[0])}"
            )
        return tuple(texts[::-1] if event == texts[0] else texts)


def _listing(values: np.ndarray | list[str]) -> str:
    return listed([label_text(value) for value in values], MAX_CLASSES)


# --- columns of tables -----------------------------------------------------------------------------------


#: Column names that one line tells.
_TOLD = 60


def require_label(path: str, columns: Sequence[str], label: str | None) -> str:
    """The label column, which has to be named."""
    if label is None:
        names = listed(columns, _TOLD)
        raise InputError(f"{path}: which column is the label? pass --label with one of: {names}")
    if label not in columns:
        near = nearest(label, columns)
        if sum(map(is_number, columns)) > 1:
            near = "; line 1 holds numbers, not names: pass --no-header and --label c1, c2 and so on"
        raise InputError(f"{path}: no label column {label!r}{near}")
    return label


def _written_numbers(column: Column) -> bool:
    """Whether some cells are plain numbers, and the others numbers that are written in another way."""
    return column.kind == "mixed" and all(written(cell) for cell in column.words if cell)


def labels_of(
    table: Table,
    rows: np.ndarray,
    options: TableOptions,
    task: str,
    classes: tuple[str, ...] | None = None,
    reading: CellReading | None = None,
    report: list[str] | None = None,
) -> LabelData:
    """Labels of some rows of a table, with weights and offsets from other columns, as options name them."""
    name = options.label or ""
    column = table.columns[name]
    table.refuse_missing(name, rows, "label")
    found: CellReading | None = None
    why = "as other labels are"
    if column.kind != "number" and (classes is None or set(column.words) - {*classes, ""}):
        if reading is not None and not reading.plain:
            found, why = reading, f"as the labels of training are read ({reading.words()})"
        elif not are_truths(column.words) and (column.kind != "mixed" or _written_numbers(column)):
            found = recognise(table, name, column, options.typing)
    if found is not None:
        if not found.plain and report is not None:
            report.append(f"{table.path}: label column {name!r}: read as numbers: {found.words()}")
        column = read_column(table, name, column, found, why)
    collector = LabelCollector(table.path)
    if column.kind == "number":
        collector.append(column.values[rows])
    else:
        used, codes = np.unique(column.values[rows], return_inverse=True)
        collector.append_words(codes, [column.words[k] for k in used.tolist()])
    labels = collector.finish(task, classes, options.positive)
    exposed = options.exposure is not None
    if exposed and (labels.classes is not None or (labels.y < 0).any()):
        what = "classes" if labels.classes is not None else "negative numbers"
        raise ConfigError(
            f"--exposure: belongs to counts, but the labels are {what}; for these pass --offset"
        )
    weights = _numbers(table, rows, "weight", options)
    offsets = offset_of(table, rows, options)
    return replace(labels, reading=str(found or ""), sample_weight=weights, offset=offsets, exposure=exposed)


def offset_of(table: Table, rows: np.ndarray, options: TableOptions) -> np.ndarray | None:
    """Offsets of some rows, or the logarithms of their exposures. Shapes: rows, the result (k,)."""
    if options.offset is not None and options.exposure is not None:
        raise ConfigError("--offset and --exposure: the logarithm of an exposure is the offset; give one")
    exposures = _numbers(table, rows, "exposure", options)
    return _numbers(table, rows, "offset", options) if exposures is None else np.log(exposures)


#: What is wrong with a number of a column that is kept beside the labels.
_WRONG: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "weight": ("is negative", lambda values: values < 0.0),
    "exposure": ("is not above 0", lambda values: values <= 0.0),
    "offset": ("is not finite", lambda values: ~np.isfinite(values)),
}


def _numbers(table: Table, rows: np.ndarray, what: str, options: TableOptions) -> np.ndarray | None:
    """A number for each of some rows, where a column is named. Shapes: rows, the result (k,)."""
    name = getattr(options, what)
    if name is None:
        return None
    column = table.require(name, f"{what} column")
    if column.kind in ("text", "raw") or _written_numbers(column):
        column, _ = as_numbers(table, name, column, options.typing)
    if column.kind != "number":
        raise table.refused(name, "not all cells are numbers", what=what)
    values = column.values[rows]
    fault, wrong = _WRONG[what]
    if (bad := np.flatnonzero(np.isnan(values) | wrong(values))).size:
        value = values[bad[0]]
        problem = "missing value: fill it, or leave the row out" if np.isnan(value) else f"{value:g} {fault}"
        raise table.refused(name, problem, int(rows[bad[0]]), what)
    return values


def write_label_table(out: Path, table: Path, label: str, alignment: Alignment, **options: Any) -> None:
    """Write the labels of an alignment's rows, and what is kept beside them; a file is replaced."""
    from fastadmm.store.label_file import LabelWriter, open_labels, write_columns

    chosen = TableOptions(label=label, **options)
    known = None if chosen.like is None else open_labels(chosen.like)
    classes, task = (None, chosen.task or "auto") if known is None else (known.classes, known.task)
    id = str(chosen.id)
    read = read_table(table, chosen.layout, Cells(id=id))
    read.require(label, "label column")
    rows = rows_of(table_ids(read, id, chosen.duplicates, chosen.id_pattern), alignment)
    labels = labels_of(read, rows, chosen, task, classes)
    how: dict[str, Any] = {"task": labels.task, "classes": labels.classes, "exposure": labels.exposure}
    with LabelWriter(out, **how, force=True) as writer:
        write_columns(writer, labels, alignment.ids)
