"""How a problem is solved, as far as users choose it."""

import math
from dataclasses import dataclass

from fastadmm.coordinator.subspace.scheme import DIRECTIONS
from fastadmm.errors import ConfigError
from fastadmm.method.scheme import SECRECY
from fastadmm.problem.constraints import LARGEST_FACTOR
from fastadmm.schemes.registry import choose_scheme


@dataclass(frozen=True)
class SolverOptions:
    r"""How to solve; never what to solve.

    Parameters
    ----------
    scheme : str
        "auto", or a name of :data:`fastadmm.schemes.registry.SCHEMES`.
    gap : float
        Stop at this relative duality gap; 0 never stops by gap. A non-convex
        problem has none: there ``stationarity`` counts.
    max_rounds : int
        Stop after this many rounds.
    max_seconds : float or None
        Stop after this much wall time.
    penalty : float or None
        r, in the summed scaling: the unit is the curvature of one sample's
        loss. For the mean objective the paper's rho is r / N. None takes 0.05
        times the loss's ``penalty_unit``, and adapts it where the regulariser
        or the constraint is another than squared l2 and all space.
    acceleration : {"auto", "anderson", "none"}
        "auto" accelerates ``sharing`` and leaves the paper's schemes as printed.
    x_update : {"auto", "gram", "kernel", "cg"}
        How parties solve their x-update.
    n_threads : int or None
        Threads of the local engine; the result does not depend on it.
    stationarity : float
        Stop a non-convex problem when the prox-gradient of the paper's V^t has
        fallen to this share of its size at zero weights
        (:class:`fastadmm.solver.history.RoundRecord`); 0 never stops by it.
    history : int or None
        How much of the past the coordinator keeps: directions per party in
        ``subspace`` (at least 2), differences of the acceleration otherwise.
        Fewer take less memory and more rounds. None takes what the scheme likes.
    gap_absolute : float
        Stop also at this absolute duality gap, per mean loss; 0 never stops by it.
    directions : {"auto", "one", "both"}
        What a party of ``subspace`` answers with in a round: ``one`` direction in double
        precision, or ``both`` that it has in single precision, the same bytes. With ``auto``
        parties of few columns answer once with all of them.
        See :func:`fastadmm.coordinator.subspace.scheme.answers_both`.
    secrecy : {"none", "sums"}
        Whether the coordinator sees only sums of the parties' messages: see :mod:`fastadmm.secrecy`.
    """

    scheme: str = "auto"
    gap: float = 1e-6
    max_rounds: int = 10000
    max_seconds: float | None = None
    penalty: float | None = None
    acceleration: str = "auto"
    x_update: str = "auto"
    n_threads: int | None = None
    stationarity: float = 1e-5
    history: int | None = None
    gap_absolute: float = 0.0
    directions: str = "auto"
    secrecy: str = "none"

    def __post_init__(self) -> None:
        for name in ("gap", "stationarity", "gap_absolute"):
            if not (math.isfinite(value := getattr(self, name)) and value >= 0):
                raise ConfigError(f"{name}: {value!r} must be a finite number, not negative")
        for name in ("gap", "stationarity"):
            if (value := getattr(self, name)) >= 1:
                raise ConfigError(f"{name}: {value!r} must be below 1")
        if self.max_rounds < 1:
            raise ConfigError(f"max_rounds: {self.max_rounds!r} must be at least 1")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ConfigError(f"max_seconds: {self.max_seconds!r} must be positive")
        if self.penalty is not None and not (math.isfinite(self.penalty) and self.penalty > 0):
            raise ConfigError(f"penalty: {self.penalty!r} must be a positive finite number")
        if self.penalty is not None and self.penalty > LARGEST_FACTOR:
            raise ConfigError(f"penalty: {self.penalty!r} is above {LARGEST_FACTOR:g}")
        choices = {"acceleration": ("auto", "anderson", "none"), "directions": DIRECTIONS, "secrecy": SECRECY}
        for name, known in choices.items():
            if (chosen := getattr(self, name)) not in known:
                raise ConfigError(f"{name}: unknown choice {chosen!r}; choose {', '.join(known)}")
        if self.n_threads is not None and self.n_threads < 1:
            raise ConfigError(f"n_threads: {self.n_threads!r} must be at least 1")
        if self.history is not None and self.history < 0:
            raise ConfigError(f"history: {self.history!r} must not be negative")
        choose_scheme(self)
