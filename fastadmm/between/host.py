"""A party whose coordinator is elsewhere: opened or restored, asked, its part of the model written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.between.approval import Approval, check_rows, parties_of
from fastadmm.between.private_terms import PRIVATE, books_of, refuse_ledger
from fastadmm.between.schema import Request, refused
from fastadmm.conversation.answering import Answering, Unanswerable, checked
from fastadmm.conversation.calls import SUMS
from fastadmm.conversation.gate import check_features
from fastadmm.engine.engine import Engine
from fastadmm.errors import FastadmmError, FormatError, InputError, PrivacyBudgetError
from fastadmm.files.atomic import shown, write_json, write_whole
from fastadmm.parties.families import FAMILIES
from fastadmm.privacy.fusion_party import FusionParty
from fastadmm.privacy.message_party import MessageParty
from fastadmm.privacy.statement import PrivacyStatement, no_privacy
from fastadmm.problem.targets import MAX_CLASSES
from fastadmm.secrecy.keys import kept_private_key
from fastadmm.store.model import PartyModel, check_same_columns, write_party_model
from fastadmm.store.party_file import PartyData, open_party
from fastadmm.store.streamed import load_block

#: What a private party's state directory keeps beside the approval.
_RELEASES = "messages"

#: A private party's own statement of what is protected, there too.
STATEMENT = "privacy.json"

#: Fingerprints of all parties' keys, with sums only.
KEYS = "keys.txt"

#: The party's own key for this run.
_PRIVATE_KEY = "private.key"

_FAMILIES: dict[str, type[Answering]] = {**FAMILIES, "fusion": FusionParty, "message": MessageParty}


@dataclass(frozen=True)
class Site:
    """What a party answers from, and with what."""

    data: PartyData  # features of the training rows
    engine: Engine
    ledger: Path | None = None
    others: Mapping[str, Path | None] = field(default_factory=dict)  # features of rows that are scored
    streamed: bool = False  # whether features stay on disk

    def check(self) -> None:
        """Read all features once, so none can fail an answer: ``docs/privacy.md#outcomes-are-public``."""
        opened = [self.data]
        for path in self.others.values():
            if path is not None:
                opened.append(open_party(path))
                check_same_columns(opened[-1:], [self.data], shown(path))
        for each in opened:
            check_features(load_block(each, self.streamed), shown(each.path), self.engine)


class Host:
    """One party of one run."""

    def __init__(
        self, site: Site, state: Path, run: str, approval: Approval, trained: str = "by files"
    ) -> None:
        self.site, self.data, self.state, self.run = site, site.data, state, run
        self.approval, self.trained, self.place = approval, trained, shown(state)
        self.terms: dict[str, Any] = {}
        self.party: Any = None
        # With sums only: digests of the data that the run began with.
        self._begun: dict[str, str] | None = None

    def resume(self, terms: dict[str, Any], saved: Mapping[str, Any], place: str) -> None:
        """The party as the last request left it."""
        self.place = place
        self._open(terms)
        try:
            self.party.restore(saved)
            if "kept" in saved:
                self.party.kept = checked(saved, "kept", self.party.weights_shape)
        except ValueError as error:
            raise FormatError(
                f"{shown(self.state)}: key 'party/{error}': not what a step left; begin the run again"
            ) from None

    def answer(self, asked: Request, place: str) -> dict[str, Any]:
        """All calls of a request; the answer of the last."""
        self.place = place
        own: dict[str, Any] = {"start": self._start, "finish": self._finish, "keep": self._keep}
        answer: dict[str, Any] = {}
        for name, arguments in asked.calls:
            if name in ("scores", "masked_scores"):
                self._load_rows(arguments["rows"])
            try:
                answer = own[name](**arguments) if name in own else self.party.answer(name, arguments)
            except Unanswerable as error:
                raise refused("call", f"{place}: {error}", FormatError) from None
        return answer

    def export(self) -> dict[str, Any]:
        """What the next step needs."""
        own = self.party.export()
        return own if self.party.kept is None else {**own, "kept": self.party.kept}

    @property
    def transcript(self) -> bytes | None:
        """With sums only: digest of all that was asked so far, which the last mask was made from."""
        return self.party.transcript.digest if self.terms["family"] in SUMS else None

    def _load_rows(self, rows: str) -> None:
        """Features of rows that are scored, if the owner has given them."""
        if rows == "train" or rows in self.party.other_rows:
            return
        path = self.site.others.get(rows)
        if path is None:
            text = (
                f"{self.place}: asks for scores of {rows[:80]!r} rows; if you agree, give your features of "
                "them with --test or --validation"
            )
            raise refused("scores", text)
        other = open_party(path)
        check_same_columns([other], [self.data], shown(path))
        if self._begun is not None and self._begun.get(rows) != other.content_digest:
            text = (
                f"{shown(path)}: with sums only, features of {rows} rows are those that the run began with, "
                "or its masks would show what has changed; give these back, or begin another run"
            )
            raise refused("rows", text)
        if other.row_digest != self.terms.get(rows):
            raise InputError(
                f"{shown(path)}: other rows than those of {self.place}, or in another order (row digests); "
                "align the rows first"
            )
        self.party.other_rows = {**self.party.other_rows, rows: load_block(other, self.site.streamed)}

    @property
    def statement(self) -> PrivacyStatement | None:
        """What a private run guarantees this party; None without privacy."""
        return self.party.statement() if self.terms["family"] in PRIVATE else None

    def write_statement(self) -> None:
        """Keep what the run guarantees, and what it has charged so far, beside the party's state."""
        if (statement := self.statement) is not None:
            document = {"run": self.run, "one_line": statement.one_line()}
            write_json(self.state / STATEMENT, {**document, "statement": statement.to_json()})

    def _start(self, **terms: Any) -> dict[str, Any]:
        check_rows(terms, self.data, self.place)  # also where a journal is heard again
        self._open(terms)
        self.party.prepare()
        kind, reason = self.party.told or (self.party.kind, self.party.reason)
        return {"n_features": self.data.n_features, "kind": kind, "reason": reason}

    def _open(self, terms: dict[str, Any]) -> None:
        site, family, given = self.site, terms["family"], dict(terms)
        if family.startswith("multinomial") and not 2 <= terms.get("n_classes", 0) <= MAX_CLASSES:
            text = f"argument 'n_classes': {family!r} needs a number from 2 to {MAX_CLASSES}"
            raise refused("terms", f"{self.place}: {text}", FormatError)
        block, self.terms = load_block(self.data, site.streamed), terms
        if family in SUMS:
            path = self.state / _PRIVATE_KEY
            given["private_key"], self._begun = kept_private_key(path, lambda: self._digests(terms))
        if family not in PRIVATE:
            refuse_ledger(site.ledger, self.place)
        elif (protection := self.approval.protection) is None:
            raise refused(
                "privacy", f"{shown(self.approval.path)}: no table 'privacy', but the run is private"
            )
        else:
            releases = self.state / _RELEASES
            given["books"] = books_of(
                self.data, terms, self.run, protection, site.ledger, releases, self.place
            )
        try:
            self.party = _FAMILIES[family].opened(self.data.name, block, site.engine, given)
        except PrivacyBudgetError:
            raise
        except FastadmmError as error:
            raise refused("terms", f"{self.place}: {error}", FormatError) from None

    def _digests(self, terms: Mapping[str, Any]) -> dict[str, str]:
        """Digests of all data that answers will depend on."""
        found = {"train": self.data.content_digest}
        for rows in self.site.others.keys() & terms.keys():
            path = self.site.others[rows]
            if path is None:
                text = (
                    f"{self.place}: will ask for scores of {rows} rows; with sums only their features are "
                    "there when the run begins: if you agree, give them with --test or --validation"
                )
                raise refused("scores", text)
            found[rows] = open_party(path).content_digest
        return found

    def _finish(self, model_id: str, kept: bool = False, **needed: np.ndarray) -> dict[str, Any]:
        weights = self.party.weights_for("finish", kept, needed)
        # What holds for its weights the party says itself: no request has a word in it.
        line = no_privacy([self.data.name]).weights_line()
        said = f"{line}; trained {self.trained} for a coordinator taken to be honest"
        self._write_model(model_id, np.ascontiguousarray(weights), privacy=said)
        return {"done": True}

    def _keep(self, model_id: str) -> dict[str, Any]:
        """The end of a private run: nothing about the features is answered."""
        party = self.party
        said = party.statement().weights_line()
        self._write_model(model_id, party.final_weights(), clipped=party.clips_rows, privacy=said)
        return {"kept": True}

    def _write_model(self, model_id: str, weights: np.ndarray, **how: Any) -> None:
        data = self.data
        known = {"transform": data.transform, "encoder": data.encoder, **how}
        model = PartyModel(data.name, weights, list(data.feature_names), **known)
        write_party_model(self.state / f"{data.name}.h5", model, model_id=model_id)


def write_fingerprints(state: Path, found: Sequence[str], terms: Mapping[str, Any]) -> None:
    """Keep fingerprints of all parties' keys beside a party's state."""
    names = parties_of(terms, "")
    lines = [
        f"key of party {m + 1}{', ' + names[m] if m < len(names) else ''}"
        f"{' (this party)' if m == terms['position'] else ''}: {fingerprint}"
        for m, fingerprint in enumerate(found)
    ]
    if lines:
        write_whole(state / KEYS, "\n".join(lines) + "\n", force=True)
