"""The scikit-learn estimators: generalised linear models over features that several parties hold.

Nothing is computed here. The input is checked and cut into blocks and passed to
:func:`fastadmm.solver.solver.solve`; the result becomes the attributes that scikit-learn users expect.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import signature
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags, check_array, check_random_state, check_X_y
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fastadmm.errors import ConfigError, DivergenceError, InputError, PrivacyWarning
from fastadmm.problem.class_weights import weigh_classes
from fastadmm.problem.constraints import get_constraint
from fastadmm.problem.loss import Loss
from fastadmm.problem.losses import parse_loss
from fastadmm.problem.party_lambda import party_lambda, scales_with_lambda
from fastadmm.problem.problem import Problem, TestSet, make_problem, reweighted
from fastadmm.problem.regularizers import get_regularizer
from fastadmm.settings.keys import SETTINGS
from fastadmm.sklearn.callbacks import FRAMES, CallbackSupportMixin, FitCallbacks, with_callbacks
from fastadmm.sklearn.columns import block_names, consecutive, is_block_list, resolve_parties, take_columns
from fastadmm.solver.early_stopping import EarlyStopping, held_out_rows
from fastadmm.solver.history import RoundRecord, Status
from fastadmm.solver.loop import SolveResult, run_rounds
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint

__all__ = ["ADMMSharingClassifier", "ADMMSharingRegressor"]

Array = np.ndarray

#: Ways to end before ``tol`` that the user has asked for.
_BY_CHOICE = (Status.COMPLETED, Status.EARLY_STOPPED, Status.INTERRUPTED)

Callback = Callable[[RoundRecord], Any]


class _SharingModel(CallbackSupportMixin, BaseEstimator):
    """What the two estimators share; the loss and the meaning of y are theirs."""

    _task: ClassVar[str]
    _default_loss: ClassVar[str]
    coef_: Array
    intercept_: Any
    _factors: list[float] | None = None

    def __init__(
        self,
        parties: Any = None,
        alpha: Any = 1e-4,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_rounds: int = 10000,
        scheme: str = "auto",
        penalty: float | None = None,
        random_state: Any = None,
        n_threads: int | None = None,
        callbacks: Callback | Sequence[Callback] | None = None,
        regularizer: Any = "l2",
        l1_ratio: float = 0.5,
        constraint: Any = None,
        loss: str = "auto",
        privacy: Any = None,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        ledger: Any = None,
    ) -> None:
        self.parties = parties
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_rounds = max_rounds
        self.scheme = scheme
        self.penalty = penalty
        self.random_state = random_state
        self.n_threads = n_threads
        self.callbacks = callbacks
        self.regularizer = regularizer
        self.l1_ratio = l1_ratio
        self.constraint = constraint
        self.loss = loss
        self.privacy = privacy
        self.warm_start = warm_start
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.ledger = ledger

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        offset: Any = None,
        coef_init: Any = None,
        intercept_init: Any = None,
    ) -> Self:
        """Train the joint model.

        Parameters
        ----------
        X : matrix of shape (n_samples, n_features), or list of matrices
            ndarray, SciPy sparse or DataFrame; a list holds one matrix of
            shape (n_samples, d_m) per party, rows in the same order.
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
            If ``tol`` was not reached within ``max_rounds``.
        """
        options = self._options()
        own = _monitor(self.callbacks)
        before = self._model_so_far() if self.warm_start and coef_init is None else None
        problem, columns, own_weight = self._problem(X, y, sample_weight, offset)
        early = None
        if self.early_stopping:
            problem, early = self._hold_out(problem, own_weight)
        if intercept_init is not None and coef_init is None:
            raise ConfigError("intercept_init: needs coef_init beside it")
        if coef_init is not None:
            before = self._initial(coef_init, intercept_init, problem, columns)
        if before is not None and self._factors is not None and len(before.weights) == len(self._factors):
            scaled = [own / factor for own, factor in zip(before.weights, self._factors)]
            before = StartingPoint(scaled, before.intercept)
        given = {"sample_weight": None if sample_weight is None else own_weight, "offset": offset}
        metadata = {name: value for name, value in given.items() if value is not None} or None
        callbacks = FitCallbacks(self, options.max_rounds, X, y, metadata, columns)
        told = None if own is None else lambda record: own(self._own_norms(record))
        result = self._solve(problem, options, [told, callbacks], before, early)
        callbacks.close()
        if result.status is Status.DIVERGED:
            raise DivergenceError(result.message)
        for name, value in self._fitted(columns, result.weights, result.intercept).items():
            setattr(self, name, value)
        self._record(result)
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
    ) -> Any:
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
            If the data are not those of ``fit``; if the loss is not logistic, squared or poisson, or the
            regulariser not l2 or none without a constraint; if columns depend on each other.
        """
        from fastadmm.sklearn.inference import infer_estimator

        check_is_fitted(self, "coef_")
        return infer_estimator(self, X, y, sample_weight, offset, covariance, level)

    def _problem(self, X: Any, y: Any, sample_weight: Any, offset: Any) -> tuple[Problem, list[Array], Array]:
        """The problem, each party's columns, and the sample weights without class weights."""
        loss = self._checked_loss()
        blocks, target, columns = self._training_input(X, y)
        encoded = self._encode(target)
        loss = self._loss_of_targets(loss)
        lam, self._factors = self._regularisation(len(blocks))
        if self._factors is not None:
            blocks = [block * factor for block, factor in zip(blocks, self._factors)]
        if sample_weight is not None:
            sample_weight = _check_sample_weight(
                sample_weight, blocks[0], dtype=np.float64, ensure_non_negative=True
            )
        problem = make_problem(
            blocks,
            encoded,
            loss=loss.name,
            loss_parameters=loss.parameters,
            lam=lam,
            fit_intercept=bool(self.fit_intercept),
            sample_weight=self._class_weighted(encoded, sample_weight),
            offset=offset,
            regularizer=self.regularizer,
            regularizer_parameters={"l1_ratio": self.l1_ratio} if self.regularizer == "elastic_net" else None,
            constraint=self.constraint,
        )
        return problem, columns, np.ones(len(encoded)) if sample_weight is None else sample_weight

    def _regularisation(self, n_parties: int) -> tuple[float, list[float] | None]:
        """Lambda, and where every party has its own the factors of their columns."""
        if isinstance(self.alpha, Real):
            return float(self.alpha), None
        values = self._party_alphas()
        if len(values) != n_parties:
            raise ConfigError(f"alpha: {len(values)} values, but there are {n_parties} parties")
        regularizer = get_regularizer(self.regularizer)
        each = self.constraint if isinstance(self.constraint, list | tuple) else [self.constraint]
        if not all(scales_with_lambda(regularizer, get_constraint(one)) for one in each):
            raise ConfigError(
                "alpha: one for each party goes with regularizer l2, l1 or group_lasso, and no constraint "
                "but nonnegative"
            )
        if self.privacy is not None:
            raise ConfigError("alpha: one for each party does not go with privacy")
        own = party_lambda(values, regularizer)
        return own.lam, own.factors

    def _party_alphas(self) -> list[float]:
        """``alpha`` where it is one for each party."""
        if isinstance(self.alpha, str) or not isinstance(self.alpha, Sequence | np.ndarray):
            raise ConfigError(f"alpha: {self.alpha!r} is not a number, and not one for each party")
        for value in self.alpha:
            _check_number("alpha", value, Real, above=0)
        return [float(value) for value in self.alpha]

    def _own_norms(self, record: RoundRecord) -> RoundRecord:
        """The record with norms of the parties' weights, where it has those of scaled ones."""
        if self._factors is None:
            return record
        norms = [factor * norm for factor, norm in zip(self._factors, record.weight_norms)]
        return replace(record, weight_norms=norms)

    def _stratify(self, y: Array) -> bool:
        """Whether targets are classes, whose shares held-out rows keep."""
        return self._task == "classification" and not np.any(y % 1)

    def _hold_out(self, problem: Problem, own_weight: Array) -> tuple[Problem, EarlyStopping]:
        """The problem without the rows that early stopping holds out, and the rule."""
        y = problem.y
        held = held_out_rows(y, self.validation_fraction, self.random_state, self._stratify(y))
        counted = np.where(held, own_weight, 0.0)
        if not counted.any():
            raise InputError("early_stopping: all held-out rows have weight 0")
        rows = TestSet(problem.blocks, y, counted, problem.offset)
        rule = EarlyStopping(rows, patience=int(self.n_iter_no_change))
        return reweighted(problem, np.where(held, 0.0, problem.weight)), rule

    def _record(self, result: SolveResult) -> None:
        """Set the attributes that tell how training ended; warn where it was not as asked."""
        self.history_ = [self._own_norms(record) for record in result.history]
        self.n_rounds_ = self.n_iter_ = len(result.history)
        self.duality_gap_ = result.gap
        self.stationarity_ = result.stationarity
        self.status_ = result.status
        self.certified_ = result.status is Status.CONVERGED
        self.converged_ = self.certified_ or result.status is Status.STATIONARY
        if result.status not in _BY_CHOICE and not self.converged_:
            warnings.warn(
                f"{result.message}; raise max_rounds or tol, or bring the features to one scale",
                ConvergenceWarning,
                stacklevel=3 + FRAMES,
            )

    def _fitted(self, columns: list[Array], weights: list[Array], intercept: Any) -> dict[str, Any]:
        """What makes the estimator predict with a model, by attribute name."""
        if self._factors is not None:
            weights = [factor * own for factor, own in zip(self._factors, weights)]
        coef = np.empty((self.n_features_in_, *weights[0].shape[1:]))
        for held, own in zip(columns, weights):
            coef[held] = own
        return {**self._model(coef, intercept), "party_coefs_": weights, "party_columns_": columns}

    def _class_weighted(self, encoded: Array, sample_weight: Array | None) -> Array | None:
        """Sample weights times class weights, where there are any."""
        return sample_weight

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
        whole = np.asarray(coef, dtype=np.float64)
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
        monitors: list[Any],
        start: StartingPoint | None,
        early: EarlyStopping | None,
    ) -> SolveResult:
        """Train with the privacy that is asked for, and record what it guarantees."""
        from fastadmm.privacy.statement import no_privacy
        from fastadmm.settings.privacy import Privacy

        settings = Privacy() if self.privacy is None else self.privacy
        if not isinstance(settings, Privacy):
            raise ConfigError(f"privacy: {settings!r} is not a fastadmm.Privacy")
        self.clips_rows_ = settings.mode == "message"
        own, callbacks = monitors
        if settings.mode == "none" and self.ledger is not None:
            raise ConfigError("ledger: a fit without privacy charges nothing; leave it out")
        if settings.mode == "none":
            self.privacy_ = no_privacy(problem.names)
            open_solver = Solver(problem, options, start=start, early=early)
            callbacks.solver = open_solver
            try:
                return run_rounds(open_solver, _each(own, callbacks), callbacks.should_stop)
            finally:
                open_solver.close()
        for parameter, key, given in (
            ("early_stopping", "validation", early),
            ("warm_start", "warm_start", start),
            ("class_weight", "class_weight", getattr(self, "class_weight", None)),
        ):
            if given is not None:
                raise ConfigError(f"{parameter}: not in a private run: {SETTINGS[key].refused['private']}")
        from fastadmm.privacy.fits import UNCOUNTED, charge_fit, other_fits, resolve_ledger
        from fastadmm.privacy.fusion import FusionSolver
        from fastadmm.privacy.message import MessageSolver

        ledger = resolve_ledger(self.ledger)
        kind: Any = FusionSolver if settings.mode == "fusion" else MessageSolver
        solver: Any = kind(problem, options, settings)
        if solver.advice():
            warnings.warn(solver.advice(), UserWarning, stacklevel=3 + FRAMES)
        try:
            if ledger is None:
                warnings.warn(f"private fit: {UNCOUNTED}", PrivacyWarning, stacklevel=3 + FRAMES)
            else:
                charge_fit(ledger, solver)
            result = run_rounds(solver, _each(own, callbacks))
            others = UNCOUNTED if ledger is None else other_fits(ledger, solver)
            self.privacy_ = replace(solver.statement(), tuning=others)
        finally:
            solver.close()
        return result

    def _seen_by_model(self, block: Any) -> Any:
        """A party's rows as its weights take them: private training clips each row to norm 1."""
        if not getattr(self, "clips_rows_", False):
            return block
        from fastadmm.privacy.rows import clip_rows

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
        _check_number("tol", self.tol, Real, at_least=0)
        _check_number("max_rounds", self.max_rounds, Integral, at_least=1)
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
        if is_block_list(X):
            if self.parties is not None:
                raise ConfigError("parties: must be None where X is a list of blocks, which says it already")
            blocks = self._checked_blocks(X)
            _, y = check_X_y(blocks[0], y, accept_sparse="csr", y_numeric=numeric, estimator=self)
            columns = consecutive(block.shape[1] for block in blocks)
            self._check_features(X, columns, reset=True)
            return blocks, y, columns
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=numeric)
        names = getattr(self, "feature_names_in_", None)
        columns = resolve_parties(self.parties, self.n_features_in_, names)
        return [take_columns(X, held) for held in columns], y, columns

    def _predictor(self, X: Any, offset: Any = None) -> Array:
        """Linear predictor of shape (N,), or (N, C), for a matrix or a list of blocks."""
        z = self._products(X)
        if offset is None:
            return z
        shift = check_array(offset, dtype=np.float64, ensure_2d=False, input_name="offset")
        if shift.shape != z.shape:
            raise InputError(f"offset: shape {shift.shape}, expected {z.shape}")
        return z + shift

    def _products(self, X: Any) -> Array:
        check_is_fitted(self, "coef_")
        if not is_block_list(X):
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
            if not getattr(self, "clips_rows_", False):
                by_class = self.party_coefs_[0].ndim == 2
                return X @ (self.coef_.T if by_class else np.ravel(self.coef_)) + self.intercept_
            blocks = [take_columns(X, held) for held in self.party_columns_]
            return self._sum(blocks)
        widths = [len(held) for held in self.party_columns_]
        blocks = self._checked_blocks(X)
        if [block.shape[1] for block in blocks] != widths:
            found = [block.shape[1] for block in blocks]
            raise InputError(
                f"X: blocks of {found} columns, but {type(self).__name__} was fitted on {widths}"
            )
        if len({block.shape[0] for block in blocks}) > 1:
            raise InputError(f"X: blocks of {[b.shape[0] for b in blocks]} rows; align the rows first")
        self._check_features(X, self.party_columns_, reset=False)
        return self._sum(blocks)

    def _sum(self, blocks: Sequence[Any]) -> Array:
        scores = (self._seen_by_model(block) @ x for block, x in zip(blocks, self.party_coefs_))
        return sum(scores) + self.intercept_

    def _checked_blocks(self, blocks: Sequence[Any]) -> list[Any]:
        return [
            check_array(block, accept_sparse="csr", dtype=np.float64, estimator=self, input_name=f"X[{m}]")
            for m, block in enumerate(blocks)
        ]

    def _check_features(self, blocks: Sequence[Any], columns: list[Array], reset: bool) -> None:
        """Let scikit-learn record (reset) or check number and names of the columns of a list of blocks."""
        order = np.argsort(np.concatenate(columns))
        names = block_names(blocks)
        header: Any = np.empty((0, len(order)))
        if names is not None:
            import pandas as pd

            header = pd.DataFrame(columns=np.array(names, dtype=object)[order])
        validate_data(self, header, reset=reset, skip_check_array=True)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A pickle of version 0.1.0 has no parameters that came later; it was made as their defaults say.
        given = signature(type(self)).parameters.values()
        super().__setstate__({parameter.name: parameter.default for parameter in given} | state)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class ADMMSharingClassifier(ClassifierMixin, _SharingModel):
    r"""Logistic regression, of two or more classes, over vertically split features by ADMM sharing.

    Minimises, over the parties' weights :math:`x_m` and the intercept b,

    .. math:: F = \frac1W \sum_i s_i \log(1 + e^{-\tilde y_i z_i}) + \frac{\alpha}{2} \sum_m \|x_m\|^2,
              \qquad z = b + \sum_m D_m x_m

    with sample weights s, their sum W and labels :math:`\tilde y = \pm 1`; with more than
    two classes multinomial regression, :math:`\log \sum_c e^{z_{ic}} - z_{i y_i}` with
    weights and an intercept per class. The
    model is that of scikit-learn's ``LogisticRegression(C=1 / (W * alpha))``,
    however the columns are split.

    Parameters
    ----------
    parties : None, int, list of int, or list of lists, default=None
        Who holds which columns of X. None: one party holds all. An int: that many equal blocks.
        ``[66, 57]``: widths of consecutive blocks. Lists of column names or numbers: the columns of each
        party. Must be None if X is given as a list of blocks.
    alpha : float, or list of float, default=1e-4
        Regularisation :math:`\alpha > 0` **per mean loss** (lambda elsewhere in fastadmm). A list has
        one :math:`\alpha_m` for each party, in place of :math:`\alpha` before its :math:`\|x_m\|^2`; with
        regularizer "l2", "l1" or "group_lasso", and no constraint but "nonnegative".
    fit_intercept : bool, default=True
        Whether to fit an unpenalised intercept.
    tol : float, default=1e-6
        Stop at this certified relative duality gap, an upper bound on
        :math:`(F - F^*) / F^*`; 0 always runs ``max_rounds`` rounds. With a
        non-convex loss or regulariser there is no gap, and it is the relative
        stationarity of ``docs/nonconvex.md``.
    max_rounds : int, default=10000
        Stop after this many rounds.
    scheme : str, default="auto"
        How parties and coordinator work together; ``docs/training.md`` has a table of all schemes.
        "auto" chooses the one with the fewest rounds: "subspace" or, with constraints and regularisers
        other than "l2", "proximal"; if ``penalty`` is given, "sharing". All three always converge.
    penalty : float or None, default=None
        Penalty r of the augmented Lagrangian in the summed scaling (rho N for
        the mean objective's rho). It changes the speed, not the model.
    random_state : int, RandomState or None, default=None
        Chooses the rows that ``early_stopping`` holds out; training itself is deterministic.
    n_threads : int or None, default=None
        Number of threads, None for every core. The model does not depend on it.
    callbacks : callable, list of callables, or None, default=None
        Each is called with the :class:`fastadmm.solver.history.RoundRecord` of each round.
    regularizer : {"l2", "l1", "elastic_net", "group_lasso", "none", "log_sum"} or Regularizer, default="l2"
        R in :math:`\alpha \sum_m R(x_m)`; F above is with "l2". "group_lasso"
        takes each party as a group; "log_sum:0.5" is log_sum with that width.
        See :mod:`fastadmm.problem.regularizers`.
    l1_ratio : float, default=0.5
        Share of l1 in "elastic_net", above 0 and at most 1; not used by other regularisers.
    constraint : str, Constraint, list of them, or None, default=None
        Set that each party's weights must lie in: "nonnegative", "box:-1,1", "ball:2.5"; None for none. A
        list has one for each party.
    loss : str, default="auto"
        "auto" is "logistic" for two classes, as in F above, and "multinomial" for more; "multinomial" also
        works with two. "hinge", "squared_hinge", "smoothed_hinge" and the non-convex "sigmoid" are for two
        classes; they predict classes and scores, but no probabilities. A parameter follows a colon:
        ``"smoothed_hinge:0.5"``. See ``docs/losses.md``.
    privacy : fastadmm.Privacy or None, default=None
        Differential privacy of what parties send, see ``docs/privacy.md``; None for none.
    warm_start : bool, default=False
        Whether :meth:`fit` starts at the model of the previous fit, if there is one.
    early_stopping : bool, default=False
        Whether to hold out rows (the same share of every class), to stop when the loss on them has not
        improved for ``n_iter_no_change`` rounds, and to keep the best round's model. Refused in private
        fits.
    validation_fraction : float, default=0.1
        Share of the rows that early stopping holds out.
    n_iter_no_change : int, default=5
        Rounds without improvement after which early stopping stops.
    class_weight : "balanced", dict of class to number, or None, default=None
        Factors of the sample weights; "balanced" gives every class the same total weight. They count
        in W like sample weights.
    ledger : path or fastadmm.privacy.ledger.Ledger, default=None
        Where private fits are charged, all as fits on the same rows; a fit that would exceed
        ``privacy.total_epsilon`` is refused. None: each fit is counted alone, with a warning.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The labels, sorted; with two, the second is the positive class.
    coef_ : ndarray of shape (1, d) or (C, d)
        Weights in the order of the columns of X; one row per class with the multinomial loss.
    intercept_ : ndarray of shape (1,) or (C,)
        Intercepts; zero where none are fitted. Those of the multinomial loss sum to zero.
    party_coefs_ : list of ndarray of shape (d_m,) or (d_m, C)
        Each party's weights, in the order of its columns.
    party_columns_ : list of ndarray of shape (d_m,)
        Each party's columns, as numbers of columns of X.
    n_features_in_ : int
        Number of columns d over all parties.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns; only where all are strings.
    duality_gap_ : float
        Certified relative duality gap of the model; infinite where the problem is not convex.
    stationarity_ : float or None
        Relative stationarity of the model where the problem is not convex; None where it is.
    n_rounds_, n_iter_ : int
        Rounds of communication that training took.
    history_ : list of RoundRecord
        One record per round.
    status_ : fastadmm.solver.history.Status
        Why training stopped.
    certified_ : bool
        Whether the gap proves that the model is within ``tol`` of the best one. Always False if the problem
        is not convex, because no global optimum is claimed.
    converged_ : bool
        Whether ``tol`` was reached.
    validation_loss_ : float
        Loss on the held-out rows, with early stopping only.
    best_round_ : int
        The round whose model is kept, with early stopping only.
    privacy_ : fastadmm.privacy.statement.PrivacyStatement
        What training guarantees; epsilon is infinite without privacy, and for ``coef_`` of mode "message".
    clips_rows_ : bool
        Whether each party's rows are clipped to norm 1, in training and prediction.

    See Also
    --------
    ADMMSharingRegressor : The same with the squared loss.

    Examples
    --------
    >>> from fastadmm import ADMMSharingClassifier
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = ADMMSharingClassifier(parties=[10, 10, 10], alpha=1e-2).fit(scale(X), y)
    >>> [len(weights) for weights in model.party_coefs_]
    [10, 10, 10]
    >>> bool(model.duality_gap_ <= 1e-6)
    True
    """

    _task = "classification"
    _default_loss = "logistic"

    def _encode(self, y: Array) -> Array:
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y")
        if kind not in ("binary", "multiclass"):
            raise InputError(f"y: one label per sample is needed. The type of the target is {kind}.")
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"y: only one class is present ({self.classes_.tolist()[0]!r}); two are needed")
        return codes.astype(np.float64)

    def _loss_of_targets(self, loss: Loss) -> Loss:
        n_classes = len(self.classes_)
        if n_classes == 2 or loss.vector:
            return loss
        if self.loss == "auto":
            return parse_loss("multinomial")
        # The first sentence is the one that scikit-learn's checks look for.
        raise ConfigError(
            "Only binary classification is supported. The type of the target is multiclass, with "
            f"{n_classes} classes, and loss {loss.name} is for two; choose multinomial or auto"
        )

    def __init__(
        self,
        parties: Any = None,
        alpha: Any = 1e-4,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_rounds: int = 10000,
        scheme: str = "auto",
        penalty: float | None = None,
        random_state: Any = None,
        n_threads: int | None = None,
        callbacks: Callback | Sequence[Callback] | None = None,
        regularizer: Any = "l2",
        l1_ratio: float = 0.5,
        constraint: Any = None,
        loss: str = "auto",
        privacy: Any = None,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        class_weight: Any = None,
        ledger: Any = None,
    ) -> None:
        super().__init__(
            parties=parties,
            alpha=alpha,
            fit_intercept=fit_intercept,
            tol=tol,
            max_rounds=max_rounds,
            scheme=scheme,
            penalty=penalty,
            random_state=random_state,
            n_threads=n_threads,
            callbacks=callbacks,
            regularizer=regularizer,
            l1_ratio=l1_ratio,
            constraint=constraint,
            loss=loss,
            privacy=privacy,
            warm_start=warm_start,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            ledger=ledger,
        )
        self.class_weight = class_weight

    def _class_weighted(self, encoded: Array, sample_weight: Array | None) -> Array | None:
        return weigh_classes(self.class_weight, encoded, self.classes_.tolist(), sample_weight)

    def _model(self, coef: Array, intercept: Any) -> dict[str, Any]:
        if coef.ndim == 2:
            return {"coef_": np.ascontiguousarray(coef.T), "intercept_": np.array(intercept)}
        return {"coef_": coef[np.newaxis], "intercept_": np.array([intercept])}

    def decision_function(self, X: Any, offset: Any = None) -> Array:
        """Score of the positive class ``classes_[1]``: for the logistic loss its log-odds.

        With the multinomial loss it is the linear predictor of every class; with two classes, the
        difference of the two, which is the log-odds of the second.

        Parameters
        ----------
        X : matrix of shape (n_samples, n_features), or list of matrices
            As in :meth:`fit`; a list follows the parties' order and columns.
        offset : array-like, optional
            Added to the linear predictor, as in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n_samples,), or (n_samples, C) with more than two classes
        """
        z = self._predictor(X, offset)
        return z[:, 1] - z[:, 0] if z.ndim == 2 and z.shape[1] == 2 else z

    def predict(self, X: Any, offset: Any = None) -> Array:
        """Most probable class of each sample, of shape (n_samples,); as in :meth:`decision_function`."""
        z = self.decision_function(X, offset)
        if z.ndim == 2:
            return self.classes_[np.argmax(z, axis=1)]
        positive = z > 0
        return self.classes_[positive.astype(np.intp)]

    def _has_probabilities(self) -> bool:
        try:
            return self._checked_loss().probabilistic
        except ConfigError:
            return True  # fit refuses the loss; a look at the model must not

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any, offset: Any = None) -> Array:
        """Probability of each class, of shape (n_samples, C); as in :meth:`decision_function`."""
        z = self.decision_function(X, offset)
        if z.ndim == 2:
            return softmax(z, axis=1)
        return np.column_stack([expit(-z), expit(z)])

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any, offset: Any = None) -> Array:
        """Logarithm of :meth:`predict_proba`, without underflow."""
        z = self.decision_function(X, offset)
        if z.ndim == 2:
            return log_softmax(z, axis=1)
        return np.column_stack([log_expit(-z), log_expit(z)])

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """Mean accuracy; X and offset as in :meth:`decision_function`."""
        return float(accuracy_score(y, self.predict(X, offset), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # The hinge losses are for two classes only.
        tags.classifier_tags.multi_class = self.loss in ("auto", "multinomial")
        return tags


class ADMMSharingRegressor(RegressorMixin, _SharingModel):
    r"""Ridge regression over vertically split features by ADMM sharing.

    Minimises, over the parties' weights :math:`x_m` and the intercept b,

    .. math:: F = \frac1{2W} \sum_i s_i (z_i - y_i)^2 + \frac{\alpha}{2} \sum_m \|x_m\|^2,
              \qquad z = b + \sum_m D_m x_m

    with sample weights s and their sum W. The model is that of scikit-learn's
    ``Ridge(alpha=W * alpha)``, however the columns are split.

    Parameters
    ----------
    parties, alpha, fit_intercept, tol, max_rounds, scheme, penalty, random_state, n_threads, callbacks
        As in :class:`ADMMSharingClassifier`.
    regularizer, l1_ratio, constraint
        As in :class:`ADMMSharingClassifier`.
    loss : str, default="auto"
        "squared" (auto), "huber", "quantile", "poisson", or the non-convex "tukey" or "welsch"; a parameter
        follows a colon: ``"quantile:0.9"``. See ``docs/losses.md``.
    privacy : fastadmm.Privacy or None, default=None
        Differential privacy of what parties send, see ``docs/privacy.md``; None for none.
    warm_start, early_stopping, validation_fraction, n_iter_no_change, ledger
        As in :class:`ADMMSharingClassifier`.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
        Weights in the order of the columns of X.
    intercept_ : float
        Intercept; zero where none is fitted.
    party_coefs_, party_columns_, n_features_in_, feature_names_in_, duality_gap_
        As in :class:`ADMMSharingClassifier`.
    n_rounds_, n_iter_, history_, status_, stationarity_, certified_, converged_
        As in :class:`ADMMSharingClassifier`.

    See Also
    --------
    ADMMSharingClassifier : The same with the logistic loss.

    Examples
    --------
    >>> from fastadmm import ADMMSharingRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> parties = [["age", "sex", "bmi", "bp"], ["s1", "s2", "s3", "s4", "s5", "s6"]]
    >>> model = ADMMSharingRegressor(parties=parties, alpha=1e-3).fit(X, y)
    >>> round(model.score(X, y), 2)
    0.49
    """

    _task = "regression"
    _default_loss = "squared"

    def _encode(self, y: Array) -> Array:
        return y

    def _model(self, coef: Array, intercept: float) -> dict[str, Any]:
        return {"coef_": coef, "intercept_": float(intercept)}

    def predict(self, X: Any, offset: Any = None) -> Array:
        """Predicted target of each sample.

        Parameters
        ----------
        X : matrix of shape (n_samples, n_features), or list of matrices
            As in :meth:`fit`; a list follows the parties' order and columns.
        offset : array-like, optional
            Added to the linear predictor, as in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._checked_loss().predict_mean(self._predictor(X, offset))

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """Coefficient of determination R²; X and offset as in :meth:`predict`."""
        return float(r2_score(y, self.predict(X, offset), sample_weight=sample_weight))


def _check_number(
    name: str, value: Any, kind: Any, above: float | None = None, at_least: float | None = None
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


def _each(*monitors: Callable[[RoundRecord], Any] | None) -> Callable[[RoundRecord], None]:
    """One function that calls all that there are."""

    def monitor(record: RoundRecord) -> None:
        for each in monitors:
            if each is not None:
                each(record)

    return monitor


def _monitor(callbacks: Any) -> Callable[[RoundRecord], None] | None:
    """One function that calls every callback."""
    if callbacks is None:
        return None
    each = [callbacks] if callable(callbacks) else callbacks
    if not isinstance(each, (list, tuple)) or not all(callable(callback) for callback in each):
        raise ConfigError(f"callbacks: {callbacks!r} is neither a callable nor a list of callables")

    def monitor(record: RoundRecord) -> None:
        for callback in each:
            callback(record)

    return monitor
