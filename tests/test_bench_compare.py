"""What became slower is found by pairs of calls in turn: neither load nor where memory lies decides."""

import json
import math
from pathlib import Path

import h5py
import numpy as np
import pytest
from fastadmm.problem.losses import LOSSES

import corpus
from scripts import script_of

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def script():
    return script_of("bench/compare.py")


def test_chance_is_that_of_a_fair_coin(script):
    assert script.chance(0, 7) == 1.0
    assert script.chance(5, 5) == 1 / 32
    assert script.chance(2, 3) == 0.5


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ([[1.5] * 25], "open"),  # one pair of processes may have been unlucky
        ([[1.5] * 25] * 2, "slower"),
        ([[1.5] * 25, [1.0] * 25], "open"),
        ([[1.2] * 25, [1.2] * 12 + [1.0] * 13, [1.2] * 25], "open"),  # they do not agree
        ([[1.0] * 25], "no slower"),
        ([[1.2] * 13 + [1.0] * 12], "open"),
        ([[math.inf] * 15] * 2, "slower"),
    ],
)
def test_verdicts(script, ratios, said):
    assert script.verdict(ratios, 80) == said


def measured_with(script, monkeypatch, factors, seed):
    """Measures that are judged slower, where calls and processes vary as on a machine that others use."""
    rng = np.random.default_rng(seed)

    def one_pair(sites, arguments):
        for name, factor in factors.items():
            case = f"bench/bench_tracked.py::bench_{name}"
            if case in arguments or "-k" in arguments:
                # What a process is off by for good, every call, and a few calls beyond all measure.
                noise = rng.normal(scale=0.05) + rng.normal(scale=0.1, size=25)
                noise += rng.normal(size=25) * (rng.random(25) < 0.1)
                yield case, {"seconds": (factor * np.exp(noise)).tolist()}

    monkeypatch.setattr(script, "one_pair", one_pair)
    _, verdicts, _ = script.compare([], "all")
    return {name.removesuffix(" seconds") for name, said in verdicts.items() if said == "slower"}


def test_planted_slowness_is_found_and_nothing_else(script, monkeypatch):
    same = {f"same-{k}": 1.0 for k in range(80)}
    fits = 0
    for seed in range(20):
        found = measured_with(script, monkeypatch, {**same, "kernel": 1.5, "fit": 1.2}, seed)
        assert "kernel" in found
        assert found <= {"kernel", "fit"}
        fits += "fit" in found
    assert fits >= 18


def test_every_loss_is_followed():
    text = (ROOT / "bench" / "bench_tracked.py").read_text(encoding="utf-8")
    followed = text.partition("\nLOSSES = {")[2].partition("\n}")[0]
    assert {name for name in LOSSES if f'"{name}"' in followed} == set(LOSSES)


def write(home, identifier="0123456789abcdef", weight=1.5, gap=0.25):
    home.mkdir()
    with h5py.File(home / "model.h5", "w") as file:
        file.attrs["model-id"] = f"{identifier}-3"
        file.create_dataset("weights", data=np.array([weight, 2.0]))
        file.create_dataset("names", data=["a", "b"])
    inner = (home / "model.h5").read_bytes()
    with h5py.File(home / "state.h5", "w") as file:
        file.attrs["run"] = identifier
        file.create_dataset("message", data=np.frombuffer(inner, np.uint8))
    (home / "model.toml").write_text(f'id = "{identifier}-3"\nlambda = 0.1\n')
    (home / "rounds.jsonl").write_text(json.dumps({"round": 1, "gap": gap, "run": identifier}) + "\n")
    (home / "output.txt").write_text(f"run {identifier}: limit {len(identifier)}.5 GB, until 2030-01-02\n")


def test_what_counts_and_what_does_not(tmp_path):
    write(tmp_path / "one")
    write(tmp_path / "other", "fedcba9876543210")
    one, other = corpus.listing(tmp_path / "one"), corpus.listing(tmp_path / "other")
    assert one.keys() == {"model.h5", "state.h5", "model.toml", "rounds.jsonl", "output.txt"}
    assert not corpus.differences(one, other)
    assert corpus.differences({"a": {}, "b": {}}, {"b": {}, "c": {}}) == ["a: new", "c: gone"]
    # Numbers are not taken for ids.
    assert corpus.masked("gap 0.1234567890123456 of 1234567") == "gap 0.1234567890123456 of 1234567"
    assert 40 <= len(corpus.CASES) <= 60


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (
            {"weight": np.nextafter(1.5, 2)},
            {"model.h5: weights", "model.h5: bytes", "state.h5: message/weights"},
        ),
        ({"gap": np.nextafter(0.25, 1)}, {"rounds.jsonl: line 00001"}),
    ],
)
def test_the_last_bit_counts(tmp_path, changed, found):
    write(tmp_path / "one")
    write(tmp_path / "other", **changed)
    lines = corpus.differences(corpus.listing(tmp_path / "one"), corpus.listing(tmp_path / "other"))
    assert found <= {line.partition("\n")[0] for line in lines}
