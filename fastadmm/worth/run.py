"""What each party's data add to a run on disk: interrupted, it goes on where it was, to the same result."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.atomic import shown, storage_errors, write_json
from fastadmm.files.reading import read_json
from fastadmm.runs.config import recorded, solver_options, without
from fastadmm.runs.display import Notes, Silent
from fastadmm.runs.folder import RunFolder
from fastadmm.runs.interrupt import stop_on_signal
from fastadmm.runs.load import load_problem
from fastadmm.runs.looks import same_content, seen_in_training
from fastadmm.runs.provenance import provenance_of
from fastadmm.settings.keys import DECISIVE, SETTINGS
from fastadmm.settings.run import RunConfig
from fastadmm.store.partition import open_partition
from fastadmm.worth.coalitions import Coalition, Worth, measure_worth

#: The finished document, in the run directory.
WORTH = "worth.json"

#: Coalitions that are done, until all are.
PARTIAL = "worth.partial"


class WorthDisplay(Notes, Protocol):
    """Where the work shows what it does."""

    def coalition(self, names: list[str], coalition: Coalition, done: int, total: int) -> None:
        """One coalition is done."""


def worth_of_run(
    run: Path,
    *,
    test: Path | None = None,
    metric: str | None = None,
    label_party: str | None = None,
    exact: bool | None = None,
    threads: int | None = None,
    display: WorthDisplay | None = None,
) -> Worth | None:
    """Train the coalitions of a run's parties, and keep the result in it; None where it was interrupted."""
    display, folder = display or Silent(), RunFolder(run)
    folder.require()
    found = recorded(run, {} if threads is None else {"threads": threads})
    config, provenance = found.config, found.provenance
    if config.privacy.mode != "none":
        raise private_worth(shown(run))
    # Coalitions train on all rows, to their gap: without early stopping, at the λ that the run ended with.
    config = without("worth", replace(config, lambda_=_lambda(run, config)))
    if test is not None:
        config = replace(config, test=str(test))
    if config.test is None:
        raise ConfigError(
            f"{shown(run)}: no test partition: what data add is measured on held-out rows; add --test"
        )
    fingerprint = _fingerprint(config, provenance, run)
    problem = load_problem(config, display)
    if test is not None:
        tested = open_partition(test)
        assert tested.labels is not None  # load_problem has asked for them
        for line in seen_in_training(run, tested.labels, lambda trained: same_content(tested, trained)):
            display.note(line)
    label = party_number(label_party, problem.names, shown(run))
    with folder.held(), stop_on_signal() as should_stop:
        known = _known(run, fingerprint, display)
        if known:
            display.note(f"{len(known)} coalitions are done already")

        def monitor(coalition: Coalition, done: int, total: int) -> None:
            known[coalition.mask] = coalition
            document = {"fingerprint": fingerprint, "coalitions": [one.to_json() for one in known.values()]}
            write_json(run / PARTIAL, document)
            display.coalition(problem.names, coalition, done, total)

        how: Any = {"metric": metric, "label_party": label, "exact": exact, "known": known}
        worth = measure_worth(
            problem, solver_options(config), monitor=monitor, should_stop=should_stop, **how
        )
        if worth is None:
            return None
        document = {"fingerprint": fingerprint, "test": Path(config.test).resolve().name, **worth.to_json()}
        folder.write_json(WORTH, document)
        (run / PARTIAL).unlink(missing_ok=True)
    return worth


def read_worth(path: Path) -> Worth | None:
    """Read ``worth.json``; None where the file is absent."""
    with storage_errors(path, "read"):
        try:
            return Worth.from_json(read_json(path)) if path.exists() else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(path, error) from None


def _lambda(run: Path, config: RunConfig) -> float:
    """The run's λ; that of a path is in its result."""
    if not config.path:
        return config.lambda_
    finished = RunFolder(run).finished()
    chosen = (finished or {}).get("lambda")
    if not isinstance(chosen, float):
        raise ConfigError(f"{shown(run)}: its path has not chosen a lambda yet; resume it first")
    return chosen


def _fingerprint(config: RunConfig, provenance: Any, run: Path) -> str:
    """Digest of everything that decides the coalitions' models and metrics."""
    data = provenance_of(open_partition(config.data))
    if isinstance(provenance, dict) and {k: provenance.get(k) for k in data} != data:
        raise InputError(
            f"{shown(config.data)}: not the data that {shown(run)} began with (digests differ); train anew"
        )
    assert config.test is not None  # checked
    usual = RunConfig(config.data)
    names = {key: SETTINGS[key].name for key in DECISIVE}
    # Defaults are left out, so that a setting which a later version adds changes nothing.
    decisive = {k: getattr(config, n) for k, n in names.items() if getattr(config, n) != getattr(usual, n)}
    document = {**decisive, "data": data, "test": provenance_of(open_partition(config.test))}
    text = json.dumps(document, sort_keys=True).encode()
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def _known(run: Path, fingerprint: str, display: WorthDisplay) -> dict[int, Coalition]:
    """Coalitions of the same data and settings that are done."""
    known = coalitions_done(run, fingerprint)
    if not known and (run / PARTIAL).exists():
        display.note(f"{PARTIAL}: of other data or settings: begun anew")
        with storage_errors(run):
            if (run / PARTIAL).is_dir():  # as older releases wrote it
                shutil.rmtree(run / PARTIAL)
    return known


def coalitions_done(run: Path, fingerprint: str | None = None) -> dict[int, Coalition]:
    """Coalitions that the files of a run have, of these data and settings."""
    known: dict[int, Coalition] = {}
    for path in (run / WORTH, run / PARTIAL):
        if not path.is_file():
            continue
        try:
            document = read_json(path)
            if fingerprint in (None, document["fingerprint"]):
                known |= {one.mask: one for one in map(Coalition.from_json, document["coalitions"])}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(path, error) from None
    return known


def _damaged(path: Path, error: Exception) -> FormatError:
    return FormatError(f"{shown(path)}: not what `fastadmm worth` writes ({type(error).__name__}); delete it")


def private_worth(place: str) -> ConfigError:
    """What is said to whoever asks for the worth of private data."""
    return ConfigError(
        f"{place}: a private run: every coalition's model would be one more release of the same data, and "
        "multiply the budget; the worth of private data is not measured"
    )


def party_number(name: str | None, names: list[str], place: str) -> int:
    """Number of the label holder's party; the first one where none is named."""
    if name is not None and name not in names:
        raise ConfigError(f"{place}: no party {name!r}; its parties are {', '.join(names)}")
    return 0 if name is None else names.index(name)
