"""Fits of estimators in a ledger: every private fit is another release of its rows.

Arrays have neither ids nor names that could tell whose rows they hold, and the folds of a cross-validation
share rows. So all fits that are charged to one ledger count as fits on the same rows, whatever their arrays
are, and however columns are divided among parties: one account for features, one for labels. A fit costs
what it costs the party that pays most; the sum of these costs is at least what any one column has spent.
Use separate ledgers for data that share no person. Charges of runs on partitions in the same ledger are
added.
"""

import os
import secrets
from pathlib import Path
from typing import Any

from fastadmm.errors import ConfigError
from fastadmm.privacy.accounts import ARRAYS, FEATURES, LABELS, Account
from fastadmm.privacy.ledger import Ledger, other_runs
from fastadmm.privacy.public import label_payment
from fastadmm.privacy.releases import Payment

#: What a fit without a ledger says, and warns of.
UNCOUNTED = (
    "only this fit is counted: every other private fit on these rows adds to it, as do those of a search or "
    "of cross-validation; give a ledger to count them all"
)

_FEATURES = Account("", ARRAYS, FEATURES)
_LABELS = Account("", ARRAYS, LABELS)


def resolve_ledger(ledger: Any) -> Ledger | None:
    """The ledger that an estimator's parameter names."""
    if ledger is None or isinstance(ledger, Ledger):
        return ledger
    if isinstance(ledger, str | os.PathLike):
        return Ledger(Path(ledger))
    raise ConfigError(f"ledger: {ledger!r} is neither a path nor a fastadmm.privacy.ledger.Ledger")


def charge_fit(ledger: Ledger, solver: Any) -> None:
    """Charge all that a fit releases, before anything of it is drawn.

    ``docs/privacy.md#estimators-and-tuning``.
    """
    s, run = solver.settings, secrets.token_hex(8)
    if s.sampler == "insecure_test":
        return  # nothing is claimed, and nothing may be charged
    payments = [
        Payment(ledger, [solver.fit_charge(_FEATURES, run)], s.budget, s.delta),
        label_payment(s, ledger, run, _LABELS),
    ]
    for payment in payments:
        payment.check()
    for payment in payments:
        payment.charge("")


def other_fits(ledger: Ledger, solver: Any) -> str:
    """What else the ledger has charged besides this fit, in words; empty for nothing."""
    return other_runs(ledger, [_FEATURES], solver.settings, _LABELS)
