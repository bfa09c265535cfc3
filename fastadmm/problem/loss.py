r"""What every loss offers: value, derivative, curvature, conjugate and proximal operator.

All values are **summed** and weighted over samples, ``sum_i s_i l(z_i, y_i)``;
the solver divides by the total weight where it reports a mean. The losses
themselves are in :mod:`fastadmm.problem.losses`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from fastadmm.blocks.block import pass_leaves
from fastadmm.engine.engine import Engine
from fastadmm.engine.rows import address_of

if TYPE_CHECKING:
    from fastadmm.kernels.loss_loops import Kernels

Array = np.ndarray


class Rows(Protocol):
    """Rows of a problem, all or some: targets, weights and offset, each of shape (N,)."""

    @property
    def y(self) -> Array: ...
    @property
    def weight(self) -> Array: ...
    @property
    def offset(self) -> Array: ...


@dataclass(frozen=True)
class Loss(ABC):
    """A loss of one linear predictor per sample.

    A loss is a frozen dataclass; its fields are its parameters. See
    ``CONTRIBUTING.md`` on how to add one.
    """

    name: ClassVar[str]  # name in configurations
    compiled: ClassVar[str]  # module of fastadmm.kernels and name of its kernels there
    task: ClassVar[str]  # what the targets are: 0 and 1, or real numbers
    smooth: ClassVar[bool] = True
    convex: ClassVar[bool] = True  # whether it is convex in z
    probabilistic: ClassVar[bool] = False  # whether a classification loss predicts a probability
    vector: ClassVar[bool] = False  # whether there is one linear predictor per class, see multinomial
    self_concordant: ClassVar[bool] = False
    log_link: ClassVar[bool] = False  # whether the mean is e^z
    limits: ClassVar[dict[str, tuple[float, float]]] = {}  # open interval of each parameter
    in_model: ClassVar[bool] = False
    of_residual: ClassVar[bool] = False  # whether value and conjugate are those of the target zero at z - y
    unit: ClassVar[float] = 1.0  # a typical second derivative for unit weight, where no data tell

    def kernels(self) -> Kernels:
        """The kernels, imported here, so that importing a loss compiles nothing."""
        module, name = self.compiled.split(".")
        found: Kernels = getattr(import_module(f"fastadmm.kernels.{module}"), name)
        return found

    @abstractmethod
    def check_targets(self, y: Array, weight: Array, fit_intercept: bool) -> None:
        """Refuse targets outside the loss's domain. Shapes: y, weight (N,)."""

    def n_outputs(self, y: Array, n_classes: int | None = None) -> int:
        """Linear predictors per sample: 1, or the number of classes of a vector-valued loss.

        Shapes: y (N,).
        """
        return 1

    def penalty_unit(self, y: Array, weight: Array, offset: Array, lam: float) -> float:
        """Natural unit of the penalty r: a typical second derivative for unit weight.

        Shapes: y, weight, offset (N,).
        Scaling: lam per mean loss.
        """
        return self.unit

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

        Shapes: y, weight (N,).
        """
        return -math.inf

    def least_of_all(self, y: Array, weight: Array, engine: Engine) -> float:
        """:meth:`least` of the rows of all workers. Shapes: y, weight (N,)."""

        def piece(rows: tuple[int, int]) -> float:
            return self.least(y[slice(*rows)], weight[slice(*rows)])

        return float(engine.sums(piece, engine.leaves(len(y))))

    def best_intercept(self, base: Array, y: Array, weight: Array) -> float | None:
        """Minimiser in b of the loss at ``base + b``, where a formula gives it; else None.

        Shapes: base, y, weight (N,).
        """
        return None

    def rounding_norm(self, u: Array, rows: Rows, norms: tuple[float, float], engine: Engine) -> float:
        """Norm over rows of what rounding in a loss or its gradient is relative to, beside their own size.

        ``norms``: of u and of the weights. Shapes: u (N,).
        """
        return norms[1]

    def most_curvature(self, z: Array, rows: Rows, norm: float, off: float, engine: Engine) -> float:
        """Largest weighted second derivative of a row, where z is off by at most so much. Shapes: z (N,)."""
        if self.gradient_lipschitz is not None:
            return self.gradient_lipschitz * norm
        if off == 0.0:
            return 0.0
        # Self-concordant: over a step it grows at most by its exponential.
        bend = engine.each_largest([self.curvature(z, rows.y, rows.weight, np.empty_like(z), engine)])[0]
        return float(bend) * math.exp(min(off, 700.0)) * (1.0 + 1e-14)

    def slope_change(self, z: Array, rows: Rows, norm: float, off: float, engine: Engine) -> float:
        """Norm of what slopes change by, where z is off by at most so much: of rows near a kink."""
        ends = np.empty_like(z), np.empty_like(z)
        for side, slope in zip((-off, off), ends):
            self.evaluate(engine.each(np.add, z, side), rows.y, rows.weight, slope, engine)
        return float(engine.norm(engine.each(np.subtract, ends[1], ends[0])))

    def intercept_of_mean(self, mean: float) -> float:
        """The best intercept where it is all of the predictor, if the targets' mean tells it; else 0."""
        return 0.0

    @property
    def has_best_intercept(self) -> bool:
        """Whether :meth:`best_intercept` is a formula."""
        return type(self).best_intercept is not Loss.best_intercept

    def smoothed(self, width: float) -> Loss | None:
        """Smooth the kinks of a loss that has them; None for one without such a form."""
        return None

    def bends(self, y: Array) -> tuple[Array, Array] | None:
        """Ends of the interval of z in which each sample's loss bends; None where it does everywhere.

        Shapes: y (N,).
        """
        return None

    def kernel_arguments(self) -> tuple[float, ...]:
        """What the kernels take between the weights and their outputs."""
        return tuple(self.parameters.values())

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

        Shapes: z, gradient (N,) or (C N,); y, weight (N,).
        """
        (loss,) = engine.together(self.value_parts(z, y, weight, gradient, engine))
        return float(loss)

    def value_parts(self, z: Array, y: Array, weight: Array, gradient: Array, engine: Engine) -> list[Any]:
        """What :meth:`evaluate` adds up, for :meth:`Engine.together`; writes the gradient at once."""
        kernel, extra = self.kernels().evaluate, self.kernel_arguments()
        given = self._rows(z, y), y, weight, extra, self._rows(gradient, y)
        return engine.returned_parts(kernel, engine.leaves(len(y)), 1, *given)

    def _rows(self, v: Array, y: Array) -> Array:
        """A vector as kernels take it: of several predictors class by class."""
        return v.reshape(-1, len(y)) if self.vector else v

    def _address(self, kernel: Any) -> Any:
        """Of a kernel that takes predictors, targets, weights, parameters, an output and a range of rows."""
        some = np.empty(0)
        return address_of(kernel, (some, some, some, self.kernel_arguments(), some, 0, 0))

    def measure_parts(
        self, rows: Rows, total: Array, intercept: float, z: Array, gradient: Array, engine: Engine
    ) -> list[Any]:
        """Loss at ``rows.offset + total + intercept``, and sums of the gradient and of its absolute values.

        For :meth:`Engine.together`.
        """
        from fastadmm.kernels.loss_loops import loss_at

        evaluate, extra = self._address(self.kernels().evaluate), self.kernel_arguments()
        given = evaluate, rows.offset, total, float(intercept), rows.y, rows.weight, extra, z, gradient
        return engine.kernel_parts(loss_at, engine.leaves(len(total)), (3,), *given)

    def measure(self, rows: Rows, total: Array, intercept: float, gradient: Array, engine: Engine) -> float:
        """Summed loss as of :meth:`measure_parts`, of one predictor per sample; writes the gradient."""
        z = engine.vector(len(total))
        parts = self.measure_parts(rows, total, intercept, z, gradient, engine)
        return float(engine.together(parts)[0][0])

    def advance(
        self,
        messages: Array,
        step: Array,
        origin: Array,
        rows: Rows,
        intercept: float,
        total: Array,
        z: Array,
        gradient: Array,
        engine: Engine,
    ) -> tuple[float, Array, tuple[float, float]]:
        """A step in the span of messages, and the loss where it ends.

        Shapes: messages (K, N); step, slopes (K,); origin, total, z, gradient (N,).
        """
        extra, size = self.kernel_arguments(), len(step)
        given = rows.offset, intercept, rows.y, rows.weight, extra, total, z, gradient
        leaves, kernel = pass_leaves(len(total), size, engine), self.kernels().advance
        found = engine.sum_over_rows(kernel, leaves, (size + 3,), messages, step, origin, *given)
        loss, *sums = found[size:].tolist()
        return loss, found[:size], (sums[0], sums[1])

    def curvature(self, z: Array, y: Array, weight: Array, out: Array, engine: Engine) -> Array:
        """Write the weighted second derivative at z to ``out``; returns ``out``.

        Shapes: z, out (N,) or, of the Hessian's diagonal, (C N,); y, weight (N,).
        """
        kernel, extra = self.kernels().curvature, self.kernel_arguments()
        given = self._rows(z, y), y, weight, extra, self._rows(out, y)
        engine.over_rows(kernel, engine.leaves(len(y)), *given)
        return out

    def curvature_parts(
        self, rows: Rows, total: Array, b: float, bend: Array, engine: Engine, root: Array | None = None
    ) -> list[Any]:
        """Sums of the curvature at ``rows.offset + total + b``, twice, for :meth:`Engine.together`.

        Shapes: bend, root (N,).
        """
        from fastadmm.kernels.loss_loops import curvature_at

        curve, extra = self._address(self.kernels().curvature), self.kernel_arguments()
        wanted = bend[:0] if root is None else root
        given = curve, rows.offset, total, float(b), rows.y, rows.weight, extra, bend, wanted
        return engine.kernel_parts(curvature_at, engine.leaves(len(total)), (2,), *given)

    def prox(
        self, v: Array, shift: Array, rows: Rows, penalty: float, z: Array, gradient: Array, engine: Engine
    ) -> tuple[float, float]:
        """Minimise ``s l(z + shift) + r/2 (z - v)^2`` for each sample, in place.

        Shapes: v, shift, z, gradient (N,).
        Scaling: penalty summed scaling.
        """
        kernel, extra = self.kernels().prox, self.kernel_arguments()
        given = v, shift, rows.y, rows.weight, extra, float(penalty), z, gradient
        ((first, second),) = engine.together(engine.returned_parts(kernel, engine.leaves(len(z)), 2, *given))
        return float(first), float(second)

    def conjugate(self, u: Array, y: Array, weight: Array, engine: Engine) -> float:
        """Summed conjugate ``sum_i (s_i l)*(u_i)``; infinite outside its domain.

        Shapes: u (N,) or (C N,); y, weight (N,).
        """
        (value,) = engine.together(self.conjugate_parts(u, y, weight, engine))
        return float(value)

    def conjugate_parts(self, u: Array, y: Array, weight: Array, engine: Engine) -> list[Any]:
        """What :meth:`conjugate` adds up, for :meth:`Engine.together`."""
        kernel, extra = self.kernels().conjugate, self.kernel_arguments()
        return engine.returned_parts(kernel, engine.leaves(len(y)), 1, self._rows(u, y), y, weight, extra)
