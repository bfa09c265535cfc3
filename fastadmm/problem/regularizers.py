r"""The regularisers R of a party's weights; their table is in ``docs/losses.md``.

The objective has :math:`\lambda \sum_m R_m(x_m)` **per mean loss**; parties and
coordinator work in the summed scaling, :math:`\lambda W R_m`. Every regulariser is

.. math:: R(x) = \alpha\, \Omega(x) + \tfrac\beta2 \|x\|^2

with a positively homogeneous :math:`\Omega` (a norm) and two shares. That is all that proximal operators and
certificates need: see :mod:`fastadmm.problem.penalty`. The exception is :class:`LogSum`, which is smooth and
not convex.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.other_names import choose_instead

Array = np.ndarray


@dataclass(frozen=True)
class Regularizer(ABC):
    r""":math:`R(x) = \alpha \Omega(x) + \tfrac\beta2 \|x\|^2`."""

    name: ClassVar[str]  # name in configurations
    separable: ClassVar[bool] = True  # whether :math:`\Omega` is the l1 norm, a sum over columns
    convex: ClassVar[bool] = True  # whether it is convex; one that is not has no certificate

    @property
    def text(self) -> str:
        """As configurations write it, where a parameter is no key of its own."""
        return self.name

    @property
    @abstractmethod
    def shares(self) -> tuple[float, float]:
        r""":math:`(\alpha, \beta)`."""

    def of_party(self, index: int, n_columns: int, name: str) -> Regularizer:
        """R_m for a party; raises ConfigError where a parameter does not fit its columns."""
        return self

    def norm(self, x: Array) -> float:
        r""":math:`\Omega(x)` for x of shape (d,)."""
        return float(np.abs(x).sum())

    def dual_norm(self, q: Array) -> float:
        r""":math:`\Omega^\circ(q) = \max \{\langle q, x\rangle : \Omega(x) \le 1\}` for q of shape (d,)."""
        return float(np.abs(q).max())

    def shrink(self, v: Array, threshold: Any) -> Array:
        r"""Minimise :math:`t\,\Omega(x) + \tfrac12 \|x - v\|^2`; v and result of shape (d,).

        Its norm tells more: the conjugate of
        :math:`t\,\Omega + \tfrac c2\|\cdot\|^2` is :math:`\|\mathrm{shrink}(q, t)\|^2 / (2c)`.
        """
        return np.sign(v) * np.maximum(np.abs(v) - threshold, 0.0)

    def at_kink(self, x: Array) -> Array:
        r"""Which weights sit where :math:`\Omega` has a kink; bool of shape (d,). Shapes: x (d,)."""
        return x == 0.0

    def passes_zero(self, x: Array, y: Array) -> Array:
        r"""Where weights on the way from x to y pass a kink of :math:`\Omega`, y at 1; infinite where not.

        Shapes: x, y (d,).
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(x * y < 0.0, x / (x - y), np.inf)

    def stiffness(self, x: Array) -> Array:
        r"""Curvatures of parabolas that touch the terms of :math:`\Omega` at x, least at zero; shape (d,).

        The parabola :math:`x_j^2 / (2 |a|) + |a| / 2` lies above :math:`|x_j|` and touches it at a.

        Shapes: x (d,).
        """
        size = np.abs(x)
        return np.divide(1.0, size, out=np.zeros_like(size), where=size > 0.0)

    def bending(self, x: Array, points: Array) -> tuple[Array, Array]:
        r"""Slope and curvature of :math:`\Omega` at x between points of its face, where it is smooth.

        Shapes: x (d,); points (K, d); slope (K,); curvature (K, K).
        """
        return points @ np.sign(x), np.zeros((len(points), len(points)))

    def value(self, x: Array) -> float:
        """R(x) for x of shape (d,)."""
        first, second = self.shares
        value = first * self.norm(x) if first else 0.0
        return value + 0.5 * second * float(x @ x) if second else value

    def prox(self, v: Array, step: Any) -> Array:
        r"""Minimise :math:`\text{step}\cdot R(x) + \tfrac12 \|x - v\|^2`; v and result of shape (d,).

        Where R is a sum over columns, each may have a step of its own: of shape (d,) then.
        """
        first, second = self.shares
        return self.shrink(v, step * first) / (1.0 + step * second)


class SquaredL2(Regularizer):
    r""":math:`\tfrac12 \|x\|^2` (ridge)."""

    name: ClassVar[str] = "l2"
    shares: ClassVar[tuple[float, float]] = (0.0, 1.0)


class L1(Regularizer):
    r""":math:`\|x\|_1` (lasso)."""

    name: ClassVar[str] = "l1"
    shares: ClassVar[tuple[float, float]] = (1.0, 0.0)


@dataclass(frozen=True)
class ElasticNet(Regularizer):
    r""":math:`\rho \|x\|_1 + \tfrac{1 - \rho}{2} \|x\|^2`."""

    name: ClassVar[str] = "elastic_net"
    l1_ratio: float = 0.5

    @property
    def shares(self) -> tuple[float, float]:
        return self.l1_ratio, 1.0 - self.l1_ratio


class NoRegularizer(Regularizer):
    """Zero. Without a bounded set the gap to the best of all models is infinite."""

    name: ClassVar[str] = "none"
    shares: ClassVar[tuple[float, float]] = (0.0, 0.0)


@dataclass(frozen=True)
class LogSum(Regularizer):
    r""":math:`\tfrac{c^2}{2} \sum_j \log(1 + x_j^2 / c^2)`: squared l2 that hardly shrinks large weights.

    Smooth, not convex: its second derivative lies between -1/8 and 1. It is
    majorised by squared l2 plus a linear term, see
    :mod:`fastadmm.parties.xupdate.majorised`.
    """

    name: ClassVar[str] = "log_sum"
    convex: ClassVar[bool] = False
    shares: ClassVar[tuple[float, float]] = (0.0, 1.0)  # of its majoriser
    width: float = 1.0

    @property
    def text(self) -> str:
        return f"{self.name}:{self.width!r}"

    def value(self, x: Array) -> float:
        c = self.width
        return 0.5 * c * c * float(np.log1p(np.square(x / c)).sum())

    def gradient(self, x: Array) -> Array:
        """Derivative at x of shape (d,)."""
        return x / (1.0 + np.square(x / self.width))

    def curvatures(self, x: Array) -> tuple[Array, Array]:
        """Second derivatives at x, and curvatures of the even parabolas above R that touch it there.

        The latter are between 0 and 1, for log_sum is concave in x²; all of shape (d,).
        """
        above = 1.0 / (1.0 + np.square(x / self.width))
        return above * (2.0 * above - 1.0), above

    def prox(self, v: Array, step: float) -> Array:
        raise NotImplementedError("log_sum is smooth: its gradient takes the place of a proximal operator")


@dataclass(frozen=True)
class GroupLasso(Regularizer):
    r""":math:`\sum_g \sqrt{d_g}\, \|x_g\|` over groups g of d_g columns."""

    name: ClassVar[str] = "group_lasso"
    separable: ClassVar[bool] = False
    groups: tuple[tuple[tuple[int, ...], ...] | None, ...] | None = None
    shares: ClassVar[tuple[float, float]] = (1.0, 0.0)

    def of_party(self, index: int, n_columns: int, name: str) -> GroupLasso:
        mine = None
        if self.groups is not None:
            mine = self.groups[index]
        if mine is None:
            mine = (tuple(range(n_columns)),)
        columns = sorted(j for group in mine for j in group)
        if columns != list(range(n_columns)) or not all(mine):
            raise ConfigError(
                f"groups: {name}: the groups must hold each of the columns 0 to {n_columns - 1} exactly once"
            )
        return GroupLasso((mine,))

    @cached_property
    def members(self) -> list[Array]:
        """Column numbers of each group of a party (after :meth:`of_party`)."""
        if self.groups is None or len(self.groups) != 1 or self.groups[0] is None:
            raise ConfigError("groups: these are of several parties; take those of one with of_party")
        return [np.array(group, dtype=np.int64) for group in self.groups[0]]

    @cached_property
    def _labels(self) -> Array:
        labels = np.empty(sum(map(len, self.members)), dtype=np.int64)
        for g, columns in enumerate(self.members):
            labels[columns] = g
        return labels

    @cached_property
    def factors(self) -> Array:
        r""":math:`\sqrt{d_g}` of each group."""
        return np.sqrt([float(len(columns)) for columns in self.members])

    def _norms(self, x: Array) -> Array:
        return np.sqrt(np.bincount(self._labels, x * x, minlength=len(self.factors)))

    def norm(self, x: Array) -> float:
        return float(self.factors @ self._norms(x))

    def dual_norm(self, q: Array) -> float:
        return float((self._norms(q) / self.factors).max())

    def at_kink(self, x: Array) -> Array:
        return self._norms(x)[self._labels] == 0.0

    def passes_zero(self, x: Array, y: Array) -> Array:
        # A group turns around: nowhere on the way is it zero, but near its kink.
        size = np.bincount(self._labels, x * x, minlength=len(self.factors))
        along = np.bincount(self._labels, x * y, minlength=len(self.factors))
        back = (along < 0.0) & (size > 0.0)
        at = np.divide(size, size - along, out=np.full_like(size, np.inf), where=back)
        return at[self._labels]

    def stiffness(self, x: Array) -> Array:
        norms = self._norms(x)
        return np.divide(self.factors, norms, out=np.zeros_like(norms), where=norms > 0.0)[self._labels]

    def bending(self, x: Array, points: Array) -> tuple[Array, Array]:
        norms = self._norms(x)
        inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0.0)
        unit = x * inverse[self._labels]
        parts = np.stack([(points[:, g] * unit[g]).sum(axis=1) for g in self.members], axis=1)
        scale = np.sqrt(self.factors * inverse)
        # <p_j, p_k> / |x_g| less what lies along x_g, each group times its factor
        across = (points - parts[:, self._labels] * unit) * scale[self._labels]
        return parts @ self.factors, across @ across.T

    def shrink(self, v: Array, threshold: float) -> Array:
        norms = self._norms(v)
        left = np.maximum(norms - threshold * self.factors, 0.0)
        return v * np.divide(left, norms, out=np.zeros_like(norms), where=norms > 0.0)[self._labels]


#: Every regulariser by name, with default parameters.
REGULARIZERS: dict[str, Regularizer] = {
    r.name: r for r in (SquaredL2(), L1(), ElasticNet(), GroupLasso(), NoRegularizer(), LogSum())
}

_PARAMETERS = {"elastic_net": "l1_ratio", "group_lasso": "groups", "log_sum": "width"}


def get_regularizer(
    regularizer: str | Regularizer, parameters: Mapping[str, Any] | None = None
) -> Regularizer:
    """Regulariser of a given name."""
    given = dict(parameters or {})
    if isinstance(regularizer, Regularizer):
        if given:
            raise ConfigError("regularizer: an object has its parameters already; leave parameters out")
        return regularizer
    if isinstance(regularizer, str) and regularizer.startswith(f"{LogSum.name}:"):
        regularizer, _, width = regularizer.partition(":")
        given.setdefault("width", width)
    if not isinstance(regularizer, str) or regularizer not in REGULARIZERS:
        raise ConfigError(
            f"regularizer: unknown regularizer {regularizer!r}; " + choose_instead(regularizer, REGULARIZERS)
        )
    known = _PARAMETERS.get(regularizer)
    for key in given:
        if key != known:
            others = ", ".join(f"{name} has {parameter}" for name, parameter in _PARAMETERS.items())
            raise ConfigError(f"regularizer: {regularizer} has no parameter {key!r}; {others}")
    if "l1_ratio" in given:
        asked = "must be above 0 and at most 1; for 0 choose regularizer l2"
        return ElasticNet(number_up_to("l1_ratio: ", given["l1_ratio"], 0.0, 1.0, asked))
    if "width" in given:
        what, asked = "regularizer: log_sum: width ", "must be positive and finite"
        return LogSum(number_up_to(what, given["width"], 0.0, sys.float_info.max, asked))
    if given.get("groups") is not None:
        return GroupLasso(_groups(given["groups"]))
    return REGULARIZERS[regularizer]


def number_up_to(what: str, value: Any, low: float, most: float, asked: str) -> float:
    """A number above one, and at most another."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{what}{value!r} is not a number") from None
    if not low < number <= most:
        raise ConfigError(f"{what}{number!r} {asked}")
    return number


def _groups(value: Any) -> tuple[tuple[tuple[int, ...], ...] | None, ...]:
    try:
        return tuple(
            None if party is None else tuple(tuple(int(j) for j in group) for group in party)
            for party in value
        )
    except (TypeError, ValueError):
        raise ConfigError(
            "groups: give for each party None or a list of groups, each a list of column numbers"
        ) from None
