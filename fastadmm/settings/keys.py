"""What every configuration key decides: one declaration for all that compares, repeats or records runs."""

from __future__ import annotations

__all__ = ["DECISIVE", "OBJECTIVE", "PENALTY", "ROLES"]

#: Role of each key: a part of the ``objective`` (of its ``penalty`` in particular), the ``data``, the
#: ``method`` by which it is minimised and when that ends, the privacy ``budget``, the ``place`` where it
#: runs, or the ``output`` that is kept.
ROLES: dict[str, str] = {
    "data": "data",
    "test": "data",
    "loss": "objective",
    "lambda": "objective",
    "party_lambda": "penalty",
    "regularizer": "penalty",
    "l1_ratio": "penalty",
    "groups": "penalty",
    "constraint": "penalty",
    "party_constraint": "penalty",
    "intercept": "objective",
    "class_weight": "objective",
    "validation": "objective",  # held-out rows have weight 0
    "seed": "objective",  # draws the held-out rows
    "scheme": "method",
    "penalty": "method",
    "acceleration": "method",
    "x_update": "method",
    "history": "method",
    "directions": "method",
    "warm_start": "method",
    "gap": "method",
    "stationarity": "method",
    "rounds": "method",
    "time": "method",
    "validation_metric": "method",
    "patience": "method",
    "path": "method",
    "path_values": "method",
    "path_length": "method",
    "path_ratio": "method",
    "folds": "method",
    "rule": "method",
    "gap_share": "method",
    "privacy": "budget",
    "ledger": "place",
    "threads": "place",
    "memory": "place",
    "checkpoint_rounds": "output",
    "checkpoint_seconds": "output",
}

#: What the weights are penalised and constrained by, besides lambda.
PENALTY = tuple(key for key, role in ROLES.items() if role == "penalty")

#: What is minimised; all other keys only say how, or of which data.
OBJECTIVE = tuple(key for key, role in ROLES.items() if role in ("objective", "penalty"))

#: What decides the weights that come out of given data, to the last bit.
DECISIVE = tuple(key for key, role in ROLES.items() if role in ("objective", "penalty", "method"))
