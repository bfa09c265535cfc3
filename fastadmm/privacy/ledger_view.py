"""The contents of a ledger, account by account, without digests: rows are numbered in order of appearance."""

from typing import Any

from fastadmm.privacy.accounts import Account
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.statement import rounded_up


def limit_words(ledger: Ledger) -> str:
    """What a ledger allows, in words."""
    limit = ledger.limit
    if limit is None or limit.epsilon is None:
        at = "" if limit is None else f"; counts at delta {limit.delta!r}"
        return f"none stated{at}: what each run or approval says; state one with --set-limit EPSILON"
    return f"epsilon {limit.epsilon!r} at delta {limit.delta!r} for each account, as its owner stated"


def spent_words(ledger: Ledger, account: Account, delta: float) -> str:
    """What a ledger holds about some data, in one line, for an owner who is to decide about more."""
    limit, spent = ledger.limit, ledger.spent(account)
    at = delta if limit is None else limit.delta
    most = "" if limit is None or limit.epsilon is None else f" of {limit.epsilon!r}"
    if not spent.releases:
        return "nothing of these data" + (f"{most} at delta {at!r}" if most else "")
    return (
        f"epsilon {rounded_up(spent.epsilon(at))}{most} at delta {at!r}, in {spent.releases} release(s) of "
        f"{spent.runs} run(s)"
    )


def describe_accounts(ledger: Ledger, delta: float) -> list[dict[str, Any]]:
    """The accounts of a ledger."""
    numbers = {"": 0}
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
    """Accounts as a table of two columns: whose data they are, and what was spent."""
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
