"""A display that also logs: between a run and the display that the user sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastadmm.errors import FastadmmError, FormatError
from fastadmm.files.atomic import shown, storage_errors, write_json
from fastadmm.files.reading import read_json
from fastadmm.privacy.published import (
    is_private,
    privacy_facts,
    result_numbers,
    result_texts,
    round_numbers,
    settings_of,
)
from fastadmm.solver.history import RoundRecord
from fastadmm.tracking.mlflow import MlflowTracker, uri_of

#: Where the logs of a run are, in its directory.
STATE = "tracking.json"


@contextmanager
def tracked(run: str | Path, targets: Sequence[str] = (), display: Any = None) -> Iterator[Tracking]:
    """Log a run that is started or resumed inside the block; targets are ``mlflow`` or ``mlflow=URI``."""
    tracking = Tracking(Path(run), [uri_of(text) for text in targets], display)
    try:
        yield tracking
    finally:
        tracking.close()


class Tracking:
    """Display and log of one run; made by :func:`tracked`."""

    def __init__(self, run: Path, uris: Sequence[str], display: Any = None) -> None:
        from fastadmm.runs.display import Silent

        self.run = run
        self.display = display if display is not None else Silent()
        self.private = True  # until the statement says otherwise
        self.parties: list[str] = []
        # Before anything is trained: a missing library or a server that is down is said now.
        self._new = [MlflowTracker(uri, run.resolve().name) for uri in uris]
        self._open_trackers: list[MlflowTracker] = []

    def note(self, text: str) -> None:
        """Pass on to the display."""
        self.display.note(text)

    def start(self, target: float, max_rounds: int) -> None:
        """Rounds begin: the run directory says with what settings and under what statement."""
        trackers = [*self._of_earlier_parts(), *self._new]
        if trackers:
            from fastadmm.reports.records import read_records

            records = read_records(self.run)
            statement = records.privacy
            self.private = statement is None or is_private(statement, records.config)
            self.parties = list(_content(records.config))
            first = int(records.history.round[-1]) + 1 if len(records.history) else 1
            for tracker in trackers:
                facts = {} if statement is None else privacy_facts(statement)
                tracker.begin(settings_of(records.config), facts, first)
                self._open_trackers.append(tracker)
            write_json(self.run / STATE, {"logs": [tracker.state() for tracker in self._open_trackers]})
        self.display.start(target, max_rounds)

    def round(self, record: RoundRecord) -> None:
        """Log a round, and show it."""
        if self._open_trackers:
            values = round_numbers(record, self.parties, private=self.private)
            self._each(lambda tracker: tracker.round(record.round, values))
        self.display.round(record)

    def stop(self) -> None:
        """Rounds are over."""
        self._each(lambda tracker: tracker.flush())
        self.display.stop()

    def finish(self, result: dict[str, Any]) -> dict[str, Any]:
        """Log the result and close the logs."""
        numbers = result_numbers(result, private=self.private)
        texts = result_texts(result, private=self.private)
        self._each(lambda tracker: tracker.end(texts["status"], numbers, texts))
        self._open_trackers = []
        return result

    def close(self) -> None:
        """Close logs of a run that ended without a result."""
        self._each(lambda tracker: tracker.end("failed", {}, {"status": "failed"}))
        self._open_trackers = []

    def _each(self, action: Callable[[MlflowTracker], None]) -> None:
        for tracker in list(self._open_trackers):
            try:
                action(tracker)
            except FastadmmError as error:
                self._open_trackers.remove(tracker)
                self.display.note(f"warning: {error}; this log ends here, training goes on")

    def _of_earlier_parts(self) -> list[MlflowTracker]:
        """The logs that a resumed run has already."""
        path = self.run / STATE
        with storage_errors(path, "read"):
            if not path.exists():
                return []
            try:
                # Version 0.2 wrote files for TensorBoard, too.
                states = [state for state in read_json(path)["logs"] if state["kind"] == "mlflow"]
                known = [(str(state["uri"]), str(state["run_id"])) for state in states]
            except (ValueError, KeyError, TypeError) as error:
                raise FormatError(
                    f"{shown(path)}: not what a tracked run writes ({type(error).__name__}); delete it "
                    "to go on without its logs"
                ) from None
        return [MlflowTracker(uri, self.run.resolve().name, run_id) for uri, run_id in known]


def _content(config: dict[str, Any]) -> dict[str, Any]:
    """Digests by party; their keys are the parties' names, in order."""
    provenance = config.get("provenance")
    content = provenance.get("content") if isinstance(provenance, dict) else None
    return content if isinstance(content, dict) else {}
