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

from fastadmm.between.schema import DIGEST, Request, code_of, quoted, refused
from fastadmm.conversation.answering import Answering
from fastadmm.conversation.calls import CALLS, Asked
from fastadmm.conversation.gate import MOST_REFUSALS
from fastadmm.coordinator.admm.penalty_rule import CHANGE_ROUNDS as PENALTY_ROUNDS
from fastadmm.coordinator.admm.penalty_rule import CURVATURE_ROUNDS
from fastadmm.errors import ConfigError, FormatError, InputError, StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.modes import owner_only
from fastadmm.files.reading import json_of
from fastadmm.parties.families import FAMILIES
from fastadmm.parties.xupdate.choose import X_UPDATES
from fastadmm.problem.constraints import get_constraint
from fastadmm.problem.losses import LOSSES
from fastadmm.problem.regularizers import REGULARIZERS
from fastadmm.settings.privacy import MODES, DifferentialPrivacy, Privacy
from fastadmm.store.party_file import PartyData, check_party_name

#: Name of the approval that a state directory keeps.
APPROVAL = "approval.toml"

#: Days that a drafted approval is good for.
DAYS = 90

#: Families of private runs: each is the mode of the same name.
PRIVATE = ("fusion", "message")

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


@dataclass
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
    if names[terms["position"]] != request.party:
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


def privacy_text(settings: Privacy) -> str:
    """Settings as the call ``start`` says them."""
    return json.dumps(settings.to_dict(), sort_keys=True)


def asked_privacy(terms: Mapping[str, Any], place: str) -> DifferentialPrivacy | None:
    """The settings of a private run; None for a run without noise."""
    if (terms["family"] in PRIVATE) != ("privacy" in terms):
        text = f"{place}: argument 'privacy' goes with families {' and '.join(PRIVATE)} alone"
        raise refused("privacy", text, FormatError)
    if "privacy" not in terms:
        return None
    try:
        settings = Privacy.from_dict(json_of(terms["privacy"], foreign=True))
        if isinstance(settings, DifferentialPrivacy):
            settings.check_samples(int(terms["n_samples"]))
    except (ValueError, TypeError, AttributeError, ConfigError) as error:
        raise refused("privacy", f"{place}: argument 'privacy': {error}", FormatError) from None
    if settings.mode != terms["family"] or not isinstance(settings, DifferentialPrivacy):
        text = f"{place}: argument 'privacy': mode {settings.mode!r} in a run {terms['family']!r}"
        raise refused("privacy", text, FormatError)
    return settings


#: Keys of an approval's table ``privacy`` that only the owner of the data says.
OWNERS = ("total_epsilon", "public_scaling", "allow_infinite_epsilon")

#: What only bounds a request, or is not the requester's to say.
_NOT_COMPARED = (*OWNERS, "mode", "epsilon", "delta")


def privacy_excess(
    agreed: DifferentialPrivacy, penalty: float | None, asked: DifferentialPrivacy, terms: Mapping[str, Any]
) -> str:
    """What of a request is beyond an approval; empty for nothing: ``docs/privacy.md#outcomes-are-public``."""
    for key, value in (("epsilon", asked.epsilon), ("delta", asked.delta), ("total_epsilon", asked.epsilon)):
        if not value <= (most := getattr(agreed, key)):
            return f"{key} is at most {most:g}, not {value:g}"
    allowed, wanted = (
        {key: value for key, value in one.to_dict().items() if key not in _NOT_COMPARED}
        for one in (agreed, asked)
    )
    if penalty is not None:  # an approval of an older release has none
        allowed["penalty"], wanted["penalty"] = penalty, float(terms["penalty"])
    for key in {**wanted, **allowed}:
        if wanted.get(key) != allowed.get(key):
            own, other = allowed.get(key, "not set"), wanted.get(key, "not set")
            return f"key {key!r} is {own!r}, but the request is about {other!r}"
    return ""


def terms_digest(terms: Mapping[str, Any]) -> str:
    """Digest of all that a first request says of its run; it is the identifier of what is approved."""
    text = json.dumps(dict(terms), sort_keys=True, separators=(",", ":"), default=float)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def lambda_of(settings: Mapping[str, Any]) -> float:
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
        "fastadmm": settings["release"],
        "party": data.name,
        "data": data.content_digest,
        **{key: settings[key] for key in ("family", "regularizer", "constraint")},
        "run": run,
        "loss": settings["loss"],
        "n_classes": settings.get("n_classes"),
        "l1_ratio": None if approval.l1_ratio is None and ratio < 0 else ratio,
    }
    for key, asked in about.items():
        allowed = getattr(approval, key)
        if asked != allowed and not (key in _ANY and allowed == _ANY[key]):
            code = {"run": "run", "fastadmm": "version"}.get(key, "terms")
            yield code, f"key {key!r} is {allowed!r}, but the request is about {asked!r}"
    if not lambda_of(settings) >= approval.least_lambda * (1.0 - 1e-9):
        yield "lambda", f"lambda is at least {approval.least_lambda:g}, not {lambda_of(settings):g}"
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
    now = replace(before, exchanges=before.exchanges + 1)
    for name, arguments in calls:
        now.numbers += _numbers(name, arguments, settings)
        now.finished |= name in ("finish", "keep")
        if settings["family"] not in _ADMM:
            continue  # a metric there only chooses directions, which are unit vectors
        if name == "set_metric":
            _count_change(now, settings, place)
        elif name in ("step", "step_classes"):
            penalty = float(arguments["scaled_penalty"])
            # A metric brings a penalty of its own: one change, not two.
            if now.steps and penalty != now.penalty and calls[0][0] != "set_metric":
                _count_change(now, settings, place)
            now.penalty, now.steps = penalty, now.steps + 1
    return now


def _numbers(name: str, arguments: Mapping[str, Any], settings: Mapping[str, Any]) -> int:
    """Numbers that an answer to a call holds; more where some of them are as many as the answer says."""
    rule = CALLS[name]
    if "most" in arguments:  # messages of directions, which all classes have in common
        return int(arguments["most"]) * (int(settings["n_samples"]) + 1) + len(rule.answer)
    # Scores count as a number for each row, of whatever rows they are.
    vectors = rule.vectors + (name == "scores") + len(arguments.get("units", ()))
    return vectors * int(settings["n_samples"]) * int(settings.get("n_classes", 1)) + len(rule.answer)


def _count_change(now: Answered, settings: Mapping[str, Any], place: str) -> None:
    """Count a change of the penalty, or refuse it."""
    k, fixed = now.changes, settings["penalty"] > 0.0
    if fixed or k >= len(_PENALTY_CHANGES) or now.steps < _PENALTY_CHANGES[k]:
        text = f"{place}: another penalty after round {now.steps}, where no honest run changes it"
        raise refused("penalty", f"{text}; nothing was computed")
    now.changes += 1


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
        if not exists(terms[key]):
            text = f"{place}: argument {key!r}: {quoted(terms[key])} is unknown here"
            raise refused("terms", text, FormatError)
    for key in ("row_digest", "test", "validation", "table"):
        if key in terms and not DIGEST.fullmatch(terms[key]):
            raise refused("values", f"{place}: argument {key!r} is no digest", FormatError)
    return parties_of(terms, place)


def parties_of(terms: Mapping[str, Any], place: str) -> list[str]:
    """Names of all parties of a run in their order."""
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
