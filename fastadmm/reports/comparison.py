"""Several runs side by side: what was asked for, what came out, and what may be compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.figures.numbers import NONE, format_duration, format_number, round_up
from fastadmm.files.atomic import shown
from fastadmm.privacy.published import KEPT_BACK, is_private, settings_of
from fastadmm.privacy.statement import rounded_up
from fastadmm.reports.html import plain_value, told
from fastadmm.reports.plots import metric_label
from fastadmm.reports.records import RunRecords, published, read_records
from fastadmm.runs.claim import Said
from fastadmm.runs.folder import damaged
from fastadmm.settings.keys import OBJECTIVE

#: Letter of what a run does not record, or does not say.
_UNKNOWN = "?"


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison."""

    name: str  # unique among the runs compared: the directory's name, with as many of its parents as it takes
    path: Path
    status: str  # as in ``result.json``; ``"not finished"`` without one
    rounds: int | None
    seconds: float | None
    objective: float | None  # of the final model, else of the last logged round
    gap: float | None  # of the final model, else of the last logged round
    stationarity: float | None  # of the final model, else of the last logged round
    epsilon: float | None
    delta: float | None
    settings: dict[str, Any]  # the flat configuration, without provenance
    test: dict[str, float]  # metrics of the last logged round on the run's test partition
    evaluation: dict[str, float]  # metrics of ``fastadmm evaluate``
    evaluated_on: str  # name of the partition that was evaluated; empty for none
    data: str  # a letter: runs with the same one were trained on the same features
    gap_within: float | None
    said: Said | None  # what may be said of the run's claim

    def to_json(self) -> dict[str, Any]:
        """The run as plain values; what is infinite is written ``"inf"``."""
        document = vars(self) | {"path": str(self.path), "claim": self.said and self.said.line}
        document["epsilon"] = "inf" if self.epsilon == math.inf else self.epsilon
        del document["said"]
        return document


@dataclass(frozen=True)
class RunComparison:
    """Several runs and what distinguishes them."""

    runs: list[ComparedRun]  # in the order given
    differing: list[str]  # settings that are not the same in all runs, in the order of the configuration
    notes: list[str]  # what may not be compared, and why: whole sentences

    def to_json(self) -> dict[str, Any]:
        """The whole comparison as plain values."""
        return vars(self) | {"runs": [run.to_json() for run in self.runs]}


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
    provenance = [_provenance(record) for record in records]
    contents = [own and own.get("content") for own in provenance]
    known = [content for k, content in enumerate(contents) if content not in (None, *contents[:k])]
    runs = []
    for record, name, content in zip(records, _names(resolved), contents):
        # Of digests nothing is passed on but which of them are equal.
        letter = _UNKNOWN
        if content is not None:
            again, k = divmod(known.index(content), 26)
            letter = chr(65 + k) + str(again or "")
        with damaged(record.path, "a file in it is not what its command wrote"):
            runs.append(_compared(published(record), name, letter))
    differing = _differing(runs)
    return RunComparison(runs, differing, _notes(runs, provenance, differing))


def _provenance(records: RunRecords) -> dict[str, Any] | None:
    """Digests of a run's data; that one is equal would confirm a guess of private data."""
    found = records.config.get("provenance")
    private = is_private(records.privacy, records.config)
    return None if private or not isinstance(found, dict) else found


def _compared(records: RunRecords, name: str, letter: str) -> ComparedRun:
    result, history, evaluation = records.result or {}, records.history, records.evaluation or {}
    privacy, private = records.privacy, is_private(records.privacy, records.config)
    logged = {key: float(column[-1]) for key, column in history.series.items() if len(history)}
    ended = logged if records.result is None else result
    last = int(history.round[-1]) if len(history) else None
    numbers = {key: ended.get(key) for key in ("seconds", "objective", "gap", "stationarity")}
    metrics = {k: v for k, v in evaluation.get("metrics", {}).items() if v is not None and plain_value(v)}
    # A path chooses its λ: it is in the result, not in the configuration.
    chosen = {"lambda": result["lambda"]} if isinstance(result.get("lambda"), float) else {}
    mode = privacy.mode if privacy is not None else "private" if private else "none"
    return ComparedRun(
        name=name,
        path=records.path,
        status=str(result.get("status") or "not finished"),
        rounds=last if result.get("rounds") is None else result["rounds"],
        **{key: v if v is not None and math.isfinite(v) else None for key, v in numbers.items()},
        epsilon=privacy.epsilon if privacy is not None and private else None,
        delta=privacy.delta if privacy is not None and private else None,
        settings={**settings_of(records.config), **chosen, "privacy.mode": mode},
        test={key: float(column[-1]) for key, column in history.test.items() if np.isfinite(column[-1])},
        evaluation={key: float(value) for key, value in metrics.items()},
        evaluated_on=str(evaluation.get("data") or ""),
        data=letter,
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
    runs: list[ComparedRun], provenance: list[dict[str, Any] | None], differing: list[str]
) -> list[str]:
    notes = []
    private = [run.name for run in runs if run.settings["privacy.mode"] != "none"]
    unknown = [run.name for run in runs if run.data == _UNKNOWN and run.name not in private]
    unended = [run.name for run in runs if run.status == "not finished"]
    known = [own for own in provenance if own is not None]
    # Where a run holds out a share of its rows, the seed says which; tables are flat here.
    drawn = any(isinstance(run.settings.get("validation"), float) for run in runs)
    objective = [key for key in differing if key.partition(".")[0] in OBJECTIVE and (key != "seed" or drawn)]
    if unknown:
        notes.append(f"Data unknown: {', '.join(unknown)} do not record digests of their data.")
    why = f"{', '.join(objective)} {'differs' if len(objective) == 1 else 'differ'}" if objective else ""
    if any(own.get(k) != known[0].get(k) for own in known for k in ("content", "row_digest", "labels")):
        why = "the runs were trained on different data (digests differ)"
    if private:
        said = "whether labels and features are the same would confirm a guess of them"
        notes.append(f"Data not compared with {', '.join(private)}: {said}. {KEPT_BACK}")
    elif why:
        notes.append(f"Objectives are not comparable: {why}.")
    tested = [own["test"] for own in known if "test" in own]
    if any(own != tested[0] for own in tested):
        notes.append("Test metrics are not comparable: the test partitions differ (digests differ).")
    claims = [(run.name, run.said.line) for run in runs if run.said is not None and not run.said.claim]
    notes += [f"Claim of {name}: {line}." for name, line in claims]
    if unended:
        notes.append(f"Not finished: {', '.join(unended)}; the last logged round is shown.")
    return notes


_STATUS = {
    "converged": "certified",
    "max_rounds": "round limit",
    "time_limit": "time limit",
    "early_stopped": "stopped early",
    "at_rounding": "at rounding",
}


def comparison_rows(comparison: RunComparison) -> list[tuple[str, list[str]]]:
    """Rows of a table: a label and one text per run."""
    runs = comparison.runs
    rows: dict[str, Callable[[ComparedRun], str]] = {
        "status": _status,
        "data": lambda run: run.data,
        "rounds": lambda run: format_number(run.rounds),
        "time": lambda run: format_duration(run.seconds),
        "objective": lambda run: format_number(run.objective, 7, zeros=True),
        "relative gap": lambda run: format_number(None if run.gap is None else round_up(run.gap), 3),
        "stationarity": lambda run: format_number(run.stationarity, 3),
        "ε spent": _epsilon,
    }
    optional = ("stationarity", "relative gap", "ε spent")
    found = [(label, list(map(text, runs))) for label, text in rows.items()]
    found = [row for row in found if row[0] not in optional or any(text != NONE for text in row[1])]
    for kind, metrics in (("test", [r.test for r in runs]), ("evaluated", [r.evaluation for r in runs])):
        names = dict.fromkeys(name for own in metrics for name in own)
        if names and kind == "evaluated":
            found.append(("evaluated on", [run.evaluated_on or NONE for run in runs]))
        for name in names:
            texts = [format_number(own.get(name), 5, zeros=True) for own in metrics]
            found.append((f"{kind} {metric_label(name)}", texts))
    return found + [(name, [told(run.settings.get(name)) for run in runs]) for name in comparison.differing]


def _status(run: ComparedRun) -> str:
    claim, said = "" if run.said is None else run.said.claim, run.said
    if claim.startswith("certified"):
        return claim.replace("_", " ")
    # Among models of bounded size only, or of other weights: not certified.
    plain = run.gap_within is not None or claim or (said is not None and said.refused)
    return run.status if plain and run.status == "converged" else _STATUS.get(run.status, run.status)


def _epsilon(run: ComparedRun) -> str:
    if run.epsilon is None or run.epsilon == math.inf:
        return NONE if run.epsilon is None else "∞"
    return f"{rounded_up(run.epsilon)} (δ {format_number(run.delta)})"
