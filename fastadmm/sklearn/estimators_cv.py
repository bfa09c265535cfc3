"""Estimators with a regularisation path: alpha chosen by cross-validation, as in ``LogisticRegressionCV``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.model_selection import check_cv

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, DivergenceError, InputError
from fastadmm.privacy.statement import no_privacy
from fastadmm.sklearn.columns import Parties, tables_of
from fastadmm.sklearn.estimators import JointClassifier, JointRegressor
from fastadmm.sklearn.sharing_model import _SharingModel
from fastadmm.solver.cross_validation import CrossValidation, cross_validate
from fastadmm.solver.history import Status
from fastadmm.solver.loop import SolveResult
from fastadmm.solver.regularization_path import PathPoint, check_lambdas, lambda_grid, path

Array = np.ndarray


@dataclass(eq=False, repr=False)
class _Grid:
    """Parameters of the path, which come first."""

    parties: Parties = None
    alphas: int | Sequence[float] | Array = 20
    eps: float | None = None
    cv: Any = 5
    selection: str = "best"


class _Absent:
    """A parameter that is there without a path alone: scikit-learn sets what an estimator has."""

    def __get__(self, estimator: Any, kind: type) -> Any:
        raise AttributeError


@dataclass(eq=False, repr=False)
class _PathModel(_SharingModel, _Grid):
    """What the two estimators share: the fit, and what of the estimators without a path they do not have."""

    alpha: Any = field(init=False, default=1.0)
    callbacks: None = field(init=False, default=None)
    privacy: None = field(init=False, default=None)
    ledger: None = field(init=False, default=None)
    warm_start: bool = field(init=False, default=False)
    early_stopping: bool = field(init=False, default=False)
    validation_fraction: float = field(init=False, default=0.0)
    n_iter_no_change: Any = field(init=False, default=_Absent())
    random_state: None = field(init=False, default=None)
    verbose: int = field(init=False, default=0)

    def fit(  # type: ignore[override]  # the path has starts of its own
        self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None
    ) -> Self:
        """Choose alpha by cross-validation, and train the joint model with it on all rows.

        Parameters
        ----------
        X, y, sample_weight, offset
            As in :meth:`fastadmm.JointClassifier.fit`.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the data are wrong.

        Warns
        -----
        ConvergenceWarning
            If the chosen model is not certified, as in :meth:`fastadmm.JointClassifier.fit`.
        """
        options = self._options()
        problem, columns, own_weight = self._problem(X, y, sample_weight, offset)
        with Engine(options.n_threads) as engine:
            if isinstance(self.alphas, Integral):
                alphas = lambda_grid(problem, int(self.alphas), self.eps, engine)
            else:
                alphas = check_lambdas(np.ravel(np.asarray(self.alphas, dtype=np.float64)).tolist())
        fold = self._folds(X, y, problem.y)
        told = {"rule": self.selection, "score_weight": own_weight}
        chosen = cross_validate(problem, alphas, fold, options, **told)  # type: ignore[arg-type]
        self._take(chosen, path(problem, alphas, options), columns, problem.n_samples)
        self.privacy_ = no_privacy(problem.names)
        self.clips_rows_ = False
        return self

    def _take(
        self, chosen: CrossValidation, points: list[PathPoint], columns: list[Array], n_samples: int
    ) -> None:
        """Set the fitted attributes."""
        point = points[chosen.chosen]
        for each in points:
            if each.status is Status.DIVERGED:
                raise DivergenceError(each.message)
        fitted = [self._model_of(columns, p.weights, p.intercept) for p in points]
        self.alphas_ = np.array(chosen.lambdas)
        self.alpha_ = chosen.lam
        self.loss_path_, self.gap_path_ = chosen.losses, chosen.gaps
        self.loss_se_ = chosen.standard_error
        self.coef_path_ = np.array([f["coef_"] for f in fitted])
        self.intercept_path_ = np.array([f["intercept_"] for f in fitted])
        self.duality_gap_path_ = np.array([p.record.gap for p in points])
        self.n_rounds_path_ = np.array([p.n_rounds for p in points])
        self.n_fold_rounds_ = int(chosen.n_rounds.sum())
        self.__dict__.update(fitted[chosen.chosen])
        told, history = f"at alpha = {point.lam:g}: {point.message}", [point.record]
        model = point.weights, point.intercept, point.status
        self._record(SolveResult(*model, told, history, proof=point.proof), n_samples)
        self.n_rounds_ = self.n_iter_ = point.n_rounds

    def _folds(self, X: Any, y: Any, encoded: Array) -> Array:
        """Fold of each row, -1 for rows that are in no test set."""
        classifier = self._task == "classification"
        splitter = check_cv(self.cv, np.asarray(encoded), classifier=classifier)
        n = len(encoded)
        rows = X if tables_of(X) is None else np.zeros((n, 1))
        fold = np.full(n, -1, dtype=np.int64)
        for k, (train, test) in enumerate(splitter.split(rows, encoded)):
            if (fold[test] >= 0).any() or len(train) + len(test) != n:
                raise ConfigError(
                    "cv: every row must be in one test set at most, and in all other folds' training sets"
                )
            fold[test] = k
        if fold.max() < 1:
            raise InputError("cv: at least two folds are needed")
        return fold


@dataclass(eq=False, repr=False)
class JointClassifierCV(_PathModel, JointClassifier):
    r"""Classification over vertically split features, with alpha chosen by cross-validation.

    Every fold is fitted along a decreasing grid of alpha, each fit starting at the one before. Fits stop
    when their duality gap is small compared with the differences that decide between the alphas
    (:mod:`fastadmm.solver.cross_validation`). Then the grid is fitted on all rows, with a certificate for
    every alpha, and the chosen model is kept.

    Parameters
    ----------
    parties : None, int, list of int, list of lists, or dict, default=None
        Who holds which columns, as in :class:`fastadmm.JointClassifier`.
    alphas : int or array-like, default=20
        The values, or the number of values of a grid computed from the data.
    eps : float or None, default=None
        Smallest over largest value of that grid; None is 1e-3 with a norm in the regulariser, 1e-6
        with "l2".
    cv : int, cross-validation generator or iterable, default=5
        As in scikit-learn: an int means (stratified) folds of consecutive rows. Every row may be in at most
        one test set.
    selection : {"best", "1se"}, default="best"
        The smallest mean held-out loss, or the largest alpha within one standard error of it.
    fit_intercept, tol, max_rounds, scheme, penalty, n_threads, regularizer, l1_ratio, constraint, loss
        As in :class:`fastadmm.JointClassifier`; problems must be convex.
    class_weight : "balanced", dict of class to number, or None, default=None
        Factors of the sample weights in training. Held-out losses count samples without them.
    positive : label or None, default=None
        As in :class:`fastadmm.JointClassifier`.

    Attributes
    ----------
    alpha_ : float
        The chosen value.
    alphas_ : ndarray of shape (L,)
        The grid, from large to small.
    loss_path_, gap_path_ : ndarray of shape (L, K)
        Mean held-out loss, and absolute duality gap, of every alpha and fold.
    loss_se_ : ndarray of shape (L,)
        Standard error of the mean held-out loss over the folds.
    coef_path_, intercept_path_ : ndarray of shape (L, ...)
        ``coef_`` and ``intercept_`` of every alpha, trained on all rows.
    duality_gap_path_, n_rounds_path_ : ndarray of shape (L,)
        Certified relative gap, and rounds, of these.
    n_fold_rounds_ : int
        Rounds of all folds' fits together.
    coef_, intercept_, party_coefs_, party_columns_, classes_, positive_, duality_gap_, certified_, status_
        As in :class:`fastadmm.JointClassifier`, for the chosen alpha.

    Examples
    --------
    >>> from fastadmm import JointClassifierCV
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = JointClassifierCV(parties=[10, 10, 10], alphas=[1e-1, 1e-2, 1e-3]).fit(scale(X), y)
    >>> model.alpha_
    0.01
    >>> bool((model.duality_gap_path_ <= 1e-6).all())
    True
    """


@dataclass(eq=False, repr=False)
class JointRegressorCV(_PathModel, JointRegressor):
    r"""Regression over vertically split features, with alpha chosen by cross-validation.

    See :class:`JointClassifierCV`. With the squared loss the held-out loss is half the mean
    squared error, and the model with ``regularizer="l1"`` is that of scikit-learn's ``LassoCV`` on
    the same folds and grid.

    Parameters
    ----------
    parties, alphas, eps, cv, selection
        As in :class:`JointClassifierCV`.
    fit_intercept, tol, max_rounds, scheme, penalty, n_threads, regularizer, l1_ratio, constraint, loss
        As in :class:`fastadmm.JointRegressor`; problems must be convex.

    Attributes
    ----------
    alpha_, alphas_, loss_path_, gap_path_, loss_se_, coef_path_, intercept_path_
        As in :class:`JointClassifierCV`.
    duality_gap_path_, n_rounds_path_, n_fold_rounds_
        As in :class:`JointClassifierCV`.
    coef_, intercept_, party_coefs_, party_columns_, duality_gap_, certified_, status_
        As in :class:`fastadmm.JointRegressor`, for the chosen alpha.

    Examples
    --------
    >>> from fastadmm import JointRegressorCV
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = JointRegressorCV(parties=2, regularizer="l1", alphas=10).fit(X, y)
    >>> model.coef_path_.shape, model.loss_path_.shape
    ((10, 10), (10, 5))
    """


#: Their names until version 0.2.
ADMMSharingClassifierCV, ADMMSharingRegressorCV = JointClassifierCV, JointRegressorCV
