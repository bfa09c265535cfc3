"""A run with parties elsewhere: its configuration, begun, gone on with, repaired; over channels, or files."""

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fastadmm.between import run_problem as parts
from fastadmm.between.agent import Agent
from fastadmm.between.carrier import Carrier
from fastadmm.between.consent import agree, asked_files
from fastadmm.between.coordinator import RUN, Coordinator
from fastadmm.between.hub import Ask, Elsewhere, Letters, Waiting, ask_by_file
from fastadmm.between.kit import open_kit
from fastadmm.between.nvflare_app import SERVER_NAME
from fastadmm.between.schema import approve_command
from fastadmm.between.socket import Lost, Say, Socket, again
from fastadmm.errors import ConfigError, FormatError
from fastadmm.files.atomic import remove_leftovers, shown, storage_errors
from fastadmm.files.reading import read_bytes
from fastadmm.runs.claim import labels_digest
from fastadmm.runs.config import make_config, read_config, refuse
from fastadmm.runs.export import import_party
from fastadmm.runs.folder import EXCHANGE, RunFolder
from fastadmm.runs.load import doubts, seen_by_ids
from fastadmm.runs.result import new_run_id
from fastadmm.settings.keys import PATHS
from fastadmm.settings.run import differing
from fastadmm.solver.loop import Monitor
from fastadmm.solver.solver import SUMS_HAVE_NO_TEST
from fastadmm.store.label_file import open_labels
from fastadmm.store.party_file import check_party_name

#: Carriers, as an address begins with them; ``file``: features of the label holder's own.
_OWN, _UNIX, _NVFLARE, _FILES = "file", "unix", "nvflare", "files"

#: Seconds before each further attempt to reach a party that was lost.
PAUSES = (1.0, 4.0, 15.0, 60.0)

#: Keys of the table ``federation``.
_KEYS = ("kit", "name", "parties", "relay")


@dataclass(frozen=True)
class Setup:
    """A configuration."""

    values: dict[str, Any]  # settings of ``fastadmm train``
    place: str  # what messages begin with
    names: list[str]  # the parties, in the order of the model
    caller: str  # who asks, as approvals name it
    addresses: dict[str, tuple[str, str]]  # carrier and path or site, by name of each party that is asked
    nvflare: tuple[Path, Path] | None  # the administrator's kit, and the server's socket
    own: Path | None  # features of the label holder
    own_name: str  # whose these are

    @property
    def elsewhere(self) -> list[str]:
        """Names of the parties that are asked."""
        return [name for name in self.names if name != self.own_name]

    @property
    def own_state(self) -> Path | None:
        """Directory of the label holder's own agent, in this process; mode "fusion" needs none."""
        privacy = self.values.get("privacy")
        fusion = isinstance(privacy, dict) and privacy.get("mode") == "fusion"
        return None if self.own is None or fusion else self.own.with_suffix(".state")

    @contextmanager
    def opened(self, say: Say, ends: bool = True) -> Iterator[Ask]:
        """What asks the parties, until the block ends."""
        asks: dict[str, Ask] = {}
        over = threading.Event()
        with ExitStack() as stack:
            for name, (way, at) in self.addresses.items():
                if way == _FILES:
                    asks[name] = partial(ask_by_file, Path(at), caller=self.caller)
                elif way == _UNIX:
                    asks[name] = partial(Socket(at).ask, caller=self.caller)
            if self.nvflare is not None:
                kit, relay = self.nvflare
                sites = {name: at for name, (way, at) in self.addresses.items() if way == _NVFLARE}
                carrier = stack.enter_context(Carrier(open_kit(kit), relay, sites, say, ends))
                asks |= dict.fromkeys(sites, carrier.ask)
            if self.own is not None and self.own_state is not None:
                own = _agreeing(self.own, self.own_state, self.caller, say)
                asks[self.own_name] = stack.enter_context(own)
            stack.callback(over.set)  # before the others: whoever pauses gives up
            yield lambda name, raw, seconds: persistent(partial(asks[name], name, raw, seconds), say, over)


def persistent(ask: Callable[[], bytes], say: Say, over: threading.Event) -> bytes:
    """An answer, which is asked for again where a party was lost, until all is over: it may come back."""
    try:
        return again(ask, PAUSES, say, over=over)
    except Lost as error:
        raise Lost(f"{error}; the same command goes on where this has ended") from None


@contextmanager
def _agreeing(data: Path, state: Path, caller: str, say: Say) -> Iterator[Ask]:
    """An agent for columns of the label holder, who approves what it asks itself."""
    said: list[str] = []
    with closing(Agent(data, state, say=said.append)) as agent:

        def ask(name: str, raw: bytes, seconds: float) -> bytes:
            answer = agent.handle(caller, name, raw)
            for path in asked_files(state):
                agree(path, data, state)
                said.clear()
                answer = agent.handle(caller, name, raw)
            while said:
                say(said.pop(0))
            return answer

        yield ask


def read_setup(config: Path) -> Setup:
    """Read a configuration."""
    return setup_of(read_config(config), shown(config), config.absolute().parent)


def setup_of(values: dict[str, Any], place: str, home: Path) -> Setup:
    """A configuration whose paths are seen from ``home``; what its table ``federation`` says leaves it."""
    values.pop("provenance", None)
    table = values.pop("federation", None)
    if not isinstance(table, dict) or not isinstance(table.get("parties"), dict) or not table["parties"]:
        raise ConfigError(
            f"{place}: table 'federation.parties' is missing: the address of each party, as "
            'NAME = "unix:PATH"'
        )
    there = f"{place}: table 'federation'"
    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"{there}: key {key!r} is unknown; known: {', '.join(_KEYS)}")
    texts = [*table["parties"].values(), *(value for key, value in table.items() if key != "parties")]
    if not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"{there}: names and addresses are texts")
    addresses = {name: _address(at, name, home, place) for name, at in table["parties"].items()}
    own = {name: Path(addresses.pop(name)[1]) for name in table["parties"] if addresses[name][0] == _OWN}
    if len(own) > 1:
        raise ConfigError(f"{place}: {', '.join(own)}: one party alone may be the label holder's own file")
    sites = any(way == _NVFLARE for way, _ in addresses.values())
    for key in ("kit", "relay"):
        if sites != (key in table):
            words = 'is needed for an address "nvflare:SITE"' if sites else "is of no use without a site"
            raise ConfigError(f"{there}: key {key!r} {words}")
    usual = SERVER_NAME if sites else "coordinator"
    if sites and table.get("name", usual) != usual:
        raise ConfigError(f"{there}: key 'name': over NVFlare the caller is {usual!r}")
    nvflare = (home / table["kit"], home / table["relay"]) if sites else None
    own_name, own_path = next(iter(own.items()), ("", None))
    names, caller = list(table["parties"]), table.get("name", usual)
    return Setup(values, place, names, caller, addresses, nvflare, own_path, own_name)


def _address(text: str, name: str, home: Path, place: str) -> tuple[str, str]:
    """Carrier and path or site of an address."""
    way, _, rest = text.partition(":")
    if way not in (_OWN, _UNIX, _NVFLARE, _FILES) or not rest:
        raise ConfigError(
            f"{place}: table 'federation.parties': {name}: {text!r} is no address; write "
            '"unix:PATH", an agent\'s socket, "nvflare:SITE", or "files:DIR"'
        )
    return way, rest if way == _NVFLARE else str(home / rest)


# --- runs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepResult:
    """Where a run stands after a step."""

    requests: list[Path]  # requests that have not been answered, one file per party
    n_rounds: int  # rounds done
    notes: list[str]  # what the step has to say
    document: dict[str, Any] | None  # content of ``result.json`` once the run is over


def coordinator_start(
    labels: Path,
    parties: Sequence[str],
    out: Path,
    values: dict[str, Any],
    place: str = "command line",
    **how: Any,
) -> StepResult:
    """Open a run: check the labels and settings, and write the first requests; as :func:`new_run`."""
    notes: list[str] = []
    folder, fill = new_run(labels, parties, out, values, place, say=notes.append, **how)
    with folder.begin(fill, force=False):
        return _step(folder, notes=notes)


def new_run(
    labels: Path,
    parties: Sequence[str],
    out: Path,
    values: dict[str, Any],
    place: str,
    *,
    options: dict[str, Any] | None = None,
    own: Path | None = None,
    say: Say,
) -> tuple[RunFolder, Callable[[RunFolder], None]]:
    """A run that does not exist yet, and what writes its first files; ``say`` is given warnings."""
    if not parties:
        raise ConfigError("coordinator start: name the parties with --party")
    names = [check_party_name(name, "--party") for name in parties]
    for k, name in enumerate(names):
        if name.casefold() in [other.casefold() for other in names[:k]]:
            raise ConfigError(f"--party {name}: named twice")
    config = make_config({**values, "data": str(labels)}, place, options)
    refuse("run between parties", differing(config))
    run, folder = new_run_id(), RunFolder(out, EXCHANGE)
    holder = parts.open_own(config, own, names, open_labels(Path(config.data)))
    problem, data = parts.problem_of(config, names, None, holder)
    for line in doubts(data.task, problem.loss):
        say(line)
    paths, private = parts.other_labels(config), config.privacy.mode != "none"
    others = {key: open_labels(Path(path)) for key, path in paths.items()}
    for other in others.values():
        for line in seen_by_ids(data, other, private):
            say(line)
    if not private:
        if config.secrecy == "sums" and (config.test or config.validation):
            raise ConfigError(SUMS_HAVE_NO_TEST)
        scheme = parts.scheme_of(problem, config)
        scheme.method(problem.traits)  # refuses what the scheme is not for
        parts.early_stopping_of(config, problem, data)
    elif others:
        raise ConfigError(f"key {next(iter(others))!r}: a private round by files has none; leave it out")
    else:  # what theorems do not cover is refused now
        parts.solver_of_private(config, problem, data, folder, run, Elsewhere()).close()
    about: dict[str, Any] = {"run": run, "parties": names}
    about |= {key: labels_digest(found) for key, found in {"labels": data, **others}.items()}
    if holder is not None:
        about |= {"own": folder.relative(holder.path), "own_digest": holder.content_digest}

    def fill(new: RunFolder) -> None:
        seen = {"data": config.data, "ledger": config.ledger, **paths}
        new.write_configuration(config.to_toml(), seen, {"rounds_by_files": about}, final=out)

    return folder, fill


def coordinator_step(run: Path, messages: Sequence[Path] = ()) -> StepResult:
    """Take messages in and go on as far as they allow."""
    with _held(run) as folder:
        return _step(folder, messages)


def coordinator_repair(run: Path) -> StepResult:
    """Ask for everything again: parties repeat their answers, to the same bytes."""
    with _held(run) as folder:
        try:
            if folder.finished() is not None:
                return replace(_step(folder), notes=["the run is over; nothing to repair"])
        except FormatError:
            folder.remove_result()
        for name in ("checkpoint.h5", "parties.json", "answers.journal", "requests", "answers"):
            with storage_errors(run / name):
                if (run / name).is_dir():
                    shutil.rmtree(run / name)
                else:
                    (run / name).unlink(missing_ok=True)
        return _step(folder)


@contextmanager
def _held(run: Path) -> Iterator[RunFolder]:
    """A run directory that nobody else works on; what kills left goes."""
    folder = RunFolder(run, EXCHANGE)
    folder.require()
    with folder.held():
        for place in (run, run / "requests", run / "answers"):
            remove_leftovers(place)
        yield folder


def _step(folder: RunFolder, messages: Sequence[Path] = (), notes: Sequence[str] = ()) -> StepResult:
    """Go on as far as the messages allow."""
    notes = [*notes]
    with closing(Coordinator(folder, by_files=True, tell=notes.append)) as run:
        letters = Letters(folder.path, run.run, run.names, messages)
        run.ask = letters.ask
        try:
            document = run.advance()
        except Waiting as waiting:
            notes += [*letters.settle(waiting.requests), str(waiting)]
            return StepResult(waiting.requests, run.n_rounds, notes, None)
        return StepResult([], run.n_rounds, [*notes, *letters.settle([])], document)


def run_status(run: Path) -> list[str]:
    """Where a run is, and what it waits for, as far as its directory says."""
    folder = RunFolder(run, EXCHANGE)
    known = Coordinator(folder)
    finished, log = folder.finished(), folder.log
    rounds = read_bytes(log).count(b"\n") if log.exists() else 0
    now = f"{rounds} rounds" if finished is None else finished["message"]
    lines = [f"run {known.run} of {', '.join(known.names)}: {now}"]
    if finished is None and not known.said_file.exists():
        look = approve_command(known.run, "run", "DIR")
        lines.append(f"    no party is known to have approved it; send them: {look}")
    requests = sorted((run / "requests").glob("*.msg")) if finished is None else []
    return lines + [f"    waiting for an answer to {shown(request)}" for request in requests]


def federate(
    config: Path, out: Path, say: Say = print, rounds: Monitor = lambda record: None
) -> dict[str, Any]:
    """Begin a run with parties elsewhere, or go on with it, until it has ended."""
    setup = read_setup(config)
    with setup.opened(say) as ask:
        folder = begun(setup, out, say)
        with folder.held():
            document = train_run(folder, ask, say, rounds)
        if setup.own_state is not None:
            for part in setup.own_state.glob(f"{Coordinator(folder).run}/{setup.own_name}.h5"):
                import_party(part, out, force=True)
        return document


def begun(setup: Setup, out: Path, say: Say) -> RunFolder:
    """A run's directory; a new one gets its first files."""
    if "data" not in setup.values:
        raise ConfigError(f"{setup.place}: key 'data' is missing: name the label file")
    folder = RunFolder(out, EXCHANGE)
    if folder.configuration.exists():
        _check_same(setup, folder)
        return folder
    values = {key: value for key, value in setup.values.items() if key != "data"}
    labels, own = Path(setup.values["data"]), None if setup.own_state is not None else setup.own
    folder, fill = new_run(labels, setup.names, out, values, setup.place, own=own, say=say)
    with folder.begin(fill, force=False):
        run = Coordinator(folder)
        run.write_description(setup.caller)
        say(f"run {run.run}: {shown(out / RUN)} is for the parties to approve")
    return RunFolder(out, EXCHANGE)


def train_run(folder: RunFolder, ask: Ask, say: Say, rounds: Monitor = lambda record: None) -> dict[str, Any]:
    """Train to the end of a run."""
    with closing(Coordinator(folder, ask, rounds, tell=say)) as run:
        return run.advance()


def _check_same(setup: Setup, folder: RunFolder) -> None:
    """Refuse to go on with another problem under the same name."""
    run = Coordinator(folder)
    asked, began = make_config(setup.values, setup.place).to_toml(), run.config.to_toml()
    for key in sorted(asked.keys() | began.keys()):
        if key not in PATHS and asked.get(key) != began.get(key):
            raise ConfigError(
                f"{setup.place}: key {key!r} is {asked.get(key)!r}, but {shown(folder.path)} began with "
                f"{began.get(key)!r}; choose another name with --out"
            )
    if setup.names != run.names:
        raise ConfigError(
            f"{setup.place}: parties {', '.join(setup.names)}, but {shown(folder.path)} began with "
            f"{', '.join(run.names)}"
        )
