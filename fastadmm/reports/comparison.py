"""Several runs side by side: what was asked for, what came out, and what may be compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.files.atomic import shown
from fastadmm.privacy.published import KEPT_BACK, is_private, settings_of
from fastadmm.reports.records import RunRecords, damaged, published, read_records
from fastadmm.settings.keys import OBJECTIVE

if TYPE_CHECKING:
    from fastadmm.reports.records import History
    from fastadmm.runs.claim import Said

#: What runs may have in common, by its key in their provenance.
_PROVENANCE = {"data": "content", "rows": "row_digest", "labels": "labels", "test": "test"}

#: What runs on different data were trained on, by the first of it that is not the same.
_DIFFERENT = {
    "rows": "different rows",
    "labels": "the same rows with different labels or weights",
    "data": "the same rows and labels with different features, scaling or parties",
}

#: Letter of what a run does not record.
_UNKNOWN = "?"


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison."""

    name: str  # unique among the runs compared: the directory's name, with as many of its parents as it takes
    path: Path
    status: str  # as in ``result.json``; ``"not finished"`` without one
    settings: dict[str, Any]  # the flat configuration, without provenance
    rounds: int | None
    seconds: float | None
    objective: float | None  # of the final model, else of the last logged round
    gap: float | None  # of the final model, else of the last logged round
    stationarity: float | None  # of the final model, else of the last logged round
    epsilon: float | None
    delta: float | None
    test: dict[str, float]  # metrics of the last logged round on the run's test partition
    evaluation: dict[str, float]  # metrics of ``fastadmm evaluate``
    evaluated_on: str  # name of the partition that was evaluated; empty for none
    same: dict[str, str]  # letters of data, rows, labels and test: runs with one letter have that in common
    history: History
    gap_within: float | None = None
    said: Said | None = None  # what may be said of the run's claim

    def to_json(self) -> dict[str, Any]:
        """The run as plain values; what is infinite is written ``"inf"``."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "claim": None if self.said is None else self.said.line,
            **({} if self.gap_within is None else {"gap_within": self.gap_within}),
            "epsilon": "inf" if self.epsilon == math.inf else self.epsilon,
            "path": str(self.path),
            "settings": self.settings,
            "test": self.test,
            "evaluation": self.evaluation,
            "evaluated_on": self.evaluated_on,
            "same": self.same,
        }


#: What is one value of a run, in a table and in a document.
_PLAIN = ("name", "status", "rounds", "seconds", "objective", "gap", "stationarity", "epsilon", "delta")


@dataclass(frozen=True)
class RunComparison:
    """Several runs and what distinguishes them."""

    runs: list[ComparedRun]  # in the order given
    differing: list[str]  # settings that are not the same in all runs, in the order of the configuration
    notes: list[str] = field(default_factory=list)  # what may not be compared, and why: whole sentences

    def metric_names(self) -> tuple[list[str], list[str]]:
        """Names of test metrics and of evaluated metrics that at least one run has."""
        tested = dict.fromkeys(name for run in self.runs for name in run.test)
        evaluated = dict.fromkeys(name for run in self.runs for name in run.evaluation)
        return list(tested), list(evaluated)

    def to_json(self) -> dict[str, Any]:
        """The whole comparison as plain values, without the curves."""
        return {
            "runs": [run.to_json() for run in self.runs],
            "differing": self.differing,
            "notes": self.notes,
        }


def compare_runs(paths: Sequence[str | Path]) -> RunComparison:
    """Read several runs and find out what they have in common."""
    directories = [Path(path) for path in paths]
    if len(directories) < 2:
        raise ConfigError("compare: give at least two run directories")
    resolved = [path.resolve() for path in directories]
    for k, path in enumerate(resolved):
        if path in resolved[:k]:
            raise ConfigError(f"compare: {shown(directories[k])} is given twice")
    records = [read_records(path) for path in directories]
    letters = {
        name: _letters([_provenance(record, key) for record in records]) for name, key in _PROVENANCE.items()
    }
    # Of digests nothing is passed on but which of them are equal.
    records = [published(record) for record in records]
    runs = []
    for k, (record, name) in enumerate(zip(records, _names(resolved))):
        with damaged(record.path, "a file in it is not what its command wrote"):
            runs.append(_compared(record, name, {key: letters[key][k] for key in letters}))
    differing = _differing(runs)
    same_data = all(_one(letters[name]) for name in ("data", "rows", "labels"))
    return RunComparison(runs, differing, _notes(runs, records, differing, same_data))


def _of_objective(keys: Iterable[str], runs: Sequence[ComparedRun]) -> list[str]:
    """Settings of what is minimised; tables are flat here, with a dot between table and key."""
    # Where a run holds out a share of its rows, the seed says which.
    drawn = any(isinstance(run.settings.get("validation"), float) for run in runs)
    return [key for key in keys if key.partition(".")[0] in OBJECTIVE and (key != "seed" or drawn)]


def _compared(records: RunRecords, name: str, letters: dict[str, str]) -> ComparedRun:
    result, history = records.result or {}, records.history

    def number(key: str) -> float | None:
        value = result.get(key) if records.result is not None else None
        if records.result is None and len(history):
            value = float(history.series[key][-1])
        return value if value is not None and math.isfinite(value) else None

    rounds = result.get("rounds")
    if rounds is None and len(history):
        rounds = int(history.round[-1])
    privacy = records.privacy
    private = is_private(privacy, records.config)
    mode = privacy.mode if privacy is not None else "private" if private else "none"
    evaluation = records.evaluation or {}
    # A path chooses its λ: it is in the result, not in the configuration.
    chosen = {"lambda": result["lambda"]} if isinstance(result.get("lambda"), float) else {}
    return ComparedRun(
        name=name,
        path=records.path,
        status=str(result.get("status") or "not finished"),
        settings={**settings_of(records.config), **chosen, "privacy.mode": mode},
        rounds=rounds,
        **{key: number(key) for key in ("seconds", "objective", "gap", "stationarity")},
        epsilon=privacy.epsilon if privacy is not None and private else None,
        delta=privacy.delta if privacy is not None and private else None,
        test={key: float(column[-1]) for key, column in history.test.items() if np.isfinite(column[-1])},
        evaluation={
            key: float(value)
            for key, value in evaluation.get("metrics", {}).items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        },
        evaluated_on=str(evaluation.get("data") or ""),
        same=letters,
        history=history,
        gap_within=result.get("gap_within"),
        said=records.said,
    )


def _names(paths: list[Path]) -> list[str]:
    """Shortest ends of the paths that tell them apart."""
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _provenance(records: RunRecords, key: str) -> Any:
    # That labels or columns are equal confirms a guess of them; ids of rows are not protected.
    if key != "row_digest" and is_private(records.privacy, records.config):
        return None
    provenance = records.config.get("provenance")
    value = provenance.get(key) if isinstance(provenance, dict) else None
    # A run without a test partition has none to differ from.
    return "none" if key == "test" and value is None and provenance is not None else value


def _letters(values: list[Any]) -> list[str]:
    """A letter for every distinct value; "?" for what is not known."""
    known: list[Any] = []
    for value in values:
        if value not in (None, "none", *known):
            known.append(value)
    names = {"none": "", None: _UNKNOWN}
    return [names[value] if value in ("none", None) else _letter(known.index(value)) for value in values]


def _letter(k: int) -> str:
    return chr(65 + k % 26) + (str(k // 26) if k >= 26 else "")


def _one(letters: list[str]) -> bool:
    return len(set(letters)) == 1 and letters[0] != _UNKNOWN


def _differing(runs: list[ComparedRun]) -> list[str]:
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    private = [run for run in runs if run.settings["privacy.mode"] != "none"]

    def differs(key: str) -> bool:
        # A run without privacy has no noise to set; that its settings are unset says nothing more.
        only = key.startswith("privacy.") and key not in ("privacy.mode", "privacy.epsilon", "privacy.delta")
        among = [run.settings.get(key) for run in (private if only else runs)]
        return any(value != among[0] for value in among[1:])

    return [key for key in keys if differs(key)]


def _notes(
    runs: list[ComparedRun], records: list[RunRecords], differing: list[str], same_data: bool
) -> list[str]:
    notes = []
    private = [run.name for run in runs if run.settings["privacy.mode"] != "none"]
    unknown = [
        run.name
        for run in runs
        if _UNKNOWN in [run.same[what] for what in ("data", "rows", "labels")]
        and (run.same["rows"] == _UNKNOWN or run.name not in private)
    ]
    if unknown:
        notes.append(f"Data unknown: {', '.join(unknown)} do not record digests of their data.")
    elif private and _one([run.same["rows"] for run in runs]):
        notes.append(
            "Data not compared: whether labels and features are the same is not said of "
            f"{', '.join(private)}: it would confirm a guess of them."
        )
    elif not same_data:
        what = next(what for what in _DIFFERENT if not _one([run.same[what] for run in runs]))
        notes.append(f"The runs were trained on {_DIFFERENT[what]} (digests differ).")
    objective = _of_objective(differing, runs)
    if private:
        pass  # of these no objective is shown
    elif not same_data:
        notes.append("Objectives are not comparable: they are of different data.")
    elif objective:
        verb = "differs" if len(objective) == 1 else "differ"
        notes.append(f"Objectives are not comparable: {', '.join(objective)} {verb}.")
    if len({run.same["test"] for run in runs if run.test}) > 1:
        notes.append("Test metrics are not comparable: the test partitions differ (digests differ).")
    if private:
        notes.append(f"{KEPT_BACK} Not shown of {', '.join(private)}.")
    for line in dict.fromkeys(run.said.line for run in runs if run.said is not None and not run.said.claim):
        of = [run.name for run in runs if run.said is not None and run.said.line == line]
        notes.append(f"Claim of {', '.join(of)}: {line}.")
    open_runs = [run.name for run in runs if run.status == "not finished"]
    if open_runs:
        notes.append(f"Not finished: {', '.join(open_runs)}; the last logged round is shown.")
    return notes
