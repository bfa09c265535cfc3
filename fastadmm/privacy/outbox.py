"""Sent messages on disk: a resumed run sends them again instead of drawing new noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fastadmm.errors import FormatError
from fastadmm.privacy.noise import GridMessage
from fastadmm.store.atomic import atomic_file, shown, storage_errors

__all__ = ["Outbox"]


class Outbox:
    """Messages by party and round; stored before they are sent.

    Parameters
    ----------
    directory : Path or None
        Made with the first message; None keeps nothing, for runs that cannot be resumed.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory

    def _path(self, party: str, round: int) -> Path | None:
        return None if self.directory is None else self.directory / f"round-{round:06d}-{party}.npz"

    def find(self, party: str, round: int, target: str) -> GridMessage | None:
        """The stored message of a round, or None.

        Parameters
        ----------
        party : str
        round : int
        target : str
            Digest of the public target that it has to answer.

        Returns
        -------
        GridMessage or None

        Raises
        ------
        FormatError
            If the file is damaged or answers another target: a second
            message for the round would cost privacy that was not charged.
        """
        path = self._path(party, round)
        if path is None or not path.exists():
            return None
        with storage_errors(path, "read"):
            try:
                with np.load(path, allow_pickle=False) as found:
                    message = GridMessage(found["integers"], float(found["grid"]))
                    answers = str(found["target"])
            except (ValueError, KeyError, EOFError, OSError) as error:
                raise FormatError(
                    f"{shown(path)}: not a message: {error}; the round was charged, so none is drawn again: "
                    "restore the file or start a new run"
                ) from None
        if answers != target:
            raise FormatError(
                f"{shown(path)}: answers another target than the one of this run; start a new run"
            )
        return message

    def store(self, party: str, round: int, target: str, message: GridMessage) -> None:
        """Write a message, whole or not at all, before it is sent.

        Parameters
        ----------
        party : str
        round : int
        target : str
            Digest of its public target.
        message : GridMessage

        Raises
        ------
        StorageError
            If it cannot be written; then it must not be sent.
        """
        path = self._path(party, round)
        if path is None or self.directory is None:
            return
        with storage_errors(path):
            self.directory.mkdir(exist_ok=True)
        with atomic_file(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, integers=message.integers, grid=message.grid, target=target)
