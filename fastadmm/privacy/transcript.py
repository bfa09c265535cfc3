"""The transcript of a private run: every value before its noise, and what was sent of it.

A :class:`Recorder` stands between a mechanism and its source of noise. It forwards every call and keeps
both sides of it, so that an audit sees what fastadmm's own code releases. A :class:`Replay` gives a
neighbour's run the recorded noisy values: the past is then the same, the exact values may differ by the
sensitivity, and nothing else may differ at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.privacy.noise import Calibration, GridMessage

__all__ = ["Comparison", "Recorder", "Release", "Replay", "Scripted", "compare_transcripts"]

Array = np.ndarray


@dataclass(frozen=True)
class Release:
    """One call for noise.

    Attributes
    ----------
    exact : ndarray of shape (n,)
        The value before noise.
    level : Calibration
        The noise that was asked for.
    sent : GridMessage
        What came back.
    """

    exact: Array
    level: Calibration
    sent: GridMessage

    @property
    def noise(self) -> Array:
        """The noise in units of the sigma that was asked for, of shape (n,)."""
        steps = self.sent.integers - np.rint(self.exact / self.sent.grid)
        return steps * (self.sent.grid / self.level.sigma)

    @property
    def on_grid(self) -> bool:
        """Whether no digit is below the grid of the noise: such a digit would be the exact value's (Mironov
        2012)."""
        return self.sent.grid == self.level.grid


class Recorder:
    """A noise source that keeps a transcript.

    Parameters
    ----------
    inner : NoiseSource
        What draws.

    Attributes
    ----------
    releases : list of Release
    uniforms : list of ndarray
        In the order of the calls.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.releases: list[Release] = []
        self.uniforms: list[Array] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def release(
        self, values: Array, level: Calibration, round: int, engine: Engine, stream: int = 0
    ) -> GridMessage:
        """As in :meth:`fastadmm.privacy.noise.NoiseSource.release`; ``values`` and ``level`` are kept."""
        exact = np.array(values, dtype=np.float64)
        sent: GridMessage = self.inner.release(values, level, round, engine, stream)
        self.releases.append(Release(exact, level, sent))
        return sent

    def uniform(self, n_values: int, round: int, engine: Engine, stream: int = 0) -> Array:
        """As in :meth:`fastadmm.privacy.noise.NoiseSource.uniform`; the ``n_values`` numbers are kept."""
        drawn: Array = self.inner.uniform(n_values, round, engine, stream)
        self.uniforms.append(drawn)
        return drawn


class Scripted:
    """A source whose "noise" the audit chooses: an improbable past, for which the theorem must hold too.

    Parameters
    ----------
    script : callable
        Takes the number of the call, the exact value and the level, returns what is sent.
    """

    def __init__(self, script: Callable[[int, Array, Calibration], Array]) -> None:
        self.script, self.calls = script, 0

    def release(
        self, values: Array, level: Calibration, round: int, engine: Engine, stream: int = 0
    ) -> GridMessage:
        """What the script says of ``values`` and ``level``, on the grid; ``round`` does not matter."""
        chosen = self.script(self.calls, np.asarray(values, dtype=np.float64), level)
        self.calls += 1
        return GridMessage(np.rint(chosen / level.grid).astype(np.int64), level.grid)

    def uniform(self, n_values: int, round: int, engine: Engine, stream: int = 0) -> Array:
        """Evenly spaced: frequencies are then probabilities, exact to one in ``n_values``."""
        return (np.arange(n_values) + 0.5) / n_values


class Replay:
    """Gives what was recorded, call by call.

    Parameters
    ----------
    record : Recorder
    """

    def __init__(self, record: Recorder) -> None:
        self._releases, self._uniforms = iter(record.releases), iter(record.uniforms)

    def release(
        self, values: Array, level: Calibration, round: int, engine: Engine, stream: int = 0
    ) -> GridMessage:
        """What was sent for these ``values``; zeros where the record has none of their size."""
        found = next(self._releases, None)
        if found is None or len(found.exact) != len(values):
            return GridMessage(np.zeros(len(values), dtype=np.int64), level.grid)
        return found.sent

    def uniform(self, n_values: int, round: int, engine: Engine, stream: int = 0) -> Array:
        """The ``n_values`` numbers that were drawn."""
        found = next(self._uniforms, None)
        return np.zeros(n_values) if found is None or len(found) != n_values else found


@dataclass(frozen=True)
class Comparison:
    r"""Two neighbours' transcripts with the same past.

    Attributes
    ----------
    gdp : float
        :math:`\sqrt{\sum_k (\Delta_k/\sigma_k)^2}` over all releases, with the distances as they are.
    n_releases : int
    public : bool
        Whether number, size, noise and grid of the releases are the same in both: they are no function of
        the private data, given the past.
    """

    gdp: float
    n_releases: int
    public: bool


def compare_transcripts(first: Recorder, second: Recorder) -> Comparison:
    """Add up what the releases of two neighbours give away.

    Parameters
    ----------
    first, second : Recorder
        The second one replayed the first.

    Notes
    -----
    ``docs/privacy.md#the-audit``; the sum is that of theorem T5.
    """
    public = len(first.releases) == len(second.releases) and len(first.uniforms) == len(second.uniforms)
    square = 0.0
    for one, other in zip(first.releases, second.releases):
        if not one.on_grid or len(one.exact) != len(other.exact) or one.level != other.level:
            public = False
            continue
        square += (float(np.linalg.norm(one.exact - other.exact)) / one.level.sigma) ** 2
    return Comparison(math.sqrt(square), len(first.releases), public)
