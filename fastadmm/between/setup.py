"""The coordinator's configuration: settings of a run, an address per party, and what asks there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fastadmm.between.carrier import Carrier
from fastadmm.between.hub import Ask
from fastadmm.between.kit import open_kit
from fastadmm.between.letters import ask_by_file
from fastadmm.between.nvflare_app import SERVER_NAME
from fastadmm.between.socket import Socket
from fastadmm.errors import ConfigError
from fastadmm.files.atomic import shown
from fastadmm.runs.config import read_config

_FILE, _UNIX, _NVFLARE, _FILES = "file:", "unix:", "nvflare:", "files:"

#: Keys of the table ``federation``.
_KEYS = ("kit", "name", "parties", "relay")


@dataclass(frozen=True)
class Ways:
    """Addresses of parties, and what asks there."""

    sockets: dict[str, Path]  # agents on this machine, by name of the party
    sites: dict[str, str]  # NVFlare's names of sites, by name of the party
    caller: str  # who asks, as approvals name it
    kit: Path | None  # the administrator's kit and the server's socket, where there are sites
    relay: Path | None  # the administrator's kit and the server's socket, where there are sites
    files: dict[str, Path] = field(default_factory=dict)  # folders of those who answer by files

    @contextmanager
    def opened(self, say: Callable[[str], None], ends: bool = True) -> Iterator[Ask]:
        """What asks the parties, until the block ends."""
        with ExitStack() as stack:
            asks: dict[str, Ask] = {
                name: partial(ask_by_file, folder, caller=self.caller) for name, folder in self.files.items()
            }
            for name, path in self.sockets.items():
                socket = Socket(path)
                stack.callback(socket.close)
                asks[name] = partial(socket.ask, caller=self.caller)
            if self.kit is not None and self.relay is not None:
                carrier = stack.enter_context(Carrier(open_kit(self.kit), self.relay, self.sites, say, ends))
                asks |= dict.fromkeys(self.sites, carrier.ask)
            yield lambda name, raw, seconds: asks[name](name, raw, seconds)


def _read_ways(table: Mapping[str, Any], addresses: Mapping[str, str], folder: Path, place: str) -> Ways:
    """Addresses of a configuration."""
    for name, address in addresses.items():
        way, _, rest = address.partition(":")
        if f"{way}:" not in (_UNIX, _NVFLARE, _FILES) or not rest:
            raise ConfigError(
                f"{place}: table 'federation.parties': {name}: {address!r} is no address; write "
                '"unix:PATH", an agent\'s socket, "nvflare:SITE", or "files:DIR"'
            )
    parts = {name: address.partition(":")[2] for name, address in addresses.items()}
    sites = {name: parts[name] for name, address in addresses.items() if address.startswith(_NVFLARE)}
    for key in ("kit", "relay"):
        if bool(sites) != (key in table):
            words = 'is needed for an address "nvflare:SITE"' if sites else "is of no use without a site"
            raise ConfigError(f"{place}: table 'federation': key {key!r} {words}")
    usual = SERVER_NAME if sites else "coordinator"
    if sites and table.get("name", usual) != usual:
        raise ConfigError(f"{place}: table 'federation': key 'name': over NVFlare the caller is {usual!r}")
    places = {
        way: {name: folder / parts[name] for name, address in addresses.items() if address.startswith(way)}
        for way in (_UNIX, _FILES)
    }
    return Ways(
        places[_UNIX],
        sites,
        table.get("name", usual),
        folder / table["kit"] if sites else None,
        folder / table["relay"] if sites else None,
        places[_FILES],
    )


@dataclass(frozen=True)
class Setup:
    """A configuration."""

    values: dict[str, Any]  # settings of ``fastadmm train``
    place: str  # what messages begin with
    names: list[str]  # the parties, in the order of the model
    ways: Ways  # how those elsewhere are reached
    own: Path | None  # features of the label holder, in privacy mode "fusion"
    own_name: str  # whose these are

    @property
    def elsewhere(self) -> list[str]:
        """Names of the parties that are asked."""
        return [name for name in self.names if name != self.own_name]


def read_setup(config: Path) -> Setup:
    """Read a configuration."""
    values, place = read_config(config), shown(config)
    values.pop("provenance", None)
    table = values.pop("federation", None)
    if not isinstance(table, dict) or not isinstance(table.get("parties"), dict) or not table["parties"]:
        raise ConfigError(
            f"{place}: table 'federation.parties' is missing: the address of each party, as "
            'NAME = "unix:PATH"'
        )
    for key in table:
        if key not in _KEYS:
            raise ConfigError(
                f"{place}: table 'federation': key {key!r} is unknown; known: {', '.join(_KEYS)}"
            )
    texts = [*table["parties"].values(), *(value for key, value in table.items() if key != "parties")]
    if not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"{place}: table 'federation': names and addresses are texts")
    own = {name: at for name, at in table["parties"].items() if at.startswith(_FILE)}
    if len(own) > 1:
        raise ConfigError(f"{place}: {', '.join(own)}: one party alone may be the label holder's own file")
    addresses = {name: at for name, at in table["parties"].items() if name not in own}
    home = config.absolute().parent
    own_name, own_at = next(iter(own.items())) if own else ("", "")
    return Setup(
        values,
        place,
        list(table["parties"]),
        _read_ways(table, addresses, home, place),
        home / own_at.removeprefix(_FILE) if own else None,
        own_name,
    )
