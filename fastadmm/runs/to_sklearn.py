"""A model as a scikit-learn pipeline: for skops, ONNX and everything that reads these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.files.atomic import atomic_file
from fastadmm.problem.log_link_losses import Gamma, Poisson, Tweedie
from fastadmm.problem.losses import parse_loss
from fastadmm.store.model import Model, PartyModel
from fastadmm.store.transform import Transform

__all__ = ["party_pipeline", "pooled_pipeline", "write_skops"]


def party_pipeline(party: PartyModel) -> Any:
    """One party's block: raw features in, contribution out."""
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import Pipeline

    d = len(party.weights)
    linear = LinearRegression(fit_intercept=False)
    linear.coef_, linear.intercept_, linear.n_features_in_ = party.weights.T.copy(), 0.0, d
    return Pipeline([*_transformers(party), ("contribution", linear)])


def _transformers(party: PartyModel) -> list[tuple[str, Any]]:
    """Fitted steps of a party's transform."""
    from sklearn.preprocessing import Normalizer, StandardScaler

    if party.clipped:
        raise ConfigError(
            f"{party.name}: rows are clipped to norm 1, for which scikit-learn has no transformer; "
            "export to .json"
        )
    transform, d = party.transform, len(party.weights)
    steps: list[tuple[str, Any]] = []
    if transform.center is not None or transform.scale is not None:
        steps.append(("scale", _scaler(StandardScaler, transform, d)))
    if transform.normalize == "l2":
        normalizer = Normalizer()
        normalizer.n_features_in_ = d
        steps.append(("normalize", normalizer))
    return steps


def _scaler(kind: Any, transform: Transform, d: int) -> Any:
    scaler = kind(with_mean=transform.center is not None, with_std=transform.scale is not None)
    scaler.mean_ = np.zeros(d) if transform.center is None else transform.center.copy()
    scaler.scale_ = None if transform.scale is None else transform.scale.copy()
    scaler.var_ = None if transform.scale is None else transform.scale**2
    scaler.n_features_in_, scaler.n_samples_seen_ = d, 1
    return scaler


def pooled_pipeline(model: Model) -> Any:
    """The whole model over the parties' raw columns side by side, in the model's order."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline

    widths = [len(party.weights) for party in model.parties]
    starts = np.cumsum([0, *widths])
    per_party = [_transformers(party) for party in model.parties]
    steps: list[tuple[str, Any]] = []
    if any(per_party):
        columns = ColumnTransformer(
            [
                (party.name, Pipeline(own) if own else "passthrough", list(range(a, a + d)))
                for party, own, a, d in zip(model.parties, per_party, starts, widths)
            ],
            sparse_threshold=0.0,
        )
        # Fitted on a row of ones for its bookkeeping; then every party's own constants are put in.
        columns.fit(np.ones((1, int(starts[-1]))))
        columns.transformers_ = [
            (party.name, Pipeline(own) if own else fitted, place)
            for party, own, (_, fitted, place) in zip(model.parties, per_party, columns.transformers_)
        ]
        steps.append(("parties", columns))
    weights = np.concatenate([party.scale * party.weights for party in model.parties])
    return Pipeline([*steps, ("model", _estimator(model, weights))])


def _estimator(model: Model, weights: np.ndarray) -> Any:
    from sklearn.linear_model import (
        GammaRegressor,
        LinearRegression,
        LogisticRegression,
        PoissonRegressor,
        TweedieRegressor,
    )
    from sklearn.svm import LinearSVC

    loss, estimator = parse_loss(model.loss), None
    if model.task == "classification":
        if model.loss not in ("logistic", "multinomial") and loss.probabilistic:
            raise ConfigError(
                f"export: scikit-learn has no estimator for the loss {model.loss}; choose .json"
            )
        if model.loss == "multinomial" and len(model.classes or ()) == 2:
            raise ConfigError(
                "export: scikit-learn has no multinomial estimator of two classes; choose .json"
            )
        estimator = LogisticRegression() if loss.probabilistic else LinearSVC()
        estimator.classes_ = np.array(model.classes)
        estimator.coef_ = np.atleast_2d(weights.T.copy())
        estimator.intercept_ = np.atleast_1d(np.asarray(model.intercept, dtype=np.float64))
        estimator.n_iter_ = np.array([1], dtype=np.int32)
    else:
        estimator = LinearRegression()
        if isinstance(loss, Poisson | Gamma | Tweedie):
            # Only fitting gives it its link; the weights are then replaced.
            by_power = TweedieRegressor(power=loss.power, link="log") if isinstance(loss, Tweedie) else None
            estimator = by_power or (GammaRegressor() if isinstance(loss, Gamma) else PoissonRegressor())
            estimator.fit(np.zeros((2, len(weights))), np.ones(2))
        elif loss.link(1.0) is not None:
            raise ConfigError(
                f"export: scikit-learn has no estimator for the loss {model.loss}; choose .json"
            )
        estimator.coef_, estimator.intercept_ = weights.copy(), float(model.intercept)
    estimator.n_features_in_ = len(weights)
    return estimator


def write_skops(out: Path, pipeline: Any, *, force: bool = False) -> None:
    """Write an estimator with skops, which holds no code."""
    try:
        from skops.io import dumps
    except ImportError:
        raise ConfigError(
            "export: skops is missing: pip install 'fastadmm[export]', or choose .json"
        ) from None
    content = dumps(pipeline)
    with atomic_file(out, force=force, shared=True) as temporary:
        temporary.write_bytes(content)
