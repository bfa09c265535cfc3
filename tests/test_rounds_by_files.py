"""Training over exchanged files is training in one process, to the last bit; mistakes are refused."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from fastadmm.between import run_problem
from fastadmm.between.hub import Letters
from fastadmm.between.train import coordinator_step
from fastadmm.coordinator import message_store
from fastadmm.errors import InputError, StorageError
from fastadmm.proof.share import Share
from fastadmm.runs.config import make_config
from fastadmm.runs.train import start_run

from problems import make_vertical_classification
from rounds_tools import (
    NAMES,
    answer,
    assert_same_course,
    begin,
    data_of,
    part_of,
    separate,
    three_classes,
    train,
    values_of,
)
from run_tools import refuses, result_of, run, write_blocks


def party_part(path: Path) -> dict[str, object]:
    with h5py.File(path) as file:
        assert "reference" in path.parts or "honest" in file.attrs["privacy"]
    return part_of(path)


def assert_like_in_process(folder: Path, directory: Path, reference: Path) -> None:
    for name in NAMES:
        target = directory / "model" / f"{name}.h5"
        assert not target.exists()
        assert run("import", folder / name / "state" / f"{name}.h5", directory) == 0
        assert party_part(target) == party_part(reference / "model" / f"{name}.h5")
    assert_same_course(directory, reference)


CASES = [
    ({"lambda": 1e-3, "rounds": 3}, "classification"),
    ({"secrecy": "sums", "lambda": 1e-5, "history": 4, "rounds": 4}, "classification"),
    ({"directions": "both", "lambda": 1e-5, "rounds": 3}, "classification"),
    ({"scheme": "sharing", "lambda": 1e-2, "rounds": 2}, "classification"),
    ({"regularizer": "l1", "lambda": 1e-2, "rounds": 2}, "classification"),
    ({"lambda": 1e-3, "history": 2, "rounds": 4}, "classes"),
    ({"loss": "sigmoid", "regularizer": "l1", "lambda": 1e-2}, "classification"),  # to the end
]
SETS = {"constraint": "ball:1", "party_constraint": {"party-2": "box:0,1"}}
KINKS = {"loss": "hinge", "constraint": "box:0.1,1", "history": 4}  # in a box without zero
GROUPS = {"loss": "squared", "regularizer": "group_lasso", "constraint": "ball:0.5"}
MORE = [
    ({"scheme": "sharing", **SETS, "rounds": 3}, "classification"),
    ({"scheme": "proximal", **KINKS, "rounds": 6}, "classification"),
    ({**GROUPS, "lambda": 1e-2}, "regression"),  # to the end
    ({"regularizer": "log_sum:0.3", "directions": "one", "lambda": 1e-2, "rounds": 5}, "classification"),
    ({"loss": "tweedie:1.3", "lambda": 1e-3, "rounds": 4}, "amounts"),
    ({"regularizer": "l1", "constraint": "box:-1,1", "lambda": 1e-2, "rounds": 3}, "classes"),
]
CASES += [pytest.param(*case, marks=pytest.mark.repeats) for case in MORE]


def in_process(data: Path, values: dict) -> object:
    """The same configuration in one process."""
    return make_config({"data": str(data), **values})


@pytest.mark.representatives(3)
@pytest.mark.parametrize(("values", "kind"), CASES)
def test_equal_to_the_bit(tmp_path: Path, values: dict, kind: str) -> None:
    data = data_of(tmp_path, kind)
    start_run(in_process(data, values), tmp_path / "reference")
    separate(data, tmp_path / "world")
    begin(tmp_path / "world", **values)
    directory, _ = train(tmp_path / "world")
    assert_like_in_process(tmp_path / "world", directory, tmp_path / "reference")


def test_messages_within_a_limit_on_memory_give_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, spilled = run_problem.make_plan, []
    monkeypatch.setattr(run_problem, "make_plan", lambda *a, **k: replace(made(*a, **k), spilled=1))
    rows = message_store.SpilledRows
    monkeypatch.setattr(message_store, "SpilledRows", lambda *a: spilled.append(a) or rows(*a))
    values = {"directions": "one", "lambda": 1e-4, "rounds": 5}
    data = data_of(tmp_path)
    start_run(in_process(data, values), tmp_path / "reference")
    separate(data, tmp_path / "world")
    directory = begin(tmp_path / "world", memory="2GB", **values)
    messages = [answer(tmp_path / "world", r) for r in coordinator_step(directory).requests]
    said = "\n".join(coordinator_step(directory, messages).notes)
    assert re.search(
        r"memory: about .*; limit 2.0 GB\nmessages: in a scratch file in the run directory", said
    )
    assert train(tmp_path / "world")[0] == directory
    assert len(spilled) > 2  # also those that a checkpoint had
    assert_like_in_process(tmp_path / "world", directory, tmp_path / "reference")


OTHER_ROWS = {"test": True, "validation": True, "patience": 1}


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        pytest.param({"lambda": 1e-6, "gap": 1e-8, **OTHER_ROWS}, "classification", id="other rows"),
        pytest.param(
            {"scheme": "sharing", "lambda": 1e-6, "validation": 0.4, "patience": 1},
            "classes",
            id="share of classes",
        ),
    ],
)
def test_rows_that_are_not_trained_on(tmp_path: Path, values: dict, kind: str) -> None:
    """Test metrics of every round, and a run that held-out rows end, with the weights of its best round."""
    data = data_of(tmp_path, kind)
    blocks, y, _ = make_vertical_classification(40, (3, 4), seed=5)
    if kind == "classes":
        others = write_blocks(tmp_path / "others.parts", blocks, three_classes(y), classes=("a", "b", "c"))
    else:
        others = write_blocks(tmp_path / "others.parts", blocks, y)
    own = [key for key, value in values.items() if value is True]
    start_run(in_process(data, {**values, **dict.fromkeys(own, str(others))}), tmp_path / "reference")
    assert result_of(tmp_path / "reference")["status"] == "early_stopped"
    world = tmp_path / "world"
    separate(data, world, others)
    begin(world, **{**values, **dict.fromkeys(own, str(world / "labels" / "others" / "labels.h5"))})
    directory, _ = train(world)
    assert_like_in_process(world, directory, tmp_path / "reference")


def test_no_scores_of_rows_that_the_owner_has_not_given(tmp_path: Path) -> None:
    data = data_of(tmp_path)
    separate(data, tmp_path / "world", data)
    world = tmp_path / "world"
    directory = begin(world, test=str(world / "labels" / "others" / "labels.h5"), rounds=2)
    shutil.rmtree(world / "party-2" / "others")
    refuses(InputError, "scores of 'test' rows; if you agree", train, world)
    # Nothing was lost: with the rows the run goes on.
    (world / "party-2" / "others").mkdir()
    shutil.copy(data / "party-2.h5", world / "party-2" / "others" / "party-2.h5")
    assert train(world)[0] == directory


@pytest.mark.representatives(1)
@pytest.mark.parametrize(("scheme", "kind"), [("proximal", "classification"), ("subspace", "classes")])
def test_repeated_steps_give_the_same_files(tmp_path: Path, scheme: str, kind: str) -> None:
    values = {"scheme": scheme, "lambda": 1e-2, "rounds": 2}
    offset = {} if kind == "classes" else {"offset": np.linspace(-1, 1, 90)}  # one per row and class there
    data = data_of(tmp_path, kind, sample_weight=np.linspace(0.5, 2.0, 90), **offset)
    start_run(in_process(data, values), tmp_path / "reference")
    separate(data, tmp_path / "world")
    begin(tmp_path / "world", **values)
    directory, _ = train(tmp_path / "world", twice=True)
    assert_like_in_process(tmp_path / "world", directory, tmp_path / "reference")


def test_only_what_the_scheme_sends_passes(tmp_path: Path) -> None:
    data = data_of(tmp_path)
    separate(data, tmp_path)
    directory = begin(tmp_path, directions="both", **{"lambda": 1e-3, "rounds": 3})
    calls, answers = set(), set()
    with h5py.File(data / "party-1.h5") as file:
        features = file["X"][:] if isinstance(file["X"], h5py.Dataset) else file["X/data"][:]
    while (result := coordinator_step(directory)).document is None:
        messages = [answer(tmp_path, request) for request in result.requests]
        for name, arguments in (call for request in result.requests for call in values_of(request)):
            calls.add(name)
            assert all(np.shape(values) == (90,) or np.size(values) < 90 for values in arguments.values())
        for found in (values_of(message)[0][1] for message in messages):
            answers |= found.keys()
            most = 4 * 90 if "within" not in found else 8 * 90  # the proof at the end
            assert all(values.nbytes <= most for values in found.values() if isinstance(values, np.ndarray))
        coordinator_step(directory, messages)
    assert calls <= {"start", "set_metric", "respond_pair", "forget", "prove", "finish"}
    messages = {f"{which}{what}" for which in ("first", "second") for what in ("", "_scale")}
    proof = {"message", *Share._fields}
    sent = {*messages, "products", "squared_residual", "done"}
    assert answers <= {"n_features", "kind", "reason", *sent, *proof}
    # Nothing of the coordinator's holds a column of features.
    column = np.ascontiguousarray(features[:, 0] if features.ndim == 2 else features[:8]).tobytes()
    assert not any(column in path.read_bytes() for path in directory.rglob("*") if path.is_file())


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    data = data_of(tmp_path)
    separate(data, tmp_path)
    directory = begin(tmp_path, **{"lambda": 1e-3})
    requests = {r.name.rsplit("-", 1)[0]: r for r in coordinator_step(directory).requests}
    home, own = tmp_path / "party-1", tmp_path / "party-1" / "party-1.h5"
    first = tmp_path / "first.h5"
    shutil.copy(requests["party-1"], first)
    messages = [answer(tmp_path, request) for request in requests.values()]

    other = tmp_path / "other"
    separate(data, other)
    foreign = begin(other, **{"lambda": 1e-3})
    foreign_request = next(r for r in coordinator_step(foreign).requests if "party-1" in r.name)
    foreign_message = answer(other, foreign_request)

    step = ["party", "step", "--data", own, "--out", tmp_path / "m.h5"]
    coordinator = ["coordinator", "step", directory]
    short = write_blocks(tmp_path / "short.parts", [np.ones((9, 2)) * 0.1], np.arange(9) % 2.0)

    def refused(code: int, text: str, *arguments: object) -> None:
        capsys.readouterr()
        assert run(*arguments) == code, arguments
        err = capsys.readouterr().err
        assert text in err
        assert err.count("\n") == 1
        assert not (tmp_path / "m.h5").exists()

    refused(3, "of run", *step, "--state", home / "state", "--in", foreign_request)
    refused(3, "align the rows", "party", "step", "--data", short / "party-1.h5", "--state", tmp_path / "s",
            "--in", first, "--out", tmp_path / "m.h5")  # fmt: skip
    refused(3, "another run", *coordinator, foreign_message)

    assert coordinator_step(directory, messages[:1]).notes[-1].startswith("exchange 0: waiting for party-2: ")
    result = coordinator_step(directory, messages)
    later = next(r for r in result.requests if "party-1" in r.name)
    refused(6, "state", *step, "--state", tmp_path / "fresh", "--in", later)
    answer(tmp_path, later)
    assert run(*step, "--state", home / "state", "--in", first) == 0  # an old one again
    assert (tmp_path / "m.h5").read_bytes() == messages[0].read_bytes()
    (tmp_path / "m.h5").unlink()
    shutil.copy(data / "party-2.h5", tmp_path / "p.h5")
    with h5py.File(tmp_path / "p.h5", "a") as file:
        file.attrs["name"] = "party-1"
    refused(3, "of features with", "party", "step", "--data", tmp_path / "p.h5", "--state", home / "state",
            "--in", later, "--out", tmp_path / "m.h5")  # fmt: skip
    labels = tmp_path / "labels" / "labels.h5"
    write_blocks(tmp_path / "e.parts", [np.ones((90, 1))], (np.arange(90) % 2).astype(float))
    shutil.copy(tmp_path / "e.parts" / "labels.h5", labels)
    refused(3, "not the labels", *coordinator, *[answer(tmp_path, r) for r in result.requests])


def test_a_folder_in_the_place_of_a_request_is_one_line(tmp_path):
    (tmp_path / "requests" / "bank-000002.msg").mkdir(parents=True)
    letters = Letters(tmp_path, "run", ["bank"])
    refuses(StorageError, r"bank-000002\.msg: cannot write: ", letters.settle, [])
