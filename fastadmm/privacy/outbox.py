"""Messages of mode "message" on disk: a resumed run sends them again instead of drawing new noise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fastadmm.privacy.noise import GridMessage
from fastadmm.privacy.releases import Payment, Releases

__all__ = ["Outbox"]


class Outbox:
    """Messages by party and round; stored and charged before they are sent."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory
        self._releases = Releases(directory)

    def holds(self, party: str, round: int) -> bool:
        """Whether the message of a round was drawn."""
        return self._releases.holds(_name(party, round))

    def send(
        self, party: str, round: int, target: str, payment: Payment, draw: Callable[[], GridMessage]
    ) -> GridMessage:
        """The message of a round: the stored one, or a new one, which is stored and charged first."""

        def values() -> dict[str, object]:
            message = draw()
            return {"integers": message.integers, "grid": message.grid}

        return self._releases.obtain(
            _name(party, round),
            target,
            payment,
            values,
            lambda sent: GridMessage(sent["integers"], float(sent["grid"])),
        )


def _name(party: str, round: int) -> str:
    return f"round-{round:06d}-{party}"
