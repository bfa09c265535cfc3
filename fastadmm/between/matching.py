"""A party's side of an alignment: its ids meet the coordinator's, blinded by both; then rows are known."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import FormatError, InputError
from fastadmm.between.task import Task
from fastadmm.between.task_approval import TaskApproval
from fastadmm.files.atomic import atomic_file, shown, storage_errors
from fastadmm.between.refused import refused

if TYPE_CHECKING:
    from fastadmm.data_tools.alignment import TableIds

__all__ = ["ALIGNMENTS", "intersect", "keep_alignment"]

#: Directory of the alignments that a party was told, in the agent's.
ALIGNMENTS = "alignments"


def intersect(asked: Task, approval: TaskApproval, state: Path, place: str) -> dict[str, Any]:
    """Blind the coordinator's ids once more, and the table's own."""
    from fastadmm.data_tools.psi import psi_respond

    ids = _ids(approval)
    with TemporaryDirectory(prefix=".", dir=state) as folder:
        request, response = Path(folder, "request"), Path(folder, "response")
        request.write_bytes(asked.arguments["request"].tobytes())
        try:
            count = psi_respond(ids, request, response)
        except FormatError as error:
            raise refused("damaged", FormatError(f"{place}: {error}")) from None
        if count != asked.arguments["n_ids"]:
            text = f"{place}: says {asked.arguments['n_ids']} ids, but holds {count}; nothing is answered"
            raise refused("values", InputError(text))
        return {"response": np.frombuffer(response.read_bytes(), dtype=np.uint8)}


def keep_alignment(
    asked: Task, approval: TaskApproval, state: Path, place: str
) -> tuple[dict[str, Any], Path]:
    """Keep the rows that all parties have, if this one has them."""
    from fastadmm.data_tools.alignment import read_alignment, rows_of

    raw = asked.arguments["alignment"].tobytes()
    path = state / ALIGNMENTS / f"{asked.task}.json"
    with storage_errors(path):
        path.parent.mkdir(mode=0o700, exist_ok=True)
    with TemporaryDirectory(prefix=".", dir=state) as folder:
        given = Path(folder, "rows.json")
        given.write_bytes(raw)
        try:
            alignment = read_alignment(given)
        except FormatError as error:
            raise refused("damaged", FormatError(f"{place}: {error}")) from None
    try:
        rows_of(_ids(approval), alignment)
    except InputError as error:
        raise refused("rows", InputError(f"{place}: {error}")) from None
    with atomic_file(path) as temporary:
        temporary.write_bytes(raw)
    return {"n_samples": len(alignment.ids)}, path


def _ids(approval: TaskApproval) -> TableIds:
    from fastadmm.data_tools.alignment import table_ids
    from fastadmm.data_tools.tables import Layout, read_ids

    if approval.id is None:
        raise InputError(
            f"{shown(approval.path)}: key 'id' is missing: which column of the table has the ids?"
        )
    table = read_ids(Path(approval.file), approval.id, Layout(approval.separator))
    return table_ids(table, approval.id, approval.duplicates)
