"""Where a run shows what it does."""

from __future__ import annotations

from typing import Any, Protocol

from fastadmm.solver.history import RoundRecord


class Display(Protocol):
    """Where a run shows what it does."""

    def note(self, text: str) -> None:
        """Show one line."""

    def start(self, target: float, max_rounds: int) -> None:
        """Rounds begin."""

    def round(self, record: RoundRecord) -> None:
        """One round is done."""

    def stop(self) -> None:
        """Rounds are over."""


class Silent:
    """A display that shows nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""

    def start(self, *limits: float) -> None:
        """Show nothing."""

    def round(self, record: Any) -> None:
        """Show nothing."""

    def stop(self) -> None:
        """Show nothing."""
