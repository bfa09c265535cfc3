r"""A party in a subspace run: answers a loss gradient with one new direction.

The same weighted proximal oracle as :class:`fastadmm.parties.proximal.Party`, with a
penalty per sample: for the curvature metric :math:`W = \mathrm{diag}(\ell'')`
the block Newton direction is the paper's x-update with :math:`r_i = \ell''_i`.
The party keeps its directions X_m; the coordinator only sees their images
:math:`v = D_m d`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg.blas import ddot, dgemv

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.answering import Unanswerable, checked
from fastadmm.engine.engine import Engine, SomeRowsEngine
from fastadmm.parties.direction_span import OwnDirections
from fastadmm.parties.proximal import Opened
from fastadmm.parties.reflection import reflect_rows, reflections
from fastadmm.problem.constraints import AllSpace
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.regularizers import SquaredL2


def cholesky(matrix: np.ndarray) -> np.ndarray | None:
    """Factor of a positive definite matrix, in its place; None where it is not positive definite.

    Shapes: matrix, the result (n, n).
    """
    factor, failed = scipy.linalg.lapack.dpotrf(matrix.T, lower=True, overwrite_a=True, clean=False)
    return None if failed else factor


def solve_factorised(factor: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve a system whose matrix :func:`cholesky` has factorised, for ``right`` of shape (n,)."""
    x: np.ndarray = scipy.linalg.lapack.dpotrs(factor, right, lower=True)[0]
    return x


#: Largest Gram or kernel side that is refactorised in every new metric; above it the party sends gradients.
MAX_GRAM_SIDE = 1024

#: The same of a dense block, whose Gram matrix costs some 32 passes over it then, and what counts as dense.
_MAX_DENSE_SIDE, _DENSE = 640, 0.25

#: Bound on the error of a Gram matrix in single precision, as a share of its trace, ten times over.
_ROUGH = 1e-6

#: No more than this share of a direction is rounding.
_NOTHING_NEW = 1e-9

#: Vectors of N numbers that a party works on together.
_TOGETHER = 8

#: Rows of random numbers for each public vector; all rows where these do not show all columns.
_ROWS_PER_VECTOR = 64

#: Products with the curvature that turn random vectors towards its leading eigenvectors.
_POWERS = 2

#: Traces up to this do not overflow there.
_ROUGH_LIMIT = 1e36


def choose_metric_solver(shape: tuple[int, int], density: float = 0.0) -> tuple[str, str]:
    """Which matrix a party factorises in each curvature metric, and why."""
    n, d = shape
    if d <= min(n, MAX_GRAM_SIDE if density < _DENSE else _MAX_DENSE_SIDE):
        return "gram", f"{d} columns: Newton directions from the {d} x {d} Gram matrix"
    if n < d and n <= MAX_GRAM_SIDE:
        return "kernel", f"{n} rows, {d} columns: Newton directions, if any, from the {n} x {n} kernel matrix"
    return "gradient", f"{n} x {d} is too large to refactorise: gradient directions"


def in_single_precision(message: np.ndarray) -> tuple[np.ndarray, float]:
    """A message as it travels in half the bytes. Shapes: message, short (N,)."""
    largest = max(float(message.max(initial=0.0)), -float(message.min(initial=0.0)))
    scale = float(2.0 ** np.floor(np.log2(largest))) if largest > 0.0 else 1.0
    return np.divide(message, scale, dtype=np.float64).astype(np.float32), scale


def public_vectors(numbers: range, rows: range) -> np.ndarray:
    """Random numbers, of shape (k, n), that everybody can make: what is asked about them hides nothing."""
    made = np.empty((len(numbers), len(rows)))
    for row, number in zip(made, numbers):
        generator = np.random.Generator(np.random.Philox(key=number))
        row[:] = generator.random(rows.stop, dtype=np.float32)[rows.start :]
    made -= 0.5
    return made


def public_rows(count: int, n_samples: int) -> int:
    """How many first rows so many public vectors have numbers for: they show most columns, for less."""
    return min(n_samples, _ROWS_PER_VECTOR * count)


class DirectionParty(OwnDirections, Opened):
    """Holder of a feature block and of the directions it has sent.

    Shapes: block (N, d); directions (K, d).
    Scaling: regularization summed scaling.
    """

    family = "subspace"
    needs = ("coefficients",)

    @staticmethod
    def shows_columns(regularizer: str, constraint: str) -> bool:
        return False  # squared l2, whatever a request calls it: answers are functions of D D' alone

    def __init__(self, name: str, block: FeatureBlock, regularization: float, engine: Engine) -> None:
        self.name, self.block, self.regularization, self.engine = name, block, regularization, engine
        self.penalty = PartyPenalty(SquaredL2(), AllSpace(), regularization)
        self.directions = np.zeros((0, block.shape[1]))
        self.kind, self.reason = choose_metric_solver(block.whole_shape, block.density)
        self.metric: np.ndarray | None = None
        self._stale = False
        self._kernel: np.ndarray | None = None
        self._columns: np.ndarray | None = None
        self._factor: np.ndarray | None = None

    def set_metric(self, curvature: np.ndarray) -> None:
        """Take in a new curvature metric.

        Shapes: curvature (N,).
        Scaling: curvature summed scaling.
        """
        self.metric, self._stale = curvature, True  # factorised where it is needed, perhaps elsewhere

    def _can_newton(self) -> bool:
        """Whether there are block Newton directions; factorises in the metric where that is new."""
        if self._stale and self.metric is not None and self.kind != "gradient":
            self._factorise(self.metric)
        self._stale = False
        return self._factor is not None

    def _factorise(self, curvature: np.ndarray) -> None:
        """Factorise the matrix that gives Newton directions."""
        if self.kind == "gram":
            matrix = self.block.upper_gram(self.engine, curvature, self._rough_is_enough(curvature))
            matrix[np.diag_indices(len(matrix))] += self.regularization
        else:
            if self._kernel is None:
                self._kernel = self.block.kernel_gram()
            matrix = self._kernel.copy()
            matrix[np.diag_indices(len(matrix))] += self.regularization / curvature
        # Columns so large that rounding exceeds the regulariser: block gradients need no factor.
        self._factor = cholesky(matrix)

    def _rough_is_enough(self, curvature: np.ndarray) -> bool:
        """Whether what single precision loses of the Gram matrix is small beside the regulariser.

        Any positive definite matrix gives a direction; one that is off by a part of lambda W
        everywhere gives nearly the same.
        """
        if not self.block.rough_gram_is_faster():
            return False
        if self._columns is None:
            self._columns = self.block.column_squares(self.engine)
        most = self.engine.largest(curvature) * float(self._columns.sum())  # at least the trace
        return _ROUGH * most <= self.regularization and most < _ROUGH_LIMIT

    def respond(
        self, gradient: np.ndarray, coefficients: np.ndarray, newton: bool, also: np.ndarray | None = None
    ) -> dict[str, Any]:
        r"""Answer a loss gradient with the message of one new direction, or of two.

        Shapes: gradient, also (N,); coefficients (K,).
        Scaling: gradient summed scaling.
        """
        residual, squared = self._residual(gradient, coefficients)
        answer: dict[str, Any] = {"squared_residual": squared}
        wanted = [-self._newton(residual) if newton and self._can_newton() else -residual]
        if also is not None:
            wanted.append(self.block.transposed_product(also, self.engine))
        kept = sum(self._keep(vector) is not None for vector in wanted)
        messages = np.empty((kept, self.block.shape[0]))
        if kept == 2:
            self.block.products_into(self.directions[-kept:], messages, self.engine)
        elif kept:
            self.block.product_into(self.directions[-1], messages[0], self.engine)
        answer.update(zip(("message", "other"), messages))
        return answer

    def respond_pair(self, gradient: np.ndarray, coefficients: np.ndarray) -> dict[str, Any]:
        r"""Answer a loss gradient with block Newton direction and block gradient.

        Without a factorisation the second direction is that of the first's curvature,
        :math:`D_m^\top H D_m d`: what a second step of conjugate gradients would add, for one pass more.
        """
        residual = self.residual(gradient, coefficients)
        images = residual - self.regularization * (coefficients @ self.directions)
        messages: list[np.ndarray] = []

        def send(wanted: np.ndarray) -> None:
            direction = self._keep(wanted)
            if direction is not None:
                messages.append(self.block.product(direction, self.engine))

        complete = len(self.directions) >= self.block.shape[1]
        factorised = not complete and self.kind == "gram" and self._can_newton()
        if factorised:
            send(-self._newton(residual))
        if not complete:
            send(-residual)
        if not factorised and messages and self.metric is not None:
            send(self.block.transposed_product(self.metric * messages[0], self.engine))
        answer: dict[str, Any] = {
            "squared_residual": float(residual @ residual),
            "products": self.directions @ images,
        }
        for key, message in zip(("first", "second"), messages):
            answer[key], answer[f"{key}_scale"] = in_single_precision(message)
        return answer

    def respond_first(
        self, gradient: np.ndarray, most: int, exact: bool, **own: np.ndarray
    ) -> dict[str, Any]:
        r"""Answer the first loss gradient with messages of as many directions as are asked for.

        The directions are made of :math:`D_m^\top s` for the gradient and for public random vectors s: like
        all answers, their messages follow from :math:`D_m D_m^\top`. All directions span all columns.
        Theorem: ``docs/privacy.md#features-from-enough-messages``.

        Shapes: gradient (C, N); own what the party knows its weights by.
        """
        residual, known, engine = self._first_residual(gradient, **own), len(self.directions), self.engine
        images = residual[0] - self.regularization * self.weights(own["coefficients"]) if not exact else None
        self._span(residual, known + min(most, self.block.shape[1] - known))
        fresh = self.directions[known:]
        answer: dict[str, Any] = {"squared_residual": float(np.sum(residual * residual))}
        if images is None:
            return {**answer, "messages": self.block.matrix_product(fresh, engine)}
        short, scales = np.empty((len(fresh), self.block.shape[0]), dtype=np.float32), np.empty(len(fresh))
        for begin in range(0, len(fresh), _TOGETHER):
            for k, row in enumerate(self.block.matrix_product(fresh[begin : begin + _TOGETHER], engine)):
                short[begin + k], scales[begin + k] = in_single_precision(row)
        products = self.directions @ images
        return {**answer, "products": products, "short_messages": short, "scales": scales}

    def _first_residual(self, gradient: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """:meth:`residual` of the only class. Shapes: gradient (1, N); coefficients (K,); result (1, d)."""
        return self.residual(gradient[0], coefficients)[np.newaxis]

    def _span(self, wanted: np.ndarray, most: int) -> None:
        """Keep directions until there are so many, or no more: of those wanted, of shape (k, d), first.

        Where they are fewer than columns, they are Newton direction, gradient, and a space near the leading
        eigenvectors of the curvature, which takes most rounds to find.
        """
        known, leading = len(self.directions), most < self.block.shape[1]
        if leading and self.kind == "gram" and self._can_newton():
            wanted = np.vstack([self._newton(wanted[0]), wanted])
        elif leading:  # eigenvectors would take many passes
            weight = 1.0 if self.metric is None else self.metric
            image = weight * self.block.product(wanted[0], self.engine)
            wanted = np.vstack([wanted, self.block.transposed_product(image, self.engine)])
            most = min(most, known + len(wanted))
        number, whole = 0, self.engine.all_rows(self.block.shape[0])
        rows = whole + 1
        while True:
            fresh = None
            for direction in np.ascontiguousarray(wanted):
                if len(self.directions) < most:
                    fresh = self._keep(direction)
            # A random vector over all rows that brings nothing new says that there is nothing.
            if (missing := most - len(self.directions)) <= 0 or (rows == whole and fresh is None):
                break
            rows = whole if number else public_rows(missing, whole)
            wanted, number = self._public_images(number, missing, rows), number + missing
            if leading:
                for _ in range(_POWERS):
                    turn, shares = np.linalg.qr(wanted.T)
                    # The signs that follow from inner products alone, where LAPACK's follow from columns.
                    wanted = self._curved(turn * np.where(np.diag(shares) < 0.0, -1.0, 1.0)).T

    def _public_images(self, first: int, count: int, rows: int) -> np.ndarray:
        """D' s for some public vectors s of the first rows, of shape (count, d)."""
        block, engine, start = self.block, self.engine, self.engine.first_row
        here, n = min(max(rows - start, 0), block.shape[0]), block.shape[0]
        if rows < engine.all_rows(n):
            block, engine = block.of_rows(0, here), SomeRowsEngine(engine, np.arange(here), n)
        images = []
        for begin in range(first, first + count, _TOGETHER):
            numbers = range(begin, min(begin + _TOGETHER, first + count))
            asked = public_vectors(numbers, range(start, start + here))
            images.append(block.transposed_matrix_product(asked, engine))
        return np.vstack(images)

    def _curved(self, vectors: np.ndarray) -> np.ndarray:
        """The matrix whose factor gives Newton directions times vectors. Shapes: vectors (d, k)."""
        from scipy.linalg.blas import dtrmm

        half = dtrmm(1.0, self._factor, vectors, lower=True, trans_a=True)
        product: np.ndarray = dtrmm(1.0, self._factor, half, lower=True)
        return product

    def restate(self, gradient: np.ndarray, coefficients: np.ndarray) -> dict[str, Any]:
        """Answer a loss gradient with the message of the weights themselves, and forget all directions
        else.
        """
        residual = self.residual(gradient, coefficients)
        answer: dict[str, Any] = {
            "squared_residual": float(residual @ residual),
            "products": self.directions @ (residual - self.regularization * (coefficients @ self.directions)),
        }
        weights = self.weights(coefficients)
        norm = float(np.linalg.norm(weights))
        self.directions = weights[np.newaxis] / norm if norm > 0.0 else self.directions[:0]
        if norm > 0.0:
            answer["message"] = self.block.product(self.directions[0], self.engine)
        return answer

    def _keep(self, direction: np.ndarray) -> np.ndarray | None:
        """Append what is new of a direction, as a unit vector; None if nothing is."""
        earlier, fresh = self.directions, np.empty(self.block.shape[1])
        size = math.sqrt(ddot(direction, direction))
        if not (math.isfinite(size) and size > 0.0):
            return None
        np.divide(direction, size, out=fresh)
        for _ in range(2):  # twice is enough (Kahan, Parlett)
            fresh -= dgemv(1.0, earlier.T, dgemv(1.0, earlier.T, fresh, trans=1)) if len(earlier) else 0.0
        left = math.sqrt(ddot(fresh, fresh))
        if not left > _NOTHING_NEW:
            return None
        fresh /= left
        self.directions = np.vstack([earlier, fresh])
        return fresh

    def residual(self, gradient: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        r"""Block gradient :math:`\rho_m` of shape (d,)."""
        return self._residual(gradient, coefficients)[0]

    def _residual(self, gradient: np.ndarray, coefficients: np.ndarray) -> tuple[np.ndarray, float]:
        """:meth:`residual` and its squared norm."""
        self._own(coefficients)
        residual = self.block.transposed_product(gradient, self.engine)
        return residual, self._add_pull(coefficients, residual)

    def _add_pull(self, coefficients: np.ndarray, residual: np.ndarray) -> float:
        """Add the regulariser's gradient; the squared norm of the result."""
        if len(coefficients) > 0:
            residual += self.regularization * dgemv(1.0, self.directions.T, coefficients)
        return float(ddot(residual, residual))

    def squared_residual(self, gradient: np.ndarray, coefficients: np.ndarray) -> dict[str, Any]:
        r"""How far the weights are from stationary: :math:`\|\rho_m\|^2`.

        Shapes: gradient (N,); coefficients (K,).
        Scaling: gradient summed scaling.
        """
        return {"squared_residual": self._residual(gradient, coefficients)[1]}

    def _newton(self, residual: np.ndarray) -> np.ndarray:
        factor = self._factor
        assert factor is not None
        if self.kind == "gram":
            return solve_factorised(factor, residual)
        # Woodbury: (D'WD + l I)^-1 r = (r - D' (D D' + l W^-1)^-1 D r) / l
        image = self.block.product(residual, self.engine)
        dual = solve_factorised(factor, image)
        return (residual - self.block.transposed_product(dual, self.engine)) / self.regularization

    def forget(self, direction: np.ndarray) -> None:
        """Drop one direction: the others span what is orthogonal to it. Shapes: direction (K,)."""
        if len(direction) != len(self.directions) or not direction.any():
            raise Unanswerable("call 'forget': not a combination of the directions that were sent")
        self._turn(direction[np.newaxis])

    def _turn(self, gone: np.ndarray) -> None:
        """Drop orthonormal combinations of the directions. Shapes: gone (n, K)."""
        turned, dropped = self.directions.copy(), []  # they are never changed in place
        for unit, row in reflections(gone):
            used = np.flatnonzero(unit)
            reflect_rows(turned, used, unit[used], (0, turned.shape[1]))
            dropped.append(row)
        self.directions = np.delete(turned, dropped, axis=0)

    def export(self) -> dict[str, np.ndarray]:
        own = {"directions": self.directions}
        return own if self.metric is None else {**own, "metric": self.metric}

    def restore(self, saved: Mapping[str, Any]) -> None:
        n, d = self.block.shape
        directions = checked(saved, "directions", (-1, d))
        if "metric" in saved:
            self.set_metric(checked(saved, "metric", (n,)))
        self.directions = directions
