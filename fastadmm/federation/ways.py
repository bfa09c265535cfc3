"""How the coordinator reaches each party: an address in the configuration, and what asks there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fastadmm.errors import ConfigError
from fastadmm.federation.hub import Ask
from fastadmm.federation.socket import Socket

__all__ = ["check_addresses", "reached"]

_UNIX = "unix:"


def check_addresses(addresses: Mapping[str, str], place: str) -> None:
    """Refuse an address that names no way.

    Parameters
    ----------
    addresses : mapping of str to str
        By name of the party.
    place : str
        What messages begin with.

    Raises
    ------
    ConfigError
    """
    for name, address in addresses.items():
        if not address.startswith(_UNIX) or len(address) == len(_UNIX):
            raise ConfigError(
                f'{place}: {name}: {address!r} is no address; write "unix:PATH", an agent\'s socket'
            )


@contextmanager
def reached(addresses: Mapping[str, str], caller: str, folder: Path) -> Iterator[Ask]:
    """What asks the parties, until the block ends.

    Parameters
    ----------
    addresses : mapping of str to str
        By name of the party.
    caller : str
        Who asks.
    folder : Path
        What relative paths of sockets count from.

    Yields
    ------
    callable
    """
    with ExitStack() as stack:
        sockets = {}
        for name, address in addresses.items():
            sockets[name] = Socket(folder / address.removeprefix(_UNIX))
            stack.callback(sockets[name].close)
        yield lambda name, raw, seconds: sockets[name].ask(name, raw, seconds, caller)
