"""``fastadmm privacy``: what a run guarantees, what a ledger holds, and what a budget buys."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

from fastadmm.cli import options as opt
from fastadmm.cli.app import app
from fastadmm.cli.terminal import tell
from fastadmm.errors import ConfigError, FormatError


@app.command()
def privacy(
    run: Path | None = opt.argument("Run directory, model directory or ledger to show.", default=None),
    *,
    epsilon: float | None = opt.EPSILON,
    rounds: int | None = opt.ROUNDS,
    noise: float | None = opt.option("Noise of a message: standard deviation divided by sensitivity."),
    parties: int = opt.option("Number of parties that hold the same persons.", default=1, min=1),
    delta: float | None = opt.DELTA,
    set_limit: float | None = opt.option(
        "State, once, the most that a ledger allows of each account, at --delta; makes the ledger.",
        metavar="EPSILON",
    ),
    as_json: bool = opt.JSON,
) -> None:
    """Show a privacy statement or ledger; or compute epsilon, noise or rounds from the other two."""
    asked = sum(value is not None for value in (epsilon, rounds, noise))
    if (run is None) != (asked == 2) or (run is not None and asked):
        raise ConfigError("give a run, a model or a ledger; or two of --epsilon, --rounds and --noise")
    if run is None:
        _plan(epsilon, rounds, noise, parties, 1e-5 if delta is None else delta, as_json)
        return
    if set_limit is not None:
        _set_limit(run, set_limit, delta)
    _show(run, delta, as_json)


def _plan(
    epsilon: float | None, rounds: int | None, noise: float | None, parties: int, delta: float, as_json: bool
) -> None:
    """The one of three that is not given, and what it means for a person in all parties."""
    from fastadmm.privacy.accounting import compose_gdp, epsilon_of, noise_multiplier, rounds_within

    for name, value in (("epsilon", epsilon), ("noise", noise)):
        if value is not None and not 0.0 < value < math.inf:
            raise ConfigError(f"--{name}: {value!r} must be positive and finite")
    if rounds is None:
        rounds = rounds_within(epsilon or 0.0, delta, noise or 0.0)
        if rounds < 1:
            raise ConfigError(f"epsilon {epsilon} at delta {delta:g} allows no round with this noise")
    noise = noise_multiplier(epsilon or 0.0, delta, rounds) if noise is None else noise
    mu = math.sqrt(rounds) / noise
    joint = epsilon_of(compose_gdp([mu] * parties), delta)
    own = epsilon_of(mu, delta)
    found = {"epsilon": own, "delta": delta, "rounds": rounds, "multiplier": noise, "joint": joint}
    rows = [(f"one person in all {parties} parties", f"epsilon {joint:.6g}")] if parties > 1 else []
    cost = f"epsilon = {own:.6g} at delta = {delta:g}"
    line = f"{cost} for {rounds} round(s) with noise {noise:.6g} times the sensitivity"
    tell(as_json, found, lambda: aligned(line, rows), allow_nan=False)


def _set_limit(path: Path, epsilon: float, delta: float | None) -> None:
    """Let a ledger state its limit, at its own delta where none is given."""
    from fastadmm.privacy.ledger import Ledger

    if path.is_dir():
        raise ConfigError(
            "--set-limit: name the file of a ledger: fastadmm privacy LEDGER --set-limit EPSILON"
        )
    ledger = Ledger(path)
    ledger.state_limit(epsilon, ledger.delta(1e-5) if delta is None else delta)


def _show(path: Path, delta: float | None, as_json: bool) -> None:
    """A run's or model's statement, with what its ledger says now; or all accounts of a ledger."""
    from fastadmm.files.atomic import shown, storage_errors

    with storage_errors(path, "read"):
        path.stat()
        is_ledger = not path.is_dir()
    if is_ledger:
        from fastadmm.privacy.accounts import added
        from fastadmm.privacy.ledger import Ledger, limit_words, spent_words

        ledger = Ledger(path)
        delta = ledger.delta(1e-5) if delta is None else delta
        accounts, rows = [], [("limit", limit_words(ledger))]
        for charges in ledger.accounts():
            spent, role = added(charges), charges[0].role
            parties = sorted({charge.party for charge in charges})
            counts = {"runs": spent.runs, "releases": spent.releases, "epsilon": spent.epsilon(delta)}
            accounts.append({"role": role, "parties": parties, **counts})
            whose = ", ".join(ascii(name)[1:-1] for name in parties)
            rows.append((f"{role} of {whose}", spent_words(spent, delta)))
        limit = None if ledger.limit is None else asdict(ledger.limit)
        line = f"ledger {shown(path)}: {len(accounts)} account(s)"
        document = {"limit": limit, "accounts": accounts}
        tell(as_json, document, lambda: aligned(line, rows), allow_nan=False)
        return
    from fastadmm.cli.describe import describe
    from fastadmm.privacy.statement import PrivacyStatement
    from fastadmm.runs.result import ledger_rows

    found = describe(path, check=False)
    stored = (found if found["kind"] == "run" else found.get("model") or {}).get("privacy")
    if stored is None:
        raise FormatError(
            f"{shown(path)}: no privacy statement: not a run or a model, or older than them; train again"
        )
    statement = PrivacyStatement.from_json(stored, shown(path))
    line, table = statement.one_line(), statement.table()
    tell(as_json, statement.to_json(), lambda: aligned(line, [*table, *ledger_rows(path)]), allow_nan=False)


def aligned(line: str, rows: list[tuple[str, str]]) -> list[str]:
    """A line, and rows of a key and a value under it."""
    width = max((len(key) for key, _ in rows), default=0)
    return [line, *(f"  {key:<{width}}  {value}" for key, value in rows)]
