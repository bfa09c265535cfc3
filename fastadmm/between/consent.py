"""What an owner is shown, and the approvals that confirming it puts in force: all of it, or nothing.

A request waits; its owner looks at it; the digest of exactly what was shown, and of every approval that
would be written, confirms it. What changes meanwhile has another digest.
"""

import hashlib
import hmac
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py

from fastadmm.between import approval_file as files
from fastadmm.between.approval import APPROVAL, Approval, parties_of, some_weeks, terms_digest
from fastadmm.between.audit import AUDIT, read_audit, used
from fastadmm.between.memory import sums_before
from fastadmm.between.schema import VERSION, Request, approve_command, quoted, run_identifier
from fastadmm.conversation.calls import SUMS, argument_fields, check_values
from fastadmm.data_tools.alignment import library
from fastadmm.errors import ConfigError, FastadmmError, FormatError, InputError, StorageError
from fastadmm.files.atomic import shown, storage_errors, write_json
from fastadmm.files.reading import read_json
from fastadmm.inference.between import batches
from fastadmm.secrecy.keys import plain, primitive
from fastadmm.store.model import open_party_model
from fastadmm.store.party_file import PartyData, open_party

_FOLDER = "asked"

#: So many are kept of a caller, the newest, and of so many callers; and none that is longer.
_MOST, _CALLERS, _LONGEST = 20, 10, 2 << 20


def keep_asked(state: Path, identifier: str, document: dict[str, Any]) -> None:
    """Keep what was asked for."""
    folder = state / _FOLDER
    text = json.dumps(document, sort_keys=True)
    if len(text) > _LONGEST:
        return
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    with storage_errors(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        caller = hashlib.sha256(str(document.get("coordinator", "")).encode()).hexdigest()[:16]
        write_json(folder / f"{identifier}.{caller}.{digest}.json", document)
        # Who asks often pushes out what it asked itself, not what others did.
        kept = Counter[str]()
        for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True):
            owner = path.name.split(".")[1]
            if kept[owner] == _MOST or (owner not in kept and len(kept) == _CALLERS):
                path.unlink()
            else:
                kept[owner] += 1


def forget_asked(state: Path, identifier: str) -> None:
    """Drop what has been approved."""
    with storage_errors(state):
        for path in (state / _FOLDER).glob(f"{identifier}.*json"):
            path.unlink(missing_ok=True)


def asked_file(what: str, state: Path) -> Path:
    """The file that says what is to be approved."""
    if Path(what).exists() or "." in what or "/" in what:
        return Path(what)
    if not re.fullmatch(r"[0-9a-f]{16}|[0-9a-f]{32}", what):
        raise InputError(f"{what!r}: neither a file nor an identifier of 16 or 32 digits; see 'agent status'")
    paths = sorted((state / _FOLDER).glob(f"{what}.*.json" if len(what) == 16 else f"*.{what}.json"))
    if len(paths) != 1:
        found = f"{len(paths)} different things were" if paths else "nothing was"
        raise InputError(f"{shown(state)}: {found} asked for as {what}; see 'agent status'")
    return paths[0]


def asked_files(state: Path) -> list[Path]:
    """What waits for its owner."""
    return sorted((state / _FOLDER).glob("*.json"))


#: What is asked for, by the kind of request.
_ASKED = {
    "run": "to train",
    "align": "to compare ids",
    "labels": "to keep labels with noise",
    "predict": "for scores of rows",
    "infer": "for what standard errors need",
    "worth": "to train sets of runs",
}


def asked_lines(state: Path) -> list[str]:
    """A line for each, for the owner."""
    lines = []
    for path in asked_files(state):
        with suppress(FastadmmError):
            document = read_json(path)
            known = document if isinstance(document, dict) else {"kind": "?"}
            kind, by = known.get("kind", "run"), quoted(known.get("coordinator", ""))
            about, name = path.name.split(".")[0], path.name.split(".")[-2]
            look = approve_command(name, kind, shown(state))
            lines.append(f"{name}: {by} asks {_ASKED.get(kind, '?')} ({about}); to look at it: {look}")
    return lines


@dataclass(frozen=True)
class Consent:
    """Something that was asked for and is not approved."""

    state: Path  # the agent's directory
    identifier: str  # of the run or task
    words: Sequence[str]  # the screen, but for its end
    approvals: Sequence[Approval | files.TaskApproval]
    path: Path  # what messages call the approval

    @property
    def digest(self) -> str:
        """Of what is shown and of what would be in force, 32 hexadecimal digits."""
        written = [
            [str(one.path.relative_to(self.state)), files.approval_text(one)] for one in self.approvals
        ]
        text = json.dumps([list(self.words), written])
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def lines(self) -> list[str]:
        """The screen."""
        return [
            *self.words,
            "NOTHING IS APPROVED YET. To approve exactly this, repeat the command with",
            f"  --confirm {self.digest}",
        ]

    def check(self, force: bool) -> None:
        """Refuse what has been approved before."""
        for one in self.approvals:
            if not force and one.path.exists():
                raise StorageError(
                    f"{shown(one.path)}: exists already; look at it, or pass --force to ask for another in "
                    "its place"
                )

    def confirm(self, digest: str, force: bool) -> None:
        """Put the approvals in force."""
        if not hmac.compare_digest(digest.encode(), self.digest.encode()):
            raise ConfigError(
                f"--confirm {shown(digest[:40])}: not what is asked now, or what is known of it has changed; "
                "nothing is approved; give the command without --confirm and look again"
            )
        for one in self.approvals:
            with storage_errors(one.path.parent):
                one.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.write_approval(one, force=force)
        forget_asked(self.state, self.identifier)


def shown_digest(lines: Sequence[str]) -> str:
    """The digest with which a screen ends; whoever confirms it has seen that screen."""
    return lines[-1].split("--confirm ")[1]


#: What an agent was started with, in its directory.
_AGENT = "agent.json"


def remember(state: Path, **what: Path | None) -> None:
    """Keep which files an agent has, for whoever approves: its ledger and features."""
    write_json(
        state / _AGENT, {key: None if one is None else str(one.absolute()) for key, one in what.items()}
    )


def remembered(state: Path, what: str) -> Path | None:
    """A file that an agent was started with."""
    known = read_json(state / _AGENT) if (state / _AGENT).exists() else {}
    found = known.get(what) if isinstance(known, dict) else None
    return Path(found) if isinstance(found, str) else None


def _audited(state: Path) -> list[dict[str, Any]]:
    """What an agent has answered and refused."""
    return read_audit(state / AUDIT)[0] if (state / AUDIT).exists() else []


def spent_words(state: Path, data: PartyData, *delta: float) -> list[str]:
    """Paragraphs for the owner."""
    lines = [files.ledger_words(remembered(state, "ledger"), data, *delta)]
    runs = set()
    for path in state.glob(f"*/{APPROVAL}"):
        with suppress(FastadmmError):
            if files.open_approval(path).data == data.content_digest:
                runs.add(path.parent.name)
    # Runs and not answers: what is confirmed must not change while another run goes on.
    answered = {entry["run"] for entry in _audited(state) if entry["run"] in runs and "answer" in entry}
    if answered:
        lines.append(f"Earlier runs on these data here: {len(answered):,}; what they gave away adds up.")
    return lines


def run_description(run: str, caller: str, parties: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the owners of the data approve."""
    return {"format": "fastadmm-run", "version": "1.0", "run": run, "coordinator": caller, "parties": parties}


def agent_approve(
    path: Path,
    data: Path | None,
    state: Path,
    force: bool = False,
    confirm: str | None = None,
    *,
    rows: Path | None = None,
    **ids: Any,
) -> tuple[list[str], Path]:
    """Show what a run or a task asks for, or approve what was shown.

    ``data`` are features that a model is trained on; ``rows`` is a table whose ids are compared, or features
    or a table of rows to be scored; ``ids`` say how the table is read, as approvals keep it.
    """
    document, place = read_json(path), shown(path)
    if isinstance(document, dict) and document.get("format") == "fastadmm-task":
        consent = _consent_to_task(document, place, state, data, rows, **ids)
    elif data is None:
        raise ConfigError("--data: name the features that the run is to be trained on")
    else:
        consent = consent_to_run(document, place, data, state)
    consent.check(force)
    lines = consent.lines
    if confirm is not None:
        consent.confirm(confirm, force)
    return lines, consent.path


def agree(path: Path, data: Path, state: Path, **named: Any) -> None:
    """Approve whatever is asked, as an owner does who confirms what is shown."""
    lines, _ = agent_approve(path, data, state, True, **named)
    agent_approve(path, data, state, True, shown_digest(lines), **named)


def approve_fingerprints(what: str, fingerprints: list[str], state: Path) -> Path:
    """Add fingerprints of the other parties' keys to the approval of a run with sums only."""
    for text in fingerprints:
        if not re.fullmatch("[0-9a-f]{32}", plain(text)):
            raise ConfigError(f"--fingerprint {shown(text)}: not 32 hexadecimal digits")
    path = state / run_identifier(what, "agent approve") / APPROVAL
    if not path.exists():
        raise InputError(f"{shown(path)}: no approval of run {what}; approve the run first")
    approval = files.open_approval(path)
    if approval.family not in SUMS:
        raise InputError(f"{shown(path)}: not a run with sums only, so there are no keys to compare")
    known = [text for text in approval.fingerprints or () if plain(text) not in map(plain, fingerprints)]
    files.write_approval(replace(approval, fingerprints=known + fingerprints), force=True)
    return path


def consent_to_run(document: Any, place: str, data: Path, state: Path) -> Consent:
    """What an owner of the data would agree to in a run."""
    party = open_party(data)
    if not isinstance(document, dict) or document.get("format") != "fastadmm-run":
        raise FormatError(f"{place}: not a run that 'fastadmm federate train' began")
    if document.get("version") != "1.0":
        raise FormatError(f"{place}: version {document.get('version')!r} of this file; known: '1.0'")
    parties, caller = document.get("parties"), document.get("coordinator")
    if not isinstance(parties, dict) or not isinstance(caller, str):
        raise FormatError(f"{place}: keys 'parties' and 'coordinator' are missing or damaged")
    terms: Any = parties.get(party.name)
    if not isinstance(terms, dict):
        raise InputError(f"{place}: of {', '.join(parties)}, but {shown(data)} is of {party.name}")
    check_values(terms, argument_fields("start", party.n_samples), f"{place}: {party.name}")
    if terms["family"] in SUMS:
        primitive("asymmetric.x25519")  # missing, it is missed before anything is approved
    identifier = run_identifier(document.get("run"), place)
    request = Request(identifier, party.name, 0, -1, [("start", terms)])
    approval = replace(
        files.approve(request, party, place, state / identifier / APPROVAL, some_weeks()),
        callers=[caller],
        protocol=VERSION,
        fastadmm=terms["release"],
    )
    delta = () if approval.protection is None else (approval.protection.delta,)
    words = run_words(approval, party, terms, spent_words(state, party, *delta))
    return Consent(state, identifier, words, [approval], approval.path)


def run_words(
    approval: Approval, data: PartyData, terms: Mapping[str, Any], spent: Sequence[str]
) -> list[str]:
    """What an owner of the data is told of a run, with what is said of all runs before."""
    others = " and ".join(rows for rows in ("test", "validation") if rows in terms)
    more = [f"It also asks for exact scores of {others} rows, if you give them."] * bool(others) + [*spent]
    if approval.protection is None:
        masked = approval.family in SUMS
        more += sums_before(data, parties_of(terms, "") if masked else [data.name])
    return files.in_plain_words(approval, data, more)


def _consent_to_task(
    document: dict[str, Any], place: str, state: Path, data: Path | None, rows: Path | None, **ids: Any
) -> Consent:
    """What an owner would agree to beside runs."""
    kind = document.get("kind")
    count = document.get("n_ids" if kind == "align" else "n_samples")
    task, caller, party = (document.get(key) for key in ("task", "coordinator", "party"))
    run_identifier(task, place)
    known = kind in (*files.BESIDE, *files.OF_MODEL, "worth") and {type(caller), type(party)} == {str}
    if not known or type(count) is not int:
        raise FormatError(f"{place}: damaged; ask the coordinator to ask again")
    if kind == "worth":
        return _runs(document, place, state, data, rows)
    run = run_identifier(document.get("run"), place) if kind in files.OF_MODEL else ""
    if run and not (state / run / APPROVAL).exists():
        raise InputError(f"{place}: about run {run}, which is not approved in {shown(state)}")
    path = state / run / f"{kind}.toml"
    spent = used(_audited(state), path.name, run)
    trained, requests = kind in ("labels", "infer"), 1
    file = data if trained else rows
    if kind == "align":
        library()  # missing, it is missed before anything is approved
    if file is None:
        wanted = "--data: name the party's features" if trained else "--rows: name the table or features"
        raise ConfigError(wanted)
    if not file.is_file():
        raise InputError(f"{shown(file)}: there is no such file")
    if ids.get("id") is None and (kind == "align" or not h5py.is_hdf5(file)):
        raise ConfigError("--id: which column of the table holds the ids?")
    if kind == "infer":
        features = open_party(file)
        count, requests = features.n_features, len(batches(features.n_features, features.n_samples)) + 1
    # Refused ones count.
    limits = spent["requests"] + 2 * requests, spent["rows"] + count, some_weeks()
    approval = files.TaskApproval(path, str(party), [str(caller)], str(file.absolute()), *limits, **ids)
    return Consent(state, document["task"], _words(approval, document, spent), [approval], path)


def _runs(document: dict[str, Any], place: str, state: Path, data: Path | None, file: Path | None) -> Consent:
    """One approval for a set of runs, and for the scores of one set of rows by each of their models."""
    runs, count, caller = document.get("runs"), document["n_samples"], document["coordinator"]
    if not isinstance(runs, dict) or not runs:
        raise FormatError(f"{place}: damaged; ask the coordinator to ask again")
    if data is None or file is None or not h5py.is_hdf5(file):
        raise ConfigError(
            "--data and --rows: name the features that the runs are trained on, and those of the test rows"
        )
    words: dict[str, list[str]] = {}
    approvals: list[Any] = []
    party, members = open_party(data).name, set[str]()
    for run, terms in runs.items():
        one_run = run_description(run_identifier(run, place), caller, {party: terms})
        consent = consent_to_run(one_run, place, data, state)
        # Beside who takes part, all are alike: one screen is about all of them.
        members |= set(parties_of(terms, place))
        alike = {**terms, "position": 0, "parties": ""}
        words.setdefault(terms_digest(alike), list(consent.words))
        limits = (str(file.absolute()), 2, count, some_weeks())  # refused ones count
        scores = files.TaskApproval(consent.path.with_name("predict.toml"), party, [caller], *limits)
        approvals += [*consent.approvals, scores]
    if len(words) > 1:
        text = "runs of different kinds in one request; ask for each kind by itself"
        raise FormatError(f"{place}: {text}")
    first = (
        f"{quoted(caller)} asks {files.listed([party])} for {len(runs)} runs, with different sets of the "
        f"others of {files.listed(sorted(members))}, and for scores of {count:,} test rows with each model. "
        "What leaves adds up. Each run is like this one:"
    )
    (one,) = words.values()
    return Consent(state, document["task"], [*files.screen([first]), *one], approvals, state)


#: What a task asks for, in plain words.
_WORDS: dict[str, tuple[str, ...]] = {
    "align": (
        "{who} which of its {n_ids:,} ids are in {file} too.",
        "It learns these, and how many ids the table has; you learn those that all parties have.",
        "It may have put guessed ids among its own: each is answered, up to the limit.",
    ),
    "labels": (
        "{who} to keep {n_samples:,} labels with noise, of the rows of {file}, for "
        "'fastadmm scorecard bins'.",
        "It learns that you have these rows, and nothing of their features.",
    ),
    "predict": (
        "{who} for the scores of {n_samples:,} rows of {file} with the model of run {run}.",
        "{exact}, without noise (epsilon is infinite).",
        "Whoever knows the features of some rows works out weights from their scores, as many as rows, "
        "and with all weights a number on the features of every other row.",
    ),
}


def _words(approval: files.TaskApproval, asked: Mapping[str, Any], spent: Mapping[str, int]) -> list[str]:
    path, party = approval.path, approval.party
    who = f"{quoted(asked['coordinator'])} asks {files.listed([party])}"
    if path.stem == "infer":
        return inference_words(approval, who, asked["run"], open_party(Path(approval.file)).n_features)
    part, exact = path.with_name(f"{party}.h5"), "A score is exact: the row's features times your weights"
    if path.stem == "predict" and part.exists() and len(open_party_model(part)[0].feature_names) == 1:
        exact = "You have ONE column: the scores are that column, up to a factor"
    values = {**asked, "who": who, "file": quoted(approval.file, 200), "exact": exact}
    limits = (
        f"Limits: {approval.requests:,} questions, refused ones counted, and {approval.rows:,} rows, of "
        f"which {spent['requests']:,} and {spent['rows']:,} are used; until {approval.last_day}."
    )
    return files.screen([*(text.format_map(values) for text in _WORDS[path.stem]), limits])


def inference_words(approval: files.TaskApproval, who: str, run: str, n_features: int) -> list[str]:
    """What is asked, for the owner of the data."""
    what = (
        "Your ONE column leaves, up to its sign and unit, and how sure its weight is"
        if n_features == 1
        else "No column, weight or standard error leaves by itself, but columns of few different values, "
        "such as categories, can be recognised"
    )
    return files.screen(
        [
            f"{who} for what standard errors need, with the model of run {run}.",
            f"{n_features:,} vectors of the training rows leave: your columns up to a rotation, without "
            "noise (epsilon is infinite).",
            "They tell how alike any two of your rows are, and each row's score by your weights; whoever "
            "knows your columns of as many rows as you have columns works out all others.",
            f"{what}; you learn your own standard errors.",
            f"Limits: {approval.requests:,} questions, refused ones counted, and {approval.rows:,} vectors, "
            f"until {approval.last_day}.",
        ]
    )
