"""``fastadmm privacy``: what a run guarantees, and what a budget buys."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastadmm.cli import options as opt
from fastadmm.cli.app import app
from fastadmm.cli.convert import PARTIES
from fastadmm.cli.terminal import print_json, say
from fastadmm.errors import ConfigError, FormatError


@dataclass(frozen=True)
class _Budget:
    """Options for what a budget buys."""

    epsilon: float | None = opt.EPSILON
    delta: float | None = opt.DELTA
    rounds: int | None = opt.ROUNDS
    noise: float | None = opt.option("Noise per round: standard deviation divided by sensitivity.")
    parties: int = opt.option(PARTIES.help, default=1, min=1)


@app.command()
@opt.with_options()
def privacy(
    run: Path | None = opt.argument("Run directory, model directory or ledger to show.", default=None),
    *,
    budget: _Budget,
    set_limit: float | None = opt.option(
        "State, once, the most that a ledger allows of each account, at --delta; makes the ledger.",
        metavar="EPSILON",
    ),
    as_json: bool = opt.JSON,
) -> None:
    """Show a privacy statement or ledger, or compute epsilon, noise or rounds from the other two."""
    if set_limit is not None:
        _set_limit(run, set_limit, budget.delta)
    delta = 1e-5 if budget.delta is None else budget.delta
    if run is not None:
        if own := opt.given_options(budget, "delta"):
            raise ConfigError(
                "privacy: give either a run, or two of --epsilon, --rounds and --noise; with a run leave out "
                f"{', '.join(own)}"
            )
        _show(run, budget.delta, as_json)
        return
    from fastadmm.privacy.plan import plan_budget, plan_table

    plan = plan_budget(
        delta, epsilon=budget.epsilon, rounds=budget.rounds, multiplier=budget.noise, n_parties=budget.parties
    )
    if as_json:
        print_json(plan.to_json(), allow_nan=False)
        return
    _print(
        f"epsilon = {plan.epsilon:.6g} at delta = {delta:g} for {plan.rounds} round(s) with noise "
        f"{plan.multiplier:.6g} times the sensitivity",
        plan_table(plan, budget.parties),
    )


def _set_limit(path: Path | None, epsilon: float, delta: float | None) -> None:
    """Let a ledger state its limit, at its own delta where none is given."""
    from fastadmm.privacy.ledger import Ledger

    if path is None or path.is_dir():
        raise ConfigError(
            "--set-limit: name the file of a ledger: fastadmm privacy LEDGER --set-limit EPSILON"
        )
    ledger = Ledger(path)
    own = 1e-5 if ledger.limit is None else ledger.limit.delta
    ledger.state_limit(epsilon, own if delta is None else delta)


def _show(path: Path, delta: float | None, as_json: bool) -> None:
    """A run's or model's statement, with what its ledger says now; or all accounts of a ledger."""
    from fastadmm.files.atomic import shown, storage_errors

    with storage_errors(path, "read"):
        path.stat()
        is_ledger = not path.is_dir()
    if is_ledger:
        from fastadmm.privacy.ledger import Ledger, account_table, describe_accounts, limit_words

        ledger = Ledger(path)
        own = 1e-5 if ledger.limit is None else ledger.limit.delta
        delta = own if delta is None else delta
        accounts = describe_accounts(ledger, delta)
        if as_json:
            limit = None if ledger.limit is None else asdict(ledger.limit)
            print_json({"limit": limit, "accounts": accounts}, allow_nan=False)
        else:
            rows = [("limit", limit_words(ledger)), *account_table(accounts, delta)]
            _print(f"ledger {shown(path)}: {len(accounts)} account(s)", rows)
        return
    statement = _statement(path)
    if as_json:
        print_json(statement.to_json(), allow_nan=False)
        return
    from fastadmm.runs.private import ledger_rows

    _print(statement.one_line(), [*statement.table(), *ledger_rows(path)])


def _statement(path: Path) -> Any:
    from fastadmm.cli.describe import describe
    from fastadmm.files.atomic import shown
    from fastadmm.privacy.statement import PrivacyStatement

    found = describe(path, check=False)
    stored = found.get("privacy") if found["kind"] == "run" else (found.get("model") or {}).get("privacy")
    if stored is None:
        raise FormatError(
            f"{shown(path)}: no privacy statement: not a run or a model, or older than them; train again"
        )
    return PrivacyStatement.from_json(stored, shown(path))


def _print(line: str, rows: list[tuple[str, str]]) -> None:
    width = max((len(key) for key, _ in rows), default=0)
    say(line)
    for key, value in rows:
        say(f"  {key:<{width}}  {value}")
