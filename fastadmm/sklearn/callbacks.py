"""scikit-learn's callbacks (``sklearn.callback``, from 1.9): every round is a task of the fit.

Older versions have no callbacks; with them the names below do nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    Method = TypeVar("Method", bound=Callable[..., Any])

    class CallbackSupportMixin:
        """Gives an estimator ``set_callbacks``."""

    def with_callbacks(method: Method) -> Method:
        """Tear callbacks down after the method, however it ends."""

else:
    try:
        from sklearn.callback import CallbackSupportMixin, with_callbacks
    except ImportError:

        class CallbackSupportMixin:
            """Nothing: this scikit-learn has no callbacks."""

        def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
            """The method itself."""
            return method


#: Frames that scikit-learn puts between a caller and ``fit``, for warnings to name the caller.
FRAMES = int(with_callbacks(int) is not int)

__all__ = ["FRAMES", "CallbackSupportMixin", "FitCallbacks", "with_callbacks"]


class FitCallbacks:
    """Calls an estimator's callbacks at the beginning of the fit, around every round, and at its end."""

    def __init__(
        self,
        estimator: Any,
        most: int,
        X: Any,
        y: Any,
        metadata: dict[str, Any] | None,
        columns: list[np.ndarray],
        task: str = "round",
    ) -> None:
        self.estimator, self.columns, self.task = estimator, columns, task
        self.data = {"X": X, "y": y, "metadata": metadata}
        #: Weights and intercept of the last round.
        self.model: Callable[[], tuple[list[np.ndarray], Any]] | None = None
        self._stop = False
        self._fit: Any = None
        self._round: Any = None
        # Without callbacks nothing of this is kept.
        if getattr(estimator, "_skl_callbacks", None):
            self._fit = estimator._init_callback_context(max_subtasks=most)
            self._fit.call_on_fit_task_begin(estimator=estimator, **self.data)
            self._begin()

    def _begin(self) -> None:
        self._round = self._fit.subcontext(task_name=self.task)
        self._round.call_on_fit_task_begin(estimator=self.estimator, **self.data)

    def _end(self, task: Any) -> bool:
        """End a task; whether a callback asks to stop."""

        def attributes() -> dict[str, Any]:
            """What makes an estimator predict with the model of the current round."""
            assert self.model is not None
            weights, intercept = self.model()
            return self.estimator._fitted(self.columns, [w.copy() for w in weights], intercept)

        told = None if self.model is None else attributes
        return bool(
            task.call_on_fit_task_end(estimator=self.estimator, **self.data, reconstruction_attributes=told)
        )

    def __call__(self, record: Any) -> None:
        """One round is done."""
        if self._fit is None:
            return
        if self._round is None:
            self._begin()
        done, self._round = self._round, None
        self._stop = self._end(done)

    def should_stop(self) -> bool:
        """Whether a callback has asked to stop; otherwise the next round begins."""
        if self._fit is not None and self._round is None and not self._stop:
            self._begin()
        return self._stop

    def close(self) -> None:
        """End the fit."""
        if self._fit is not None:
            self._end(self._fit)
