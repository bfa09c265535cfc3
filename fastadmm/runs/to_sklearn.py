"""A model as a scikit-learn pipeline: for skops, ONNX and everything that reads these."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.data_tools.cell_tables import (
    check_readable,
    codes_of,
    dates_of,
    evidence_of,
    input_names,
    is_text,
    na_numbers,
)
from fastadmm.data_tools.csv_table import is_number
from fastadmm.data_tools.predict_tables import encoder_of
from fastadmm.errors import ConfigError
from fastadmm.files.atomic import write_whole
from fastadmm.problem.log_link_losses import Gamma, Poisson, Tweedie
from fastadmm.problem.losses import parse_loss
from fastadmm.store.encoder import ColumnEncoding
from fastadmm.store.model import Model, PartyModel
from fastadmm.store.transform import Transform

#: A row to fit what is then given other constants.
_ONE = np.zeros((1, 1))

#: Number in place of missing ones that are a bin; its square is finite.
_STAND_IN = -1e150


def party_pipeline(party: PartyModel) -> Any:
    """One party's part: a data frame of its columns in, contribution out."""
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import Pipeline

    linear = LinearRegression(fit_intercept=False)
    linear.coef_, linear.intercept_, linear.n_features_in_ = party.weights.T.copy(), 0.0, len(party.weights)
    steps, _ = _party_steps(party, input_names([party])[0])
    return Pipeline([*steps, ("contribution", linear)])


def pooled_pipeline(model: Model) -> Any:
    """All parties: a data frame of their columns in, what the loss's estimator predicts out."""
    from sklearn.pipeline import Pipeline

    parts: list[Any] = []
    row: dict[str, Any] = {}
    for party, names in zip(model.parties, input_names(model.parties), strict=True):
        steps, own = _party_steps(party, names)
        parts.append((party.name, Pipeline(steps), names))
        row |= own
    weights = np.concatenate([party.scale * party.weights for party in model.parties])
    return Pipeline([("parties", _side_by_side(parts, row)), ("model", _estimator(model, weights))])


def _side_by_side(parts: Sequence[tuple[str, Any, list[str]]], row: dict[str, Any]) -> Any:
    """Fitted transformers of columns, joined; fitting on one row makes their bookkeeping alone."""
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.frozen import FrozenEstimator

    frozen = [
        (name, own if own == "passthrough" else FrozenEstimator(own), names) for name, own, names in parts
    ]
    frame = pd.DataFrame({name: [row[name]] for _, _, names in parts for name in names})
    return ColumnTransformer(frozen, sparse_threshold=0.0).fit(frame)


def _party_steps(party: PartyModel, names: list[str]) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """Fitted steps from a party's columns to its features, and a row of such columns."""
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import Normalizer, StandardScaler

    if party.clipped:
        raise ConfigError(
            f"{party.name}: rows are clipped to norm 1, for which scikit-learn has no transformer; "
            "export to .json"
        )
    encoder, transform, d = encoder_of(party), party.transform, len(party.weights)
    parts: list[tuple[str, Any, list[str]]] = []
    row: dict[str, Any] = {}
    for name, column in zip(names, encoder.columns, strict=True):
        own, row[name] = _column_steps(column, name, encoder.missing, party.name)
        if own:
            parts.append((f"column {len(parts)}", Pipeline(own), [name]))
        elif parts and parts[-1][1] == "passthrough":
            parts[-1][2].append(name)
        else:
            parts.append((f"column {len(parts)}", "passthrough", [name]))
    steps: list[tuple[str, Any]] = [("columns", _side_by_side(parts, row))]
    if transform.center is not None or transform.scale is not None:
        steps.append(("scale", _scaler(StandardScaler, transform, d)))
    if transform.normalize == "l2":
        normalizer = Normalizer()
        normalizer.n_features_in_ = d
        steps.append(("normalize", normalizer))
    return steps, row


def _scaler(kind: Any, transform: Transform, d: int) -> Any:
    scaler = kind(with_mean=transform.center is not None, with_std=transform.scale is not None)
    scaler.mean_ = np.zeros(d) if transform.center is None else transform.center.copy()
    scaler.scale_ = None if transform.scale is None else transform.scale.copy()
    scaler.var_ = None if transform.scale is None else transform.scale**2
    scaler.n_features_in_, scaler.n_samples_seen_ = d, 1
    return scaler


def _column_steps(
    column: ColumnEncoding, name: str, missing: str, place: str
) -> tuple[list[tuple[str, Any]], Any]:
    """Fitted steps from a column's cells to its features, and one cell; no steps where they are the same."""
    check_readable(column, place)
    cell: Any = 0.0
    if column.levels is not None:
        steps, cell = _category_steps(column, missing)
    else:
        steps = _number_steps(column, missing, place)
        if is_text(column):
            dates = dates_of(column)
            cell = next(iter(dates))
            # What is no date becomes infinite, which all later steps refuse.
            steps = [("dates", _table(np.array([*dates]), [*dates.values()], math.inf)), *steps]
    if steps:
        first = steps[0][1]
        firsts = (
            [own[0][1] for own in (pipe.steps for _, pipe in first.transformer_list)]
            if steps[0][0] == "both"
            else [first]
        )
        for own in firsts:
            own.feature_names_in_ = np.array([name], dtype=object)
    return steps, cell


def _number_steps(column: ColumnEncoding, missing: str, place: str) -> list[tuple[str, Any]]:
    from sklearn.impute import KNNImputer, MissingIndicator
    from sklearn.pipeline import FeatureUnion, Pipeline
    from sklearn.preprocessing import KBinsDiscretizer, MinMaxScaler, StandardScaler

    bins, absent = column.bins, [math.nan, *na_numbers(column)]
    known = bins is not None and bins.knows_missing
    fill = _STAND_IN if known else None if missing == "refuse" else column.fill
    if fill is None and len(absent) > 1:
        raise ConfigError(
            f"export: {place}, column {column.name!r}: scikit-learn cannot refuse {absent[1]:g}, which means "
            "missing: convert with --missing mean, or choose .json"
        )
    # One meaning of "no value" becomes the next: an imputer knows a single one. Of one row it takes the mean.
    steps: list[tuple[str, Any]] = []
    before = [
        (f"missing {i}", KNNImputer(missing_values=a, n_neighbors=1).fit([[b]]))
        for i, (a, b) in enumerate(itertools.pairwise(absent))
    ]
    if fill is not None:
        steps.append(("fill", KNNImputer(missing_values=absent[-1], n_neighbors=1).fit([[fill]])))
    if bins is not None:
        # An edge belongs to the bin below it here, and to the one above it there.
        edges, woe = [float(np.nextafter(edge, np.inf)) for edge in bins.edges], list(bins.woe[:-1])
        if known:
            edges = sorted([*edges, _STAND_IN, float(np.nextafter(_STAND_IN, np.inf))])
            at = edges.index(_STAND_IN)
            woe[at : at + 1] = [woe[at], bins.woe[-1], woe[at]]
        cut = KBinsDiscretizer(len(edges) + 1, encode="ordinal", strategy="uniform")
        cut.bin_edges_ = np.empty(1, dtype=object)
        cut.bin_edges_[0] = np.array([-np.inf, *edges, np.inf])
        cut.n_bins_, cut.n_features_in_ = np.array([len(edges) + 1]), 1
        steps += [("bins", cut), ("evidence", _table(np.arange(float(len(woe))), woe, 0.0))]
    elif column.low < column.high:
        width = column.high - column.low
        scaler = MinMaxScaler((-1.0, 1.0), clip=True).fit([[0.0], [width]])
        shift = _scaler(StandardScaler, Transform(center=np.array([column.low])), 1)
        steps += [("shift", shift), ("bounds", scaler)]
    if column.indicator:
        marks = MissingIndicator(missing_values=absent[-1], features="all").fit(_ONE)
        steps = [
            ("both", FeatureUnion([("value", Pipeline(steps)), ("missing", Pipeline([("marks", marks)]))]))
        ]
    return before + steps


def _category_steps(column: ColumnEncoding, missing: str) -> tuple[list[tuple[str, Any]], Any]:
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

    codes: dict[Any, int] = codes_of(column)
    levels = column.levels or ()
    count, steps = len(levels), []
    if all(re.fullmatch(r"-?[1-9]\d{0,14}|0", level) for level in levels):
        # Whole numbers, which data frames may hold as numbers or as texts.
        numbers = {float(text): code for text, code in codes.items() if is_number(text)}
        codes = dict(sorted(own for own in numbers.items() if not math.isnan(own[0]))) | {math.nan: count}
        keys = np.array([*codes])
        steps = [("numbers", _scaler(StandardScaler, Transform(), 1))]
    else:
        # Numbers among texts are refused, as the first word is none.
        codes = {"null": count} | codes | {None: count, math.nan: count}
        keys = np.array([*codes], dtype=object)
    if column.bins is not None:
        values = evidence_of(column, missing)
    else:
        absent = column.fill_level if column.fill_level >= 0 else math.nan if missing == "refuse" else count
        values = [*range(count), absent, column.other if column.other >= 0 else count + 1]
    steps.append(("categories", _table(keys, [values[code] for code in codes.values()], values[-1])))
    if column.bins is None:
        hot = OneHotEncoder(
            categories=[np.arange(float(count + column.indicator))],
            handle_unknown="ignore",
            sparse_output=False,
        )
        checked = FunctionTransformer(validate=True).fit(_ONE)  # refuses missing cells
        steps += [("present", checked), ("one hot", hot.fit(_ONE))]
    return steps, keys[0]


def _table(keys: np.ndarray, values: Sequence[float], otherwise: float) -> Any:
    """A fitted table of one column."""
    from sklearn.preprocessing import TargetEncoder

    table = TargetEncoder(target_type="continuous")
    table.categories_, table.encodings_ = [keys], [np.array(values, dtype=np.float64)]
    table.target_mean_, table.target_type_, table.classes_ = otherwise, "continuous", None
    table.n_features_in_, table._infrequent_enabled = 1, False
    return table


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
        if len(estimator.classes_) == 2:  # the one that is counted, which scores speak for
            estimator.positive_ = str(estimator.classes_[1])
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
        from zipfile import ZIP_DEFLATED

        from skops.io import dumps
    except ImportError:
        raise ConfigError(
            "export: skops is missing: pip install 'fastadmm[export]', or choose .json"
        ) from None
    content = dumps(pipeline, compression=ZIP_DEFLATED)
    write_whole(out, content, force=force, shared=True)
