"""What each party's data add, where parties are elsewhere: a run and scores of test rows per coalition."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.between.coordinator import RUN
from fastadmm.between.hub import Ask
from fastadmm.between.predict import ask_all, ask_predictions, task_folder
from fastadmm.between.run_problem import problem_of
from fastadmm.between.train import Setup, begun, read_setup, train_run
from fastadmm.errors import ConfigError, InputError
from fastadmm.files.atomic import shown, storage_errors, write_json
from fastadmm.files.reading import read_json
from fastadmm.runs.config import make_config, solver_options
from fastadmm.runs.evaluate import evaluate_predictions
from fastadmm.runs.load import seen_by_ids
from fastadmm.settings.run import RunConfig
from fastadmm.store.label_file import open_labels
from fastadmm.worth import coalitions as game
from fastadmm.worth.coalitions import Coalition, Worth

#: Settings of single parties; a coalition has those of its members.
_OF_PARTIES = ("party_lambda", "party_constraint")

#: Coalitions train on all rows, to their gap; the test rows are scored at the end.
_WITHOUT = ("validation", "validation_metric", "patience", "test")


def federate_worth(
    config: Path,
    test: Path,
    out: Path,
    *,
    metric: str | None = None,
    label_party: str | None = None,
    say: Callable[[str], None] = print,
) -> Worth:
    """Train every coalition of parties elsewhere, and measure each on test rows."""
    setup = read_setup(config)
    own = {key: value for key, value in setup.values.items() if key not in _WITHOUT}
    if "data" not in own:
        raise ConfigError(f"{setup.place}: key 'data' is missing: name the label file")
    setup = replace(setup, values=own)
    settings = make_config({**own, "test": str(test)}, setup.place)
    _check(setup, settings)
    game.check_metric(metric)
    label, labels = game.party_number(label_party, setup.names, setup.place), open_labels(test)
    for line in seen_by_ids(open_labels(Path(settings.data)), labels, False):
        say(line)
    plan = game.plan_coalitions(len(setup.names))
    about = {"parties": setup.names, "test": labels.row_digest, "coalitions": len(plan)}
    with setup.opened(say, ends=False) as ask, task_folder(out, "worth", about) as task:
        problem, _ = problem_of(settings, setup.names, None)
        with storage_errors(out):
            (out / "runs").mkdir(mode=0o700, exist_ok=True)
        # Of each coalition the configuration, and the folder of its run.
        runs = {own: (_restricted(setup, own), out / "runs" / _name(own)) for own in plan if own}
        for of, run in runs.values():
            begun(of, run, lambda line: None)
        _join(ask, task, [run for _, run in runs.values()], labels.n_samples)

        def train(members: tuple[int, ...]) -> Coalition | None:
            if not members:
                return game.train_coalition(problem, solver_options(settings), ())
            of, run = runs[members]
            folder = begun(of, run, say)  # gone on with where it has not ended
            with folder.held():
                result = train_run(folder, ask, say)
            if result["status"] == "diverged":
                raise InputError(f"{shown(run)}: {result['message']}")
            predictions = ask_predictions(of, ask, run, test, run / "scores", None)
            every = evaluate_predictions(run, predictions, labels, test)["metrics"]
            trained = {key: result[key] for key in ("objective", "rounds", "status")}
            return Coalition.measured(members, every, result.get("gap"), **trained)

        def told(coalition: Coalition, done: int, total: int) -> None:
            if coalition.members:
                say(f"{done}/{total} coalitions: {' + '.join(runs[coalition.members][0].names)}")

        how: Any = {"metric": metric, "label_party": label, "monitor": told}
        worth = game.play(setup.names, problem.loss, train, **how)
        assert worth is not None  # nothing here is interrupted
        write_json(out / game.WORTH, {"test": test.resolve().name, **worth.to_json()})
    return worth


def _check(setup: Setup, config: RunConfig) -> None:
    """Refuse runs that give away more with every coalition."""
    if config.privacy.mode != "none":
        raise game.private_worth(setup.place)
    if setup.own is not None:
        text = "its scores of test rows are asked for, too: give it an agent, and the agent's address"
        raise ConfigError(f"{setup.place}: {setup.own_name}: {text}")
    if config.secrecy != "none":
        text = "a coalition of one party has no sum that hides its messages"
        raise ConfigError(f"{setup.place}: key 'secrecy': {text}")


def _name(members: Sequence[int]) -> str:
    return "-".join(str(m + 1) for m in members)


def _restricted(setup: Setup, members: Sequence[int]) -> Setup:
    """The configuration of a coalition."""
    names, values = [setup.names[m] for m in members], dict(setup.values)
    for key in _OF_PARTIES:
        if isinstance(given := values.pop(key, None), dict):
            own = {name: value for name, value in given.items() if name in names}
            values |= {key: own} if own else {}
    return replace(setup, values=values, names=names)


def _join(ask: Ask, task: str, folders: Sequence[Path], n_samples: int) -> None:
    """Ask every party at once for all runs that it takes part in."""
    runs: dict[str, dict[str, Any]] = {}
    for folder in folders:
        about = read_json(folder / RUN)
        for name, terms in about["parties"].items():
            runs.setdefault(name, {})[about["run"]] = terms
    if all((folder / "result.json").exists() for folder in folders):
        return
    raw = {name: np.frombuffer(json.dumps(own).encode(), dtype=np.uint8) for name, own in runs.items()}
    given = {name: {"runs": own, "n_samples": n_samples} for name, own in raw.items()}
    ask_all(ask, task, "join", given)
