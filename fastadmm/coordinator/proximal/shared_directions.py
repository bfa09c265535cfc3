"""The parties' directions as the coordinator holds them: messages and inner products, never weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fastadmm.coordinator.message_store import MessageStore
from fastadmm.coordinator.proximal.class_newton import ClassHessian
from fastadmm.engine.engine import Engine
from fastadmm.method.method import Saved, check_pair
from fastadmm.method.span_hessian import SpanHessian

Array = np.ndarray


class SharedDirections(Saved):
    """Directions of all parties, in the order in which they came.

    Shapes: owner, rows (K,); products (K, K).
    """

    SAVED = "owner", "products", "hessian: hessian.saved", "curvature: hessian.reference"

    def __init__(
        self, n_samples: int, engine: Engine, n_classes: int = 1, intercept: bool = False, most: int = 16
    ) -> None:
        self.engine, self.n_classes = engine, n_classes
        self.hessian: Any = SpanHessian(intercept) if n_classes == 1 else ClassHessian(n_classes * intercept)
        self.known: Any = None
        self.store, self.most = MessageStore(n_samples, engine), most
        self.owner = np.empty(0, dtype=np.int64)
        self.rows = np.empty(0, dtype=np.int64)
        self.products = np.empty((0, 0))

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def messages(self) -> Array:
        """V of shape (R, N), each once."""
        return self.store.rows[: int(self.rows.max(initial=-1)) + 1]

    @property
    def common(self) -> bool:
        """Whether classes have messages in common."""
        return len(self.messages) < len(self)

    def by_class(self, c: Array) -> Array:
        """Coefficients of shape (K,) as those of every message in every class, of shape (C, R)."""
        table = np.zeros((self.n_classes, len(self.messages)))
        table[self.classes, self.rows] = c
        return table

    @cached_property
    def zeros(self) -> Array:
        """The sum of no messages, of shape (N,) or (C N,); not to be written to."""
        return np.zeros(self.n_classes * self.store.rows.shape[1])

    @property
    def classes(self) -> Array | None:
        """Class of every direction, where there are several."""
        return self.owner % self.n_classes if self.n_classes > 1 else None

    def place_of(self, point: Any, loss: Any) -> Any:
        """The place of a point with a loss, where it is known; else None."""
        if self.known is None:
            return None
        of, place = self.known
        same = place.total is point.total and np.array_equal(place.intercept, point.intercept) and of == loss
        return place if same else None

    def combined(self, c: Array) -> Array:
        """Sum of all messages with coefficients of shape (K,)."""
        if self.n_classes == 1:
            return self.engine.combine(c, self.messages)
        table, messages = self.by_class(c), self.messages
        total = np.empty((self.n_classes, messages.shape[1]))

        def piece(rows: tuple[int, int]) -> None:
            here = slice(*rows)
            np.matmul(table, messages[:, here], out=total[:, here])

        self.engine.by_leaf(piece, self.engine.leaves(messages.shape[1]))
        return total.ravel()

    def products_with(self, v: Array) -> Array:
        """Of every message with its class of v."""
        found: Array
        if self.n_classes == 1:
            found = self.engine.dot(self.messages, v)
            return found
        messages, own = self.messages, v.reshape(self.n_classes, -1)

        def piece(rows: tuple[int, int]) -> Array:
            here = slice(*rows)
            return own[:, here] @ messages[:, here].T

        table = self.engine.sums(piece, self.engine.leaves(messages.shape[1]))
        found = table[self.classes, self.rows]
        return found

    def of(self, m: int) -> Array:
        """Numbers of the directions of party m, in the party's own order."""
        return np.flatnonzero(self.owner == m)

    def add_to(self, parts: Sequence[int], message: Array, products: Array) -> None:
        """Append a direction that some parts have in common, as all their earlier ones.

        Shapes: message (N,); products (K,), with all of a part's.
        """
        row = len(self.messages)
        self.store.make_room(row, row + 1, max(self.most, 2 * row))
        self.engine.copy(message, self.store.rows[row])
        for m in parts:
            k = len(self)
            self.owner, self.rows = np.append(self.owner, m), np.append(self.rows, row)
            self.products = np.pad(self.products, (0, 1))
            mine = self.of(m)
            self.products[k, mine] = self.products[mine, k] = products

    def recombine(self, m: int, rotation: Array) -> None:
        """Replace the oldest directions of party m by combinations: rotation of shape (r, n_oldest).

        Not where classes have them in common: all of them are kept then.
        """
        r, n = rotation.shape
        oldest = self.of(m)[:n]
        self.store.rows[oldest[:r]] = self.engine.combine(rotation, self.store.rows, oldest)
        rows = rotation @ self.products[oldest]
        corner = rows[:, oldest] @ rotation.T
        self.products[oldest[:r]] = rows
        self.products[:, oldest[:r]] = rows.T
        self.products[np.ix_(oldest[:r], oldest[:r])] = corner
        stay = np.ones(len(self), dtype=bool)
        stay[oldest[r:]] = False
        self.hessian.recombine(rotation, oldest, stay)
        self.known = None
        self.store.keep(np.flatnonzero(stay).tolist())
        self.owner, self.products = self.owner[stay], self.products[np.ix_(stay, stay)]
        self.rows = np.arange(len(self.owner))

    def export(self) -> dict[str, Any]:
        rows = {"rows": self.rows} if self.common else {}
        return {"messages": self.messages, **super().export(), **rows}

    def restore(self, saved: Mapping[str, Any]) -> None:
        check_pair(saved, "hessian", "curvature")
        super().restore(saved)
        k, lead, n = len(self.owner), self.hessian.lead, self.store.rows.shape[1]
        fits = lead <= len(self.hessian.matrix) <= lead + k
        if (reference := self.hessian.reference) is not None and (
            reference.shape != (n * self.n_classes,) or not fits
        ):
            raise ValueError("hessian")
        self.rows = np.array(saved.get("rows", np.arange(k)), dtype=np.int64)
        self.store.take(saved["messages"], int(self.rows.max(initial=-1)) + 1, self.most)
        if self.rows.shape != (k,) or self.products.shape != (k, k):
            raise ValueError("messages")
