"""The party's side: a request comes in as a file, the answer goes out as a file, state stays at home."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fastadmm.between.approval import (
    APPROVAL,
    Answered,
    Approval,
    approve,
    check_refusals,
    check_request,
    counted_refusals,
    draft_approval,
    first_terms,
    refusals,
    sees_columns,
    with_answer,
)
from fastadmm.between.approval_file import open_approval, write_approval
from fastadmm.between.approval_words import in_plain_words, ledger_words, scores_words
from fastadmm.between.exchange import Message, Request, open_message, open_request, write_message
from fastadmm.between.host import Host, check_opened
from fastadmm.between.mailbox import prune
from fastadmm.between.memory import answer_once, join_sum, sums_before
from fastadmm.between.session import STATE, PartyState, classes_of
from fastadmm.between.vocabulary import parties_of
from fastadmm.conversation.calls import SUMS
from fastadmm.engine.engine import Engine
from fastadmm.errors import FastadmmError, InputError, StorageError
from fastadmm.files.atomic import atomic_file, remove_leftovers, shown, storage_errors
from fastadmm.files.reading import read_bytes
from fastadmm.runs.lock import run_lock
from fastadmm.store.party_file import PartyData, open_party

__all__ = ["StepDone", "party_approve", "party_step"]

_ANSWER, _ANSWERS = "answer.h5", "answers"


@dataclass(frozen=True)
class StepDone:
    """What a step did."""

    number: int  # of the exchange
    repeated: bool  # whether the request had been answered before, and the same message was given again
    model: Path | None  # the party's part of the model, where the run is over
    statement: str = ""
    keys: tuple[str, ...] = ()
    agreed: tuple[str, ...] = ()


def party_step(
    data: Path,
    state: Path,
    request: Path,
    out: Path,
    *,
    approval: Path | None = None,
    ledger: Path | None = None,
    force: bool = False,
    threads: int | None = None,
    test: Path | None = None,
    validation: Path | None = None,
) -> StepDone:
    """Answer one request."""
    party, others = open_party(data), {"test": test, "validation": validation}
    if not (state / STATE).exists():
        with Engine(threads) as engine:
            check_opened(party, others, engine)
    with counted_refusals(state):
        asked = open_request(request, party.n_samples, classes_of(state / STATE))
    if asked.party != party.name:
        raise InputError(f"{shown(request)}: for {asked.party}, but {shown(data)} is of {party.name}")
    with storage_errors(out):
        if out.is_dir() or not out.absolute().parent.is_dir():
            raise StorageError(f"{shown(out)}: cannot write: not a file name in an existing directory")
    with storage_errors(state):
        is_new = not state.exists() and asked.number == 0
        if is_new:
            state.mkdir(mode=0o700, exist_ok=True)
        elif not state.is_dir():
            raise StorageError(f"{shown(state)}: no state of a run; begin with the run's first request")
    try:
        with run_lock(state):
            for directory in (state, state / _ANSWERS):
                remove_leftovers(directory)
            with counted_refusals(state):
                return _step(asked, party, state, request, out, approval, ledger, force, threads, others)
    except FastadmmError:
        if is_new:
            with suppress(OSError):
                state.rmdir()  # only where it is empty
        raise


def _step(
    asked: Request,
    party: PartyData,
    state: Path,
    request: Path,
    out: Path,
    approval: Path | None,
    ledger: Path | None,
    force: bool,
    threads: int | None,
    others: Mapping[str, Path | None],
) -> StepDone:
    known = PartyState.read(state / STATE) if (state / STATE).exists() else None
    if known is not None:
        old = _old_answer(known, asked, party, state, request)
        if old is not None:
            _give(old, out, force)
            return StepDone(asked.number, True, _model_path(state, party.name))
    elif asked.number != 0:
        raise InputError(f"{shown(state)}: no state; answer the run's first request before {shown(request)}")
    check_refusals(state, shown(request))
    agreed, is_new = _approval(known, asked, party, state, shown(request), approval)
    before = Answered() if known is None else known.answered or Answered(exchanges=known.number + 1)
    settings = known.settings if known else {}
    after = check_request(agreed, asked, settings, before, party, shown(request), refusals(state))
    with Engine(threads) as engine, engine.limited():
        host = Host(party, state, engine, asked.run, agreed, ledger, others)
        if known is not None:
            host.resume(known.settings, known.tree, shown(request))
        if known is None:
            join_sum(party, asked.run, asked.calls[0][1], agreed, shown(request))
        answer = host.answer(asked, shown(request))
        answer_once(asked, host.transcript, answer, shown(request))
        after = with_answer(before, after, answer)
        message = Message(asked.run, asked.party, asked.number, asked.digest, answer)
        raw = _encoded(message, state)
        _refuse_other(raw, out, force)
        if is_new:
            write_approval(replace(agreed, path=state / APPROVAL), force=True)
        if known is not None:
            _keep(known, state)
        PartyState(
            asked.run, asked.number, asked.digest, party.content_digest, host.terms, host.export(), raw, after
        ).write(state / STATE)
        host.write_statement()
        keys = host.write_keys() if any(name == "introduce" for name, _ in asked.calls) else []
        statement = host.statement
    # After the state: whoever has the message can rely on the party to remember it.
    _give(raw, out, force)
    said = "" if statement is None else statement.one_line()
    words = () if approval is not None or not is_new else _agreed_words(agreed, party, asked, ledger)
    return StepDone(asked.number, False, _model_path(state, party.name), said, tuple(keys), words)


def _agreed_words(agreed: Approval, party: PartyData, asked: Request, ledger: Path | None) -> tuple[str, ...]:
    terms = asked.calls[0][1]
    own = [*scores_words(terms), ledger_words(ledger, party)]
    if agreed.protection is None:
        masked = agreed.family in SUMS
        own += sums_before(party, parties_of(terms, "") if masked else [party.name])
    return tuple(in_plain_words(agreed, party, own))


def _model_path(state: Path, name: str) -> Path | None:
    path = state / f"{name}.h5"
    return path if path.exists() else None


def _approval(
    known: PartyState | None, asked: Request, party: PartyData, state: Path, place: str, given: Path | None
) -> tuple[Approval, bool]:
    """What the owner agreed to, and whether it is to be written to the state."""
    if given is not None:
        return open_approval(given), True
    path = state / APPROVAL
    if path.exists():
        return open_approval(path), False
    if known is not None:
        settings = known.settings
    else:
        settings = first_terms(asked, party, place)
    # A run that began before there were approvals goes on.
    began = known is not None and known.answered is None
    if sees_columns(settings) and not began:
        what = f"regularizer {settings['regularizer']!r} with constraint {settings['constraint']!r}"
        raise InputError(
            f"{place}: {what} lets a coordinator that deviates read single columns; it needs the owner's "
            f"approval: 'fastadmm party approve {place} --data {shown(party.path)} -o approval.toml', then "
            "'party step --approval approval.toml'"
        )
    draft = draft_approval(settings, asked.run, party, path, None)
    if draft.protection is not None and draft.protection.sampler == "insecure_test":
        raise InputError(
            f"{place}: its noise is seeded, for tests, and protects nothing; it needs the owner's approval "
            "('fastadmm party approve')"
        )
    return draft, True


def party_approve(
    request: Path, data: Path, out: Path, force: bool = False, ledger: Path | None = None
) -> list[str]:
    """Write the approval of a run's first request, for the owner of the data to edit."""
    party = open_party(data)
    asked = open_request(request, party.n_samples)
    approval = approve(asked, party, shown(request), out)
    write_approval(approval, force=force)
    return list(_agreed_words(approval, party, asked, ledger))


def _old_answer(
    known: PartyState, asked: Request, party: PartyData, state: Path, request: Path
) -> bytes | None:
    """The message that was given to this very request, byte for byte; None where it is the next one.

    What is neither is refused.
    """
    place = shown(request)
    if asked.run != known.run:
        raise InputError(f"{place}: of another run than {shown(state)}; give each run a --state of its own")
    if party.content_digest != known.content:
        raise InputError(
            f"{shown(party.path)}: not the data that {shown(state)} began with (digests differ); "
            "begin a new run"
        )
    if asked.number == known.number:
        if asked.digest != known.request:
            raise InputError(f"{place}: another request {asked.number} than the one answered before")
        return known.message
    if asked.number < known.number:
        kept = _kept_path(state, asked.number)
        if not kept.exists():
            raise InputError(
                f"{place}: request {asked.number}, but request {known.number} was answered already, and the "
                "older message is not kept"
            )
        classes = int(known.settings.get("n_classes", 1))
        if open_message(kept, party.n_samples, lambda _: None, classes).request != asked.digest:
            raise InputError(f"{place}: another request {asked.number} than the one answered before")
        return read_bytes(kept)
    if asked.previous != known.number:
        raise InputError(
            f"{place}: request {asked.number} follows request {asked.previous}, but the last one answered "
            f"is {known.number}; answer the ones between first (the coordinator keeps them in RUN/sent)"
        )
    if asked.answered and asked.answered != _digest(known.message):
        raise InputError(
            f"{place}: the coordinator took another answer to request {known.number} than the one that "
            f"{shown(state)} gave: restore the newer state"
        )
    return None


def _kept_path(state: Path, number: int) -> Path:
    return state / _ANSWERS / f"{number:06d}.h5"


def _keep(known: PartyState, state: Path) -> None:
    """Put the last message to the older ones, so that it can be given again."""
    path = _kept_path(state, known.number)
    with storage_errors(path):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with atomic_file(path) as temporary:
            temporary.write_bytes(known.message)
    prune(sorted(path.parent.glob("[0-9]*.h5")))


def _digest(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def _encoded(message: Message, state: Path) -> bytes:
    path = state / _ANSWER
    try:
        write_message(path, message)
        with storage_errors(path, "read"):
            return path.read_bytes()
    finally:
        path.unlink(missing_ok=True)


def _refuse_other(raw: bytes, out: Path, force: bool) -> bool:
    """Whether the file is there already; refused where it is another one."""
    with storage_errors(out):
        if out.exists() and not force:
            if read_bytes(out) == raw:
                return True
            raise StorageError(
                f"{shown(out)}: exists already and is another file; pass --force to replace it"
            )
    return False


def _give(raw: bytes, out: Path, force: bool) -> None:
    if not _refuse_other(raw, out, force):
        with atomic_file(out, shared=True) as temporary:
            temporary.write_bytes(raw)
