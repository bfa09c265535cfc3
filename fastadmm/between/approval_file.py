"""Approvals as files, in which what is not understood is refused, and in plain words for their owner."""

import datetime
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from fastadmm.between import approval as limits
from fastadmm.between.approval import Approval, sees_columns
from fastadmm.between.schema import Request, quoted
from fastadmm.conversation.answering import Answering
from fastadmm.conversation.calls import SUMS
from fastadmm.errors import ConfigError, FormatError
from fastadmm.files.atomic import shown, write_whole
from fastadmm.files.reading import read_toml
from fastadmm.parties.families import FAMILIES
from fastadmm.parties.masked_direction import MOST_AT_ONCE
from fastadmm.privacy.accounts import feature_account
from fastadmm.privacy.ledger import Ledger, spent_words
from fastadmm.problem.losses import LOSSES
from fastadmm.settings.checks import WANTED
from fastadmm.settings.privacy import ADJACENCIES, DifferentialPrivacy, Privacy
from fastadmm.settings.setting import kinds_of
from fastadmm.store.party_file import PartyData, check_party_name

#: Kinds of tasks, as an agent's status calls them: beside runs, and with a run's model. An approval's file
#: has the kind's name, in the agent's directory or in that of the run.
BESIDE = {"align": "alignments", "labels": "labels"}
OF_MODEL = {"predict": "predictions", "infer": "standard errors"}

_GO_ON = "true: go on where nothing is proved"

#: Notes of the table ``privacy``; what of an approval is in no line of its own.
_OF_PRIVACY = {
    "epsilon": "of this run, at most",
    "total_epsilon": "of all runs that charge the same ledger",
    "public_scaling": "true: you say that no centre, scale, fill or category comes from private rows",
    "allow_infinite_epsilon": _GO_ON,
}
_APART = ("path", "protection", "penalty")


@dataclass(frozen=True)
class TaskApproval:
    """Limits of one party, for alignments or labels, or for predictions or standard errors with one model."""

    path: Path  # of the approval: KIND.toml
    party: str
    callers: Annotated[list[str], "who may ask"]
    file: Annotated[str, "what is answered from: a table, or features"]
    requests: Annotated[int, "new ones that are answered or refused, at most"]
    rows: Annotated[int, "ids, labels, scores or vectors of all these together, at most"]
    last_day: Annotated[datetime.date | None, "nothing new is answered after it"]
    id: str | None = None  # id column, where the file is a table
    duplicates: str = "refuse"  # what is done with ids that occur more than once in it
    separator: str | None = None  # between its cells, where it is CSV; None is recognised
    id_pattern: str | None = None  # regular expression of the part of ids that is compared
    unmasked: Annotated[
        bool, "true: the coordinator may see this party's scores by themselves, not sums alone"
    ] = False
    allow_infinite_epsilon: Annotated[bool, _GO_ON] = False


#: Of the files: their name, what writes them, and versions that are read, the newest first.
_FORMATS: dict[type, tuple[str, str, tuple[str, ...]]] = {
    Approval: ("fastadmm-approval", "fastadmm party approve", ("1.1", "1.0")),
    TaskApproval: ("fastadmm-task-approval", "fastadmm agent approve", ("1.0",)),
}


def write_approval(approval: Approval | TaskApproval, *, force: bool = False) -> None:
    """Write an approval, with comments for whoever edits it."""
    write_whole(approval.path, approval_text(approval), force=force)


def approval_text(approval: Approval | TaskApproval) -> str:
    """The file's content: what is not said is as it would be without."""
    hints = get_type_hints(type(approval), include_extras=True)
    notes = {key: hint.__metadata__[0] for key, hint in hints.items() if get_origin(hint) is Annotated}
    name, _, versions = _FORMATS[type(approval)]
    table: dict[str, Any] = {}
    if isinstance(approval, Approval) and approval.protection is not None:
        table = protection_table(approval.protection, approval.penalty)
    values: dict[str, Any] = {"format": name, "version": versions[0]}
    for one in fields(approval):
        value = getattr(approval, one.name)
        if one.name not in _APART and value is not None and value != one.default:
            values[one.name] = value
    first = f"# What {approval.party} answers. Edit the limits: nothing beyond them is computed."
    lines = [first, *_lines(values, notes)]
    if table:
        lines += ["", "[privacy]", *_lines(table, _OF_PRIVACY)]
    return "\n".join(lines) + "\n"


def _lines(values: Mapping[str, Any], notes: Mapping[str, str]) -> list[str]:
    """A line of TOML for each value, also of a list, with what is noted of it."""
    import tomli_w

    lines = []
    for key, value in values.items():
        text = tomli_w.dumps({key: value}).rstrip("\n").replace(",\n]", "]").replace("\n   ", "")
        lines.append(f"{text}  # {notes[key]}" if key in notes else text)
    return lines


_KINDS = {**WANTED, float: "a number", datetime.date: "a day, as 2030-12-31"}


def _read(path: Path, record: type) -> dict[str, Any]:
    """The values of an approval's file by key; None for what it need not say."""
    place, (name, command, versions) = shown(path), _FORMATS[record]
    try:
        values = read_toml(path)
    except FormatError as error:
        raise ConfigError(str(error)) from None
    if values.pop("format", None) != name:
        raise ConfigError(f"{place}: key 'format' is not {name!r}; make it with '{command}'")
    if (version := values.pop("version", None)) not in versions:
        raise ConfigError(f"{place}: key 'version' is {version!r}; known: {versions[0]}")
    apart = {"privacy": values.pop("privacy", None)} if record is Approval else {}
    if version != versions[0]:  # it counted vectors; for a run that goes on, its owner is asked again
        apart["numbers"], values["numbers"] = 0, values.pop("directions", None)
    known = {key: hint for key, hint in get_type_hints(record).items() if key not in _APART}
    for key in values:
        if key not in known:
            raise ConfigError(f"{place}: key {key!r} is unknown")
    optional = {one.name for one in fields(record) if one.default is not MISSING}
    for key, hint in known.items():
        value, kinds = values.get(key), kinds_of(hint)
        if value is None:
            if key not in optional and type(None) not in get_args(hint):
                raise ConfigError(f"{place}: key {key!r} is missing")
        elif (
            not isinstance(value, kinds)
            or isinstance(value, datetime.datetime)
            or (isinstance(value, bool) and kinds != (bool,))
            or (isinstance(value, list) and not all(isinstance(name, str) for name in value))
        ):
            raise ConfigError(f"{place}: key {key!r} is not {_KINDS[kinds[-1]]}")
    for key in ("exchanges", "numbers", "requests", "rows"):
        if values.get(key, 1) < 1:
            raise ConfigError(f"{place}: key {key!r} is below 1")
    check_party_name(values["party"], f"{place}: key 'party'", ConfigError)
    return {**dict.fromkeys(known.keys() - optional), **values, **apart}


def protection_table(agreed: DifferentialPrivacy, penalty: float | None) -> dict[str, Any]:
    """As the file of an approval has it."""
    said = {key: value for key, value in agreed.to_dict().items() if key != "mode"}
    return said if penalty is None else {**said, "penalty": penalty}


def protection_of(table: Mapping[str, Any], family: str, place: str) -> DifferentialPrivacy:
    """Inverse of :func:`protection_table`, without the penalty; what it does not say has its default."""
    for key in ("epsilon", "delta", "total_epsilon", "adjacency", "sampler"):
        if key not in table:
            raise ConfigError(f"{place}: key {key!r} is missing")
    said = {key: value for key, value in table.items() if key != "penalty"}
    agreed = Privacy.from_dict({"mode": family, **said}, place)
    if not isinstance(agreed, DifferentialPrivacy):
        raise ConfigError(f"{place}: not of a run {family!r}")
    return agreed


def open_task_approval(path: Path) -> TaskApproval:
    """Read the approval of a task."""
    return TaskApproval(path=path, **_read(path, TaskApproval))


def open_approval(path: Path) -> Approval:
    """Read the approval of a run."""
    place, values = shown(path), _read(path, Approval)
    if (table := values.pop("privacy")) is not None:
        if not isinstance(table, dict):
            raise ConfigError(f"{place}: key 'privacy' is not a table")
        values["penalty"] = table.get("penalty")
        if not isinstance(values["penalty"], (float, int, type(None))):
            raise ConfigError(f"{place}: key 'penalty' is not {_KINDS[float]}")
        values["protection"] = protection_of(table, values["family"], f"{place}: privacy")
    if not 0 < values["least_lambda"] < 1e300:
        raise ConfigError(f"{place}: key 'least_lambda' is not a positive number")
    return Approval(path=path, **values)


# --- what is drafted --------------------------------------------------------------------------------------

#: Refusals that a draft of a private run has room for: of a ledger that is not named, for example.
_RETRIES = 10

#: What an approval says as the first request does.
_ALIKE = ("family", "loss", "regularizer", "constraint", "n_classes")


def approve(
    request: Request, data: PartyData, place: str, path: Path, last_day: datetime.date | None = None
) -> Approval:
    """The approval of what a run's first request asks, with limits of twice what an honest run needs."""
    settings = limits.first_terms(request, data, place)
    asked = limits.asked_privacy(settings, shown(path))
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
        least_lambda=limits.lambda_of(settings),
        exchanges=exchanges,
        numbers=numbers,
        last_day=last_day,
        protection=None if asked is None else drafted(asked),
        penalty=None if asked is None else float(settings["penalty"]),
        parties=limits.parties_of(settings, shown(path)),
        terms=limits.terms_digest(settings),
    )


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
    elif family == "subspace" and not LOSSES[terms["loss"]].convex:
        rounds, exchanges = 2 * rounds, 2
    others = sum(key in terms for key in ("test", "validation"))
    asked = rounds * (exchanges + others) + _BESIDE
    each_row = rounds * (vectors + others) + _BESIDE
    return asked, (each_row * n + asked * numbers) * classes


def drafted(asked: DifferentialPrivacy) -> DifferentialPrivacy:
    """What a request asks for; what only the owner can say is not said yet."""
    owners = {"public_scaling": False, "allow_infinite_epsilon": False}
    return asked.with_(total_epsilon=float(asked.budget), **owners)


# --- what is shown ----------------------------------------------------------------------------------------

#: Of a terminal as it opens everywhere; two lines are left for how to confirm.
WIDTH, LINES = 80, 24

#: Characters of the names of parties that are shown.
_NAMES = 90

#: Where nobody says at which delta a ledger is read.
_DELTA = 1e-6


def screen(paragraphs: Sequence[str]) -> list[str]:
    """Paragraphs as lines of a terminal, those after the first of each a little to the right."""
    wrapper = textwrap.TextWrapper(WIDTH - 1, subsequent_indent="  ", break_on_hyphens=False)
    return [line for text in paragraphs for line in wrapper.wrap(text)]


def listed(names: Sequence[str]) -> str:
    """Names as one text, as many as there is room for, and how many more there are."""
    sizes = accumulate(len(name) + 2 for name in names)
    room = sum(size <= _NAMES for size in sizes)
    return ", ".join(names[:room]) + (f" and {len(names) - room} more" if room < len(names) else "")


def ledger_words(path: Path | None, data: PartyData, delta: float = _DELTA) -> str:
    """What a party's own ledger has charged to these data so far."""
    if path is None:
        return "Spent so far: no ledger was named, so nothing is known of earlier private runs."
    ledger = Ledger(path)
    spent = spent_words(ledger.spent(feature_account(data)), ledger.delta(delta), ledger.most)
    return f"Spent so far, by your ledger: {spent}."


def in_plain_words(approval: Approval, data: PartyData, spent: Sequence[str] = ()) -> list[str]:
    """What is asked and what it means, for whoever owns the data."""
    a = approval
    who = quoted(a.callers[0]) if a.callers else "A coordinator"
    run = a.run if re.fullmatch("[0-9a-f]{1,32}", a.run) else quoted(a.run)  # by files it could be any text
    parties = f"{len(a.parties or ())} parties: {listed(a.parties or ())}"
    classes = "" if a.n_classes is None else f" with {a.n_classes} classes"
    penalty = a.regularizer if a.l1_ratio is None else f"{a.regularizer} (l1_ratio {a.l1_ratio:g})"
    paragraphs = [
        f"{who} asks to train a model with your {data.n_samples:,} rows and {data.n_features:,} columns.",
        f"Run {run}; {parties}.",
        f"Model: loss {a.loss}{classes}, regularizer {penalty}, lambda {a.least_lambda:g}, "
        f"constraint {a.constraint}.",
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


def _exact_in_words(a: Approval, data: PartyData) -> list[str]:
    paragraphs = [
        "What leaves: exact numbers made from your columns, without noise. No guarantee of privacy is given "
        "(epsilon is infinite). The last answer proves the model."
    ]
    if a.family in SUMS and len(a.parties or ()) == 2:
        paragraphs.append(
            "The coordinator sees sums over both parties: whoever knows one part knows the other."
        )
    elif a.family in SUMS:
        paragraphs.append(
            "The coordinator sees sums over all parties only, unless all others help it or keys are not the "
            "parties': compare fingerprints by telephone. Two sums that differ by a party show its part."
        )
    n = data.n_features
    if n == 1:
        whose = "what you add to a single sum shows it" if a.family in SUMS else "a single answer shows it"
        risk = f"You have ONE column: {whose} up to a factor, and so all of it to whoever knows one cell."
    elif sees_columns(a):
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


def _protection_in_words(family: str, p: DifferentialPrivacy) -> list[str]:
    if p.sampler == "insecure_test":
        return [
            f"Mode {family}, but its noise is seeded, for tests: nothing is protected. Approve no real data."
        ]
    return [
        f"What leaves carries noise that is drawn here (mode {family}): epsilon {p.epsilon:g} at delta "
        f"{p.delta:g} for this run, where {ADJACENCIES.get(p.adjacency, p.adjacency)}.",
        f"It is charged to your own ledger before it leaves, up to epsilon {p.budget:g} over all "
        "runs. A repeated question gets the same answer and costs nothing.",
    ]
