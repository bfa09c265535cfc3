"""The transcript of a private run: every value before its noise, and what was sent of it.

A :class:`Tap` stands in every source of noise of this thread, wherever fastadmm makes one: in the
parties of a run, in those that answer requests from elsewhere, and where labels are randomised. It keeps
both sides of every call, so that an audit sees what fastadmm's own code releases. With :func:`replayed` a
neighbour's run gets the recorded noisy values: the past is then the same, the exact values may differ by the
sensitivity, and nothing else may differ at all.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.privacy.noise import Calibration, GridMessage, NoiseSource

__all__ = ["Comparison", "Drawn", "Release", "Tap", "compare_transcripts", "on_grid", "replayed"]

Array = np.ndarray

#: What an audit sends in place of noise: number of the call, exact value, level; None draws.
Script = Callable[[int, Array, Calibration], Any]


@dataclass(frozen=True)
class Release:
    """One call for noise.

    Shapes: exact (n,).
    """

    exact: Array  # of shape (n,): the value before noise
    level: Calibration  # the noise that was asked for
    sent: GridMessage  # what came back
    party: int = 0  # whose source it was, and which of its releases
    round: int = 0  # whose source it was, and which of its releases
    stream: int = 0  # whose source it was, and which of its releases

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


@dataclass(frozen=True)
class Drawn:
    """One call for uniform numbers.

    Shapes: numbers (n,).
    """

    numbers: Array  # of shape (n,)
    party: int  # whose source it was, and which of its calls
    round: int  # whose source it was, and which of its calls
    stream: int  # whose source it was, and which of its calls


class Tap:
    """Keeps every draw of this thread while it is open, from whatever source of noise."""

    def __init__(
        self, release: Script | None = None, uniform: Callable[[int, int], Any] | None = None
    ) -> None:
        self._script, self._numbers = release, uniform
        self.releases: list[Release] = []
        self.uniforms: list[Drawn] = []

    def __enter__(self) -> Tap:
        here = threading.get_ident()
        # Looked up now: the audit is of what a run would call now.
        self._own = NoiseSource.release, NoiseSource.uniform
        release, uniform = self._own

        def tapped(
            source: NoiseSource,
            values: Array,
            level: Calibration,
            round: int,
            engine: Engine,
            stream: int = 0,
        ) -> GridMessage:
            if threading.get_ident() != here:
                return release(source, values, level, round, engine, stream)
            exact, number = np.array(values, dtype=np.float64), len(self.releases)
            chosen = None if self._script is None else self._script(number, exact, level)
            sent = release(source, values, level, round, engine, stream) if chosen is None else chosen
            self.releases.append(Release(exact, level, sent, source.party, round, stream))
            return sent

        def numbers(source: NoiseSource, n_values: int, round: int, engine: Engine, stream: int = 0) -> Array:
            if threading.get_ident() != here:
                return uniform(source, n_values, round, engine, stream)
            chosen = None if self._numbers is None else self._numbers(len(self.uniforms), n_values)
            drawn = uniform(source, n_values, round, engine, stream) if chosen is None else chosen
            self.uniforms.append(Drawn(np.array(drawn), source.party, round, stream))
            return drawn

        patched: Any = NoiseSource
        patched.release, patched.uniform = tapped, numbers
        return self

    def __exit__(self, *exc: Any) -> None:
        patched: Any = NoiseSource
        patched.release, patched.uniform = self._own


def on_grid(chosen: Array, level: Calibration) -> GridMessage:
    """A chosen value as a message on the grid of its noise."""
    return GridMessage(np.rint(chosen / level.grid).astype(np.int64), level.grid)


def replayed(record: Tap) -> Tap:
    """A tap that gives what another has recorded, call by call; zeros where that has none of the size."""

    def release(call: int, exact: Array, level: Calibration) -> GridMessage:
        found = record.releases[call] if call < len(record.releases) else None
        if found is None or len(found.exact) != len(exact):
            return GridMessage(np.zeros(len(exact), dtype=np.int64), level.grid)
        return found.sent

    def uniform(call: int, n_values: int) -> Array:
        found = record.uniforms[call].numbers if call < len(record.uniforms) else None
        return np.zeros(n_values) if found is None or len(found) != n_values else found

    return Tap(release, uniform)


@dataclass(frozen=True)
class Comparison:
    r"""Two neighbours' transcripts with the same past."""

    gdp: float
    n_releases: int
    public: bool
    beyond: float  # largest distance over the sensitivity that was declared for it; at most 1
    sigma: float  # noise of the first release


def compare_transcripts(first: Tap, second: Tap, party: int | None = None) -> Comparison:
    """Add up what the releases of two neighbours give away.

    ``docs/privacy.md#the-audit``; the sum is that of theorem T5.
    """
    one, other = (
        [release for release in tap.releases if party in (None, release.party)] for tap in (first, second)
    )
    public = len(one) == len(other) and [len(d.numbers) for d in first.uniforms] == [
        len(d.numbers) for d in second.uniforms
    ]
    square, beyond = 0.0, 0.0
    for a, b in zip(one, other):
        if not a.on_grid or len(a.exact) != len(b.exact) or a.level != b.level or a.round != b.round:
            public = False
            continue
        distance = float(np.linalg.norm(a.exact - b.exact))
        square += (distance / a.level.sigma) ** 2
        if distance > 0.0:
            declared = a.level.sensitivity
            beyond = max(beyond, distance / declared if declared > 0.0 else math.inf)
    return Comparison(math.sqrt(square), len(one), public, beyond, one[0].level.sigma if one else 0.0)
