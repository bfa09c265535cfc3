"""The closed convex sets X that a party's weights lie in; their table is in ``docs/losses.md``."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.other_names import choose_instead

#: Beyond it squares of lambda N, a penalty or a radius overflow.
LARGEST_FACTOR = 1e100

Array = np.ndarray


@dataclass(frozen=True)
class Constraint(ABC):
    """A closed convex set, the same for every party."""

    name: ClassVar[str]  # what its text form begins with

    @abstractmethod
    def project(self, x: Array) -> Array:
        """Nearest point of the set to x of shape (d,)."""

    @property
    def text(self) -> str:
        """As configurations write it; :func:`get_constraint` reads it."""
        return self.name

    @property
    def bounds(self) -> tuple[float, float]:
        """Interval of each weight; infinite where there is none."""
        return -math.inf, math.inf

    @property
    def radius(self) -> float:
        """Largest norm of a party's weights; infinite where there is no ball."""
        return math.inf


@dataclass(frozen=True)
class AllSpace(Constraint):
    """No constraint."""

    name: ClassVar[str] = "all"

    def project(self, x: Array) -> Array:
        return x


@dataclass(frozen=True)
class NonNegative(Constraint):
    r""":math:`x \ge 0`."""

    name: ClassVar[str] = "nonnegative"
    bounds: ClassVar[tuple[float, float]] = (0.0, math.inf)

    def project(self, x: Array) -> Array:
        return np.maximum(x, 0.0)


@dataclass(frozen=True)
class Box(Constraint):
    """Every weight in [low, high]."""

    name: ClassVar[str] = "box"
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high or self.low == math.inf or self.high == -math.inf:
            raise ConfigError(f"constraint: box [{self.low:g}, {self.high:g}] is empty; give low <= high")

    def project(self, x: Array) -> Array:
        return np.clip(x, self.low, self.high)

    @property
    def text(self) -> str:
        return f"box:{self.low!r},{self.high!r}"

    @property
    def bounds(self) -> tuple[float, float]:
        return self.low, self.high


@dataclass(frozen=True)
class Ball(Constraint):
    r""":math:`\|x_m\| \le B` for each party."""

    name: ClassVar[str] = "ball"
    size: float

    def __post_init__(self) -> None:
        if not 0.0 < self.size < math.inf:
            raise ConfigError(f"constraint: ball of radius {self.size:g}: it must be positive and finite")
        if self.size > LARGEST_FACTOR:
            raise ConfigError(f"constraint: ball of radius {self.size:g}: it is above {LARGEST_FACTOR:g}")

    def project(self, x: Array) -> Array:
        norm = float(np.linalg.norm(x))
        return x if norm <= self.size else x * (self.size / norm)

    @property
    def text(self) -> str:
        return f"ball:{self.size!r}"

    @property
    def radius(self) -> float:
        return self.size


#: The text forms, for messages and help.
CONSTRAINTS: tuple[str, ...] = ("all", "nonnegative", "box:LOW,HIGH", "ball:RADIUS")


def get_constraint(constraint: str | Constraint | None) -> Constraint:
    """Constraint set of a given text form."""
    if constraint is None:
        return AllSpace()
    if isinstance(constraint, Constraint):
        return constraint
    if isinstance(constraint, str):
        name, _, rest = constraint.partition(":")
        if constraint == AllSpace.name:
            return AllSpace()
        if constraint == NonNegative.name:
            return NonNegative()
        numbers = _numbers(rest)
        if name == Box.name and len(numbers) == 2:
            return Box(*numbers)
        if name == Ball.name and len(numbers) == 1:
            return Ball(*numbers)
    instead = choose_instead("constraint", constraint, CONSTRAINTS)
    raise ConfigError(f"constraint: unknown constraint {constraint!r}; {instead}")


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return []
