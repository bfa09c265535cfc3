"""What an honest run asks for, as far as a first request says: drafts of approvals are twice that.

Rounds are the worst of those measured in docs/convergence.md and docs/sums.md, a little rounded up; a run
that takes longer needs its owners' word again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastadmm.problem.losses import LOSSES

__all__ = ["expected"]

#: Of a family: rounds, exchanges of a round, vectors of N numbers in a round, other numbers in an exchange.
_USUAL = {
    "subspace": (65, 1, 2, 200),
    "log_sum": (60, 9, 2, 20_000),
    "admm": (600, 4, 1, 10),
    "proximal": (60, 4, 2, 20_000),
    "subspace_sums": (65, 1, 2, 500),
    "admm_sums": (500, 3, 1, 1000),
}

#: Opening, keys, proofs and end.
_BESIDE = 10


def expected(terms: Mapping[str, Any]) -> tuple[int, int]:
    """Exchanges of an honest run without noise, and numbers that leave a party in it."""
    family = terms["family"].removeprefix("multinomial_")
    rounds, exchanges, vectors, numbers = _USUAL.get(family, _USUAL["admm"])
    n, classes = int(terms["n_samples"]), int(terms.get("n_classes", 1))
    if family == "admm" and terms["regularizer"] == "l2" and terms["constraint"] == "all":
        rounds, exchanges = 400, 2
    elif family == "proximal" and terms["constraint"].startswith(("box", "nonnegative")):
        exchanges = 10  # up to 33 in some rounds, where weights have bounds
    elif family == "subspace" and not LOSSES[terms.get("loss", "logistic")].convex:
        rounds, exchanges = 2 * rounds, 2
    others = sum(key in terms for key in ("test", "validation"))
    asked = rounds * (exchanges + others) + _BESIDE
    each_row = rounds * (vectors + others) + _BESIDE
    return asked, (each_row * n + asked * numbers) * classes
