"""The coordinator's configuration: settings of a run, an address per party, and what asks there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fastadmm.between.agent import Agent
from fastadmm.between.carrier import Carrier
from fastadmm.between.consent import agree, asked_files
from fastadmm.between.hub import Ask
from fastadmm.between.kit import open_kit
from fastadmm.between.letters import ask_by_file
from fastadmm.between.nvflare_app import SERVER_NAME
from fastadmm.between.socket import Lost, Socket
from fastadmm.errors import ConfigError
from fastadmm.files.atomic import shown
from fastadmm.runs.config import read_config

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
    def opened(self, say: Callable[[str], None], ends: bool = True) -> Iterator[Ask]:
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


def persistent(ask: Callable[[], bytes], say: Callable[[str], None], over: threading.Event) -> bytes:
    """An answer, which is asked for again where a party was lost, until all is over: it may come back."""
    for pause in PAUSES:
        try:
            return ask()
        except Lost as error:
            if not over.is_set():
                say(f"{error}; next attempt in {pause:g} s")
            if over.wait(pause):
                raise
    try:
        return ask()
    except Lost as error:
        raise Lost(f"{error}; the same command goes on where this has ended") from None


@contextmanager
def _agreeing(data: Path, state: Path, caller: str, say: Callable[[str], None]) -> Iterator[Ask]:
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
    own = {name: addresses.pop(name)[1] for name in table["parties"] if addresses[name][0] == _OWN}
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
    own_name, own_at = next(iter(own.items()), ("", ""))
    return Setup(
        values,
        place,
        list(table["parties"]),
        table.get("name", usual),
        addresses,
        (home / table["kit"], home / table["relay"]) if sites else None,
        Path(own_at) if own else None,
        own_name,
    )


def _address(text: str, name: str, home: Path, place: str) -> tuple[str, str]:
    """Carrier and path or site of an address."""
    way, _, rest = text.partition(":")
    if way not in (_OWN, _UNIX, _NVFLARE, _FILES) or not rest:
        raise ConfigError(
            f"{place}: table 'federation.parties': {name}: {text!r} is no address; write "
            '"unix:PATH", an agent\'s socket, "nvflare:SITE", or "files:DIR"'
        )
    return way, rest if way == _NVFLARE else str(home / rest)
