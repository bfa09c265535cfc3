"""A proof between the step that made it and the one that ends the run, where these are other processes."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastadmm.proof.claim import Claim, Proof, Within

_NUMBERS = ("asked", "computed", "objective", "bound", "gap", "gap_absolute", "rounding")
_WITHIN = ("reach", "bound", "gap")


def exported(proof: Proof) -> dict[str, Any]:
    """Claim, reason, numbers and the dual vector."""
    within = proof.within
    return {
        "claim": str(proof.claim),
        "reason": proof.reason,
        "numbers": np.array([getattr(proof, key) for key in _NUMBERS]),
        **({} if within is None else {"within": np.array([getattr(within, key) for key in _WITHIN])}),
        **({} if proof.dual is None else {"dual": proof.dual}),
    }


def restored(saved: dict[str, Any]) -> Proof:
    """Inverse of :func:`exported`."""
    numbers = dict(zip(_NUMBERS, map(float, saved["numbers"]), strict=True))
    within = None
    if "within" in saved:
        within = Within(**dict(zip(_WITHIN, map(float, saved["within"]), strict=True)))
    dual, reason = saved.get("dual"), str(saved["reason"])
    return Proof(Claim(saved["claim"]), **numbers, within=within, dual=dual, reason=reason)
