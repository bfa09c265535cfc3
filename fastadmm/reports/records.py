"""Reads what a run left behind: its round log, result, configuration, environment and evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastadmm.errors import FormatError, StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.reading import json_of, parse_json, read_bytes
from fastadmm.privacy.published import config_of, fixed_result, is_private
from fastadmm.privacy.statement import PrivacyStatement
from fastadmm.runs.claim import Said, said_of_run, without_claim
from fastadmm.runs.config import check_settings
from fastadmm.runs.folder import damaged, document_in
from fastadmm.worth.coalitions import Worth, read_worth

#: The numbers of a round that are shown, besides those of ``test``.
SERIES = ("seconds", "objective", "gap", "gap_absolute", "stationarity")


@dataclass(frozen=True)
class History:
    """The round log as columns; a value that a round does not have is NaN.

    Shapes: round, each of series, each of test (T,).
    """

    round: NDArray[np.int64]  # of shape (T,): round numbers, strictly increasing
    series: dict[str, NDArray[np.float64]]  # of shape (T,): one entry for every name in SERIES
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
    files = ("result", "run", "environment", "evaluation", "path", "inference", "privacy")
    found = {name: document_in(path / f"{name}.{'toml' if name == 'run' else 'json'}") for name in files}
    result, config, privacy = found["result"], found["run"] or {}, found["privacy"]
    check_settings(config, path / "run.toml")
    if result is not None and not isinstance(result.get("status"), str):
        raise FormatError(f"{shown(path / 'result.json')}: key status must be a text; train again")
    said = said_of_run(path, result, config)
    place, statement = shown(path / "privacy.json"), None
    if privacy is not None:
        statement = PrivacyStatement.from_json(privacy.get("statement"), place)
    return RunRecords(
        path=path,
        history=read_rounds(path / "rounds.jsonl"),
        result=None if result is None else without_claim(result, said),
        config=config,
        environment=found["environment"] or {},
        evaluation=found["evaluation"],
        privacy=statement,
        worth=read_worth(path / "worth.json"),
        path_table=found["path"],
        inference=found["inference"],
        said=said,
    )


def read_rounds(path: Path) -> History:
    """Read a round log into columns; rounds that a resumed run repeats replace the earlier ones."""
    records: list[dict[str, Any]] = []
    with damaged(path, "delete it, and 'fastadmm resume' goes on"):
        for record in _lines(path):
            if type(record["round"]) is not int:
                raise TypeError(f"round {record['round']!r}")
            while records and records[-1]["round"] >= record["round"]:
                records.pop()
            records.append(record)
        return history_of(records)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
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
            yield parse_json(line, f"{shown(path)}, line {number}")


def history_of(records: list[dict[str, Any]]) -> History:
    """The round log as columns."""
    tests = [record.get("test") or {} for record in records]

    def columns(names: Iterable[str], rows: list[dict[str, Any]]) -> dict[str, NDArray[np.float64]]:
        return {name: np.array([row.get(name) for row in rows], dtype=np.float64) for name in names}

    rounds = np.array([record["round"] for record in records], dtype=np.int64)
    return History(
        rounds, columns(SERIES, records), columns(dict.fromkeys(n for t in tests for n in t), tests)
    )


def published(records: RunRecords) -> RunRecords:
    """The records of a run that may be passed on: ``docs/privacy.md#what-may-leave``."""
    records = replace(records, config=config_of(records.config))
    if not is_private(records.privacy, records.config):
        return records
    result = None if records.result is None else fixed_result(records.result)
    gone: dict[str, Any] = dict.fromkeys(("evaluation", "worth", "path_table", "inference"))
    return replace(records, history=history_of([]), result=result, **gone)
