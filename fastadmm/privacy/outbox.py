"""Messages of mode "message" on disk: a resumed run sends them again instead of drawing new noise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fastadmm.privacy.noise import GridMessage
from fastadmm.privacy.releases import Payment, Releases

__all__ = ["Outbox"]


class Outbox:
    """Messages by party and round; stored and charged before they are sent.

    Parameters
    ----------
    directory : Path or None
        Made with the first message; None keeps nothing, for runs that cannot be resumed.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory
        self._releases = Releases(directory)

    def holds(self, party: str, round: int) -> bool:
        """Whether the message of a round was drawn; arguments as in :meth:`send`."""
        return self._releases.holds(_name(party, round))

    def send(
        self, party: str, round: int, target: str, payment: Payment, draw: Callable[[], GridMessage]
    ) -> GridMessage:
        """The message of a round: the stored one, or a new one, which is stored and charged first.

        Parameters
        ----------
        party : str
        round : int
        target : str
            Digest of the public target that it has to answer.
        payment : Payment
        draw : callable
            Makes the message.

        Raises
        ------
        FormatError
            If the stored message is damaged or answers another target: a second message for the round
            would cost privacy that was not charged.
        PrivacyBudgetError
            If the budget does not allow it.
        StorageError
            If it cannot be written; then it must not be sent.
        """

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
