"""Cross-validation: lambda chosen by the loss on held-out rows.

Rows of a fold are held out by weight 0: no data are copied or cut, so it works
the same for streamed blocks, and parties see vectors of the usual length.
Every fold is fitted along the grid, each fit starting at the one before.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, InputError
from fastadmm.problem.problem import Problem, TestSet, reweighted
from fastadmm.solver.early_stopping import mean_loss, predictor, refuse_rare
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.regularization_path import check_lambdas, fit_point, refuse_nonconvex
from fastadmm.solver.warm_start import StartingPoint

Array = np.ndarray

RULES = ("best", "1se")


@dataclass(frozen=True)
class FoldFit:
    """One fit of one fold."""

    weights: list[Array]
    intercept: Any
    loss: float  # mean loss on the held-out rows
    gap: float  # absolute duality gap, per mean loss of the rows that are trained on
    n_rounds: int


#: Makes, or finds, the fit of a fold, of a name; the same arguments always give the same fit.
Fitter = Callable[[str, Callable[[], FoldFit]], FoldFit]


@dataclass
class CrossValidation:
    """Result of :func:`cross_validate`. Shapes: losses, gaps, n_rounds (L, K)."""

    lambdas: list[float]  # from large to small
    losses: Array  # of shape (L, K): held-out mean loss of every lambda and fold
    gaps: Array  # of shape (L, K): absolute gap
    n_rounds: Array  # of shape (L, K)
    rule: str
    chosen: int  # index of lambda, by the rule
    best: int  # index of the smallest mean loss; of equal ones the largest lambda

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


def choose(losses: Array, rule: str) -> tuple[int, int]:
    """Lambda by the rule, and that of the smallest mean loss, as indices. Shapes: losses (L, K)."""
    mean = losses.mean(axis=1)
    best = int(np.argmin(mean))
    if rule == "best":
        return best, best
    return int(np.flatnonzero(mean <= mean[best] + standard_error(losses)[best])[0]), best


def cross_validate(
    problem: Problem,
    lambdas: Sequence[float],
    fold: Array,
    options: SolverOptions | None = None,
    *,
    rule: str = "best",
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
    score_weight : ndarray of shape (N,), optional
        Weights of held-out rows; those of the problem by default.
    fitter : callable, optional
        ``fitter(name, make)`` returns ``make()``, or what it gave before under that name.
    should_stop : callable, optional
        Asked after every round; True raises KeyboardInterrupt.
    monitor : callable, optional
        Called with a line after every lambda.

    Raises
    ------
    ConfigError
        If the problem is not convex or an argument is out of range.
    InputError
        If the rows left by a fold cannot be trained on, or it holds none of any weight.
    """
    options = options or SolverOptions()
    refuse_nonconvex(problem)
    if rule not in RULES:
        raise ConfigError(f"rule: unknown rule {rule!r}; choose {', '.join(RULES)}")
    values = check_lambdas(lambdas)
    folds = _make_fold_problems(problem, fold, score_weight)
    shape, fits = (len(values), len(folds)), list[FoldFit | None]([None] * len(folds))
    losses, gaps, n_rounds = np.empty(shape), np.empty(shape), np.empty(shape, dtype=np.int64)

    def fitted(k: int, lam: float) -> FoldFit:
        """One fit, begun where that of the lambda before ended."""
        (training, held), before = folds[k], fits[k]
        start = None if before is None else StartingPoint(before.weights, before.intercept)
        point = fit_point(replace(training, lam=lam), options, engine, start, should_stop=should_stop)
        if should_stop is not None and should_stop():
            raise KeyboardInterrupt
        with engine.limited():
            z = predictor(held, point.weights, point.intercept, problem.loss, engine)
            loss = mean_loss(held, z, problem.loss, engine)
        if not math.isfinite(loss):
            raise InputError(
                f"folds: the loss on fold {k + 1} at lambda {lam:.3g} is not finite; "
                "leave out the smallest values, or bring the features to one scale"
            )
        return FoldFit(point.weights, point.intercept, loss, point.record.gap_absolute, point.n_rounds)

    with Engine(options.n_threads) as engine:
        for j, lam in enumerate(values):
            for k in range(len(folds)):
                make = partial(fitted, k, lam)
                fit = make() if fitter is None else fitter(f"lambda-{j:04d}-fold-{k:03d}", make)
                fits[k], losses[j, k], gaps[j, k], n_rounds[j, k] = fit, fit.loss, fit.gap, fit.n_rounds
            if monitor is not None:
                monitor(
                    f"lambda {lam:.3g} ({j + 1} of {len(values)}): held-out loss {losses[j].mean():.6g}, "
                    f"standard error {standard_error(losses[j]):.2g}, {n_rounds[j].sum()} rounds"
                )
    return CrossValidation(values, losses, gaps, n_rounds, rule, *choose(losses, rule))


def _make_fold_problems(
    problem: Problem, fold: Array, score_weight: Array | None
) -> list[tuple[Problem, TestSet]]:
    """What each fold is trained on, and its held-out rows."""
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
        made.append((training, TestSet(problem.blocks, problem.y, held, problem.offset)))
    if len(made) < 2:
        raise InputError("folds: at least two are needed")
    return made
