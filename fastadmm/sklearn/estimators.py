"""The scikit-learn estimators: generalised linear models over features that several parties hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from fastadmm.errors import ConfigError, InputError
from fastadmm.problem.class_names import counted_of
from fastadmm.problem.loss import Loss
from fastadmm.problem.losses import parse_loss
from fastadmm.problem.targets import weigh_classes
from fastadmm.sklearn.sharing_model import _SharingModel

Array = np.ndarray


@dataclass(eq=False, repr=False)
class JointClassifier(ClassifierMixin, _SharingModel):
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
    parties : None, int, list of int, list of lists, or dict, default=None
        Who holds which columns of X. None: one party holds all. An int: that many equal blocks.
        ``[66, 57]``: widths of consecutive blocks. Lists of column names or numbers: the columns of each
        party. Instead of a list, a slice: of numbers, or of names with both ends included. A dict has them by
        the name of the party: ``{"bank": ["age", "income"], "shop": slice("orders", "late")}``. Must be None
        if X is a list or dict of blocks.
    alpha : float, or list of float, default=1e-4
        Regularisation :math:`\alpha > 0` **per mean loss** (lambda elsewhere in fastadmm). A list has
        one :math:`\alpha_m` for each party, in place of :math:`\alpha` before its :math:`\|x_m\|^2`; with
        regularizer "l2", "l1" or "group_lasso", and no constraint but "nonnegative".
    fit_intercept : bool, default=True
        Whether to fit an unpenalised intercept.
    tol : float, default=1e-6
        Stop when this relative duality gap is proved, an upper bound on
        :math:`(F - F^*) / F^*`; 0 always runs ``max_rounds`` rounds. With a
        non-convex loss or regulariser there is no gap, and it is the relative
        stationarity of ``docs/losses.md``.
    max_rounds : int, default=10000
        Stop after this many rounds.
    scheme : str, default="auto"
        How parties and coordinator work together; ``docs/training.md`` has a table of all schemes.
        "auto" chooses the one with the fewest rounds: "subspace" or, with constraints and regularisers
        other than "l2", "proximal"; if ``penalty`` is given, "sharing", which converges for every convex
        problem.
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
        Set that each party's weights must lie in: "nonnegative", "box:-1,1", "ball:2.5", "simplex:1",
        "sum:0", ``Affine.of(rows, values)``; None for none. A list has one for each party.
    loss : str, default="auto"
        "auto" is "logistic" for two classes, as in F above, and "multinomial" for more; "multinomial" also
        works with two. "hinge", "squared_hinge", "smoothed_hinge" and the non-convex "sigmoid" are for two
        classes; they predict classes and scores, but no probabilities. A parameter follows a colon:
        ``"smoothed_hinge:0.5"``. See ``docs/losses.md``.
    privacy : fastadmm.Privacy or None, default=None
        Differential privacy of what parties send, see ``docs/privacy.md``; None for none.
    warm_start : bool, default=False
        Whether :meth:`fit` starts at the model of the previous fit, if there is one. After ``max_rounds`` a
        fit on the same data with the same parameters does as many more, as if it had not stopped.
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
    verbose : int, default=0
        1 shows the fit on one line, as ``callbacks=Progress()`` does.
    positive : label or None, default=None
        Which of two labels is counted, as class 1 of :meth:`coefficients`, :meth:`inference` and reports.
        None: the event of pairs such as no/yes and good/bad, else ``classes_[1]``. The fit, ``classes_``,
        ``coef_``, scores and probabilities do not depend on it.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The labels, sorted; with two, ``coef_`` and scores speak for the second.
    positive_ : label or None
        Which of two labels is counted; see ``positive``.
    class_count_ : ndarray of shape (C,)
        Rows of each class; not in private fits.
    coef_ : ndarray of shape (1, d) or (C, d)
        Weights in the order of the columns of X; one row per class with the multinomial loss.
    intercept_ : ndarray of shape (1,) or (C,)
        Intercepts; zero where none are fitted. Those of the multinomial loss sum to zero.
    party_coefs_ : list of ndarray of shape (d_m,) or (d_m, C)
        Each party's weights, in the order of its columns.
    party_columns_ : list of ndarray of shape (d_m,)
        Each party's columns, as numbers of columns of X.
    party_names_ : list of str
        Each party's name: the keys of ``parties`` or X, otherwise "party-1" and so on.
    n_features_in_ : int
        Number of columns d over all parties.
    n_samples_fit_ : int
        Number of rows.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns; only where all are strings.
    duality_gap_ : float
        Relative duality gap that is proved of the model as it is, with rounding; infinite where none is, as
        of problems that are not convex and of private fits. See ``docs/certificate.md``.
    program_ : str
        Which program ran: "pooled: all columns are in this process", or "parties: ..., as between
        organisations", whose rounds, exchanges and bits are those of parties in other places.
    exchanges_ : int
        Exchanges of the parties, the proof's included; 0 pooled and in private fits.
    party_bytes_ : list of int
        Bytes of each party's values in them, both ways.
    stationarity_ : float or None
        Relative stationarity of the model where the problem is not convex; None where it is.
    n_rounds_, n_iter_ : int
        Rounds of communication that training took.
    history_ : list of RoundRecord
        One record per round.
    status_ : fastadmm.solver.history.Status
        Why training stopped.
    certified_ : bool
        Whether ``duality_gap_`` is at most ``tol``: the model is proved to be so near to the best one. Always
        False if the problem is not convex, because no global optimum is claimed.
    certified_within_ : bool
        Whether that is proved among models of bounded size only, because nothing bounds the weights, or
        too little for double precision: see ``gap_within`` of the last of ``history_``.
    converged_ : bool
        Whether training ended by itself: with either of these proofs, or where the problem is not convex
        because ``stationarity_`` is at most ``tol``. Early stopping and private fits do not count.
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
    JointRegressor : The same with the squared loss.

    Examples
    --------
    >>> from fastadmm import JointClassifier
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = JointClassifier(parties=[10, 10, 10], alpha=1e-2).fit(scale(X), y)
    >>> [len(weights) for weights in model.party_coefs_]
    [10, 10, 10]
    >>> bool(model.duality_gap_ <= 1e-6)
    True
    """

    class_weight: str | Mapping[Any, float] | None = None
    positive: Any = None

    _task = "classification"
    _default_loss = "logistic"

    def _encoded_targets(self, y: Array, loss: Loss) -> tuple[Array, Loss]:
        self.classes_, codes, counts = classes_of(y)
        self.positive_ = counted_of(self.classes_.tolist(), self.positive)
        self.__dict__.pop("class_count_", None)
        if self.privacy is None:  # which tells no counts
            self.class_count_ = counts
        encoded, n_classes = codes.astype(np.float64), len(self.classes_)
        if n_classes == 2 or loss.vector:
            return encoded, loss
        if self.loss == "auto":
            return encoded, parse_loss("multinomial")
        # The first sentence is the one that scikit-learn's checks look for.
        raise ConfigError(
            "Only binary classification is supported. The type of the target is multiclass, with "
            f"{n_classes} classes, and loss {loss.name} is for two; choose multinomial or auto"
        )

    def _class_weighted(self, encoded: Array, sample_weight: Array | None) -> Array | None:
        return weigh_classes(self.class_weight, encoded, self.classes_.tolist(), sample_weight)

    def _model(self, coef: Array, intercept: Any) -> dict[str, Any]:
        if coef.ndim == 2:
            return {"coef_": np.ascontiguousarray(coef.T), "intercept_": np.array(intercept)}
        return {"coef_": coef[np.newaxis], "intercept_": np.array([intercept])}

    def decision_function(self, X: Any, offset: Any = None) -> Array:
        """Score of ``classes_[1]``, whichever class is counted: for the logistic loss its log-odds.

        With the multinomial loss it is the linear predictor of every class; with two classes, the
        difference of the two, which is the log-odds of the second.

        Parameters
        ----------
        X : matrix of shape (n_samples, n_features), or list or dict of matrices
            As in :meth:`fit`; a list follows the parties' order and columns, a dict their names.
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
        codes = np.argmax(z, axis=1) if z.ndim == 2 else (z > 0).astype(np.intp)
        return self.classes_[codes]

    def _has_probabilities(self) -> bool:
        try:
            return self._checked_loss().probabilistic
        except ConfigError:
            return True  # fit refuses the loss; a look at the model must not

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any, offset: Any = None) -> Array:
        """Probability of each class, of shape (n_samples, C); as in :meth:`decision_function`."""
        return _of_classes(self.decision_function(X, offset), softmax, expit)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any, offset: Any = None) -> Array:
        """Logarithm of :meth:`predict_proba`, without underflow."""
        return _of_classes(self.decision_function(X, offset), log_softmax, log_expit)

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """Mean accuracy; X and offset as in :meth:`decision_function`."""
        self._check_rows(X, y=y, sample_weight=sample_weight)
        return float(accuracy_score(y, self.predict(X, offset), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # The hinge losses are for two classes only.
        tags.classifier_tags.multi_class = self.loss in ("auto", "multinomial")
        return tags


class JointRegressor(RegressorMixin, _SharingModel):
    r"""Ridge regression over vertically split features by ADMM sharing.

    Minimises, over the parties' weights :math:`x_m` and the intercept b,

    .. math:: F = \frac1{2W} \sum_i s_i (z_i - y_i)^2 + \frac{\alpha}{2} \sum_m \|x_m\|^2,
              \qquad z = b + \sum_m D_m x_m

    with sample weights s and their sum W. The model is that of scikit-learn's
    ``Ridge(alpha=W * alpha)``, however the columns are split.

    Parameters
    ----------
    parties, alpha, fit_intercept, tol, max_rounds, scheme, penalty, random_state, n_threads, callbacks
        As in :class:`JointClassifier`.
    regularizer, l1_ratio, constraint
        As in :class:`JointClassifier`.
    loss : str, default="auto"
        "squared" (auto), "huber", "quantile", "poisson", "gamma", "tweedie", "negative_binomial", "binomial"
        (shares of successes, with the trials as ``sample_weight``), or the
        non-convex "tukey" or "welsch"; a parameter follows a colon: ``"quantile:0.9"``. See
        ``docs/losses.md``.
    privacy : fastadmm.Privacy or None, default=None
        Differential privacy of what parties send, see ``docs/privacy.md``; None for none.
    warm_start, early_stopping, validation_fraction, n_iter_no_change, ledger, verbose
        As in :class:`JointClassifier`.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
        Weights in the order of the columns of X.
    intercept_ : float
        Intercept; zero where none is fitted.
    party_coefs_, party_columns_, party_names_, n_features_in_, feature_names_in_, duality_gap_
        As in :class:`JointClassifier`.
    n_rounds_, n_iter_, history_, status_, stationarity_, certified_, converged_
        As in :class:`JointClassifier`.

    See Also
    --------
    JointClassifier : The same with the logistic loss.

    Examples
    --------
    >>> from fastadmm import JointRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> parties = [["age", "sex", "bmi", "bp"], ["s1", "s2", "s3", "s4", "s5", "s6"]]
    >>> model = JointRegressor(parties=parties, alpha=1e-3).fit(X, y)
    >>> round(model.score(X, y), 2)
    0.49
    """

    _task = "regression"
    _default_loss = "squared"

    def predict(self, X: Any, offset: Any = None) -> Array:
        """Predicted target of each sample.

        Parameters
        ----------
        X : matrix of shape (n_samples, n_features), or list or dict of matrices
            As in :meth:`fit`; a list follows the parties' order and columns, a dict their names.
        offset : array-like, optional
            Added to the linear predictor, as in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._checked_loss().predict_mean(self._predictor(X, offset))

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """Coefficient of determination R²; X and offset as in :meth:`predict`."""
        self._check_rows(X, y=y, sample_weight=sample_weight)
        return float(r2_score(y, self.predict(X, offset), sample_weight=sample_weight))


#: Their names until version 0.2.
ADMMSharingClassifier, ADMMSharingRegressor = JointClassifier, JointRegressor


def _of_classes(z: Array, of_several: Callable[..., Array], of_second: Callable[[Array], Array]) -> Array:
    """What scores say of each class. Shapes: z (N,) of two classes, or (N, C)."""
    return of_several(z, axis=1) if z.ndim == 2 else np.column_stack([of_second(-z), of_second(z)])


def classes_of(y: Array) -> tuple[Array, Array, Array]:
    """Distinct labels in order, the number of each row's, and how many rows each has.

    Shapes: y (N,); the results (C,), (N,), (C,).
    """
    if y.dtype == object:
        _check_labels(y.tolist())
    kind = type_of_target(y, input_name="y")  # takes longer than a small table's whole fit: once
    if kind not in ("binary", "multiclass"):
        check_classification_targets(y)
        raise InputError(f"y: one label per sample is needed. The type of the target is {kind}.")
    classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    if len(classes) < 2:
        raise InputError(f"y: only one class is present ({classes.tolist()[0]!r}); two are needed")
    return classes, codes, counts


def _check_labels(labels: list[Any]) -> None:
    """Refuse labels that are missing, or not all of one kind."""
    texts: dict[bool, Any] = {}
    for row, label in enumerate(labels):
        if label is None:
            raise InputError(f"y: no label in row {row}: leave such rows out")
        texts.setdefault(isinstance(label, str), label)
    if len(texts) == 2:
        raise InputError(f"y: {texts[True]!r} is text and {texts[False]!r} is not: write all labels alike")
