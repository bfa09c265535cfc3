"""How a problem is solved, as far as users choose it."""

from dataclasses import dataclass

from fastadmm.schemes.registry import choose_scheme
from fastadmm.settings.checks import check_parameter
from fastadmm.settings.keys import SETTINGS


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
    directions: str = "auto"
    secrecy: str = "none"

    def __post_init__(self) -> None:
        for setting in filter(lambda setting: setting.solver, SETTINGS.values()):
            check_parameter(setting.solver, setting, getattr(self, setting.solver))
        choose_scheme(self)
