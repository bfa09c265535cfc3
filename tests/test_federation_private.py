"""Private runs with parties elsewhere: the same bits as in one process; a party's noise is drawn once."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastadmm.between.agent import agent_status
from fastadmm.between.audit import read_audit
from fastadmm.between.journal import Journal
from fastadmm.between.socket import Lost
from fastadmm.errors import InputError, StorageError
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.noise import NoiseSource
from fastadmm.runs.config import make_config
from fastadmm.runs.train import start_run

from federation_tools import Killing, Parties, advance, begin_run, federated, lost
from rounds_tools import NAMES, assert_same_release, data_of, part_of, separate
from run_tools import run

TEST = {"sampler": "insecure_test", "seed": 7, "delta": 1e-3}
FUSION = {"lambda": 1e-2, "privacy": {"mode": "fusion", "epsilon": 4.0, **TEST}}
MESSAGE = {"lambda": 1e-2, "privacy": {"mode": "message", "epsilon": 4.0, "rounds": 2, **TEST}}
REAL = {"lambda": 1e-2, "privacy": {"mode": "message", "epsilon": 2.0, "delta": 1e-3, "rounds": 2}}


@pytest.fixture
def parties(tmp_path: Path) -> Any:
    separate(data_of(tmp_path), tmp_path)
    options = {name: {"ledger": tmp_path / name / "ledger.jsonl"} for name in NAMES}
    made = Parties(tmp_path, **options)
    yield made
    made.close()


@pytest.mark.parametrize("values", [FUSION, MESSAGE], ids=["fusion", "message"])
def test_the_same_bits_as_one_process(parties: Parties, tmp_path: Path, values: dict[str, Any]) -> None:
    start_run(make_config({"data": str(tmp_path / "d.parts"), **values}), tmp_path / "reference")
    own = tmp_path / NAMES[0] / f"{NAMES[0]}.h5" if values is FUSION else None
    parties.names = NAMES[1:] if values is FUSION else NAMES
    folder = begin_run(tmp_path, own=own, **values)
    parties.approve(folder.path)
    ask = Killing(parties, 3, "party after")  # both sides begin anew
    with pytest.raises(Lost):
        advance(folder, ask)
    with federated(folder, ask) as training:
        training.advance()
    directory, reference = folder.path, tmp_path / "reference"
    for name in parties.names:
        part = parties.home(name) / "agent" / training.run / f"{name}.h5"
        assert run("import", part, directory) == 0
        assert part_of(directory / "model" / f"{name}.h5") == part_of(reference / "model" / f"{name}.h5")
    assert_same_release(directory, reference)


def test_noise_is_drawn_and_charged_once(
    parties: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = parties.begin(**REAL)
    ledger = tmp_path / NAMES[0] / "ledger.jsonl"
    sent: list[bytes] = []
    append, fails = Journal.append, [3]

    def failing(self: Journal, parts: list[bytes]) -> None:
        """A disk that is full just after the release was stored and charged."""
        if NAMES[0] in str(self.path):
            fails[0] -= 1
            if fails[0] == 0:
                raise StorageError("disk full")
        append(self, parts)

    monkeypatch.setattr("fastadmm.between.journal.Journal.append", failing)
    sources: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        "fastadmm.between.host.NoiseSource",
        lambda *how: sources.append(how[:2]) or NoiseSource(*how),
    )

    def ask(name: str, raw: bytes, seconds: float) -> bytes:
        answer = parties.ask(name, raw, seconds)
        if name == NAMES[0]:
            sent.append(answer)
            if len(sent) == 5:
                parties.kill(name)
                raise Lost("the answer was lost")
        return answer

    with federated(folder, ask) as training, pytest.raises(InputError, match=r"refused \(failed\)"):
        training.advance()  # the message of round 2 is stored and charged, but not given
    assert len(Ledger(ledger).charges) == 2
    settings = make_config({"data": str(tmp_path / "d.parts"), **REAL}).privacy
    assert set(sources) == {(settings.sampler, None)}  # nothing that anybody could draw again
    lost(folder, ask)
    with federated(folder, ask) as training:
        training.advance()
    assert len(Ledger(ledger).charges) == 2
    assert sent[4] == sent[5]  # the end of the run, once more
    state = tmp_path / NAMES[0] / "agent"
    entries, _ = read_audit(state / "audit.jsonl")
    spent = [entry["spent"]["gdp"] for entry in entries if "spent" in entry]
    assert spent == sorted(spent)
    assert spent[0] == 0.0 < spent[-1]
    assert any("epsilon" in line for line in agent_status(state))
    statement = json.loads((state / training.run / "privacy.json").read_text())
    assert statement["run"] == training.run
    assert str(tmp_path) not in json.dumps(statement)
