"""What has been given away of some data before: by a party's own ledger, and by its agent's approvals."""

from __future__ import annotations

from pathlib import Path

from fastadmm.between.approval import APPROVAL
from fastadmm.between.approval_file import open_approval
from fastadmm.between.approval_words import ledger_words
from fastadmm.between.audit import AUDIT, read_audit
from fastadmm.errors import FastadmmError
from fastadmm.files.reading import read_json
from fastadmm.files.writing import write_json
from fastadmm.store.party_file import PartyData

__all__ = ["remember_ledger", "spent_words"]

#: What an agent was started with, in its directory.
_AGENT = "agent.json"


def remember_ledger(state: Path, ledger: Path | None) -> None:
    """Keep which ledger an agent has, for whoever approves."""
    write_json(state / _AGENT, {"ledger": None if ledger is None else str(ledger.absolute())})


def spent_words(state: Path, data: PartyData, *delta: float) -> list[str]:
    """Paragraphs for the owner."""
    known = read_json(state / _AGENT) if (state / _AGENT).exists() else {}
    ledger = known.get("ledger") if isinstance(known, dict) else None
    lines = [ledger_words(Path(ledger) if isinstance(ledger, str) else None, data, *delta)]
    entries = read_audit(state / AUDIT)[0] if (state / AUDIT).exists() else []
    runs = {path.parent.name for path in state.glob(f"*/{APPROVAL}") if _is_of(path, data)}
    # Runs and not answers: what is confirmed must not change while another run goes on.
    answered = {entry["run"] for entry in entries if entry["run"] in runs and "answer" in entry}
    if answered:
        lines.append(f"Earlier runs on these data here: {len(answered):,}; what they gave away adds up.")
    return lines


def _is_of(path: Path, data: PartyData) -> bool:
    try:
        return open_approval(path).data == data.content_digest
    except FastadmmError:
        return False
