"""Choose a party's x-update from the shape of its block, and say why."""

from __future__ import annotations

from fastadmm.blocks.block import FeatureBlock
from fastadmm.errors import ConfigError
from fastadmm.parties.xupdate.base import PenalisedUpdate, XUpdate
from fastadmm.parties.xupdate.direct import ConjugateGradient, GramAffine, GramEigen, KernelEigen
from fastadmm.parties.xupdate.gram_descent import GramDescent
from fastadmm.parties.xupdate.majorised import Majorised
from fastadmm.parties.xupdate.proximal_gradient import GramProximalGradient, ProximalGradient
from fastadmm.problem.constraints import Affine, AllSpace, Ball, Constraint
from fastadmm.problem.regularizers import LogSum, Regularizer, SquaredL2

#: For squared l2 without a set, the only ones that can be asked for by name.
X_UPDATES: dict[str, type[XUpdate]] = {
    kind.name: kind for kind in (GramEigen, KernelEigen, ConjugateGradient)
}

#: Largest matrix side for a full eigendecomposition: about 10 s on one core, 128 MB.
MAX_EIGEN_SIDE = 4096

#: Steps of one round for log_sum, on a Gram matrix and without one: an answer that is cut short is a descent.
_MAJORISED_STEPS, _MATRIX_FREE_STEPS = 100, 1


def choose_x_update(block: FeatureBlock, force: str = "auto") -> tuple[XUpdate, str]:
    """Pick the cheapest x-update for a block. Shapes: block (N, d)."""
    name, reason = _choose(*block.whole_shape) if force == "auto" else (force, "asked for")
    if name not in X_UPDATES:
        raise ConfigError(f"x_update: unknown choice {force!r}; choose auto, {', '.join(X_UPDATES)}")
    return X_UPDATES[name](block), reason


def _choose(n: int, d: int) -> tuple[str, str]:
    if d <= n and d <= MAX_EIGEN_SIDE:
        return "gram", f"{d} columns: eigendecomposition of the {d} x {d} Gram matrix"
    if n < d and n <= MAX_EIGEN_SIDE:
        return "kernel", f"more columns than rows: eigendecomposition of the {n} x {n} kernel matrix"
    return "cg", f"{n} x {d} is too large to factorise: warm-started conjugate gradients"


def choose_penalised(
    block: FeatureBlock, regularizer: Regularizer, constraint: Constraint, force: str = "auto"
) -> tuple[XUpdate, str]:
    """Pick the x-update for any regulariser and set. Shapes: block (N, d)."""
    if isinstance(regularizer, SquaredL2) and isinstance(constraint, AllSpace):
        return choose_x_update(block, force)
    if isinstance(regularizer, LogSum):
        ridge, reason = _choose_penalised(block, SquaredL2(), constraint)
        most = _MAJORISED_STEPS if block.shape[1] <= MAX_EIGEN_SIDE else _MATRIX_FREE_STEPS
        return Majorised(ridge, regularizer, most), f"majorised by squared l2: {reason}"
    return _choose_penalised(block, regularizer, constraint)


def _choose_penalised(
    block: FeatureBlock, regularizer: Regularizer, constraint: Constraint
) -> tuple[PenalisedUpdate, str]:
    kind: type[PenalisedUpdate]
    d = block.shape[1]
    if d > MAX_EIGEN_SIDE:
        kind, reason = ProximalGradient, f"{d} columns are too many for a Gram matrix"
    elif isinstance(constraint, Affine):
        kind, reason = GramAffine, f"equations of weights: eigendecomposition of the {d} x {d} Gram matrix"
    elif isinstance(constraint, Ball) or constraint.coupled or not regularizer.separable:
        kind, reason = GramProximalGradient, f"proximal gradient on the {d} x {d} Gram matrix"
    else:
        kind, reason = GramDescent, f"coordinate descent on the {d} x {d} Gram matrix"
    return kind(block, regularizer, constraint), reason


def preparation_bytes(n: int, d: int, force: str = "auto", ridge: bool = True) -> int:
    """Peak memory in bytes of preparing the x-update of an N x d block (estimate).

    ``ridge`` says whether it is for squared l2 without a constraint.
    """
    name = force if ridge else "gram" if d <= MAX_EIGEN_SIDE else "proximal"
    side = {"gram": d, "kernel": n}.get(_choose(n, d)[0] if name == "auto" else name)
    # matrix, eigenvectors, LAPACK workspace and partial Gram matrices
    return 8 * 6 * (d if side is None else side * side)
