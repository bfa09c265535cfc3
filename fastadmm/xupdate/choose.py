"""Choose a party's x-update from the shape of its block, and say why."""

from __future__ import annotations

from fastadmm.blocks import FeatureBlock
from fastadmm.errors import ConfigError
from fastadmm.xupdate.base import XUpdate
from fastadmm.xupdate.conjugate_gradient import ConjugateGradient
from fastadmm.xupdate.gram import GramEigen
from fastadmm.xupdate.kernel_side import KernelEigen

__all__ = ["X_UPDATES", "choose_x_update", "preparation_bytes"]

X_UPDATES: dict[str, type[XUpdate]] = {cls.name: cls for cls in (GramEigen, KernelEigen, ConjugateGradient)}

#: Largest matrix side for a full eigendecomposition: about 10 s on one core, 128 MB.
MAX_EIGEN_SIDE = 4096


def choose_x_update(block: FeatureBlock, force: str = "auto") -> tuple[XUpdate, str]:
    """Pick the cheapest x-update for a block.

    Parameters
    ----------
    block : FeatureBlock of shape (N, d)
    force : {"auto", "gram", "kernel", "cg"}
        "auto" decides by shape; a name overrides.

    Returns
    -------
    update : XUpdate
        Not yet prepared.
    reason : str
        One clause for the log.

    Raises
    ------
    ConfigError
        If ``force`` is unknown.
    """
    n, d = block.shape
    if force != "auto":
        if force not in X_UPDATES:
            raise ConfigError(f"x_update: unknown choice {force!r}; choose auto, {', '.join(X_UPDATES)}")
        return X_UPDATES[force](block), "asked for"
    name, reason = _choose(n, d)
    return X_UPDATES[name](block), reason


def _choose(n: int, d: int) -> tuple[str, str]:
    if d <= n and d <= MAX_EIGEN_SIDE:
        return "gram", f"{d} columns: eigendecomposition of the {d} x {d} Gram matrix"
    if n < d and n <= MAX_EIGEN_SIDE:
        return "kernel", f"more columns than rows: eigendecomposition of the {n} x {n} kernel matrix"
    return "cg", f"{n} x {d} is too large to factorise: warm-started conjugate gradients"


def preparation_bytes(n: int, d: int, force: str = "auto") -> int:
    """Peak memory in bytes of preparing the x-update of an N x d block (estimate)."""
    name = force if force != "auto" else _choose(n, d)[0]
    if name == "cg":
        return 8 * 6 * d
    side = d if name == "gram" else n
    # matrix, eigenvectors, LAPACK workspace and partial Gram matrices
    return 8 * side * side * 6
