"""The contents of a ledger, account by account, without digests: rows are numbered in order of appearance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.statement import rounded_up

__all__ = ["account_table", "describe_accounts"]


def describe_accounts(path: Path, delta: float) -> list[dict[str, Any]]:
    """The accounts of a ledger.

    Parameters
    ----------
    path : Path
    delta : float
        At which epsilon is shown.

    Returns
    -------
    list of dict
        JSON types: ``role``, ``rows`` (numbers; 0 for charges of old ledgers, which do not say
        their rows), ``parties``, ``runs``, ``releases`` and ``epsilon``.

    Raises
    ------
    FormatError
        If it is not a ledger, or does not verify.
    """
    ledger, numbers = Ledger(path), {"": 0}
    described = []
    for charges in ledger.accounts():
        for charge in charges:
            numbers.setdefault(charge.rows, len(numbers))
        spent = ledger.spent(charges[0].account)
        described.append(
            {
                "role": charges[0].role,
                "rows": sorted({numbers[charge.rows] for charge in charges}),
                "parties": sorted({charge.party for charge in charges}),
                "runs": spent.runs,
                "releases": spent.releases,
                "epsilon": spent.epsilon(delta),
            }
        )
    return described


def account_table(accounts: list[dict[str, Any]], delta: float) -> list[tuple[str, str]]:
    """Accounts as a table of two columns: whose data they are, and what was spent.

    Parameters
    ----------
    accounts : list of dict
        As in :func:`describe_accounts`.
    delta : float
    """
    return [
        (
            f"{account['role']} of {', '.join(ascii(name)[1:-1] for name in account['parties'])}, "
            + (
                f"rows {', '.join(map(str, known))}"
                if (known := [n for n in account["rows"] if n])
                else "any rows"
            ),
            f"epsilon = {rounded_up(account['epsilon'])} at delta = {delta!r}: "
            f"{account['releases']} release(s) of {account['runs']} run(s)",
        )
        for account in accounts
    ]
