"""How the coordinator reaches each party: an address in the configuration, and what asks there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fastadmm.between.carrier import Carrier
from fastadmm.between.hub import Ask
from fastadmm.between.kit import open_kit
from fastadmm.between.nvflare_app import SERVER_NAME
from fastadmm.between.socket import Socket
from fastadmm.errors import ConfigError

__all__ = ["KEYS", "Ways", "read_ways"]

_UNIX, _NVFLARE = "unix:", "nvflare:"

#: Keys of the table ``federation``.
KEYS = ("kit", "name", "parties", "relay")


@dataclass(frozen=True)
class Ways:
    """Addresses of parties, and what asks there."""

    sockets: dict[str, Path]  # agents on this machine, by name of the party
    sites: dict[str, str]  # NVFlare's names of sites, by name of the party
    caller: str  # who asks, as approvals name it
    kit: Path | None  # the administrator's kit and the server's socket, where there are sites
    relay: Path | None  # the administrator's kit and the server's socket, where there are sites

    @contextmanager
    def opened(self, say: Callable[[str], None], ends: bool = True) -> Iterator[Ask]:
        """What asks the parties, until the block ends."""
        with ExitStack() as stack:
            asks: dict[str, Ask] = {}
            for name, path in self.sockets.items():
                socket = Socket(path)
                stack.callback(socket.close)
                asks[name] = partial(socket.ask, caller=self.caller)
            if self.kit is not None and self.relay is not None:
                carrier = stack.enter_context(Carrier(open_kit(self.kit), self.relay, self.sites, say, ends))
                asks |= dict.fromkeys(self.sites, carrier.ask)
            yield lambda name, raw, seconds: asks[name](name, raw, seconds)


def read_ways(table: Mapping[str, Any], addresses: Mapping[str, str], folder: Path, place: str) -> Ways:
    """Addresses of a configuration."""
    for name, address in addresses.items():
        way, _, rest = address.partition(":")
        if f"{way}:" not in (_UNIX, _NVFLARE) or not rest:
            raise ConfigError(
                f"{place}: table 'federation.parties': {name}: {address!r} is no address; "
                'write "unix:PATH", an agent\'s socket, or "nvflare:SITE"'
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
    return Ways(
        {name: folder / path for name, path in parts.items() if name not in sites},
        sites,
        table.get("name", usual),
        folder / table["kit"] if sites else None,
        folder / table["relay"] if sites else None,
    )
