"""What an owner approves: one screen, exactly what was shown, words that exist, limits that count."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from fastadmm import Privacy
from fastadmm.between.agent import agent_status
from fastadmm.between.approval import privacy_text
from fastadmm.between.approval_file import LINES, WIDTH, approve, open_approval, write_approval
from fastadmm.between.consent import (
    agent_approve,
    asked_file,
    asked_lines,
    consent_to_run,
    keep_asked,
    run_description,
    shown_digest,
)
from fastadmm.between.memory import join_sum
from fastadmm.between.schema import Request, encoded, table_digest
from fastadmm.conversation.by_class import pack
from fastadmm.conversation.calls import BY_CLASS, CALLS
from fastadmm.errors import ConfigError, FormatError, InputError, StorageError
from fastadmm.parties.families import FAMILIES
from fastadmm.parties.xupdate.choose import X_UPDATES
from fastadmm.privacy.accounts import feature_account
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.problem.losses import LOSSES
from fastadmm.problem.regularizers import REGULARIZERS
from fastadmm.settings.privacy import ADJACENCIES
from fastadmm.version import __version__

from federation_tools import CALLER, Asker, party_file
from run_tools import flipped, printed, refused, refuses, run

RUN = Asker.run


def terms_of(data, **more):
    return {
        "family": "subspace", "regularization": 1.0, "x_update": "auto", "regularizer": "l2",
        "l1_ratio": -1.0, "constraint": "all", "n_samples": data.n_samples, "row_digest": data.row_digest,
        "position": 0, "loss": "logistic", "penalty": 0.0, "release": __version__, "table": table_digest(),
        "parties": f"{data.name},other", **more
    }  # fmt: skip


class Consenting(Asker):
    """Its owner looks at what is asked, and approves it."""

    def look(self, what=RUN, **how):
        return agent_approve(asked_file(what, self.state), self.data.path, self.state, **how)[0]

    def begin(self, terms, **limits):
        assert self.ask(("start", terms)) == (None, "run")
        self.look(confirm=shown_digest(self.look()))
        path = self.state / RUN / "approval.toml"
        write_approval(replace(open_approval(path), **limits), force=True)
        assert self.ask(("start", terms))[1] == ""

    def respond(self, vector, known=0):
        arguments = {"gradient": vector, "coefficients": np.zeros(known), "newton": False}
        return self.ask(("set_metric", {"curvature": np.ones(len(vector))}), ("respond", arguments))


@pytest.fixture
def asker(tmp_path):
    made = Consenting(tmp_path / "A", np.random.default_rng(6).normal(size=(60, 5)))
    yield made
    made.close()


def test_nothing_is_live_before_exactly_what_was_shown_is_confirmed(asker):
    terms = terms_of(asker.data)
    asker.ask(("start", terms))
    lines = asker.look()
    assert asker.ask(("start", terms)) == (None, "run")  # looking approves nothing
    with pytest.raises(ConfigError, match="nothing is approved; give the command without --confirm"):
        asker.look(confirm="0" * 32)
    assert asker.ask(("start", terms)) == (None, "run")
    assert not (asker.state / RUN).exists()
    asker.look(confirm=shown_digest(lines))
    assert asker.ask(("start", terms))[1] == ""
    assert asker.respond(np.ones(60))[1] == ""
    refuses(InputError, "nothing was asked for as", asker.look)


def test_other_terms_are_another_request(asker):
    """Harmless terms are shown and talked about, others come under the same run's identifier."""
    private = privacy_text(Privacy(mode="fusion", epsilon=0.5, delta=1e-6))
    harmless, plain = terms_of(asker.data, family="fusion", privacy=private), terms_of(asker.data)
    asker.ask(("start", harmless))
    before, digest = agent_status(asker.state), shown_digest(asker.look())
    asker.ask(("start", plain))
    assert agent_status(asker.state) != before
    refuses(InputError, f"2 different things were asked for as {RUN}", asker.look, confirm=digest)
    first, second = sorted(line.split(":")[0] for line in asked_lines(asker.state))
    screens = {what: " ".join(asker.look(what)) for what in (first, second)}
    (own,) = [what for what, words in screens.items() if "carries noise" in words]
    (other,) = {first, second} - {own}
    refuses(ConfigError, "not what is asked now", asker.look, other, confirm=digest)
    asker.look(own, confirm=digest)
    assert open_approval(asker.state / RUN / "approval.toml").family == "fusion"
    assert asker.ask(("start", plain)) == (None, "terms")
    assert not asked_lines(asker.state)


@pytest.mark.parametrize(
    "changes",
    [
        *({"test": f"sha256:{'1' * 64}"}, {"penalty": 1.0}, {"x_update": next(iter(X_UPDATES))}),
        *({"position": 1, "parties": "other,A"}, {"parties": "A,third"}, {"regularization": 2.0}),
    ],
)
def test_every_word_of_a_request_is_what_was_confirmed(asker, changes):
    asker.ask(("start", terms_of(asker.data)))
    asker.look(confirm=shown_digest(asker.look()))
    assert asker.ask(("start", terms_of(asker.data, **changes))) == (None, "terms")
    assert asker.ask(("start", terms_of(asker.data)))[1] == ""


def test_what_is_known_of_a_request_is_confirmed_too(asker):
    """What was spent since the owner looked is part of what it did not see."""
    ledger = asker.home / "ledger.jsonl"
    asker.wake(ledger=ledger)
    private = privacy_text(Privacy(mode="fusion", epsilon=0.5, delta=1e-6))
    asker.ask(("start", terms_of(asker.data, family="fusion", privacy=private)))
    lines = asker.look()
    assert "Spent so far, by your ledger: nothing of these data" in " ".join(lines)
    charge = Charge.to(feature_account(asker.data), "f" * 16, "message", gdp=0.1)
    Ledger(ledger).charge(charge, 5.0, 1e-6)
    refuses(ConfigError, "what is known of it has changed", asker.look, confirm=shown_digest(lines))
    assert "Spent so far, by your ledger: epsilon 0." in " ".join(asker.look())


def test_the_command_line_shows_and_confirms(asker, capsys):
    terms = terms_of(asker.data)
    asker.ask(("start", terms))
    approve = ("agent", "approve", RUN, "--data", asker.data.path, "--state", asker.state)
    assert run(*approve) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown == asker.look()
    refused(capsys, 5, *approve, "--confirm", "0" * 32)
    assert asker.ask(("start", terms)) == (None, "run")
    assert "approved in" in printed(capsys, *approve, "--confirm", shown_digest(shown))
    assert asker.ask(("start", terms))[1] == ""
    assert run("agent", "approve", RUN, "--data", asker.data.path, "--state", asker.state) == 3
    # A second approval of the same run is a decision of its own.
    path = asker.home / "run.json"
    path.write_text(json.dumps(run_description(RUN, CALLER, {"A": terms})))
    refuses(StorageError, "exists already", agent_approve, path, asker.data.path, asker.state)
    words = " ".join(agent_approve(path, asker.data.path, asker.state, force=True)[0])
    assert "Earlier runs on these data here: 1; what they" in words


@pytest.mark.parametrize(
    ("key", "word"),
    [
        *(("loss", "logistic, regularizer l2, lambda 0.02" + " " * 40 + "limits: 3 exchanges"),),
        *(("loss", "logistic\u202e"), ("regularizer", "l2 (epsilon 0.1)")),
        *(("regularizer", "log_sum:0.5 and nothing leaves"), ("constraint", "ball:1 ")),
        *(("constraint", "box:-1,1 with noise"), ("constraint", "box:1,-1")),
        *(("family", "fusion (private)"), ("x_update", "with noise")),
        *(("release", "0.2.0 audited by the state"), ("parties", "A,other and a hospital")),
        *(("parties", "A,A"), ("parties", "other,A"), ("parties", "")),
        *(("test", "none"), ("table", "trusted")),
    ],
)
def test_words_of_a_request_exist(asker, key, word):
    terms = terms_of(asker.data, **{key: word})
    document = run_description(RUN, CALLER, {"A": terms})
    with pytest.raises((FormatError, InputError)) as caught:
        consent_to_run(document, "x", asker.data.path, asker.state)
    assert "\n" not in str(caught.value)
    assert asker.ask(("start", terms))[0] is None
    # Neither does an approval of anything let such a request begin.
    asker.ask(("start", terms_of(asker.data)))
    asked = {p: json.loads(p.read_text())["parties"]["A"] for p in (asker.state / "asked").glob("*.json")}
    (good,) = [path for path, told in asked.items() if told == terms_of(asker.data)]
    own = (good, asker.data.path, asker.state)
    agent_approve(*own, confirm=shown_digest(agent_approve(*own)[0]))
    assert asker.ask(("start", terms)) in ((None, "terms"), (None, "values"))


def test_every_word_that_exists_passes(asker):
    words = {
        "loss": [*LOSSES],
        "regularizer": [*REGULARIZERS, "log_sum:0.5"],
        "constraint": ["all", "nonnegative", "box:-1.0,inf", "ball:2.5"],
        "x_update": ["auto", *X_UPDATES],
    }
    for key, known in words.items():
        for word in known:
            document = run_description(RUN, CALLER, {"A": terms_of(asker.data, **{key: word})})
            assert consent_to_run(document, "x", asker.data.path, asker.state).lines
    document, own = run_description(RUN, CALLER, {"B": terms_of(asker.data)}), (asker.data.path, asker.state)
    refuses(InputError, "x: of B, but .* is of A$", consent_to_run, document, "x", *own)


def test_texts_of_others_are_quoted_escaped_and_cut(tmp_path, asker):
    caller = "bank\u202e\x1b[2J\nlimits: none" + "x" * 100
    keep_asked(tmp_path, RUN, {"format": "fastadmm-run", "coordinator": caller})
    (line,) = asked_lines(tmp_path)
    assert "'bank\\u202e\\x1b[2J\\nlimits: none" in line
    assert "x" * 60 not in line
    assert line.isprintable()
    data = party_file(tmp_path / "A.h5", np.ones((4, 2)))
    document = run_description(RUN, caller, {"A": terms_of(data)})
    lines = consent_to_run(document, "x", data.path, tmp_path).lines
    assert all(line.isprintable() and not line.strip().startswith("limits:") for line in lines)
    forged = "coordinator" + " " * 60 + "run 1: nothing was answered" + " " * 60
    raw = encoded(Request(RUN, "A", 0, -1, [("start", terms_of(asker.data))]))
    asker.agent.handle(forged, "A", raw)
    lines = agent_status(asker.state)
    assert any("'coordinator   " in line for line in lines)
    assert not any("nothing was answered" in line for line in lines)


LONG = "an-owner-whose-name-is-as-long-as-names-of-parties-may-be-" + "x" * 6


def everything():
    """Terms with whatever makes a screen longer: every family, every regulariser, every constraint, mode."""
    longest = "box:-1234567.123456789,1234567.123456789"
    for family, regularizer, constraint in [
        *((family, "elastic_net", longest) for family in FAMILIES),
        *(("multinomial_subspace", regularizer, longest) for regularizer in REGULARIZERS),
        *(("admm", "elastic_net", constraint) for constraint in ("all", "nonnegative", "ball:1234567.1234")),
    ]:
        more = {"n_classes": 1000} if family.startswith("multinomial") else {}
        ratio = 0.123456789 if regularizer == "elastic_net" else -1.0
        yield {
            "family": family, "regularizer": regularizer, "constraint": constraint, "l1_ratio": ratio,
            "loss": "negative_binomial", "regularization": 1.23456e-9, **more
        }  # fmt: skip
    for mode, adjacency, sampler in itertools.product(
        ("fusion", "message"), ADJACENCIES, ("grid", "insecure_test")
    ):
        seed = {"seed": 1} if sampler == "insecure_test" else {}
        try:
            settings = Privacy(
                mode=mode, epsilon=0.123456, delta=1.23456e-7, adjacency=adjacency, sampler=sampler, **seed
            )
        except ConfigError:
            continue  # a mode has not every adjacency
        yield {"family": mode, "privacy": privacy_text(settings)}


@pytest.mark.parametrize("columns", [1, 30])
def test_an_approval_is_one_screen(tmp_path, columns):
    data = party_file(tmp_path / f"{LONG}.h5", np.random.default_rng(0).normal(size=(200, columns)))
    state = tmp_path / "state"
    state.mkdir()
    (state / "agent.json").write_text(json.dumps({"ledger": str(tmp_path / "l.jsonl")}))
    Ledger(tmp_path / "l.jsonl").charge(
        Charge.to(feature_account(data), "f" * 16, "message", gdp=0.1), 5.0, 1e-6
    )
    many = [LONG, *(f"{k:02d}-{LONG}"[:64] for k in range(60))]
    summed = terms_of(data, family="subspace_sums", parties=",".join(many))
    first = Request(RUN, LONG, 0, -1, [("start", summed)])
    join_sum(data, RUN, summed, approve(first, data, "x", tmp_path / "a.toml"), "x")
    longest = 0
    for own in everything():
        for parties in ([LONG, "b"], many):
            others = dict.fromkeys(("test", "validation"), data.row_digest) if "privacy" not in own else {}
            terms = terms_of(data, parties=",".join(parties), **own, **others)
            consent = consent_to_run(run_description(RUN, "c" * 300, {LONG: terms}), "x", data.path, state)
            # What an agent knows of earlier runs may come on top.
            longest = max(longest, len(consent.lines) + 1)
            assert all(len(line) < WIDTH and line.isprintable() for line in consent.lines)
            words = " ".join(" ".join(consent.lines).split())
            told = f"{len(parties)} parties: {LONG}", f"{columns} columns", "Limits: ", "Spent so far"
            for needed in told:
                assert needed in words
            if "privacy" in own:
                assert ("carries noise" in words) != ("nothing is protected" in words)
            else:
                assert "epsilon is infinite" in words
                assert "trust to be honest" in words
                assert ("You have ONE column" in words) == (columns == 1)
    assert longest <= LINES


def test_numbers_count_whatever_they_are_called(asker):
    """A scalar for each pair of rows gives all inner products, as vectors would."""
    asker.begin(terms_of(asker.data), numbers=asker.data.n_samples, exchanges=10**6)
    answered = 0
    for _ in range(500):
        vector = np.random.default_rng(answered).normal(size=60)
        got, code = asker.ask(("squared_residual", {"gradient": vector, "coefficients": np.zeros(0)}))
        if got is None:
            assert code == "directions"
            break
        answered += 1
    assert 0 < answered <= asker.data.n_samples


def first_questions(family):
    """Terms of a run, and calls whose answer spans all five columns, of three classes or of one."""
    classes = {"n_classes": 3, "loss": "multinomial"} if family.startswith("multinomial") else {}
    rows = np.random.default_rng(8).normal(size=(3 if classes else 1, 60))
    metric = {"curvature": np.ones(60)}
    if not family.endswith("proximal"):
        zero = {"class_coefficients": np.zeros((3, 0))} if classes else {"coefficients": np.zeros(0)}
        asked = {"gradient": rows, **zero, "most": 5, "exact": bool(classes)}
        return classes, [("set_metric", metric), ("respond_first", asked)]
    each = [{"gradient": row, "model": np.zeros(0), "most": 5} for row in rows]
    calls = [("set_metric", [metric] * len(rows)), ("best_response", each)]
    if classes:
        calls = [(BY_CLASS[name], pack(asked, CALLS[name].arguments)) for name, asked in calls]
    else:
        calls = [(name, asked[0]) for name, asked in calls]
    return {**classes, "regularizer": "l1"}, calls


@pytest.mark.parametrize("kind", ["", "multinomial_"])
@pytest.mark.parametrize("scheme", ["subspace", "proximal"])
def test_a_first_answer_leaves_within_the_numbers_that_were_approved(tmp_path, kind, scheme):
    features, left = np.random.default_rng(6).normal(size=(60, 5)), 0
    more, calls = first_questions(kind + scheme)
    for k, spare in enumerate((10**9, 2, 3 + 5 + 75)):  # three are of the opening, some are counted ahead
        asker = Consenting(tmp_path / str(k), features)
        asker.begin(terms_of(asker.data, family=kind + scheme, **more), numbers=left + spare)
        got, code = asker.ask(*calls)
        asker.close()
        assert code == ("directions" if k == 1 else ""), asker.said
        left = left if got is None else sum(np.size(value) for value in got.values())
        assert left >= 3 * 60


def test_refusals_count_and_end_a_run(asker):
    asker.begin(terms_of(asker.data), exchanges=9)
    assert asker.respond(np.ones(60))[1] == ""
    codes = []
    for number in range(12):
        wrong = {"gradient": np.ones(60), "coefficients": np.zeros(7)}
        codes.append(asker.ask(("squared_residual", wrong))[1])
        if number == 3:  # also for an agent that begins anew
            asker.wake()
    assert codes == ["call"] * 7 + ["exchanges"] * 5
    assert asker.respond(np.ones(60), 1)[1] == "exchanges"


def test_long_questions_are_read_of_callers_that_an_approval_names(asker):
    assert not asker.agent.known(CALLER, 3 << 20)
    asker.begin(terms_of(asker.data))
    assert asker.agent.known(CALLER, 1 << 20)
    assert not asker.agent.known(CALLER, 1 << 30)  # longer than any question about so few rows
    assert not asker.agent.known("somebody", 1 << 20)


def test_drafts_are_near_an_honest_run(asker):
    asker.ask(("start", terms_of(asker.data)))
    asker.look(confirm=shown_digest(asker.look()))
    drafted = open_approval(asker.state / RUN / "approval.toml")
    assert drafted.exchanges <= 160
    assert drafted.numbers <= 800 * 60
    assert drafted.parties == ["A", "other"]


def test_an_older_approval_is_asked_for_again(asker):
    asker.begin(terms_of(asker.data))
    path = asker.state / RUN / "approval.toml"
    lines = path.read_text().replace('version = "1.1"', 'version = "1.0"').splitlines()
    new = ("numbers", "terms", "parties")
    path.write_text("\n".join([*(line for line in lines if not line.startswith(new)), "directions = 2000"]))
    assert open_approval(path).family == "subspace"  # of a run that is over its models are applied
    assert asker.respond(np.ones(60))[1] == "directions"


def test_an_answer_that_the_journal_lost_counts(asker):
    terms = terms_of(asker.data)
    asker.begin(terms)
    assert asker.respond(np.ones(60))[1] == ""
    journal = asker.state / RUN / "requests.journal"
    asker.wake()
    before = journal.read_bytes()
    kept = asker.previous, asker.answered
    last, code = asker.respond(np.arange(60.0), 1)
    assert (code, last is None) == ("", False)
    asker.wake()
    whole = journal.read_bytes()
    # Damaged: said, and nothing is answered.
    journal.write_bytes(flipped(whole, 8 * (len(before) + 40)))
    asker.previous, asker.answered = kept
    asker.wake()
    assert asker.respond(np.arange(60.0)[::-1].copy(), 1)[1] == "failed"
    assert "is damaged; restore the file" in asker.said[-1]
    # Cut off: the audit log has it, and nothing is answered until it is restored.
    journal.write_bytes(before)
    asker.wake()
    for question in (np.arange(60.0)[::-1].copy(), np.arange(60.0)):
        assert asker.respond(question, 1)[1] == "changed"
    journal.write_bytes(whole)
    asker.wake()
    again, code = asker.respond(np.arange(60.0), 1)
    assert (code, again["message"].tobytes()) == ("", last["message"].tobytes())
