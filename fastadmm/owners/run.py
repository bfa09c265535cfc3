"""A run with owners of rows on disk: charge, answer, store, step; resume without asking twice.

All T answers of an owner are charged, on disk, before any owner draws noise. A resumed run feeds the stored
answers to a new learner, which comes to the bit-identical state, and asks only for what was never answered.
"""

import hashlib
import math
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, FormatError, InputError, PrivacyBudgetError
from fastadmm.files.atomic import shown
from fastadmm.files.reading import read_json
from fastadmm.files.seal import SEAL, check_seal
from fastadmm.owners.account import LEDGER, Answers, RunAccount
from fastadmm.owners.learner import Learner
from fastadmm.owners.setup import Setup, describe_setup, make_setup, refuse_others
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.releases import Payment
from fastadmm.runs.display import Display, Silent
from fastadmm.runs.environment import available_memory
from fastadmm.runs.folder import Kind, RunFolder
from fastadmm.runs.interrupt import stop_on_signal
from fastadmm.settings.checks import read_values
from fastadmm.settings.owners import OwnerSettings, make_settings
from fastadmm.solver.history import Status
from fastadmm.store.model import Model, PartyModel, model_id_of, write_model
from fastadmm.store.owner_file import Owners, open_owners
from fastadmm.store.transform import Transform

RUN_FILE = "owners-run.toml"

#: A run with owners of rows.
OWNERS = Kind(
    RUN_FILE,
    (
        RUN_FILE, "environment.json", LEDGER, "rounds.jsonl", "answers", "statement.json", "result.json",
        "model", ".*.tmp"
    ),
    LEDGER,
    f"no {RUN_FILE}: not a run with owners of rows"
)  # fmt: skip

#: The party that a model of rows is for: a test set is converted with ``--parties 1 --names features``.
PARTY = "features"


def start_owner_run(
    settings: OwnerSettings,
    out: Path,
    *,
    force: bool = False,
    stream: bool = False,
    display: Display | None = None,
) -> dict[str, Any]:
    """Train with owners of rows into a new run directory."""
    display = display or Silent()
    folder = RunFolder(out, OWNERS)
    folder.refuse_existing(force)
    data = open_owners(settings.data)
    engine = Engine(settings.threads)
    setup = _setup(settings, data, engine, stream)
    refuse_others(settings, setup.loss)
    identifier = secrets.token_hex(8)

    def fill(new: RunFolder) -> None:
        tables: dict[str, Any] = {"run": identifier, "provenance": _provenance(data)}
        paths = {"data": settings.data, "ledger": settings.ledger}
        new.write_configuration(settings.to_toml(), paths, tables, final=out, sealed=_sealed)
        new.write_environment(engine.n_threads)
        new.write_json("statement.json", describe_setup(setup))
        (new.path / "answers").mkdir(mode=0o700)

    try:
        with folder.begin(fill, force=force):
            return _run(folder, identifier, setup, data, display)
    except PrivacyBudgetError:
        shutil.rmtree(out, ignore_errors=True)  # nobody was asked
        raise


def resume_owner_run(run: Path, *, stream: bool = False, display: Display | None = None) -> dict[str, Any]:
    """Continue a run; the noise of stored answers is not drawn again."""
    display = display or Silent()
    folder = RunFolder(run, OWNERS)
    folder.require()
    path = folder.configuration
    values = read_values(OwnerSettings, path)
    if isinstance(values.get("provenance"), dict):
        seal = values["provenance"].pop(SEAL, None)
        check_seal(_sealed(values), seal, shown(path), "restore it, or start a new run")
    identifier = str(values.pop("run", ""))
    provenance, logged = values.pop("provenance", None), values.pop("objective", False)
    settings = make_settings(values, shown(path))
    data = open_owners(settings.data)
    if provenance != _provenance(data):
        raise InputError(f"{shown(data.path)}: not the data that {shown(run)} began with; train anew")
    with folder.held():
        if folder.result.is_file():
            document = _finished(folder.result)
            if document["status"] == Status.CONVERGED:
                display.note(f"nothing to do: {document['message']}")
                return document
        if logged:
            raise ConfigError(f"{shown(path)}: key 'objective' is of an older version; start a new run")
        setup = _setup(settings, data, Engine(settings.threads), stream)
        return _run(folder, identifier, setup, data, display)


def _setup(settings: OwnerSettings, data: Owners, engine: Engine, stream: bool) -> Setup:
    free = available_memory()
    need = sum(owner.nbytes for owner in data.owners)
    in_memory = not stream and (free is None or need < free // 2)
    return make_setup(settings, data, engine, in_memory=in_memory)


def _run(folder: RunFolder, identifier: str, setup: Setup, data: Owners, display: Display) -> dict[str, Any]:
    statement = describe_setup(setup)
    display.note(
        f"{setup.n_samples} records, {len(setup.owners)} owners "
        f"({', '.join(f'{o.name}: {o.n_samples}' for o in setup.owners)}), {setup.n_parameters} parameters"
    )
    display.note(f"method '{setup.method}', step {setup.step:.4g}, {setup.settings.rounds} rounds")
    display.note(statement["sentence"])
    learner = setup.learner()
    account = RunAccount(folder.path, identifier, setup, data) if statement["claimed"] else None
    if account is not None:
        account.charge_all_rounds()
    shape = (len(setup.owners), setup.n_parameters)
    free = Payment(Ledger(), [], math.inf, 0.0)  # where nothing is claimed nothing is charged
    payment = account.note if account is not None else lambda number: free
    answers = Answers(folder.path / "answers", identifier, shape, payment)
    begin = time.monotonic()
    replayed = []
    while learner.k <= learner.queries and answers.holds(learner.k):
        replayed.append(_round(setup, learner, answers))
    if learner.k > 1:
        display.note(f"{learner.k - 1} rounds were answered already")
    interrupted = False
    with stop_on_signal() as stop_requested, folder.open_log(len(replayed)) as log:
        # What was logged then, or what the answers say now.
        logged = {number for number, _ in log.lines()}
        for record in replayed:
            if record["round"] not in logged:
                log.append(record)
        display.start(learner.queries)
        try:
            while learner.k <= learner.queries:
                if stop_requested():
                    interrupted = True
                    break
                record = _round(setup, learner, answers)
                record["seconds"] = time.monotonic() - begin
                log.append(record)
                display.round(record)
        finally:
            display.stop()
    document = _document(setup, learner, statement, interrupted)
    if not interrupted:
        model = _model(setup, learner, data, identifier, statement["claimed"])
        write_model(folder.model, model, force=True)
    folder.write_json("result.json", document)
    return document


def _round(setup: Setup, learner: Learner, store: Answers) -> dict[str, Any]:
    # Owners answer in their order; each of them uses all threads.
    def ask() -> np.ndarray:
        return np.stack([owner.answer(learner.theta) for owner in setup.owners])

    answers = store.obtain(learner.k, ask)
    record: dict[str, Any] = {"round": learner.k, **learner.receive(setup.weights @ answers)}
    record["noise"] = math.sqrt(setup.noise_variance)
    return record


def _finished(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = read_json(path)
        _ = document["status"], document["message"], document["statement"]["sentence"] + ""
        for owner in document["statement"]["owners"]:
            _ = owner["name"], owner["n_samples"], float(owner["epsilon"] or 0.0), float(owner["noise_scale"])
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(f"{shown(path)}: damaged ({error}); delete it, and resume again") from None
    return document


def _document(setup: Setup, learner: Learner, statement: dict[str, Any], interrupted: bool) -> dict[str, Any]:
    done = learner.k - 1
    status = Status.INTERRUPTED if interrupted else Status.CONVERGED
    return {
        "status": str(status),
        "message": f"interrupted after {done} of {learner.queries} rounds"
        if interrupted
        else f"all {done} rounds answered",
        "rounds": done,
        "method": setup.method,
        "step": setup.step,
        "loss": setup.loss.name,
        "lambda": setup.settings.lambda_,
        "noise_variance": setup.noise_variance,
        "parameters": [float(v) for v in learner.model],
        "statement": statement,
    }


def _model(setup: Setup, learner: Learner, data: Owners, identifier: str, claimed: bool) -> Model:
    theta = learner.model
    file = data.owners[0]
    weights = theta[: file.n_features]
    recipe = file.recipe
    if "components" in recipe:
        weights = recipe["components"].T @ weights
    return Model(
        loss=setup.loss.name,
        task=setup.loss.task,
        lam=setup.settings.lambda_,
        intercept=float(theta[-1]) if setup.settings.intercept else 0.0,
        classes=data.classes,
        parties=[
            PartyModel(
                PARTY,
                weights,
                file.source_names,
                Transform(center=recipe.get("center"), scale=recipe.get("scale")),
            )
        ],
        certificate={
            "status": "private gradients" if claimed else "gradients, no epsilon claimed",
            "rounds": learner.k - 1,
        },
        model_id=model_id_of(identifier, learner.k - 1),
    )


def _provenance(data: Owners) -> dict[str, str]:
    digest = {owner.name: owner.content_digest for owner in data.owners}
    kappa = hashlib.sha256(str(data.kappa).encode()).hexdigest()[:16]
    return {**digest, "kappa": kappa}


def _sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """What the digest of the settings covers: all but paths, whose content the provenance tells."""
    return {key: value for key, value in document.items() if key not in ("data", "ledger")}
