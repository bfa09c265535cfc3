"""Bins, weights of evidence and points from Python: ``fastadmm scorecard`` of frames and arrays."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils import ClassifierTags, Tags, check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fastadmm.data_tools.columns import EXACT, Column, canonical_text, words_of
from fastadmm.data_tools.encoding import encode_table
from fastadmm.data_tools.tables import Places, Table
from fastadmm.errors import ConfigError, InputError
from fastadmm.judging.binning import Cells, Rules
from fastadmm.problem.class_names import counted_of
from fastadmm.runs.points import Scaling, add_up, bin_rows, card_of, point_rows
from fastadmm.runs.scorecard import Binning, bin_columns
from fastadmm.sklearn.columns import check_index, consecutive, party_names, tables_of
from fastadmm.sklearn.estimators import JointClassifier, classes_of
from fastadmm.sklearn.inference import model_of
from fastadmm.sklearn.sharing_model import check_features
from fastadmm.store.encoder import ColumnEncoding, Encoder

Array = np.ndarray


class _NoCell(InputError, TypeError):
    """A cell that is neither a number nor text: scikit-learn calls it a TypeError."""


@dataclass(eq=False, repr=False)
class WoeTransformer(TransformerMixin, BaseEstimator):
    """Bins of each column, and the weight of evidence (WOE) of each cell's bin as its feature.

    Those of ``fastadmm scorecard bins``; see ``docs/scorecard.md``. Numbers and truth values are cut; text,
    and columns of a categorical dtype, are grouped. Missing cells (NaN, None) and empty texts are a bin of
    their own. :meth:`fit_transform` gives each row of training the WOE of the other four fifths, so that a
    model does not learn the luck of the choice; :meth:`transform` gives that of all rows of training.

    Parameters
    ----------
    max_bins : int, default=6
        Most bins of a column, without that of missing cells.
    min_share : float, default=0.05
        Smallest share of the rows in a bin.
    min_events : float, default=5
        Fewest rows of each class in a bin.
    min_iv : float or None, default=None
        Leave out columns whose cross-fitted information value is below it, or no more than luck, as the
        command line does with 0. None: all columns stay.
    bins : dict of column to list, or None, default=None
        Own bins: edges of numbers, as in ``{"age": [25, 40, 60]}``, or lists of categories, as in ``{"city":
        [["Rome", "Oslo"], ["Paris"]]}``; categories that are not named share a bin.
    monotone : str, or dict of column to str, default="auto"
        How the rate of the class that is counted goes along numbers: "auto", "rising", "falling" or "none".
    positive : label or None, default=None
        The class that is counted, as in :class:`fastadmm.JointClassifier`.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels, sorted.
    positive_ : label
        The class that is counted: p of WOE = ln(q / p), q the other.
    columns_ : DataFrame
        A line for each column: bins, ``iv`` of the rows that chose them, ``iv_cross`` of rows that did not,
        ``luck``, what it reaches without any signal, and whether the column is used.
    bins_ : DataFrame
        A line for each bin: its cells, rows, events (the class that is counted), rate, WOE, and the column's
        information values.
    encoders_ : dict of str to fastadmm.store.encoder.Encoder
        Bins by party, as models store them.
    """

    max_bins: int = 6
    min_share: float = 0.05
    min_events: float = 5
    min_iv: float | None = None
    bins: Mapping[str, Any] | None = None
    monotone: str | Mapping[str, str] = "auto"
    positive: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Choose bins.

        Parameters
        ----------
        X : DataFrame or array of shape (n_samples, n_features), or dict or list of them
            A dict or list has one table for each party, as :meth:`fastadmm.JointClassifier.fit` takes it.
        y : array-like of shape (n_samples,)
            Labels of two classes.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative; only their relation counts.

        Returns
        -------
        self : object
            The fitted transformer.
        """
        self._fit(X, y, sample_weight)
        return self

    def fit_transform(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Arguments as of :meth:`fit`; rows of shape (n_samples, n_used), as WOE of the other four fifths."""
        return self._as_given(X, self._fit(X, y, sample_weight))

    def transform(self, X: Any) -> Any:
        """The WOE of each cell's bin, as in :meth:`fit_transform`; 0 of unseen categories, with a warning."""
        check_is_fitted(self, "encoders_")
        return self._as_given(X, self._encoded(X, self.encoders_))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the columns that are used, of shape (n_used,)."""
        check_is_fitted(self, "encoders_")
        names: Array = OneToOneFeatureMixin.get_feature_names_out(self, input_features)
        return names[self.columns_["used"].to_numpy()]

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> list[Array]:
        """Choose bins; each party's rows as WOE of the other folds."""
        import pandas as pd

        check_numbers(self, "max_bins", "min_share", "min_events", *["min_iv"] * (self.min_iv is not None))
        ways = self.monotone if isinstance(self.monotone, Mapping) else {"": self.monotone}
        rules = Rules(self.max_bins, self.min_share, self.min_events, ways.get("", "auto"))
        given = self.bins or {}
        if not isinstance(given, Mapping) or not all(map(np.iterable, given.values())):
            raise ConfigError(f"bins: {given!r}: a dict of lists is needed, as in {{'age': [25, 40]}}")
        own = {str(name): _bins_text(bins) for name, bins in given.items()}
        check_index(tables_of(X) or {None: X}, y, sample_weight=sample_weight)
        tables = self._tables(X, reset=True)
        said = self._labels(y, tables[0].n_rows, sample_weight)
        rows, notes = list[dict[str, Any]](), list[str]()
        self.encoders_, features = {}, []
        binning = Binning(rules, {k: way for k, way in ways.items() if k}, own, self.min_iv)
        binning.check_names([name for table in tables for name in table.names])
        for party, table in zip(self.party_names_, tables):
            columns, nothing = (_raw(table, name) for name in table.names), Encoder((), "indicator")
            encoder, X_woe = bin_columns(party, nothing, columns, said, binning, rows, notes)
            if not encoder.columns:
                beyond = f"no column of {party} says anything about the labels beyond luck"
                raise InputError(f"X: {beyond}: leave the party out, or bring more rows")
            self.encoders_[party] = encoder
            features.append(X_woe)
        for line in notes:
            warnings.warn(line, stacklevel=3)
        self.columns_ = pd.DataFrame(rows)
        worth = {(row["party"], row["column"]): {k: row[k] for k in ("iv", "iv_cross")} for row in rows}
        self.bins_ = pd.DataFrame(
            row | worth[party, column.name]
            for party, encoder in self.encoders_.items()
            for column in encoder.columns
            for row in bin_rows(party, column)
        )
        return features

    def _labels(self, y: Any, n_rows: int, sample_weight: Any) -> tuple[Array, Array]:
        """Whether each row is of the class that is counted, and its weight, of mean 1."""
        if y is None:
            raise InputError(f"{type(self).__name__}: requires y to be passed, but the target y is None")
        labels = column_or_1d(y, warn=True)
        check_consistent_length(np.empty((n_rows, 0)), labels)
        self.classes_, codes, _ = classes_of(labels)
        if len(self.classes_) != 2:
            raise InputError(f"y: has {len(self.classes_)} classes: bins need labels of two")
        self.positive_ = counted_of(self.classes_.tolist(), self.positive)
        target = (codes == self.classes_.tolist().index(self.positive_)).astype(np.float64)
        weight = _check_sample_weight(sample_weight, labels, dtype=np.float64, ensure_non_negative=True)
        return target, weight / weight.mean()

    def _tables(self, X: Any, reset: bool) -> list[Table]:
        """Each party's table; records or checks the columns seen."""
        given = tables_of(X, None if reset else self.party_names_)
        if reset:
            self.party_names_: list[str] = party_names(X if given else None, len(given or "1"))
        if given is None:
            if not hasattr(X, "columns"):
                X = check_array(X, dtype=None, ensure_all_finite=False, estimator=self, input_name="X")
            validate_data(self, X, reset=reset, skip_check_array=True)
            given = {None: X}
        else:
            blocks = list(given.values())
            check_features(self, blocks, consecutive(block.shape[1] for block in blocks), reset)
            check_index(given)
        tables = [_table("X" if m is None else f"X[{m!r}]", block) for m, block in given.items()]
        if len({table.n_rows for table in tables}) > 1:
            raise InputError(f"X: tables of {[table.n_rows for table in tables]} rows; align the rows first")
        return tables

    def _encoded(self, X: Any, encoders: Mapping[str, Encoder]) -> list[Array]:
        """Each party's rows as an encoder makes them."""
        blocks = []
        for table, encoder in zip(self._tables(X, reset=False), encoders.values()):
            block, report = encode_table(table, encoder, np.arange(table.n_rows))
            report.counts["outside"].clear()  # numbers have their bins
            for line in report.lines(table.path):
                warnings.warn(line.replace("all zeros", "they say nothing"), stacklevel=3)
            blocks.append(block)
        return blocks

    def _as_given(self, X: Any, blocks: list[Array]) -> Any:
        """One array, or a dict or list of tables."""
        given = tables_of(X, self.party_names_)
        if given is None:
            return blocks[0]
        for k, (own, encoder) in enumerate(zip(given.values(), self.encoders_.values())):
            if hasattr(own, "iloc"):  # a DataFrame's names and index are kept
                blocks[k] = type(own)(blocks[k], own.index, [column.name for column in encoder.columns])
        return dict(zip(given, blocks)) if isinstance(X, Mapping) else blocks

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = tags.input_tags.categorical = True
        tags.classifier_tags = ClassifierTags(multi_class=False)  # of its labels
        return tags


def check_numbers(estimator: Any, *names: str) -> None:
    """Refuse parameters that are no finite numbers."""
    for name in names:
        if not (isinstance(value := getattr(estimator, name), Real) and math.isfinite(value)):
            raise ConfigError(f"{name}: {value!r} is not a number")


def _bins_text(given: Any) -> str:
    """Own bins as the command line has them."""
    if isinstance(given, str):
        return given
    parts = [[part] if isinstance(part, str) or not np.iterable(part) else part for part in given]
    return ",".join("|".join(map(str, part)) for part in parts)


def _table(place: str, block: Any) -> Table:
    """A table of a DataFrame or an array."""
    if hasattr(block, "columns"):
        columns = {str(name): block[name] for name in block.columns}
    else:
        columns = {f"x{j}": column for j, column in enumerate(np.asarray(block).T)}
    if len(columns) < block.shape[1]:
        raise InputError(f"{place}: two columns have one name")
    places = Places()
    places.add("row ", np.arange(block.shape[0]))
    found = {name: _column(f"{place}: column {name!r}", column) for name, column in columns.items()}
    return Table(place, list(columns), found, places)


def _column(place: str, given: Any) -> Column:
    """Cells of a column: numbers, or words."""
    import pandas as pd

    grouped = str(given.dtype).lower().startswith(("categor", "enum"))
    values = np.asarray(given)
    if values.dtype.kind in "mM":
        raise InputError(f"{place}: has dates: make numbers of them, such as days")
    if values.dtype.kind not in "biuf":
        values = np.array(values, dtype=object)
    absent = np.asarray(pd.isna(values))
    present = values[~absent].tolist()
    texts = grouped or any(isinstance(cell, str) for cell in present)
    for row, cell in zip(np.flatnonzero(~absent), present if values.dtype == object else ()):
        if not isinstance(cell, str if texts and not grouped else str | Real | np.bool_):
            alike = ", as other cells are" if isinstance(cell, Real) else ""
            raise _NoCell(f"{place}, row {row}: {cell!r}: argument must be a string or a number{alike}")
    if texts:
        cells = np.full(len(values), "", dtype=object)
        words = [cell.strip() if isinstance(cell, str) else canonical_text(str(cell)) for cell in present]
        cells[~absent] = words
        found = words_of(cells.tolist())
        return Column("text", found.codes, tuple(found.words))
    numbers = np.full(len(values), np.nan)
    numbers[~absent] = present
    large = np.abs(values) > EXACT if values.dtype.kind in "iu" else np.zeros(1, dtype=bool)
    for wrong, why in ((np.isinf(numbers), "is infinite"), (large, "is above 2**53: neighbours become one")):
        if wrong.any():
            raise InputError(f"{place}, row {int(np.argmax(wrong))}: {why}")
    return Column("number", numbers)


def _raw(table: Table, name: str) -> tuple[ColumnEncoding, str, Cells]:
    """A column before it has bins: how it is read, its name, and its cells."""
    column = table.columns[name]
    absent = column.missing(np.arange(table.n_rows))
    if absent.all():
        raise InputError(f"{table.path}: column {name!r}: no value in any row: leave it out")
    if column.kind == "number":
        mean = float(column.values[~absent].mean())  # where only new rows have missing cells
        return ColumnEncoding(name, fill=mean), name, Cells.of_numbers(column.values, absent)
    levels = sorted(word for word in column.words if word)
    number = {level: code for code, level in enumerate(levels)}
    codes = np.array([number.get(word, len(levels)) for word in column.words], dtype=np.intp)
    return ColumnEncoding(name, tuple(levels)), name, Cells(codes[column.values], len(levels))


# --- points of bins and a model -------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class Scorecard(BaseEstimator):
    """Points of each bin of each column, whose sum is the score: bins, then a logistic model, then points.

    ``base`` points mean ``odds`` good rows to one bad row, and ``pdo`` more points double these odds.
    They are those of ``fastadmm scorecard bins``, ``train`` and ``scorecard points``; see
    ``docs/scorecard.md``.

    Parameters
    ----------
    woe : WoeTransformer or None, default=None
        How columns are binned; None is ``WoeTransformer(min_iv=0)``, as at the command line.
    model : JointClassifier or None, default=None
        What is trained on the weights of evidence; None is ``JointClassifier()``. Its ``parties`` stay None:
        a dict of tables says who holds what.
    base : float, default=600
        Points where the odds are ``odds``.
    odds : float, default=50
        Good to bad.
    pdo : float, default=20
        Points that double the odds.
    good : label or None, default=None
        Class that earns points; None: the good one of labels such as good/bad, else the one that is not
        counted.
    digits : int, default=0
        Decimals of points.
    positive : label or None, default=None
        Which label is counted, given to ``woe`` and ``model``; None leaves what they have.

    Attributes
    ----------
    woe_, model_
        Fitted.
    points_ : DataFrame
        A line for each bin: its cells, rows, events, rate, WOE, weight and points.
    base_points_ : float
        Points of every row, to which those of its bins are added.
    good_, bad_ : label
        Points rise as the rate of ``bad_`` falls.
    """

    woe: WoeTransformer | None = None
    model: JointClassifier | None = None
    base: float = 600.0
    odds: float = 50.0
    pdo: float = 20.0
    good: Any = None
    digits: int = 0
    positive: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Bin columns, train the model on their weights of evidence, and give points.

        Parameters
        ----------
        X, y, sample_weight
            As :meth:`WoeTransformer.fit` takes them.

        Returns
        -------
        self : object
            The fitted scorecard.
        """
        import pandas as pd

        check_numbers(self, "base", "odds", "pdo", "digits")
        self.woe_ = WoeTransformer(min_iv=0.0) if self.woe is None else clone(self.woe)
        self.model_ = JointClassifier() if self.model is None else clone(self.model)
        if self.model_.privacy is not None:
            raise ConfigError("model: a private fit: its budget covers neither bins nor points")
        if self.positive is not None:
            self.woe_.set_params(positive=self.positive)
        X_woe = self.woe_.fit_transform(X, y, sample_weight)
        self.model_.set_params(positive=self.woe_.positive_).fit(X_woe, y, sample_weight)
        model, good = model_of(self.model_), None if self.good is None else str(self.good)
        encoders = self.woe_.encoders_.values()
        parties = [replace(own, encoder=encoder) for own, encoder in zip(model.parties, encoders)]
        scaling = Scaling(self.base, self.odds, self.pdo, good, int(self.digits))
        card = card_of(parties, model, scaling, "model")
        label_of = {str(label): label for label in self.woe_.classes_.tolist()}
        self.good_, self.bad_ = label_of[str(card.good)], label_of[str(card.bad)]
        self.base_points_ = card.base_points
        self.points_ = pd.DataFrame(
            row for party, own in zip(parties, card.points) for row in point_rows(party, own)
        )
        pairs = zip(self.woe_.encoders_.items(), card.points)
        self._encoders = {name: _with_points(encoder, own) for (name, encoder), own in pairs}
        return self

    def score(self, X: Any) -> Array:
        """Points of rows, of shape (n_samples,); 0 of unseen categories, with a warning."""
        check_is_fitted(self, "points_")
        blocks = self.woe_._encoded(X, self._encoders)
        total, _ = add_up(self.base_points_, blocks, [int(self.digits)] * len(blocks))
        return total  # type: ignore[return-value]  # there are base points


def _with_points(encoder: Encoder, points: list[tuple[float, ...]]) -> Encoder:
    """The encoder with points in place of weights of evidence."""
    pairs: Any = zip(encoder.columns, points, strict=True)
    return replace(encoder, columns=tuple(replace(c, bins=replace(c.bins, woe=own)) for c, own in pairs))
