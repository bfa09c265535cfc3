"""Where an agent's runs stand, as its own files say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from fastadmm.between.align import ALIGNMENTS
from fastadmm.between.approval import APPROVAL
from fastadmm.between.approval_file import open_approval
from fastadmm.between.audit import AUDIT, read_audit
from fastadmm.between.consent import asked_lines
from fastadmm.between.host import KEYS
from fastadmm.between.task_approval import ALIGN, INFER, PREDICT, open_task_approval
from fastadmm.between.task_book import used
from fastadmm.between.vocabulary import CODES, quoted
from fastadmm.errors import StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.reading import read_bytes, read_json


def agent_status(state: Path) -> list[str]:
    """Approved runs, what was answered and refused, and what was spent."""
    with storage_errors(state, "read"):
        if not state.is_dir():
            raise StorageError(
                f"{shown(state)}: no directory of an agent: give that of 'fastadmm agent run --state'"
            )
        runs = sorted(path.parent for path in state.glob(f"*/{APPROVAL}"))
    entries, digest = read_audit(state / AUDIT) if (state / AUDIT).exists() else ([], "")
    more = sum((Counter(entry["more"]) for entry in entries if "more" in entry), Counter[str]())
    entries = [entry for entry in entries if "more" not in entry]
    tasks = [entry for entry in entries if "task" in entry]
    lines = []
    if (state / ALIGN).exists():
        lines.append(_of_task(state / ALIGN, "alignments", tasks, ""))
    lines += [
        f"    rows that all parties have: {shown(path)}"
        for path in sorted((state / ALIGNMENTS).glob("*.json"))
    ]
    for directory in runs:
        of_run = [entry for entry in entries if entry["run"] == directory.name]
        lines += _of_run(directory, of_run)
        if (directory / PREDICT).exists():
            lines.append("    " + _of_task(directory / PREDICT, "predictions", tasks, directory.name))
        if (directory / INFER).exists():
            lines.append("    " + _of_task(directory / INFER, "standard errors", tasks, directory.name))
    known = {directory.name for directory in runs}
    strange = [entry for entry in entries if entry["run"] not in known and "task" not in entry]
    if strange:
        lines.append(f"{len(strange)} request(s) of no approved run; last: {_said(strange[-1])}")
    if more:
        said = ", ".join(f"{count} {code}" for code, count in sorted(more.items()))
        lines.append(f"more in a minute than have lines of their own: {said}")
    if refused := [entry for entry in tasks if "code" in entry]:
        lines.append(f"{len(refused)} alignment(s) or prediction(s) refused; last: {_said(refused[-1])}")
    lines += asked_lines(state)
    if not lines:
        lines.append("nothing approved, nothing asked")
    if digest:
        lines.append(f"audit log: {len(entries)} lines, the last with digest {digest}")
    return lines


def _of_task(path: Path, what: str, entries: list[dict[str, Any]], run: str) -> str:
    approval, spent = open_task_approval(path), used(entries, path.name, run)
    rows = "vectors" if path.name == INFER else "rows"
    return (
        f"{what}: {spent['requests']} of at most {approval.requests} answered or refused, {spent['rows']} of "
        f"{approval.rows} {rows}, approved until {approval.last_day or 'no last day'}"
    )


def _of_run(directory: Path, entries: list[dict[str, Any]]) -> list[str]:
    approval = open_approval(directory / APPROVAL)
    answered = [entry for entry in entries if "answer" in entry and not entry["repeated"]]
    refused = [entry for entry in entries if "code" in entry]
    ended = any({"finish", "keep"} & set(entry["calls"]) for entry in answered)
    lines = [
        f"run {directory.name}: {len(answered)} of at most {approval.exchanges} exchanges answered"
        + (", ended" if ended else f", approved until {approval.last_day or 'no last day'}")
    ]
    if (directory / "privacy.json").exists():
        lines.append(f"    {read_json(directory / 'privacy.json')['one_line']}")
    elif answered:
        lines.append("    without noise: answers are exact (epsilon is infinite)")
    if entries:
        lines.append(f"    last asked by {quoted(entries[-1]['caller'])} at {entries[-1]['time']}")
    if refused:
        lines.append(f"    {len(refused)} refused; last: {_said(refused[-1])}")
    if (directory / KEYS).exists():
        keys = read_bytes(directory / KEYS).decode(errors="replace").splitlines()
        lines += ["    fingerprints of keys, to be compared by telephone:", *(f"      {key}" for key in keys)]
    return lines


def _said(entry: dict[str, Any]) -> str:
    code = entry.get("code", "answered")
    meaning = f" ({CODES[code]})" if code in CODES else ""
    what = f"task {entry['task']}" if "task" in entry else f"exchange {entry['number']}"
    return f"{what} of {quoted(entry['caller'])} at {entry['time']}: {code}{meaning}"
