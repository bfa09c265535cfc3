"""The round log: one JSON object per line, only ever appended to while a run goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from fastadmm.files.atomic import atomic_file, storage_errors
from fastadmm.files.modes import owner_only
from fastadmm.files.reading import json_of, read_bytes
from fastadmm.solver.history import RoundRecord


class RoundLog:
    """Append-only writer of ``rounds.jsonl``."""

    def __init__(self, path: Path, keep_rounds: int = 0) -> None:
        self.path = path
        self._truncate(keep_rounds)
        with storage_errors(path):
            self._file = open(path, "a", encoding="utf-8", opener=owner_only)  # noqa: SIM115 (closed by close())

    def _truncate(self, keep_rounds: int) -> None:
        if not self.path.exists():
            return
        kept = [line for number, line in self._lines() if number <= keep_rounds]
        with atomic_file(self.path) as temporary:
            temporary.write_text("".join(kept), encoding="utf-8")

    def _lines(self) -> Iterator[tuple[int, str]]:
        text = read_bytes(self.path).decode("utf-8", errors="replace")
        for line in text.splitlines(keepends=True):
            try:
                number = json_of(line)["round"]
            except (ValueError, KeyError, TypeError):
                continue
            if line.endswith("\n") and isinstance(number, int):
                yield number, line

    def append(self, record: RoundRecord | dict[str, Any]) -> None:
        """Write one round and hand it to the operating system."""
        values = record if isinstance(record, dict) else record.to_json()
        with storage_errors(self.path):
            self._file.write(json.dumps(values, allow_nan=False) + "\n")
            self._file.flush()

    def sync(self) -> None:
        """Force the log to disk; done before each checkpoint."""
        with storage_errors(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        with storage_errors(self.path):
            self._file.close()

    def __enter__(self) -> RoundLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
