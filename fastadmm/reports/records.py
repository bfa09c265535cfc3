"""Reads what a run left behind: its round log, result, configuration, environment and evaluation."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastadmm.errors import FormatError, StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.reading import json_of, parse_json, read_bytes
from fastadmm.privacy.published import config_of, fixed_result, is_private
from fastadmm.runs.claim import said_of_run, without_claim
from fastadmm.runs.config import check_settings
from fastadmm.runs.folder import document_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from fastadmm.privacy.statement import PrivacyStatement
    from fastadmm.runs.claim import Said
    from fastadmm.worth.coalitions import Worth

#: The numbers every round may carry, besides ``weight_norms`` and ``test``.
SERIES = (
    "seconds",
    "objective",
    "gap",
    "gap_absolute",
    "primal_residual",
    "dual_residual",
    "augmented_lagrangian",
    "lyapunov",
    "penalty",
    "stationarity",
)


@dataclass(frozen=True)
class History:
    """The round log as columns; a value that a round does not have is NaN.

    Shapes: round, each of series, each of test (T,); weight_norms (T, M).
    """

    round: NDArray[np.int64]  # of shape (T,): round numbers, strictly increasing
    series: dict[str, NDArray[np.float64]]  # of shape (T,): one entry for every name in SERIES
    weight_norms: NDArray[np.float64]  # of shape (T, M)
    test: dict[str, NDArray[np.float64]] = field(default_factory=dict)  # of shape (T,)

    def __len__(self) -> int:
        return int(self.round.size)


@dataclass(frozen=True)
class RunRecords:
    """Everything a report needs to know about one run."""

    path: Path  # the run directory
    history: History
    result: dict[str, Any] | None  # contents of ``result.json``; ``None`` while the run has not finished
    config: dict[str, Any]
    environment: dict[str, Any]
    evaluation: dict[str, Any] | None
    privacy: PrivacyStatement | None = None  # from ``privacy.json``; ``None`` for a run older than statements
    worth: Worth | None = None  # from ``worth.json``; ``None`` where ``fastadmm worth`` was not run
    path_table: dict[str, Any] | None = None
    inference: dict[str, Any] | None = None  # from ``inference.json``
    points: dict[str, Any] | None = None  # from ``points.json``
    said: Said | None = None


def read_records(run_dir: str | Path) -> RunRecords:
    """Read a run directory, finished or not."""
    path = Path(run_dir)
    if not path.is_dir():
        raise StorageError(
            f"{shown(path)}: no such run directory; pass the directory that `fastadmm train -o` wrote"
        )
    if (path / "owners-run.toml").exists():
        raise StorageError(f"{shown(path)}: a run of `fastadmm owners train`, which has other records")
    known = [path / name for name in ("run.toml", "rounds.jsonl", "result.json")]
    if not any(file.exists() for file in known):
        raise FormatError(
            f"{shown(path)}: not a run directory (no run.toml, rounds.jsonl or result.json in it); give what "
            "'fastadmm train' wrote"
        )
    result, config = _read(path / "result.json", _RESULT), document_in(path / "run.toml") or {}
    check_settings(config, path / "run.toml")
    said = said_of_run(path, result, config)
    return RunRecords(
        path=path,
        history=read_rounds(path / "rounds.jsonl"),
        result=None if result is None else without_claim(result, said),
        config=config,
        environment=document_in(path / "environment.json") or {},
        evaluation=_read_evaluation(path / "evaluation.json"),
        privacy=_read_privacy(path / "privacy.json"),
        worth=_read_worth(path / "worth.json"),
        path_table=_read_path(path / "path.json"),
        inference=document_in(path / "inference.json"),
        points=document_in(path / "points.json"),
        said=said,
    )


def read_rounds(path: Path) -> History:
    """Read a round log into columns; rounds that a resumed run repeats replace the earlier ones."""
    records: list[dict[str, Any]] = []
    n_parties: int | None = None
    for number, record in _lines(path):
        place = f"{shown(path)}, line {number}"
        _check(record, _ROUND, place)
        norms = record.get("weight_norms")
        if norms is not None:
            if n_parties is not None and len(norms) != n_parties:
                raise FormatError(
                    f"{place}: weight_norms has {len(norms)} values, earlier lines have {n_parties}; the log "
                    "mixes two runs"
                )
            n_parties = len(norms)
        while records and records[-1]["round"] >= record["round"]:
            records.pop()
        records.append(record)
    return history_of(records, n_parties or 0)


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Every line but a last one that is not complete: the process was killed while it wrote."""
    with storage_errors(path, "read"):
        lines = read_bytes(path).split(b"\n") if path.exists() else [b""]
    # A file system may pad a file with zero bytes after a power cut: part of the torn tail.
    torn = lines.pop().rstrip(b"\0")
    with suppress(ValueError):
        if isinstance(json_of(torn), dict):  # complete but for its newline
            lines.append(torn)
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, parse_json(line, f"{shown(path)}, line {number}")


def history_of(records: list[dict[str, Any]], n_parties: int) -> History:
    """The round log as columns."""

    def column(values: list[Any]) -> NDArray[np.float64]:
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    names: dict[str, None] = {}
    for record in records:
        names.update(dict.fromkeys(record.get("test") or ()))
    norms = np.full((len(records), n_parties), np.nan)
    for row, record in enumerate(records):
        if record.get("weight_norms") is not None:
            norms[row] = column(record["weight_norms"])
    return History(
        round=np.array([record["round"] for record in records], dtype=np.int64),
        series={name: column([record.get(name) for record in records]) for name in SERIES},
        weight_norms=norms,
        test={name: column([(record.get("test") or {}).get(name) for record in records]) for name in names},
    )


# --- what files hold ---------------------------------------------------------------------------


class _Maybe(NamedTuple):
    """A shape of what may be absent."""

    of: Any


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and value.bit_length() < 1000  # within the range of float64
    return isinstance(value, float)


#: Kinds of values by the words for them.
_KINDS: dict[str, Callable[[Any], bool]] = {
    "an object": lambda value: isinstance(value, dict),
    "a list": lambda value: isinstance(value, list),
    "a text": lambda value: isinstance(value, str),
    "a number": _is_number,
    "a whole number": lambda value: type(value) is int and 0 <= value < 2**40,
    "a table of numbers": lambda value: (
        isinstance(value, dict) and all(v is None or _is_number(v) for v in value.values())
    ),
}

_NUMBER, _TABLE = _Maybe("a number"), _Maybe("a table of numbers")

# Shapes: the words for a kind, an object of shapes by key, or a list of one shape.
_ROUND: dict[str, Any] = {
    "round": "a whole number",
    **dict.fromkeys(SERIES, _NUMBER),
    "weight_norms": _Maybe([_NUMBER]),
    "test": _TABLE,
}

_RESULT: dict[str, Any] = {
    "status": "a text",
    **dict.fromkeys(("rounds", "seconds", "objective", "gap", "gap_absolute", "gap_within"), _NUMBER),
    **dict.fromkeys(("stationarity", "lambda", "n_samples", "intercept", "exchanges"), _NUMBER),
    "parties": _Maybe([dict.fromkeys(("n_features", "weight_norm", "lambda", "bytes"), _NUMBER)]),
}

_BIN: dict[str, Any] = dict.fromkeys(("mean_predicted", "observed_rate", "count"), "a number")
_BIN |= {"low": _NUMBER, "high": _NUMBER}
_METRICS = {"calibration": _Maybe({"bins": [_BIN], "expected_calibration_error": _NUMBER})}
_EVALUATION = {"metrics": _METRICS, "baselines": _Maybe([{"metrics": _METRICS}])}

_POINT: dict[str, Any] = dict.fromkeys(("lambda", "objective", "nonzero", "rounds"), "a number")
_POINT |= {"gap": _NUMBER, "test": _TABLE}
_PATH = {"values": [_POINT], "chosen": "a whole number", "rule": _Maybe("a text")}
_FOLDS = {"values": [dict.fromkeys(("held_out_loss", "standard_error"), "a number")]}


def _check(value: Any, shape: Any, place: str) -> None:
    """Refuse a value that is not of a shape."""
    if isinstance(shape, _Maybe):
        if value is not None:
            _check(value, shape.of, place)
        return
    kind = shape if isinstance(shape, str) else "an object" if isinstance(shape, dict) else "a list"
    if not _KINDS[kind](value):
        known = (words for words, holds in _KINDS.items() if holds(value))
        plain = "nothing" if value is None else "a truth value" if isinstance(value, bool) else ""
        found = plain or next(known, "a number that is too large")
        with_others = " with other values" if kind == "a table of numbers" and found == "an object" else ""
        raise FormatError(f"{place} must be {kind}, found {found}{with_others}")
    if isinstance(shape, dict):
        for key, own in shape.items():
            _check(value.get(key), own, f"{place}: key {key}")
    elif isinstance(shape, list):
        for k, own in enumerate(value, start=1):
            _check(own, shape[0], f"{place}, entry {k}")


def _read(path: Path, shape: Any) -> dict[str, Any] | None:
    document = document_in(path)
    if document is not None:
        _check(document, shape, shown(path))
    return document


def _read_evaluation(path: Path) -> dict[str, Any] | None:
    evaluation = _read(path, _EVALUATION)
    if evaluation is not None:
        check_judgement(evaluation, path)
    return evaluation


def _read_privacy(path: Path) -> PrivacyStatement | None:
    from fastadmm.privacy.statement import PrivacyStatement

    document = document_in(path)
    return None if document is None else PrivacyStatement.from_json(document.get("statement"), shown(path))


def _read_worth(path: Path) -> Worth | None:
    if not path.exists():
        return None
    from fastadmm.worth.run import read_worth

    found = read_worth(path)
    return None if found is None else found[0]


def _read_path(path: Path) -> dict[str, Any] | None:
    table = _read(path, _PATH)
    if table is None:
        return None
    rule, rows = table.get("rule"), table["values"]
    if rule is not None:
        _check(table, _FOLDS, shown(path))
    if table["chosen"] >= len(rows) or not all(row["lambda"] > 0 for row in rows):
        raise FormatError(
            f"{shown(path)}: key chosen must be the number of one of the values, whose lambdas are positive"
        )
    return {**table, "rule": rule}


_CURVES = ("threshold", "false_positive_rate", "true_positive_rate", "precision", "share")

#: What a group of the lift table holds.
GROUP = ("share", "lowest_score", "rate", "lift", "gain", "cumulative_lift")


def check_judgement(evaluation: dict[str, Any], path: Path) -> None:
    """Refuse an ``evaluation.json`` whose curves or tables are damaged."""
    try:
        if (ranking := evaluation.get("ranking")) is not None:
            lengths = {len(_numbers(ranking["curves"][name])) for name in _CURVES}
            fine = (
                len(lengths) == 1 and 0 not in lengths and len(_numbers([ranking["ks"], ranking["ks_score"]]))
            )
            fine = fine and all(len(_numbers([row[k] for k in GROUP])) for row in ranking["groups"])
            if not fine or not ranking["groups"]:
                raise ValueError("empty, or of different lengths")
            _numbers([ranking["average_precision"], *(ranking.get("auc_interval") or [])])
        if (confusion := evaluation.get("confusion")) is not None:
            count = len(confusion["classes"])
            if np.shape([_numbers(row) for row in confusion["matrix"]]) != (count, count):
                raise ValueError("no square matrix")
            _numbers([confusion.get("threshold", 0.0)])
        if (drift := evaluation.get("drift")) is not None:
            _numbers([drift["psi"], *(row[k] for row in drift["bins"] for k in ("reference", "new"))])
        if not isinstance(evaluation.get("notes", []), list):
            raise ValueError("notes are no list")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"{shown(path)}: keys ranking, confusion, drift or notes: damaged ({error}); evaluate again"
        ) from error


def _numbers(values: Any) -> np.ndarray:
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        raise ValueError("not numbers")
    found = np.array(values, dtype=np.float64)
    if not np.isfinite(found).all():
        raise ValueError("not finite")
    return found


def published(records: RunRecords) -> RunRecords:
    """The records of a run that may be passed on: ``docs/privacy.md#what-may-leave``."""
    records = replace(records, config=config_of(records.config))
    if not is_private(records.privacy, records.config):
        return records
    result = None if records.result is None else fixed_result(records.result)
    gone: dict[str, Any] = dict.fromkeys(("evaluation", "worth", "path_table", "inference", "points"))
    return replace(records, history=history_of([], 0), result=result, **gone)
