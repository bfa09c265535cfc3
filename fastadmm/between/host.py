"""A party whose coordinator is elsewhere: what it answers in a run, and of its part of the model after it."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fastadmm.between import approval as limits
from fastadmm.between.approval import PRIVATE, Approval, asked_privacy, check_rows, parties_of
from fastadmm.between.approval_file import TaskApproval, open_approval
from fastadmm.between.schema import Request, refused
from fastadmm.conversation.answering import Answering, Unanswerable, checked
from fastadmm.conversation.calls import SUMS
from fastadmm.conversation.gate import check_features
from fastadmm.engine.engine import Engine
from fastadmm.errors import FastadmmError, FormatError, InputError, PrivacyBudgetError
from fastadmm.files.atomic import shown, write_frame, write_json, write_whole
from fastadmm.files.reading import read_json
from fastadmm.files.seal import damaged
from fastadmm.inference.between import InferenceParty
from fastadmm.parties.families import FAMILIES
from fastadmm.privacy.accounts import feature_account
from fastadmm.privacy.fusion_party import FusionParty
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.message_party import MessageParty
from fastadmm.privacy.noise import NoiseSource
from fastadmm.privacy.origins import why_unproved
from fastadmm.privacy.releases import Books
from fastadmm.privacy.statement import PrivacyStatement, no_privacy
from fastadmm.problem.targets import MAX_CLASSES
from fastadmm.runs.checkpoint import read_tree, write_tree
from fastadmm.runs.evaluate import chosen_bins
from fastadmm.runs.predict import Contribution, summand_of_file, summand_of_table
from fastadmm.secrecy.keys import kept_private_key
from fastadmm.store.coefficients import units_of
from fastadmm.store.elements import require_group
from fastadmm.store.h5file import create_h5, read_h5
from fastadmm.store.model import PartyModel, check_same_columns, open_party_model, write_party_model
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

    def resume(self, terms: dict[str, Any], saved: Mapping[str, Any], place: str) -> None:
        """The party as the last request left it."""
        self.place = place
        self._open(terms)
        with damaged(self.state, "begin the run again", "not what a step left"):
            self.party.restore(saved)
            if "kept" in saved:
                self.party.kept = checked(saved, "kept", self.party.weights_shape)

    def answer(self, asked: Request, place: str) -> dict[str, Any]:
        """All calls of a request; the answer of the last."""
        self.place = place
        own: dict[str, Any] = {"start": self._start, "finish": self._finish, "keep": self._keep}
        answer: dict[str, Any] = {}
        for name, arguments in asked.calls:
            if name == "scores":
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
            given["private_key"] = kept_private_key(self.state / _PRIVATE_KEY, self.data.content_digest)
        if family in PRIVATE:
            given["books"] = self.books(terms)
        elif site.ledger is not None:  # whoever names one expects to be protected
            text = (
                f"{self.place}: a run without privacy: answers are exact and nothing is charged to "
                f"{shown(site.ledger)}; leave --ledger out if that is meant"
            )
            raise refused("privacy", text)
        try:
            self.party = _FAMILIES[family].opened(self.data.name, block, site.engine, given)
        except PrivacyBudgetError:
            raise
        except FastadmmError as error:
            raise refused("terms", f"{self.place}: {error}", FormatError) from None

    def books(self, terms: Mapping[str, Any]) -> Books:
        """The books of a private run."""
        data, place, protection = self.data, self.place, self.approval.protection
        if protection is None:
            text = f"{shown(self.approval.path)}: no table 'privacy', but the run is private"
            raise refused("privacy", text)
        asked, ledger = asked_privacy(terms, place), self.site.ledger
        if asked is None or ledger is None:
            text = (
                f"{place}: a private run (mode {terms['family']!r}): what leaves is charged to your own "
                "ledger first; name its file with --ledger"
            )
            raise refused("privacy", text)
        settings = asked.with_(**{key: getattr(protection, key) for key in limits.OWNERS})
        why = "" if settings.public_scaling else why_unproved(data.steps)
        try:
            told = why and why_unproved(data.steps, labels=True)
            settings.refuse_unproved({data.name: told}, labels=True)
            settings.refuse_unproved({data.name: why})
        except PrivacyBudgetError as error:
            # The requester is told no more than of an owner who has not agreed.
            error.refusal = "privacy"
            raise
        account, releases, position = feature_account(data), self.state / _RELEASES, int(terms["position"])

        def noise() -> NoiseSource:
            return NoiseSource(settings.sampler, settings.seed, position)

        known = self.run, account, data.content_digest, releases
        return Books(settings, Ledger(ledger), *known, noise, why)

    def _finish(self, model_id: str, kept: bool = False, **needed: np.ndarray) -> dict[str, Any]:
        weights = self.party.weights_for("finish", kept, needed)
        # What holds for its weights the party says itself: no request has a word in it.
        line = no_privacy([self.data.name]).weights_line()
        said = f"{line}; trained {self.trained} for a coordinator taken to be honest"
        return {"done": self._write_model(model_id, np.ascontiguousarray(weights), False, said)}

    def _keep(self, model_id: str) -> dict[str, Any]:
        """The end of a private run: nothing about the features is answered."""
        party, said = self.party, self.party.statement().weights_line()
        return {"kept": self._write_model(model_id, party.final_weights(), party.clips_rows, said)}

    def _write_model(self, model_id: str, weights: np.ndarray, clipped: bool, said: str) -> bool:
        """Write the party's part; True: it is there."""
        data = self.data
        about: Any = data.transform, clipped, 1.0, data.encoder, said
        model = PartyModel(data.name, weights, list(data.feature_names), *about)
        write_party_model(self.state / f"{data.name}.h5", model, model_id=model_id)
        return True


def write_fingerprints(state: Path, found: Sequence[str], terms: Mapping[str, Any]) -> None:
    """Keep fingerprints of all parties' keys beside a party's state."""
    names = parties_of(terms, "")
    lines = [
        f"key of party {m + 1}, {name}{' (this party)' if m == terms['position'] else ''}: {fingerprint}"
        for m, (name, fingerprint) in enumerate(zip(names, found))
    ]
    if lines:
        write_whole(state / KEYS, "\n".join(lines) + "\n", force=True)


# --- with its part of the model, after a run ---------------------------------------------------------------

#: Directory of the alignments that a party was told, in the agent's.
ALIGNMENTS = "alignments"


@dataclass
class Home:
    """Whose agent this is, and what it works on."""

    name: str  # the party
    state: Path  # the agent's directory
    data: PartyData | None  # features of the training rows, once there are any
    ledger: Path | None  # the party's own

    def of_run(self, run: str) -> Path:
        """What is kept of a run."""
        return self.state / run


#: An answer's values, and what the party's owner is told.
Made = tuple[dict[str, Any], str]

#: What the party learns, in its directory of the run.
TABLE, RESULT = "inference.csv", "inference.json"

#: What every request says of the run.
_ABOUT = ("run", "model_id", "n_samples", "row_digest")

_BASIS, _TYPE = "inference-basis.h5", "fastadmm-inference-basis"


class Applied:
    """A task about the model of a run that has ended."""

    def __init__(self, asked: Request, approval: TaskApproval, home: Home, place: str) -> None:
        self.approval, self.home, self.place, self.call = approval, home, place, asked.call
        self.run, self.model_id, *self.rows = (asked.arguments[key] for key in _ABOUT)
        self.own = {key: value for key, value in asked.arguments.items() if key not in _ABOUT}
        self.directory = home.of_run(self.run)
        self.part, path = self.directory / f"{home.name}.h5", self.directory / limits.APPROVAL
        if not path.exists() or not self.part.exists():
            text = f"run {self.run} has no model here; it has not been approved, or not ended"
            raise self.refused("call", text)
        self.agreed = open_approval(path)
        # Noise, or sums only, as the approval or what the run left says: an approval can be replaced.
        self.private = self.agreed.family in PRIVATE or (self.directory / STATEMENT).exists()
        self.masked = self.agreed.family in SUMS or (self.directory / KEYS).exists()

    def refused(self, code: str, text: str, unless: str = "") -> InputError:
        """What is refused, unless the approval's key says otherwise."""
        more = f", set {unless} = true in {shown(self.approval.path)}" if unless else ""
        return refused(code, f"{self.place}: {text}{more}")

    def check_ledger(self, what: str) -> None:
        """Refuse exact answers where there is a ledger, which would not know of them, unless agreed."""
        without = self.agreed.family not in PRIVATE and not self.approval.allow_infinite_epsilon
        if self.home.ledger is not None and without:
            text = (
                f"{what} of a model without privacy are exact, and this agent has a ledger, which would say "
                "nothing of them; if you agree"
            )
            raise self.refused("privacy", text, "allow_infinite_epsilon")

    # --- scores -------------------------------------------------------------------------------------------

    def scores(self) -> Made:
        """The party's summand of the score of each row."""
        if self.masked and not self.approval.unmasked:
            text = "sums over all parties only, but scores leave one party at a time; if you agree"
            raise self.refused("privacy", f"the run showed the coordinator {text}", "unmasked")
        self.check_ledger("scores")
        found, n = self._summand(), self.rows[0]  # whether it may leave is decided below
        if found.name != self.home.name or found.model_id != self.model_id:
            text = f"the model of run {self.run} is another one, or of another party"
            raise self.refused("terms", text)
        if len(found.ids) != n:  # that is what counts as asked for
            raise self.refused("rows", f"{n} rows, but its row digest is of {len(found.ids)}")
        # No finite epsilon may be proved for what exact scores say of the training rows.
        covered = self.approval.allow_infinite_epsilon or not self.private
        if not covered and (reason := self._unproved(found.ids)):
            text = f"{reason}; no finite epsilon is proved. If you agree nevertheless"
            raise self.refused("privacy", text, "allow_infinite_epsilon")
        # The same layout as a contribution file has, whatever the product left.
        values = np.ascontiguousarray(found.values)
        return {"scores" if values.ndim == 1 else "class_scores": values}, ""

    def _summand(self) -> Contribution:
        path, (n, wanted) = Path(self.approval.file), self.rows
        if h5py.is_hdf5(path):
            party = open_party(path)
            if [party.n_samples, party.row_digest] != self.rows:
                text = (
                    f"asks for {n} rows, but {shown(path)} has {party.n_samples}, or they are others or in "
                    "another order (row digests)"
                )
                raise self.refused("rows", text)
            return summand_of_file(self.part, party, allow_infinite_epsilon=True)
        from fastadmm.data_tools.per_table import TableRows

        how = {key: getattr(self.approval, key) for key in ("separator", "id_pattern", "duplicates")}
        rows = TableRows(self.approval.id, self._alignment(wanted), **how)
        return summand_of_table(self.part, None, path, rows, allow_infinite_epsilon=True)

    def _alignment(self, digest: str) -> Path:
        """Of the alignments that this party was told, that of these rows."""
        folder = self.home.state / ALIGNMENTS
        for path in sorted(folder.glob("*.json")):
            with suppress(FastadmmError, AttributeError):  # not ours
                if read_json(path).get("row_digest") == digest:
                    return path
        raise self.refused("rows", f"asks for rows of no alignment in {shown(folder)}; align them first")

    def _unproved(self, ids: np.ndarray) -> str:
        """Why exact scores break a private run's promise; empty where they do not."""
        path, data = self.directory / STATEMENT, self.home.data
        with damaged(path, "restore it", "not our statement"):
            statement = read_json(path)["statement"]
            mode, epsilon = statement["mode"], statement["epsilon"]
        if mode != "fusion":
            covered = "the noise of mode 'message' covers messages, not weights"
            return f"{covered}, and scores tell the weights (T7)"
        # The weights of a fusion are a release themselves: scores of other rows only process it.
        if isinstance(epsilon, str) or not math.isfinite(epsilon):
            return "the run's own statement says that epsilon is infinite"
        if data is None or data.content_digest != self.agreed.data:
            return "this agent does not have the rows of training, so they may be among those asked for"
        # As texts: the same id is a number in one file and a text in another.
        if set(map(str, data.ids().tolist())) & set(map(str, ids.tolist())):
            return "rows of training are asked for, and their exact scores are functions of their features"
        return ""

    # --- standard errors ----------------------------------------------------------------------------------

    def inference(self) -> Made:
        """The answer to one call of the family "inference"."""
        if self.private or self.masked:
            how = "private" if self.private else "one of sums only"
            text = f"the run was {how}, but these answers are exact and come from one party at a time"
            raise self.refused("privacy", text)
        self.check_ledger("standard errors")
        model, model_id = open_party_model(self.part)
        data, part = open_party(Path(self.approval.file)), shown(self.part)
        if (model_id, data.content_digest) != (self.model_id, self.agreed.data):
            text = f"about another model than {part}, or {shown(data.path)} is not what it was trained on"
            raise self.refused("terms", text)
        if model.weights.ndim > 1:
            raise self.refused("terms", f"{part} is of several classes")
        if [data.n_samples, data.row_digest] != self.rows:
            raise self.refused("rows", f"about other rows than those of {shown(data.path)}")
        units, known, directory = units_of(model), self._kept_basis(data), self.directory
        with Engine(1) as engine, engine.limited():
            about = load_block(data), np.asarray(model.weights), model.feature_names, units.factor
            party = InferenceParty(self.home.name, *about, engine, known)
            try:
                answer = party.answer(self.call, self.own)
            except FormatError as error:
                raise refused("call", f"{self.place}: {error}", FormatError) from None
        if self.call == "span" and known is None:
            with create_h5(directory / _BASIS, _TYPE) as file:
                values = {"basis": party.basis, "ridge": self.own["ridge"]}
                write_tree(file.create_group("kept"), values)
        if party.found is None:
            return answer, ""
        notes = [*([units.note] if units.note else []), *chosen_bins([model])]
        document = party.found.to_dict()
        write_json(directory / RESULT, {**document, "notes": [*document["notes"], *notes]})
        write_frame(directory / TABLE, party.found.to_frame(), force=True)
        return answer, f"{shown(directory / TABLE)}: standard errors of run {self.run}"

    def _kept_basis(self, data: PartyData) -> np.ndarray | None:
        """The columns' basis, as it was when the first of them left; None where none has.

        Another penalty would give other vectors: a run has one.
        """
        path = self.directory / _BASIS
        if not path.exists():
            return None
        with read_h5(path, _TYPE) as file:
            kept = read_tree(require_group(file, "kept"))
        if kept.get("ridge") != self.own["ridge"]:
            text = f"about another penalty than {shown(path)}, after which columns have left"
            raise self.refused("terms", text)
        basis = kept.get("basis")
        if not isinstance(basis, np.ndarray) or basis.shape != (data.n_features,) * 2:
            raise FormatError(f"{shown(path)}: damaged; delete it, and let the coordinator begin anew")
        return basis
