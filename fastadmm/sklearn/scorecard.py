"""Points of bins and a model, as ``fastadmm scorecard points`` and ``apply`` have them, from Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from fastadmm.errors import ConfigError
from fastadmm.runs.points import Scaling, add_up, card_of, point_rows
from fastadmm.sklearn.estimators import JointClassifier
from fastadmm.sklearn.inference import model_of
from fastadmm.sklearn.woe import WoeTransformer, check_numbers, naming_parameters
from fastadmm.store.encoder import Encoder

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
        with naming_parameters():
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
