"""The audit of parties elsewhere: neighbours on disk in every storage, answered as files and agents answer.

A :class:`fastadmm.between.host.Host` is what both a step by files and an agent's session ask. It opens the
party's file, charges the party's ledger and answers; what leaves is read back from the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastadmm.between import host
from fastadmm.between.approval import privacy_text
from fastadmm.between.approval_file import drafted
from fastadmm.between.schema import Message, answer_of, encoded, open_envelope
from fastadmm.engine.engine import Engine
from fastadmm.files.reading import read_json
from fastadmm.privacy.books_audit import cost_of, too_little
from fastadmm.privacy.fusion_party import FusionMessage
from fastadmm.privacy.game import UNLIMITED, Asked, Asking, Case, Check, Tap, replay, replay_checks
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.noise_tests import reuse_check, size_check
from fastadmm.privacy.statement import PrivacyStatement
from fastadmm.runs.audit import cases_of
from fastadmm.settings.privacy import DifferentialPrivacy, FusionPrivacy
from fastadmm.store.party_file import PartyWriter, open_party

Array = np.ndarray

#: Looked up when it is called, as a step does.
_HOST: Any = host

#: How a party's file holds its rows, and whether they stay there while it answers.
_STORED = [("dense", "float64"), ("dense", "float32"), ("csr", "float64"), ("csr", "float32")]

#: Cases of at most so many rows are written to files.
_MOST_ROWS = 5_000

_PARTY = "party-2"


def audit_hosts(settings: DifferentialPrivacy, mu: float, note: Callable[[str], None]) -> list[Check]:
    """Play a mode's game with the code that answers files and agents."""
    note("replaying answers by files and agents")
    drawn: list[Array] = []
    found = []
    for turn, case in enumerate(_cases(settings, mu)):
        stored = *_STORED[turn % len(_STORED)], isinstance(settings, FusionPrivacy) and turn % 2 == 0
        named = replace(case, name=f"{case.name}, {stored[0]} {stored[1]}{' on disk' * stored[2]}")
        found.append(replay(settings, named, _asked_as_host(settings, mu, stored, drawn)))
    noise = np.concatenate([*drawn, np.zeros(0)])
    checks = replay_checks("answers by files and agents", settings, found)
    if len(noise):
        checks.append(reuse_check(noise, "noise used twice by parties that answer files"))
        checks.append(replace(size_check({"all numbers": noise}), name="size of the noise, by files"))
    return checks


def _cases(settings: DifferentialPrivacy, mu: float) -> Iterator[Case]:
    """What a party can be asked, each case of fusion also with the noise that its host draws."""
    for case in cases_of(settings, mu):
        if case.calls and len(case.first) <= _MOST_ROWS:
            yield case
            if case.past is not None and len(case.first) <= 500:
                yield replace(case, past=None)


def _asked_as_host(
    settings: DifferentialPrivacy, mu: float, stored: tuple[str, str, bool], drawn: list[Array]
) -> Asking:
    """A party's file is written, its host is opened and asked, and the messages are read back."""
    kind, dtype, streamed = stored
    protection = drafted(settings).with_(total_epsilon=UNLIMITED)

    def ask(case: Case, rows: Array, tap: Tap) -> Asked:
        with TemporaryDirectory() as place, Engine(case.threads) as engine, engine.limited():
            folder, asked = Path(place), Asked(tap)
            path, state, held = folder / f"{_PARTY}.h5", folder / "state", folder / "ledger.jsonl"
            with PartyWriter(path, name=_PARTY, n_features=rows.shape[1], kind=kind, dtype=dtype) as writer:
                writer.append(sp.csr_array(rows) if kind == "csr" else rows)
            state.mkdir()
            party, n = open_party(path), len(rows)
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
            agreed: Any = SimpleNamespace(protection=protection, path=state / "approval")
            with tap:
                site = host.Site(party, engine, held, streamed=streamed)
                opened = _HOST.Host(site, state, "audit", agreed)
                opened.answer(SimpleNamespace(calls=[("start", terms)]), "the audit")
                for number, call in enumerate(case.calls, 1):
                    given = opened.answer(SimpleNamespace(calls=[call]), "the audit")
                    raw = encoded(Message("0" * 16, _PARTY, number, "sha256:" + "0" * 64, given))
                    found = answer_of(open_envelope(raw, len(raw), "the audit"), call, n, "the audit")
                    assert isinstance(found, Message)
                    asked.answers.append((1, call[0], found.answer))
            opened.write_statement()
            said = PrivacyStatement.from_json(read_json(state / host.STATEMENT)["statement"])
            spent = Ledger(held).spent(opened.party.books.account, "audit")
            fused = [FusionMessage.from_arrays(a).channel for _, name, a in asked.answers if name == "fuse"]
            cost = cost_of(asked.tap, None, fused)  # whatever its source says of itself
            stated = [("epsilon that is stated", said.epsilon, cost.epsilon(settings))]
            asked.wrong = cost.too_little("the party", spent, settings) or too_little(stated, 1e-4)
        if not tap.scripted:
            drawn.extend(release.noise for release in tap.releases)
        return asked

    return ask
