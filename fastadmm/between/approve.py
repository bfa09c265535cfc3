"""A run in words for the owner of the data, and the approval that is written of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastadmm.between.approval import APPROVAL, Approval, approve
from fastadmm.between.approval_file import open_approval, write_approval
from fastadmm.between.approval_words import in_plain_words, ledger_words, scores_words
from fastadmm.between.audit import AUDIT, read_audit
from fastadmm.between.consent import Consent
from fastadmm.between.memory import sums_before
from fastadmm.between.schema import VERSION, Request, run_identifier
from fastadmm.between.vocabulary import parties_of
from fastadmm.conversation.calls import SUMS, argument_fields, check_values
from fastadmm.errors import ConfigError, FastadmmError, FormatError, InputError
from fastadmm.files.atomic import shown, write_json
from fastadmm.files.reading import read_json
from fastadmm.secrecy.keys import plain, primitive
from fastadmm.store.party_file import PartyData, open_party

#: What an agent was started with, in its directory.
_AGENT = "agent.json"


def remember(state: Path, **what: Path | str | None) -> None:
    """Keep what an agent has, for whoever approves: its ledger, features, table and id column."""
    known = {key: str(one.absolute()) if isinstance(one, Path) else one for key, one in what.items()}
    write_json(state / _AGENT, known)


def remembered(state: Path, what: str) -> Path | None:
    """A file that an agent was started with."""
    found = known_of(state).get(what)
    return Path(found) if isinstance(found, str) else None


def known_of(state: Path) -> dict[str, Any]:
    """All that is remembered of an agent."""
    known = read_json(state / _AGENT) if (state / _AGENT).exists() else {}
    return known if isinstance(known, dict) else {}


def spent_words(state: Path, data: PartyData, *delta: float) -> list[str]:
    """Paragraphs for the owner."""
    lines = [ledger_words(remembered(state, "ledger"), data, *delta)]
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


def run_description(run: str, caller: str, parties: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the owners of the data approve."""
    return {"format": "fastadmm-run", "version": "1.0", "run": run, "coordinator": caller, "parties": parties}


def agent_approve(
    run: Path, data: Path, state: Path, force: bool = False, confirm: str | None = None
) -> tuple[list[str], Path]:
    """Show what a run asks for, or approve what was shown."""
    return settled(consent_to_run(read_json(run), shown(run), data, state), force, confirm)


def settled(consent: Consent, force: bool, confirm: str | None) -> tuple[list[str], Path]:
    """What is shown of a request, or its confirmation."""
    consent.check(force)
    lines = consent.lines
    if confirm is not None:
        consent.confirm(confirm, force)
    return lines, consent.path


def approve_fingerprints(what: str, fingerprints: list[str], state: Path) -> Path:
    """Add fingerprints of the other parties' keys to the approval of a run with sums only."""
    for text in fingerprints:
        if not re.fullmatch("[0-9a-f]{32}", plain(text)):
            raise ConfigError(f"--fingerprint {shown(text)}: not 32 hexadecimal digits")
    path = state / run_identifier(what, "agent approve") / APPROVAL
    if not path.exists():
        raise InputError(f"{shown(path)}: no approval of run {what}; approve the run first")
    approval = open_approval(path)
    if approval.family not in SUMS:
        raise InputError(f"{shown(path)}: not a run with sums only, so there are no keys to compare")
    known = [text for text in approval.fingerprints or () if plain(text) not in map(plain, fingerprints)]
    write_approval(replace(approval, fingerprints=known + fingerprints), force=True)
    return path


def consent_to_run(document: Any, place: str, data: Path, state: Path) -> Consent:
    """What an owner of the data would agree to in a run."""
    party = open_party(data)
    if not isinstance(document, dict) or document.get("format") != "fastadmm-run":
        raise FormatError(f"{place}: not a run that 'fastadmm federate train' began")
    if document.get("version") != "1.0":
        raise FormatError(f"{place}: version {document.get('version')!r} of this file; known: '1.0'")
    parties, caller = document.get("parties"), document.get("coordinator")
    if not isinstance(parties, dict) or not isinstance(caller, str):
        raise FormatError(f"{place}: keys 'parties' and 'coordinator' are missing or damaged")
    terms: Any = parties.get(party.name)
    if not isinstance(terms, dict):
        raise InputError(f"{place}: of {', '.join(parties)}, but {shown(data)} is of {party.name}")
    check_values(terms, argument_fields("start", party.n_samples, place), f"{place}: {party.name}")
    if terms["family"] in SUMS:
        primitive("asymmetric.x25519")  # missing, it is missed before anything is approved
    identifier = run_identifier(document.get("run"), place)
    request = Request(identifier, party.name, 0, -1, [("start", terms)])
    approval = replace(
        approve(request, party, place, state / identifier / APPROVAL),
        callers=[caller],
        protocol=VERSION,
        fastadmm=terms.get("release"),
    )
    delta = () if approval.protection is None else (approval.protection.delta,)
    words = run_words(approval, party, terms, spent_words(state, party, *delta))
    return Consent(state, identifier, words, [approval], approval.path)


def run_words(
    approval: Approval, data: PartyData, terms: Mapping[str, Any], spent: Sequence[str]
) -> list[str]:
    """What an owner of the data is told of a run, with what is said of all runs before."""
    more = [*scores_words(terms), *spent]
    if approval.protection is None:
        masked = approval.family in SUMS
        more += sums_before(data, parties_of(terms, "") if masked else [data.name])
    return in_plain_words(approval, data, more)
