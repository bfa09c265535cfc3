"""The declarations of the ADMM schemes: sharing, Jacobi and Gauss-Seidel order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastadmm.coordinator.admm.penalty_rule import GAUSS_SEIDEL, JACOBI, SHARING, Order
from fastadmm.method.scheme import Options, Scheme, Shape
from fastadmm.problem.traits import Traits

if TYPE_CHECKING:
    from fastadmm.engine.engine import Engine
    from fastadmm.method.method import Method
    from fastadmm.problem.problem import Problem

#: Default penalty, in units of the loss's curvature (``Loss.penalty_unit``). Measured over the
#: benchmark data sets: larger ones stall with several parties, smaller ones
#: slow the first rounds.
DEFAULT_PENALTY = 0.05

#: Over-relaxation of accelerated sharing; measured in bench/rounds.py.
RELAXATION = 1.6

#: Copies of the state (messages, z and u) that live at once in a round, and those that acceleration adds.
_STATES, _ACCELERATED = 2, 5

#: Vectors of a message's length beside them, without and with acceleration; bench/memory.py measures these.
_WORK, _ACCELERATED_WORK = 12, 9


class AdmmScheme(Scheme):
    """ADMM in one order of the parties."""

    options = ("penalty", "acceleration", "x_update")

    def __init__(self, order: Order, rounds: str, remarks: str) -> None:
        self.order, self.name = order, order.name
        self.rounds, self.remarks = rounds, remarks

    def why(self, traits: Traits, given: Sequence[str]) -> str:
        """An option of its own, or a problem that is not for the others."""
        if given:
            return f"{given[0]} is an option of ADMM"
        if traits.coupled:
            return "a simplex or an affine set"
        return "more than 300 parties, or 1024 parties times classes"

    def method(self, traits: Traits) -> type[Method]:
        """One for one predictor per sample, one for several."""
        from fastadmm.coordinator.admm.admm import AdmmMethod
        from fastadmm.coordinator.admm.multinomial import MultinomialAdmmMethod

        return MultinomialAdmmMethod if traits.vector else AdmmMethod

    def make(self, problem: Problem, options: Options, engine: Engine) -> Method:
        from fastadmm.coordinator.stationarity import descent_penalty
        from fastadmm.method.certificate import penalty_unit

        kind: type = self.method(problem.traits)
        given, loss, n = options.penalty, problem.loss, engine.all_rows(problem.n_samples)
        theorem = problem.convex and self.order.convergent
        if given is not None:
            penalty = given
        elif not problem.convex:
            penalty = descent_penalty(problem, engine)
        else:
            # r in units of one sample's curvature, so W = N for unit weights drops out
            penalty = DEFAULT_PENALTY * penalty_unit(problem, engine) * problem.total_weight / n
        memory = self._memory(problem.n_parties, n * problem.n_outputs, options, problem.convex)
        if options.history is not None:
            memory = min(memory, options.history)
        # Who gives a penalty, or wants no acceleration, gets the iteration as it is printed.
        free = given is None and memory > 0
        return kind(
            problem,
            self.order,
            penalty,
            memory,
            options.x_update,
            engine,
            adaptive=given is None and theorem and not problem.is_ridge,
            reweighting=free and theorem and loss.smooth and not loss.vector,
            # The messages of Jacobi and Gauss-Seidel have no copies to relax towards.
            relaxation=RELAXATION if free and self.order.majorised else 1.0,
        )

    def _memory(self, n_parties: int, message_size: int, options: Options, convex: bool) -> int:
        """Differences of the acceleration, as many as are useful."""
        from fastadmm.coordinator.admm.anderson import acceleration_memory

        asked = options.acceleration
        accelerate = self.order.accelerated if asked == "auto" else asked == "anderson"
        return acceleration_memory(n_parties, message_size) if accelerate and convex else 0

    def history(self, shape: Shape, options: Options) -> int:
        """Differences of the acceleration."""
        return self._memory(shape.n_parties, shape.message_size, options, shape.traits.convex)

    def state_bytes(self, shape: Shape, history: int) -> tuple[int, int]:
        """Messages, z and u, and their differences."""
        vector = 8 * shape.message_size
        state = (shape.n_parties + 2) * vector
        more = (2 * history + _ACCELERATED) * state + _ACCELERATED_WORK * vector if history else 0
        return _STATES * state + _WORK * vector, more


ADMM_SCHEMES = (
    AdmmScheme(
        SHARING,
        "tens to hundreds",
        "sharing ADMM (Boyd et al. 2011, section 7.3) with Anderson acceleration; converges for every "
        "penalty",
    ),
    AdmmScheme(JACOBI, "varies", "Algorithm 1 of Hu et al. as printed. It diverges on some data: see below"),
    AdmmScheme(GAUSS_SEIDEL, "varies", "parties take turns, each seeing the answers of those before it"),
)
