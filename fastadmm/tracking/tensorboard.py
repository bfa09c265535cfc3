"""A run as TensorBoard event files."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from fastadmm.files.atomic import storage_errors
from fastadmm.files.escapes import markdown
from fastadmm.files.modes import make_private
from fastadmm.tracking.targets import missing


class TensorBoardTracker:
    """Scalars per round, settings and statement as text."""

    kind = "tensorboard"

    def __init__(self, directory: Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise missing(self.kind, "tensorboardX") from error
        self.directory = directory
        self._make = SummaryWriter
        self._writer: Any = None
        self._last = 0

    def begin(self, settings: dict[str, Any], privacy: dict[str, Any], first_round: int) -> None:
        """Open a new event file; rounds from ``first_round`` on replace those of older files."""
        with storage_errors(self.directory):
            make_private(self.directory)
            purge = {"purge_step": first_round} if first_round > 1 else {}
            # Files are named by the second, and a file of that name would be overwritten.
            suffix = f".{first_round:07d}.{secrets.token_hex(4)}"
            self._writer = self._make(str(self.directory), filename_suffix=suffix, **purge)
            self._last = first_round - 1
            self._writer.add_text("settings", _table(settings), self._last)
            self._writer.add_text("privacy", _table(privacy), self._last)

    def round(self, number: int, values: dict[str, float]) -> None:
        """Write one round's scalars."""
        self._last = number
        for name, value in values.items():
            self._writer.add_scalar(name, value, number)

    def flush(self) -> None:
        """Hand everything to the operating system."""
        with storage_errors(self.directory):
            self._writer.flush()

    def end(self, status: str, values: dict[str, float], texts: dict[str, str]) -> None:
        """Write the final scalars and words at the last round, and close the file."""
        with storage_errors(self.directory):
            for name, value in values.items():
                self._writer.add_scalar(name, value, self._last)
            self._writer.add_text("result", _table(texts), self._last)
            self._writer.close()

    def state(self) -> dict[str, Any]:
        """The directory."""
        return {"kind": self.kind, "directory": str(self.directory.resolve())}


def _table(values: dict[str, Any]) -> str:
    """Values as a Markdown table, which TensorBoard renders."""
    rows = [f"| {markdown(key)} | {markdown(str(value))} |" for key, value in values.items()]
    return "\n".join(["| name | value |", "|---|---|", *rows])
