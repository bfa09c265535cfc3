r"""The training problem: what is minimised, checked once before anything runs.

.. math:: F(x, b) = \frac1W \sum_i s_i\, \ell(o_i + b + \textstyle\sum_m D_m x_m)_i
          + \lambda \sum_m R_m(x_m), \qquad x_m \in X_m, \qquad W = \sum_i s_i

R is squared l2, :math:`\tfrac12 \|x\|^2`, and X all space unless said otherwise.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock, as_block
from fastadmm.errors import ConfigError, InputError
from fastadmm.problem.constraints import LARGEST_FACTOR, AllSpace, Constraint, get_constraint
from fastadmm.problem.loss import Loss
from fastadmm.problem.losses import get_loss
from fastadmm.problem.party_lambda import PartyLambda
from fastadmm.problem.penalty import PartyPenalty, check_compatible, is_ridge, penalty_traits
from fastadmm.problem.regularizers import (
    ElasticNet,
    GroupLasso,
    Regularizer,
    SquaredL2,
    get_regularizer,
    number_up_to,
)
from fastadmm.problem.targets import check_unbiased_targets
from fastadmm.problem.traits import Traits

Array = np.ndarray


@dataclass(frozen=True)
class TestSet:
    """Held-out samples whose metrics are shown per round; never used for a decision.

    Shapes: y, weight, offset (N_test,).
    """

    __test__ = False  # not a pytest class

    blocks: list[FeatureBlock]  # one per party, in the parties' order and columns
    y: Array  # of shape (N_test,)
    weight: Array  # of shape (N_test,)
    offset: Array  # of shape (N_test,)


@dataclass(frozen=True)
class Problem:
    r"""A checked training problem; build it with :func:`make_problem`.

    Shapes: each of blocks (N, d_m); y, weight, offset (N,).
    """

    blocks: list[FeatureBlock]  # D_m of shape (N, d_m)
    names: list[str]  # name of each party
    y: Array  # of shape (N,): 0 and 1 (or soft targets in between) for classification, else real
    loss: Loss
    lam: float  # :math:`\lambda` per *mean* loss; scikit-learn's ``C`` is ``1 / (N lam)``
    weight: Array  # of shape (N,)
    offset: Array  # of shape (N,)
    fit_intercept: bool  # whether an unpenalised intercept b is fitted (kept by the coordinator)
    total_weight: float  # W, the sum of the weights: N
    test: TestSet | None = field(default=None)
    regularizers: list[Regularizer] = field(default_factory=list)
    constraint: Constraint = field(default_factory=AllSpace)  # X_m of every party, where they are the same
    constraints: list[Constraint] = field(default_factory=list)
    n_outputs: int = 1
    own_lambda: PartyLambda | None = None
    mean_weight: float = 1.0  # mean of the sample weights as they were given
    entry_roundings: float = 0.0
    unbounded_below: bool = False

    @property
    def message_size(self) -> int:
        """Numbers in one message: N, or C N."""
        return self.n_samples * self.n_outputs

    @property
    def n_samples(self) -> int:
        """Number of samples N."""
        return len(self.y)

    @property
    def n_parties(self) -> int:
        """Number of parties M."""
        return len(self.blocks)

    @property
    def party_regularizers(self) -> list[Regularizer]:
        """R_m of each party."""
        return self.regularizers or [SquaredL2()] * self.n_parties

    @property
    def party_constraints(self) -> list[Constraint]:
        """X_m of each party."""
        return self.constraints or [self.constraint] * self.n_parties

    @cached_property
    def penalties(self) -> list[PartyPenalty]:
        r"""h_m of each party, in the summed scaling: of strength :math:`\lambda W`."""
        pairs = zip(self.party_regularizers, self.party_constraints)
        return [PartyPenalty(own, allowed, self.regularization) for own, allowed in pairs]

    @property
    def is_ridge(self) -> bool:
        """Whether the regulariser is squared l2 without a constraint."""
        return all(is_ridge(r, c) for r, c in zip(self.party_regularizers, self.party_constraints))

    @cached_property
    def convex(self) -> bool:
        """Whether loss and regularisers are convex: what duality gaps and certificates need."""
        return self.loss.convex and all(r.convex for r in self.party_regularizers)

    @cached_property
    def traits(self) -> Traits:
        """What the choice of a scheme asks."""
        sets = self.party_constraints
        return Traits(
            smooth=self.loss.smooth,
            convex=self.convex,
            vector=self.loss.vector,
            n_parties=self.n_parties,
            n_outputs=self.n_outputs,
            ball=any(math.isfinite(own.radius) for own in sets),
            **penalty_traits(self.party_regularizers, sets),
        )

    def describe_penalty(self) -> dict[str, Any]:
        """Regulariser, constraint and the parties' own sets and lambdas, as configurations write them."""
        first = self.party_regularizers[0]
        described: dict[str, Any] = {"regularizer": first.text, "constraint": self.constraint.text}
        if isinstance(first, ElasticNet):
            described["l1_ratio"] = first.l1_ratio
        groups = [own.members for own in self.party_regularizers if isinstance(own, GroupLasso)]
        if any(len(own) > 1 for own in groups):
            described["groups"] = [[g.tolist() for g in own] if len(own) > 1 else [] for own in groups]
        if self.constraints:
            described["party_constraint"] = {n: c.text for n, c in zip(self.names, self.constraints)}
        if self.own_lambda is not None:
            described["party_lambda"] = dict(zip(self.names, self.own_lambda.values))
        if self.offset.any():
            described["offset"] = True  # no penalty, but part of the question: predictions need one, too
        return described

    @property
    def recorded_lam(self) -> float:
        """Lambda as results and models record it: not that of scaled columns."""
        return self.lam if self.own_lambda is None else self.own_lambda.common

    @property
    def regularization(self) -> float:
        r""":math:`\lambda W`, the regularisation in the summed scaling."""
        return self.lam * self.total_weight


def make_problem(
    blocks: Sequence[Any],
    y: Any,
    *,
    loss: str = "logistic",
    loss_parameters: Mapping[str, float] | None = None,
    lam: float = 1e-4,
    fit_intercept: bool = True,
    sample_weight: Any = None,
    offset: Any = None,
    names: Sequence[str] | None = None,
    test: TestSet | None = None,
    regularizer: str | Regularizer = "l2",
    regularizer_parameters: Mapping[str, Any] | None = None,
    constraint: str | Constraint | Sequence[str | Constraint | None] | None = None,
    n_classes: int | None = None,
    soft_targets: bool = False,
) -> Problem:
    r"""Check the parts of a problem and combine them.

    Parameters
    ----------
    blocks : sequence of matrices
        One N x d_m matrix per party: ndarray, scipy sparse, DataFrame or FeatureBlock.
    y : array-like of shape (N,)
        Targets in the loss's domain; for the logistic loss 0 and 1, or soft targets in [0, 1];
        for the multinomial loss class numbers from 0.
    loss : str
        A name of :data:`fastadmm.problem.losses.LOSSES`.
    loss_parameters : mapping of str to float, optional
        Parameters of the loss, for example ``{"delta": 2.0}`` of ``huber``.
    lam : float
        Regularisation :math:`\lambda > 0` per mean loss (see :class:`Problem`).
    fit_intercept : bool
    sample_weight : array-like of shape (N,), optional
        Non-negative, at least one positive; default ones.
    offset : array-like of shape (N,), optional
        Added to the linear predictor; default zero. For the multinomial loss of shape (N, C).
    names : sequence of str, optional
        Party names; default ``party-1`` and so on.
    test : TestSet, optional
    regularizer : str or Regularizer
        A name of :data:`fastadmm.problem.regularizers.REGULARIZERS`, a parameter after a colon:
        ``"log_sum:0.5"``.
    regularizer_parameters : mapping, optional
        ``{"l1_ratio": 0.3}`` of ``elastic_net``, ``{"groups": ...}`` of ``group_lasso``,
        ``{"width": 0.5}`` of ``log_sum``.
    constraint : str, Constraint, sequence of them, or None
        ``"nonnegative"``, ``"box:-1,1"``, ``"ball:2.5"``, ``"simplex:1"``, ``"sum:0"`` or an
        ``Affine.of(rows, values)``, for every party; a sequence has one for each.
    n_classes : int, optional
        C of the multinomial loss; default one more than the largest class number.
    soft_targets : bool
        Let targets of the logistic loss lie outside [0, 1], as the unbiased targets of
        randomised labels do; the loss stays convex, but may be negative.

    Raises
    ------
    InputError
        If row counts differ, values are not finite, targets lie outside the
        loss's domain, or only one class is present.
    ConfigError
        If loss, regulariser, constraint or a parameter of them is unknown, they
        do not go together, or ``lam`` is not a positive finite number.
    """
    model_loss = get_loss(loss, **(loss_parameters or {}))
    penalty = get_regularizer(regularizer, regularizer_parameters)
    allowed, own_sets = _constraints(constraint, len(blocks))
    for one in own_sets or [allowed]:
        check_compatible(penalty, one, model_loss)
    asked = f"must be a positive finite number, at most {LARGEST_FACTOR:g}"
    asked += " (per-sample scaling: lambda = 1 / (N C))"
    lam = number_up_to("lambda: ", lam, 0.0, LARGEST_FACTOR, asked)
    if len(blocks) == 0:
        raise InputError("parties: at least one feature block is needed")
    labels = list(names) if names is not None else [f"party-{m + 1}" for m in range(len(blocks))]
    if len(labels) != len(blocks):
        raise InputError(f"parties: {len(blocks)} feature blocks but {len(labels)} names")
    checked = [as_block(block, name) for block, name in zip(blocks, labels)]
    if isinstance(penalty, GroupLasso) and penalty.groups is not None and len(penalty.groups) != len(blocks):
        raise ConfigError(
            f"groups: {len(penalty.groups)} entries, but {len(blocks)} parties; one entry per party"
        )
    for one, block, name in zip(own_sets or [allowed] * len(checked), checked, labels):
        one.check_columns(block.shape[1], name)
    target = _vector(y, "y", checked[0].shape[0], labels[0])
    for block, name in zip(checked, labels):
        if block.shape[0] != len(target):
            raise InputError(f"{name}: {block.shape[0]} rows, but y has {len(target)}; align the rows first")
    n, fit_intercept = len(target), bool(fit_intercept)
    weight, mean_weight = _weights(sample_weight, n)
    soft = soft_targets and model_loss.name == "logistic"
    (check_unbiased_targets if soft else model_loss.check_targets)(target, weight, fit_intercept)
    n_outputs = model_loss.n_outputs(target, n_classes)
    if model_loss.vector:
        if fit_intercept and n_outputs > target.max() + 1:
            raise InputError(f"y: class {n_outputs - 1} has no sample; leave it out, or fit no intercept")
        shift = _class_offset(offset, n, n_outputs)
    else:
        shift = np.zeros(n) if offset is None else _vector(offset, "offset", n, "y")
    columns = [(block.shape[1], label) for block, label in zip(checked, labels)]
    penalties = [penalty.of_party(m, *own) for m, own in enumerate(columns)]
    rows = target, model_loss, lam, weight, shift, fit_intercept, float(weight.sum())
    problem = Problem(checked, labels, *rows, test, penalties, allowed, own_sets, n_outputs)
    beyond = soft_targets and bool(((target < 0.0) | (target > 1.0)).any())
    return replace(problem, mean_weight=mean_weight, unbounded_below=beyond)


def _weights(sample_weight: Any, n: int) -> tuple[Array, float]:
    """Weights of mean 1, and the mean as they were given."""
    if sample_weight is None:
        return np.ones(n), 1.0
    given = _vector(sample_weight, "sample_weight", n, "y")
    if (given < 0).any():
        i = int(np.flatnonzero(given < 0)[0])
        raise InputError(f"sample_weight: negative value {given[i]} in row {i}")
    weight = _of_mean_one(given)
    top = int(np.argmax(given))
    return weight, float(given[top] / weight[top])


def _of_mean_one(weight: Array) -> Array:
    if not weight.max() > 0.0:
        raise InputError("sample_weight: all weights are zero")
    scaled = weight / weight.max()  # first, so that the sum cannot overflow
    scaled /= scaled.mean()
    return scaled


def _constraints(
    given: str | Constraint | Sequence[str | Constraint | None] | None, n_parties: int
) -> tuple[Constraint, list[Constraint]]:
    """The set of every party, and those of each where they differ."""
    if given is None or isinstance(given, (str, Constraint)):
        return get_constraint(given), []
    if not isinstance(given, Sequence):
        raise ConfigError(f"constraint: {given!r} is neither a constraint nor a list with one for each party")
    if len(given) != n_parties:
        raise ConfigError(f"constraint: {len(given)} entries, but {n_parties} parties; one entry per party")
    own = [get_constraint(one) for one in given]
    return (own[0], []) if len(set(own)) == 1 else (AllSpace(), own)


def reweighted(problem: Problem, weight: Array) -> Problem:
    """A problem with other sample weights.

    Shapes: weight (N,).
    Scaling: weight per mean loss.
    """
    scaled = _of_mean_one(weight)
    problem.loss.check_targets(problem.y, scaled, problem.fit_intercept)
    return replace(problem, weight=scaled, total_weight=float(scaled.sum()))


def _class_offset(offset: Any, n_rows: int, n_classes: int) -> Array:
    """Offsets per sample and class, flat and class-major."""
    if offset is None:
        return np.zeros(n_rows * n_classes)
    given = np.asarray(offset)
    if given.shape != (n_rows, n_classes):
        raise InputError(
            "offset: the multinomial loss takes one offset per sample and class, of shape "
            f"({n_rows}, {n_classes}), not {given.shape}; one per sample would change nothing: leave it out"
        )
    columns = [_vector(column, f"offset: class {c}", n_rows, "y") for c, column in enumerate(given.T)]
    return np.concatenate(columns)


def _vector(values: Any, name: str, n_rows: int, reference: str) -> Array:
    if np.iscomplexobj(values):
        raise InputError(f"{name}: not numbers: complex values")
    try:
        vector = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: not numbers: {error}") from None
    if vector.ndim != 1:
        raise InputError(f"{name}: expected one dimension, got shape {vector.shape}")
    if len(vector) != n_rows:
        raise InputError(
            f"{name}: {len(vector)} values, but {reference} has {n_rows} rows; align the rows first"
        )
    if not np.isfinite(vector).all():
        i = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise InputError(f"{name}: value {vector[i]} in row {i}; remove or impute it")
    return vector
