r"""What every loss offers: value, derivative, curvature, conjugate and proximal operator.

All values are **summed** and weighted over samples, ``sum_i s_i l(z_i, y_i)``;
the solver divides by the total weight where it reports a mean. The losses
themselves are in :mod:`fastadmm.problem.losses`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fastadmm.blocks.block import pass_leaves
from fastadmm.engine.engine import Engine
from fastadmm.engine.rows import address_of

__all__ = ["Kernels", "Loss"]

Array = np.ndarray

#: Of kernels over arrays of one kind, by types of their loss's parameters.
_ADDRESSES: dict[Any, Any] = {}


class Kernels(NamedTuple):
    """The compiled functions of a loss; each works on a row range, but for ``prox_of_row``.

    A non-convex loss needs no ``advance``; without ``prox_of_row`` there is no coordinate ascent on rows.
    """

    evaluate: Any
    curvature: Any
    prox: Any
    conjugate: Any
    advance: Any = None
    prox_of_row: Any = None


@dataclass(frozen=True)
class Loss(ABC):
    """A loss of one linear predictor per sample.

    A loss is a frozen dataclass; its fields are its parameters. See
    ``docs/losses.md`` on how to add one.

    Attributes
    ----------
    name : str
        Name in configurations.
    task : {"classification", "regression"}
        What the targets are: 0 and 1, or real numbers.
    smooth : bool
        Whether the derivative is continuous: what the scheme ``subspace`` and
        the gap at a gradient need.
    convex : bool
        Whether it is convex in z. Without, there is no certificate: its
        conjugate is infinite but at zero, and ``prox`` is the global minimiser.
    probabilistic : bool
        Whether a classification loss predicts a probability.
    vector : bool
        Whether there is one linear predictor per class, see :mod:`fastadmm.problem.multinomial`.
    self_concordant : bool
        Whether the third derivative is at most as large as the second: over a step t this grows at most by
        ``exp(t)`` (Bach 2010, *Self-concordant analysis for logistic regression*).
    limits : dict of str to (float, float)
        Open interval of each parameter.
    in_model : bool
        Whether a model needs the parameter to be judged: it is then kept with the name.
    of_residual : bool
        Whether value and conjugate are those of the target zero at z - y.
    """

    name: ClassVar[str]
    task: ClassVar[str]
    smooth: ClassVar[bool] = True
    convex: ClassVar[bool] = True
    probabilistic: ClassVar[bool] = False
    vector: ClassVar[bool] = False
    self_concordant: ClassVar[bool] = False
    limits: ClassVar[dict[str, tuple[float, float]]] = {}
    in_model: ClassVar[bool] = False
    of_residual: ClassVar[bool] = False

    @abstractmethod
    def kernels(self) -> Kernels:
        """The kernels, imported here, so that importing a loss compiles nothing."""

    @abstractmethod
    def check_targets(self, y: Array, weight: Array, fit_intercept: bool) -> None:
        """Refuse targets outside the loss's domain.

        Parameters
        ----------
        y, weight : ndarray of shape (N,)
            Finite targets; sample weights, not negative.
        fit_intercept : bool

        Raises
        ------
        InputError
        """

    def n_outputs(self, y: Array, n_classes: int | None = None) -> int:
        """Linear predictors per sample: 1, or the number of classes of a vector-valued loss.

        Parameters
        ----------
        y : ndarray of shape (N,)
        n_classes : int, optional
        """
        return 1

    @abstractmethod
    def penalty_unit(self, y: Array, weight: Array, offset: Array, lam: float) -> float:
        """Natural unit of the penalty r: a typical second derivative for unit weight.

        Parameters
        ----------
        y, weight, offset : ndarray of shape (N,)
        lam : float
            Regularisation per mean loss.

        Returns
        -------
        float
            Positive.
        """

    @property
    def gradient_lipschitz(self) -> float | None:
        """Lipschitz constant of the derivative, for unit weight; None where there is none."""
        return None

    @property
    def weak_convexity(self) -> float:
        """Smallest rho for which adding ``rho z^2 / 2`` makes the loss convex; 0 for a convex one."""
        return 0.0

    def start_intercept(self, y: Array, weight: Array, offset: Array) -> float:
        """Intercept that a non-convex loss starts from; arguments of shape (N,)."""
        return 0.0

    def convex_start(self) -> Loss | None:
        """Convex loss whose minimiser a non-convex one may start from; None for a convex one."""
        return None

    def link(self, mean: float) -> float | None:
        """Linear predictor of a mean, where twice the loss above its least value is a deviance; else None."""
        return None

    def predict_mean(self, z: Array) -> Array:
        """Inverse link: linear predictor z of shape (N,) to expected target (or score)."""
        return np.array(z, dtype=np.float64)

    def least(self, y: Array, weight: Array) -> float:
        """Lower bound of the summed loss over all predictors; minus infinity where none is known.

        Parameters
        ----------
        y, weight : ndarray of shape (N,)
            Targets, sample weights.
        """
        return -math.inf

    def least_of_all(self, y: Array, weight: Array, engine: Engine) -> float:
        """:meth:`least` of the rows of all workers.

        Parameters
        ----------
        y, weight : ndarray of shape (N,)
            Targets, sample weights.
        engine : Engine
        """

        def piece(rows: tuple[int, int]) -> float:
            return self.least(y[slice(*rows)], weight[slice(*rows)])

        return float(engine.sums(piece, engine.leaves(len(y)), light=True))

    def best_intercept(self, base: Array, y: Array, weight: Array) -> float | None:
        """Minimiser in b of the loss at ``base + b``, where a formula gives it; else None.

        Parameters
        ----------
        base, y, weight : ndarray of shape (N,)
            Linear predictor without intercept, targets, sample weights: of all rows, wherever they are.
        """
        return None

    def rounding_norm(
        self, u: Array, y: Array, weight: Array, norms: tuple[float, float], engine: Engine
    ) -> float:
        """Norm over rows of what rounding in a loss or its gradient is relative to, beside their own size.

        Parameters
        ----------
        u, y, weight : ndarray of shape (N,)
            Dual vector, targets, sample weights.
        norms : (float, float)
            Of the dual vector and the weights.
        engine : Engine
        """
        return norms[1]

    def most_curvature(
        self, z: Array, y: Array, weight: Array, norm: float, off: float, engine: Engine
    ) -> float:
        """Largest weighted second derivative of a row, where z is off by at most so much.

        Parameters
        ----------
        z, y, weight : ndarray of shape (N,)
            Linear predictor, targets, sample weights.
        norm : float
            Of the weights: none exceeds it.
        off : float
        engine : Engine
        """
        if self.gradient_lipschitz is not None:
            return self.gradient_lipschitz * norm
        if off == 0.0:
            return 0.0
        # Self-concordant: over a step it grows at most by its exponential.
        bend = engine.each_largest([self.curvature(z, y, weight, np.empty_like(z), engine)])[0]
        return float(bend) * math.exp(min(off, 700.0)) * (1.0 + 1e-14)

    def slope_change(
        self, z: Array, y: Array, weight: Array, norm: float, off: float, engine: Engine
    ) -> float:
        """Norm of what slopes change by, where z is off by at most so much: of rows near a kink.

        Parameters
        ----------
        z, y, weight, norm, off, engine
            As of :meth:`most_curvature`.
        """
        ends = np.empty_like(z), np.empty_like(z)
        for side, slope in zip((-off, off), ends):
            self.evaluate(engine.each(np.add, z, side), y, weight, slope, engine)
        return float(engine.norm(engine.each(np.subtract, ends[1], ends[0])))

    def intercept_of_mean(self, mean: float) -> float:
        """The best intercept where it is all of the predictor, if the targets' mean tells it; else 0."""
        return 0.0

    @property
    def has_best_intercept(self) -> bool:
        """Whether :meth:`best_intercept` is a formula."""
        return type(self).best_intercept is not Loss.best_intercept

    def smoothed(self, width: float) -> Loss | None:
        """Smooth the kinks of a loss that has them; None for one without such a form.

        Parameters
        ----------
        width : float
            Curvature of the conjugate: in the unit of the loss itself, for slopes up to 1.
        """
        return None

    def bends(self, y: Array) -> tuple[Array, Array] | None:
        """Ends of the interval of z in which each sample's loss bends; None where it does everywhere.

        Parameters
        ----------
        y : ndarray of shape (N,)
            Targets.
        """
        return None

    def kernel_arguments(self) -> tuple[float, ...]:
        """What the kernels take between the weights and their outputs."""
        return ()

    @property
    def parameters(self) -> dict[str, float]:
        """Parameters by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def text(self) -> str:
        """How models and results name it: with ``:value`` where a model needs the parameter."""
        return ":".join([self.name, *(repr(v) for v in self.parameters.values() if self.in_model)])

    def evaluate(self, z: Array, y: Array, weight: Array, gradient: Array, engine: Engine) -> float:
        """Summed loss at z; writes the weighted gradient (where there is a kink, a subgradient).

        Parameters
        ----------
        z, y, weight : ndarray of shape (N,)
            Linear predictor, targets, sample weights.
        gradient : ndarray of shape (N,)
            Output.
        engine : Engine
            Runs the row ranges.

        Returns
        -------
        float
            ``sum_i s_i l(z_i, y_i)``.
        """
        (loss,) = engine.together(self.value_parts(z, y, weight, gradient, engine))
        return float(loss)

    def value_parts(self, z: Array, y: Array, weight: Array, gradient: Array, engine: Engine) -> list[Any]:
        """What :meth:`evaluate` adds up, for :meth:`Engine.together`; writes the gradient at once."""
        kernel, extra = self.kernels().evaluate, self.kernel_arguments()
        return engine.returned_parts(kernel, engine.leaves(len(z)), 1, z, y, weight, *extra, gradient)

    def _address(self, kernel: Any) -> Any:
        """Of a kernel that takes predictors, targets, weights, parameters, an output and a range of rows."""
        extra = self.kernel_arguments()
        key = kernel, *map(type, extra)
        if key not in _ADDRESSES:
            some = np.empty(0)
            _ADDRESSES[key] = address_of(kernel, (some, some, some, *extra, some, 0, 0))
        return _ADDRESSES[key]

    def measure_parts(
        self,
        base: Array,
        total: Array,
        intercept: float,
        y: Array,
        weight: Array,
        z: Array,
        gradient: Array,
        engine: Engine,
    ) -> list[Any]:
        """Loss, and sums of the gradient and of its absolute values, for :meth:`Engine.together`.

        Parameters
        ----------
        base, total, intercept, y, weight, z, gradient, engine
            As of :meth:`advance`, with the sum of messages that there is.
        """
        from fastadmm.kernels.loss_at import loss_at

        evaluate, extra = self._address(self.kernels().evaluate), self.kernel_arguments()
        given = evaluate, base, total, float(intercept), y, weight, extra, z, gradient
        return engine.kernel_parts(loss_at, engine.leaves(len(y)), (3,), *given)

    def measure(
        self,
        base: Array,
        total: Array,
        intercept: float,
        y: Array,
        weight: Array,
        gradient: Array,
        engine: Engine,
    ) -> float:
        """Summed loss at ``base + total + intercept``, of one predictor per sample; writes the gradient.

        Parameters
        ----------
        base, total, intercept, y, weight, gradient, engine
            As of :meth:`advance`.
        """
        z = engine.vector(len(total))
        parts = self.measure_parts(base, total, intercept, y, weight, z, gradient, engine)
        return float(engine.together(parts)[0][0])

    def advance(
        self,
        messages: Array | tuple[Array, ...],
        step: Array,
        origin: Array,
        base: Array,
        intercept: float,
        y: Array,
        weight: Array,
        total: Array,
        z: Array,
        gradient: Array,
        engine: Engine,
    ) -> tuple[float, Array, tuple[float, float]]:
        """A step in the span of messages, and the loss where it ends.

        Parameters
        ----------
        messages : ndarray of shape (K, N), or tuple of ndarray of shape (N, d_m)
            V, or matrices of which it is the columns, K of them together.
        step : ndarray of shape (K,)
        origin, base : ndarray of shape (N,)
            Sum of messages before the step; offset.
        intercept : float
            After the step.
        y, weight : ndarray of shape (N,)
            Targets, sample weights.
        total, z, gradient : ndarray of shape (N,)
            Outputs: sum of messages, linear predictor, weighted gradient.
        engine : Engine
            Runs the row ranges.

        Returns
        -------
        loss : float
            Summed.
        slopes : ndarray of shape (K,)
            Products of messages and gradient.
        sums : tuple of float
            Of the gradient and of its absolute values.
        """
        extra, size = self.kernel_arguments(), len(step)
        arguments = (messages, step, origin, base, intercept, y, weight, *extra, total, z, gradient)
        leaves = pass_leaves(len(y), size, engine)
        found = engine.sum_over_rows(self.kernels().advance, leaves, (size + 3,), *arguments)
        loss, *sums = found[size:].tolist()
        return loss, found[:size], (sums[0], sums[1])

    def curvature(self, z: Array, y: Array, weight: Array, out: Array, engine: Engine) -> Array:
        """Write the weighted second derivative at z to ``out``, all of shape (N,); returns ``out``."""
        kernel, extra = self.kernels().curvature, self.kernel_arguments()
        engine.over_rows(kernel, engine.leaves(len(z)), z, y, weight, *extra, out)
        return out

    def curvature_parts(
        self,
        base: Array,
        total: Array,
        intercept: float,
        y: Array,
        weight: Array,
        bend: Array,
        engine: Engine,
        root: Array | None = None,
    ) -> list[Any]:
        """Sums of the curvature at ``base + total + intercept``, twice, for :meth:`Engine.together`.

        Parameters
        ----------
        base, total, intercept, y, weight, engine
            As of :meth:`advance`.
        bend, root : ndarray of shape (N,)
            Outputs: the weighted second derivative and, if it is wanted, its square root.
        """
        from fastadmm.kernels.loss_at import curvature_at

        curve, extra = self._address(self.kernels().curvature), self.kernel_arguments()
        wanted = bend[:0] if root is None else root
        given = curve, base, total, float(intercept), y, weight, extra, bend, wanted
        return engine.kernel_parts(curvature_at, engine.leaves(len(y)), (2,), *given)

    def prox(
        self,
        v: Array,
        shift: Array,
        y: Array,
        weight: Array,
        penalty: float,
        z: Array,
        gradient: Array,
        engine: Engine,
    ) -> tuple[float, float]:
        """Minimise ``s l(z + shift) + r/2 (z - v)^2`` for each sample, in place.

        Parameters
        ----------
        v, shift, y, weight : ndarray of shape (N,)
            Proximal centre, offset plus intercept, targets, sample weights.
        penalty : float
            r in the summed scaling.
        z : ndarray of shape (N,)
            In: warm start. Out: the minimiser.
        gradient : ndarray of shape (N,)
            Out: ``s l'(z + shift)``, or the element ``r (v - z)`` of the
            subdifferential; always in the domain of the conjugate.
        engine : Engine
            Runs the row ranges.

        Returns
        -------
        tuple of float
            Sum of the gradients; sum of their derivatives in the shift.
        """
        kernel, extra = self.kernels().prox, self.kernel_arguments()
        given = v, shift, y, weight, *extra, float(penalty), z, gradient
        ((first, second),) = engine.together(engine.returned_parts(kernel, engine.leaves(len(z)), 2, *given))
        return float(first), float(second)

    def conjugate(self, u: Array, y: Array, weight: Array, engine: Engine) -> float:
        """Summed conjugate ``sum_i (s_i l)*(u_i)``; infinite outside its domain.

        Parameters
        ----------
        u, y, weight : ndarray of shape (N,)
            Dual vector, targets, sample weights.
        engine : Engine
            Runs the row ranges.
        """
        (value,) = engine.together(self.conjugate_parts(u, y, weight, engine))
        return float(value)

    def conjugate_parts(self, u: Array, y: Array, weight: Array, engine: Engine) -> list[Any]:
        """What :meth:`conjugate` adds up, for :meth:`Engine.together`.

        Parameters
        ----------
        u, y, weight, engine
            As of :meth:`conjugate`.
        """
        kernel, extra = self.kernels().conjugate, self.kernel_arguments()
        return engine.returned_parts(kernel, engine.leaves(len(u)), 1, u, y, weight, *extra)
