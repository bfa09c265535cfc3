"""Interrupt, kill, damage, extend: `resume` ends in the bit-identical model of an uninterrupted run."""

import copy
import json
import shutil
import signal
from functools import reduce
from pathlib import Path

import h5py
import numpy as np
import pytest
from fastadmm import SolverOptions
from fastadmm.blocks.block import DenseBlock
from fastadmm.engine.engine import Engine
from fastadmm.errors import FormatError
from fastadmm.files.seal import digest_of_files
from fastadmm.parties.masked_direction import MaskedDirectionParty
from fastadmm.problem.problem import TestSet, make_problem
from fastadmm.runs.checkpoint import write_tree
from fastadmm.runs.config import make_config
from fastadmm.runs.train import resume_run, start_run
from fastadmm.secrecy.keys import new_private_key, public_key
from fastadmm.solver.early_stopping import EarlyStopping
from fastadmm.solver.history import Status
from fastadmm.solver.solver import Solver

from problems import make_vertical_classification
from run_tools import (
    CrashAfter,
    Notes,
    SignalAfter,
    assert_clean,
    assert_same_run,
    edited,
    logged,
    model_digests,
    n_lines,
    refused,
    refuses,
    result_of,
    run,
    run_process,
    start,
    wait_for,
    within,
    write_blocks,
    write_problem,
)

#: Settings that take different paths through the solver; each runs all of its rounds.
SETTINGS: dict[str, dict[str, object]] = {
    "sharing": {"scheme": "sharing", "acceleration": "anderson"},
    "gauss-seidel": {"scheme": "gauss-seidel"},
    "cg": {"scheme": "sharing", "x_update": "cg"},
    "subspace": {"scheme": "subspace"},
    "lambdas": {"party_lambda": {"party-1": 1e-2, "party-3": 0.2}, "directions": "both"},
    "squared": {"scheme": "sharing", "loss": "squared", "intercept": False},
    "sets": {"party_constraint": {"party-1": "box:0.0,0.5", "party-3": "ball:0.25"}},
    "proximal": {"regularizer": "l1"},
    "kinks": {"loss": "hinge"},
    "smoothed-proximal": {"regularizer": "l1", "loss": "hinge", "constraint": "ball:1"},
}
ROUNDS = 24

#: One with vectors for each sample, one with a span: here interruptions come in every round that is special.
THOROUGHLY = ("sharing", "subspace")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Training and test partition: three parties, one of them sparse; rows have weights and offsets."""
    folder = tmp_path_factory.mktemp("resume")
    for name, seed in (("train.parts", 1), ("test.parts", 2)):
        blocks, y, _ = make_vertical_classification(240, (5, 7, 4), seed=seed)
        sparse_blocks, _, _ = make_vertical_classification(240, (5, 7, 4), 0.3, seed=seed)
        rng = np.random.default_rng(seed)
        more = {"sample_weight": rng.uniform(0.5, 2.0, 240), "offset": rng.normal(size=240)}
        write_blocks(folder / name, [blocks[0], sparse_blocks[1], blocks[2]], y, **more)
    return folder


@pytest.fixture(scope="module")
def uninterrupted(folder):
    """Finished runs by setting, made where first asked for."""

    class Runs(dict[str, Path]):
        def __missing__(self, key):
            self[key] = folder / f"whole-{key}"
            start_run(configuration(folder, key), self[key])
            return self[key]

    return Runs()


def configuration(folder, setting, **changes):
    values = {
        "data": str(folder / "train.parts"),
        "test": str(folder / "test.parts"),
        "lambda": 1e-3,
        "gap": 0.0,
        "rounds": ROUNDS,
        "threads": 1,
        **SETTINGS[setting],
        **changes,
    }
    return make_config(values)


@pytest.mark.representatives(4)
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_signal_ends_after_the_round_and_resume_goes_on(folder, uninterrupted, tmp_path, setting):
    last = [(ROUNDS - 1, signal.SIGINT)] if setting in THOROUGHLY else []
    for k, number in ((1, signal.SIGINT), (7, signal.SIGTERM), *last):
        out = tmp_path / f"run-{k}"
        result = start_run(configuration(folder, setting), out, display=SignalAfter(k, number))
        assert result["status"] == Status.INTERRUPTED
        assert result["rounds"] == k == len(logged(out))
        assert not (out / "model").exists()
        resume_run(out)
        assert_same_run(out, uninterrupted[setting])
        assert_clean(out)


@pytest.mark.parametrize("setting", THOROUGHLY)
def test_a_crash_goes_back_to_the_last_checkpoint(folder, uninterrupted, tmp_path, setting):
    for k in (2, 13, ROUNDS):
        out = tmp_path / f"run-{k}"
        config = configuration(folder, setting, checkpoint_rounds=6)
        with pytest.raises(KeyboardInterrupt):
            start_run(config, out, display=CrashAfter(k))
        assert not (out / "result.json").exists()
        notes = Notes()
        resume_run(out, display=notes)
        last = (k - 1) // 6 * 6  # the crash comes before the checkpoint of its own round
        told = f"resuming after round {last}" if last else "no checkpoint yet: starting from round 1"
        assert told in notes.lines
        assert model_digests(out) == model_digests(uninterrupted[setting])
        assert logged(out) == logged(uninterrupted[setting])


def test_a_second_signal_ends_at_once(folder, uninterrupted, tmp_path):
    class Twice(SignalAfter):
        def round(self, record):
            super().round(record)
            super().round(record)

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        start_run(configuration(folder, "sharing", checkpoint_rounds=2), out, display=Twice(7))
    resume_run(out)
    assert model_digests(out) == model_digests(uninterrupted["sharing"])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_lost_model_is_made_again(folder, tmp_path):
    out = tmp_path / "run"
    start_run(configuration(folder, "subspace", gap=1e-6), out)
    before = model_digests(out)
    shutil.rmtree(out / "model")
    assert resume_run(out)["status"] == Status.CONVERGED
    assert model_digests(out) == before


def test_leftovers_of_a_kill_are_removed(folder, tmp_path):
    out = tmp_path / "run"
    start_run(configuration(folder, "sharing"), out, display=SignalAfter(3))
    (out / ".result.json.0123abcd.tmp").write_text("{")
    (out / ".model.0123abcd.tmp").mkdir()
    (out / ".model.0123abcd.tmp" / "party-1.h5").write_text("half")
    (out / "checkpoints" / ".round-00000004.0123abcd.tmp").mkdir()
    resume_run(out)
    assert_clean(out)


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """Folder with a run whose rounds take milliseconds, and its command."""
    folder = tmp_path_factory.mktemp("slow")
    data = write_problem(folder / "train.parts", n=12_000, widths=(20, 30, 25))
    command = ["train", data, "--scheme", "sharing", "--gap", 0, "--rounds", 80, "--quiet", "--out"]
    assert run(*command, folder / "whole") == 7
    return folder, command


def test_ctrl_c(slow, tmp_path):
    folder, command = slow
    out = tmp_path / "run"
    with start(*command, out) as process:
        assert wait_for(lambda: n_lines(out / "rounds.jsonl") >= 5, process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.count("\n") == 1
    assert "interrupted after" in err
    assert f"fastadmm resume {out}" in err
    assert 5 <= n_lines(out / "rounds.jsonl") < 80
    code, stdout, err = run_process("resume", out, "--quiet")
    assert (code, stdout) == (7, "")
    assert_same_run(out, folder / "whole")
    assert_clean(out)


def damage_truncated(checkpoint):
    file = checkpoint / "coordinator.h5"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


DAMAGES = {
    "truncated": damage_truncated,
    "empty": lambda checkpoint: (checkpoint / "coordinator.h5").write_bytes(b""),
    "no_party": lambda checkpoint: (checkpoint / "party-2.h5").unlink(),
    "other_round": edited("party-3.h5", lambda file: file.attrs.__setitem__("round", 1)),
    "no_rounds": edited("coordinator.h5", lambda file: file.attrs.__delitem__("n_rounds")),
    "no_record": edited("coordinator.h5", lambda file: file.attrs.__setitem__("last_record", "not JSON")),
    "half_gone": edited("coordinator.h5", lambda file: file.clear()),
}


@pytest.mark.representatives(2)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_newest_checkpoint_falls_back(folder, uninterrupted, tmp_path, damage):
    setting = "subspace" if damage == "half_gone" else "sharing"
    out = tmp_path / "run"
    start_run(configuration(folder, setting, checkpoint_rounds=4), out, display=SignalAfter(10))
    assert sorted(p.name for p in (out / "checkpoints").iterdir()) == ["round-00000008", "round-00000010"]
    DAMAGES[damage](out / "checkpoints" / "round-00000010")
    notes = Notes()
    resume_run(out, display=notes)
    assert any(line.startswith("checkpoint skipped: ") for line in notes.lines)
    assert "resuming after round 8" in notes.lines
    assert model_digests(out) == model_digests(uninterrupted[setting])
    assert logged(out) == logged(uninterrupted[setting])


def test_arrays_that_a_party_no_longer_keeps_are_ignored(folder, uninterrupted, tmp_path):
    """Version 0.1 kept images of targets beside the weights."""
    out = tmp_path / "run"
    start_run(configuration(folder, "squared"), out, display=SignalAfter(10))
    (checkpoint,) = (out / "checkpoints").iterdir()
    for path in checkpoint.glob("party-*.h5"):
        with h5py.File(path, "r+") as file:
            write_tree(file, {"image_current": np.ones(3), "image_known": np.ones(10, dtype=np.int64)})
    (checkpoint / "digests.json").unlink()
    digests = digest_of_files(checkpoint)
    (checkpoint / "digests.json").write_text(json.dumps(digests))
    notes = Notes()
    resume_run(out, display=notes)
    assert "resuming after round 10" in notes.lines
    assert_same_run(out, uninterrupted["squared"])


def test_checkpoints_that_are_damaged_or_hold_more(folder, tmp_path, capsys):
    out = tmp_path / "run"
    start_run(configuration(folder, "sharing", checkpoint_rounds=4), out, display=SignalAfter(10))
    for checkpoint in (out / "checkpoints").iterdir():
        damage_truncated(checkpoint)
    before = (out / "rounds.jsonl").read_bytes()
    refuses(FormatError, "or of an earlier version; train again", resume_run, out)
    refused(capsys, 4, "resume", out, "--quiet")
    assert (out / "rounds.jsonl").read_bytes() == before
    assert len(list((out / "checkpoints").iterdir())) == 2
    tmp_path = within(tmp_path)
    shutil.copytree(folder / "train.parts", tmp_path / "train.parts")
    out = tmp_path / "run"
    start_run(configuration(tmp_path, "sharing", test=None), out, display=SignalAfter(3))
    (tmp_path / "train.parts").rename(tmp_path / "elsewhere.parts")
    assert "train.parts" in refused(capsys, 6, "resume", out)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("tail", ['{"round": 11, "sec', "\x00\x00\x00\n", '{"round": 11}'])
def test_torn_last_line_of_the_log(folder, uninterrupted, tmp_path, tail):
    out = tmp_path / "run"
    start_run(configuration(folder, "sharing"), out, display=SignalAfter(10))
    with open(out / "rounds.jsonl", "a") as file:
        file.write(tail)
    resume_run(out)
    assert_same_run(out, uninterrupted["sharing"])


def test_damaged_results_and_other_places(folder, uninterrupted, tmp_path):
    out = tmp_path / "run"
    start_run(configuration(folder, "sharing"), out, display=SignalAfter(10))
    for text, message in (
        ("{", "not JSON"), ("[]", "no JSON object"), ('{"status": "x"}', "missing"), ("\xff", "not JSON"),
    ):  # fmt: skip
        (out / "result.json").write_bytes(text.encode("latin-1"))
        refuses(FormatError, rf"result\.json.*{message}.*delete it", resume_run, out)
    (out / "result.json").unlink()
    resume_run(out)
    assert_same_run(out, uninterrupted["sharing"])
    # Folder moves with data and run.
    old = tmp_path / "old"
    for name in ("train.parts", "test.parts"):
        shutil.copytree(folder / name, old / name)
    start_run(configuration(old, "sharing"), old / "run", display=SignalAfter(5))
    old.rename(tmp_path / "new")
    resume_run(tmp_path / "new" / "run")
    assert_same_run(tmp_path / "new" / "run", uninterrupted["sharing"])


CHANGES = {
    "features": lambda blocks, y: ([blocks[0] + 1e-9, *blocks[1:]], y),
    "labels": lambda blocks, y: (blocks, np.concatenate([1 - y[:1], y[1:]])),
    "weights": lambda blocks, y: (blocks, y, np.linspace(1, 2, len(y))),
    "rows": lambda blocks, y: ([block[:-1] for block in blocks], y[:-1]),
    "parties": lambda blocks, y: (blocks[:-1], y),
}


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("change", "which"),
    [*((change, "train") for change in CHANGES), ("features", "test")],
)
def test_changed_data(tmp_path, capsys, change, which):
    blocks, y, _ = make_vertical_classification(80, (3, 2, 4))
    for name in ("train", "test"):
        write_blocks(tmp_path / f"{name}.parts", blocks, y)
    out = tmp_path / "run"
    start_run(configuration(tmp_path, "sharing"), out, display=SignalAfter(3))
    shutil.rmtree(tmp_path / f"{which}.parts")
    parties, labels, *weights = CHANGES[change](blocks, y)
    more = {"sample_weight": weights[0]} if weights else {}
    write_blocks(tmp_path / f"{which}.parts", parties, labels, **more)
    files = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    err = refused(capsys, 3, "resume", out, "--quiet")
    assert change == "parties" or "digests differ" in err
    assert files == {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    # The right data, written anew, are the right data.
    shutil.rmtree(tmp_path / f"{which}.parts")
    write_blocks(tmp_path / f"{which}.parts", blocks, y)
    assert resume_run(out)["rounds"] == ROUNDS


@pytest.mark.parametrize(("scheme", "limit"), [("sharing", 5), ("auto", 1)])
def test_extension_after_the_round_limit(folder, tmp_path, capsys, scheme, limit):
    train = ["train", folder / "train.parts", "--lambda", 1e-2, "--scheme", scheme, "--quiet"]
    if scheme == "auto":  # all columns at once would take a round
        (tmp_path / "directions.toml").write_text("history = 2\n")
        train += ["--config", tmp_path / "directions.toml"]
    whole, out = tmp_path / "whole", tmp_path / "run"
    assert run(*train, "--out", whole) == 0
    capsys.readouterr()
    assert run(*train, "--out", out, "--rounds", limit) == 7
    stdout, err = capsys.readouterr()
    assert stdout == ""
    assert err.count("\n") == 1
    assert f"stopped at the round limit after {limit} round" in err
    assert f"fastadmm resume {out} --rounds {2 * limit}" in err
    assert (out / "model" / "model.toml").exists()

    err = refused(capsys, 5, "resume", out)
    assert "give a new limit: --rounds, --gap or --set time=SECONDS" in err
    assert run("resume", out, "--threads", 1) == 5

    assert run("resume", out, "--rounds", 1000, "--quiet") == 0
    assert model_digests(out) == model_digests(whole)
    assert logged(out) == logged(whole)
    assert result_of(out)["status"] == "converged"
    assert run("resume", out) == 0
    assert "nothing to do" in capsys.readouterr().err


def test_new_limits(folder, uninterrupted, tmp_path):
    out = tmp_path / "run"
    start_run(configuration(folder, "sharing", rounds=5), out)
    resume_run(out, changes={"rounds": ROUNDS}, display=SignalAfter(10))
    resume_run(out)  # needs no option: the new limit is in run.toml
    assert_same_run(out, uninterrupted["sharing"])
    tmp_path = within(tmp_path)
    whole, out = tmp_path / "whole", tmp_path / "run"
    limits = {"rounds": 2000, "lambda": 1e-2}
    start_run(configuration(folder, "sharing", gap=1e-8, **limits), whole)
    start_run(configuration(folder, "sharing", gap=1e-3, **limits), out)
    resume_run(out, changes={"gap": 1e-8})
    assert_same_run(out, whole)
    # A looser one is certified already.
    assert resume_run(out, changes={"gap": 1e-2})["rounds"] == result_of(whole)["rounds"]


def test_time_limit(folder, tmp_path, capsys):
    out = tmp_path / "run"
    options = ["--scheme", "sharing", "--gap", 0, "--rounds", 10**6, "--set", "time=0.05", "--quiet"]
    err = refused(capsys, 7, "train", folder / "train.parts", *options, "--out", out)
    assert "stopped at the time limit" in err
    assert f"fastadmm resume {out} --set time=" in err
    first = result_of(out)
    assert first["status"] == "time_limit"
    assert run("resume", out, "--set", "time=0.3", "--quiet") == 7
    second = result_of(out)
    assert second["rounds"] > first["rounds"]
    assert second["seconds"] >= 0.3


REFUSED = (AttributeError, IndexError, KeyError, TypeError, ValueError)
ENGINE = Engine(1)
OPTIONS = {"gap": 1e-12, "n_threads": 1}


def solver_of(kind):
    rng = np.random.default_rng(1)
    n, d = (200, 60) if kind == "proximal" else (40, 60) if kind == "few rows" else (60, 4)
    blocks = [rng.normal(size=(n, d)) for _ in range(2)]
    y = (blocks[0][:, 0] + rng.normal(size=n) > 0.0) * 1.0
    more = {"regularizer": "l1"} if kind == "proximal" else {}
    watched = None
    if kind == "early stopping":
        rows = TestSet([DenseBlock(b[:20]) for b in blocks], y[:20], np.ones(20), np.zeros(20))
        watched = EarlyStopping(rows, patience=50)
        blocks, y = [b[20:] for b in blocks], y[20:]
    problem = make_problem(blocks, y, lam=1e-3, **more)
    scheme = {"proximal": "proximal", "few rows": "subspace"}.get(kind, "sharing")
    options = SolverOptions(scheme=scheme, directions="one" if kind == "few rows" else "auto", **OPTIONS)
    return Solver(problem, options, early=watched)


@pytest.mark.parametrize(
    ("kind", "key", "spoil"),
    [
        *(
            ("sharing", "method/metric", spoil)
            for spoil in (lambda m: m[:-1], np.negative, lambda m: m[:, None])
        ),
        ("proximal", "method/directions/messages", lambda m: m * np.inf),
        ("few rows", "method/messages", lambda m: m * np.nan),
        *(("proximal", f"method/directions/{key}", None) for key in ("hessian", "curvature")),
        ("proximal", "method/directions/curvature", lambda c: c[:-1]),
        *(("proximal", "method/usual", spoil) for spoil in (None, lambda _: "x")),
        *(("few rows", f"method/{key}", None) for key in ("usual", "asked_images")),
        ("few rows", "method/asked_images", lambda m: m[:-1]),
        *(("early stopping", key, None) for key in ("validation", "tightened")),
    ],
)
def test_states_that_lack_something_are_refused(kind, key, spoil):
    solver = solver_of(kind)
    *path, last = key.split("/")
    for _ in range(40):
        solver.round()
        if last in reduce(dict.__getitem__, path, solver.export()):
            break
    state, parties = copy.deepcopy((solver.export(), solver.export_parties()))
    solver_of(kind).restore(*copy.deepcopy((state, parties)))
    place = reduce(dict.__getitem__, path, state)
    value = place.pop(last)
    if spoil is not None:
        place[last] = np.ascontiguousarray(spoil(value)) if isinstance(value, np.ndarray) else spoil(value)
    with pytest.raises(REFUSED):
        solver_of(kind).restore(state, parties)


def test_the_best_weights_of_all_parties_are_there():
    solver = solver_of("early stopping")
    solver.round()
    state, parties = copy.deepcopy((solver.export(), solver.export_parties()))
    del parties[1]["best_weights"]
    with pytest.raises(KeyError, match="best_weights"):
        solver_of("early stopping").restore(state, parties)


@pytest.mark.parametrize("answered", [[[3.0]], 3.0, [np.nan], [-1.0], [], [1.0, 2.0]], ids=str)
def test_a_party_knows_how_often_it_has_answered(answered):
    def party_with(key):
        party = MaskedDirectionParty("a", DenseBlock(np.eye(10, 3)), 1.0, ENGINE)
        party.position, party.private = 0, key
        return party

    party = party_with(private := new_private_key())
    party.introduce(np.frombuffer(public_key(private) + public_key(new_private_key()), dtype="<i8"))
    saved = party.export()
    with pytest.raises(ValueError, match="answered"):
        party_with(private).restore({**saved, "answered": np.array(answered)})
