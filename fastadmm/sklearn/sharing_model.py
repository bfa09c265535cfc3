"""What the scikit-learn estimators share: parameters, input, training, and the attributes of a fit."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_array, check_random_state, check_X_y
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fastadmm.blocks.block import as_block
from fastadmm.errors import ConfigError, DivergenceError, InputError, PrivacyWarning
from fastadmm.figures.progress import Progress
from fastadmm.other_names import choose_instead, near_key
from fastadmm.problem.class_names import counted_of
from fastadmm.problem.constraints import Constraint, get_constraint
from fastadmm.problem.loss import Loss
from fastadmm.problem.losses import parse_loss
from fastadmm.problem.party_lambda import SCALED, PartyLambda, party_lambda, scales_with_lambda
from fastadmm.problem.problem import Problem, TestSet, make_problem, reweighted
from fastadmm.problem.regularizers import REGULARIZERS, Regularizer, get_regularizer
from fastadmm.settings.keys import SETTINGS
from fastadmm.sklearn.columns import (
    Parties,
    block_names,
    check_columns,
    check_index,
    consecutive,
    in_feature_order,
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
    import os

    from fastadmm.inference.table import Inference
    from fastadmm.privacy.ledger import Ledger
    from fastadmm.settings.privacy import Privacy
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

Callback = Callable[[RoundRecord], Any]
Constraints = str | Constraint | Sequence[str | Constraint | None] | None


class _UnknownParameter(ConfigError, TypeError):
    """A parameter that estimators do not have: Python calls it a TypeError, scikit-learn a ValueError."""


class _Hints:
    """Says what a parameter of another library is called here; below ``__init__``, whose signature counts."""

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
        parent: Any = super()
        return parent.set_params(**given)

    @classmethod
    def _refuse_unknown(cls, given: dict[str, Any]) -> None:
        own: list[str] = cls._get_param_names()  # type: ignore[attr-defined]
        called = {key: setting.estimator or key for key, setting in SETTINGS.items()}
        ours = {key: name for key, name in called.items() if name in own} | {name: name for name in own}
        for name in given.keys() - set(own):
            key, note = near_key(name, ours)
            if key:
                meant = f"did you mean {ours[key]!r}?" + (f" {note}" if note else "")
                raise _UnknownParameter(f"{cls.__name__}: unknown parameter {name!r}; {meant}")


def keep(estimator: Any, given: dict[str, Any]) -> None:
    """Keep the parameters that ``__init__`` was given, as scikit-learn asks."""
    vars(estimator).update((name, value) for name, value in given.items() if name != "self")


class _SharingModel(_Hints, BaseEstimator):
    """What the two estimators share; the loss and the meaning of y are theirs."""

    _task: ClassVar[str]
    _default_loss: ClassVar[str]
    coef_: Array
    intercept_: Any
    party_coefs_: list[Array]
    party_columns_: list[Array]
    classes_: Array
    positive_: Any
    class_count_: Array
    _own_lambda: PartyLambda | None = None
    _left: tuple[str, dict[str, Any], list[dict[str, Array]]] | None = None

    def __init__(
        self,
        parties: Parties = None,
        alpha: float | Sequence[float] | Array = 1e-4,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_rounds: int = 10000,
        scheme: str = "auto",
        penalty: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        n_threads: int | None = None,
        callbacks: Callback | Sequence[Callback] | None = None,
        regularizer: str | Regularizer = "l2",
        l1_ratio: float = 0.5,
        constraint: Constraints = None,
        loss: str = "auto",
        privacy: Privacy | None = None,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        ledger: str | os.PathLike[str] | Ledger | None = None,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        offset: Any = None,
        coef_init: Any = None,
        intercept_init: Any = None,
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
        coef_init : array-like, optional
            Weights to start at, of the shape of ``coef_``: they change the number of rounds,
            not the model, up to ``tol``.
        intercept_init : array-like, optional
            The intercept to go with them, of the shape of ``intercept_``.
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
        monitor = _monitor(self.callbacks, self.verbose)
        same = self._continues(coef_init, (X, y, sample_weight, offset))
        before = self._model_so_far() if self.warm_start and coef_init is None else None
        problem, columns, own_weight = self._problem(X, y, sample_weight, offset)
        if eval_set is not None:
            if not isinstance(eval_set, (tuple, list)) or len(eval_set) != 2:
                raise InputError("eval_set: not a pair: give (X, y) of other rows")
            problem = replace(problem, test=self._test_set(problem, columns, *eval_set))
        early = None
        if self.early_stopping:
            problem, early = self._hold_out(problem, own_weight)
        if intercept_init is not None and coef_init is None:
            raise ConfigError("intercept_init: needs coef_init beside it")
        if coef_init is not None:
            before = self._initial(coef_init, intercept_init, problem, columns)
        scaling = problem.own_lambda
        if before is not None and scaling is not None and len(before.weights) == len(scaling.factors):
            before = replace(before, weights=scaling.scaled(before.weights))
        with _shown(self.callbacks, options.gap if problem.convex else options.stationarity):
            result = self._solve(problem, options, monitor, before, early, same)
        if result.status is Status.DIVERGED:
            raise DivergenceError(result.message)
        for name, value in self._fitted(columns, result.weights, result.intercept).items():
            setattr(self, name, value)
        self._record(result, problem.n_samples)
        if early is not None:
            self.validation_loss_ = result.record.validation
            self.best_round_ = result.record.round
        return self

    def __str__(self) -> str:
        """The parameters and, of a fitted model, what is proved of it and who holds how much."""
        return repr(self) + (f": {self._how_it_ended()}" if hasattr(self, "status_") else "")

    def _how_it_ended(self) -> str:
        rounds = f"{self.n_rounds_} round{'s' * (self.n_rounds_ != 1)}"
        if self.certified_:
            end = f"certified in {rounds}"
        elif self.certified_within_:
            end = f"certified among bounded models in {rounds}"
        else:
            end = f"not certified, {str(self.status_).replace('_', ' ')} after {rounds}"
        measures = {"gap": self.duality_gap_, "stationarity": self.stationarity_}
        told = [
            f"{name} {value:.0e}"
            for name, value in measures.items()
            if value is not None and value < math.inf
        ]
        held = [f"{name} {len(own)}" for name, own in zip(self.party_names_, self.party_columns_)]
        rows = [f"{self.n_samples_fit_} rows"] if hasattr(self, "n_samples_fit_") else []
        counted = []
        if getattr(self, "positive_", None) is not None:
            frequent = [f" in {count}" for count in self._class_rows().values()][1:]
            counted = [f"class 1 = {self.positive_!r}{''.join(frequent)}"]
        said = ", ".join([end, *told]).replace("e-0", "e-")
        return ", ".join([said, *held, *rows, *counted])

    def _class_rows(self) -> dict[Any, int]:
        """Rows of each class, the one that is counted last; none where they are not told."""
        if not hasattr(self, "class_count_"):
            return {}
        rows = zip(self.classes_.tolist(), self.class_count_.tolist())
        return dict(sorted(rows, key=lambda own: own[0] == self.positive_))

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

    def _problem(self, X: Any, y: Any, sample_weight: Any, offset: Any) -> tuple[Problem, list[Array], Array]:
        """The problem, each party's columns, and the sample weights without class weights."""
        loss = self._checked_loss()
        tables = tables_of(X) or {None: X}
        check_columns(tables)
        check_index(tables, y, sample_weight=sample_weight, offset=offset)
        blocks, target, columns = self._training_input(X, y)
        if target.dtype.kind in "mM":
            raise InputError("y: dates or times are no targets: give numbers, or classes as text")
        encoded = self._encode(target)
        loss = self._loss_of_targets(loss)
        scaling = self._own_lambda = self._scaling(len(blocks))
        lam: Any = self.alpha if scaling is None else scaling.lam
        if scaling is not None:
            blocks = [block * factor for block, factor in zip(blocks, scaling.factors)]
        if sample_weight is not None:
            sample_weight = _check_sample_weight(
                sample_weight, blocks[0], dtype=np.float64, ensure_non_negative=True
            )
        problem = make_problem(
            blocks,
            encoded,
            loss=loss.name,
            loss_parameters=loss.parameters,
            lam=float(lam),
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
        return problem, columns, np.ones(len(encoded)) if sample_weight is None else sample_weight

    def _scaling(self, n_parties: int) -> PartyLambda | None:
        """What scales the parties' columns where every party has its own lambda."""
        if isinstance(self.alpha, Real):
            return None
        values = self._party_alphas()
        if len(values) != n_parties:
            raise ConfigError(f"alpha: {len(values)} values, but there are {n_parties} parties")
        regularizer = get_regularizer(self.regularizer)
        each: Sequence[Any] = (
            self.constraint if isinstance(self.constraint, list | tuple) else [self.constraint]
        )
        if not all(scales_with_lambda(regularizer, get_constraint(one)) for one in each):
            raise ConfigError(
                "alpha: one for each party goes with regularizer l2, l1 or group_lasso, and no constraint "
                "but nonnegative"
            )
        if self.privacy is not None:
            raise ConfigError("alpha: one for each party does not go with privacy")
        return party_lambda(values, regularizer)

    def _party_alphas(self) -> list[float]:
        """``alpha`` where it is one for each party."""
        if isinstance(self.alpha, str) or not isinstance(self.alpha, Sequence | np.ndarray):
            raise ConfigError(f"alpha: {self.alpha!r} is not a number, and not one for each party")
        for value in self.alpha:
            _check_number("alpha", value, Real, above=0)
        return [float(value) for value in self.alpha]

    def _stratify(self, y: Array) -> bool:
        """Whether targets are classes, whose shares held-out rows keep."""
        return self._task == "classification" and not np.any(y % 1)

    def _hold_out(self, problem: Problem, own_weight: Array) -> tuple[Problem, EarlyStopping]:
        """The problem without the rows that early stopping holds out, and the rule."""
        y = problem.y
        names = self.classes_.tolist() if self._task == "classification" else None
        held = held_out_rows(y, self.validation_fraction, self.random_state, self._stratify(y), names)
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
        self.program_, self.exchanges_, self.party_bytes_ = (
            result.program,
            result.exchanges,
            result.party_bytes,
        )
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

    def _fitted(self, columns: list[Array], weights: list[Array], intercept: Any) -> dict[str, Any]:
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

    def _continues(self, coef_init: Any, data: tuple[Any, ...]) -> str:
        """What a later fit must have in common with this one to take up its rounds; empty where none can."""
        if not self.warm_start or self.early_stopping or coef_init is not None:
            return ""
        import joblib

        others = ("max_rounds", "n_threads", "callbacks", "verbose")
        own = {k: v for k, v in self.get_params(deep=False).items() if k not in others}
        return str(joblib.hash((data, own)))

    def _test_set(self, problem: Problem, columns: list[Array], X: Any, y: Any) -> TestSet:
        """Other rows as the problem takes them."""
        if self.privacy is not None:
            raise ConfigError("eval_set: not in a private run; score the model afterwards")
        blocks = self._blocks_of(X, columns)
        y = check_array(y, dtype=None, ensure_2d=False, input_name="y of eval_set")
        if len(y) != blocks[0].shape[0]:
            raise InputError(f"eval_set: {blocks[0].shape[0]} rows of X, but {len(y)} of y")
        if self._task == "classification":
            if not np.isin(y, self.classes_).all():
                raise InputError(f"eval_set: y has classes other than {self.classes_.tolist()}")
            y = np.searchsorted(self.classes_, y)
        factors = [1.0] * len(blocks) if problem.own_lambda is None else problem.own_lambda.factors
        made = [as_block(block * factor, name) for block, factor, name in zip(blocks, factors, problem.names)]
        ones, shape = np.ones(len(y)), (len(y), problem.n_outputs) if problem.loss.vector else len(y)
        return TestSet(made, np.asarray(y, dtype=np.float64), ones, np.zeros(shape))

    def _model_so_far(self) -> StartingPoint | None:
        """The model of the last fit, for ``warm_start``."""
        if not hasattr(self, "party_coefs_"):
            return None
        by_class = self.party_coefs_[0].ndim == 2
        intercept = self.intercept_ if by_class else float(np.ravel(self.intercept_)[0])
        return StartingPoint(list(self.party_coefs_), intercept if self.fit_intercept else 0.0 * intercept)

    def _initial(self, coef: Any, intercept: Any, problem: Problem, columns: list[Array]) -> StartingPoint:
        """``coef_init`` and ``intercept_init`` as the parties' weights."""
        classes = problem.n_outputs if problem.loss.vector else 0
        d = self.n_features_in_
        names = getattr(self, "feature_names_in_", None)
        whole = np.asarray(in_feature_order(coef, names, "coef_init"), dtype=np.float64)
        if whole.shape != ((classes, d) if classes else (d,)) and not (not classes and whole.shape == (1, d)):
            wanted = (classes, d) if classes else (d,)
            raise InputError(f"coef_init: shape {whole.shape}, expected {wanted}")
        whole = whole.T if classes else np.ravel(whole)
        size = max(classes, 1)
        b = np.zeros(size) if intercept is None else np.ravel(np.asarray(intercept, dtype=np.float64))
        if b.shape != (size,):
            raise InputError(f"intercept_init: {b.size} values, expected {size}")
        return StartingPoint([whole[held] for held in columns], b if classes else float(b[0]))

    def _solve(
        self,
        problem: Problem,
        options: SolverOptions,
        monitor: Callable[[RoundRecord], Any] | None,
        start: StartingPoint | None,
        early: EarlyStopping | None,
        same: str,
    ) -> SolveResult:
        """Train with the privacy that is asked for, and record what it guarantees."""
        from fastadmm.privacy.statement import no_privacy
        from fastadmm.settings.privacy import DifferentialPrivacy, MessagePrivacy, Privacy

        settings = Privacy() if self.privacy is None else self.privacy
        if not isinstance(settings, Privacy):
            raise ConfigError(f"privacy: {settings!r} is not a fastadmm.Privacy")
        self.clips_rows_ = isinstance(settings, MessagePrivacy)
        if not isinstance(settings, DifferentialPrivacy):
            if self.ledger is not None:
                raise ConfigError("ledger: a fit without privacy charges nothing; leave it out")
            self.privacy_ = no_privacy(problem.names)
            left, self._left = self._left, None
            if left is None or not same or left[0] != same:
                open_solver = Solver(problem, options, start=start, early=early)
            else:
                more = options.max_rounds + int(left[1]["n_rounds"])
                open_solver = Solver(problem, replace(options, max_rounds=more))
                open_solver.restore(*left[1:])
            try:
                result = run_rounds(open_solver, monitor)
                if same and result.status is Status.MAX_ROUNDS:
                    self._left = same, open_solver.export(), open_solver.export_parties()
                return result
            finally:
                open_solver.close()
        for parameter, key, given in (
            ("early_stopping", "validation", early),
            ("warm_start", "warm_start", start),
            ("class_weight", "class_weight", getattr(self, "class_weight", None)),
        ):
            if given is not None:
                raise ConfigError(f"{parameter}: not in a private run: {SETTINGS[key].refused['private']}")
        from fastadmm.privacy.message import private_solver
        from fastadmm.privacy.private_run import UNCOUNTED, charge_fit, other_fits, resolve_ledger
        from fastadmm.privacy.published import exact_note, exact_parties

        ledger = resolve_ledger(self.ledger)
        solver = private_solver(problem, options, settings)
        if solver.advice():
            warnings.warn(solver.advice(), UserWarning, stacklevel=3)
        try:
            if ledger is not None:
                charge_fit(ledger, solver)
            result = run_rounds(solver, monitor)
            others = UNCOUNTED if ledger is None else other_fits(ledger, solver)
            self.privacy_ = replace(solver.statement(), tuning=others)
            said = {name: self.privacy_.weights_line(name) for name in problem.names}
            notes = [UNCOUNTED] if ledger is None else []
            notes += [exact_note(exact, "coef_")] if (exact := exact_parties(said)) else []
            if notes:
                warnings.warn(f"private fit: {'; '.join(notes)}", PrivacyWarning, stacklevel=3)
        finally:
            solver.close()
        return result

    def _seen_by_model(self, block: Any) -> Any:
        """A party's rows as its weights take them: private training clips each row to norm 1."""
        if not getattr(self, "clips_rows_", False):
            return block
        from fastadmm.privacy.sensitivity import clip_rows

        return clip_rows(block)

    def _loss_of_targets(self, loss: Loss) -> Loss:
        """The loss, after a look at the encoded targets."""
        return loss

    def _encode(self, y: Array) -> Array:
        """Targets as the loss takes them, of shape (N,)."""
        raise NotImplementedError

    def _model(self, coef: Array, intercept: Any) -> dict[str, Any]:
        """``coef_`` and ``intercept_`` from weights of shape (d,) or (d, C) in the order of X."""
        raise NotImplementedError

    def _checked_loss(self) -> Loss:
        """The loss that ``loss`` names, for this kind of target."""
        if not isinstance(self.loss, str):
            raise ConfigError(f"loss: {self.loss!r} is not the name of a loss")
        loss = parse_loss(self._default_loss if self.loss == "auto" else self.loss)
        if loss.task != self._task:
            raise ConfigError(f"loss: {loss.name} is for {loss.task}, but this is a model for {self._task}")
        return loss

    def _options(self) -> SolverOptions:
        """Check the parameters under their names here; the solver has its own."""
        if isinstance(self.alpha, Real):
            _check_number("alpha", self.alpha, Real, above=0)
        else:
            self._party_alphas()
        _check_number("l1_ratio", self.l1_ratio, Real, above=0)
        _check_number("tol", self.tol, Real, at_least=0, below=1)
        _check_number("max_rounds", self.max_rounds, Integral, at_least=1)
        if isinstance(self.penalty, str):
            known = self.penalty in REGULARIZERS
            meant = repr(self.penalty) if known else choose_instead("regularizer", self.penalty, REGULARIZERS)
            meant = f"did you mean regularizer={meant.removeprefix('did you mean ').rstrip('?')}?"
            hint = "" if "choose" in meant else f", the r of ADMM; {meant}"
            raise ConfigError(f"penalty: {self.penalty!r} is not a number{hint}")
        if self.penalty is not None:
            _check_number("penalty", self.penalty, Real, above=0)
        if self.n_threads is not None:
            _check_number("n_threads", self.n_threads, Integral, at_least=1)
        if self.early_stopping:
            _check_number("validation_fraction", self.validation_fraction, Real, above=0)
            _check_number("n_iter_no_change", self.n_iter_no_change, Integral, at_least=1)
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            raise ConfigError(f"fit_intercept: {self.fit_intercept!r} is neither True nor False")
        if not isinstance(self.scheme, str):
            raise ConfigError(f"scheme: {self.scheme!r} is not the name of a scheme")
        check_random_state(self.random_state)
        return SolverOptions(
            scheme=self.scheme,
            gap=float(self.tol),
            stationarity=float(self.tol),
            max_rounds=int(self.max_rounds),
            penalty=None if self.penalty is None else float(self.penalty),
            n_threads=None if self.n_threads is None else int(self.n_threads),
        )

    def _training_input(self, X: Any, y: Any) -> tuple[list[Any], Array, list[Array]]:
        """Blocks, targets and each party's columns; records the features seen."""
        numeric = self._task == "regression"
        tables = tables_of(X)
        if tables is not None:
            if self.parties is not None:
                raise ConfigError(
                    "parties: must be None where X is a list or dict of blocks, which says it already"
                )
            blocks = self._checked_blocks(tables)
            _, y = check_X_y(blocks[0], y, accept_sparse="csr", y_numeric=numeric, estimator=self)
            columns = consecutive(block.shape[1] for block in blocks)
            self.party_names_ = _party_names(X, len(blocks))
            check_features(self, list(tables.values()), columns, reset=True)
            return blocks, y, columns
        given = X
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=numeric)
        names = getattr(self, "feature_names_in_", None)
        columns = resolve_parties(self.parties, self.n_features_in_, names, given)
        self.party_names_ = _party_names(self.parties, len(columns))
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
        check_columns(tables_of(X, self.party_names_) or {None: X})
        if tables_of(X, self.party_names_) is not None or getattr(self, "clips_rows_", False):
            return self._sum(self._blocks_of(X, self.party_columns_))
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
        if [block.shape[1] for block in blocks] != widths:
            found = [block.shape[1] for block in blocks]
            raise InputError(
                f"X: blocks of {found} columns, but {type(self).__name__} was fitted on {widths}"
            )
        if len({block.shape[0] for block in blocks}) > 1:
            raise InputError(f"X: blocks of {[b.shape[0] for b in blocks]} rows; align the rows first")
        check_features(self, list(tables.values()), columns, reset=False)
        return blocks

    def _sum(self, blocks: Sequence[Any]) -> Array:
        scores = (self._seen_by_model(block) @ x for block, x in zip(blocks, self.party_coefs_))
        return sum(scores) + self.intercept_

    def _checked_blocks(self, tables: dict[Any, Any]) -> list[Any]:
        return [
            check_array(block, accept_sparse="csr", dtype=np.float64, estimator=self, input_name=f"X[{m!r}]")
            for m, block in tables.items()
        ]

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A pickle of version 0.1.0 has no parameters that came later; it was made as their defaults say.
        given = signature(type(self)).parameters.values()
        state = {parameter.name: parameter.default for parameter in given} | state
        if "party_columns_" in state and "party_names_" not in state:
            state["party_names_"] = _party_names(state["parties"], len(state["party_columns_"]))
        if "classes_" in state and "positive_" not in state:
            state["positive_"] = counted_of(state["classes_"].tolist())
        super().__setstate__(state)

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


def _party_names(named: Any, count: int) -> list[str]:
    """The keys of a dict; otherwise numbers count as names."""
    return list(named) if isinstance(named, Mapping) else [f"party-{m + 1}" for m in range(count)]


def _check_number(
    name: str,
    value: Any,
    kind: Any,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
) -> None:
    """Raise ConfigError unless value is a finite number of the kind and in range."""
    if not isinstance(value, kind) or isinstance(value, (bool, np.bool_)):
        what = "an integer" if kind is Integral else "a number"
        raise ConfigError(f"{name}: {value!r} is not {what}")
    value = value.item() if isinstance(value, np.generic) else value  # shown without its type
    if not math.isfinite(value):
        raise ConfigError(f"{name}: {value!r} is not finite")
    if above is not None and not value > above:
        raise ConfigError(f"{name}: {value!r} must be above {above}")
    if at_least is not None and not value >= at_least:
        raise ConfigError(f"{name}: {value!r} must be at least {at_least}")
    if below is not None and not value < below:
        raise ConfigError(f"{name}: {value!r} must be below {below}")


def _monitor(callbacks: Any, verbose: Any) -> Callable[[RoundRecord], None] | None:
    """One function that calls every callback, and prints rounds."""
    each = [callbacks] if callbacks is None or callable(callbacks) else callbacks
    if not isinstance(each, (list, tuple)) or not (callbacks is None or all(map(callable, each))):
        raise ConfigError(f"callbacks: {callbacks!r} is neither a callable nor a list of callables")
    if not isinstance(verbose, int | np.integer) or verbose < 0:
        raise ConfigError(f"verbose: {verbose!r} is not 0, 1 or 2")
    called = [one for one in each if one is not None] + ([_printer(int(verbose))] if verbose else [])

    def monitor(record: RoundRecord) -> None:
        for one in called:
            one(record)

    return monitor if called else None


@contextmanager
def _shown(callbacks: Any, target: float) -> Iterator[None]:
    """Tell the callbacks that show progress when the fit begins, what it stops at, and when it ends."""
    each = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
    lines = [callback for callback in each if isinstance(callback, Progress)]
    for line in lines:
        line.begin(target)
    try:
        yield
    finally:
        for line in lines:
            line.end()


def _printer(verbose: int) -> Callable[[RoundRecord], None]:
    """Print rounds: with 2 each of them, with 1 those whose numbers have one digit that is not 0."""

    def show(record: RoundRecord) -> None:
        if verbose > 1 or len(str(record.round).rstrip("0")) == 1:
            measure = f"gap {record.gap:.2e}"
            if record.stationarity is not None:
                measure = f"stationarity {record.stationarity:.2e}"
            print(
                f"round {record.round}: objective {record.objective:.8g}, {measure}, {record.seconds:.1f} s"
            )

    return show
