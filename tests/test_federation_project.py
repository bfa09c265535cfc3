"""A whole project, one party over a socket and one by files: nothing else passes."""

import csv
import json
import re
import tempfile
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from fastadmm.between.agent import Agent, agent_status
from fastadmm.between.consent import shown_digest
from fastadmm.between.hub import Folder
from fastadmm.between.predict import _align
from fastadmm.between.schema import Message, digest_of, encoded, open_envelope, request_of
from fastadmm.between.socket import Server, serve
from fastadmm.conversation.exchange import Threads, converse
from fastadmm.data_tools.alignment import file_ids, psi_respond
from fastadmm.engine.engine import Engine
from fastadmm.errors import FormatError
from fastadmm.files.atomic import write_toml
from fastadmm.files.reading import read_json, read_toml
from fastadmm.inference.between import InferenceParty, inferring
from fastadmm.runs.config import make_config
from fastadmm.runs.folder import Display
from fastadmm.runs.load import check_run, load_run
from fastadmm.runs.train import start_run
from fastadmm.store.label_file import open_labels
from fastadmm.store.model import open_model, open_party_model
from fastadmm.store.party_file import open_party

from problems import make_vertical_classification
from run_tools import run, write_blocks

pytestmark = pytest.mark.usefixtures("quiet")

NAMES, PARTIES = ("bank", "shop"), ("party-1", "party-2")

#: Settings of which parties elsewhere give the bits of one process, also where there is one alone.
SAME = {"lambda": 1e-2, "gap": 1e-8, "scheme": "subspace"}

#: What of ids is compared: the coordinator writes them otherwise than the parties.
OURS, THEIRS = ("--set", "id_pattern=K-0*([0-9]+)"), ("--set", "id_pattern=c(.*)")


@pytest.fixture
def home():
    """A directory with a short name: that of a socket has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="f", dir="/tmp") as folder:
        yield Path(folder)


class Houses:
    """A directory for each party, with its table and its agent behind a socket, or with a folder of files."""

    def __init__(self, home, names=NAMES, by_files=()):
        self.home, self.names = home, names
        self._running = {}
        self.by_files = {name: home / name / "shared" for name in by_files}
        ways = {name: f"files:{name}/shared" if name in by_files else f"unix:{name}/s" for name in names}
        addresses = "\n".join(f'{name} = "{way}"' for name, way in ways.items())
        (home / "project.toml").write_text(
            'data = "train/labels.h5"\nlambda = 1e-2\nrounds = 3\n[federation.parties]\n' + addresses + "\n"
        )

    def state(self, name):
        return self.home / name / "agent"

    def start(self, name, data=None):
        self.stop(name)
        agent = Agent(data, self.state(name), name=name, threads=1, say=lambda line: None)
        if name in self.by_files:
            server = Folder(self.by_files[name], name, agent.handle, self.state(name))
        else:
            server = serve(self.home / name / "s", agent.handle)
        self._running[name] = agent, server

    def look(self, seconds=0.0):
        """What agents of folders do all the time."""
        for _, server in self._running.values():
            if isinstance(server, Folder):
                server.answer(print)

    def stop(self, name):
        if name in self._running:
            agent, server = self._running.pop(name)
            if isinstance(server, Server):
                server.stop(0)
            agent.close()

    def approve(self, *options):
        """Every owner looks at what was asked for and approves it; a path in braces is the party's own."""
        self.look()
        for name in self.names:
            (what,) = [line[:32] for line in agent_status(self.state(name)) if "agent approve" in line]
            own = [str(option).format(self.home / name, name=name) for option in options]
            approve = ("agent", "approve", what, "--state", self.state(name), *own)
            with redirect_stdout(StringIO()) as screen:
                assert run(*approve) == 0
            print(" ".join(screen.getvalue().split()))
            assert run(*approve, "--confirm", shown_digest(screen.getvalue().splitlines())) == 0
        self.look()


@pytest.fixture
def houses(home):
    (home / "coordinator").mkdir()
    blocks, y, _ = make_vertical_classification(150, (3, 4))
    order = np.random.default_rng(0)
    for kind, rows in (("train", np.arange(90)), ("new", np.arange(85, 150))):
        for k, name in enumerate(NAMES):
            (home / name).mkdir(exist_ok=True)
            own = order.permutation(rows)[: len(rows) - 5 - k]  # each lacks some
            columns = [f"{name}-{j}" for j in range(blocks[k].shape[1])]
            write_table(home / name / f"{kind}.csv", ["id", *columns], own, blocks[k])
        labels = np.where(y, "good", "bad")[:, np.newaxis]
        write_table(
            home / "coordinator" / f"{kind}.csv", ["id", "label"], order.permutation(rows), labels, "K-00"
        )
    made = Houses(home, by_files=NAMES[1:])
    for name in NAMES:
        made.start(name)
    yield made
    for name in NAMES:
        made.stop(name)


def write_table(path, header, rows, values, prefix="c"):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([f"{prefix}{i}", *values[i].tolist()] for i in rows.tolist())


def refused(capsys, code, *arguments):
    waits = code in ("run", "task")
    assert (run(*arguments) == 11) == waits
    error = capsys.readouterr().err
    assert ("fastadmm: waiting: " if waits else f"refused ({code})") in error
    return error


def test_a_whole_project(houses, capsys, monkeypatch):
    pytest.importorskip("nacl", reason='needs pynacl: pip install "fastadmm[psi]"')
    home = houses.home
    config, tables = home / "project.toml", home / "coordinator"
    monkeypatch.setattr("time.sleep", houses.look)
    wait = ("--wait", "1h")

    align = ("federate", "align", config, tables / "train.csv", "--id", "id", "--label", "label", *OURS)
    refused(capsys, "task", *align, "-o", home / "train")
    houses.approve("--rows", "{0}/train.csv", "--id", "id", *THEIRS)
    assert "It may have put guessed ids among its own" in capsys.readouterr().out
    assert run(*align, "-o", home / "train") == 11
    assert "waiting for shop: requests in" in capsys.readouterr().err
    assert run(*align, "-o", home / "train", *wait) == 0
    assert not list((home / "train").glob("*.psi")) + list((home / "train").glob("*.key"))
    for name in NAMES:
        (rows,) = (houses.state(name) / "alignments").glob("*.json")
        assert rows.read_bytes() == (home / "train" / "rows.json").read_bytes()
        table = ("--host", home / name / "train.csv", "--id", "id", "--align", rows, "--names", name, *THEIRS)
        parts = home / name / "train.parts"
        assert run("convert", *table, "--task", "classification", "--standardize", "-o", parts) == 0
        houses.start(name, parts / f"{name}.h5")

    train = ("federate", "train", config, "-q", "-o", home / "run")
    refused(capsys, "run", *train)
    houses.approve()  # of the features that the agents have
    assert run(*train, *wait) in (0, 7)
    assert "fastadmm: waiting: exchange 2: waiting for shop: requests in" in capsys.readouterr().err
    assert not list(home.glob("shop/shared/*/requests/*"))

    again = ("federate", "align", config, tables / "new.csv", "--id", "id", "--label", "label", *OURS)
    again = (*again, "--like", home / "train" / "labels.h5", "-o", home / "test")
    refused(capsys, "amount", *again)
    for name in NAMES:
        approval = houses.state(name) / "align.toml"
        text = approval.read_text().replace("train.csv", "new.csv")
        approval.write_text(re.sub(r"rows = \d+", "rows = 1000", text))
    assert run(*again, *wait) == 0
    labels = home / "test" / "labels.h5"
    assert open_labels(labels).classes == open_labels(home / "train" / "labels.h5").classes

    evaluate = ("federate", "evaluate", config, home / "run", labels, "-o", home / "scores")
    assert "fastadmm agent approve" in refused(capsys, "task", *evaluate)
    houses.approve("--rows", "{0}/new.csv", "--id", "id", *THEIRS)
    assert "without noise (epsilon is infinite)" in capsys.readouterr().out
    assert run(*evaluate, *wait) == 0
    said = capsys.readouterr()
    assert "auc" in said.out
    assert re.search(r"labels.h5: [1-5] of \d+ rows are rows of training, .* \[seen\]", said.out + said.err)
    assert "[seen]" in (home / "run" / "evaluation.json").read_text()

    # Everything in one place, for once.
    for name in NAMES:
        (part,) = houses.state(name).glob(f"{'?' * 16}/{name}.h5")
        assert run("import", part, home / "run") == 0
    tables_ = [home / name / "new.csv" for name in NAMES]
    together = ("--id", "id", "--alignment", home / "test" / "rows.json", "-o", home / "whole.csv")
    assert run("predict", home / "run", *tables_, *together, *THEIRS) == 0
    assert (home / "scores" / "predictions.csv").read_bytes() == (home / "whole.csv").read_bytes()

    predict = ("federate", "predict", config, home / "run", home / "test" / "rows.json")
    refused(capsys, "amount", *predict, "-o", home / "more")
    assert run(*predict, "-o", home / "scores") == 0  # the same rows: what is there is enough
    for name in NAMES:
        said = "\n".join(agent_status(houses.state(name)))
        assert "alignments: 2 of at most 2 answered or refused" in said
        assert "predictions: 1 of at most 2 answered or refused" in said
        assert "exchanges answered, ended" in said


@contextmanager
def two_parties(
    home,
    monkeypatch,
    n=80,
    shift=0.0,
    names=PARTIES,
):
    """Agents of features, the second by files where there are two; n rows to learn from, 40 for tests."""
    blocks, y, _ = make_vertical_classification(n + 40, (3, 4))
    blocks = [block + shift * y[:, np.newaxis] for block in blocks]
    for kind, rows in {"train": slice(0, n), "test": slice(n, n + 40)}.items():
        write_blocks(home / f"{kind}.parts", [block[rows] for block in blocks], y[rows])
    houses, config = Houses(home, names, by_files=names[1:]), home / "project.toml"
    monkeypatch.setattr("time.sleep", houses.look)
    settings = {"data": str(home / "train.parts" / "labels.h5"), **SAME}
    write_toml(config, {**settings, "federation": read_toml(config)["federation"]})
    try:
        for name in names:
            (home / name).mkdir()
            houses.start(name, home / "train.parts" / f"{name}.h5")
        yield houses, [block[:n] for block in blocks], y[:n]
    finally:
        for name in names:
            houses.stop(name)


def in_one_process(home, blocks, y, run_):
    """The problem and the model of a run whose parties are threads."""
    write_blocks(home / f"{run_.name}.parts", blocks, y)
    config = make_config({"data": str(home / f"{run_.name}.parts"), **SAME})
    start_run(config, run_)
    return load_run(config, check_run(config, Display())).problem, open_model(run_)


def test_errors_and_worth_have_the_bits_of_one_process(home, capsys, monkeypatch):
    names, config, own = PARTIES, home / "project.toml", str(home / "train.parts" / "{name}.h5")
    errors = ("federate", "infer", config, home / "run", "-o", home / "errors")
    worth = ("federate", "worth", config, home / "test.parts" / "labels.h5", "-o", home / "worth")
    with two_parties(home, monkeypatch) as (houses, blocks, y):
        for code, asked, *options in (
            ("run", ("federate", "train", config, "-q", "-o", home / "run")),
            ("task", errors, "--data", own),
            ("task", worth, "--data", own, "--rows", str(home / "test.parts" / "{name}.h5")),
        ):
            refused(capsys, code, *asked)
            houses.approve(*options)
            assert run(*asked, "--wait", "1h") == 0
        said = capsys.readouterr().out
        assert "party-2 for 2 runs, with different sets of the others of" in said
        assert "Shapley" in said
        assert run(*worth, "--json") == 0  # nothing is asked again
        found = json.loads(capsys.readouterr().out)
        assert found["shapley"] == read_json(home / "worth" / "worth.json")["shapley"]
        assert run(*worth[:-1], home / "none", "--metric", "x")

    problem, model = in_one_process(home, blocks, y, home / "one")
    with Engine(1) as engine:
        parties = [
            InferenceParty(p.name, block, p.weights, p.feature_names, np.ones(len(p.weights)), engine)
            for p, block in zip(model.parties, problem.blocks)
        ]
        talk = inferring(problem, model.intercept, "model", 0.95, engine)
        own = converse(talk, Threads(engine, parties).carry)
    files = [home / "errors" / "inference.json", *sorted(home.glob("*/agent/*/inference.json"))]
    for path, table in zip(files, [own, *(party.found for party in parties)], strict=True):
        assert read_json(path) == json.loads(json.dumps(table.to_dict()))
    for members in ((0,), (1,), (0, 1)):
        there = home / "worth" / "runs" / "-".join(str(m + 1) for m in members)
        _, model = in_one_process(home, [blocks[m] for m in members], y, home / there.name)
        assert read_json(there / "result.json")["intercept"] == model.intercept
        for m, part in zip(members, model.parties):
            own = houses.state(names[m]) / read_json(there / "run.json")["run"] / f"{names[m]}.h5"
            assert open_party_model(own)[0].weights.tobytes() == part.weights.tobytes()


def test_labels_with_noise_give_the_bins_of_one_process(home, capsys, monkeypatch):
    config, released, train = home / "project.toml", home / "released.h5", home / "train.parts"
    noise = ("--label-epsilon", 3, "--ledger", home / "ledger.jsonl", "-o", released)
    labels = ("federate", "labels", config, released, "-o", home / "labels")
    true = (*labels[:3], train / "labels.h5", "-o", home / "true")
    with two_parties(home, monkeypatch, 300, 1.0) as (houses, *_):
        assert run("scorecard", "labels", train / "labels.h5", *noise) == 0
        assert run(*true) == 3
        assert "true labels, which no party is given" in capsys.readouterr().err
        refused(capsys, "task", *labels)
        houses.approve()
        assert "to keep 300 labels with noise" in capsys.readouterr().out
        assert run(*labels, "--wait", "1h") == 0
        assert run(*labels) == 0  # the same answers, which count once
        assert "labels: 1 of at most 2 answered" in "\n".join(agent_status(houses.state(PARTIES[0])))
    for name in PARTIES:
        (given,) = houses.state(name).glob("labels/*.h5")
        found = []
        for k, file in enumerate((given, released)):
            out = home / f"{name}-{k}.h5"
            assert run("scorecard", "bins", train / f"{name}.h5", "--labels", file, "-o", out) == 0
            found.append(open_party(out).content_digest)
        assert found[0] == found[1]


def test_the_label_holders_own_columns_need_no_agent(home, capsys, monkeypatch):
    names, config, train, test = PARTIES, home / "project.toml", home / "train.parts", home / "test.parts"
    parties = {names[0]: f"file:{train}/{names[0]}.h5", names[1]: f"unix:{names[1]}/s"}
    asked = ("federate", "train", config, "-q", "-o", home / "run")
    own = ("--own", test / f"{names[0]}.h5", "-o", home / "scores")
    scores = ("federate", "evaluate", config, home / "run", test / "labels.h5", *own)
    with two_parties(home, monkeypatch, names=names[1:]) as (houses, blocks, y):
        write_toml(config, {"data": str(train / "labels.h5"), **SAME, "federation": {"parties": parties}})
        assert "party-2 has not approved" in refused(capsys, "run", *asked)
        houses.approve()
        assert run(*asked) == 0
        refused(capsys, "task", *scores)
        houses.approve("--rows", test / f"{names[1]}.h5")
        assert run(*scores) == 0
        errors = ("federate", "infer", config, home / "run", "-o", home / "errors")
        refused(capsys, "task", *errors)
        houses.approve("--data", train / f"{names[1]}.h5")
        assert run(*errors) == 0
        assert run("federate", "worth", config, test / "labels.h5", "-o", home / "worth") == 5
        assert "party-1: its scores of test rows are asked for" in capsys.readouterr().err
    (part,) = houses.state(names[1]).glob(f"*/{names[1]}.h5")
    assert run("import", part, home / "run") == 0
    _, model = in_one_process(home, blocks, y, home / "one")
    for mine, party in zip(open_model(home / "run").parties, model.parties):
        assert mine.weights.tobytes() == party.weights.tobytes()
    assert run("predict", home / "run", test, "-o", home / "whole.csv") == 0
    assert (home / "scores" / "predictions.csv").read_bytes() == (home / "whole.csv").read_bytes()


def test_a_damaged_response_is_asked_for_again(tmp_path):
    pytest.importorskip("nacl", reason='needs pynacl: pip install "fastadmm[psi]"')
    (tmp_path / "ids.csv").write_text("id\na\nb\n")
    ids = file_ids(tmp_path / "ids.csv", "id")
    damaged = [True]

    def ask(name, raw, seconds):
        asked = request_of(open_envelope(raw, len(raw), "test"), -1, "test")
        if asked.call == "align":
            given = {"n_samples": 2}
        elif damaged.pop():
            given = {"response": np.zeros(9, dtype=np.uint8)}
        else:
            (tmp_path / "q").write_bytes(asked.arguments["request"].tobytes())
            psi_respond(ids, tmp_path / "q", tmp_path / "r")
            given = {"response": np.frombuffer((tmp_path / "r").read_bytes(), dtype=np.uint8)}
        return encoded(Message(asked.run, name, 0, digest_of(raw), given))

    def align():
        return _align(ask, "0" * 16, ["bank"], ids, tmp_path)

    with pytest.raises(FormatError):
        align()
    damaged.append(False)
    assert sorted(align()[0].ids) == ["a", "b"]
