"""The coordinator's configuration, taken apart: settings of a run, and an address per party."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastadmm.between.ways import KEYS, Ways, read_ways
from fastadmm.errors import ConfigError
from fastadmm.files.atomic import shown
from fastadmm.runs.config import read_config

__all__ = ["Setup", "read_setup"]

_FILE = "file:"


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
        if key not in KEYS:
            raise ConfigError(
                f"{place}: table 'federation': key {key!r} is unknown; known: {', '.join(KEYS)}"
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
        read_ways(table, addresses, home, place),
        home / own_at.removeprefix(_FILE) if own else None,
        own_name,
    )
