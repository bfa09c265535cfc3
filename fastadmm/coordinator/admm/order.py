"""In which order parties answer in a round of ADMM, and by how much their problem is majorised."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Order:
    """What the ADMM schemes differ in; see :mod:`fastadmm.coordinator.admm.admm`."""

    name: str  # of the scheme
    parallel: bool  # whether parties answer at the same time
    majorised: bool  # whether tau is the number of parties (else 1)
    convergent: bool  # whether convergence on every convex problem is a theorem
    accelerated: bool

    def tau(self, n_parties: int) -> float:
        """Majorisation factor for M parties."""
        return float(n_parties) if self.majorised else 1.0


SHARING = Order("sharing", parallel=True, majorised=True, convergent=True, accelerated=True)
JACOBI = Order("jacobi", parallel=True, majorised=False, convergent=False, accelerated=False)
GAUSS_SEIDEL = Order("gauss-seidel", parallel=False, majorised=False, convergent=False, accelerated=False)
