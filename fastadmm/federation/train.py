"""``fastadmm federate train``: a configuration with an address per party, to the end of the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastadmm.errors import ConfigError
from fastadmm.federation.coordinator import FederatedRun
from fastadmm.federation.socket import Lost
from fastadmm.federation.ways import KEYS, Ways, read_ways
from fastadmm.files.atomic import shown
from fastadmm.rounds.coordinator_step import Coordinator, new_run
from fastadmm.runs.config import make_config, read_config
from fastadmm.runs.folder import EXCHANGE, RunFolder
from fastadmm.settings.keys import PATHS
from fastadmm.solver.history import RoundRecord

__all__ = ["federate"]

#: Seconds before each further attempt to reach a party that was lost; from the first again after every round.
_PAUSES = (1.0, 4.0, 15.0, 60.0)

_FILE = "file:"


@dataclass(frozen=True)
class _Setup:
    """A configuration, taken apart: ``own`` are the label holder's features, in privacy mode "fusion"."""

    values: dict[str, Any]
    place: str
    names: list[str]
    ways: Ways
    own: Path | None


def federate(
    config: Path,
    out: Path,
    say: Callable[[str], None] = print,
    rounds: Callable[[RoundRecord], None] = lambda record: None,
) -> dict[str, Any]:
    """Begin a run with parties elsewhere, or go on with it, until it has ended.

    Parameters
    ----------
    config : Path
        Settings of ``fastadmm train``, ``data`` being the label file, and a table ``federation``.
    out : Path
        Directory of the run.
    say : callable
        Given lines on what happens.
    rounds : callable
        Given every round.

    Returns
    -------
    dict
        Content of ``result.json``.

    Raises
    ------
    FastadmmError
        A party refused, or was lost and did not come back; the run can be gone on with.
    """
    setup = _setup(config)
    folder = RunFolder(out, EXCHANGE)
    with setup.ways.opened(say) as ask:
        if folder.configuration.exists():
            _check_same(setup, folder)
        else:
            values = {key: value for key, value in setup.values.items() if key != "data"}
            labels = Path(setup.values["data"])
            folder, fill = new_run(labels, setup.names, out, values, setup.place, own=setup.own)
            with folder.begin(fill, force=False):
                run = FederatedRun(folder, ask, rounds)
                run.write_description(setup.ways.caller)
                run.close()
                say(f"run {run.run}: {shown(out / 'run.json')} is for the parties to approve")
        with folder.held():
            return _attempts(folder, ask, say, rounds)


def _attempts(
    folder: RunFolder, ask: Any, say: Callable[[str], None], rounds: Callable[[RoundRecord], None]
) -> dict[str, Any]:
    """Train; a party that was lost may come back."""
    pauses, made = list(_PAUSES), 0

    def count(record: RoundRecord) -> None:
        nonlocal made
        if record.round > made:
            pauses[:], made = _PAUSES, record.round
            rounds(record)

    while True:
        run = FederatedRun(folder, ask, count)
        try:
            return run.train()
        except Lost as error:
            if not pauses:
                raise Lost(f"{error}; the same command goes on where this run is") from None
            say(f"{error}; next attempt in {pauses[0]:g} s")
            time.sleep(pauses.pop(0))
        finally:
            run.close()


def _setup(config: Path) -> _Setup:
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
    if "data" not in values:
        raise ConfigError(f"{place}: key 'data' is missing: name the label file")
    own = {name: at for name, at in table["parties"].items() if at.startswith(_FILE)}
    if len(own) > 1:
        raise ConfigError(f"{place}: {', '.join(own)}: one party alone may be the label holder's own file")
    addresses = {name: at for name, at in table["parties"].items() if name not in own}
    home = config.absolute().parent
    own_file = home / next(iter(own.values())).removeprefix(_FILE) if own else None
    return _Setup(values, place, list(table["parties"]), read_ways(table, addresses, home, place), own_file)


def _check_same(setup: _Setup, folder: RunFolder) -> None:
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
