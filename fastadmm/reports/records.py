"""What runs left behind: round log, result, configuration, environment, evaluation; and runs compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastadmm.errors import ConfigError, FormatError, StorageError
from fastadmm.figures import numbers
from fastadmm.figures.numbers import NONE, format_number, metric_label, plain_value, told
from fastadmm.files.atomic import plain, shown
from fastadmm.files.seal import damaged
from fastadmm.privacy.published import KEPT_BACK, config_of, fixed_result, is_private, settings_of
from fastadmm.privacy.statement import PrivacyStatement, rounded_up
from fastadmm.runs.claim import Said, said_of_run, without_claim
from fastadmm.runs.config import check_settings
from fastadmm.runs.folder import document_in, rounds_in
from fastadmm.settings.keys import OBJECTIVE
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
    inference: dict[str, Any] | None = None  # from ``inference.json``
    said: Said | None = None


def read_records(run_dir: str | Path) -> RunRecords:
    """Read a run directory, finished or not."""
    path = Path(run_dir)
    if not path.is_dir():
        wrong = "no such run directory; pass the directory that `fastadmm train -o` wrote"
        raise StorageError(f"{shown(path)}: {wrong}")
    if (path / "owners-run.toml").exists():
        raise StorageError(f"{shown(path)}: a run of `fastadmm owners train`, which has other records")
    known = [path / name for name in ("run.toml", "rounds.jsonl", "result.json")]
    if not any(file.exists() for file in known):
        wrong = "not a run directory (no run.toml, rounds.jsonl or result.json in it)"
        raise FormatError(f"{shown(path)}: {wrong}; give what 'fastadmm train' wrote")
    files = ("result", "run", "environment", "evaluation", "inference", "privacy")
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
        inference=found["inference"],
        said=said,
    )


def read_rounds(path: Path) -> History:
    """Read a round log into columns; rounds that a resumed run repeats replace the earlier ones."""
    records: list[dict[str, Any]] = []
    for record, _ in rounds_in(path):
        while records and records[-1]["round"] >= record["round"]:
            records.pop()
        records.append(record)
    with damaged(path, "delete it, and 'fastadmm resume' goes on"):
        return history_of(records)


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
    gone: dict[str, Any] = dict.fromkeys(("evaluation", "worth", "inference"))
    return replace(records, history=history_of([]), result=result, **gone)


# --- several runs: what was asked for, what came out, and what may be compared -----------------------------


@dataclass(frozen=True)
class RunComparison:
    """Several runs and what distinguishes them."""

    runs: list[dict[str, Any]]  # in the order given, each as :func:`_compared` describes it
    said: list[Said | None]  # what may be said of the claim of each
    differing: list[str]  # settings that are not the same in all runs, in the order of the configuration
    notes: list[str]  # what may not be compared, and why: whole sentences

    def to_json(self) -> dict[str, Any]:
        """The whole comparison as plain values; what is infinite is written ``"inf"``."""
        runs = [run | {"claim": said and said.line} for run, said in zip(self.runs, self.said)]
        about = {"runs": runs, "differing": self.differing, "notes": self.notes}
        return dict(plain(about, "inf"))


def compare_runs(paths: Sequence[str | Path]) -> RunComparison:
    """Read several runs and find out what they have in common."""
    if len(paths) < 2:
        raise ConfigError("compare: give at least two run directories")
    records = [read_records(path) for path in paths]
    runs = []
    for record in records:
        with damaged(record.path, "a file in it is not what its command wrote"):
            runs.append(_compared(published(record)))
    keys = dict.fromkeys(key for run in runs for key in run["settings"])
    first, *others = (run["settings"] for run in runs)
    differing = [key for key in keys if any(own.get(key) != first.get(key) for own in others)]
    said, notes = [record.said for record in records], _notes(runs, records, differing)
    return RunComparison(runs, said, differing, notes)


def _provenance(records: RunRecords) -> dict[str, Any] | None:
    """Digests of a run's data; that one is equal would confirm a guess of private data."""
    found = records.config.get("provenance")
    private = is_private(records.privacy, records.config)
    return None if private or not isinstance(found, dict) else found


def _compared(records: RunRecords) -> dict[str, Any]:
    """One run: numbers of its final model, else of the last logged round, and what it was asked for."""
    result, history, evaluation = records.result or {}, records.history, records.evaluation or {}
    privacy, private = records.privacy, is_private(records.privacy, records.config)
    logged = {key: float(column[-1]) for key, column in history.series.items() if len(history)}
    ended = logged if records.result is None else result
    last = int(history.round[-1]) if len(history) else None
    measured = {key: ended.get(key) for key in ("seconds", "objective", "gap", "stationarity")}
    metrics = {k: v for k, v in evaluation.get("metrics", {}).items() if v is not None and plain_value(v)}
    # A path chooses its λ: it is in the result, not in the configuration.
    chosen = {"lambda": result["lambda"]} if isinstance(result.get("lambda"), float) else {}
    mode = privacy.mode if privacy is not None else "private" if private else "none"
    return {
        "name": shown(records.path),
        "path": str(records.path),
        "status": str(result.get("status") or "not finished"),
        "rounds": last if result.get("rounds") is None else result["rounds"],
        **{key: v if v is not None and math.isfinite(v) else None for key, v in measured.items()},
        **{key: getattr(privacy, key) if privacy and private else None for key in ("epsilon", "delta")},
        "settings": {**settings_of(records.config), **chosen, "privacy.mode": mode},
        "test": {key: float(own[-1]) for key, own in history.test.items() if np.isfinite(own[-1])},
        "evaluation": {key: float(value) for key, value in metrics.items()},
        "evaluated_on": str(evaluation.get("data") or ""),
        "gap_within": result.get("gap_within"),
    }


def _notes(runs: list[dict[str, Any]], records: list[RunRecords], differing: list[str]) -> list[str]:
    notes, names = [], [run["name"] for run in runs]
    known = {name: own for name, own in zip(names, map(_provenance, records)) if own is not None}
    private = [run["name"] for run in runs if run["settings"]["privacy.mode"] != "none"]
    unknown = [name for name in names if not known.get(name, {}).get("content") and name not in private]
    unended = [run["name"] for run in runs if run["status"] == "not finished"]
    # Where a run holds out a share of its rows, the seed says which; tables are flat here.
    drawn = any(isinstance(run["settings"].get("validation"), float) for run in runs)
    objective = [key for key in differing if key.partition(".")[0] in OBJECTIVE and (key != "seed" or drawn)]
    if unknown:
        notes.append(f"Data unknown: {', '.join(unknown)} do not record digests of their data.")
    why = f"{', '.join(objective)} {'differs' if len(objective) == 1 else 'differ'}" if objective else ""
    data = {name: [own.get(k) for k in ("content", "row_digest", "labels")] for name, own in known.items()}
    first, *others = data or [""]
    if others := [name for name in others if data[name] != data[first]]:
        why = f"trained on different data than {first}: {', '.join(others)} (digests differ)"
    if private:
        said = "whether labels and features are the same would confirm a guess of them"
        notes.append(f"Data not compared with {', '.join(private)}: {said}. {KEPT_BACK}")
    elif why:
        notes.append(f"Objectives are not comparable: {why}.")
    tested = [own["test"] for own in known.values() if "test" in own]
    if any(own != tested[0] for own in tested):
        notes.append("Test metrics are not comparable: the test partitions differ (digests differ).")
    claims = [(name, own.said) for name, own in zip(names, records)]
    notes += [f"Claim of {name}: {said.line}." for name, said in claims if said and not said.claim]
    if unended:
        notes.append(f"Not finished: {', '.join(unended)}; the last logged round is shown.")
    return notes


def comparison_rows(comparison: RunComparison) -> list[tuple[str, list[str]]]:
    """Rows of a table: a label and one text per run."""
    runs = comparison.runs

    def number(key: str, digits: int = 4, **how: bool) -> list[str]:
        return [format_number(run[key], digits, **how) for run in runs]

    gaps = [None if run["gap"] is None else numbers.round_up(run["gap"]) for run in runs]
    rows = {
        "status": [_status(run, said) for run, said in zip(runs, comparison.said)],
        "rounds": number("rounds"),
        "time": [numbers.format_duration(run["seconds"]) for run in runs],
        "objective": number("objective", 7, zeros=True),
        "relative gap": [format_number(gap, 3) for gap in gaps],
        "stationarity": number("stationarity", 3),
        "ε spent": [_epsilon(run["epsilon"], run["delta"]) for run in runs],
    }
    optional = ("stationarity", "relative gap", "ε spent")
    found = [row for row in rows.items() if row[0] not in optional or any(text != NONE for text in row[1])]
    for kind, key in (("test", "test"), ("evaluated", "evaluation")):
        names = dict.fromkeys(name for run in runs for name in run[key])
        if names and kind == "evaluated":
            found.append(("evaluated on", [run["evaluated_on"] or NONE for run in runs]))
        for name in names:
            texts = [format_number(run[key].get(name), 5, zeros=True) for run in runs]
            found.append((f"{kind} {metric_label(name)}", texts))
    every = [run["settings"] for run in runs]
    return found + [(name, [told(own.get(name)) for own in every]) for name in comparison.differing]


def _status(run: dict[str, Any], said: Said | None) -> str:
    claim = "" if said is None else said.claim
    return str(claim if claim.startswith("certified") else run["status"]).replace("_", " ")


def _epsilon(epsilon: float | None, delta: float | None) -> str:
    if epsilon is None or epsilon == math.inf:
        return NONE if epsilon is None else "∞"
    return f"{rounded_up(epsilon)} (δ {format_number(delta)})"
