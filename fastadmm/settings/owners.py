"""Settings of a run with owners of rows: each key, declared once."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from functools import partial
from typing import Any

from fastadmm.errors import ConfigError
from fastadmm.settings.checks import check_values
from fastadmm.settings.setting import declare, settings_of

#: Declare a setting by what it decides.
_budget, _data, _method, _objective, _place = (
    partial(declare, role) for role in ("budget", "data", "method", "objective", "place")
)


@dataclass(frozen=True)
class OwnerSettings:
    """What to train with owners of rows, under which budgets; each field is a key of ``docs/owners.md``.

    ``lambda_`` is the key ``lambda``.
    """

    data: str = _data(
        "directory made by `owners convert`", is_path=True, default_doc="needed", default=MISSING
    )
    epsilon: str = _budget(
        help="Privacy budget, the epsilon of each party or owner for one record: 1,1,0.5 or one for all; "
        "inf means exact answers.",
        default_doc="needed",
        default="",
    )
    delta: float | None = _budget(
        "δ of each owner, for Gaussian answers; below 1/n", "Failure probability of the guarantee, below 1/N."
    )
    mechanism: str = _budget(
        help="Noise of answers: laplace (pure epsilon) or gaussian (with delta).",
        choices=("laplace", "gaussian"),
        default="laplace",
    )
    bound: str | None = _budget(
        "`clip:XI` or `features:R`: how each record's gradient is bounded, see below; "
        "without it no finite ε is accepted",
        "Bound on each record's gradient: clip:XI or features:R.",
    )
    target_bound: float | None = _budget(
        "bound on the absolute target, for `features:R` with the squared loss",
        sign="positive",
    )
    theta_max: float = _objective(
        r"the box \|θ\|∞ ≤ θ_max that the learner projects onto; required with `features:R`",
        sign="positive",
        infinite=True,
        default=10.0,
    )
    rounds: int = _method(
        "T, number of queries to each owner",
        "Rounds at most; in each a party sends once, an owner answers once.",
        sign="positive",
        default=40,
    )
    loss: str = _objective(
        "`squared` (z − y)²/2, `hinge` or `logistic` with labels −1 and 1",
        "What is minimised, as a mean over rows: auto (by the labels), squared, hinge or logistic.",
        default="auto",
    )
    lambda_: float = _objective(
        r"weight of \|θ\|²/2 relative to the mean loss, intercept included, as in the paper",
        "Strength of the regularisation, on the mean loss; 1 / (N C) in scikit-learn.",
        sign="not negative",
        default=0.0,
    )
    intercept: bool = _objective("fit an intercept", default=True)
    method: str = _method(
        "`constant`, `adaptive`, `strongly_convex`, or the paper's `algorithm1`, `algorithm2` as printed",
        choices=("auto", "constant", "adaptive", "strongly_convex", "algorithm1", "algorithm2"),
        default="auto",
    )
    step: float | None = _method(
        help="Step size: eta, rho or c1 of the method (default: from the bound).",
        sign="positive",
    )
    smoothness: float | None = _method(
        "Lipschitz constant of the objective's gradient, if it is known from public data", sign="positive"
    )
    weights: str = _method(
        "`size`: n_ℓ/n; `budget`: inverse noise variances, for Laplace answers proportional to (n_ℓ ε_ℓ)²",
        choices=("size", "budget"),
        default="size",
    )
    learner: str | None = _method(
        "name of an owner that is the learner: its own answers are exact and are not sent",
    )
    ledger: str | None = _place(
        help="Privacy ledger shared by all runs on these data.",
        is_path=True,
    )
    budget: str | None = _budget(
        "limit on what all runs of the ledger may spend together, like `epsilon`", default_doc="`epsilon`"
    )
    threads: int | None = _place(
        help="Threads; the result does not depend on it.",
        sign="positive",
    )

    def to_toml(self) -> dict[str, Any]:
        """Plain dictionary with the documented keys; unset ones are left out."""
        values = {key: getattr(self, setting.name) for key, setting in settings_of(OwnerSettings).items()}
        return {key: value for key, value in values.items() if value is not None}


def make_settings(
    values: Mapping[str, Any], place: str = "settings", options: Mapping[str, Any] | None = None
) -> OwnerSettings:
    """Check keys and types, and fill in defaults."""
    checked: dict[str, Any] = {}
    for source, where in ((values, place), (options or {}, "command line")):
        # One budget for all may be written as the number it is.
        numbers = [key for key in ("epsilon", "budget") if isinstance(source.get(key), int | float)]
        told = {**source, **{key: str(source[key]) for key in numbers}}
        if told.pop("batch", 1.0) != 1.0:  # runs of older versions say 1.0
            raise ConfigError(f"{where}: key 'batch': answers are of all records; leave it out")
        checked |= check_values(OwnerSettings, told, where)
    if "data" not in checked:
        raise ConfigError(f"{place}: key 'data' is missing: name the directory with the owners")
    return OwnerSettings(**checked)


def parse_epsilons(text: str, names: list[str]) -> list[float]:
    """Budgets of the owners."""
    if not text.strip():
        raise ConfigError(
            "epsilon: no budget given; pass --epsilon with one number for all owners or one each (inf: exact)"
        )
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"epsilon: {text!r} is not a list of numbers such as 1,1,0.5") from None
    if len(values) == 1:
        values *= len(names)
    if len(values) != len(names):
        raise ConfigError(f"epsilon: {len(values)} budgets for {len(names)} owners ({', '.join(names)})")
    for name, value in zip(names, values, strict=True):
        if not value > 0:
            raise ConfigError(
                f"epsilon: {value:g} of owner {name!r} is not positive; inf means exact answers"
            )
    return values
