"""A run's state after a round: the solver's, and what every party was told since its last request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastadmm.between.hub import Correspondent
from fastadmm.conversation.calls import Asked
from fastadmm.runs.checkpoint import read_tree, write_tree
from fastadmm.solver.solver import Solver
from fastadmm.store.elements import read_attribute, require_group
from fastadmm.store.h5file import create_h5, read_h5

_TYPE = "fastadmm-rounds-checkpoint"


def write_state(path: Path, solver: Solver, parties: Sequence[Correspondent], first: int) -> None:
    """Write it, whole or not at all."""
    with create_h5(path, _TYPE) as file:
        file.attrs["n_rounds"], file.attrs["first"] = solver.n_rounds, first
        write_tree(file.create_group("solver"), solver.export())
        queues = file.create_group("queues")
        for party in parties:
            group = queues.create_group(party.name)
            group.attrs["previous"] = party.last
            if party.answered:
                group.attrs["answered"] = party.answered
            for k, (name, arguments) in enumerate(party.queue):
                call = group.create_group(f"{k:04d}")
                call.attrs["call"] = name
                write_tree(call.create_group("arguments"), arguments)


def read_state(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Inverse of :func:`write_state`."""
    with read_h5(path, _TYPE) as file:
        queues: dict[str, list[Asked]] = {}
        previous: dict[str, int] = {}
        answered: dict[str, str] = {}
        for name in names:
            group = require_group(require_group(file, "queues"), name)
            previous[name] = read_attribute(group, "previous", int)
            if "answered" in group.attrs:
                answered[name] = read_attribute(group, "answered", str)
            calls = [require_group(group, key) for key in sorted(group)]
            queues[name] = [
                (read_attribute(call, "call", str), read_tree(require_group(call, "arguments")))
                for call in calls
            ]
        return {
            "first": read_attribute(file, "first", int),
            "solver": read_tree(require_group(file, "solver")),
            "queues": queues,
            "previous": previous,
            "answered": answered,
        }


def rounds_done(path: Path) -> int:
    """How many rounds a state has behind it."""
    with read_h5(path, _TYPE) as file:
        return read_attribute(file, "n_rounds", int)
