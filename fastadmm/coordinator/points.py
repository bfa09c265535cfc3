"""What the coordinator knows of the parties' points: messages and scalars, never weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastadmm.hull_party import Bend, PointScalars

__all__ = ["Points"]

Array = np.ndarray


class Points:
    """All points of all parties, oldest first.

    Parameters
    ----------
    n_samples : int

    Attributes
    ----------
    owner : ndarray of int, shape (K,)
        Whose point it is.
    norms : ndarray of shape (K,)
        Homogeneous part of the regulariser at each point.
    products : ndarray of shape (K, K)
        Inner products of points of one party; 0 between parties.
    faces : ndarray of bool, shape (K, K)
        Whether point k lies on the closed face of point j, in row j.
    together : ndarray of bool, shape (K, K)
        Whether both lie on a common face.
    bent : ndarray of bool, shape (K,)
        Where a norm is not linear on faces: points for which slope and curvature hold.
    slopes : ndarray of shape (K,)
    curvatures : ndarray of shape (K, K)
        Of that norm, see :class:`fastadmm.hull_party.Bend`.
    growth : ndarray of shape (K,)
        Bound of the rounding in a message, in units of that of a product with the block: 1 for
        what a party computed, more for combinations of messages.
    """

    def __init__(self, n_samples: int) -> None:
        self._store = np.empty((0, n_samples))
        self.owner = np.empty(0, dtype=np.int64)
        self.norms = np.empty(0)
        self.growth = np.empty(0)
        self.bent, self.slopes, self.curvatures = np.empty(0, dtype=bool), np.empty(0), np.empty((0, 0))
        self.products = np.empty((0, 0))
        self.faces = np.empty((0, 0), dtype=bool)
        self.together = np.empty((0, 0), dtype=bool)

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def messages(self) -> Array:
        """V of shape (K, N)."""
        return self._store[: len(self.owner)]

    def of(self, m: int) -> Array:
        """Numbers of the points of party m, in the party's own order."""
        return np.flatnonzero(self.owner == m)

    def add(self, m: int, message: Array, scalars: PointScalars, growth: float = 1.0) -> None:
        """Append a point of party m."""
        mine, k = self.of(m), len(self)
        products, faces = np.zeros((k + 1, k + 1)), np.zeros((k + 1, k + 1), dtype=bool)
        products[:k, :k], faces[:k, :k] = self.products, self.faces
        products[k, mine] = products[mine, k] = scalars.products[:-1]
        products[k, k], faces[k, k] = scalars.products[-1], True
        faces[k, mine], faces[mine, k] = scalars.extends, scalars.extended
        self.products, self.faces = products, faces
        together = np.zeros((k + 1, k + 1), dtype=bool)
        together[:k, :k], together[k, k] = self.together, True
        together[k, mine] = together[mine, k] = scalars.together
        self.together = together
        if k == len(self._store):
            grown = np.empty((max(16, 2 * k), self._store.shape[1]))
            grown[:k] = self._store
            self._store = grown
        self._store[k] = message
        self.owner = np.append(self.owner, m)
        self.norms = np.append(self.norms, scalars.norm)
        self.growth = np.append(self.growth, growth)
        self.bent, self.slopes = np.append(self.bent, False), np.append(self.slopes, 0.0)
        self.curvatures = np.pad(self.curvatures, (0, 1))

    def bend(self, m: int, bend: Bend) -> None:
        """Take in the shape of party m's norm over all its points."""
        mine = self.of(m)
        self.bent[mine], self.slopes[mine] = bend.on_face, bend.slope
        self.curvatures[np.ix_(mine, mine)] = bend.curvature

    def bend_last(self, c: Array) -> None:
        """The same for the point added last, the combination of its party's earlier ones, shape (K - 1,)."""
        k = len(self) - 1
        mine = self.of(int(self.owner[k]))[:-1]
        row = self.curvatures[np.ix_(mine, mine)] @ c
        self.slopes[k] = self.slopes[mine] @ c
        self.curvatures[k, mine] = self.curvatures[mine, k] = row
        self.curvatures[k, k] = c @ row
        self.bent[k] = self.bent[mine][c != 0.0].all()

    def forget(self, numbers: Array) -> Array:
        """Drop points; returns which stay, a bool array of shape (K,)."""
        stay = np.ones(len(self), dtype=bool)
        stay[numbers] = False
        for to, at in enumerate(np.flatnonzero(stay)):
            if to != at:
                self._store[to] = self._store[at]
        self.owner, self.norms, self.growth = self.owner[stay], self.norms[stay], self.growth[stay]
        self.products, self.faces = self.products[np.ix_(stay, stay)], self.faces[np.ix_(stay, stay)]
        self.together = self.together[np.ix_(stay, stay)]
        self.bent, self.slopes = self.bent[stay], self.slopes[stay]
        self.curvatures = self.curvatures[np.ix_(stay, stay)]
        return stay

    def merge(self, a: int, b: int, pair: Array) -> None:
        """Put the combination of two points of a party, weights of shape (2,), in the place of the first."""
        both = [a, b]
        self._store[a] = pair @ self._store[both]
        self.norms[a] = pair @ self.norms[both]  # a bound, by convexity
        self.growth[a] = self.growth[both].max()
        square = float(pair @ self.products[np.ix_(both, both)] @ pair)
        row = pair @ self.products[both]
        self.products[a] = self.products[:, a] = row
        self.products[a, a] = square
        self.faces[a] |= self.faces[b]
        self.faces[:, a] &= self.faces[:, b]
        self.faces[a, a] = True
        self.bent[a] &= self.bent[b]
        self.slopes[a] = pair @ self.slopes[both]
        bending = float(pair @ self.curvatures[np.ix_(both, both)] @ pair)
        bends = pair @ self.curvatures[both]
        self.curvatures[a] = self.curvatures[:, a] = bends
        self.curvatures[a, a] = bending
        self.together[a] &= self.together[b]
        self.together[:, a] = self.together[a]
        self.together[a, a] = True

    def export(self) -> dict[str, Any]:
        """Everything a resumed run needs."""
        return {
            "messages": self.messages,
            "owner": self.owner,
            "norms": self.norms,
            "growth": self.growth,
            "bent": self.bent.astype(np.int64),
            "slopes": self.slopes,
            "curvatures": self.curvatures,
            "products": self.products,
            "faces": self.faces.astype(np.int64),
            "together": self.together.astype(np.int64),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Inverse of :meth:`export`; raises ValueError where shapes do not fit."""
        messages = np.array(saved["messages"], dtype=np.float64)
        owner = np.array(saved["owner"], dtype=np.int64)
        k = len(owner)
        if messages.shape != (k, self._store.shape[1]) or saved["products"].shape != (k, k):
            raise ValueError("messages")
        self._store, self.owner = messages, owner
        self.growth = np.array(saved["growth"])
        self.bent = np.array(saved["bent"]) > 0
        self.slopes, self.curvatures = np.array(saved["slopes"]), np.array(saved["curvatures"])
        self.norms, self.products = np.array(saved["norms"]), np.array(saved["products"])
        self.faces, self.together = np.array(saved["faces"]) > 0, np.array(saved["together"]) > 0
