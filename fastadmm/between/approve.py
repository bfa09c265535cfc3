"""A run in words for the owner of the data, and the approval that is written of it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastadmm.between.approval import APPROVAL, approve
from fastadmm.between.approval_file import open_approval, write_approval
from fastadmm.between.approval_words import in_plain_words, scores_words
from fastadmm.between.consent import Consent
from fastadmm.between.exchange import Request
from fastadmm.between.memory import sums_before
from fastadmm.between.schema import VERSION, run_identifier
from fastadmm.between.spent import spent_words
from fastadmm.between.vocabulary import parties_of
from fastadmm.conversation.calls import SUMS, argument_fields, check_values
from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.reading import read_json
from fastadmm.secrecy.keys import plain
from fastadmm.store.party_file import open_party

__all__ = ["agent_approve", "approve_fingerprints", "consent_to_run", "run_description", "settled"]


def run_description(run: str, caller: str, parties: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the owners of the data approve."""
    return {
        "format": "fastadmm-run",
        "version": "1.0",
        "run": run,
        "coordinator": caller,
        "parties": parties,
    }


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
    identifier = run_identifier(document.get("run"), place)
    request = Request(identifier, party.name, 0, -1, [("start", terms)])
    approval = replace(
        approve(request, party, place, state / identifier / APPROVAL),
        callers=[caller],
        protocol=VERSION,
        fastadmm=terms.get("release"),
    )
    delta = () if approval.protection is None else (approval.protection.delta,)
    more = [*scores_words(terms), *spent_words(state, party, *delta)]
    if approval.protection is None:
        masked = terms["family"] in SUMS
        more += sums_before(party, parties_of(terms, place) if masked else [party.name])
    words = in_plain_words(approval, party, more)
    return Consent(state, identifier, words, [approval], approval.path)
