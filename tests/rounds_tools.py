"""What the tests of training by files share: participants with a directory each, and the files that pass."""

import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from fastadmm.between.agent import party_approve, party_step
from fastadmm.between.hub import open_letter, sealed
from fastadmm.between.schema import Body, Request, encoded, message_bytes, pack_values
from fastadmm.between.train import coordinator_start, coordinator_step

from problems import make_vertical_classification, make_vertical_regression
from run_tools import logged, model_digests, result_of, write_blocks

NAMES = ("party-1", "party-2")


def data_of(folder: Path, kind: str = "classification", **labels: object) -> Path:
    if kind in ("regression", "amounts"):
        blocks, y, _ = make_vertical_regression(90, (3, 4))
        y = y if kind == "regression" else np.maximum(y, 0.0)
        return write_blocks(folder / "d.parts", blocks, y, task="regression")
    blocks, y, _ = make_vertical_classification(90, (3, 4))
    if kind == "classes":
        return write_blocks(folder / "d.parts", blocks, three_classes(y), classes=("a", "b", "c"), **labels)
    return write_blocks(folder / "d.parts", blocks, y, **labels)


def three_classes(y: np.ndarray) -> np.ndarray:
    return np.where(np.arange(len(y)) % 5 == 0, 2.0, y)


def separate(data: Path, folder: Path, others: Path | None = None) -> None:
    """Every participant gets a directory with nothing but what is its own, of ``others`` in ``others``."""
    for name in (*NAMES, "labels"):
        (folder / name).mkdir(parents=True)
        shutil.copy(data / f"{name}.h5", folder / name / f"{name}.h5")
        if others is not None:
            (folder / name / "others").mkdir()
            shutil.copy(others / f"{name}.h5", folder / name / "others" / f"{name}.h5")


#: What differs between equal parts: its words on privacy, a random id, a digest of both.
OWN = {"privacy", "model-id", "digest"}


def part_of(path: Path) -> dict[str, object]:
    """A party's part of a model, without what is the party's own."""
    with h5py.File(path) as file:
        found: dict[str, object] = {key: str(value) for key, value in file.attrs.items() if key not in OWN}
        file.visititems(
            lambda name, item: found.update({name: item[()].tolist()} if hasattr(item, "shape") else {})
        )
    return found


#: What is proved of the same weights differs in rounding: sums in another order, another dual vector.
PROVED = {"seconds", "status", "objective", "gap", "gap_absolute", "gap_within", "message", "certificate"}
PROVED |= {"claim", "bound", "within", "looks"}  # looks: what one process saw of the features

#: Digests: of weights only where these are in one place, of settings with the names of files.
DIGESTS = {"weights", "settings"}


def assert_same_course(directory: Path, reference: Path) -> None:
    """A run elsewhere has the rounds and the model of one process, to the last bit, and proves no more."""
    read = [(d / "model" / "model.toml").read_text(encoding="utf-8") for d in (directory, reference)]
    one, other = map(tomllib.loads, read)
    pairs = [(one.pop("certificate"), other.pop("certificate"))]
    assert {**one, "id": ""} == {**other, "id": ""}
    assert part_of(directory / "model" / "coordinator.h5") == part_of(reference / "model" / "coordinator.h5")
    assert logged(directory) == logged(reference)
    pairs += [(result_of(directory), result_of(reference))]
    for own, its in pairs:
        assert {k: v for k, v in own.items() if k not in PROVED | DIGESTS} == {
            k: v for k, v in its.items() if k not in PROVED | DIGESTS
        }
        assert own["objective"] == pytest.approx(its["objective"], rel=1e-6)
    assert own["status"] == its["status"] or (own["status"], its["status"]) == ("max_rounds", "converged")


def assert_same_release(directory: Path, reference: Path) -> None:
    """A private run elsewhere has the coordinator's files of one process, to the last bit."""
    one, other = (
        {name: digest for name, digest in model_digests(d).items() if name[:-3] not in NAMES}
        for d in (directory, reference)
    )
    assert one == other
    one, other = ({**result_of(d), "seconds": 0, "privacy": 0} for d in (directory, reference))
    assert one == other


def begin(folder: Path, **values: object) -> Path:
    coordinator_start(folder / "labels" / "labels.h5", NAMES, folder / "labels" / "run", values)
    return folder / "labels" / "run"


def answer(folder: Path, request: Path, threads: int = 1) -> Path:
    name = request.name.rsplit("-", 1)[0]
    home = folder / name
    out = home / f"answer-{request.name}"
    approval = None if (home / "state").exists() else home / "approval.toml"
    if approval is not None:
        party_approve(request, home / f"{name}.h5", approval)
    others = home / "others" / f"{name}.h5"
    rows = {"test": others, "validation": others} if others.exists() else {}
    party_step(home / f"{name}.h5", home / "state", request, out, approval=approval, threads=threads, **rows)
    return out


def write_request(path: Path, request: Request) -> None:
    path.write_bytes(sealed(encoded(request)))


def values_of(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """The calls of a request, or a message's answer as a single one."""
    envelope = open_letter(path, 1 << 30)
    body = Body(envelope.body, "")
    calls = envelope.head["calls"] if "calls" in envelope.head else [["", envelope.head["answer"]]]
    return [(name, body.values(packed)) for name, packed in calls]


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit the values of a request's last call, or of a message; the file looks as if it had held them."""
    head, calls, arrays = dict(open_letter(path, 1 << 30).head), values_of(path), []
    edit(calls[-1][1])
    packed = [[name, pack_values(values, arrays)] for name, values in calls]
    head |= {"calls": packed} if "calls" in head else {"answer": packed[0][1]}
    path.write_bytes(sealed(message_bytes(head, arrays)))


def train(folder: Path, twice: bool = False) -> tuple[Path, int]:
    """Exchange files until there is a result; the number of exchanges."""
    directory, exchanges = folder / "labels" / "run", 0
    while True:
        result = coordinator_step(directory)
        if result.document is not None:
            return directory, exchanges
        messages = []
        for request in result.requests:
            messages.append(answer(folder, request))
            if twice:  # the same file, also where the first one got lost
                first = messages[-1].read_bytes()
                messages[-1].unlink()
                assert answer(folder, request, threads=2).read_bytes() == first
        if twice:  # one after the other, the first one once more
            for message in messages:
                coordinator_step(directory, [message])
                before = {p.name: p.read_bytes() for p in (directory / "requests").iterdir()}
                coordinator_step(directory, [message])
                assert {p.name: p.read_bytes() for p in (directory / "requests").iterdir()} == before
        else:
            coordinator_step(directory, messages)
        exchanges += 1
