"""The party's record of all that was asked of it: one line for every answer and every refusal.

Each line ends with a digest of its own bytes and of the line before, from the first line on: what was
changed, moved, added or removed among the lines does not verify. Whole lines cut off at the end are seen by
whoever has written down the last digest, which ``fastadmm agent status`` shows.

Answers are limited by approvals; refusals and repetitions are as many as somebody asks for. So that nobody
fills the disk with them, a day has room for some.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastadmm.between.journal import synchronise_data
from fastadmm.files.atomic import storage_errors, synchronise, write_all
from fastadmm.files.reading import read_bytes
from fastadmm.files.seal import chained, damaged, unchained

#: The audit log, in the agent's directory.
AUDIT = "audit.jsonl"

_BEGIN = b'{"format": "fastadmm-audit", "version": "1.0"'

#: Longest file that is read as a whole.
_MOST = 1 << 34

#: Lines of refusals and repetitions in a day (of UTC), and calls that such a line names.
_OF_DAY, _CALLS = 1200, 8

#: What is kept in memory of a line about an answer.
_KEPT = ("time", "run", "number", "task", "calls", "request", "answer", "counts")


def moment() -> str:
    """The time, as lines have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class AuditLog:
    """A log that is appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        is_new = not path.exists()
        raw = b"" if is_new else read_bytes(path, _MOST)
        whole = raw[: raw.rfind(b"\n") + 1]
        with storage_errors(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
            # What has no end was cut by a kill.
            os.ftruncate(self._file, len(whole))
            os.lseek(self._file, 0, os.SEEK_END)
        self.digest, self.answered = "", set[str]()
        self.answers: list[dict[str, Any]] = []
        self._day, self._today = "", 0
        if whole:
            entries, self.digest = _verified(whole, path)
            for entry in entries:
                self._take_in(entry)
        else:
            self._append(_BEGIN)
            self.sync()
            with storage_errors(path):
                synchronise(path.parent)

    def add(self, entry: dict[str, Any]) -> None:
        """Append a line."""
        self._append(json.dumps(entry, allow_nan=False).encode()[:-1])
        self._take_in(entry)

    def _take_in(self, entry: dict[str, Any]) -> None:
        if "answer" in entry:
            self.answered.add(entry["request"])
            if not entry.get("repeated"):
                self.answers.append({key: entry[key] for key in _KEPT if key in entry})

    def add_bounded(self, entry: dict[str, Any]) -> bool:
        """Append a line on what anybody may cause without end, unless the day has enough of them."""
        if entry["time"][:10] != self._day:
            self._day, self._today = entry["time"][:10], 0
        if self._today == _OF_DAY:
            return False
        self._today += 1
        self.add(entry | {"calls": entry["calls"][:_CALLS]})
        return True

    def sync(self) -> None:
        """Put all lines on disk."""
        with storage_errors(self.path):
            synchronise_data(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _append(self, body: bytes) -> None:
        raw, digest = chained(body, self.digest)
        with storage_errors(self.path):
            end = os.lseek(self._file, 0, os.SEEK_END)
            try:
                write_all(self._file, raw)
            except OSError:
                os.ftruncate(self._file, end)
                raise
        self.digest = digest


def read_audit(path: Path) -> tuple[list[dict[str, Any]], str]:
    """All lines of a log, verified."""
    raw = read_bytes(path, _MOST)
    return _verified(raw[: raw.rfind(b"\n") + 1], path)


def _verified(whole: bytes, path: Path) -> tuple[list[dict[str, Any]], str]:
    digest, entries = "", []
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        said = f"line {number}: changed since it was written, or a line before it was"
        with damaged(path, "keep the file as evidence, and move it away to begin another", said):
            body, digest = unchained(line, digest)
            if number == 1 and body != _BEGIN:
                raise ValueError("another header")
        if number > 1:
            entries.append(json.loads(body + b"}"))
    return entries, digest


def used(entries: list[dict[str, Any]], approval: str, run: str) -> dict[str, int]:
    """What was answered or refused so far, as approvals count it."""
    counts = [one["counts"] for one in entries if "counts" in one]
    own = [one for one in counts if (one["approval"], one["run"]) == (approval, run)]
    return {key: sum(one[key] for one in own) for key in ("requests", "rows")}
