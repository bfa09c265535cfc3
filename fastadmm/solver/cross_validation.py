r"""Cross-validation *by gap*: folds are fitted only as exactly as the choice of lambda needs.

Rows of a fold are held out by weight 0: no data are copied or cut, so it works
the same for streamed blocks, and parties see vectors of the usual length.

The choice depends on V(lambda), the mean over folds of the loss on held-out rows. A fit with absolute
duality gap G has a training objective within G of its optimum. A value of lambda is *settled* when every
fold's gap is at most ``share`` times the difference that decides about it:

rule "best"
    :math:`|V(\lambda) - V(\lambda_*)|` with :math:`\lambda_*` the best; of the best
    itself, the difference from the runner-up.
rule "1se"
    :math:`|V(\lambda) - T|` with the threshold T = V of the best plus its standard error over
    the folds; of the best at most that standard error.

First every fold is fitted along the grid, each fit starting at the one before and stopping at ``share``
times the standard error of the held-out loss at the previous lambda. Then only the unsettled fits continue,
from where they stopped, until all are settled or certified to the requested gap. The decision is therefore
as good as that of exact fits, up to what gaps of that size can change held-out losses. This is a rule of
thumb, not a theorem, because the held-out loss is not the training objective.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, InputError
from fastadmm.problem.problem import Problem, TestSet, reweighted
from fastadmm.solver.early_stopping import mean_loss, predictor, refuse_rare
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.regularization_path import PathPoint, check_lambdas, fit_point, start_of_path
from fastadmm.solver.warm_start import StartingPoint

Array = np.ndarray

RULES = ("best", "1se")

#: Passes over the unsettled fits; the last one asks for the full gap.
_MOST_PASSES = 12


@dataclass(frozen=True)
class FoldFit:
    """One fit of one fold."""

    weights: list[Array]
    intercept: Any
    loss: float  # mean loss on the held-out rows
    gap: float  # absolute duality gap, per mean loss of the rows that are trained on
    certified: bool  # whether the requested relative gap is reached, so that nothing is left to refine
    n_rounds: int  # rounds of this fit


class Fitter(Protocol):
    """Makes, or finds, the fit of a fold; the same arguments always give the same fit."""

    def __call__(self, name: str, make: Callable[[], FoldFit]) -> FoldFit:
        """The fit of that name."""


@dataclass(frozen=True)
class Choice:
    """What follows from the losses. Shapes: needed (L,)."""

    best: int  # index of the smallest mean loss; of equal ones the largest lambda
    chosen: int  # by the rule
    needed: Array  # of shape (L,): largest gap that settles each lambda, for a share of 1


@dataclass
class CrossValidation:
    """Result of :func:`cross_validate`. Shapes: losses, gaps, n_rounds (L, K)."""

    lambdas: list[float]  # from large to small
    losses: Array  # of shape (L, K): held-out mean loss, and absolute gap, of every lambda and fold
    gaps: Array  # of shape (L, K): held-out mean loss, and absolute gap, of every lambda and fold
    n_rounds: Array  # of shape (L, K): rounds, refinements included
    n_refined: int  # fits that had to continue after the first pass
    rule: str
    share: float
    chosen: int  # indices of lambda
    best: int  # indices of lambda
    fits: list[list[FoldFit]] = field(default_factory=list, repr=False)

    @property
    def mean(self) -> Array:
        """V of every lambda, of shape (L,)."""
        return self.losses.mean(axis=1)

    @property
    def standard_error(self) -> Array:
        """Standard error of V over the folds, of shape (L,)."""
        return standard_error(self.losses)

    @property
    def lam(self) -> float:
        """The chosen lambda."""
        return self.lambdas[self.chosen]


def standard_error(losses: Array) -> Array:
    """Standard error of the mean over the last axis, of shape (..., K)."""
    k = losses.shape[-1]
    return losses.std(axis=-1, ddof=1) / math.sqrt(k)


def make_folds(
    y: Array, n_folds: int, seed: Any, stratify: bool, classes: Sequence[str] | None = None
) -> Array:
    """Assign every row to a fold.

    Parameters
    ----------
    y : ndarray of shape (N,)
    n_folds : int
        K, at least 2.
    seed : int, RandomState or None
    stratify : bool
        Whether every fold gets the same share of every class: for labels that are classes.
    classes : sequence of str, optional
        What 0, 1 and so on are called where a class is too rare.

    Returns
    -------
    ndarray of int, shape (N,)
        Fold of each row, that of scikit-learn's ``StratifiedKFold`` or ``KFold`` with ``shuffle=True``.

    Raises
    ------
    InputError
        If there are too few rows, in all or of a class.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    if n_folds < 2:
        raise ConfigError(f"folds: {n_folds!r} must be at least 2")
    if stratify:
        refuse_rare(y, n_folds, f"{n_folds} folds", classes)
    elif len(y) < n_folds:
        raise InputError(f"folds: {len(y)} rows cannot be parted into {n_folds} folds")
    splitter: Any = (StratifiedKFold if stratify else KFold)(n_folds, shuffle=True, random_state=seed)
    fold = np.empty(len(y), dtype=np.int64)
    for k, (_, held) in enumerate(splitter.split(np.zeros((len(y), 1)), y)):
        fold[held] = k
    return fold


def choose(losses: Array, rule: str) -> Choice:
    """Choose by the losses, and compute which gaps would settle the choice. Shapes: losses (L, K)."""
    mean, error = losses.mean(axis=1), standard_error(losses)
    best = int(np.argmin(mean))
    others = np.arange(len(mean)) != best
    if rule == "best":
        needed = np.abs(mean - mean[best])
        needed[best] = needed[others].min() if others.any() else math.inf
        return Choice(best, best, needed)
    threshold = mean[best] + error[best]
    needed = np.abs(mean - threshold)
    needed[best] = min(float(error[best]), float(needed[others].min()) if others.any() else math.inf)
    return Choice(best, int(np.flatnonzero(mean <= threshold)[0]), needed)


def cross_validate(
    problem: Problem,
    lambdas: Sequence[float],
    fold: Array,
    options: SolverOptions | None = None,
    *,
    rule: str = "best",
    share: float = 0.01,
    score_weight: Array | None = None,
    fitter: Fitter | None = None,
    should_stop: Callable[[], bool] | None = None,
    monitor: Callable[[str], None] | None = None,
) -> CrossValidation:
    """Choose lambda by the loss on held-out rows.

    Parameters
    ----------
    problem : Problem
        Convex; its own ``lam`` does not matter.
    lambdas : sequence of float
        Taken from large to small.
    fold : ndarray of int, shape (N,)
        Fold of each row, from 0; -1 for rows that are always trained on.
    options : SolverOptions, optional
        ``gap`` is the relative gap at which every fit stops.
    rule : {"best", "1se"}
        The best mean, or the largest lambda within one standard error of it.
    share : float
        Gaps as a share of the differences that decide; 0 fits everything to ``options.gap``.
    score_weight : ndarray of shape (N,), optional
        Weights of held-out rows; those of the problem by default.
    fitter : callable, optional
        ``fitter(name, make)`` returns ``make()``, or what it gave before under that name.
    should_stop : callable, optional
        Asked after every round; True raises KeyboardInterrupt.
    monitor : callable, optional
        Called with a line after every lambda, and before fits go on.

    Raises
    ------
    ConfigError
        If the problem is not convex or an argument is out of range.
    InputError
        If the rows left by a fold cannot be trained on, or it holds none of any weight.
    """
    options = options or SolverOptions()
    if not problem.convex:
        raise ConfigError("path: needs a convex problem, whose fits a duality gap certifies")
    if rule not in RULES:
        raise ConfigError(f"rule: unknown rule {rule!r}; choose {', '.join(RULES)}")
    if not 0.0 <= share < 1.0:
        raise ConfigError(f"gap_share: {share!r} must be at least 0 and below 1")
    values = check_lambdas(lambdas)
    with Engine(options.n_threads) as engine:
        folds = _make_fold_problems(problem, fold, score_weight)
        run = _Run(folds, values, options, engine, fitter or (lambda name, make: make()), should_stop)
        error = standard_error(np.array([run.loss_without_features(k) for k in range(len(folds))]))
        say = monitor or (lambda line: None)
        for j, lam in enumerate(values):
            run.first_pass(j, share * float(error))
            error = standard_error(run.losses[j])
            say(
                f"lambda {lam:.3g} ({j + 1} of {len(values)}): held-out loss {run.losses[j].mean():.6g}, "
                f"standard error {error:.2g}, {run.n_rounds[j].sum()} rounds"
            )
        n_refined = run.refine(rule, share, say)
        choice = choose(run.losses, rule)
    return CrossValidation(
        values,
        run.losses,
        run.gaps,
        run.n_rounds,
        n_refined,
        rule,
        share,
        choice.chosen,
        choice.best,
        run.fits,
    )


@dataclass(frozen=True)
class _Fold:
    problem: Problem
    held: TestSet


def _make_fold_problems(problem: Problem, fold: Array, score_weight: Array | None) -> list[_Fold]:
    if fold.shape != (problem.n_samples,):
        raise InputError(f"folds: shape {fold.shape}, expected ({problem.n_samples},)")
    scored = problem.weight if score_weight is None else np.asarray(score_weight, dtype=np.float64)
    made = []
    for k in range(int(fold.max()) + 1):
        held = np.where(fold == k, scored, 0.0)
        if not held.any():
            raise InputError(f"folds: fold {k + 1} has no row with a weight")
        try:
            training = reweighted(problem, np.where(fold == k, 0.0, problem.weight))
        except InputError as error:
            raise InputError(f"folds: without fold {k + 1}: {error}") from None
        made.append(_Fold(training, TestSet(problem.blocks, problem.y, held, problem.offset)))
    if len(made) < 2:
        raise InputError("folds: at least two are needed")
    return made


class _Run:
    """State of a cross-validation."""

    def __init__(
        self,
        folds: list[_Fold],
        lambdas: list[float],
        options: SolverOptions,
        engine: Engine,
        fitter: Fitter,
        should_stop: Callable[[], bool] | None,
    ) -> None:
        self.folds, self.lambdas, self.options = folds, lambdas, options
        self.engine, self.fitter, self.should_stop = engine, fitter, should_stop
        shape = (len(lambdas), len(folds))
        self.losses, self.gaps = np.full(shape, np.nan), np.full(shape, np.inf)
        self.n_rounds = np.zeros(shape, dtype=np.int64)
        self.fits: list[list[FoldFit]] = [[] for _ in lambdas]

    def loss_without_features(self, k: int) -> float:
        """Held-out loss of the model that has only an intercept."""
        problem, held = self.folds[k].problem, self.folds[k].held
        _, intercept, _ = start_of_path(problem, self.engine)
        columns = [block.shape[1] for block in problem.blocks]
        shape = (problem.n_outputs,) if problem.loss.vector else ()
        zero = [np.zeros((d, *shape)) for d in columns]
        return self._loss(held, zero, intercept)

    def _loss(self, held: TestSet, weights: list[Array], intercept: Any) -> float:
        loss = self.folds[0].problem.loss
        with self.engine.limited():
            return mean_loss(held, predictor(held, weights, intercept, loss, self.engine), loss, self.engine)

    def _fit(self, name: str, j: int, k: int, gap: float, start: FoldFit | None) -> FoldFit:
        def make() -> FoldFit:
            problem = replace(self.folds[k].problem, lam=self.lambdas[j])
            options = replace(self.options, gap_absolute=gap)
            begin = None if start is None else StartingPoint(start.weights, start.intercept)
            point: PathPoint = fit_point(problem, options, self.engine, begin, should_stop=self.should_stop)
            if self.should_stop is not None and self.should_stop():
                raise KeyboardInterrupt
            loss = self._loss(self.folds[k].held, point.weights, point.intercept)
            if not math.isfinite(loss):
                raise InputError(
                    f"folds: the loss on fold {k + 1} at lambda {self.lambdas[j]:.3g} is not finite; "
                    "leave out the smallest values, or bring the features to one scale"
                )
            record = point.record
            done = record.gap <= self.options.gap or record.gap_absolute > gap
            return FoldFit(point.weights, point.intercept, loss, record.gap_absolute, done, point.n_rounds)

        return self.fitter(name, make)

    def _take(self, j: int, k: int, fit: FoldFit) -> None:
        self.fits[j][k] = fit
        self.losses[j, k], self.gaps[j, k] = fit.loss, fit.gap
        self.n_rounds[j, k] += fit.n_rounds

    def first_pass(self, j: int, gap: float) -> None:
        """Fit every fold at one lambda."""
        self.fits[j] = [None] * len(self.folds)  # type: ignore[list-item]
        for k in range(len(self.folds)):
            before = self.fits[j - 1][k] if j else None
            self._take(j, k, self._fit(f"lambda-{j:04d}-fold-{k:03d}", j, k, gap, before))

    def refine(self, rule: str, share: float, say: Callable[[str], None]) -> int:
        """Go on with the unsettled fits; returns how many fits that took."""
        n = 0
        if share == 0.0:
            return n
        for turn in range(1, _MOST_PASSES + 1):
            needed = share * choose(self.losses, rule).needed
            open_fits = [
                (j, k)
                for j, row in enumerate(self.fits)
                for k, fit in enumerate(row)
                if not fit.certified and fit.gap > needed[j]
            ]
            if not open_fits:
                break
            say(f"{len(open_fits)} fits are not settled yet and go on")
            for j, k in open_fits:
                target = 0.0 if turn == _MOST_PASSES else 0.5 * min(float(needed[j]), self.gaps[j, k])
                name = f"lambda-{j:04d}-fold-{k:03d}-pass-{turn:02d}"
                self._take(j, k, self._fit(name, j, k, target, self.fits[j][k]))
            n += len(open_fits)
        return n
