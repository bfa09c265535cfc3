"""Sums only: masks cancel exactly, one message alone says nothing, and certificates stay proofs."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from fastadmm.between.train import coordinator_step
from fastadmm.conversation.answering import Unanswerable
from fastadmm.conversation.calls import CALLS, SUMS
from fastadmm.conversation.exchange import Answers, Exchange
from fastadmm.conversation.gate import GatedParty, saturated
from fastadmm.coordinator.final_proof import _sums as sums_proof
from fastadmm.engine.engine import Engine
from fastadmm.errors import FormatError, InputError
from fastadmm.parties.masked_direction import MaskedDirectionParty
from fastadmm.problem.problem import make_problem
from fastadmm.proof.feasible import Balanced
from fastadmm.secrecy.keys import fingerprint, public_key
from fastadmm.secrecy.masks import (
    LARGEST_WHOLE,
    UNPROVED,
    Masked,
    PairwiseMasks,
    Transcript,
    add_up,
    from_grid,
    from_whole,
    grid_limit,
    grid_step,
    to_grid,
    to_whole,
)
from fastadmm.solver.history import Status
from fastadmm.solver.solver import Solver, SolverOptions, solve
from fastadmm.solver.warm_start import StartingPoint
from hypothesis import given, settings
from hypothesis import strategies as st

from resumed import assert_resumed_is_the_same
from rounds_tools import NAMES, answer, begin, change, data_of, separate, train
from run_tools import refuses
from test_both_directions import build, check_certificates, true_objective

N = 60
WORD = st.integers(0, 2**64 - 1)
NUMBER = st.floats(-1e60, 1e60, allow_subnormal=False)


def private_keys(count):
    return [bytes([m + 1]) * 32 for m in range(count)]


def all_masks(count):
    private = private_keys(count)
    keys = [public_key(key) for key in private]
    return [PairwiseMasks(key, keys, m) for m, key in enumerate(private)]


def sums(**more):
    return SolverOptions(**{"secrecy": "sums", "gap": 1e-9, "max_rounds": 200, **more})


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 5), st.binary(min_size=32, max_size=32), st.data())
def test_masks_cancel_exactly(count, transcript, data):
    size = data.draw(st.integers(0, 5))
    meant = [
        Masked(
            np.array(data.draw(st.lists(WORD, min_size=size, max_size=size)), dtype=np.uint64),
            [data.draw(st.integers(0, 2**512 - 1))],
        )
        for _ in range(count)
    ]
    sent = [masks.hide(own, transcript).packed() for masks, own in zip(all_masks(count), meant)]
    total = add_up(sent)
    rows = [sum(int(own.rows[i]) for own in meant) % 2**64 for i in range(size)]
    assert total.rows.tolist() == rows
    assert total.numbers == [sum(own.numbers[0] for own in meant) % 2**512]


def test_masks_hide_and_change_no_bit():
    """Of a message that is all zeros: every bit of a word, and bytes, as often as chance would have it."""
    n = 20_000
    nothing = Masked(np.zeros(n, dtype=np.uint64), [0] * 500)
    for masks in all_masks(3):
        sent = masks.hide(nothing, bytes(32)).packed()
        words = sent["rows"].view(np.uint64)
        ones = np.array([int(((words >> np.uint64(bit)) & np.uint64(1)).sum()) for bit in range(64)])
        assert (np.abs(ones - n / 2) < 5 * np.sqrt(n) / 2).all()
        for raw in (sent["rows"].tobytes(), sent["numbers"].tobytes()):
            counts = np.bincount(np.frombuffer(raw, dtype=np.uint8), minlength=256)
            expected = len(raw) / 256
            assert abs(((counts - expected) ** 2 / expected).sum() - 255) < 5 * np.sqrt(510)
        assert abs(np.corrcoef(words[1:].astype(float), words[:-1].astype(float))[0, 1]) < 5 / np.sqrt(n)
    # Another request or order has another mask.
    nothing = Masked(np.zeros(50, dtype=np.uint64), [])
    masks = all_masks(2)[0]
    told = [
        *([("a", {"x": 1.0})], [("a", {"x": 1.0000000000000002})], [("a", {"x": 1})], [("a", {"x": True})]),
        *([("a", {"x": np.ones(1)})], [("a", {"x": np.ones((1, 1))})], [("a", {"y": 1.0})]),
        *([("ax", {"": 1.0})], [("a", {"x": 1.0}), ("b", {})], [("b", {}), ("a", {"x": 1.0})], []),
    ]
    found = []
    for calls in told:
        transcript = Transcript()
        for name, arguments in calls:
            transcript.add(name, arguments)
        found.append(masks.hide(nothing, transcript.digest).rows.tolist())
    pairs = [(j, k) for j in range(len(found)) for k in range(j)]
    assert all(not set(found[j]) & set(found[k]) for j, k in pairs)


def test_keys_and_features_that_are_refused():
    with pytest.raises(InputError, match="gives no secret; begin the run again"):
        PairwiseMasks(private_keys(1)[0], [public_key(private_keys(1)[0]), bytes(32)], 0)
    assert len(fingerprint(bytes(32)).split()) == 8
    # Features whose sums would saturate are refused before the first round.
    X = np.random.default_rng(0).normal(size=(20, 4)) * [1.0, 1e38, 1.0, 1.0]
    problem = make_problem([X[:, :2], X[:, 2:]], np.arange(20) % 2, lam=1e-2)
    with pytest.raises(InputError, match=r"^party-1: holds a value of .* too large"):
        solve(problem, SolverOptions(secrecy="sums", max_rounds=2))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=10), st.integers(-300, 300))
def test_rounding_on_the_grid_is_within_its_bound(values, exponent):
    m, reach = len(values), 2.0**exponent
    step = grid_step(reach, m)
    words = [to_grid(np.array([reach * v]), step) for v in values]
    total = sum(words[1:], words[0])
    exact = sum(Fraction(reach * v) for v in values)
    found = Fraction(float(from_grid(total, step)[0]))
    assert abs(found - exact) <= Fraction(m * step / 2) + abs(exact + m * step) * Fraction(2.0**-53)
    assert step <= 4 * m * reach * 2.0**-62


@pytest.mark.parametrize("value", [np.nan, np.inf, 1.01, -1e300])
def test_beyond_the_grid_counts_as_its_end(value):
    step = grid_step(1.0, 4)
    limit = grid_limit(step, 4)
    words = to_grid(saturated(np.array([0.0, value]), limit), step)
    end = from_grid(words, step)[1]
    assert end == (-limit if value < 0 else max(limit, min(value, limit)))
    total = sum(to_grid(np.full(4, limit), step) for _ in range(4))
    assert from_grid(total, step).tolist() == [4.0 * limit] * 4  # no sum of four wraps


@settings(max_examples=60, deadline=None)
@given(st.lists(NUMBER, min_size=1, max_size=6))
def test_sums_of_scalars_are_exact(values):
    total = [sum(to_whole([v])[0] for v in values) % 2**512]
    exact = sum(Fraction(v) for v in values)
    assert abs(Fraction(from_whole(total)[0]) - exact) <= abs(exact) * Fraction(2.0**-53) + Fraction(
        2.0**-250
    )


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e80])
def test_scalars_beyond_the_range_count_as_its_end(value):
    (end,) = saturated(np.array([value]), LARGEST_WHOLE).tolist()
    assert from_whole(to_whole([end])) == [-LARGEST_WHOLE if value < 0 else LARGEST_WHOLE]
    assert LARGEST_WHOLE > UNPROVED  # a certificate with it says that nothing is proved


def test_a_message_that_may_have_been_out_of_range_proves_nothing():
    """Weights and the norms of their columns bound a message; beyond the range it may be cut."""
    step = grid_step(4.0, 2)
    limit = grid_limit(step, 2)

    def share(weighed):
        def ask(name, step, **told):
            return np.zeros(3), [0.5, 0.0, 0.0, weighed, 0.25]
            yield

        method = SimpleNamespace(longest=1.0, final_arguments=lambda m: {}, sums=SimpleNamespace(ask=ask))
        problem, found = SimpleNamespace(n_parties=2), Balanced(np.zeros(3), 0.0)
        talk = sums_proof(problem, method, found, False)  # type: ignore[arg-type]
        with pytest.raises(StopIteration) as ended:
            next(talk)
        return ended.value.value[1][0]

    assert share(0.9 * limit).at_scale == pytest.approx(0.25)
    assert share(1.1 * limit).at_scale == np.inf


def test_masks_change_no_bit_of_a_run(monkeypatch):
    _, problem = build(1)
    masked = solve(problem, sums(history=4))
    monkeypatch.setattr(PairwiseMasks, "hide", lambda self, meant, transcript: meant)
    plain = solve(problem, sums(history=4))
    assert len(masked.history) > 4
    for one, other in zip(masked.history, plain.history, strict=True):
        assert {**one.to_json(), "seconds": 0} == {**other.to_json(), "seconds": 0}
    assert all((a == b).all() for a, b in zip(masked.weights, plain.weights))


def test_the_model_is_that_of_every_message_seen():
    _, problem = build(3, widths=(12, 15, 4), lam=1e-4)
    one, other = solve(problem, sums()), solve(problem, SolverOptions(gap=1e-11))
    assert one.status is Status.CONVERGED
    assert abs(one.objective - other.objective) <= 1e-9 * other.objective
    # A party without newton directions takes part.
    _, problem = build(5)
    solver = Solver(problem, sums())
    solver.parties[1].kind = "gradient"
    for _ in range(40):
        record = solver.round()
        if record.gap <= 1e-9:
            break
    assert record.gap <= 1e-9
    solver.close()


@pytest.mark.parametrize(("loss", "rounds"), [("logistic", 3), ("hinge", 20)])
def test_the_first_answer_spans_all_columns_and_nothing_is_added_but_what_is_new(loss, rounds):
    problem = build(4, loss, widths=(12, 15, 4))[1]
    solver = Solver(problem, sums(gap=1e-6))
    record = solver.round()
    while record.gap > 1e-6 and solver.n_rounds < rounds:
        directions = [party.directions for party in solver.parties]
        np.testing.assert_allclose(sum(own @ own.T for own in directions), np.eye(31), atol=1e-6)
        record = solver.round()
    assert record.gap <= 1e-6
    assert len(solver.coordinator.owner) == 31  # what seems new later is rounding
    solver.close()
    few = Solver(problem, sums(history=8))
    few.round()
    assert len(few.coordinator.owner) == 2  # no more than may be kept
    few.close()


@pytest.mark.repeats
@settings(max_examples=8, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["logistic", "squared", "huber", "squared_hinge", "hinge", "quantile"]),
    st.booleans(),
    st.sampled_from([1e-1, 1e-3, 1e-6]),
    st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_objective_and_bound_hold_for_the_model_itself(seed, loss, intercept, lam, scale):
    blocks, problem = build(seed, loss, lam=lam, fit_intercept=intercept, scale=scale)
    check_certificates(blocks, problem, 12, sums(gap=1e-10))


@pytest.mark.representatives(1)
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_certificates_hold_on_a_coarse_grid(monkeypatch, loss):
    """With 36 bits in place of 62 rounding is what keeps the gap open: the certificate says so."""
    monkeypatch.setattr("fastadmm.secrecy.masks._BITS", 36)
    blocks, problem = build(2, loss)
    check_certificates(blocks, problem, 10, sums(gap=1e-10))
    solver = Solver(problem, sums())
    gaps = [solver.round().gap for _ in range(15)]
    assert 1e-9 < min(gaps) < 1e-1
    solver.close()


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_rounds_end_where_only_bounds_on_rounding_keep_the_gap_open(monkeypatch, loss):
    monkeypatch.setattr("fastadmm.secrecy.masks._BITS", 40)
    found = solve(build(2, loss)[1], sums(gap=1e-6))
    assert found.certified  # by the weights themselves
    assert len(found.history) <= 8
    assert found.history[-2].gap > 1e-6


def test_messages_are_within_their_bounds(monkeypatch):
    """The grid is finer than that. Messages beside exact products of the directions that parties hold."""
    blocks, problem = build(4, widths=(3, 3), lam=0.1)
    solver = Solver(problem, sums(gap=0.0))
    solver.round()
    c = solver.coordinator
    for j, (message, bound) in enumerate(zip(c.messages, c.spread)):
        parts = [(block, party.directions[j]) for block, party in zip(blocks, solver.parties)]
        errors = [
            sum(Fraction(float(x)) * Fraction(float(w)) for block, d in parts for x, w in zip(block[i], d))
            - Fraction(float(message[i]))
            for i in range(N)
        ]
        assert 0.001 * bound < max(abs(error) for error in errors) <= bound
    solver.close()
    # Messages are off by no more than their bounds.
    monkeypatch.setattr("fastadmm.secrecy.masks._BITS", 30)
    blocks, problem = build(4)
    solver = Solver(problem, sums(history=5, gap=0.0))
    for _ in range(7):
        solver.round()
    c = solver.coordinator
    assert len(c.owner) == 5
    exact = sum(party.directions @ block.T for party, block in zip(solver.parties, blocks))
    errors = np.abs(c.messages - exact).max(axis=1)
    assert (errors <= c.spread + 1e-13 * np.abs(exact).max()).all()
    assert (errors > 1e-3 * c.spread).all()
    gram = sum(party.directions @ party.directions.T for party in solver.parties)
    off = np.zeros(len(gram))
    off[len(gram) - len(c.skew) :] = c.skew
    assert (np.abs(gram - c.gram) <= np.maximum.outer(off, off) + 1e-14).all()
    solver.close()


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_resumed_to_the_bit(loss):
    """With keys of its own: masks change no bit."""
    assert_resumed_is_the_same(build(4, loss)[1], sums(history=4, gap=0.0), 5, 4)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_begun_at_given_weights(loss):
    blocks, problem = build(9, loss)
    options = sums(gap=1e-6)
    cold = solve(problem, options)
    warm = solve(problem, options, start=StartingPoint(cold.weights, cold.intercept))
    assert warm.status is Status.CONVERGED
    assert len(warm.history) < len(cold.history)
    solver = Solver(problem, options, start=StartingPoint(cold.weights, cold.intercept))
    for _ in range(4):
        record = solver.round()
        assert true_objective(blocks, problem, solver) <= record.objective * (1 + 1e-13)
    solver.close()
    zero = StartingPoint([np.zeros_like(x) for x in cold.weights], 0.0)
    assert solve(problem, options, start=zero).objective == pytest.approx(cold.objective, rel=1e-5)


def test_answers_are_words_that_only_a_sum_gives_a_meaning():
    """But for public keys, and that the end was reached."""
    bare = {"start", "show_key", "finish"}
    for name, rule in CALLS.items():
        if set(rule.families) & set(SUMS) and name not in bare:
            assert set(rule.answer.values()) <= {"words", "word rows", "many word rows"}, name


class Spy:
    """Carries exchanges, and keeps them."""

    local = True

    def __init__(self, solver):
        self.driver = solver.driver
        self.exchanges: list[tuple[Exchange, Answers]] = []

    def carry(self, exchange):
        answers = self.driver.carry(exchange)
        assert answers is not None
        self.exchanges.append((exchange, answers))
        return answers

    def notes(self):
        return self.driver.notes()


def test_every_party_is_asked_the_same_and_answers_nothing_bare():
    _, problem = build(6)
    solver = Solver(problem, sums())
    solver.driver = spy = Spy(solver)
    for _ in range(4):
        solver.round()
    assert len(spy.exchanges) > 8
    for exchange, answers in spy.exchanges:
        first = exchange.calls[0]
        for call in exchange.calls[1:]:
            assert call.name == first.name
            assert Transcript().digest != _digest(call) == _digest(first)
        if first.name == "show_key":
            continue
        for found in answers:
            assert all(value.dtype == np.int64 for value in found.values())
            # A number of the grid that is not masked begins with zeros or ones.
            for value in found.values():
                assert 0 < np.mean(np.abs(value.astype(float)) < 2.0**62) < 0.8 or len(value) < 30
    solver.close()


def _digest(call):
    transcript = Transcript()
    transcript.add(call.name, call.made())
    return transcript.digest


@pytest.fixture
def party():
    _, problem = build(7)
    solver = Solver(problem, sums())
    solver.round()
    yield solver.parties[0]
    solver.close()


def test_a_number_is_answered_once(party):
    number, k = party.answered, len(party.directions)
    asked = {"gradient": np.ones(N), "coefficients": np.ones(k), "units": np.ones(2), "step": 2.0**-50}
    asked["measured"] = 2
    transcript = party.transcript.digest
    for exchange in (1, number, number + 2):
        with pytest.raises(Unanswerable, match="a number is answered once"):
            party.answer("respond_masked", {**asked, "exchange": exchange})
    assert (party.transcript.digest, party.answered) == (transcript, number)
    party.answer("respond_masked", {**asked, "exchange": number + 1})
    with pytest.raises(Unanswerable, match="a number is answered once"):
        party.answer("respond_masked", {**asked, "exchange": number + 1})
    for damaged in (np.array([1]), np.array([-1.0])):
        refuses(ValueError, "answered", party.restore, {**party.export(), "answered": damaged})


@pytest.mark.parametrize(
    ("name", "arguments", "what"),
    [
        ("show_key", {}, "has its keys already"),
        ("introduce", {"keys": np.arange(8)}, "has its keys already"),
        ("orthonormalise", {"factors": np.ones((3, 16)), "kept": 14}, "factors"),
        ("orthonormalise", {"factors": np.ones((1, 1)), "kept": 0}, "factors"),
        ("orthonormalise", {"factors": np.ones((1, 16)), "kept": 17}, "factors"),
        (
            "prove_masked",
            {
                "u": np.zeros(N),
                "eps": 1.0,
                "scale": 0.0,
                "kept": False,
                "coefficients": np.ones(16),
                "step": 0.3,
            },
            "no power of two",
        ),
        ("respond", {"gradient": np.ones(N), "coefficients": np.ones(2), "newton": True}, "unknown here"),
        ("scores", {"rows": "train", "coefficients": np.ones(2)}, "unknown here"),
    ],
)
def test_what_a_party_does_not_answer(party, name, arguments, what):
    given = {**arguments, **({"exchange": party.answered + 1} if name == "prove_masked" else {})}
    refuses(Unanswerable, what, party.answer, name, given)


def test_keys_that_are_not_those_of_a_run_are_refused():
    _, problem = build(8)
    solver = Solver(problem, sums())
    party = solver.parties[1]
    party.private, kept = b"", party.private
    for name, keys in (("show_key", {}), ("introduce", {"keys": np.arange(8)})):
        refuses(Unanswerable, "this party has none", party.answer, name, keys)
    party.private = kept
    own = party.show_key()["key"]
    other = np.frombuffer(public_key(private_keys(1)[0]), dtype=np.int64)
    for keys in (own, np.concatenate([own, other]), np.concatenate([own, own]), np.append(other, own[:3])):
        refuses(Unanswerable, "'introduce'", party.introduce, keys)
    party.introduce(np.concatenate([other, own]))
    assert party.fingerprints()[0] == fingerprint(other.tobytes())
    with pytest.raises(Unanswerable, match="before the parties' keys"):
        solver.parties[0].answer("sum_squares", {"exchange": 1})
    solver.close()


def test_parties_show_the_same_fingerprints(tmp_path, capsys):
    world = tmp_path / "world"
    separate(data_of(tmp_path), world)
    begin(world, secrecy="sums", rounds=1, **{"lambda": 1e-2})
    exchanges = train(world)[1]
    assert exchanges == 6  # opened, keys, sum of squares, one round, the proof, the end
    shown = [(world / name / "state" / "keys.txt").read_text().replace(" (this party)", "") for name in NAMES]
    assert shown[0] == shown[1]
    assert shown[0].count("key of party") == 2
    for path in (world / "party-1" / "state", world / "party-1" / "state" / "private.key"):
        assert path.stat().st_mode & 0o077 == 0


def test_a_message_that_is_no_part_of_the_sum_is_refused(tmp_path):
    """Of another length than the call has: it would be added to nothing."""
    world = tmp_path / "world"
    separate(data_of(tmp_path), world)
    directory = begin(world, secrecy="sums", rounds=1, **{"lambda": 1e-2})
    for _ in range(2):
        result = coordinator_step(directory)
        coordinator_step(directory, [answer(world, request) for request in result.requests])
    message = answer(world, coordinator_step(directory).requests[0])
    change(message, lambda values: values.update(numbers=values["numbers"][:4]))
    with pytest.raises(FormatError, match=r"'numbers' has shape \(4,\) instead of \(8,\)"):
        coordinator_step(directory, [message])


def test_masks_depend_on_the_terms_of_the_run():
    """Parties that are told another lambda, or other rows to score, mask with streams that do not cancel."""

    def digest(**told):
        terms = {"regularization": 1.0, "n_samples": N, "position": 0, "private_key": bytes(32), **told}
        block = make_problem([np.ones((N, 2))], np.arange(N) % 2).blocks[0]
        with Engine(1) as engine:
            return MaskedDirectionParty.opened("a", block, engine, terms).transcript.digest

    same = digest()
    assert digest(position=1, private_key=bytes([1] * 32)) == same
    assert digest(regularization=1e25) != same
    assert digest(test="sha256:" + "0" * 64) != same


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"w": np.array([0.0, -(2.1**100)])}, r"call 'step': a number of 'w' is beyond 1\.27e\+30"),
        ({"w": np.array([np.nan])}, "a number of 'w' is beyond"),
        ({"scaled_penalty": np.inf}, "a number of 'scaled_penalty' is beyond"),
        ({"scaled_penalty": 2.1**-100}, "a number of 'scaled_penalty' is below"),
    ],
    ids=str,
)
def test_numbers_that_products_could_overflow_by_are_refused(arguments, words):
    refuses(Unanswerable, words, GatedParty.answer, None, "step", arguments)
