"""Points of bins and a model, as ``fastadmm scorecard points`` and ``apply`` have them, from Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from fastadmm.errors import ConfigError
from fastadmm.runs.points import Scaling, add_up, card_of, point_rows
from fastadmm.sklearn.columns import party_names, resolve_parties, tables_of
from fastadmm.sklearn.estimators import JointClassifier
from fastadmm.sklearn.woe import WoeTransformer, check_numbers, naming_parameters
from fastadmm.store.encoder import Encoder
from fastadmm.store.model import Model, PartyModel
from fastadmm.store.transform import Transform

Array = np.ndarray


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
        What is trained on the weights of evidence; None is ``JointClassifier()``. Its ``parties`` are of the
        columns of X. Bins and a model that are fitted already go both into scikit-learn's
        ``FrozenEstimator``.
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
            self.model_.set_params(positive=self.positive)
        self._columns: dict[str, Array] | None = None
        frozen = isinstance(self.woe_, FrozenEstimator)
        if tables_of(X) is None and self.model_.parties is not None and not frozen:
            names = [*map(str, X.columns)] if hasattr(X, "columns") else None
            columns = resolve_parties(self.model_.parties, np.shape(X)[1], names)
            self._columns = dict(zip(party_names(self.model_.parties, len(columns)), columns))
            self.model_.set_params(parties=None)
        if frozen:
            check_is_fitted(self.model_, "coef_")
        else:
            given = self._by_party(X, reset=True)
            self.model_.fit(self.woe_.fit_transform(given, y, sample_weight), y, sample_weight)
        model, good = self._model(), None if self.good is None else str(self.good)
        with naming_parameters():
            scaling = Scaling(self.base, self.odds, self.pdo, good, int(self.digits))
            card = card_of(model.parties, model, scaling, "model")
        label_of = {str(label): label for label in self.woe_.classes_.tolist()}
        self.good_, self.bad_ = label_of[str(card.good)], label_of[str(card.bad)]
        self.base_points_ = card.base_points
        self.points_ = pd.DataFrame(
            row for party, own in zip(model.parties, card.points) for row in point_rows(party, own)
        )
        self._encoders = {
            name: _with_points(encoder, own)
            for (name, encoder), own in zip(self.woe_.encoders_.items(), card.points)
        }
        return self

    def score(self, X: Any) -> Array:
        """Points of rows, of shape (n_samples,); 0 of unseen categories, with a warning."""
        check_is_fitted(self, "points_")
        blocks = self.woe_._encoded(self._by_party(X), self._encoders)
        total, _ = add_up(self.base_points_, blocks, [int(self.digits)] * len(blocks))
        return total  # type: ignore[return-value]  # there are base points

    def _by_party(self, X: Any, reset: bool = False) -> Any:
        """X, or where the model's ``parties`` say who holds its columns a table for each."""
        if self._columns is None:
            return X
        validate_data(self, X, reset=reset, skip_check_array=True)
        if hasattr(X, "iloc"):
            return {name: X.iloc[:, held] for name, held in self._columns.items()}
        X = check_array(X, dtype=None, ensure_all_finite=False, input_name="X")
        return {name: X[:, held] for name, held in self._columns.items()}

    def _model(self) -> Model:
        """The model as the command line has it: a weight speaks for the class that is counted."""
        woe, model = self.woe_, self.model_
        if [*woe.classes_] != [*model.classes_]:
            raise ConfigError(
                f"model: its classes are {[*model.classes_]}, those of the bins {[*woe.classes_]}"
            )
        first = bool(woe.positive_ == woe.classes_[0])
        sign, names = (-1.0, woe.classes_[::-1]) if first else (1.0, woe.classes_)
        coef, at, parties = np.ravel(model.coef_), 0, []
        if len(coef) != (made := sum(len(encoder.columns) for encoder in woe.encoders_.values())):
            raise ConfigError(f"model: has {len(coef)} weights, but the bins make {made} features")
        for name, encoder in woe.encoders_.items():
            d = len(encoder.columns)
            weights = sign * coef[at : at + d]
            parties.append(PartyModel(name, weights, encoder.feature_names, Transform(), encoder=encoder))
            at += d
        loss, intercept = model._checked_loss(), sign * float(np.ravel(model.intercept_)[0])
        return Model(loss.name, loss.task, 0.0, intercept, tuple(map(str, names)), parties, {})


def _with_points(encoder: Encoder, points: list[tuple[float, ...]]) -> Encoder:
    """The encoder with points in place of weights of evidence."""
    columns = []
    for column, own in zip(encoder.columns, points, strict=True):
        assert column.bins is not None
        columns.append(replace(column, bins=replace(column.bins, woe=own)))
    return replace(encoder, columns=tuple(columns))
