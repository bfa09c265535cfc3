"""What a run in one process says of its exchanges is what parties elsewhere are sent and send."""

import json
from typing import Any

import numpy as np
import pytest
from fastadmm import SolverOptions, make_problem
from fastadmm.between.schema import Message, Request, encoded
from fastadmm.conversation.calls import CALLS
from fastadmm.conversation.exchange import Threads
from fastadmm.solver.solver import Solver

from run_tools import run, write_problem

N = 400

#: What stands in the head of a message beside its values, at most.
_HEAD = 3000


class Elsewhere(Threads):
    """Parties of this process that the coordinator takes for others; counts bytes of their messages."""

    local = False

    def __init__(self, n_parties):
        self.traffic, self.exchanges, self.messages = None, 0, 0
        self.queues: list[list[Any]] = [[] for _ in range(n_parties)]
        self.bytes = [0] * n_parties

    def carry(self, exchange):
        answers, asked = super().carry(exchange), False
        for call, answer in zip(exchange.calls, answers):
            own = self.queues[call.party]
            if call.name == "keep_best":  # of a model that only parties hold
                continue
            own.append((call.name, call.made()))
            if CALLS[call.name].answer:
                asked = True
                self.messages += 1
                request = encoded(Request("r", "p", 1, 0, own, answered=""))
                message = encoded(Message("r", "p", 1, "", answer))
                self.bytes[call.party] += len(request) + len(message)
                own.clear()
        self.exchanges += asked
        return answers


def problem(**more):
    rng = np.random.default_rng(3)
    blocks = [rng.normal(size=(N, d)) for d in (5, 8, 3)]
    z = sum(block[:, 0] for block in blocks) + 0.3 * rng.normal(size=N)
    y = np.digitize(z, [-1.0, 1.0]) if more.get("loss") == "multinomial" else z > 0.0
    return make_problem(blocks, y * 1.0, lam=1e-2, **more)


@pytest.mark.parametrize("scheme", ["auto", "sharing", "gauss-seidel"])
@pytest.mark.parametrize(
    "more", [{}, {"loss": "hinge"}, {"regularizer": "l1"}, {"loss": "multinomial"}], ids=str
)
def test_exchanges_and_bytes_are_those_of_parties_elsewhere(more, scheme):
    options = SolverOptions(gap=1e-4, max_rounds=12, n_threads=1, scheme=scheme)
    here, driver = Solver(problem(**more), options), Elsewhere(3)
    there = Solver(problem(**more), options, here.engine, driver=driver)
    driver.engine, driver.parties = there.engine, there.parties
    there.method.prepare_parties()
    for solver in (here, there):
        while solver.stop_reason(solver.round()) is None:
            pass
    assert here.n_rounds == there.n_rounds
    for own, other in zip(here.method.weights(), there.method.weights()):
        np.testing.assert_array_equal(own, other)
    assert here.traffic.exchanges == driver.exchanges
    for counted, sent in zip(here.traffic.bytes_by_party(N), driver.bytes):
        assert counted <= sent <= counted + _HEAD * driver.exchanges


def test_a_run_states_them_and_goes_on_counting(tmp_path, capsys):
    data = write_problem(tmp_path / "d.parts", 60, (3, 2))
    assert run("train", data, "-o", tmp_path / "run", "--rounds", 6) in (0, 7)
    whole = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    most = max(party["bytes"] for party in whole["parties"]) / 60
    told = f"as between organisations: {whole['exchanges']} exchanges, {most:,.0f} bytes a row"
    assert told in " ".join(capsys.readouterr().err.split())
    assert run("train", data, "-o", tmp_path / "two", "--rounds", 2) in (0, 7)
    assert run("resume", tmp_path / "two", "--rounds", 6) in (0, 7)
    again = json.loads((tmp_path / "two" / "result.json").read_text(encoding="utf-8"))
    assert again["rounds"] == whole["rounds"]
    assert (again["exchanges"], again["parties"]) == (whole["exchanges"], whole["parties"])
