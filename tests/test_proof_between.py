"""What is proved of a model whose columns are elsewhere: one exchange more, and nothing that is not so."""

from itertools import product

import numpy as np
import pytest
from fastadmm.between.run_problem import RemoteBlock
from fastadmm.blocks.block import as_block
from fastadmm.conversation.calls import argument_fields, check_answer, check_values
from fastadmm.conversation.exchange import converse
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import make_problem
from fastadmm.proof.claim import Claim
from fastadmm.solver.loop import ended
from fastadmm.solver.solver import Solver, SolverOptions, solve

from federation_tools import Parties, train_with
from problems import make_vertical_classification, make_vertical_regression
from rounds_tools import begin, data_of, separate, three_classes, train
from run_tools import result_of

N = 60
FINAL = ("prove", "prove_classes", "prove_masked")


class Elsewhere:
    """Parties that are asked through the table, of a coordinator that has no columns."""

    local = False

    def __init__(self, parties, change=None):
        self.parties, self.change, self.asked = parties, change, []

    def carry(self, exchange):
        return [self._ask(call) for call in exchange.calls]

    def notes(self):
        return []

    def _ask(self, call):
        asked = call.made()
        check_values(asked, argument_fields(call.name, N), "request")
        if call.name in FINAL and call.party == 0:
            self.asked.append(call.name)
        party = self.parties[call.party]
        if self.change is not None and call.name in FINAL and call.party == 1:
            answer = self.change(party, call.name, asked)
        else:
            answer = party.answer(call.name, asked)
        check_answer((call.name, asked), answer, N, "message")
        return answer


def problem_of(loss, seed=2, **more):
    if loss in ("squared", "quantile", "huber"):
        blocks, y, _ = make_vertical_regression(N, (3, 4), seed=seed)
    else:
        blocks, y, _ = make_vertical_classification(N, (3, 4), seed=seed)
        y = y if loss != "multinomial" else three_classes(y)
    return make_problem(blocks, y, loss=loss, **{"lam": 1e-2, **more})


def run_between(problem, change=None, **options):
    """Rounds, the proof and the result, with parties in another place."""
    given = SolverOptions(**{"gap": 1e-6, "max_rounds": 3000, **options})
    there = Solver(problem, given)
    parties = there.method.make_parties()
    remote = make_problem(
        [RemoteBlock(block.shape) for block in problem.blocks],
        problem.y,
        loss=problem.loss.name,
        lam=problem.lam,
        regularizer=problem.party_regularizers[0],
        constraint=problem.constraint,
        fit_intercept=problem.fit_intercept,
    )
    for party in parties:
        party.prepare()
    with Engine(1) as engine:
        driver = Elsewhere(parties, change)
        solver = Solver(remote, given, engine, driver=driver)
        record, status = None, None
        while status is None:
            record = converse(solver.next_round(), driver.carry)
            assert record is not None
            status = solver.stop_reason(record)
        assert converse(solver.proving(), driver.carry)
        result = ended(solver, solver.stop_reason(solver.last_record) or status, [solver.last_record])
        solver.close()
    there.close()
    return result, driver


def assert_proved(problem, result, claim=Claim.CERTIFIED):
    assert result.proof.claim is claim, result.message
    best = solve(problem, SolverOptions(gap=1e-9, max_rounds=3000))
    assert result.proof.bound <= best.objective * (1.0 + 1e-12)
    assert result.proof.objective >= best.objective * (1.0 - 1e-9)


@pytest.mark.representatives(15)
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "hinge", "quantile", "multinomial"])
@pytest.mark.parametrize(
    "penalty",
    [
        *({}, {"fit_intercept": False}, {"regularizer": "l1"}, {"regularizer": "elastic_net"}),
        *({"constraint": "box:-0.5,0.5"}, {"regularizer": "none", "constraint": "ball:1"}),
    ],
)
def test_certified_with_one_exchange(loss, penalty):
    problem = problem_of(loss, **penalty)
    result, driver = run_between(problem)
    assert_proved(problem, result)
    assert len(driver.asked) == 1
    assert result.record.gap == result.gap <= 1e-6


@pytest.mark.parametrize("loss", ["logistic", "hinge", "multinomial"])
@pytest.mark.parametrize("regularizer", ["l2", "l1"])
def test_the_same_by_admm(loss, regularizer):
    problem = problem_of(loss, regularizer=regularizer, lam=0.1)
    result, driver = run_between(problem, scheme="sharing", gap=1e-5)
    assert_proved(problem, result)
    assert len(driver.asked) == 1


def test_limits_and_bounded_models_end_with_a_proof():
    problem = problem_of("squared", regularizer="none")
    result, _ = run_between(problem)
    assert_proved(problem, result, Claim.CERTIFIED_WITHIN)
    # A limit ends with a proof too.
    for rounds in (1, 2):
        result, driver = run_between(problem_of("logistic"), max_rounds=rounds, gap=1e-12, directions="one")
        assert result.proof.claim is Claim.UNCERTIFIED
        assert 0.0 < result.gap < 1.0
        assert len(driver.asked) == 1


@pytest.mark.parametrize(("loss", "options"), [("logistic", {}), ("squared", {}), ("hinge", {"gap": 1e-4})])
def test_sums_only(loss, options):
    problem = problem_of(loss)
    result, driver = run_between(problem, secrecy="sums", **options)
    assert_proved(problem, result)
    assert driver.asked == ["prove_masked"]


def other_message(party, name, asked):
    answer = party.answer(name, asked)
    return {**answer, "message": answer["message"] * (1.0 + 1e-6)}


def other_weights(party, name, asked):
    honest = party.final_weights
    if asked["kept"]:
        party.kept = party.kept + 0.5
    party.final_weights = lambda **needed: honest(**needed) + 0.5
    try:
        return party.answer(name, asked)
    finally:
        party.final_weights = honest


@pytest.mark.parametrize("loss", ["logistic", "hinge", "multinomial"])
@pytest.mark.parametrize("regularizer", ["l2", "l1"])
def test_a_changed_message_contradicts_the_numbers(loss, regularizer):
    problem = problem_of(loss, regularizer=regularizer)
    result, _ = run_between(problem, other_message)
    assert result.proof.claim is Claim.CONTRADICTION
    assert "two passes over the columns disagree" in result.message
    assert not result.certified


@pytest.mark.parametrize(
    ("loss", "regularizer", "secrecy"),
    [("logistic", "l1", "none"), *product(("logistic", "hinge"), ("l2",), ("none", "sums"))],
)
def test_other_weights_are_not_certified(loss, regularizer, secrecy):
    problem = problem_of(loss, regularizer=regularizer)
    result, _ = run_between(problem, other_weights, secrecy=secrecy, max_rounds=60, gap=1e-4)
    assert not result.certified
    assert result.gap > 1e-4
    best = solve(problem, SolverOptions(gap=1e-9, max_rounds=3000))
    assert result.proof.bound <= best.objective * (1.0 + 1e-12)  # the bound is one whatever is written


BY_FILES = [
    ({"lambda": 1e-2}, "classification"),
    ({"lambda": 1e-2, "regularizer": "l1"}, "classification"),
    ({"lambda": 1e-2, "loss": "hinge", "gap": 1e-4}, "classification"),
    ({"lambda": 1e-1, "scheme": "sharing", "gap": 1e-4}, "classification"),
    ({"lambda": 1e-2}, "classes"),
    ({"lambda": 1e-2, "secrecy": "sums"}, "classification"),
]


@pytest.mark.representatives(3)
@pytest.mark.parametrize(("values", "kind"), BY_FILES)
def test_by_files_and_between_agents(tmp_path, values, kind):
    data = data_of(tmp_path, kind)
    separate(data, tmp_path / "files")
    begin(tmp_path / "files", **values)
    one = result_of(train(tmp_path / "files")[0])
    separate(data, tmp_path / "agents")
    parties = Parties(tmp_path / "agents")
    other = result_of(train_with(parties, **values))
    parties.close()
    assert {**one, "seconds": 0} == {**other, "seconds": 0}
    assert one["status"] == "converged"
    assert one["message"].startswith("certified after")
    assert one["gap"] <= values.get("gap", 1e-6)


SHARING = {"scheme": "sharing"}


@pytest.mark.parametrize(
    ("loss", "options", "penalty"),
    [
        ("logistic", {}, {}),
        ("hinge", {"scheme": "subspace"}, {}),
        ("logistic", SHARING, {}),
        ("logistic", SHARING, {"constraint": "ball:1"}),
        ("logistic", SHARING, {"regularizer": "group_lasso"}),
    ],
)
def test_numbers_do_not_change_with_a_rotation_of_columns(loss, options, penalty):
    """Owners are told that answers are functions of the inner products of rows: also where eps is large."""
    problem = problem_of(loss, **penalty)
    rng = np.random.default_rng(1)
    turn, u, x = np.linalg.qr(rng.normal(size=(3, 3)))[0], rng.normal(size=N), rng.normal(size=3)
    found = []
    for q in (np.eye(3), turn):
        solver = Solver(problem, SolverOptions(**options))
        kind = type(solver.method.make_parties()[0])
        block = as_block(problem.blocks[0].matrix @ q)
        with Engine(1) as engine:
            terms = {"regularization": 0.6, "regularizer": "l2", "l1_ratio": -1.0, "constraint": "all"}
            party = kind.opened("p", block, engine, {**terms, **penalty, "position": 0, "x_update": "auto"})
            party.final_weights = lambda q=q, **needed: q.T @ x
            needed = {"coefficients": np.ones(1)} if party.needs else {}
            asked = {"reach": 7.0, "about_mean": True, "kept": False, **needed}
            found.append([party.prove(u=u, eps=eps, **asked) for eps in (0.0, 0.3)])
        solver.close()
    for one, other in zip(*found, strict=True):
        for key, value in one.items():
            np.testing.assert_allclose(value, other[key], rtol=1e-9, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_a_coarse_grid_is_inside_the_proof(loss, monkeypatch):
    monkeypatch.setattr("fastadmm.secrecy.masks._BITS", 36)
    problem = problem_of(loss)
    result, _ = run_between(problem, secrecy="sums", gap=1e-9, max_rounds=20)
    best = solve(problem, SolverOptions(gap=1e-9, max_rounds=3000))
    assert result.proof.claim is not Claim.CONTRADICTION
    assert result.proof.bound <= best.objective * (1.0 + 1e-12)
    assert result.proof.objective >= best.objective * (1.0 - 1e-9)
