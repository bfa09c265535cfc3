"""What the solver loop asks of a method: run a round, say what it proved, save and restore itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Measured", "Method"]


@dataclass(frozen=True)
class Measured:
    """What a round left behind, all in the summed scaling.

    Attributes
    ----------
    objective : float
        Loss and regularisers at the weights after the round.
    lower_bound : float
        A proved lower bound on the optimum.
    primal_residual, dual_residual : float
        As in :class:`fastadmm.solver.history.RoundRecord`.
    augmented_lagrangian, lyapunov : float
        Equations 5 and 13 of Hu et al.
    penalty : float
        r; None where the method has none.
    accelerated : bool
        Whether the round started from an extrapolated state.
    stationarity : float or None
        As in :class:`fastadmm.solver.history.RoundRecord`; None in convex problems.
    """

    objective: float
    lower_bound: float
    primal_residual: float
    dual_residual: float
    augmented_lagrangian: float
    lyapunov: float
    penalty: float | None
    accelerated: bool
    stationarity: float | None = None


class Method(ABC):
    """A way to train, one round at a time."""

    #: Name, as in options and records.
    name: str
    #: Whether convergence on every convex problem is a theorem.
    convergent: bool
    #: Whether the parties' blocks are in this process.
    local: bool = True
    #: Holder of the shared state.
    coordinator: Any
    #: The parties, in the problem's order.
    parties: Any

    @abstractmethod
    def prepare(self) -> float:
        """Factorise and evaluate the start; returns the summed loss at zero weights, best intercept."""

    @abstractmethod
    def round(self) -> Measured:
        """One exchange with every party."""

    @property
    @abstractmethod
    def intercept(self) -> Any:
        """Exact minimiser of the intercept at the current weights; 0 where none is fitted.

        A float; of a multinomial model of shape (C,).
        """

    @abstractmethod
    def weights(self) -> list[np.ndarray]:
        """x_m of shape (d_m,) per party; of a multinomial model of shape (d_m, C)."""

    def settle(self) -> None:
        """Go on from the weights as they are returned, where the state's own sum differs from theirs."""
        return

    def weight_norms(self) -> list[float]:
        """Euclidean norm of every x_m."""
        return [float(np.linalg.norm(x)) for x in self.weights()]

    @abstractmethod
    def party_notes(self) -> list[tuple[str, str, str]]:
        """Name of each party, of its update, and why it was chosen."""

    @abstractmethod
    def export(self) -> dict[str, Any]:
        """The coordinator's state: arrays, numbers, and dictionaries of them."""

    @abstractmethod
    def export_parties(self) -> list[dict[str, np.ndarray]]:
        """Each party's own arrays."""

    @abstractmethod
    def restore(self, saved: dict[str, Any], parties: list[dict[str, np.ndarray]]) -> None:
        """Inverse of the exports; the method must have been prepared."""
