"""Reads what a run left behind: its round log, result, configuration, environment and evaluation.

Only ``rounds.jsonl`` may end in the middle of a line (the process was killed while it wrote);
any other damage is a :class:`FormatError` that names the file and the line.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import FormatError, StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.reading import json_of, read_bytes
from fastadmm.privacy.published import config_of, fixed_result, is_private
from fastadmm.runs.claim import said_of_run, without_claim
from fastadmm.runs.config import check_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

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

#: What a bin of the calibration curve must hold.
BIN_KEYS = ("mean_predicted", "observed_rate", "count")


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
    result, config = _read_result(path / "result.json"), _read_toml(path / "run.toml")
    check_settings(config, path / "run.toml")
    said = said_of_run(path, result, config)
    return RunRecords(
        path=path,
        history=read_rounds(path / "rounds.jsonl"),
        result=None if result is None else without_claim(result, said),
        config=config,
        environment=_read_json(path / "environment.json") or {},
        evaluation=_read_evaluation(path / "evaluation.json"),
        privacy=_read_privacy(path / "privacy.json"),
        worth=_read_worth(path / "worth.json"),
        path_table=_read_path(path / "path.json"),
        inference=_read_json(path / "inference.json"),
        points=_read_json(path / "points.json"),
        said=said,
    )


def read_rounds(path: str | Path) -> History:
    """Read a round log into columns.

    A last line without its newline that is not complete is dropped: the process was killed
    while it wrote. Where round numbers go back (a run resumed from a checkpoint repeats the
    rounds after it), the later lines replace the earlier ones.
    """
    path = Path(path)
    records: list[dict[str, Any]] = []
    n_parties: int | None = None
    for number, record in _lines(path):
        _check_round(record, path, number)
        norms = record.get("weight_norms")
        if norms is not None:
            if n_parties is not None and len(norms) != n_parties:
                raise FormatError(
                    f"{shown(path)}, line {number}: weight_norms has {len(norms)} values, earlier lines "
                    f"have {n_parties}; the log mixes two runs"
                )
            n_parties = len(norms)
        while records and records[-1]["round"] >= record["round"]:
            records.pop()
        records.append(record)
    return history_of(records, n_parties or 0)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    raw = _read_bytes(path)
    if raw is None:
        return
    lines = raw.split(b"\n")
    # A file system may pad a file with zero bytes after a power cut: part of the torn tail.
    torn = lines.pop().rstrip(b"\0")
    if torn.strip():
        try:
            record = json_of(torn)
        except ValueError:
            record = None
        if isinstance(record, dict):  # complete but for its newline
            lines.append(torn)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json_of(line)
        except ValueError as error:
            raise FormatError(f"{shown(path)}, line {number}: not valid JSON: {_reason(error)}") from error
        if not isinstance(record, dict):
            raise FormatError(f"{shown(path)}, line {number}: expected a JSON object, found {_kind(record)}")
        yield number, record


def _check_round(record: dict[str, Any], path: Path, line: int) -> None:
    where = f"{shown(path)}, line {line}"
    number = record.get("round")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**40:
        raise FormatError(f"{where}: key round must be a whole number, found {_kind(number)}")
    for name in SERIES:
        if not _is_number(record.get(name)):
            raise FormatError(f"{where}: key {name} must be a number, found {_kind(record[name])}")
    norms = record.get("weight_norms")
    if norms is not None and not (isinstance(norms, list) and all(map(_is_number, norms))):
        raise FormatError(f"{where}: key weight_norms must be a list of numbers")
    test = record.get("test")
    if test is not None and not (isinstance(test, dict) and all(map(_is_number, test.values()))):
        raise FormatError(f"{where}: key test must be a table of numbers")


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


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and value.bit_length() < 1000  # within the range of float64
    return value is None or isinstance(value, float)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "nothing"}
    return names.get(type(value), "a number")


# --- the small files ---------------------------------------------------------------------------


def _read_result(path: Path) -> dict[str, Any] | None:
    result = _read_json(path)
    if result is None:
        return None
    if not isinstance(result.get("status"), str):
        raise FormatError(f"{shown(path)}: key status must be a text, found {_kind(result.get('status'))}")
    numbers = ("rounds", "seconds", "objective", "gap", "gap_absolute", "gap_within", "stationarity")
    for name in (*numbers, "lambda", "n_samples", "intercept", "exchanges"):
        if not _is_number(result.get(name)):
            raise FormatError(f"{shown(path)}: key {name} must be a number, found {_kind(result[name])}")
    for k, party in _entries(path, "parties", result.get("parties", [])):
        for name in ("n_features", "weight_norm", "lambda", "bytes"):
            if not _is_number(party.get(name)):
                raise FormatError(f"{shown(path)}: entry {k} of parties: {name} must be a number")
    return result


def _entries(path: Path, key: str, rows: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a list, counted from 1."""
    if not isinstance(rows, list):
        raise FormatError(f"{shown(path)}: key {key} must be a list, found {_kind(rows)}")
    for k, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise FormatError(f"{shown(path)}: entry {k} of {key} must be an object, found {_kind(row)}")
        yield k, row


def _read_evaluation(path: Path) -> dict[str, Any] | None:
    evaluation = _read_json(path)
    if evaluation is None:
        return None
    _check_metrics(evaluation.get("metrics"), f"{shown(path)}: key metrics")
    for k, baseline in _entries(path, "baselines", evaluation.get("baselines") or []):
        _check_metrics(baseline.get("metrics"), f"{shown(path)}: entry {k} of baselines: key metrics")
    check_judgement(evaluation, path)
    return evaluation


def _read_privacy(path: Path) -> PrivacyStatement | None:
    from fastadmm.privacy.statement import PrivacyStatement

    document = _read_json(path)
    return None if document is None else PrivacyStatement.from_json(document.get("statement"), shown(path))


def _read_worth(path: Path) -> Worth | None:
    if not path.exists():
        return None
    from fastadmm.worth.run import read_worth

    found = read_worth(path)
    return None if found is None else found[0]


def _read_path(path: Path) -> dict[str, Any] | None:
    table = _read_json(path)
    if table is None:
        return None
    rows, chosen, rule = table.get("values"), table.get("chosen"), table.get("rule")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise FormatError(f"{shown(path)}: key values must be a list of objects")
    if not isinstance(chosen, int) or isinstance(chosen, bool) or not 0 <= chosen < len(rows):
        raise FormatError(f"{shown(path)}: key chosen must be the number of one of the values")
    if rule is not None and not isinstance(rule, str):
        raise FormatError(f"{shown(path)}: key rule must be a text, found {_kind(rule)}")
    needed = ["lambda", "objective", "nonzero", "rounds"]
    needed += ["held_out_loss", "standard_error"] if rule is not None else []
    for k, row in enumerate(rows, start=1):
        for name in needed:
            if row.get(name) is None or not _is_number(row[name]):
                raise FormatError(f"{shown(path)}: entry {k} of values: {name} must be a number")
        if not row["lambda"] > 0 or not _is_number(row.get("gap")):
            raise FormatError(f"{shown(path)}: entry {k} of values: lambda must be positive and gap a number")
        test = row.get("test")
        if test is not None and not (isinstance(test, dict) and all(map(_is_number, test.values()))):
            raise FormatError(f"{shown(path)}: entry {k} of values: test must be a table of numbers")
    return {**table, "rule": rule}


def _check_metrics(metrics: Any, where: str) -> None:
    if not isinstance(metrics, dict):
        raise FormatError(f"{where} must be an object, found {_kind(metrics)}")
    calibration = metrics.get("calibration")
    if calibration is None:
        return
    bins = calibration.get("bins") if isinstance(calibration, dict) else None
    if not isinstance(bins, list) or not all(map(_is_bin, bins)):
        raise FormatError(f"{where}: calibration must hold bins with {', '.join(BIN_KEYS)}")
    if not _is_number(calibration.get("expected_calibration_error")):
        raise FormatError(f"{where}: expected_calibration_error must be a number")


def _is_bin(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(value.get(key) is not None and _is_number(value[key]) for key in BIN_KEYS)
        and all(_is_number(value.get(key)) for key in ("low", "high"))
    )


def _read_json(path: Path) -> dict[str, Any] | None:
    raw = _read_bytes(path)
    if raw is None:
        return None
    try:
        document = json_of(raw)
    except UnicodeDecodeError as error:
        raise FormatError(f"{shown(path)}, line {_line_of(raw, error)}: not UTF-8 text") from error
    except ValueError as error:
        place = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise FormatError(f"{shown(path)}{place}: not valid JSON: {_reason(error)}") from error
    if not isinstance(document, dict):
        raise FormatError(f"{shown(path)}, line 1: expected a JSON object, found {_kind(document)}")
    return document


def _reason(error: Exception) -> str:
    # The decoder's own text counts lines from the start of what it was given.
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return str(error)


def _line_of(raw: bytes, error: UnicodeDecodeError) -> int:
    return raw.count(b"\n", 0, error.start) + 1


def _read_toml(path: Path) -> dict[str, Any]:
    raw = _read_bytes(path)
    if raw is None:
        return {}
    try:
        return tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FormatError(f"{shown(path)}, line {_line_of(raw, error)}: not UTF-8 text") from error
    except (ValueError, RecursionError) as error:  # its text names line and column
        raise FormatError(f"{shown(path)}: not valid TOML: {error}") from error


def _read_bytes(path: Path) -> bytes | None:
    with storage_errors(path, "read"):
        return read_bytes(path) if path.exists() else None


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
    history = records.history
    nothing = replace(
        history,
        round=history.round[:0],
        series={name: values[:0] for name, values in history.series.items()},
        weight_norms=np.empty((0, 0)),
        test={},
    )
    gone: dict[str, Any] = dict.fromkeys(("evaluation", "worth", "path_table", "inference", "points"))
    return replace(records, history=nothing, result=result, **gone)
