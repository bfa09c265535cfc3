"""The closed convex sets X that a party's weights lie in; their table is in ``docs/losses.md``."""

import math
from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

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
    coupled: ClassVar[bool] = False  # whether equations hold between weights, beyond bounds and a ball

    @abstractmethod
    def project(self, x: Array) -> Array:
        """Nearest point of the set to x of shape (d,)."""

    @property
    def text(self) -> str:
        """As configurations write it; :func:`get_constraint` reads it."""
        numbers = ",".join(map(repr, astuple(self)))
        return f"{self.name}:{numbers}" if numbers else self.name

    @property
    def bounds(self) -> tuple[float, float]:
        """Interval of each weight; infinite where there is none."""
        return -math.inf, math.inf

    @property
    def radius(self) -> float:
        """Largest norm of a party's weights; infinite where there is no ball."""
        return math.inf

    def equations(self, d: int) -> tuple[Array, Array]:
        """A and a of the equations A x = a, the rows of A independent. Shapes: A (k, d); a (k,)."""
        return np.zeros((0, d)), np.zeros(0)

    @property
    def n_columns(self) -> int | None:
        """Columns of a party that the set is for; None for any."""
        return None

    def check_columns(self, d: int, name: str) -> None:
        """Refuse a party whose number of columns is not the set's."""
        if self.n_columns not in (None, d):
            raise ConfigError(
                f"constraint: {self.name} has rows of {self.n_columns} numbers, but {name} has {d} columns; "
                "give a number for each column, or each party its own set"
            )

    def contains(self, x: Array) -> bool:
        """Whether weights of shape (d,) are in the set, but for the rounding of a norm or of a sum."""
        few, (low, high) = (len(x) + 8) * 2.0**-52, self.bounds
        if math.isfinite(self.radius):
            return float(np.linalg.norm(x)) <= self.radius * (1.0 + few)
        rows, values = self.equations(len(x))
        met = np.abs(rows @ x - values) <= few * (np.abs(rows) @ np.abs(x) + np.abs(values))
        return bool(met.all() and (x >= low).all() and (x <= high).all())


class AllSpace(Constraint):
    """No constraint."""

    name: ClassVar[str] = "all"

    def project(self, x: Array) -> Array:
        return x


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
    def radius(self) -> float:
        return self.size


@dataclass(frozen=True)
class Simplex(Constraint):
    r""":math:`x \ge 0` and :math:`\sum_j x_j = s` for each party."""

    name: ClassVar[str] = "simplex"
    bounds: ClassVar[tuple[float, float]] = (0.0, math.inf)
    coupled: ClassVar[bool] = True
    total: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.total <= LARGEST_FACTOR:
            raise ConfigError(
                f"constraint: simplex of sum {self.total:g}: it must be positive, at most {LARGEST_FACTOR:g}"
            )

    def equations(self, d: int) -> tuple[Array, Array]:
        return np.ones((1, d)), np.array([self.total])

    def project(self, x: Array) -> Array:
        if self.contains(x):
            return x
        # From the largest on, which changes nothing: what is left of large numbers would be rounding.
        x = x - x.max()
        found = np.maximum(x - self.threshold(x), 0.0)
        return found * (self.total / found.sum())

    def threshold(self, x: Array) -> float:
        """What is taken from each number of shape (d,), so that what is left above zero has the sum.

        By sorting: Duchi, Shalev-Shwartz, Singer and Chandra (2008).
        """
        ordered = np.sort(x)[::-1]
        each = (np.cumsum(ordered) - self.total) / np.arange(1.0, len(x) + 1.0)
        return float(each[np.flatnonzero(ordered > each)[-1]])


@dataclass(frozen=True)
class Affine(Constraint):
    """Weights that meet equations, one for each row of numbers; without rows their sum has a value."""

    name: ClassVar[str] = "affine"
    coupled: ClassVar[bool] = True
    rows: tuple[tuple[float, ...], ...]
    values: tuple[float, ...]

    @classmethod
    def of(cls, rows: Any, values: Any) -> Self:
        """The set ``rows @ x = values``. Shapes: rows (k, d) or (d,); values (k,) or one number."""
        matrix = np.atleast_2d(np.asarray(rows, dtype=float))
        return cls(tuple(map(tuple, matrix.tolist())), tuple(np.atleast_1d(values).astype(float).tolist()))

    def __post_init__(self) -> None:
        numbers = [number for row in (*self.rows, self.values) for number in row]
        if not all(abs(number) <= LARGEST_FACTOR for number in numbers):
            raise ConfigError(f"constraint: affine: a number is not finite, or above {LARGEST_FACTOR:g}")
        if not self.rows:
            return
        if len({len(row) for row in self.rows}) > 1 or len(self.rows) != len(self.values):
            raise ConfigError("constraint: affine: each row needs a value and as many numbers as the others")
        given = np.array(self.rows)
        size = np.abs(given).max(axis=1)
        if (size == 0.0).any():
            raise ConfigError("constraint: affine: a row of zeros says nothing of weights; leave it out")
        rows, values = self._independent
        off = np.abs(given @ (rows.T @ values) - self.values)
        if (off > INDEPENDENT * (size * np.abs(values).sum() + np.abs(self.values))).any():
            raise ConfigError("constraint: affine: the rows contradict each other; no weights meet them all")

    @cached_property
    def _independent(self) -> tuple[Array, Array]:
        """Orthonormal rows and their values, of the same set where the rows do not contradict each other."""
        import scipy.linalg

        given = np.array(self.rows)
        size = np.linalg.norm(given, axis=1)
        q, r, order = scipy.linalg.qr(given.T / size, mode="economic", pivoting=True)
        pivots = np.abs(np.diag(r))
        rank = int((pivots > INDEPENDENT * pivots.max()).sum())
        values = (np.array(self.values) / size)[order[:rank]]
        return q[:, :rank].T.copy(), scipy.linalg.solve_triangular(r[:rank, :rank], values, trans=1)

    def equations(self, d: int) -> tuple[Array, Array]:
        if self.rows:
            return self._independent
        return np.full((1, d), 1.0 / math.sqrt(d)), np.array(self.values) / math.sqrt(d)

    @property
    def n_columns(self) -> int | None:
        return len(self.rows[0]) if self.rows else None

    def project(self, x: Array) -> Array:
        if self.contains(x):
            return x
        rows, values = self.equations(len(x))
        for _ in range(2):  # the second takes what the first's rounding left
            x = x - rows.T @ (rows @ x - values)
        return x

    @property
    def text(self) -> str:
        if not self.rows:
            return f"sum:{self.values[0]!r}"
        pairs = zip(self.rows, self.values)
        return "affine:" + ";".join(f"{','.join(map(repr, row))}={value!r}" for row, value in pairs)


#: Up to this share of its terms a sum is their rounding: rows that depend on each other leave it, and so do
#: weights that a combination of directions keeps at zero or at a bound.
INDEPENDENT = 1e-11

#: The text forms, for messages and help.
CONSTRAINTS: tuple[str, ...] = (
    *("all", "nonnegative", "box:LOW,HIGH", "ball:RADIUS"),
    *("simplex:SUM", "sum:VALUE", "affine:NUMBERS=VALUE;..."),
)


def get_constraint(constraint: str | Constraint | None) -> Constraint:
    """Constraint set of a given text form."""
    if isinstance(constraint, Constraint):
        return constraint
    if constraint is None:
        return AllSpace()
    if isinstance(constraint, str):
        for kind in (AllSpace, NonNegative, Simplex):
            if constraint == kind.name:
                return kind()
        name, _, rest = constraint.partition(":")
        numbers = _numbers(rest)
        kinds: Any = {(Box.name, 2): Box, (Ball.name, 1): Ball, (Simplex.name, 1): Simplex}
        if made := kinds.get((name, len(numbers))):
            return made(*numbers)
        if name == "sum" and len(numbers) == 1:
            return Affine((), tuple(numbers))
        rows = [row.partition("=") for row in rest.split(";")]
        pairs = [(_numbers(row), _numbers(value)) for row, _, value in rows]
        if name == Affine.name and all(row and len(value) == 1 for row, value in pairs):
            return Affine(tuple(tuple(row) for row, _ in pairs), tuple(value for _, (value,) in pairs))
    instead = choose_instead(constraint, CONSTRAINTS)
    raise ConfigError(f"constraint: unknown constraint {constraint!r}; {instead}")


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return []
