"""What a training run will do and need, before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastadmm.choice import SUBSPACE, choose_scheme
from fastadmm.constraints import get_constraint
from fastadmm.coordinator.coordinator import acceleration_memory
from fastadmm.coordinator.multinomial import class_directions_per_party
from fastadmm.coordinator.schemes import get_scheme
from fastadmm.coordinator.subspace import directions_per_party
from fastadmm.direction_party import choose_metric_solver
from fastadmm.losses import parse_loss
from fastadmm.penalty import is_ridge
from fastadmm.regularizers import get_regularizer
from fastadmm.runs.config import RunConfig, is_convex, penalty_arguments
from fastadmm.store.party_file import PartyData
from fastadmm.xupdate.choose import preparation_bytes

__all__ = ["Plan", "format_bytes", "make_plan"]

#: N-vectors that a round works with besides state and history: targets, gradients, residuals.
_WORK_VECTORS = 10

#: Python, NumPy, SciPy, Numba and its compiler.
_BASE_BYTES = 220 * 2**20


@dataclass(frozen=True)
class Plan:
    """Estimated memory of a run, in bytes.

    Attributes
    ----------
    data : int
        Feature blocks.
    factorisation : int
        Preparing the x-updates.
    state : int
        Messages, z, u and work vectors.
    acceleration : int
        Anderson history.
    """

    data: int
    factorisation: int
    state: int
    acceleration: int

    @property
    def total(self) -> int:
        """Sum of the parts and the interpreter."""
        return self.data + self.factorisation + self.state + self.acceleration + _BASE_BYTES

    def sentence(self) -> str:
        """One line for the log."""
        return (
            f"memory: about {format_bytes(self.total)} (data {format_bytes(self.data)}, "
            f"factorisation {format_bytes(self.factorisation)}, state {format_bytes(self.state)}, "
            f"acceleration {format_bytes(self.acceleration)})"
        )


def make_plan(
    parties: Sequence[PartyData],
    test: Sequence[PartyData],
    n_samples: int,
    config: RunConfig,
    n_outputs: int = 1,
) -> Plan:
    """Estimate the peak memory of a run from the partition's headers.

    Parameters
    ----------
    parties, test : sequence of PartyData
        Of the training partition, and of the test partition (empty without one).
    n_samples : int
    config : RunConfig
    n_outputs : int
        Classes C of the multinomial loss; 1 for the others.

    Returns
    -------
    Plan
    """
    m = len(parties)
    smooth = config.loss == "auto" or parse_loss(config.loss).smooth
    penalty = penalty_arguments(config)
    ridge = is_ridge(get_regularizer(penalty["regularizer"]), get_constraint(penalty["constraint"]))
    convex = is_convex(config)
    name, _ = choose_scheme(
        config.scheme, config.penalty, config.acceleration, config.x_update, smooth, ridge, convex
    )
    if name == SUBSPACE:
        factorisation = sum(_metric_bytes(n_samples, p.n_features) for p in parties)
        # The messages' store doubles when it is full.
        state, history = 8 * n_samples * 2 * m * directions_per_party(m), 0
        if n_outputs > 1:
            most = class_directions_per_party(m, n_samples, n_outputs)
            state = 8 * n_samples * n_outputs * m * (most + most // 4)
    else:
        scheme = get_scheme(name)
        accelerate = (
            scheme.accelerated if config.acceleration == "auto" else config.acceleration == "anderson"
        )
        memory = acceleration_memory(m, n_samples * n_outputs) if accelerate and convex else 0
        factorisation = sum(
            preparation_bytes(n_samples, p.n_features, config.x_update, ridge) for p in parties
        )
        state = 3 * 8 * (m + 2) * n_samples * n_outputs
        history = 2 * (memory + 1) * 8 * (m + 2) * n_samples * n_outputs if memory else 0
    return Plan(
        data=sum(_memory_bytes(p) for p in (*parties, *test)),
        factorisation=factorisation,
        state=state + 8 * _WORK_VECTORS * n_samples * n_outputs,
        acceleration=history,
    )


def _metric_bytes(n_samples: int, n_features: int) -> int:
    """Matrix, factor and partial sums of a party that refactorises in each metric."""
    kind, _ = choose_metric_solver((n_samples, n_features))
    side = {"gram": n_features, "kernel": n_samples}.get(kind, 0)
    return 8 * side * side * 6


def _memory_bytes(party: PartyData) -> int:
    if party.nnz is None:
        return 8 * party.n_samples * party.n_features
    # indices are held once as read and once unsigned while loading
    return 16 * party.nnz + 8 * party.n_samples


def format_bytes(count: int) -> str:
    """Bytes for people: ``format_bytes(2**20) == '1.0 MB'`` (binary multiples)."""
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GB"
