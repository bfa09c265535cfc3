"""Private modes by files: the same bits as in one process, and what protects a party is the party's."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastadmm.between.agent import party_approve, party_step
from fastadmm.between.train import coordinator_start, coordinator_step
from fastadmm.errors import FastadmmError, FormatError, InputError, PrivacyBudgetError
from fastadmm.privacy.ledger import Ledger
from fastadmm.runs.config import make_config
from fastadmm.runs.train import start_run

from rounds_tools import NAMES, assert_same_release, change, data_of, part_of, separate, values_of
from run_tools import printed, refused, refuses, run

TEST = {"sampler": "insecure_test", "seed": 7, "delta": 1e-3}
FUSION = {"lambda": 1e-2, "privacy": {"mode": "fusion", "epsilon": 4.0, "label_epsilon": 3.0, **TEST}}
REAL = {"lambda": 1e-2, "privacy": {"mode": "fusion", "epsilon": 2.0, "delta": 1e-3}}
MESSAGES = {"lambda": 1e-2, "privacy": {"mode": "message", "epsilon": 2.0, "delta": 1e-3, "rounds": 2}}


def open_run(world: Path, values: dict[str, Any]) -> Path:
    own = world / NAMES[0] / f"{NAMES[0]}.h5" if values["privacy"]["mode"] == "fusion" else None
    coordinator_start(world / "labels" / "labels.h5", NAMES, world / "labels" / "run", values, own=own)
    return world / "labels" / "run"


def answer(world: Path, request: Path, **options: Any) -> Path:
    name = request.name.rsplit("-", 1)[0]
    home = world / name
    out = home / f"answer-{request.name}"
    approval = None if (home / "state").exists() else home / "approval.toml"
    if approval is not None and not approval.exists():
        party_approve(request, home / f"{name}.h5", approval)
    party_step(
        home / f"{name}.h5",
        home / "state",
        request,
        out,
        **{"approval": approval, "ledger": home / "ledger.jsonl", "threads": 1, **options},
    )
    return out


def train(world: Path) -> Path:
    directory = world / "labels" / "run"
    while not (result := coordinator_step(directory)).document:
        messages = [answer(world, request) for request in result.requests]
        for path in messages:  # the same file, also where the first one got lost
            first = path.read_bytes()
            path.unlink()
        assert [answer(world, request).read_bytes() for request in result.requests][-1] == first
        coordinator_step(directory, messages)
    return directory


@pytest.mark.representatives(1)
@pytest.mark.parametrize("world", [REAL, MESSAGES], indirect=True, ids=["fusion", "message"])
def test_commands_on_a_private_run(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also after damage, from which the kept releases lead to the same run."""
    directory = world / "labels" / "run"
    coordinator_step(directory, [answer(world, request) for request in requests_of(world)])
    (directory / "answers.journal").write_text("{")
    assert run("coordinator", "repair", directory) == 0
    train(world)
    assert "each party's own" in printed(capsys, "privacy", directory)
    assert run("audit", directory, "--trials", 5000) == 0
    assert "'fastadmm coordinator step' goes on" in refused(capsys, 5, "resume", directory)


def test_equal_to_the_bit(tmp_path: Path) -> None:
    data, world, reference = data_of(tmp_path), tmp_path / "world", tmp_path / "reference"
    start_run(make_config({"data": str(data), **FUSION}), reference)
    separate(data, world)
    open_run(world, FUSION)
    directory = train(world)
    for name in NAMES:
        target = directory / "model" / f"{name}.h5"
        if not target.exists():
            assert run("import", world / name / "state" / f"{name}.h5", directory) == 0
        assert part_of(target) == part_of(reference / "model" / f"{name}.h5")
    assert_same_release(directory, reference)


@pytest.fixture(scope="module")
def private_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data_of(tmp_path_factory.mktemp("private"))


@pytest.fixture
def world(private_data: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Participants, and the first request of a run with true noise."""
    separate(private_data, tmp_path / "world")
    open_run(tmp_path / "world", getattr(request, "param", REAL))
    return tmp_path / "world"


def forgotten(state: Path, saved: Path) -> None:
    """As a kill leaves it: released and charged, but not remembered as an answer."""
    for name in ("state.h5", "requests.journal", "audit.jsonl"):
        shutil.copy(saved / name, state / name)


def requests_of(world: Path) -> list[Path]:
    """Of the last exchange; that of the party of these tests is the last."""
    return coordinator_step(world / "labels" / "run").requests


def opened(world: Path) -> Path:
    """The request that asks for the message."""
    directory = world / "labels" / "run"
    coordinator_step(directory, [answer(world, path) for path in requests_of(world)])
    return requests_of(world)[-1]


@pytest.mark.parametrize(
    ("world", "theorem"), [(REAL, "F5"), (MESSAGES, "T3")], indirect=["world"], ids=["fusion", "message"]
)
def test_a_party_charges_its_own_ledger_once_before_it_answers(
    world: Path, theorem: str, tmp_path: Path
) -> None:
    request = opened(world)
    home = world / NAMES[1]
    ledger = home / "ledger.jsonl"
    assert not Ledger(ledger).charges
    shutil.copytree(home / "state", tmp_path / "saved")
    first = answer(world, request).read_bytes()
    assert {charge.run for charge in Ledger(ledger).charges} == {
        json.loads((home / "state" / "privacy.json").read_text())["run"]
    }
    charged = ledger.read_bytes()
    forgotten(home / "state", tmp_path / "saved")
    (home / f"answer-{request.name}").unlink()
    assert answer(world, request).read_bytes() == first
    assert ledger.read_bytes() == charged
    statement = json.loads((home / "state" / "privacy.json").read_text())["statement"]
    (party,) = statement["parties"]
    assert party["theorem"] == theorem
    assert party["epsilon"] == pytest.approx(2.0, rel=1e-6)
    assert not Ledger(world / "labels" / "run" / "privacy-ledger.jsonl").charges


def test_what_the_ledger_has_no_room_for_is_not_begun(world: Path) -> None:
    request = requests_of(world)[0]
    home = world / NAMES[1]
    opened_by_another = home / "ledger.jsonl"
    train(world)
    other = world / "other"
    coordinator_start(
        world / "labels" / "labels.h5", NAMES, other, REAL, own=world / NAMES[0] / f"{NAMES[0]}.h5"
    )
    shutil.rmtree(home / "state")
    (home / "approval.toml").unlink()
    with pytest.raises(PrivacyBudgetError):
        answer(world, coordinator_step(other).requests[0])
    assert opened_by_another.exists()
    assert request.name == f"{NAMES[1]}-000000.msg"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ledger": None}, "name its file with --ledger"),
        ({"approval": None, "values": {"sampler": "insecure_test"}}, "protects nothing"),
    ],
)
def test_a_party_that_is_not_protected_does_not_answer(
    private_data: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    world = tmp_path / "world"
    separate(private_data, world)
    values = options.pop("values", {})
    open_run(world, {**REAL, "privacy": {**REAL["privacy"], **values}})
    with pytest.raises(InputError, match=message):
        answer(world, requests_of(world)[0], **options)
    assert not (world / NAMES[1] / "ledger.jsonl").exists()


def test_no_request_is_beyond_the_approval(world: Path, tmp_path: Path) -> None:
    request = requests_of(world)[0]
    home = world / NAMES[1]
    lines = party_approve(request, home / f"{NAMES[1]}.h5", home / "approval.toml")
    assert "(mode fusion): epsilon 2 at delta 0.001 for this run" in " ".join(line.strip() for line in lines)
    text = (home / "approval.toml").read_text()
    assert 'family = "fusion"' in text
    for old, new, message in (
        ("epsilon = 2.0", "epsilon = 1.5", "epsilon is at most 1.5, not 2"),
        ("total_epsilon = 2.0", "total_epsilon = 0.5", "total_epsilon: all runs together cannot have less"),
        ('sampler = "grid"', 'sampler = "discrete"', "key 'sampler'"),
    ):
        (home / "approval.toml").write_text(text.replace(old, new, 1))
        refuses(FastadmmError, message, answer, world, request)
    (home / "approval.toml").write_text(text.replace("public_scaling = false", 'public_scaling = "no"'))
    refuses(FastadmmError, "public_scaling", answer, world, request)


def test_a_ledger_in_a_run_without_privacy_is_refused(private_data: Path, tmp_path: Path) -> None:
    world = tmp_path / "world"
    separate(private_data, world)
    coordinator_start(world / "labels" / "labels.h5", NAMES, world / "labels" / "run", {"lambda": 1e-2})
    with pytest.raises(InputError, match="without privacy: answers are exact"):
        answer(world, requests_of(world)[0])


def test_the_label_holder_brings_its_own_columns(private_data: Path, tmp_path: Path) -> None:
    world = tmp_path / "world"
    separate(private_data, world)
    labels, out = world / "labels" / "labels.h5", tmp_path / "run"
    refuses(FastadmmError, "give them with --own", coordinator_start, labels, NAMES, out, REAL)
    with pytest.raises(InputError, match="the label holder is party-1"):
        coordinator_start(labels, NAMES, out, REAL, own=world / NAMES[1] / f"{NAMES[1]}.h5")
    with pytest.raises(FastadmmError, match="only the label holder"):
        coordinator_start(labels, NAMES, out, {}, own=world / NAMES[0] / f"{NAMES[0]}.h5")
    assert not out.exists()


def test_a_message_that_is_none_is_refused(world: Path) -> None:
    path = answer(world, opened(world))
    change(path, lambda values: values.update(levels=values["levels"] + 200))
    with pytest.raises(FormatError, match="symbols are not those of the channel"):
        coordinator_step(world / "labels" / "run", [path])
    assert [path.name for path in requests_of(world)] == [f"{NAMES[1]}-000001.msg"]


@pytest.mark.parametrize("world", [MESSAGES], indirect=True, ids=["message"])
def test_a_round_has_one_message(world: Path, tmp_path: Path) -> None:
    """A second target for a round, a round too many, and a message after the end are refused."""
    home, request = world / NAMES[1], opened(world)
    shutil.copytree(home / "state", tmp_path / "saved")
    answer(world, request)
    charged = (home / "ledger.jsonl").read_bytes()
    for number, message in ((1, "answers another target"), (3, "round 3 of 2"), (0, "is not as expected")):
        forgotten(home / "state", tmp_path / "saved")
        other = home / request.name
        shutil.copy(request, other)
        change(other, partial(dict.update, round=number, target=values_of(other)[-1][1]["target"] + 1.0))
        refuses(FormatError, message, answer, world, other, force=True)
    assert (home / "ledger.jsonl").read_bytes() == charged
