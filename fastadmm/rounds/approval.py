"""What a party agreed to answer: a small file of its owner, checked before anything is computed.

The coordinator decides what it asks; the party decides what it answers. Nothing
in a request can widen these limits.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fastadmm.conversation.answering import Answering
from fastadmm.conversation.calls import CALLS, SUMS, Asked
from fastadmm.coordinator.admm.curvature_rule import CHANGE_ROUNDS as CURVATURE_ROUNDS
from fastadmm.coordinator.admm.penalty_rule import CHANGE_ROUNDS as PENALTY_ROUNDS
from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.atomic import atomic_file, shown
from fastadmm.files.reading import read_toml
from fastadmm.parties.families import FAMILIES
from fastadmm.rounds.exchange import Request
from fastadmm.rounds.private_terms import PRIVATE, Protection, asked_privacy
from fastadmm.rounds.refused import refused
from fastadmm.settings.privacy import ADJACENCIES
from fastadmm.store.party_file import PartyData, check_party_name

__all__ = [
    "APPROVAL",
    "Answered",
    "Approval",
    "approve",
    "check_request",
    "check_rows",
    "draft_approval",
    "first_terms",
    "in_plain_words",
    "open_approval",
    "sees_columns",
    "write_approval",
]

#: Name of the approval that a state directory keeps.
APPROVAL = "approval.toml"

_FORMAT, _VERSION = "fastadmm-approval", "1.0"

#: What an owner who says nothing agrees to: more than runs need, see docs/convergence.md.
_EXCHANGES, _DIRECTIONS = 1000, 2000

#: Days that a drafted approval is good for.
_DAYS = 90

#: Rounds after which an honest run may change its penalty, in order.
_PENALTY_CHANGES = sorted([*PENALTY_ROUNDS, *CURVATURE_ROUNDS])

#: Families whose parties answer to targets.
_ADMM = (*CALLS["step"].families, *CALLS["step_classes"].families)


@dataclass(frozen=True)
class Approval:
    """Limits of one party for one run.

    Attributes
    ----------
    path : Path
        For messages.
    run : str
        Identifier of the run, or "first": whichever begins.
    party : str
    data : str
        Content digest of the party's features.
    family : str
        What is asked: answers to gradients, to targets, or best responses to gradients and their faces; of
        one model or of one for each class; or answers of which the coordinator sees the sum over all parties.
    loss : str or None
        None: any, as requests of older releases do not say it.
    regularizer : str
    l1_ratio : float or None
    least_lambda : float
        Of a mean loss over the rows.
    constraint : str
    exchanges : int
        Requests that are answered, at most.
    directions : int
        Vectors of N numbers that leave, at most.
    last_day : date or None
        None: no end.
    protection : Protection or None
        In a private run: table ``privacy`` of the file.
    n_classes : int or None
        In a multinomial run.
    callers : list of str or None
        Who may ask, where a request comes with a caller; None: anybody.
    protocol : int or None
        Version of the messages, where they are no files.
    fastadmm : str or None
        Version of the coordinator's program; None: any.
    """

    path: Path
    run: str
    party: str
    data: str
    family: str
    loss: str | None
    regularizer: str
    l1_ratio: float | None
    least_lambda: float
    constraint: str
    exchanges: int
    directions: int
    last_day: datetime.date | None
    protection: Protection | None = None
    n_classes: int | None = None
    callers: list[str] | None = None
    protocol: int | None = None
    fastadmm: str | None = None


@dataclass(frozen=True)
class Answered:
    """What a party has answered in a run so far.

    Attributes
    ----------
    exchanges, directions, steps : int
        Requests; vectors of N numbers, at most; x-updates.
    penalty : float
        Of the last x-update.
    changes : int
        Of the penalty, or of the metric of an x-update.
    finished : bool
        Whether the run has ended for this party.
    """

    exchanges: int = 0
    directions: int = 0
    steps: int = 0
    penalty: float = 0.0
    changes: int = 0
    finished: bool = False


def sees_columns(settings: Mapping[str, Any]) -> bool:
    """Whether answers in such a run can show single columns.

    Parameters
    ----------
    settings : dict
        Arguments of the call ``start``.
    """
    if settings["family"] in PRIVATE:
        return False  # noise
    return _kind_of_party(settings["family"]).shows_columns(settings["regularizer"], settings["constraint"])


def _kind_of_party(family: str) -> type[Answering]:
    """Of an unknown family the worst is assumed; it is refused elsewhere."""
    return FAMILIES.get(family, Answering)


def first_terms(request: Request, data: PartyData, place: str) -> dict[str, Any]:
    """What a run's first request says the run is about.

    Parameters
    ----------
    request : Request
    data : PartyData
    place : str
        What messages call the request.

    Returns
    -------
    dict
        Arguments of the call ``start``.

    Raises
    ------
    InputError
        Not a first request, of another party, or about other rows.
    """
    settings = _terms(request, place)
    if request.party != data.name:
        raise InputError(f"{place}: for {request.party}, but {shown(data.path)} is of {data.name}")
    check_rows(settings, data, place)
    return settings


def _terms(request: Request, place: str) -> dict[str, Any]:
    if request.number != 0 or [name for name, _ in request.calls] != ["start"]:
        text = f"{place}: not the first request of a run, which says what the run is about"
        raise refused("order", InputError(text))
    return request.calls[0][1]


def draft_approval(
    settings: Mapping[str, Any], run: str, data: PartyData, path: Path, last_day: datetime.date | None
) -> Approval:
    """The approval of what a run's first request asks, with usual limits.

    Parameters
    ----------
    settings : dict
        Arguments of the call ``start``.
    run : str
    data : PartyData
    path : Path
        Where it will be.
    last_day : date or None

    Returns
    -------
    Approval
    """
    asked = asked_privacy(settings, shown(path))
    rounds = asked.rounds if asked is not None and asked.mode == "message" else 1
    return Approval(
        path=path,
        run=run,
        party=data.name,
        data=data.content_digest,
        family=settings["family"],
        loss=settings.get("loss"),
        regularizer=settings["regularizer"],
        l1_ratio=float(settings["l1_ratio"]) if settings["l1_ratio"] >= 0 else None,
        least_lambda=_lambda(settings),
        constraint=settings["constraint"],
        # A private run is opened, has its rounds, and ends.
        exchanges=_EXCHANGES if asked is None else rounds + 2,
        directions=_DIRECTIONS * settings.get("n_classes", 1) if asked is None else rounds,
        last_day=last_day,
        protection=None if asked is None else Protection.draft(asked),
        n_classes=settings.get("n_classes"),
    )


def approve(request: Request, data: PartyData, place: str, path: Path) -> Approval:
    """The approval that an owner edits: of a first request, good for some weeks.

    Parameters
    ----------
    request : Request
        The run's first.
    data : PartyData
    place : str
        What messages call the request.
    path : Path
        Where it will be.

    Returns
    -------
    Approval

    Raises
    ------
    InputError
        Not a first request, of another party, or about other rows.
    """
    settings = first_terms(request, data, place)
    return draft_approval(settings, request.run, data, path, _today() + datetime.timedelta(days=_DAYS))


def check_rows(settings: Mapping[str, Any], data: PartyData, place: str) -> None:
    """Refuse a run about other rows.

    Parameters
    ----------
    settings : dict
        Arguments of the call ``start``.
    data : PartyData
    place : str
        What messages call the request.

    Raises
    ------
    InputError
        Another number of rows, or another row digest.
    """
    if (settings["n_samples"], settings["row_digest"]) != (data.n_samples, data.row_digest):
        text = (
            f"{shown(data.path)}: {data.n_samples} rows, but {place} is about "
            f"{settings['n_samples']} rows, or they are others or in another order (row digests); "
            "align the rows first"
        )
        raise refused("rows", InputError(text))


def _lambda(settings: Mapping[str, Any]) -> float:
    """Lambda of a mean loss: the weights of the rows are the coordinator's, their number is known."""
    return float(settings["regularization"]) / max(1, int(settings["n_samples"]))


def _today() -> datetime.date:
    return datetime.date.today()


# --- checking ---------------------------------------------------------------------------------------------


def check_request(
    approval: Approval,
    request: Request,
    known: Mapping[str, Any],
    before: Answered,
    data: PartyData,
    place: str,
) -> Answered:
    """Refuse a request beyond the approval; nothing has been computed yet.

    Parameters
    ----------
    approval : Approval
    request : Request
        A new one: repeating an old answer needs no approval.
    known : dict
        Settings that the run began with; empty before.
    before : Answered
    data : PartyData
    place : str
        What messages call the request.

    Returns
    -------
    Answered
        What will have been answered.

    Raises
    ------
    InputError
        Naming what was asked and what is allowed.
    """
    if before.finished:
        text = f"{place}: asks more after the run's end; nothing was computed"
        raise refused("ended", InputError(text))
    _check_family(request, known, place)
    settings = known or _terms(request, place)
    pairs: list[tuple[str, Any, Any]] = [
        ("party", data.name, approval.party),
        ("data", data.content_digest, approval.data),
        ("family", settings["family"], approval.family),
        ("regularizer", settings["regularizer"], approval.regularizer),
        ("constraint", settings["constraint"], approval.constraint),
    ]
    if approval.run != "first":
        pairs.append(("run", request.run, approval.run))
    if approval.fastadmm is not None:
        said = settings.get("release", "not stated")
        if said != approval.fastadmm:
            what = f"key 'fastadmm' is {approval.fastadmm!r}, but the request is about {said!r}"
            raise _beyond(place, approval, what, "version")
    if approval.loss is not None:
        pairs.append(("loss", settings.get("loss", "not stated"), approval.loss))
    if approval.n_classes is not None or "n_classes" in settings:
        pairs.append(("n_classes", settings.get("n_classes"), approval.n_classes))
    if approval.l1_ratio is not None or settings["l1_ratio"] >= 0:
        pairs.append(("l1_ratio", float(settings["l1_ratio"]), approval.l1_ratio))
    for key, asked, allowed in pairs:
        if asked != allowed:
            what = f"key {key!r} is {allowed!r}, but the request is about {asked!r}"
            raise _beyond(place, approval, what, "run" if key == "run" else "terms")
    if not _lambda(settings) >= approval.least_lambda * (1.0 - 1e-9):
        what = f"lambda is at least {approval.least_lambda:g}, not {_lambda(settings):g}"
        raise _beyond(place, approval, what, "lambda")
    asked_for = asked_privacy(settings, place)
    if asked_for is not None:
        if approval.protection is None:
            raise _beyond(place, approval, "it has no table 'privacy'", "privacy")
        if what := approval.protection.excess(asked_for):
            raise _beyond(place, approval, what, "privacy")
    if approval.last_day is not None and _today() > approval.last_day:
        raise _beyond(place, approval, f"the last day was {approval.last_day}", "expired")
    after = _count(request.calls, settings, before, place)
    for key in ("exchanges", "directions"):
        if getattr(after, key) > getattr(approval, key):
            most, number = getattr(approval, key), getattr(after, key)
            raise _beyond(place, approval, f"{most} {key}, and this would be number {number}", key)
    return after


def _beyond(place: str, approval: Approval, what: str, code: str) -> InputError:
    text = (
        f"{place}: beyond {shown(approval.path)}: {what}; nothing was computed; whoever owns the data may "
        "edit the approval"
    )
    return refused(code, InputError(text))


def _check_family(request: Request, known: Mapping[str, Any], place: str) -> None:
    family = known.get("family", "")
    for name, _ in request.calls:
        if family not in CALLS[name].families:
            raise refused("call", FormatError(f"{place}: key 'calls': {name!r} is unknown here"))
    if request.calls and not CALLS[request.calls[-1][0]].answer:
        raise refused("call", FormatError(f"{place}: key 'calls': the last call has no answer"))


def _count(calls: list[Asked], settings: Mapping[str, Any], before: Answered, place: str) -> Answered:
    """What will have been answered; refuses a penalty that moves as no honest run's does."""
    answered = replace(before, exchanges=before.exchanges + 1)
    for name, arguments in calls:
        # Scores have a number for each of other rows.
        held = CALLS[name].vectors + (name in ("scores", "masked_scores"))
        vectors = held * int(settings.get("n_classes", 1))
        answered = replace(answered, directions=answered.directions + vectors)
        if name in ("finish", "keep"):
            answered = replace(answered, finished=True)
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


def _changed(answered: Answered, settings: Mapping[str, Any], place: str) -> Answered:
    k = answered.changes
    fixed = settings.get("penalty", 0.0) > 0.0
    if fixed or k >= len(_PENALTY_CHANGES) or answered.steps < _PENALTY_CHANGES[k]:
        when = (
            "never, as its first request said"
            if fixed
            else f"{len(_PENALTY_CHANGES)} times, the next time after round {_PENALTY_CHANGES[k]}"
            if k < len(_PENALTY_CHANGES)
            else f"{len(_PENALTY_CHANGES)} times"
        )
        text = (
            f"{place}: asks with another penalty after round {answered.steps}, but an honest run changes it "
            f"{when}; nothing was computed"
        )
        raise refused("penalty", InputError(text))
    return replace(answered, changes=k + 1)


# --- the file ---------------------------------------------------------------------------------------------


def write_approval(approval: Approval, *, force: bool = False) -> None:
    """Write an approval, with comments for whoever edits it.

    Parameters
    ----------
    approval : Approval
    force : bool
        Whether an existing file may be replaced.
    """
    import tomli_w

    notes = {
        "run": 'this run; "first": whichever run begins with it',
        "data": "content digest of the features",
        "loss": "as the coordinator says; the party cannot check it",
        "least_lambda": "of a mean loss; a smaller one is refused",
        "exchanges": "requests that are answered, at most",
        "directions": "vectors with one number per row that leave, at most",
        "last_day": "nothing new is answered after it",
        "callers": "who may ask",
        "protocol": "version of the messages",
        "fastadmm": "version of the coordinator's program",
        "epsilon": "of this run, at most",
        "total_epsilon": "of all runs that charge the same ledger",
        "public_scaling": "true: you say that no centre, scale, fill or category comes from private rows",
        "allow_infinite_epsilon": "true: go on where nothing is proved",
    }
    lines = [
        f"# What {approval.party} answers to a coordinator. Edit the limits: nothing beyond them is computed."
    ]
    document = _document(approval)
    table = document.pop("privacy", {})

    def add(values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            text = tomli_w.dumps({key: value}).rstrip("\n")
            lines.append(f"{text}  # {notes[key]}" if key in notes else text)

    add(document)
    if table:
        lines += ["", "[privacy]"]
        add(table)
    with atomic_file(approval.path, force=force) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _document(approval: Approval) -> dict[str, Any]:
    keys = [key for key in Approval.__dataclass_fields__ if key not in ("path", "protection")]
    values = {key: getattr(approval, key) for key in keys}
    return {
        "format": _FORMAT,
        "version": _VERSION,
        **{key: value for key, value in values.items() if value is not None},
        **({} if approval.protection is None else {"privacy": asdict(approval.protection)}),
    }


_KINDS: dict[str, tuple[type, ...]] = {
    "run": (str,),
    "party": (str,),
    "data": (str,),
    "family": (str,),
    "regularizer": (str,),
    "least_lambda": (float, int),
    "constraint": (str,),
    "exchanges": (int,),
    "directions": (int,),
}
_OPTIONAL: dict[str, tuple[type, ...]] = {
    "loss": (str,),
    "l1_ratio": (float, int),
    "n_classes": (int,),
    "last_day": (datetime.date,),
    "callers": (list,),
    "protocol": (int,),
    "fastadmm": (str,),
}


_PROTECTION: dict[str, tuple[type, ...]] = {
    "epsilon": (float, int),
    "delta": (float, int),
    "total_epsilon": (float, int),
    "adjacency": (str,),
    "sampler": (str,),
    "public_scaling": (bool,),
    "allow_infinite_epsilon": (bool,),
}


def _check_kinds(
    values: Mapping[str, Any],
    needed: Mapping[str, tuple[type, ...]],
    optional: Mapping[str, tuple[type, ...]],
    place: str,
) -> None:
    """Refuse keys that are missing, unknown or of another type."""
    for key in values:
        if key not in needed and key not in optional:
            raise ConfigError(f"{place}: key {key!r} is unknown")
    for key, kinds in {**needed, **optional}.items():
        value = values.get(key)
        if value is None:
            if key in needed:
                raise ConfigError(f"{place}: key {key!r} is missing")
        elif (
            not isinstance(value, kinds)
            or isinstance(value, datetime.datetime)
            or (isinstance(value, bool) and kinds != (bool,))
        ):
            raise ConfigError(f"{place}: key {key!r} is not {_name(kinds)}")


def open_approval(path: Path) -> Approval:
    """Read an approval.

    Parameters
    ----------
    path : Path

    Returns
    -------
    Approval

    Raises
    ------
    ConfigError
        A key is missing, unknown, or of another type: limits that are not understood are no limits.
    """
    try:
        values = read_toml(path)
    except FormatError as error:
        raise ConfigError(str(error)) from None
    place = shown(path)
    if values.pop("format", None) != _FORMAT:
        raise ConfigError(f"{place}: key 'format' is not {_FORMAT!r}; make it with 'fastadmm party approve'")
    if (version := values.pop("version", None)) != _VERSION:
        raise ConfigError(f"{place}: key 'version' is {version!r}; known: {_VERSION}")
    table = values.pop("privacy", None)
    _check_kinds(values, _KINDS, _OPTIONAL, place)
    protection = None
    if table is not None:
        if not isinstance(table, dict):
            raise ConfigError(f"{place}: key 'privacy' is not a table")
        _check_kinds(table, _PROTECTION, {}, f"{place}: privacy")
        protection = Protection(**table)
    for key in ("exchanges", "directions"):
        if values[key] < 1:
            raise ConfigError(f"{place}: key {key!r} is below 1")
    if not 0 < values["least_lambda"] < 1e300:
        raise ConfigError(f"{place}: key 'least_lambda' is not a positive number")
    check_party_name(values["party"], f"{place}: key 'party'", ConfigError)
    if not all(isinstance(name, str) for name in values.get("callers", ())):
        raise ConfigError(f"{place}: key 'callers' is not {_name((list,))}")
    optional = {key: values.get(key) for key in _OPTIONAL}
    return Approval(path=path, protection=protection, **{key: values[key] for key in _KINDS}, **optional)  # type: ignore[arg-type]


def _name(kinds: tuple[type, ...]) -> str:
    names: dict[type, str] = {
        str: "a text",
        float: "a number",
        int: "a whole number",
        bool: "true or false",
        list: "a list of names",
        datetime.date: "a day, as 2030-12-31",
    }
    return names[kinds[0]]


def in_plain_words(approval: Approval, data: PartyData) -> list[str]:
    """What is asked and what it means, for whoever owns the data.

    Parameters
    ----------
    approval : Approval
    data : PartyData

    Returns
    -------
    list of str
        Lines.
    """
    a = approval
    classes = "" if a.n_classes is None else f" with {a.n_classes} classes"
    penalty = a.regularizer if a.l1_ratio is None else f"{a.regularizer} (l1_ratio {a.l1_ratio:g})"
    lines = [
        f"run {a.run} asks {a.party} to take part with {data.n_samples} rows and {data.n_features} columns",
        f"model: loss {a.loss or 'not stated'}{classes}, regularizer {penalty}, lambda {a.least_lambda:g}, "
        f"constraint {a.constraint}",
        f"limits: {a.exchanges} exchanges, {a.directions} vectors of {data.n_samples} numbers, "
        f"until {a.last_day or 'no last day'}",
    ]
    if a.protection is not None:
        return [*lines, *_protection_in_words(a.family, a.protection)]
    lines.append("there is no noise: answers are exact functions of the features (epsilon is infinite)")
    if a.family in SUMS:
        lines.append(
            "answers are masked: the coordinator sees sums over all parties, as long as it does not work "
            "together with all others, and the keys are the parties': compare the fingerprints by telephone"
        )
    if sees_columns({"family": a.family, "regularizer": a.regularizer, "constraint": a.constraint}):
        number = _kind_of_party(a.family).exchanges_per_column
        each = "an exchange" if number == 1 else "two exchanges"
        at_once = a.n_classes or 1  # a target for each class
        columns = min(data.n_features, a.exchanges // number * at_once)
        lines.append(
            f"with {a.regularizer} and constraint {a.constraint} a coordinator that deviates from the "
            f"protocol reads single columns, {a.n_classes or 'one'} in {each} or more: up to {columns} of "
            f"{data.n_features} within these limits, and more where columns hold few different values. "
            "Approve only a coordinator that you trust to be honest"
        )
    else:
        lines.append(
            "answers depend on the features only through the inner products of rows with each other: after "
            f"{data.n_features} vectors a coordinator knows all of these, and with some rows that it knows "
            "already, or columns of few values, it can work out more. No answer shows a single column by "
            "itself. Approve only a coordinator that you trust to be honest"
        )
    return lines


def _protection_in_words(family: str, protection: Protection) -> list[str]:
    p = protection
    if p.sampler == "insecure_test":
        return [
            f"mode {family}, but its noise is seeded, for tests: nothing is protected. Approve no real data"
        ]
    return [
        f"mode {family}: everything that leaves carries noise, drawn here: epsilon {p.epsilon:g} at delta "
        f"{p.delta:g}, where {ADJACENCIES.get(p.adjacency, p.adjacency)}",
        f"each release is charged to your own ledger before it leaves, up to epsilon {p.total_epsilon:g} "
        "over all runs; a repeated request gets the same bytes and costs nothing",
    ]
