"""``fastadmm federate train``: a configuration with an address per party, to the end of the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastadmm.between.coordinator import RUN, Coordinator
from fastadmm.between.coordinator_step import new_run
from fastadmm.between.hub import Ask
from fastadmm.between.setup import Setup, read_setup
from fastadmm.between.socket import Lost
from fastadmm.errors import ConfigError
from fastadmm.files.atomic import shown
from fastadmm.runs.config import make_config
from fastadmm.runs.folder import EXCHANGE, RunFolder
from fastadmm.settings.keys import PATHS
from fastadmm.solver.history import RoundRecord

#: Seconds before each further attempt to reach a party that was lost; from the first again after every round.
PAUSES = (1.0, 4.0, 15.0, 60.0)


def federate(
    config: Path,
    out: Path,
    say: Callable[[str], None] = print,
    rounds: Callable[[RoundRecord], None] = lambda record: None,
) -> dict[str, Any]:
    """Begin a run with parties elsewhere, or go on with it, until it has ended."""
    setup = read_setup(config)
    with setup.ways.opened(say) as ask:
        folder = begun(setup, out, say)
        with folder.held():
            return train_run(folder, ask, say, rounds)


def begun(setup: Setup, out: Path, say: Callable[[str], None]) -> RunFolder:
    """A run's directory; a new one gets its first files."""
    if "data" not in setup.values:
        raise ConfigError(f"{setup.place}: key 'data' is missing: name the label file")
    folder = RunFolder(out, EXCHANGE)
    if folder.configuration.exists():
        _check_same(setup, folder)
        return folder
    values = {key: value for key, value in setup.values.items() if key != "data"}
    labels = Path(setup.values["data"])
    folder, fill = new_run(labels, setup.names, out, values, setup.place, own=setup.own, say=say)
    with folder.begin(fill, force=False):
        run = Coordinator(folder)
        run.write_description(setup.ways.caller)
        say(f"run {run.run}: {shown(out / RUN)} is for the parties to approve")
    return RunFolder(out, EXCHANGE)


def train_run(
    folder: RunFolder, ask: Ask, say: Callable[[str], None], rounds: Callable[[RoundRecord], None]
) -> dict[str, Any]:
    """Train to the end of a run; a party that was lost may come back."""
    pauses, made = list(PAUSES), 0

    def count(record: RoundRecord) -> None:
        nonlocal made
        if record.round > made:
            pauses[:], made = PAUSES, record.round
            rounds(record)

    while True:
        run = Coordinator(folder, ask, count, tell=say)
        try:
            return run.advance()
        except Lost as error:
            if not pauses:
                raise Lost(f"{error}; the same command goes on where this run is") from None
            say(f"{error}; next attempt in {pauses[0]:g} s")
            time.sleep(pauses.pop(0))
        finally:
            run.close()


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
