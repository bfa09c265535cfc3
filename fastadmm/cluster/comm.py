"""What workers need of each other: sums in tree order, the largest number, all rows."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from fastadmm.engine.tree import add

__all__ = ["Comm", "add_nodes"]

Array = np.ndarray

#: A node of the tree: its level and its number there.
Node = tuple[int, int]


class Comm(ABC):
    """Workers that take the same steps, each with its own rows.

    Attributes
    ----------
    rank, size : int
        Number of this worker, and how many there are.
    n_sums : int
        How often sums went around so far.
    """

    rank: int
    size: int
    n_sums = 0

    @abstractmethod
    def gather(self, v: Array) -> list[Array]:
        """What every worker has, in the order of their ranks; float64, of one dimension and any length."""

    @abstractmethod
    def swap(self, v: Array, other: int) -> Array:
        """Exchange vectors of one length with another worker."""

    def sum(self, nodes: dict[Node, Array]) -> Array:
        """Sum over the whole tree.

        Parameters
        ----------
        nodes : dict of (int, int) to ndarray
            Sums of the nodes that are here, all of one length.

        Returns
        -------
        ndarray
            The same bits everywhere, whatever the number of workers: nodes are added as in one process.
        """
        self.n_sums += 1
        (node, *others), level = nodes, self.size.bit_length() - 1
        if others or self.size != 1 << level or node != (level, self.rank):
            return self._by_slots(nodes)
        total = np.array(nodes[node])
        for bit in range(level):  # after this many, siblings on every level have met
            total += self.swap(total, self.rank ^ (1 << bit))
        return total

    def _by_slots(self, nodes: dict[Node, Array]) -> Array:
        told = [np.concatenate([np.array(node, dtype=np.float64), v]) for node, v in nodes.items()]
        width, found = len(told[0]), {}
        for sent in self.gather(np.concatenate(told)):
            for slot in sent.reshape(-1, width):
                found[int(slot[0]), int(slot[1])] = slot[2:].copy()
        return add_nodes(found)

    def maximum(self, v: Array) -> Array:
        """Largest of each number, of shape (k,)."""
        return np.max(self.gather(v), axis=0)


def add_nodes(nodes: dict[Node, Array]) -> Array:
    """Add siblings until the whole tree is one.

    Parameters
    ----------
    nodes : dict of (int, int) to ndarray
        That cover the tree, each row once.
    """
    while set(nodes) != {(0, 0)}:
        level = max(level for level, _ in nodes)
        deepest = sorted(index for at, index in nodes if at == level)
        for index in deepest[::2]:
            nodes[level - 1, index // 2] = add(nodes.pop((level, index)), nodes.pop((level, index + 1)))
    return nodes[0, 0]
