"""Rounds do not know where their parties are: any driver gives the same bits."""

import numpy as np
import pytest
from fastadmm.conversation.calls import CALLS, argument_fields, check_answer, check_values
from fastadmm.conversation.exchange import Call, Exchange, Pace, Threads, converse
from fastadmm.engine.engine import Engine
from fastadmm.errors import FormatError
from fastadmm.parties.families import FAMILIES
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, SolverOptions

from problems import make_vertical_classification
from rounds_tools import three_classes
from run_tools import refuses

N = 60


class Couriers:
    """A driver of its own: every party is made anew for each call from what the last one remembers.

    What passes is copied, checked against the table, and asked in the opposite order.
    """

    local = False

    def __init__(self, solver):
        self.solver = solver
        self.memory = [{} for _ in solver.method.make_parties()]
        self.calls = set()

    def carry(self, exchange):
        answers = [self._ask(call) for call in reversed(exchange.calls)]
        return answers[::-1]

    def notes(self):
        return []

    def _ask(self, call):
        self.calls.add(call.name)
        party = self.solver.method.make_parties()[call.party]
        party.prepare()
        if self.memory[call.party]:
            party.restore(self.memory[call.party])
        asked = {key: np.copy(v) if isinstance(v, np.ndarray) else v for key, v in call.made().items()}
        check_values(asked, argument_fields(call.name, N), "request")
        answer = {
            key: np.copy(value) if isinstance(value, np.ndarray) else value
            for key, value in party.answer(call.name, asked).items()
        }
        check_answer((call.name, asked), answer, N, "message")
        self.memory[call.party] = {key: np.copy(value) for key, value in party.export().items()}
        return answer


@pytest.mark.representatives(5)
@pytest.mark.parametrize(
    ("loss", "penalty", "options"),
    [
        ("logistic", {}, {"directions": "both"}),
        ("logistic", {}, {"directions": "one", "history": 2}),
        ("logistic", {}, {"secrecy": "sums", "history": 3}),
        ("hinge", {}, {"secrecy": "sums"}),
        ("hinge", {}, {"scheme": "subspace", "directions": "one"}),
        ("logistic", {}, {"scheme": "sharing"}),
        ("logistic", {"regularizer": "l1"}, {"scheme": "sharing"}),
        ("logistic", {"regularizer": "l1"}, {"scheme": "proximal", "history": 20}),
        ("logistic", {}, {"scheme": "gauss-seidel"}),
        ("sigmoid", {}, {"scheme": "sharing"}),
        ("sigmoid", {}, {}),
        ("multinomial", {}, {"history": 2}),
        ("multinomial", {}, {"scheme": "sharing"}),
        ("multinomial", {"regularizer": "l1"}, {"history": 20}),
        ("logistic", {"regularizer": "log_sum:0.3"}, {"directions": "one"}),
    ],
)
def test_any_driver_gives_the_same_bits(loss, penalty, options):
    blocks, y, _ = make_vertical_classification(N, (3, 4), seed=2)
    y = y if loss != "multinomial" else three_classes(y)
    problem = make_problem(blocks, y, loss=loss, lam=1e-2, **penalty)
    with Engine(2) as engine, Engine(1) as other:
        here = Solver(problem, SolverOptions(gap=0.0, stationarity=0.0, **options), engine)
        there = Solver(problem, SolverOptions(gap=0.0, stationarity=0.0, **options), other)
        there.driver = couriers = Couriers(there)
        for _ in range(7):
            one, two = here.round().to_json(), there.round().to_json()
            assert {**one, "seconds": 0} == {**two, "seconds": 0}
    assert couriers.calls <= set(CALLS)
    assert {FAMILIES[here.method.family]} == {type(party) for party in here.parties}


def test_answers_of_several_classes_are_of_those_that_were_asked():
    asked = ("respond_classes", {"gradient": np.ones((3, N)), "class_coefficients": np.ones((3, 1))})
    for directions in (1, 2, 3):
        check_answer(asked, {"squared_residual": 1.0, "message": np.ones((directions, N))}, N, "m")
    for message, text in (
        (np.ones((0, N)), rf"'message' has shape \(0, {N}\) instead of \(3, -1\)"),
        (np.ones((4, N)), rf"'message' has shape \(4, {N}\) instead of \(3, -1\)"),
        (np.ones((3, N - 1)), rf"is not as expected: class rows \(any, {N}\) of <f8"),
        (np.ones(3 * N), rf"is not as expected: class rows \(any, {N}\) of <f8"),
    ):
        refuses(FormatError, text, check_answer, asked, {"squared_residual": 1.0, "message": message}, N, "m")


def test_a_talk_ends_where_an_answer_is_missing_and_takes_the_same_course_again():
    closed = []

    def talk():
        try:
            first = yield Exchange([Call(0, "a")])
            second = yield Exchange([Call(0, "b", {"after": first[0]["value"]})])
            return second[0]["value"]
        finally:
            closed.append(True)

    known = {"a": 1.0}
    asked = []

    def carry(exchange):
        call = exchange.calls[0]
        asked.append((call.name, call.made()))
        return [{"value": known[call.name]}] if call.name in known else None

    assert converse(talk(), carry) is None
    known["b"] = 2.0
    assert converse(talk(), carry) == 2.0
    assert asked[:2] == asked[2:]
    assert closed == [True, True]


@pytest.mark.parametrize(("threads", "parties", "in_turn"), [(4, 2, True), (4, 3, False), (1, 1, False)])
def test_few_parties_answer_one_after_another_with_all_threads(threads, parties, in_turn, monkeypatch):
    class Party:
        def answer(self, name, arguments):
            return {"inside": engine.inside}

    with Engine(threads) as engine:
        monkeypatch.setattr("fastadmm.engine.engine.FREE_CORES.among", lambda n_threads: n_threads)
        driver = Threads(engine, [Party() for _ in range(parties)])
        calls = [Call(m, "ask", {}) for m in range(parties)]
        assert {answer["inside"] for answer in driver.carry(Exchange(calls))} == {not in_turn and parties > 1}
        assert not driver.carry(Exchange(calls, Pace.IN_TURN))[0]["inside"]
