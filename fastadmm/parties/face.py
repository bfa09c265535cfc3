r"""A party in a proximal Newton run: answers a loss gradient with its block's best response and its face.

Given the gradient g at a proposed model y and a curvature metric H it solves
its block's proximal Newton problem

.. math:: \hat x_m = \arg\min_{x \in X_m} \lambda W R_m(x) + \langle D_m^\top g, x\rangle
          + \tfrac12 \|D_m (x - y_m)\|_H^2,

the x-update of ADMM sharing with a penalty per sample. What is new in the
answer against its earlier ones is one *direction*, whose message it sends; the
rest is coefficients. With them go a few scalars: which combinations of
directions keep the zeros and bounds of the answer (its *face*), and the
regulariser's slope and curvature there. The coordinator never sees weights.

Between two calls a party remembers its directions, the metric, and its last answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.answering import Unanswerable, checked
from fastadmm.engine.engine import Engine
from fastadmm.parties.direction import public_vectors
from fastadmm.parties.direction_span import ActiveSet, DirectionSpan, OwnDirections
from fastadmm.parties.proximal import Opened, WeightedBlock
from fastadmm.parties.xupdate.base import PenalisedUpdate, XUpdate
from fastadmm.parties.xupdate.choose import choose_penalised
from fastadmm.problem.bounded_models import column_deviations
from fastadmm.problem.constraints import Constraint
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.regularizers import Regularizer
from fastadmm.proof.stationary import longest_step, squared_prox_gradient

Array = np.ndarray

#: Answers grow to at most so many times what model and proposal are.
_REACH = 1e6

#: A gradient whose sum is at most this share of its absolute sum sums to zero but for rounding.
_NO_SUM = 1e-9

#: Columns depend on each other where one adds less than this share of what another does.
_DEPENDENT = 1e-10

#: Most positions on a segment at which the regulariser is reported.
_MOST_POSITIONS = 48


@dataclass
class Response:
    """A best response, before it is described.

    Shapes: model, proposal, slope, weights (d,); coefficients (K,).
    """

    model: Array  # of shape (d,): x and y
    proposal: Array  # of shape (d,): x and y
    coefficients: Array  # of shape (K,): of y
    slope: Array  # of shape (d,): the block's gradient at y
    weights: Array  # of shape (d,): the response
    proposed: bool  # whether y is another point than x


class FaceParty(OwnDirections, Opened):
    """Holder of a feature block and of the directions it has sent.

    Shapes: block (N, d); deviations, sizes (d,).
    Scaling: regularization summed scaling.
    """

    family = "proximal"
    takes = "regularizer", "constraint"
    answers_by_column = True
    needs = ("coefficients",)

    def __init__(
        self,
        name: str,
        block: FeatureBlock,
        regularization: float,
        engine: Engine,
        regularizer: Regularizer,
        constraint: Constraint,
    ) -> None:
        self.name, self.block, self.regularization, self.engine = name, block, regularization, engine
        self.penalty = PartyPenalty(regularizer, constraint, regularization)
        self.update, self.reason = choose_penalised(block, regularizer, constraint)
        width = block.shape[1]
        self.span = DirectionSpan(np.empty((0, width)), np.ones(width), self.penalty)
        self.deviations = self.sizes = np.ones(width)
        self.metric: Array | None = None
        self._solver: XUpdate | None = None
        self._root = np.ones(0)
        #: Weights last answered, whose signs are those of the face that a proposal is on; of shape (d,).
        self.latest = np.zeros(width)
        #: What :meth:`_shown` returns, once it was needed; of shape (d, d).
        self.images: Array | None = None
        self._step: float | None = None

    @property
    def kind(self) -> str:
        """Name of its proximal problem's solver."""
        return self.update.name

    def prepare(self) -> None:
        """Measure the columns; raises InputError where squares of values overflow."""
        super().prepare()
        squares = self.block.column_squares(self.engine)
        scale = np.sqrt(squares / max(1, self.block.whole_shape[0]))
        scale[scale == 0.0] = 1.0
        self.span = replace(self.span, scale=scale)
        self.deviations = self.sizes = scale
        if self._endless:
            self.deviations = self.sizes = column_deviations(self.block, self.engine)

    @property
    def directions(self) -> Array:
        """Of shape (K, d)."""
        return self.span.directions

    @directions.setter
    def directions(self, directions: Array) -> None:
        self.span = replace(self.span, directions=directions)

    def feasible_start(self) -> dict[str, Any]:
        """The feasible point nearest to zero."""
        return self.describe(self.penalty.constraint.project(np.zeros(self.block.shape[1])))

    def set_metric(self, curvature: Array) -> None:
        """Take in a new curvature metric: positive weights of shape (N,), summed scaling."""
        self.metric, self._solver = curvature, None

    def _prepared(self) -> XUpdate:
        """The solver of the proximal Newton problem, factorised when it is first needed."""
        if self.metric is None:
            raise Unanswerable("set_metric comes first")
        if self._solver is None:
            weighted, penalty = WeightedBlock(self.block, self.metric, self.engine), self.penalty
            self._solver, _ = choose_penalised(weighted, penalty.regularizer, penalty.constraint)
            self._solver.prepare(self.engine)
            self._root = weighted.root
        return self._solver

    def best_response(
        self,
        gradient: Array,
        model: Array,
        proposal: Array | None = None,
        common: bool = False,
        most: int = 0,
        curvature: float = 0.0,
    ) -> dict[str, Any]:
        r"""Answer a loss gradient, with directions that span all columns where so many are asked for.

        ``curvature``: of the loss, at most, where it is not convex: see ``squared`` of :meth:`prox_gradient`.

        Shapes: gradient (N,); model, proposal (K,).
        Scaling: gradient summed scaling.
        """
        found = self.responded(gradient, model, proposal)
        whole = most >= self.block.shape[1] - len(model) > 0
        answer = self.answered(found, {"products": np.empty(0), **self.spanned()} if whole else None)
        if curvature > 0.0:
            answer["squared"] = self._prox_gradient(found.proposal, found.slope, curvature)
        return answer

    def prox_gradient(self, gradient: Array, curvature: float, coefficients: Array) -> dict[str, Any]:
        """How far weights are from stationary, as :mod:`fastadmm.proof.stationary` measures it.

        Shapes: gradient (N,); coefficients (K,).
        Scaling: gradient summed scaling.
        """
        slope = self.block.transposed_product(gradient, self.engine)
        return {"squared": self._prox_gradient(self.final_weights(coefficients), slope, curvature)}

    def _prox_gradient(self, x: Array, slope: Array, curvature: float) -> float:
        """The squared norm for weights and their slope, both of shape (d,)."""
        if self._step is None:  # of the block alone, and costs a pass
            self._step = longest_step(self.block, self.engine)
        return squared_prox_gradient(self.penalty, x, slope, self._step / curvature)

    def spanned(self) -> dict[str, Array]:
        r"""Directions until they span all columns.

        They are made of :math:`D_m^\top s` for public random vectors s, so that their messages follow from
        :math:`D_m S^{-2} D_m^\top`, where S is the columns' scale. What columns that depend on each other
        add is directions without messages.
        """
        scale, known, images = self.span.scale, self.directions * self.span.scale, self._shown()
        turn, shares = np.linalg.qr(np.vstack([known, images]).T)
        own = np.abs(np.diag(shares))[len(known) :]
        # The signs that follow from inner products alone, where LAPACK's follow from columns.
        turn = turn * np.where(np.diag(shares) < 0.0, -1.0, 1.0)
        fresh = np.ascontiguousarray(turn[:, len(known) :].T) / scale
        self.directions = np.vstack([self.directions, fresh])
        messages = self.block.matrix_product(fresh, self.engine)
        messages[own <= _DEPENDENT * own.max(initial=0.0)] = 0.0  # of rounding alone
        return {"messages": messages, "products_of_all": fresh @ self.directions.T}

    def _shown(self) -> Array:
        """Scaled columns' products with as many public random vectors: they depend on each other as these do.

        Shapes: the result (d, d).
        """
        if self.images is None:
            (n, d), first = self.block.shape, self.engine.first_row
            asked = public_vectors(range(d), range(first, first + n))
            self.images = self.block.transposed_matrix_product(asked, self.engine) / self.span.scale
        return self.images

    def responded(self, gradient: Array, model: Array, proposal: Array | None = None) -> Response:
        """The best response itself."""
        solver, penalty, x = self._prepared(), self.penalty, self.weights(self._own(model))
        end = model if proposal is None else self._own(proposal)
        y = self.span.combine(end)
        slope = self.block.transposed_product(gradient, self.engine)
        start, scale = penalty.prox(y, 0.0), self.regularization
        if isinstance(solver, PenalisedUpdate):
            new = solver.minimise_around(y, slope, scale, start, self.engine)
        else:
            target = self._root * self.block.product(y, self.engine) - gradient / self._root
            new = solver.solve(target, scale, start, self.engine)
        if self._endless:
            # A gradient that sums to zero proves the same for every intercept, which takes up the means of
            # contributions: they are measured from these, else from zero.
            total, size = self.engine.total_and_size(gradient)
            self.sizes = self.deviations if abs(total) <= _NO_SUM * size else self.span.scale
        new = self._within_reach(x, y, new)
        return Response(x, y, end, slope, new, proposal is not None)

    def answered(self, found: Response, sent: dict[str, Any] | None = None) -> dict[str, Any]:
        """What :meth:`best_response` answers; ``sent`` is what :meth:`extended` said, where it was asked."""
        x, y, new, end = found.model, found.proposal, found.weights, found.coefficients
        if sent is None:
            sent = self.extended(new, end)
        answer = {**sent, "coefficients": self.span.coefficients(new)}
        norm = self.penalty.regularizer.norm
        answer["norms"] = np.array([norm(x), norm(new)])
        if found.proposed:
            answer["proposal_positions"], answer["proposal_norms"] = self._norms_along(x, y)
            if len(self.directions) == len(y) and not np.array_equal(held := self._clipped(y), y):
                answer["clipped"], answer["clipped_norm"] = self.span.coefficients(held), norm(held)
        self.latest = new
        face = ActiveSet(self.span, new, self.penalty.held(new)).face()
        return {**answer, **face, **self.proved(found.slope, y)}

    def _clipped(self, y: Array) -> Array:
        """A proposal with those weights at their kink or bound that passed it. Shapes: y, the result (d,)."""
        if self.penalty.coefficients[0] > 0.0 and self.penalty.regularizer.separable:
            y = np.where(self.latest * y < 0.0, 0.0, y)
        return self.penalty.constraint.project(y)

    def _within_reach(self, x: Array, y: Array, new: Array) -> Array:
        """An answer far beyond model and proposal, on a flat piece of the loss, is shortened."""
        if not np.isfinite(new).all():
            return x
        reach = _REACH * max(float(np.linalg.norm(self.span.scale * v)) for v in (x, y))
        size = float(np.linalg.norm(self.span.scale * new))
        return new if reach == 0.0 or size <= reach else x + (reach / size) * (new - x)

    def describe(self, x: Array, near: Array | None = None) -> dict[str, Any]:
        """Coefficients of weights, after one more direction where they need it. Shapes: x (d,); near (K,)."""
        return {**self.extended(x, near), "coefficients": self.span.coefficients(x)}

    def extended(self, x: Array, near: Array | None = None) -> dict[str, Any]:
        """As :meth:`describe`, without coefficients."""
        direction = self.span.new_direction(x, near)
        if direction is None:
            return {"products": np.empty(0)}
        self.directions = np.vstack([self.directions, direction])
        return {
            "message": self.block.product(direction, self.engine),
            "products": self.directions @ direction,
        }

    def _norms_along(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Positions of kinks between x, in the set, and y, and the norms there."""
        positions = np.array([0.0, *self.penalty.kinks_between(x, y)])
        if len(positions) > _MOST_POSITIONS:
            chosen = np.linspace(0, len(positions) - 1, _MOST_POSITIONS).round().astype(np.int64)
            positions = positions[chosen]
        norm = self.penalty.regularizer.norm
        return positions, np.array([norm(self.penalty.on_the_way(x, y, t)) for t in positions])

    def describe_model(self, model: Array) -> dict[str, Any]:
        r"""How large a model is. Shapes: model (K,)."""
        x = self.weights(self._own(model))
        found = {"norm": float(self.penalty.regularizer.norm(x))}
        if self.penalty.homogeneous:
            found["heaviest"] = float(np.abs(self.sizes * x).max(initial=0.0))
        return found

    @property
    def _endless(self) -> bool:
        """Whether nothing bounds the weights, not even a norm."""
        return self.penalty.homogeneous and self.penalty.coefficients[0] == 0.0

    def proved(self, slope: Array, y: Array) -> dict[str, Any]:
        """What the block's slope of a loss gradient, of shape (d,), proves at weights y."""
        scale = self.penalty.largest_scale(-slope)
        value = self.penalty.conjugate(-scale * slope) if scale > 0.0 else 0.0
        moved = y - self.penalty.prox(y - slope, 1.0)
        more: dict[str, Any] = {}
        if self.penalty.homogeneous:
            # What a constant column contributes is the intercept's.
            varies = self.sizes > 0.0
            pull = np.where(varies, -slope, 0.0)
            more["excess"] = self.penalty.excess(pull, np.where(varies, self.sizes, 1.0))
        if (free := self.penalty.free_scale(-slope)) > 0.0:
            more["dual_free"] = float(free)
        return {
            **more,
            "dual_scale": float(scale),
            "dual_value": float(value),
            "dual_at_zero": float(self.penalty.conjugate(np.zeros_like(slope))),
            "squared": float(moved @ moved),
        }

    def recombine(self, rotation: Array) -> None:
        """Replace the oldest directions by orthonormal combinations of them, shape (r, number of oldest)."""
        n = rotation.shape[1]
        if n > len(self.directions):
            raise Unanswerable("call 'recombine': more directions than were sent")
        self.directions = np.vstack([rotation @ self.directions[:n], self.directions[n:]])

    def weights(self, coefficients: Array) -> Array:
        """x_m of shape (d,), in the set, for coefficients of shape (K,)."""
        return self.span.weights(coefficients)

    def export(self) -> dict[str, Array]:
        own = {"directions": self.directions, "scale": self.span.scale, "answer": self.latest}
        if self._endless:
            own.update(deviations=self.deviations, sizes=self.sizes)
        return own if self.metric is None else {**own, "metric": self.metric}

    def restore(self, saved: Mapping[str, Any]) -> None:
        n, d = self.block.shape
        scale = checked(saved, "scale", (d,))
        self.span = DirectionSpan(checked(saved, "directions", (-1, d)), scale, self.penalty)
        self.latest = checked(saved, "answer", (d,))
        self.deviations = self.sizes = scale
        if "sizes" in saved:  # not in runs that began without them
            self.deviations, self.sizes = (checked(saved, key, (d,)) for key in ("deviations", "sizes"))
        if "metric" in saved:
            self.set_metric(checked(saved, "metric", (n,)))
