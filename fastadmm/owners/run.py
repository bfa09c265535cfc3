"""A run with owners of rows on disk: charge, answer, store, step; resume without asking twice.

All T answers of an owner are charged, on disk, before any owner draws noise. The ledger notes each draw of a
round at no cost, so that it knows which rounds were answered, whatever became of their files; a round whose
answers were lost is not answered once more. A resumed run feeds the stored
answers to a new learner, which comes to the bit-identical state, and asks only for what was never answered.
"""

import hashlib
import math
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, FormatError, InputError, PrivacyBudgetError
from fastadmm.files.atomic import shown
from fastadmm.files.seal import SEAL
from fastadmm.owners.setup import Setup, describe_setup, make_setup, refuse_others
from fastadmm.privacy.accounting import gdp_of
from fastadmm.privacy.accounts import record_account
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.privacy.releases import Payment, Releases, digest_of, reserve
from fastadmm.runs.config import check_settings
from fastadmm.runs.folder import Display, Kind, RunFolder, document_in, rounds_in, stop_on_signal
from fastadmm.runs.plan import available_memory, describe_environment
from fastadmm.settings.checks import read_values
from fastadmm.settings.owners import OwnerSettings, make_settings, parse_epsilons
from fastadmm.solver.history import Status
from fastadmm.store.model import Model, PartyModel, model_id_of, write_model
from fastadmm.store.owner_file import Owners, open_owners
from fastadmm.store.transform import Transform

RUN_FILE = "owners-run.toml"

#: The run's own ledger, where none is shared.
_LEDGER = "ledger.jsonl"

#: All that a run with owners of rows may hold.
_OWN = f"{RUN_FILE} environment.json {_LEDGER} rounds.jsonl answers statement.json result.json model .*.tmp"
OWNERS = Kind(RUN_FILE, tuple(_OWN.split()), _LEDGER, f"no {RUN_FILE}: not a run with owners of rows")

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
    folder = RunFolder(out, OWNERS)
    folder.refuse_existing(force)
    data = open_owners(settings.data)
    setup = _setup(settings, data, stream)
    refuse_others(settings, setup.loss)
    identifier = secrets.token_hex(8)

    def fill(new: RunFolder) -> None:
        tables: dict[str, Any] = {"run": identifier, "provenance": _provenance(data)}
        paths = {"data": settings.data, "ledger": settings.ledger}
        new.write_configuration(settings.to_toml(), paths, tables, final=out)
        new.write_json("environment.json", describe_environment(setup.owners[0].engine.n_threads))
        new.write_json("statement.json", describe_setup(setup))
        (new.path / "answers").mkdir(mode=0o700)

    try:
        with folder.begin(fill, force=force):
            return _run(folder, identifier, setup, data, display or Display())
    except PrivacyBudgetError:
        shutil.rmtree(out, ignore_errors=True)  # nobody was asked
        raise


def resume_owner_run(run: Path, *, stream: bool = False, display: Display | None = None) -> dict[str, Any]:
    """Continue a run; the noise of stored answers is not drawn again."""
    display = display or Display()
    folder = RunFolder(run, OWNERS)
    folder.require()
    path = folder.configuration
    values = read_values(OwnerSettings, path)
    check_settings(values, path, ("data", "ledger"), "restore it, or start a new run")
    identifier = str(values.pop("run", ""))
    provenance, logged = values.pop("provenance", None), values.pop("objective", False)
    if isinstance(provenance, dict):
        provenance.pop(SEAL, None)
    settings = make_settings(values, shown(path))
    data = open_owners(settings.data)
    if provenance != _provenance(data):
        raise InputError(f"{shown(data.path)}: not the data that {shown(run)} began with; train anew")
    with folder.held():
        document = _finished(folder.result)
        if document is not None and document["status"] == Status.CONVERGED:
            display.note(f"nothing to do: {document['message']}")
            return document
        if logged:
            raise ConfigError(f"{shown(path)}: key 'objective' is of an older version; start a new run")
        if old := sorted((run / "answers").glob("*.npy")):
            raise ConfigError(f"{shown(old[0])}: answers of an older version; start a new run")
        return _run(folder, identifier, _setup(settings, data, stream), data, display)


def _setup(settings: OwnerSettings, data: Owners, stream: bool) -> Setup:
    free = available_memory()
    need = sum(owner.nbytes for owner in data.owners)
    in_memory = not stream and (free is None or need < free // 2)
    return make_setup(settings, data, Engine(settings.threads), in_memory=in_memory)


def _run(folder: RunFolder, identifier: str, setup: Setup, data: Owners, display: Display) -> dict[str, Any]:
    statement, learner = describe_setup(setup), setup.learner()
    display.note(
        f"{sum(o.n_samples for o in setup.owners)} records, {len(setup.owners)} owners "
        f"({', '.join(f'{o.name}: {o.n_samples}' for o in setup.owners)}), {setup.n_parameters} parameters"
    )
    display.note(f"method '{setup.method}', step {setup.step:.4g}, {setup.settings.rounds} rounds")
    display.note(statement["sentence"])
    payment = charge_all_rounds(folder.ledger, identifier, setup, data, claimed=statement["claimed"])
    shape = (len(setup.owners), setup.n_parameters)
    answers = Answers(folder.path / "answers", identifier, shape, payment)

    def round_made() -> dict[str, Any]:
        # Owners answer in their order; each of them uses all threads.
        found = answers.obtain(
            learner.k, lambda: np.stack([owner.answer(learner.theta) for owner in setup.owners])
        )
        record = {"round": learner.k, **learner.receive(setup.weights @ found)}
        return {**record, "noise": math.sqrt(setup.noise_variance)}

    begin, replayed = time.monotonic(), []
    while learner.k <= learner.queries and answers.holds(learner.k):
        replayed.append(round_made())
    if replayed:
        display.note(f"{len(replayed)} rounds were answered already")
    interrupted = False
    with stop_on_signal() as stop_requested, folder.open_log(len(replayed)) as log:
        # What was logged then, or what the answers say now.
        logged = {record["round"] for record, _ in rounds_in(folder.log, strict=False)}
        for record in replayed:
            if record["round"] not in logged:
                log.append(record)
        display.start()
        try:
            while learner.k <= learner.queries and not (interrupted := stop_requested()):
                record = round_made() | {"seconds": time.monotonic() - begin}
                log.append(record)
                sizes = f"gradient {record['gradient_norm']:.3g} · noise {record['noise']:.3g}"
                display.round(f"round {record['round']} of {learner.queries} · {sizes}")
        finally:
            display.stop()
    done = learner.k - 1
    document = {
        "status": str(Status.INTERRUPTED if interrupted else Status.CONVERGED),
        "message": f"interrupted after {done} of {learner.queries} rounds"
        if interrupted
        else f"all {done} rounds answered",
        "rounds": done,
        **{key: getattr(setup, key) for key in ("method", "step", "noise_variance")},
        "loss": setup.loss.name,
        "lambda": setup.settings.lambda_,
        "parameters": [float(v) for v in learner.model],
        "statement": statement,
    }
    if not interrupted:
        status = "private gradients" if statement["claimed"] else "gradients, no epsilon claimed"
        certificate = {"status": status, "rounds": done}
        model = _model(setup, learner.model, data, certificate, model_id_of(identifier, done))
        write_model(folder.model, model, force=True)
    folder.write_json("result.json", document)
    return document


def _finished(path: Path) -> dict[str, Any] | None:
    """Content of ``result.json``; None where there is none yet."""
    try:
        document = document_in(path)
        if document is not None:
            _ = document["status"], document["message"], document["statement"]["sentence"] + ""
            for own in document["statement"]["owners"]:
                _ = own["name"], own["n_samples"], float(own["epsilon"] or 0.0), float(own["noise_scale"])
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(f"{shown(path)}: damaged ({error}); delete it, and resume again") from None
    return document


def _model(setup: Setup, theta: np.ndarray, data: Owners, certificate: dict[str, Any], name: str) -> Model:
    file = data.owners[0]
    weights, recipe = theta[: file.n_features], file.recipe
    if "components" in recipe:
        weights = recipe["components"].T @ weights
    transform = Transform(center=recipe.get("center"), scale=recipe.get("scale"))
    intercept = float(theta[-1]) if setup.settings.intercept else 0.0
    about = setup.loss.name, setup.loss.task, setup.settings.lambda_, intercept, data.classes
    parts = [PartyModel(PARTY, weights, file.source_names, transform)]
    return Model(*about, parts, certificate, model_id=name)


def _provenance(data: Owners) -> dict[str, str]:
    digest = {owner.name: owner.content_digest for owner in data.owners}
    kappa = hashlib.sha256(str(data.kappa).encode()).hexdigest()[:16]
    return {**digest, "kappa": kappa}


# --- charges, and the answers that are stored
def charge_all_rounds(
    own: Path, run: str, setup: Setup, data: Owners, *, claimed: bool
) -> Callable[[int], Payment]:
    """Charge every owner's answers of all rounds, once per run; what notes each round's draw.

    Where nothing is claimed nothing is charged.
    """
    settings = setup.settings
    if not claimed:
        return lambda number: Payment(Ledger(), [], math.inf, 0.0)
    ledger = Ledger(Path(settings.ledger) if settings.ledger is not None else own)
    gaussian = settings.mechanism == "gaussian"
    delta = (settings.delta or 0.0) / setup.kappa if gaussian else 0.0
    release = f"answers to {settings.rounds} gradient queries"
    payments = []
    budgets = parse_epsilons(settings.budget or settings.epsilon, data.names)
    for owner, file, budget in zip(setup.owners, data.owners, budgets, strict=True):
        if owner.answers.private:
            cost = {"gdp": gdp_of(owner.epsilon, delta)} if gaussian else {"pure": owner.epsilon}
            charge = Charge.to(record_account(file), run, release, **cost)
            payments.append(Payment(ledger, [charge], budget / setup.kappa, delta))
    # Set aside first: another run that comes between two owners would stop this one half way.
    reserve(ledger, [p for p in payments if not ledger.holds(p.charges[0])])
    for payment in payments:
        payment.charge("")
    first = payments[0].charges[0].account
    return lambda number: RoundNote(
        ledger, [Charge.to(first, run, f"answers to query {number}")], math.inf, 0.0
    )


@dataclass(frozen=True)
class RoundNote(Payment):
    """The note of a round's only draw, which costs nothing: all rounds were charged beforehand."""

    def check(self) -> None:
        """Refuse a round that was answered before."""
        self._refuse_another("")

    def charge(self, draw: str) -> None:
        """Note the draw."""
        self._refuse_another(draw)
        super().charge(draw)

    def _refuse_another(self, draw: str) -> None:
        drawn = [c.draw for c in self.ledger.planned(self.charges[0])]
        if drawn and draw not in drawn:
            said = "was answered before, and that answer is lost: restore the file, or start a new run"
            raise PrivacyBudgetError(f"{self.charges[0].release}: {said}; nothing was sent")


class Answers:
    """Answers by round, each of shape (owners, p)."""

    def __init__(
        self, directory: Path, run: str, shape: tuple[int, int], payment: Callable[[int], Payment]
    ) -> None:
        self.shape, self._payment, self._releases = shape, payment, Releases(directory)
        self._before = run  # what the next answer's question continues

    def holds(self, number: int) -> bool:
        """Whether a round was answered."""
        return self._releases.holds(_name(number))

    def obtain(self, number: int, ask: Callable[[], np.ndarray]) -> np.ndarray:
        """A round's answers, stored, or drawn and noted before their use. Shapes: the result (owners, p)."""
        # Not the query itself, whose last bits may differ on another machine.
        asked = _name(number), digest_of(self._before, number), self._payment(number)
        answers = self._releases.obtain(*asked, lambda: {"answers": ask()}, self._checked)
        self._before = digest_of(self._before, number, answers)
        return answers

    def _checked(self, found: Mapping[str, np.ndarray]) -> np.ndarray:
        answers = found["answers"]
        if answers.shape != self.shape or answers.dtype != np.float64 or not np.isfinite(answers).all():
            raise ValueError(f"no {self.shape} finite numbers")
        return answers


def _name(number: int) -> str:
    return f"round-{number:06d}"
