"""Where a run shows what it does."""

from __future__ import annotations

from typing import Any, Protocol


class Notes(Protocol):
    """Where work that has no rounds shows what it does."""

    def note(self, text: str) -> None:
        """Show one line."""


class Display(Notes, Protocol):
    """Where a run shows what it does."""

    def start(self, *limits: Any, **named: Any) -> None:
        """Rounds begin: the target, and the most of them; of owners the most alone."""

    def round(self, record: Any) -> None:
        """One round is done."""

    def stop(self) -> None:
        """Rounds are over."""


class Silent:
    """A display that shows nothing."""

    def _nothing(self, *what: Any) -> None:
        """Show nothing."""

    note = start = round = stop = coalition = _nothing
