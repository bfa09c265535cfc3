"""What an owner approves, on one screen and in plain words."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastadmm.between.approval import Approval, sees_columns
from fastadmm.between.private_terms import Protection
from fastadmm.between.vocabulary import quoted
from fastadmm.conversation.answering import Answering
from fastadmm.conversation.calls import SUMS
from fastadmm.parties.families import FAMILIES
from fastadmm.parties.masked_direction import MOST_AT_ONCE
from fastadmm.privacy.accounts import feature_account
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.ledger_view import spent_words
from fastadmm.settings.privacy import ADJACENCIES
from fastadmm.store.party_file import PartyData

#: Of a terminal as it opens everywhere; two lines are left for how to confirm.
WIDTH, LINES = 80, 24

#: Characters of the names of parties that are shown.
_NAMES = 90

#: Where nobody says at which delta a ledger is read.
_DELTA = 1e-6


def screen(paragraphs: Sequence[str]) -> list[str]:
    """Paragraphs as lines of a terminal, those after the first of each a little to the right."""
    lines = []
    for text in paragraphs:
        wrap = {"subsequent_indent": "  ", "break_on_hyphens": False}
        lines += textwrap.wrap(text, WIDTH - 1, **wrap)  # type: ignore[arg-type]
    return lines


def listed(names: Sequence[str]) -> str:
    """Names as one text, as many as there is room for, and how many more there are."""
    shown, size = 0, 0
    while shown < len(names) and size + len(names[shown]) + 2 <= _NAMES:
        size += len(names[shown]) + 2
        shown += 1
    more = f" and {len(names) - shown} more" if shown < len(names) else ""
    return ", ".join(names[:shown]) + more


def ledger_words(ledger: Path | None, data: PartyData, delta: float = _DELTA) -> str:
    """What a party's own ledger has charged to these data so far."""
    if ledger is None:
        return "Spent so far: no ledger was named, so nothing is known of earlier private runs."
    return f"Spent so far, by your ledger: {spent_words(Ledger(ledger), feature_account(data), delta)}."


def scores_words(terms: Mapping[str, Any]) -> list[str]:
    """What a run asks for beside training, as a paragraph if there is anything."""
    others = [rows for rows in ("test", "validation") if rows in terms]
    if not others:
        return []
    return [f"It also asks for exact scores of {' and '.join(others)} rows, if you give them."]


def in_plain_words(approval: Approval, data: PartyData, spent: Sequence[str] = ()) -> list[str]:
    """What is asked and what it means, for whoever owns the data."""
    a = approval
    who = " or ".join(quoted(name) for name in a.callers[:1]) if a.callers else "A coordinator"
    paragraphs = [
        f"{who} asks to train a model with your {data.n_samples:,} rows and {data.n_features:,} columns.",
        f"Run {_run(a.run)}; {_parties(a)}.",
        _model(a),
    ]
    if a.protection is not None:
        paragraphs += _protection_in_words(a.family, a.protection)
    else:
        paragraphs += _exact_in_words(a, data)
    paragraphs += spent
    paragraphs.append(
        f"Limits: {a.exchanges:,} questions, refused ones counted; {a.numbers:,} numbers "
        f"({-(-a.numbers // max(1, data.n_samples)):,} a row); until {a.last_day or 'no last day'}."
    )
    return screen(paragraphs)


def _run(run: str) -> str:
    """A run's identifier; by files it could be any text."""
    return run if re.fullmatch("[0-9a-f]{1,32}", run) else quoted(run)


def _parties(a: Approval) -> str:
    if not a.parties:
        return "its other parties are not stated"
    return f"{len(a.parties)} parties: {listed(a.parties)}"


def _model(a: Approval) -> str:
    classes = "" if a.n_classes is None else f" with {a.n_classes} classes"
    penalty = a.regularizer if a.l1_ratio is None else f"{a.regularizer} (l1_ratio {a.l1_ratio:g})"
    return (
        f"Model: loss {a.loss or 'not stated'}{classes}, regularizer {penalty}, lambda {a.least_lambda:g}, "
        f"constraint {a.constraint}."
    )


def _exact_in_words(a: Approval, data: PartyData) -> list[str]:
    paragraphs = [
        "What leaves: exact numbers made from your columns, without noise. No guarantee of privacy is given "
        "(epsilon is infinite). The last answer proves the model."
    ]
    if a.family in SUMS:
        paragraphs.append(_sums_in_words(a))
    n = data.n_features
    if n == 1:
        whose = "what you add to a single sum shows it" if a.family in SUMS else "a single answer shows it"
        risk = f"You have ONE column: {whose} up to a factor, and so all of it to whoever knows one cell."
    elif sees_columns({"family": a.family, "regularizer": a.regularizer, "constraint": a.constraint}):
        number = FAMILIES.get(a.family, Answering).exchanges_per_column
        each = "one question" if number == 1 else "two questions"
        columns = min(n, a.exchanges // number * (a.n_classes or 1))  # a target for each class
        risk = (
            f"A dishonest coordinator reads single columns exactly, {a.n_classes or 'one'} in {each} or "
            f"more: up to {columns:,} of {n:,} within these limits, and more where columns hold few "
            "different values."
        )
        if a.family.endswith("proximal") and n <= MOST_AT_ONCE:
            risk = (
                f"An HONEST run tells a coordinator that looks all of your {n:,} columns exactly: those that "
                "differ in size from the first answer, those of nonzero weights from the others."
            )
    else:
        alike = "rows are by all parties' columns" if a.family in SUMS else "of your rows are"
        # The first answer may hold a direction for every column.
        at_once = dict.fromkeys(("subspace", "multinomial_subspace"), " from a single answer")
        after = {**at_once, **dict.fromkeys(SUMS, "")}.get(a.family, f" after {n:,} answers")
        risk = (
            f"A dishonest coordinator learns{after} how alike any two {alike} (all inner products); with "
            "rows that it knows, or columns of few different values, it works out more."
        )
    return [*paragraphs, f"{risk} Approve only a coordinator that you trust to be honest."]


def _sums_in_words(a: Approval) -> str:
    if len(a.parties or ()) == 2:
        return "The coordinator sees sums over both parties: whoever knows one part knows the other."
    return (
        "The coordinator sees sums over all parties only, unless all others help it or keys are not the "
        "parties': compare fingerprints by telephone. Two sums that differ by a party show its part."
    )


def _protection_in_words(family: str, protection: Protection) -> list[str]:
    p = protection
    if p.sampler == "insecure_test":
        return [
            f"Mode {family}, but its noise is seeded, for tests: nothing is protected. Approve no real data."
        ]
    return [
        f"What leaves carries noise that is drawn here (mode {family}): epsilon {p.epsilon:g} at delta "
        f"{p.delta:g} for this run, where {ADJACENCIES.get(p.adjacency, p.adjacency)}.",
        f"It is charged to your own ledger before it leaves, up to epsilon {p.total_epsilon:g} over all "
        "runs. A repeated question gets the same answer and costs nothing.",
    ]
