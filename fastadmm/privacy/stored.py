"""Fusion messages and randomised labels on disk: drawn once, stored before use, never drawn again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import FormatError
from fastadmm.privacy.descent import LocalModel
from fastadmm.privacy.fusion_party import FusionMessage
from fastadmm.privacy.levels import Channel
from fastadmm.privacy.moments import ScoreMoments
from fastadmm.store.atomic import atomic_file, shown, storage_errors

__all__ = ["Store", "digest_of"]

_MODEL = ("intercept", "sigma", "sensitivity")
_CHANNEL = ("epsilon", "n_levels", "center", "clip")


def digest_of(*values: Any) -> str:
    """Digest of public arrays and numbers: a stored message answers exactly these.

    Parameters
    ----------
    *values
        Arrays, numbers or texts.

    Returns
    -------
    str
    """
    digest = hashlib.sha256()
    for value in values:
        held = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
        digest.update(held + b"\0")
    return digest.hexdigest()


class Store:
    """What a fusion run has released, one file per release.

    Parameters
    ----------
    directory : Path or None
        Made with the first release; None keeps nothing, for runs that cannot be resumed.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory

    def find_labels(self, question: str) -> np.ndarray | None:
        """The randomised labels of shape (N,), or None where none were drawn yet.

        Parameters
        ----------
        question : str
            Digest of what they have to answer.

        Raises
        ------
        FormatError
            If the file is damaged or answers something else.
        """
        found = self._read("labels", question)
        return None if found is None else found["labels"]

    def keep_labels(self, question: str, labels: np.ndarray) -> None:
        """Store randomised labels; arguments as of :meth:`find_labels`, labels of shape (N,)."""
        self._write("labels", question, labels=labels)

    def find(self, party: str, question: str) -> FusionMessage | None:
        """A party's message, or None where none was drawn yet.

        Parameters
        ----------
        party : str
        question : str
            Digest of the public numbers it has to answer.

        Returns
        -------
        FusionMessage or None

        Raises
        ------
        FormatError
            If the file is damaged or answers something else: a second message
            would cost privacy that was not charged.
        """
        found = self._read(f"fusion-{party}", question)
        if found is None:
            return None
        model, channel = found["model"], found["channel"]
        origin, sigma = found["moments"]
        return FusionMessage(
            float(found["row_norm"]),
            LocalModel(found["weights"], *(float(v) for v in model)),
            ScoreMoments(found["count"], found["mean"], found["square"], float(origin), float(sigma)),
            Channel(float(channel[0]), int(channel[1]), float(channel[2]), float(channel[3])),
            found["levels"],
        )

    def keep(self, party: str, question: str, message: FusionMessage) -> None:
        """Store a message, whole or not at all, before it is used.

        Parameters
        ----------
        party, question : str
            As of :meth:`find`.
        message : FusionMessage

        Raises
        ------
        StorageError
            If it cannot be written; then it must not be used.
        """
        self._write(
            f"fusion-{party}",
            question,
            row_norm=message.row_norm,
            weights=message.model.weights,
            model=[getattr(message.model, name) for name in _MODEL],
            count=message.moments.count,
            mean=message.moments.mean,
            square=message.moments.square,
            moments=[message.moments.origin, message.moments.sigma],
            channel=[float(getattr(message.channel, name)) for name in _CHANNEL],
            levels=message.levels,
        )

    def _read(self, name: str, question: str) -> dict[str, np.ndarray] | None:
        path = None if self.directory is None else self.directory / f"{name}.npz"
        if path is None or not path.exists():
            return None
        advice = "it was charged, so none is drawn again: restore the file or start a new run"
        with storage_errors(path, "read"):
            try:
                with np.load(path, allow_pickle=False) as file:
                    found = {key: file[key] for key in file.files}
                same = str(found["question"]) == question
            except (ValueError, KeyError, EOFError, OSError, TypeError) as error:
                raise FormatError(f"{shown(path)}: not a released message: {error}; {advice}") from None
        if not same:
            raise FormatError(f"{shown(path)}: answers other labels or settings than this run's; {advice}")
        return found

    def _write(self, name: str, question: str, **values: Any) -> None:
        if self.directory is None:
            return
        path = self.directory / f"{name}.npz"
        with storage_errors(path):
            self.directory.mkdir(exist_ok=True)
        with atomic_file(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, question=question, **values)
