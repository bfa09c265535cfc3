"""Labels of a whole source: collected block by block, then checked and mapped once."""

from __future__ import annotations

import difflib
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from fastadmm.errors import ConfigError, InputError
from fastadmm.problem.class_names import event_of
from fastadmm.problem.targets import MAX_CLASSES as MOST

#: Integer labels with 3 to this many distinct values may be classes or a target: the user has to say.
MAX_CLASSES = 20


@dataclass(frozen=True)
class Labels:
    """Checked labels."""

    y: np.ndarray
    task: str
    classes: tuple[str, ...] | None  # original labels of class 0, 1 and so on, as text; None for regression
    reading: str = ""  # how they are read as numbers, a CellReading as text
    weight: np.ndarray | None = None  # of shape (N,): sample weights
    offset: np.ndarray | None = None  # of shape (N,): what is added to scores
    exposure: bool = False  # whether these are logarithms of exposures


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

    def append(self, labels: np.ndarray) -> None:
        """Add a block's labels."""
        if labels.dtype != object:
            self._chunks.append(np.array(labels, dtype=np.float64))
            return
        number: dict[str, int] = {}
        codes = [number.setdefault(label, len(number)) for label in labels]
        self.append_words(np.array(codes, dtype=np.int64), list(number))

    def append_words(self, codes: np.ndarray, words: Sequence[str]) -> None:
        """Add a block's labels that are text."""
        known = [self._words.setdefault(label_text(word), len(self._words)) for word in words]
        if spoiled := next((word for word in self._words if "\0" in word), None):
            raise InputError(f"{self.path}: label {spoiled!r} holds a NUL character; remove it")
        if len(self._words) > MOST:
            shown = ", ".join(sorted(self._words)[:5])
            raise InputError(
                f"{self.path}: labels are text with more than {MOST} distinct values ({shown}, ...): "
                "choose another label column"
            )
        self._chunks.append(np.array(known, dtype=np.int64)[codes])

    def finish(
        self,
        task: str = "auto",
        classes: tuple[str, ...] | None = None,
        positive: str | None = None,
        *,
        ask: bool = True,
    ) -> Labels:
        """Check all labels and map them; ``ask`` refuses two words that do not tell which is class 1."""
        if self._words:
            if task == "regression":
                raise InputError(f"{self.path}: label {self._word!r} is not a number, as a regression needs")
            texts, coded = self._coded_words()
        else:
            y = np.concatenate(self._chunks) if self._chunks else np.empty(0)
            distinct = np.empty(0) if task == "regression" else np.unique(y)
            if task == "regression" or (task == "auto" and classes is None and self._is_target(distinct)):
                if positive is not None:
                    raise ConfigError(
                        f"--positive {positive!r}: the labels are of a regression, which has no classes"
                    )
                return Labels(y, "regression", None)
            texts, coded = [label_text(value) for value in distinct], np.searchsorted(distinct, y)
        self._chunks = []
        numbers = self._numbers(texts, classes)
        found = Labels(numbers[coded], "classification", classes or tuple(texts))
        if classes is not None and positive is not None:
            raise ConfigError(f"--positive {positive!r}: the classes are those of --like")
        return found if classes is not None else self._event_last(found, positive, ask)

    @property
    def _word(self) -> str:
        return next(word for word in self._words if not _is_number(word))

    def _is_target(self, distinct: np.ndarray) -> bool:
        """Whether numbers are those of a regression; a few whole ones may also be classes."""
        if 2 < len(distinct) <= MAX_CLASSES and np.all(distinct == np.round(distinct)):
            raise InputError(
                f"{self.path}: {len(distinct)} distinct whole-number labels ({_listing(distinct)}): for "
                "a regression pass --task regression, for classes --task classification"
            )
        return len(distinct) > 2

    def _event_last(self, found: Labels, positive: str | None, ask: bool) -> Labels:
        """The same labels, with the event as class 1."""
        names = found.classes
        assert names is not None
        if positive is not None and ((positive := label_text(positive)) not in names or len(names) != 2):
            raise ConfigError(f"{self.path}: --positive {positive!r}: the labels are {_listing([*names])}")
        if len(names) != 2:
            return found
        event = positive if positive is not None else event_of(names)
        if event is None and ask and not all(map(_is_number, names)):
            first, second = map(repr, names)
            raise InputError(
                f"{self.path}: labels {first} and {second}: which one is counted, as class 1? "
                f"pass --positive {shlex.quote(names[1])} or --positive {shlex.quote(names[0])}"
            )
        if event != names[0]:
            return found
        return replace(found, y=1.0 - found.y, classes=(names[1], names[0]))

    def _coded_words(self) -> tuple[list[str], np.ndarray]:
        """Different labels in order, and which each row has; numbers get the codes of their texts."""
        chunks = []
        for chunk in self._chunks:
            if chunk.dtype == np.float64:
                values, inverse = np.unique(chunk, return_inverse=True)
                if len(values) > MAX_CLASSES:
                    raise InputError(
                        f"{self.path}: labels are numbers except {self._word!r}: correct that label"
                    )
                codes = [self._words.setdefault(label_text(value), len(self._words)) for value in values]
                chunk = np.array(codes)[inverse]
            chunks.append(chunk)
        coded = np.concatenate(chunks)
        texts = list(self._words)
        self._refuse_alike(texts, coded)
        order = sorted(range(len(texts)), key=texts.__getitem__)
        return [texts[i] for i in order], np.argsort(order)[coded]

    def _refuse_alike(self, texts: list[str], coded: np.ndarray) -> None:
        """Refuse labels that differ only by case or spaces."""
        seen: dict[str, int] = {}
        for code, text in enumerate(texts):
            first = seen.setdefault(" ".join(text.split()).casefold(), code)
            if first != code:
                rows = [int((coded == k).sum()) for k in (first, code)]
                raise InputError(
                    f"{self.path}: labels {texts[first]!r} ({rows[0]} rows) and {text!r} ({rows[1]} "
                    f"rows) differ only "
                    "by case or spaces: write them alike"
                )

    def _numbers(self, texts: list[str], classes: tuple[str, ...] | None) -> np.ndarray:
        """Class number of each of the distinct labels, which are in sorted order."""
        if classes is not None:
            for text in texts:
                if text not in classes:
                    if len(classes) == 2:
                        none = f"is neither {classes[0]!r} nor {classes[1]!r}, the classes"
                    else:
                        none = f"is none of {_listing(list(classes))}, the classes"
                    near = difflib.get_close_matches(text.casefold(), [c.casefold() for c in classes], n=1)
                    near = [c for c in classes if near and c.casefold() == near[0]]
                    hint = f"; is it {near[0]!r}?" if near else ""
                    raise InputError(f"{self.path}: label {text!r} {none} of training{hint}")
            return np.array([classes.index(text) for text in texts], dtype=np.float64)
        if len(texts) == 1:
            raise InputError(
                f"{self.path}: only one class, label {texts[0]!r} in every row: nothing to learn; "
                "to evaluate a model on these rows, pass --like"
            )
        if len(texts) > MOST:
            advice = "; for a regression pass --task regression" if all(map(_is_number, texts)) else ""
            raise InputError(
                f"{self.path}: {len(texts)} classes ({_listing(texts)}), but at most {MOST} are supported"
                f"{advice}"
            )
        return np.arange(len(texts), dtype=np.float64)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _listing(values: np.ndarray | list[str]) -> str:
    shown = ", ".join(label_text(value) for value in values[:MAX_CLASSES])
    return shown + (", ..." if len(values) > MAX_CLASSES else "")
