"""The audit of parties elsewhere: neighbours on disk in every storage, answered as files and agents answer.

A :class:`fastadmm.between.host.Host` is what both a step by files and an agent's session ask. It opens the
party's file, charges the party's ledger and answers; what leaves is read back from the message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastadmm.between import host
from fastadmm.between.private_terms import Protection, privacy_text
from fastadmm.between.schema import Message, answer_of, encode_message, open_envelope
from fastadmm.engine.engine import Engine
from fastadmm.files.reading import read_json
from fastadmm.privacy.books_audit import ROUNDED, Cost, charges_of, too_little
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.message_audit import worst_pairs
from fastadmm.privacy.noise_tests import Check, reuse_check, size_check
from fastadmm.privacy.public import PublicLabels
from fastadmm.privacy.statement import PrivacyStatement
from fastadmm.privacy.transcript import (
    ROUNDING,
    UNLIMITED,
    Tap,
    compare_transcripts,
    epsilon_spent,
    replayed,
)
from fastadmm.settings.privacy import DifferentialPrivacy, FusionPrivacy, MessagePrivacy
from fastadmm.store.party_file import PartyWriter, open_party

Array = np.ndarray

#: Looked up when it is called, as a step does.
_HOST: Any = host

#: How a party's file holds its rows, and whether they stay there while it answers.
_STORED = [("dense", "float64"), ("dense", "float32"), ("csr", "float64"), ("csr", "float32")]

_PARTY = "party-2"


@dataclass(frozen=True)
class _World:
    """What one of two neighbours answered."""

    tap: Tap
    answers: list[dict[str, Any]]
    charged: Any
    stated: float


def audit_hosts(settings: DifferentialPrivacy, mu: float, note: Callable[[str], None]) -> list[Check]:
    """Replay neighbours through the code that answers files and agents."""
    note("replaying answers by files and agents")
    wrong, worst, count = "", 0.0, 0
    drawn: list[Array] = []
    for stored, dtype in _STORED:
        for streamed in (False, True) if isinstance(settings, FusionPrivacy) else (False,):
            for rows, calls, name in _cases(settings, mu):
                epsilon, found = _replay(settings, mu, rows, calls, (stored, dtype, streamed), drawn)
                worst, count = max(worst, epsilon), count + 1
                if found:
                    way = f"{stored}, {dtype}" + ", on disk" * streamed
                    wrong = wrong or f"{found} ({name}; {way})"
    text = (
        f"epsilon = {worst:.4g} at delta {settings.delta:g} in {count} replays, claim {settings.epsilon:.4g}"
    )
    flagged = bool(wrong) or not worst <= settings.epsilon * (1.0 + ROUNDING)
    checks = [Check("answers by files and agents, replayed", wrong or text, flagged, worst, "exact")]
    if drawn:
        noise = np.concatenate(drawn)
        checks += [reuse_check(noise, "parties that answer files"), size_check(noise, "answers by files")]
    return checks


def _cases(settings: DifferentialPrivacy, mu: float) -> Iterator[tuple[list[Array], list[Any], str]]:
    """Neighbours, and what the party is asked."""
    if isinstance(settings, MessagePrivacy):
        pairs = worst_pairs(settings, mu)
        for pair in (pairs[0], pairs[-1]):
            turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 2)))[0].T
            asked = [("noisy", {"target": pair.target, "round": t}) for t in range(1, 1 + settings.rounds)]
            yield [pair.first @ turn, pair.second @ turn], asked, pair.name
        return
    n = int(min(200, 0.8 / settings.delta))
    classes = np.zeros(n)
    classes[-1] = 1.0
    labels = PublicLabels(classes, classes)
    rows = np.random.default_rng(8).normal(size=(n, 3))
    rows[: n // 2] = 0.0
    first, second = rows.copy(), rows.copy()
    first[-1], second[-1] = 1e6, -(2.0**-8)
    asked = [("fuse", {"target": labels.target, "classes": labels.classes})]
    yield [first, second], asked, "opposite rows"


def _replay(
    settings: DifferentialPrivacy,
    mu: float,
    rows: list[Array],
    calls: list[Any],
    stored: tuple[str, str, bool],
    drawn: list[Array],
) -> tuple[float, str]:
    """Epsilon of what two neighbours answer, and what is wrong with it; their noise is kept."""
    made: list[_World] = []
    for own in rows:
        with TemporaryDirectory() as folder:
            tap = replayed(made[0].tap) if made else Tap()
            made.append(_answers(settings, mu, own, calls, stored, Path(folder), tap))
    one, other = made
    drawn += [release.noise for release in one.tap.releases]
    compared = compare_transcripts(one.tap, other.tap)
    symbols = [float(answer["channel"][0]) for answer in one.answers if "channel" in answer]
    discrete = settings.sampler == "discrete"
    epsilon = epsilon_spent(compared.gdp, settings.delta, symbols, discrete)
    declared = math.hypot(0.0, *(r.level.sensitivity / r.level.sigma for r in one.tap.releases))
    due = epsilon_spent(declared, settings.delta, symbols, discrete)
    if compared.wrong:
        return epsilon, compared.wrong
    for answer, again in zip(one.answers, other.answers):
        for key, value in answer.items():
            same = slice(None, -1) if key == "levels" else ...
            if not np.array_equal(np.asarray(value)[same], np.asarray(again[key])[same]):
                return epsilon, f"{key!r} of an answer depends on more than what was sent"
        if "message" in answer and not any(
            np.array_equal(answer["message"], r.sent.values) for r in one.tap.releases
        ):
            return epsilon, "an answer is not what the noise source gave"
    if not one.tap.releases:
        return math.inf, "no noise is drawn"
    charges = charges_of("the party", one.charged, Cost(declared, tuple(symbols)))
    stated = [("epsilon that is stated", one.stated, due)]
    return epsilon, too_little(charges, ROUNDED) or too_little(stated, 1e-4)


def _answers(
    settings: DifferentialPrivacy,
    mu: float,
    rows: Array,
    calls: list[Any],
    stored: tuple[str, str, bool],
    folder: Path,
    tap: Tap,
) -> _World:
    """A party's file is written, its host is opened and asked, and the messages are read back."""
    kind, dtype, streamed = stored
    path, n = folder / f"{_PARTY}.h5", len(rows)
    with PartyWriter(path, name=_PARTY, n_features=rows.shape[1], kind=kind, dtype=dtype) as writer:
        writer.append(sp.csr_array(rows) if kind == "csr" else rows)
    party, state = open_party(path), folder / "state"
    state.mkdir()
    terms = {
        "family": settings.mode,
        "regularization": mu,
        "penalty": 1.0,
        "x_update": "gram",
        "regularizer": "l2",
        "l1_ratio": 0.0,
        "constraint": "none",
        "n_samples": n,
        "row_digest": party.row_digest,
        "position": 1,
        "privacy": privacy_text(settings),
    }
    s = settings
    protection = Protection(s.epsilon, s.delta, UNLIMITED, s.adjacency, s.sampler)
    agreed: Any = SimpleNamespace(protection=protection, path=state / "approval")
    held, answers = folder / "ledger.jsonl", []
    with Engine(1) as engine, engine.limited(), tap:
        site = host.Site(party, engine, held, streamed=streamed)
        opened = _HOST.Host(site, state, "audit", agreed)
        opened.answer(SimpleNamespace(calls=[("start", terms)]), "the audit")
        for number, call in enumerate(calls, 1):
            given = opened.answer(SimpleNamespace(calls=[call]), "the audit")
            raw = encode_message(Message("0" * 16, _PARTY, number, "sha256:" + "0" * 64, given))
            found = answer_of(open_envelope(raw, len(raw), "the audit"), call, n, "the audit")
            assert isinstance(found, Message)
            answers.append(found.answer)
        charged = Ledger(held).spent(opened.party.books.account, "audit")
        opened.write_statement()
        said = PrivacyStatement.from_json(read_json(state / host.STATEMENT)["statement"])
    return _World(tap, answers, charged, said.epsilon)
