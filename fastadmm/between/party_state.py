"""What a party remembers of a run between requests: one file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import FormatError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.between.approval import Answered
from fastadmm.runs.checkpoint import read_tree, write_tree
from fastadmm.store.elements import read_array, read_attribute, require_group, write_array
from fastadmm.store.h5file import create_h5, read_h5

__all__ = ["STATE", "PartyState", "classes_of"]

#: Name of the file in the party's directory of a run.
STATE = "state.h5"

_STATE = "fastadmm-party-state"


@dataclass(frozen=True)
class PartyState:
    """A party after its last answer."""

    run: str  # identifier of the run
    number: int  # of the exchange
    request: str  # digest of the request
    content: str  # content digest of the party's features
    settings: dict[str, Any]  # arguments of the call ``start``
    tree: dict[str, Any]  # what the party exported
    message: bytes  # the answer as it was given
    answered: Answered | None  # none in states of older releases

    def write(self, path: Path) -> None:
        """Write it, whole or not at all."""
        with create_h5(path, _STATE) as file:
            file.attrs["run"], file.attrs["number"] = self.run, self.number
            file.attrs["request"], file.attrs["content-digest"] = self.request, self.content
            write_tree(file.create_group("settings"), self.settings)
            write_tree(file.create_group("answered"), asdict(self.answered or Answered()))
            write_tree(file.create_group("party"), self.tree)
            write_array(file, "message", np.frombuffer(self.message, dtype=np.uint8))

    @classmethod
    def read(cls, path: Path) -> PartyState:
        """Inverse of :meth:`write`."""
        with read_h5(path, _STATE) as file:
            return cls(
                read_attribute(file, "run", str),
                read_attribute(file, "number", int),
                read_attribute(file, "request", str),
                read_attribute(file, "content-digest", str),
                read_tree(require_group(file, "settings")),
                read_tree(require_group(file, "party")),
                read_array(file, "message", ndim=1, kind="u").tobytes(),
                _answered(path, file) if "answered" in file else None,
            )


def _answered(path: Path, file: Any) -> Answered:
    tree = read_tree(require_group(file, "answered"))
    if "directions" in tree:  # older releases counted vectors
        n = read_tree(require_group(file, "settings"))["n_samples"]
        tree["numbers"] = tree.pop("directions") * n
    try:
        return Answered(**tree)
    except TypeError:
        raise FormatError(f"{shown(path)}: key 'answered': not what a step left; restore a backup") from None


def classes_of(path: Path) -> int:
    """C of the multinomial run that a state is of; 1 of any other, and before the first step."""
    with storage_errors(path, "read"):
        if not path.exists():
            return 1
    with read_h5(path, _STATE) as file:
        return int(read_tree(require_group(file, "settings")).get("n_classes", 1))
