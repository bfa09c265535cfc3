"""What a run's ledger says today: a statement is of the day its run ended, and a shared ledger goes on."""

from __future__ import annotations

import math
from pathlib import Path

from fastadmm.files.atomic import shown, storage_errors
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.statement import rounded_up
from fastadmm.runs.config import make_config, read_config
from fastadmm.runs.private import LEDGER, read_run_id
from fastadmm.settings.privacy import DifferentialPrivacy


def ledger_rows(run: Path) -> list[tuple[str, str]]:
    """Rows for a statement's table: what all runs together have spent on the data of this one.

    Returns: empty for a run without privacy.
    """
    path = run / "run.toml"
    with storage_errors(run, "read"):
        if not path.exists():
            return []
    values = read_config(path)
    values.pop("provenance", None)
    by_files = values.pop("rounds_by_files", None) is not None
    config = make_config(values, shown(path))
    if not isinstance(config.privacy, DifferentialPrivacy):
        return []
    if by_files:
        return [
            (
                "ledger",
                "each party's own, which it charges: the party's STATE/privacy.json says what was spent",
            )
        ]
    file = Path(config.ledger) if config.ledger is not None else run / LEDGER
    with storage_errors(file, "read"):
        if not file.exists():
            return [("ledger", f"{shown(file)} is not there: what else was spent on these data is not known")]
    ledger, identifier = Ledger(file), read_run_id(run)
    delta = config.privacy.delta if ledger.limit is None else ledger.limit.delta
    rows = []
    for charges in ledger.accounts():
        if any(charge.run == identifier for charge in charges):
            account = charges[-1].account
            spent = ledger.spent(account)
            pure = spent.gdp == spent.rho == 0.0
            epsilon = math.fsum(spent.pure) if pure else spent.epsilon(delta)
            text = f"epsilon {rounded_up(epsilon)}" + ("" if pure else f" at delta {delta!r}")
            rows.append((f"ledger now: {account.party}, {account.role}", f"{text}, {spent.runs} run(s)"))
    return rows or [("ledger", f"{shown(file)} holds no charge of this run: what was spent is not known")]
