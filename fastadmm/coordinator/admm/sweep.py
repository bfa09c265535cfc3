r"""A round of ADMM in one read of the data: tiles of all parties pass once, and everything is done there.

Possible where nothing but the x-updates couples rows: parties that answer side
by side from :math:`D_m^\top w_m` alone, and no intercept, whose equation in the
z-update sums over all rows. Then per tile, while it is in the cache: messages,
z- and u-update, loss and gradient, next targets, and the images of all three
vectors that the certificate and the next x-update ask for. Targets of
extrapolated states come from stored images (:mod:`fastadmm.target_images`).

Tiles are cut for all parties together and depend on the data alone. So results
are the same for any number of threads and wherever the data are, and differ
from a round in two passes by rounding: sums run over other tiles.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from fastadmm.blocks.block import CSRBlock, DenseBlock
from fastadmm.blocks.tiles import Rows, common_tiles
from fastadmm.coordinator.admm.schemes import Scheme, correction
from fastadmm.coordinator.admm.state import SharedState
from fastadmm.engine.engine import Engine, row_ranges
from fastadmm.parties.proximal import Party
from fastadmm.problem.problem import Problem
from fastadmm.steps import Step, Steps

__all__ = ["MOST_PARTIES", "Sweep", "Swept", "suits_sweep"]

Array = np.ndarray

#: With more parties, a party's share of a tile is too small to be worth its calls.
MOST_PARTIES = 8

#: Bytes per row that a tile needs beside the data: vectors of one number per sample, and of one per party.
_VECTORS, _PARTY_VECTORS = 10 * 8, 5 * 8


@dataclass(frozen=True)
class Swept:
    """What a sweep left behind, beside messages, z and u.

    Attributes
    ----------
    total : ndarray of shape (N,)
        S, the sum of the new messages.
    pull : ndarray of shape (N,)
        ``u + r (S - z)``.
    loss : float
        Summed loss at S.
    gradient : ndarray of shape (N,)
        Its gradient.
    images : list of ndarray of shape (d,)
        Of each party's target at the new state.
    answers : ndarray of shape (M, N)
        :math:`D_m x_m`: the new state's messages, where these are not relaxed.
    """

    total: Array
    pull: Array
    loss: float
    gradient: Array
    images: list[Array]
    answers: Array


def suits_sweep(problem: Problem, scheme: Scheme, parties: Sequence[Party]) -> bool:
    """Whether rounds can be made in one read.

    Parameters
    ----------
    problem : Problem
    scheme : Scheme
    parties : sequence of Party
    """
    return (
        scheme.parallel
        and problem.convex
        and not problem.fit_intercept
        and not problem.loss.vector
        and len(parties) <= MOST_PARTIES
        and all(type(p) is Party and p.update.by_image for p in parties)
        and all(isinstance(p.block, (DenseBlock, CSRBlock)) for p in parties)
    )


class Sweep:
    """Runs rounds in one read.

    Parameters
    ----------
    problem : Problem
    scheme : Scheme
    parties : sequence of Party
        That :func:`suits_sweep` has accepted.
    engine : Engine
    """

    def __init__(self, problem: Problem, scheme: Scheme, parties: Sequence[Party], engine: Engine) -> None:
        self.problem, self.scheme, self.parties, self.engine = problem, scheme, parties, engine
        per_row = _VECTORS + _PARTY_VECTORS * len(parties)
        self._pieces: list[tuple[int, int]] = []  # ranges of tiles
        bounds = [0]
        for rows in row_ranges(problem.n_samples):
            cost = per_row * np.arange(rows[1] - rows[0] + 1)
            for party in parties:
                cost = cost + party.block.cost(rows)
            tiles = common_tiles(rows, cost)
            self._pieces.append((len(bounds) - 1, len(bounds) - 1 + len(tiles)))
            bounds += [stop for _, stop in tiles]
        self._bounds = np.array(bounds, dtype=np.int64)

    def run(
        self,
        state: SharedState,
        new: SharedState,
        penalty: float,
        metric: Array | None = None,
        relaxation: float = 1.0,
    ) -> Swept:
        """One x-update of every party, the z- and u-update, and all images.

        Parameters
        ----------
        state : SharedState
            Where the round starts; not changed.
        new : SharedState
            Written.
        penalty : float
            r, summed scaling.
        metric : ndarray of shape (N,), optional
            omega, where every sample has a penalty of its own, ``r omega_i``; the parties know it.
        relaxation : float
            alpha of :func:`fastadmm.coordinator.admm.schemes.relax`.

        Returns
        -------
        Swept
        """
        return self.read(self._x_updates(state, penalty, metric), state, new, penalty, metric, relaxation)

    def read(
        self,
        weights: list[Array],
        state: SharedState,
        new: SharedState,
        penalty: float,
        metric: Array | None = None,
        relaxation: float = 1.0,
    ) -> Swept:
        """The part of :meth:`run` that reads the data, for given new weights of the parties.

        Parameters
        ----------
        weights : list of ndarray of shape (d,)
        state, new : SharedState
        penalty : float
        metric : ndarray of shape (N,), optional
        relaxation : float
            As in :meth:`run`.

        Returns
        -------
        Swept
        """
        from fastadmm.kernels.sweep import (
            sweep_add,
            sweep_centres,
            sweep_correct,
            sweep_divide,
            sweep_relax,
            sweep_targets,
        )

        problem, parties, tau = self.problem, self.parties, self.scheme.tau(len(self.parties))
        n, plain = problem.n_samples, relaxation == 1.0
        centre, predictor, shift = np.empty(n), np.empty(n), problem.offset
        total, pull, gradient = np.empty(n), np.empty(n), np.empty(n)
        answers, relaxed = (new.messages, total) if plain else (np.empty_like(new.messages), np.empty(n))
        kernels, extra = problem.loss.kernels(), problem.loss.kernel_arguments()
        # What the certificate takes its dual point from; see fastadmm.coordinator.admm.admm.
        dual = gradient if problem.loss.smooth and problem.is_ridge else new.u
        y, s = problem.y, problem.weight
        # A sample with r omega has the z of one with r and its weight over omega, and u is omega times
        # that one's: the kernels run with these, and what they write is put right behind them.
        narrowed, u_before, u_after = s, state.u, new.u
        if metric is not None:
            narrowed, u_before, u_after = s / metric, state.u / metric, np.empty(n)

        steps = Steps(self._bounds)
        value = steps.write(Step(kernels.evaluate, (predictor, y, s, *extra, gradient)))
        z_update = [
            Step(
                sweep_centres,
                (answers, u_before, state.z, shift, penalty, total, centre, predictor, new.z),
            )
        ]
        if not plain:
            given = answers, state.messages, state.z, u_before, relaxation, penalty
            z_update.append(Step(sweep_relax, (*given, new.messages, relaxed, centre)))
        z_update.append(Step(kernels.prox, (centre, shift, y, narrowed, *extra, penalty, new.z, new.u)))
        if metric is not None:
            # As the gradient itself, so that it is in the domain of the conjugate, exactly.
            z_update.append(Step(sweep_add, (shift, new.z, centre)))
            z_update.append(Step(kernels.evaluate, (centre, y, s, *extra, new.u)))
            z_update.append(Step(sweep_divide, (new.u, metric, u_after)))
        common = [*map(steps.write, z_update), value]

        def piece(tiles: tuple[int, int]) -> list[Array]:
            ranges = list(itertools.pairwise(self._bounds[tiles[0] : tiles[1] + 1].tolist()))
            most = max(stop - start for start, stop in ranges)
            sums = [party.block.empty_images() for party in parties]
            vectors = np.zeros((len(parties), 4, most))  # the last stays so
            targets = [
                Step(
                    sweep_targets,
                    (new.messages, relaxed, new.z, u_after, dual, penalty, tau, pull, vectors),
                )
            ]
            if metric is not None or not plain:
                omega = np.ones(n) if metric is None else metric
                targets.append(Step(sweep_correct, (total, new.z, u_after, penalty, omega, pull, vectors)))
            with ExitStack() as stack:
                visits = [
                    stack.enter_context(party.block.visit(ranges, *arrays))
                    for party, *arrays in zip(parties, weights, answers, vectors, sums)
                ]

                def advise(rows: Rows) -> None:
                    for visit in visits:
                        if visit.advise is not None:
                            visit.advise(rows)

                before = [steps.write(visit.product) for visit in visits]
                after = [*map(steps.write, targets), *(steps.write(visit.images) for visit in visits)]
                steps.run([*before, *common, *after], *tiles, advise)
            return sums

        parts = self.engine.map(piece, self._pieces)
        images = []
        for m, party in enumerate(parties):
            sums = parts[0][m]
            for part in parts[1:]:
                sums += part[m]
            first, second, target = party.block.split_images(sums)
            party.block.know([(dual, first), (pull, second)])
            images.append(target.copy())
        return Swept(total, pull, sum(value.values.tolist()), gradient, images, answers)

    def _x_updates(self, state: SharedState, penalty: float, metric: Array | None) -> list[Array]:
        """New weights of every party: from a known image, or from one more read."""
        common, tau = None, self.scheme.tau(len(self.parties))
        if any(party.target_images is None or party.target_images.current is None for party in self.parties):
            own = penalty if metric is None else penalty * metric
            common = correction(self.scheme, len(self.parties), state, own)

        def work(m: int) -> Array:
            target = None if common is None else state.messages[m] - common
            return self.parties[m].update_weights(target, tau * penalty)

        return self.engine.map(work, range(len(self.parties)))
