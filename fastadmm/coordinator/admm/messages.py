r"""How one round runs: sharing, Jacobi or Gauss-Seidel order.

All three send party m the target

.. math:: w_m = a_m - \frac{S - z}{\tau} - \frac{u}{\tau r}, \qquad S = \sum_k a_k,

and differ only in :math:`\tau` and in the order of the parties:

``sharing``
    :math:`\tau = M`, parties in parallel. Sharing ADMM of Boyd et al. (2011,
    section 7.3), convergent for every convex problem and every penalty.
``jacobi``
    :math:`\tau = 1`, parties in parallel: Algorithm 1 of Hu et al. It does
    **not** converge in general.
``gauss-seidel``
    :math:`\tau = 1`, parties one after the other, each seeing its
    predecessors' new messages (Hong et al. 2016).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Answers, Call, Exchange, Pace, Talk
from fastadmm.coordinator.admm.order import Order
from fastadmm.engine.engine import Engine


class SharedState:
    """Messages, consensus variable and dual variable, in one vector.

    One flat vector lets an acceleration step treat the whole state as a point.

    Shapes: messages (M, N); z, u (N,).
    """

    def __init__(self, n_parties: int, n_samples: int, vector: np.ndarray | None = None) -> None:
        m, n = n_parties, n_samples
        self.vector = np.zeros((m + 2) * n) if vector is None else vector
        self.messages = self.vector[: m * n].reshape(m, n)
        self.z = self.vector[m * n : (m + 1) * n]
        self.u = self.vector[(m + 1) * n :]

    def like(self, vector: np.ndarray) -> SharedState:
        """A state of the same shape with given values."""
        return SharedState(*self.messages.shape, vector)

    def total(self) -> np.ndarray:
        """Sum of the messages over parties, in the parties' order, of shape (N,)."""
        return self.messages.sum(axis=0)


def correction(
    order: Order, state: SharedState, penalty: float, engine: Engine, metric: np.ndarray | None = None
) -> np.ndarray:
    """What every party's target differs by from its own message in a round that starts at a state.

    Shapes: metric, the result (N,).
    Scaling: penalty summed scaling.
    """
    from fastadmm.kernels.sharing import shift_of_targets

    out, tau = engine.vector(len(state.z)), float(order.tau(len(state.messages)))
    given = state.messages, state.z, state.u, *penalty_terms(penalty, metric), tau, out
    engine.over_rows(shift_of_targets, engine.leaves(len(out)), *given)
    return out


def penalty_terms(penalty: float, metric: np.ndarray | None) -> tuple[float, np.ndarray]:
    """Penalties as the kernels of :mod:`fastadmm.kernels.sharing` take them."""
    return float(penalty), np.empty(0) if metric is None else metric


def relax(
    old: SharedState, messages: np.ndarray, relaxation: float, out: np.ndarray, engine: Engine
) -> tuple[np.ndarray, np.ndarray]:
    r"""Over-relax new messages, for tau = M.

    .. math:: \hat a_m = \alpha D_m x_m^+ + (1 - \alpha)\, \xi_m, \qquad
              \xi_m = \hat a_m^t - \frac{S^t - z^t}{M}

    where :math:`\xi_m` is party m's copy of its message in the two-block form of
    sharing ADMM, and :math:`\hat a_m^t` and :math:`S^t`, their sum, are relaxed
    ones as well (Boyd et al. 2011, sections 3.4.3 and 7.3).

    Shapes: messages, out (M, N); each of the result (N,).
    """
    from fastadmm.kernels.sharing import relax_messages

    total, relaxed = engine.vector(len(old.z)), engine.vector(len(old.z))
    given = old.messages, old.z, messages, float(relaxation), out, total, relaxed
    engine.over_rows(relax_messages, engine.leaves(len(total)), *given)
    return total, relaxed


def collect_messages(
    order: Order,
    state: SharedState,
    penalty: float,
    out: np.ndarray,
    engine: Engine,
    metric: np.ndarray | None = None,
) -> Talk[Answers]:
    """One x-update of every party.

    Shapes: out (M, N); metric (N,).
    Scaling: penalty summed scaling.
    """
    m_parties = len(out)
    common = correction(order, state, penalty, engine, metric)
    scaled = float(order.tau(m_parties) * penalty)

    def call(m: int) -> Call:
        def asked() -> dict[str, Any]:
            return {"w": engine.plus(state.messages[m], common, factor=-1.0), "scaled_penalty": scaled}

        return Call(m, "step", asked)

    answers: Answers = []
    if order.parallel:
        answers = yield Exchange([call(m) for m in range(m_parties)])
        for m, answer in enumerate(answers):
            out[m] = answer["message"]
        return answers
    for m in range(m_parties):
        answers += yield Exchange([call(m)], Pace.IN_TURN)
        out[m] = answers[m]["message"]
        engine.plus(common, engine.plus(out[m], state.messages[m], factor=-1.0), out=common)
    return answers
