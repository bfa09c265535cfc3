"""What a party agreed to answer: a small file of its owner, checked before anything is computed.

The coordinator decides what it asks; the party decides what it answers. Nothing
in a request can widen these limits, and each of its words is of a fixed list.
"""

import datetime
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from fastadmm.between.private_terms import PRIVATE, asked_privacy, drafted, privacy_excess
from fastadmm.between.schema import DIGEST, Request, code_of, quoted, refused
from fastadmm.conversation.answering import Answering
from fastadmm.conversation.calls import CALLS, Asked
from fastadmm.conversation.gate import MOST_REFUSALS
from fastadmm.coordinator.admm.penalty_rule import CHANGE_ROUNDS as PENALTY_ROUNDS
from fastadmm.coordinator.admm.penalty_rule import CURVATURE_ROUNDS
from fastadmm.errors import ConfigError, FormatError, InputError, StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.modes import owner_only
from fastadmm.parties.families import FAMILIES
from fastadmm.parties.xupdate.choose import X_UPDATES
from fastadmm.problem.constraints import get_constraint
from fastadmm.problem.losses import LOSSES
from fastadmm.problem.regularizers import REGULARIZERS
from fastadmm.settings.privacy import MODES, DifferentialPrivacy
from fastadmm.store.party_file import PartyData, check_party_name

#: Name of the approval that a state directory keeps.
APPROVAL = "approval.toml"

#: Refusals that a draft of a private run has room for: of a ledger that is not named, for example.
_RETRIES = 10

#: Days that a drafted approval is good for.
DAYS = 90

#: Rounds after which an honest run may change its penalty, in order.
_PENALTY_CHANGES = sorted([*PENALTY_ROUNDS, *CURVATURE_ROUNDS])

#: Families whose parties answer to targets.
_ADMM = (*CALLS["step"].families, *CALLS["step_classes"].families)


@dataclass(frozen=True)
class Approval:
    """Limits of one party for one run."""

    path: Path  # for messages
    run: Annotated[str, 'this run; "first": whichever run begins with it']
    party: str
    data: Annotated[str, "content digest of the features"]
    family: str
    loss: Annotated[str | None, "as the coordinator says; the party cannot check it"]  # None: any
    regularizer: str
    l1_ratio: float | None
    least_lambda: Annotated[float, "of a mean loss; a smaller one is refused"]
    constraint: str
    exchanges: Annotated[int, "requests that are answered or refused, at most"]
    numbers: Annotated[int, "about rows, that leave in answers, at most"]
    last_day: Annotated[datetime.date | None, "nothing new is answered after it"]  # None: no end
    protection: DifferentialPrivacy | None = None  # in a private run: table ``privacy`` of the file
    penalty: float | None = None  # there too
    n_classes: int | None = None  # in a multinomial run
    callers: Annotated[list[str] | None, "who may ask"] = None  # None: anybody
    protocol: Annotated[int | None, "version of the messages"] = None  # None: where they are files
    fastadmm: Annotated[str | None, "version of the coordinator's program"] = None  # None: any
    fingerprints: Annotated[list[str] | None, "of the other parties' keys, as their owners say them"] = None
    parties: Annotated[list[str] | None, "all of the run"] = None
    terms: Annotated[str | None, "digest of all that was asked"] = None
    other_members: Annotated[
        bool, "true: these data may be in another sum, though the difference shows a party's part"
    ] = False


@dataclass(frozen=True)
class Answered:
    """What a party has answered in a run so far."""

    exchanges: int = 0  # requests; numbers about rows, at most; x-updates
    numbers: int = 0  # requests; numbers about rows, at most; x-updates
    steps: int = 0  # requests; numbers about rows, at most; x-updates
    penalty: float = 0.0  # of the last x-update
    changes: int = 0  # of the penalty, or of the metric of an x-update
    finished: bool = False  # whether the run has ended for this party


def sees_columns(approval: Approval) -> bool:
    """Whether answers in such a run can show single columns; noise hides them."""
    # Of an unknown family the worst is assumed; it is refused elsewhere.
    kind = FAMILIES.get(approval.family, Answering)
    return approval.family not in PRIVATE and kind.shows_columns(approval.regularizer, approval.constraint)


def first_terms(request: Request, data: PartyData, place: str) -> dict[str, Any]:
    """What a run's first request says the run is about."""
    if request.number != 0 or [name for name, _ in request.calls] != ["start"]:
        raise refused("order", f"{place}: not the first request of a run, which says what the run is about")
    terms = request.arguments
    names = check_words(terms, place)
    if names and names[terms["position"]] != request.party:
        text = f"{place}: argument 'parties' has {names[terms['position']]} in the place of {request.party}"
        raise refused("values", text, FormatError)
    if request.party != data.name:
        raise InputError(f"{place}: for {request.party}, but {shown(data.path)} is of {data.name}")
    check_rows(terms, data, place)
    return terms


def check_rows(terms: Mapping[str, Any], data: PartyData, place: str) -> None:
    """Refuse a run about other rows than a party's."""
    if (terms["n_samples"], terms["row_digest"]) != (data.n_samples, data.row_digest):
        text = (
            f"{shown(data.path)}: {data.n_samples} rows, but {place} is about {terms['n_samples']} rows, "
            "or they are others or in another order (row digests); align the rows first"
        )
        raise refused("rows", text)


def terms_digest(terms: Mapping[str, Any]) -> str:
    """Digest of all that a first request says of its run; it is the identifier of what is approved."""
    text = json.dumps(dict(terms), sort_keys=True, separators=(",", ":"), default=float)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


#: What an approval says as the first request does.
_ALIKE = ("family", "loss", "regularizer", "constraint", "n_classes")


def approve(
    request: Request, data: PartyData, place: str, path: Path, last_day: datetime.date | None = None
) -> Approval:
    """The approval of what a run's first request asks, with limits of twice what an honest run needs."""
    settings = first_terms(request, data, place)
    asked = asked_privacy(settings, shown(path))
    alike: dict[str, Any] = {key: settings.get(key) for key in _ALIKE}
    if asked is None:
        exchanges, numbers = (2 * each for each in expected(settings))
    else:  # a private run is opened, has its rounds, and ends
        # A release has a number for each row, and moments of the columns.
        released = data.n_samples + (data.n_features + 2) ** 2 + 1000
        exchanges, numbers = asked.exchanges + 2 + _RETRIES, asked.exchanges * released + 10
    return Approval(
        path=path,
        run=request.run,
        party=data.name,
        data=data.content_digest,
        **alike,
        l1_ratio=float(settings["l1_ratio"]) if settings["l1_ratio"] >= 0 else None,
        least_lambda=_lambda(settings),
        exchanges=exchanges,
        numbers=numbers,
        last_day=last_day,
        protection=None if asked is None else drafted(asked),
        penalty=float(settings["penalty"]) if asked is not None and "penalty" in settings else None,
        parties=parties_of(settings, shown(path)) or None,
        terms=terms_digest(settings),
    )


def _lambda(settings: Mapping[str, Any]) -> float:
    """Lambda of a mean loss: the weights of the rows are the coordinator's, their number is known."""
    return float(settings["regularization"]) / max(1, int(settings["n_samples"]))


def _today() -> datetime.date:
    return datetime.date.today()


def some_weeks() -> datetime.date:
    """The last day of what is drafted today."""
    return _today() + datetime.timedelta(days=DAYS)


# --- checking ---------------------------------------------------------------------------------------------


def check_caller(caller: str, callers: Sequence[str] | None, path: Path, place: str) -> None:
    """Refuse who asks but is not named in an approval that names anybody."""
    if callers is not None and caller not in callers:
        text = f"{place}: asked by {quoted(caller)}, but {shown(path)} has callers {', '.join(callers)}"
        raise refused("caller", text)


#: What an approval leaves open: any release or loss, whichever run begins.
_ANY = {"fastadmm": None, "loss": None, "run": "first"}


def check_request(
    approval: Approval,
    request: Request,
    settings: Mapping[str, Any],
    before: Answered,
    data: PartyData,
    place: str,
    refusals: int,
) -> Answered:
    """Refuse a request beyond the approval; nothing has been computed yet."""
    if before.finished:
        raise refused("ended", f"{place}: asks more after the run's end; nothing was computed")
    family = settings["family"] if request.number else ""
    for name, _ in request.calls:
        if family not in CALLS[name].families:
            raise refused("call", f"{place}: key 'calls': {name!r} is unknown here", FormatError)
    if not CALLS[request.call].answer:
        raise refused("call", f"{place}: key 'calls': the last call has no answer", FormatError)
    for code, what in _excesses(approval, request.run, settings, data, place):
        raise _beyond(place, approval, what, code)
    after = _count(request.calls, settings, before, place)
    if after.exchanges + refusals > approval.exchanges:
        what = f"{approval.exchanges} exchanges, and this would be number {after.exchanges + refusals}"
        what += f", of which {refusals} were refused" if refusals else ""
        raise _beyond(place, approval, what, "exchanges")
    return _within(approval, after, place)


def _excesses(
    approval: Approval, run: str, settings: Mapping[str, Any], data: PartyData, place: str
) -> Iterator[tuple[str, str]]:
    """What of a run is beyond an approval, each with its code."""
    ratio = float(settings["l1_ratio"])
    about = {
        "fastadmm": settings.get("release", "not stated"),
        "party": data.name,
        "data": data.content_digest,
        **{key: settings[key] for key in ("family", "regularizer", "constraint")},
        "run": run,
        "loss": settings.get("loss", "not stated"),
        "n_classes": settings.get("n_classes"),
        "l1_ratio": None if approval.l1_ratio is None and ratio < 0 else ratio,
    }
    for key, asked in about.items():
        allowed = getattr(approval, key)
        if asked != allowed and not (key in _ANY and allowed == _ANY[key]):
            code = {"run": "run", "fastadmm": "version"}.get(key, "terms")
            yield code, f"key {key!r} is {allowed!r}, but the request is about {asked!r}"
    if not _lambda(settings) >= approval.least_lambda * (1.0 - 1e-9):
        yield "lambda", f"lambda is at least {approval.least_lambda:g}, not {_lambda(settings):g}"
    if (private := asked_privacy(settings, place)) is not None:
        if approval.protection is None:
            yield "privacy", "it has no table 'privacy'"
        elif what := privacy_excess(approval.protection, approval.penalty, private, settings):
            yield "privacy", what
    if approval.terms not in (None, terms_digest(settings)) and approval.run != "first":
        yield "terms", "it is about other terms than those that were approved"
    if approval.last_day is not None and _today() > approval.last_day:
        yield "expired", f"the last day was {approval.last_day}"


def with_answer(
    approval: Approval, before: Answered, after: Answered, answer: Mapping[str, Any], place: str
) -> Answered:
    """What has been answered, where the answer holds more numbers than its call says; refuses too many."""
    held = sum(int(np.size(value)) for key, value in answer.items() if key not in ("scores", "class_scores"))
    return _within(approval, replace(after, numbers=max(after.numbers, before.numbers + held)), place)


def _within(approval: Approval, after: Answered, place: str) -> Answered:
    if after.numbers > approval.numbers:
        what = f"{approval.numbers} numbers about rows, and with this answer it would be {after.numbers}"
        raise _beyond(place, approval, what, "directions")
    return after


def _beyond(place: str, approval: Approval, what: str, code: str) -> InputError:
    where = f"{place}: beyond {shown(approval.path)}"
    return refused(code, f"{where}: {what}; no answer leaves; whoever owns the data may edit the approval")


def _count(calls: list[Asked], settings: Mapping[str, Any], before: Answered, place: str) -> Answered:
    """What will have been answered; refuses a penalty that moves as no honest run's does."""
    answered = replace(before, exchanges=before.exchanges + 1)
    for name, arguments in calls:
        numbers = answered.numbers + _numbers(name, arguments, settings)
        answered = replace(
            answered, numbers=numbers, finished=name in ("finish", "keep") or answered.finished
        )
        if settings["family"] not in _ADMM:
            continue  # a metric there only chooses directions, which are unit vectors
        if name == "set_metric":
            answered = _changed(answered, settings, place)
        elif name in ("step", "step_classes"):
            penalty = float(arguments["scaled_penalty"])
            # A metric brings a penalty of its own: one change, not two.
            if answered.steps and penalty != answered.penalty and calls[0][0] != "set_metric":
                answered = _changed(answered, settings, place)
            answered = replace(answered, penalty=penalty, steps=answered.steps + 1)
    return answered


def _numbers(name: str, arguments: Mapping[str, Any], settings: Mapping[str, Any]) -> int:
    """Numbers that an answer to a call holds; more where some of them are as many as the answer says."""
    rule = CALLS[name]
    if "most" in arguments:  # messages of directions, which all classes have in common
        return int(arguments["most"]) * (int(settings["n_samples"]) + 1) + len(rule.answer)
    # Scores count as a number for each row, of whatever rows they are.
    vectors = rule.vectors + (name in ("scores", "masked_scores")) + len(arguments.get("units", ()))
    return vectors * int(settings["n_samples"]) * int(settings.get("n_classes", 1)) + len(rule.answer)


def _changed(answered: Answered, settings: Mapping[str, Any], place: str) -> Answered:
    k = answered.changes
    fixed = settings.get("penalty", 0.0) > 0.0
    if fixed or k >= len(_PENALTY_CHANGES) or answered.steps < _PENALTY_CHANGES[k]:
        when = f"{len(_PENALTY_CHANGES)} times"
        if k < len(_PENALTY_CHANGES):
            when += f", the next time after round {_PENALTY_CHANGES[k]}"
        when = "never, as its first request said" if fixed else when
        text = (
            f"{place}: asks with another penalty after round {answered.steps}, but an honest run changes it "
            f"{when}; nothing was computed"
        )
        raise refused("penalty", text)
    return replace(answered, changes=k + 1)


#: Of a family: rounds, exchanges of a round, vectors of N numbers in a round, other numbers in an exchange.
_USUAL = {
    "subspace": (65, 1, 2, 200),
    "log_sum": (60, 9, 2, 20_000),
    "admm": (600, 4, 1, 10),
    "proximal": (60, 4, 2, 20_000),
    "subspace_sums": (65, 1, 2, 2_000),  # inner products of a first answer's directions, in words of 8 bytes
}

#: Opening, keys, proofs and end.
_BESIDE = 10


def expected(terms: Mapping[str, Any]) -> tuple[int, int]:
    """Exchanges of an honest run without noise, and numbers that leave a party in it."""
    family = terms["family"].removeprefix("multinomial_")
    rounds, exchanges, vectors, numbers = _USUAL.get(family, _USUAL["admm"])
    n, classes = int(terms["n_samples"]), int(terms.get("n_classes", 1))
    if family == "admm" and terms["regularizer"] == "l2" and terms["constraint"] == "all":
        rounds, exchanges = 400, 2
    elif family == "proximal" and terms["constraint"].startswith(("box", "nonnegative")):
        exchanges = 10  # up to 33 in some rounds, where weights have bounds
    elif family == "subspace" and not LOSSES[terms.get("loss", "logistic")].convex:
        rounds, exchanges = 2 * rounds, 2
    others = sum(key in terms for key in ("test", "validation"))
    asked = rounds * (exchanges + others) + _BESIDE
    each_row = rounds * (vectors + others) + _BESIDE
    return asked, (each_row * n + asked * numbers) * classes


#: In the party's directory of a run.
REFUSALS = "refused"

#: Codes that do not count: nothing is left to be counted, or whoever asks waits for the owner.
_UNCOUNTED = (
    *("exchanges", "directions", "expired", "ended"),
    *("budget", "busy", "caller", "keys", "party", "run"),
)


def check_refusals(directory: Path, place: str) -> int:
    """How many requests were refused; too many end a run: ``docs/privacy.md#outcomes-are-public``."""
    path, count = directory / REFUSALS, 0
    with storage_errors(path, "read"), suppress(FileNotFoundError):
        count = os.stat(path).st_size
    if count >= MOST_REFUSALS:
        text = f"{place}: {count} requests of this run were refused; it has ended, nothing was computed"
        raise refused("ended", text)
    return count


@contextmanager
def counted_refusals(directory: Path) -> Iterator[None]:
    """Count what is refused within the block, on disk before anybody hears of it; no fault of the disk's."""
    try:
        yield
    except Exception as error:
        path = directory / REFUSALS
        counts = code_of(error) not in _UNCOUNTED and not isinstance(error, StorageError)
        if counts and (directory / APPROVAL).exists():
            with storage_errors(path), open(path, "ab", buffering=0, opener=owner_only) as file:
                file.write(b"-")
                os.fsync(file.fileno())
        raise


#: A number as a regulariser or set has it behind its name: no blanks, no words.
_NUMBER = r"[+-]?(inf|[0-9.]{1,25}(e[+-]?[0-9]{1,3})?)"
_ROW = rf"{_NUMBER}(,{_NUMBER})*={_NUMBER}"
_CONSTRAINT = re.compile(rf"[a-z]{{1,20}}(:{_NUMBER}(,{_NUMBER})?)?|affine:{_ROW}(;{_ROW})*")
_REGULARIZER = re.compile(rf"([a-z0-9_]{{1,20}})(:{_NUMBER})?")
_RELEASE = re.compile(r"[0-9][0-9A-Za-z.+]{0,39}")


def check_words(terms: Mapping[str, Any], place: str) -> list[str]:
    """Refuse a first request with a word that does not exist; names of all parties."""
    for key, exists in _WORDS.items():
        if key in terms and not exists(terms[key]):
            text = f"{place}: argument {key!r}: {quoted(terms[key])} is unknown here"
            raise refused("terms", text, FormatError)
    for key in ("row_digest", "test", "validation", "table"):
        if key in terms and not DIGEST.fullmatch(terms[key]):
            raise refused("values", f"{place}: argument {key!r} is no digest", FormatError)
    return parties_of(terms, place)


def parties_of(terms: Mapping[str, Any], place: str) -> list[str]:
    """Names of all parties of a run in their order; none where an older coordinator does not say."""
    if "parties" not in terms:
        return []
    names = terms["parties"].split(",")
    try:
        good = len({check_party_name(name, place, FormatError).casefold() for name in names}) == len(names)
    except FormatError:
        good = False
    if not good or terms["position"] >= len(names):
        raise refused("values", f"{place}: argument 'parties' does not name the parties", FormatError)
    return names


def _is_set(word: str) -> bool:
    try:
        return _CONSTRAINT.fullmatch(word) is not None and bool(get_constraint(word))
    except ConfigError:
        return False


#: Of a first request's words: whether there is such a one.
_WORDS: dict[str, Callable[[str], bool]] = {
    "family": (*FAMILIES, *MODES[1:]).__contains__,
    "loss": LOSSES.__contains__,
    "regularizer": lambda word: (
        (found := _REGULARIZER.fullmatch(word)) is not None and found[1] in REGULARIZERS
    ),
    "constraint": _is_set,
    "x_update": ("auto", *X_UPDATES).__contains__,
    "release": lambda word: _RELEASE.fullmatch(word) is not None,
}
