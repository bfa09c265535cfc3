"""An alignment over the channel: private set intersection with every party, then the rows that all have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.between.approval_file import TaskApproval
from fastadmm.between.hub import Ask
from fastadmm.between.setup import read_setup
from fastadmm.between.task import Task, ask_all, task_folder
from fastadmm.between.vocabulary import refused
from fastadmm.errors import FastadmmError, FormatError, InputError
from fastadmm.files.atomic import shown, storage_errors, write_whole
from fastadmm.files.digest import row_digest

if TYPE_CHECKING:
    from fastadmm.data_tools.alignment import Alignment, TableIds

#: Directory of the alignments that a party was told, in the agent's.
ALIGNMENTS = "alignments"

#: Features of the table that an agent was started with, there too.
FEATURES = "features"


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
    write_whole(path, raw)
    return {"n_samples": len(alignment.ids)}, path


def convert_aligned(approval: TaskApproval, alignment: Path, out: Path) -> Path:
    """Features of the approved table's rows that an alignment names."""
    from fastadmm.data_tools.convert_tables import convert_tables

    convert_tables(
        None,
        [approval.file],
        out,
        id=approval.id,
        alignment=alignment,
        names=approval.party,
        task="classification",  # of labels, which are elsewhere
        duplicates=approval.duplicates,
        separator=approval.separator,
        id_pattern=approval.id_pattern,
    )
    return out / f"{approval.party}.h5"


def _ids(approval: TaskApproval) -> TableIds:
    from fastadmm.data_tools.alignment import table_ids
    from fastadmm.data_tools.tables import Layout, read_ids

    if approval.id is None:
        raise InputError(
            f"{shown(approval.path)}: key 'id' is missing: which column of the table has the ids?"
        )
    table = read_ids(Path(approval.file), approval.id, Layout(approval.separator))
    return table_ids(table, approval.id, approval.duplicates, approval.id_pattern)


#: The result, in the task's directory.
ROWS = "rows.json"

_REQUEST, _KEY = "request.psi", "guest.key"


def federate_align(
    config: Path, ids: TableIds, out: Path, say: Callable[[str], None] = print
) -> tuple[Alignment, list[str]]:
    """Find the rows that the coordinator's table and all parties' have, and tell every party."""
    from fastadmm.data_tools.psi import library

    library()  # missing, it is missed before anybody is asked
    setup = read_setup(config)
    own = np.array(ids.texts(), dtype=object)
    about = {"parties": setup.elsewhere, "n_ids": len(own), "ids": row_digest(own)}
    with setup.opened(say, ends=False) as ask, task_folder(out, "align", about) as task:
        return _align(ask, task, setup.elsewhere, ids, out, say)


def _align(
    ask: Ask, task: str, parties: list[str], ids: TableIds, out: Path, say: Callable[[str], None]
) -> tuple[Alignment, list[str]]:
    from fastadmm.data_tools.alignment import read_alignment, write_alignment
    from fastadmm.data_tools.psi import psi_finish, psi_request

    report: list[str] = []
    if not (out / ROWS).exists():
        if not (out / _REQUEST).exists():  # it is written after its key
            psi_request(ids, out / _REQUEST, out / _KEY, force=True)
        responses = {name: out / f"response-{name}.psi" for name in parties}
        arguments = {"n_ids": len(ids), "request": _bytes(out / _REQUEST)}

        def keep(name: str, answer: dict[str, Any]) -> None:
            write_whole(responses[name], answer["response"].tobytes())

        missing = [name for name in parties if not responses[name].exists()]
        ask_all(ask, {name: Task(task, name, "intersect", arguments) for name in missing}, keep, say)
        try:
            alignment, report = psi_finish(ids, out / _KEY, list(responses.values()))
        except FastadmmError:
            # What a response is worth is seen here; asked again, a party gives the same once more.
            for path in responses.values():
                path.unlink(missing_ok=True)
            raise
        report = [line.replace(shown(path), name) for line, (name, path) in zip(report, responses.items())]
        write_alignment(out / ROWS, alignment)
    # Blinded ids are of no use any more, and the key would open them.
    for path in (out / _KEY, out / _REQUEST, *out.glob("response-*.psi")):
        with storage_errors(path):
            path.unlink(missing_ok=True)
    alignment = read_alignment(out / ROWS)
    told = {name: Task(task, name, "align", {"alignment": _bytes(out / ROWS)}) for name in parties}
    ask_all(ask, told, lambda name, answer: None, say)
    return alignment, report


def _bytes(path: Path) -> np.ndarray:
    with storage_errors(path, "read"):
        return np.frombuffer(path.read_bytes(), dtype=np.uint8)
