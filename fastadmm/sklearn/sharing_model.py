"""What the scikit-learn estimators share: parameters, input, training, and the attributes of a fit."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_array, check_random_state, check_X_y
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fastadmm.blocks.block import as_block
from fastadmm.errors import ConfigError, DivergenceError, InputError, PrivacyWarning
from fastadmm.figures.progress import Progress
from fastadmm.other_names import near_key
from fastadmm.problem.constraints import Constraint, get_constraint
from fastadmm.problem.loss import Loss
from fastadmm.problem.losses import parse_loss
from fastadmm.problem.party_lambda import SCALED, PartyLambda, party_lambda, scales_with_lambda
from fastadmm.problem.problem import Problem, TestSet, make_problem, reweighted
from fastadmm.problem.regularizers import REGULARIZERS, Regularizer, get_regularizer
from fastadmm.settings.checks import check_parameter
from fastadmm.settings.keys import SETTINGS
from fastadmm.settings.privacy import DifferentialPrivacy, MessagePrivacy, Privacy
from fastadmm.sklearn.columns import (
    Parties,
    block_names,
    check_columns,
    check_index,
    consecutive,
    party_names,
    resolve_parties,
    tables_of,
    take_columns,
)
from fastadmm.solver.early_stopping import EarlyStopping, held_out_rows
from fastadmm.solver.history import RoundRecord, Status
from fastadmm.solver.loop import SolveResult, run_rounds
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint

if TYPE_CHECKING:
    from fastadmm.inference.table import Inference
    from fastadmm.privacy.ledger import Ledger
    from fastadmm.privacy.statement import PrivacyStatement
    from fastadmm.store.coefficients import Coefficients

Array = np.ndarray

#: Ways to end before ``tol`` that the user has asked for.
_BY_CHOICE = (Status.COMPLETED, Status.EARLY_STOPPED, Status.INTERRUPTED)

#: What to do about a model that is not certified, by how its fit ended.
_ONE_SCALE = "bring the features to one scale"
_ADVICE = {
    Status.CONVERGED: "; a regularizer or a bounded constraint would",
    Status.AT_ROUNDING: f"; raise tol, or {_ONE_SCALE}",
    Status.CONTRADICTION: "",
}

#: Parameters that are settings of a run, but take other forms here.
_OTHER_FORMS = ("alpha", "regularizer", "loss", "class_weight", "ledger", "cv")

Callback = Callable[[RoundRecord], Any]
Constraints = str | Constraint | Sequence[str | Constraint | None] | None


class _UnknownParameter(ConfigError, TypeError):
    """A parameter that estimators do not have: Python calls it a TypeError, scikit-learn a ValueError."""


class _Fitted(BaseEstimator):
    """Attributes of a fit that methods read, and whose parameters are refused."""

    coef_: Array
    intercept_: Any
    party_coefs_: list[Array]
    party_columns_: list[Array]
    privacy_: PrivacyStatement
    classes_: Array
    positive_: Any
    class_count_: Array
    _own_lambda: PartyLambda | None = None
    _left: tuple[str, dict[str, Any], list[dict[str, Array]]] | None = None

    def __new__(cls, *args: Any, **given: Any) -> Self:
        cls._refuse_unknown(given)
        return super().__new__(cls)

    def set_params(self, **given: Any) -> Self:
        """Set parameters by name.

        Parameters
        ----------
        **given
            Parameters as of the class.
        """
        self._refuse_unknown(given)
        return super().set_params(**given)

    @classmethod
    def _refuse_unknown(cls, given: dict[str, Any]) -> None:
        """Say what a parameter of another library is called here."""
        own = cls._get_param_names()
        called = {key: setting.estimator or key for key, setting in SETTINGS.items()}
        ours = {key: name for key, name in called.items() if name in own} | {name: name for name in own}
        for name in given.keys() - set(own):
            key, note = near_key(name, ours)
            if key:
                meant = f"unknown parameter {name!r}; did you mean {ours[key]!r}? {note}".strip()
                raise _UnknownParameter(f"{cls.__name__}: {meant}")


@dataclass(eq=False, repr=False)
class _SharingModel(_Fitted):
    """What the estimators share; the loss and the meaning of y are theirs."""

    _task: ClassVar[str]
    _default_loss: ClassVar[str]

    parties: Parties = None
    alpha: float | Sequence[float] | Array = 1e-4
    fit_intercept: bool = True
    tol: float = 1e-6
    max_rounds: int = 10000
    scheme: str = "auto"
    penalty: float | None = None
    random_state: int | np.random.RandomState | None = None
    n_threads: int | None = None
    callbacks: Callback | Sequence[Callback] | None = None
    regularizer: str | Regularizer = "l2"
    l1_ratio: float = 0.5
    constraint: Constraints = None
    loss: str = "auto"
    privacy: Privacy | None = None
    warm_start: bool = False
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 5
    ledger: str | os.PathLike[str] | Ledger | None = None
    verbose: int = 0

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        offset: Any = None,
        eval_set: tuple[Any, Any] | None = None,
    ) -> Self:
        """Train the joint model.

        Parameters
        ----------
        X : matrix of shape (n_samples, n_features), or list or dict of matrices
            ndarray, SciPy sparse or DataFrame; a list, or a dict by the parties' names, holds one matrix of
            shape (n_samples, d_m) per party, rows in the same order. Its DataFrames
            must have the same index; they are not joined.
        y : array-like of shape (n_samples,)
            Targets; for the classifier labels of any two or more values.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative; a weight of 2 counts as the same sample twice.
        offset : array-like of shape (n_samples,), optional
            Added to the linear predictor, for example the logarithm of an exposure; with
            the multinomial loss of shape (n_samples, C).
        eval_set : tuple of X and y, optional
            Other rows, whose metrics are in ``test`` of each of ``history_``; they decide nothing.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the data are wrong (:class:`fastadmm.errors.ConfigError`
            and :class:`fastadmm.errors.InputError` are ValueErrors).
        DivergenceError
            If a scheme without a guarantee diverges.

        Warns
        -----
        ConvergenceWarning
            If the model is not certified: ``tol`` was not reached within ``max_rounds``, or cannot be proved
            in double precision, or is proved only among models of bounded size.
        """
        options = self._options()
        same = self._continues((X, y, sample_weight, offset))
        problem, columns, own_weight = self._problem(X, y, sample_weight, offset)
        if eval_set is not None:
            problem = replace(problem, test=self._test_set(problem, columns, eval_set))
        early = None
        if self.early_stopping:
            problem, early = self._hold_out(problem, own_weight)
        start = self._last_model(problem) if self.warm_start and hasattr(self, "party_coefs_") else None
        self.clips_rows_ = isinstance(self.privacy, MessagePrivacy)
        with _watched(self.callbacks, self.verbose, options.gap) as monitor:
            if isinstance(self.privacy, DifferentialPrivacy):
                result, self.privacy_ = self._fit_privately(problem, options, monitor, start)
            else:
                begin = {"start": start, "early": early}
                result, self.privacy_ = self._fit_openly(problem, options, monitor, same, **begin)
        if result.status is Status.DIVERGED:
            raise DivergenceError(result.message)
        self.__dict__.update(self._model_of(columns, result.weights, result.intercept))
        self._record(result, problem.n_samples)
        if early is not None:
            self.validation_loss_ = result.record.validation
            self.best_round_ = result.record.round
        return self

    def inference(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        offset: Any = None,
        covariance: str = "model",
        level: float = 0.95,
    ) -> Inference:
        """Standard errors, tests, confidence intervals and fit statistics of the fitted model.

        Parameters
        ----------
        X, y, sample_weight, offset
            As given to :meth:`fit`. Weights count relative to their mean: standard errors are for the
            number of rows with a positive weight.
        covariance : {"model", "HC0", "HC1"}
            "HC0" and "HC1" are robust (sandwich) and do not need the model's variances.
        level : float
            Of the confidence intervals, in (0, 1).

        Returns
        -------
        fastadmm.inference.table.Inference
            With ``to_frame()``, ``to_dict()``, ``fit``, ``tests``, ``covariance`` and ``notes``; see
            ``docs/inference.md``.

        Raises
        ------
        ValueError
            If the data are not those of ``fit``; if the loss is no log-likelihood, or the regulariser not
            l2 or none without a constraint; if columns depend on each other.
        """
        from fastadmm.sklearn.inference import infer_estimator

        check_is_fitted(self, "coef_")
        return infer_estimator(self, X, y, sample_weight, offset, covariance, level)

    def coefficients(self, X: Any = None) -> Coefficients:
        """The table of coefficients: party, feature, weight, and odds or rate ratios.

        Parameters
        ----------
        X : matrix of shape (n_samples, n_features), or list or dict of matrices, optional
            Rows whose means and standard deviations make ``scaled_weight``: the weight for a column with
            mean 0 and deviation 1. Without them it equals the weight.

        Returns
        -------
        fastadmm.store.coefficients.Coefficients
            With ``to_frame()``, ``to_dict()``, ``ratio`` and ``notes``; see ``docs/inference.md``.
        """
        from fastadmm.sklearn.inference import coefficients_of_estimator

        check_is_fitted(self, "coef_")
        return coefficients_of_estimator(self, X)

    def __str__(self) -> str:
        """The parameters and, of a fitted model, what is proved of it and who holds how much."""
        if not hasattr(self, "status_"):
            return repr(self)
        end = f"not certified, {str(self.status_).replace('_', ' ')} after"
        if self.certified_ or self.certified_within_:
            end = "certified in" if self.certified_ else "certified among bounded models in"
        told = [f"{self!r}: {end} {self.n_rounds_} round{'s' * (self.n_rounds_ != 1)}"]
        for name, value in (("gap", self.duality_gap_), ("stationarity", self.stationarity_)):
            if value is not None and value < math.inf:
                told.append(f"{name} {value:.0e}".replace("e-0", "e-"))
        told += [f"{name} {len(own)}" for name, own in zip(self.party_names_, self.party_columns_)]
        told += [f"{self.n_samples_fit_} rows"] if hasattr(self, "n_samples_fit_") else []
        if getattr(self, "positive_", None) is not None:
            told.append(f"class 1 = {self.positive_!r}")
        if hasattr(self, "class_count_") and self.positive_ is not None:
            told[-1] += f" in {self.class_count_[self.classes_ == self.positive_][0]}"
        return ", ".join(told)

    def _problem(self, X: Any, y: Any, sample_weight: Any, offset: Any) -> tuple[Problem, list[Array], Array]:
        """The problem, each party's columns, and the sample weights without class weights."""
        loss, tables = self._checked_loss(), tables_of(X) or {None: X}
        check_columns(tables)
        check_index(tables, y, sample_weight=sample_weight, offset=offset)
        blocks, target, columns = self._training_input(X, y)
        if target.dtype.kind in "mM":
            raise InputError("y: dates or times are no targets: give numbers, or classes as text")
        encoded, loss = self._encoded_targets(target, loss)
        scaling = self._own_lambda = self._scaling(len(blocks))
        if scaling is not None:
            blocks = [block * factor for block, factor in zip(blocks, scaling.factors)]
        allowed: dict[str, Any] = {"dtype": np.float64, "ensure_non_negative": True}
        own_weight = _check_sample_weight(sample_weight, blocks[0], **allowed)
        sample_weight = None if sample_weight is None else own_weight
        problem = make_problem(
            blocks,
            encoded,
            loss=loss.name,
            loss_parameters=loss.parameters,
            lam=float(self.alpha if scaling is None else scaling.lam),  # type: ignore[arg-type]
            fit_intercept=bool(self.fit_intercept),
            sample_weight=self._class_weighted(encoded, sample_weight),
            offset=offset,
            names=self.party_names_,
            regularizer=self.regularizer,
            regularizer_parameters={"l1_ratio": self.l1_ratio} if self.regularizer == "elastic_net" else None,
            constraint=self.constraint,
        )
        if scaling is not None:
            problem = replace(problem, own_lambda=scaling, entry_roundings=SCALED)
        return problem, columns, own_weight

    def _scaling(self, n_parties: int) -> PartyLambda | None:
        """What scales the parties' columns where every party has its own lambda."""
        if isinstance(self.alpha, Real):
            return None
        values = [float(value) for value in self._alphas()]
        if len(values) != n_parties:
            raise ConfigError(f"alpha: {len(values)} values, but there are {n_parties} parties")
        regularizer, each = get_regularizer(self.regularizer), self.constraint
        each = each if isinstance(each, list | tuple) else [each]  # type: ignore[list-item]
        if not all(scales_with_lambda(regularizer, get_constraint(one)) for one in each):
            raise ConfigError(
                "alpha: one for each party goes with regularizer l2, l1 or group_lasso, and no constraint "
                "but nonnegative"
            )
        if self.privacy is not None:
            raise ConfigError("alpha: one for each party does not go with privacy")
        return party_lambda(values, regularizer)

    def _alphas(self) -> Sequence[Any] | Array:
        """``alpha`` as one or several values."""
        several = isinstance(self.alpha, Sequence | np.ndarray) and not isinstance(self.alpha, str)
        return self.alpha if several else [self.alpha]  # type: ignore[return-value]

    def _hold_out(self, problem: Problem, own_weight: Array) -> tuple[Problem, EarlyStopping]:
        """The problem without the rows that early stopping holds out, and the rule."""
        y, classes = problem.y, self._task == "classification"
        names, stratify = self.classes_.tolist() if classes else None, classes and not np.any(y % 1)
        held = held_out_rows(y, self.validation_fraction, self.random_state, stratify, names)
        counted = np.where(held, own_weight, 0.0)
        if not counted.any():
            raise InputError("early_stopping: all held-out rows have weight 0")
        rows = TestSet(problem.blocks, y, counted, problem.offset)
        rule = EarlyStopping(rows, patience=int(self.n_iter_no_change))
        return reweighted(problem, np.where(held, 0.0, problem.weight)), rule

    def _record(self, result: SolveResult, n_samples: int) -> None:
        """Set the attributes that tell how training ended; warn where it was not as asked."""
        self.n_samples_fit_ = n_samples
        self.history_ = list(result.history)
        self.n_rounds_ = self.n_iter_ = len(result.history)
        self.duality_gap_ = result.gap
        self.stationarity_ = result.stationarity
        self.program_, self.exchanges_ = result.program, result.exchanges
        self.party_bytes_ = result.party_bytes
        self.status_ = result.status
        self.certified_, self.certified_within_ = result.certified, result.certified_within
        self.converged_ = result.status in (Status.CONVERGED, Status.STATIONARY)
        if result.status in _BY_CHOICE or result.status is Status.STATIONARY or self.certified_:
            return
        if getattr(self, "early_stopping", False) and result.status in (Status.CONVERGED, Status.AT_ROUNDING):
            return  # held-out rows choose the model
        warnings.warn(
            result.message + _ADVICE.get(result.status, "; raise max_rounds or tol, or " + _ONE_SCALE),
            ConvergenceWarning,
            stacklevel=3,
        )

    def _model_of(self, columns: list[Array], weights: list[Array], intercept: Any) -> dict[str, Any]:
        """What makes the estimator predict with a model, by attribute name."""
        if self._own_lambda is not None:
            weights = self._own_lambda.original(weights)
        coef = np.empty((self.n_features_in_, *weights[0].shape[1:]))
        for held, own in zip(columns, weights):
            coef[held] = own
        return {**self._model(coef, intercept), "party_coefs_": weights, "party_columns_": columns}

    def _class_weighted(self, encoded: Array, sample_weight: Array | None) -> Array | None:
        """Sample weights times class weights, where there are any."""
        return sample_weight

    def _continues(self, data: tuple[Any, ...]) -> str:
        """What a later fit must have in common with this one to take up its rounds; empty where none can."""
        if not self.warm_start or self.early_stopping:
            return ""
        import joblib

        others = ("max_rounds", "n_threads", "callbacks", "verbose")
        own = {k: v for k, v in self.get_params(deep=False).items() if k not in others}
        return str(joblib.hash((data, own)))

    def _test_set(self, problem: Problem, columns: list[Array], given: Any) -> TestSet:
        """Other rows as the problem takes them."""
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise InputError("eval_set: not a pair: give (X, y) of other rows")
        if self.privacy is not None:
            raise ConfigError("eval_set: not in a private run; score the model afterwards")
        blocks = self._blocks_of(given[0], columns)
        y = check_array(given[1], dtype=None, ensure_2d=False, input_name="y of eval_set")
        if len(y) != blocks[0].shape[0]:
            raise InputError(f"eval_set: {blocks[0].shape[0]} rows of X, but {len(y)} of y")
        if self._task == "classification":
            if not np.isin(y, self.classes_).all():
                raise InputError(f"eval_set: y has classes other than {self.classes_.tolist()}")
            y = np.searchsorted(self.classes_, y)
        factors = [1.0] * len(blocks) if problem.own_lambda is None else problem.own_lambda.factors
        made = [as_block(block * factor, name) for block, factor, name in zip(blocks, factors, problem.names)]
        shape = (len(y), problem.n_outputs) if problem.loss.vector else len(y)
        return TestSet(made, np.asarray(y, dtype=np.float64), np.ones(len(y)), np.zeros(shape))

    def _last_model(self, problem: Problem) -> StartingPoint:
        """The model of the last fit, for ``warm_start``."""
        weights, scaling = list(self.party_coefs_), problem.own_lambda
        intercept = self.intercept_ if weights[0].ndim == 2 else float(np.ravel(self.intercept_)[0])
        if scaling is not None and len(weights) == len(scaling.factors):
            weights = scaling.scaled(weights)
        return StartingPoint(weights, intercept if self.fit_intercept else 0.0 * intercept)

    def _fit_openly(
        self, problem: Problem, options: SolverOptions, monitor: Callback | None, same: str, **begin: Any
    ) -> tuple[SolveResult, PrivacyStatement]:
        """Train without differential privacy, and say so; go on where rounds of the ``same`` fit ended."""
        from fastadmm.privacy.statement import no_privacy

        if self.privacy is not None and not isinstance(self.privacy, Privacy):
            raise ConfigError(f"privacy: {self.privacy!r} is not a fastadmm.Privacy")
        if self.ledger is not None:
            raise ConfigError("ledger: a fit without privacy charges nothing; leave it out")
        left, self._left = self._left, None
        if left is not None and left[0] == same:
            more = options.max_rounds + int(left[1]["n_rounds"])
            solver = Solver(problem, replace(options, max_rounds=more))
        else:
            left, solver = None, Solver(problem, options, **begin)
        try:
            with solver.engine.limited():
                if left is not None:
                    solver.restore(*left[1:])
                result = run_rounds(solver, monitor)
            if same and result.status is Status.MAX_ROUNDS:
                self._left = same, solver.export(), solver.export_parties()
            solver.method.close()
        finally:
            solver.close()
        return result, no_privacy(problem.names)

    def _fit_privately(
        self, problem: Problem, options: SolverOptions, monitor: Callback | None, start: StartingPoint | None
    ) -> tuple[SolveResult, PrivacyStatement]:
        """Train with differential privacy, charge the ledger, and tell what is guaranteed."""
        from fastadmm.privacy.message import private_solver
        from fastadmm.privacy.private_run import UNCOUNTED, charge_fit, other_fits, resolve_ledger
        from fastadmm.privacy.published import exact_note, exact_parties

        for parameter, given in (
            ("early_stopping", self.early_stopping or None),
            ("warm_start", start),
            ("class_weight", getattr(self, "class_weight", None)),
        ):
            if given is not None:
                raise ConfigError(f"{parameter}: does not go with a private run; leave it out")
        assert isinstance(self.privacy, DifferentialPrivacy)
        ledger = resolve_ledger(self.ledger)
        solver = private_solver(problem, options, self.privacy)
        if solver.advice():
            warnings.warn(solver.advice(), UserWarning, stacklevel=3)
        try:
            if ledger is not None:
                charge_fit(ledger, solver)
            result = run_rounds(solver, monitor)
            others = UNCOUNTED if ledger is None else other_fits(ledger, solver)
            statement = replace(solver.statement(), tuning=others)
            exact = exact_parties({name: statement.weights_line(name) for name in problem.names})
            notes = [UNCOUNTED] * (ledger is None) + ([exact_note(exact, "coef_")] if exact else [])
            if notes:
                warnings.warn(f"private fit: {'; '.join(notes)}", PrivacyWarning, stacklevel=3)
        finally:
            solver.close()
        return result, statement

    def _encoded_targets(self, y: Array, loss: Loss) -> tuple[Array, Loss]:
        """Targets as the loss takes them, of shape (N,), and the loss, after a look at them."""
        return y, loss

    def _model(self, coef: Array, intercept: Any) -> dict[str, Any]:
        """``coef_`` and ``intercept_`` from weights of shape (d,) or (d, C) in the order of X."""
        return {"coef_": coef, "intercept_": float(intercept)}

    def _checked_loss(self) -> Loss:
        """The loss that ``loss`` names, for this kind of target."""
        if not isinstance(self.loss, str):
            raise ConfigError(f"loss: {self.loss!r} is not the name of a loss")
        loss = parse_loss(self._default_loss if self.loss == "auto" else self.loss)
        if loss.task != self._task:
            raise ConfigError(f"loss: {loss.name} is for {loss.task}, but this is a model for {self._task}")
        return loss

    def _options(self) -> SolverOptions:
        """Options of the solver; parameters that are settings of a run are checked as those are."""
        for value in self._alphas():
            check_parameter("alpha", SETTINGS["lambda"], value)
        if isinstance(self.penalty, str) and (near := near_key(self.penalty, REGULARIZERS)[0]):
            meant = f"the r of ADMM; did you mean regularizer={near!r}?"
            raise ConfigError(f"penalty: {self.penalty!r} is not a number, {meant}")
        options: dict[str, Any] = {}
        for setting in SETTINGS.values():
            name = setting.estimator
            if name not in _OTHER_FORMS and name in self._get_param_names():
                value = check_parameter(name, setting, getattr(self, name))
                options |= {setting.solver: value} if setting.solver else {}
        check_random_state(self.random_state)
        return SolverOptions(stationarity=options["gap"], **options)

    def _training_input(self, X: Any, y: Any) -> tuple[list[Any], Array, list[Array]]:
        """Blocks, targets and each party's columns; records the features seen."""
        numeric, tables = self._task == "regression", tables_of(X)
        if tables is not None:
            if self.parties is not None:
                raise ConfigError(
                    "parties: must be None where X is a list or dict of blocks, which says it already"
                )
            blocks = self._checked_blocks(tables)
            _, y = check_X_y(blocks[0], y, accept_sparse="csr", y_numeric=numeric, estimator=self)
            columns = consecutive(block.shape[1] for block in blocks)
            self.party_names_ = party_names(X, len(blocks))
            check_features(self, list(tables.values()), columns, reset=True)
            return blocks, y, columns
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=numeric)
        names = getattr(self, "feature_names_in_", None)
        columns = resolve_parties(self.parties, self.n_features_in_, names)
        self.party_names_ = party_names(self.parties, len(columns))
        return [take_columns(X, held) for held in columns], y, columns

    def _predictor(self, X: Any, offset: Any = None) -> Array:
        """Linear predictor of shape (N,), or (N, C), for a matrix or a list of blocks."""
        z = self._products(X)
        if offset is None:
            return z
        self._check_rows(X, offset=offset)
        shift = check_array(offset, dtype=np.float64, ensure_2d=False, input_name="offset")
        if shift.shape != z.shape:
            raise InputError(f"offset: shape {shift.shape}, expected {z.shape}")
        return z + shift

    def _check_rows(self, X: Any, **beside: Any) -> None:
        """Refuse what stands beside new rows in another order; ``y`` and Series of numbers by name."""
        check_is_fitted(self, "coef_")
        check_index(tables_of(X, self.party_names_) or {None: X}, **beside)

    def _products(self, X: Any) -> Array:
        check_is_fitted(self, "coef_")
        tables, clips = tables_of(X, self.party_names_), getattr(self, "clips_rows_", False)
        check_columns(tables or {None: X})
        if clips or tables is not None:
            blocks = self._blocks_of(X, self.party_columns_)
            if clips:  # private training clips each row to norm 1
                from fastadmm.privacy.sensitivity import clip_rows

                blocks = list(map(clip_rows, blocks))
            return sum(block @ x for block, x in zip(blocks, self.party_coefs_)) + self.intercept_
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        by_class = self.party_coefs_[0].ndim == 2
        return X @ (self.coef_.T if by_class else np.ravel(self.coef_)) + self.intercept_

    def _blocks_of(self, X: Any, columns: list[Array]) -> list[Any]:
        """Each party's columns of other rows than those of the fit."""
        tables = tables_of(X, self.party_names_)
        if tables is None:
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
            return [take_columns(X, held) for held in columns]
        check_index(tables)
        blocks, widths = self._checked_blocks(tables), [len(held) for held in columns]
        rows, found = ([block.shape[axis] for block in blocks] for axis in (0, 1))
        if found != widths:
            fitted = f"{type(self).__name__} was fitted on {widths}"
            raise InputError(f"X: blocks of {found} columns, but {fitted}")
        if len({*rows}) > 1:
            raise InputError(f"X: blocks of {rows} rows; align the rows first")
        check_features(self, list(tables.values()), columns, reset=False)
        return blocks

    def _checked_blocks(self, tables: dict[Any, Any]) -> list[Any]:
        return [
            check_array(block, accept_sparse="csr", dtype=np.float64, estimator=self, input_name=f"X[{m!r}]")
            for m, block in tables.items()
        ]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def check_features(estimator: Any, blocks: Sequence[Any], columns: list[Array], reset: bool) -> None:
    """Let scikit-learn record (reset) or check number and names of the columns of a list of blocks."""
    order = np.argsort(np.concatenate(columns))
    names = block_names(blocks, estimator.party_names_)
    header: Any = np.empty((0, len(order)))
    if names is not None:
        import pandas as pd

        header = pd.DataFrame(columns=np.array(names, dtype=object)[order])
    validate_data(estimator, header, reset=reset, skip_check_array=True)


@contextmanager
def _watched(callbacks: Any, verbose: Any, target: float) -> Iterator[Callback | None]:
    """What is called with each round: every callback, those that show progress told of begin and end, too."""
    each = [callbacks] if callable(callbacks) else [] if callbacks is None else callbacks
    if not isinstance(each, list | tuple) or not all(map(callable, each)):
        raise ConfigError(f"callbacks: {callbacks!r} is neither a callable nor a list of callables")
    if not isinstance(verbose, int | np.integer) or verbose < 0:
        raise ConfigError(f"verbose: {verbose!r} is not 0 or 1")
    called = [*each, *([Progress()] if verbose else [])]
    lines = [callback for callback in called if isinstance(callback, Progress)]
    for line in lines:
        line.begin(target)
    try:
        yield (lambda record: [one(record) for one in called]) if called else None
    finally:
        for line in lines:
            line.end()
