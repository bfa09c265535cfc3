"""Digests of records, by which two owners' rows, or public rows and owners', are found to be the same."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

DIGEST_BYTES = 16

#: Share of rows that public rows and the owners' may have in common beyond what chance would give.
_SHARED = 0.1


def record_digests(X: Any, labels: Sequence[str] | None = None) -> list[bytes]:
    """A digest of every record, however it is stored. Shapes: X (N, d)."""
    from scipy.sparse import csr_array

    X = csr_array(X)  # makes one, or takes it as it is
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()  # which sorts as well
    with np.errstate(over="ignore", under="ignore"):
        data = X.data.astype("<f4")
    kept = data != 0.0  # -0.0 and what float32 cannot tell from zero, too
    ends = np.concatenate([[0], np.cumsum(kept)])[X.indptr]
    data, indices = data[kept], X.indices[kept].astype("<i8")
    digests = []
    for i in range(X.shape[0]):
        part = slice(ends[i], ends[i + 1])
        raw = indices[part].tobytes() + data[part].tobytes()
        if labels is not None:
            raw += labels[i].encode("utf-8", "surrogatepass")
        digests.append(hashlib.blake2b(raw, digest_size=DIGEST_BYTES).digest())
    return digests


def shared_rows(public: list[bytes], owned: list[bytes]) -> tuple[float, str]:
    """How many rows a file that is said to be public and the owners have in common."""
    largest, reason = 0.0, ""
    for these, those, said in (
        (public, owned, "of its rows have the features of an owner's row"),
        (owned, public, "of the owners' rows have the features of a row of it"),
    ):
        known = Counter(those)
        share = sum(row in known for row in these) / len(these)
        # Rows of few codes recur: a fresh row is known with the chance of one less the share seen once.
        chance = 1.0 - sum(count == 1 for count in known.values()) / len(those)
        most = chance + _SHARED * (1.0 - chance)
        if not reason and (share > most or share == 1.0):
            reason = f"{share:.1%} {said}, where at most {most:.1%} may"
            if share == 1.0 and these is public:
                reason = "every row of it is a row of an owner"
        largest = max(largest, share)
    return largest, reason
