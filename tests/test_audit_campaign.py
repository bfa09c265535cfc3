"""Faults planted in every part of the private modes: the audit finds them, and nothing in honest code."""

import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fastadmm import Privacy
from fastadmm.errors import StorageError
from fastadmm.privacy import accounting, fusion_mechanisms, noise_tests
from fastadmm.privacy.game import Release, compare_transcripts, delta_spent, epsilon_spent
from fastadmm.privacy.noise import Calibration, GridMessage
from fastadmm.privacy.noise_tests import (
    at_distances,
    directions_check,
    links_check,
    parts_of,
    patterns_check,
    size_check,
)
from fastadmm.runs.audit import audit_settings, or_its_end
from fastadmm.store.party_file import PartyWriter, open_party
from fastadmm.store.streamed import load_block
from scipy import sparse

import audit_campaign
from audited_faults import FAULTS

#: One of each kind; the others with the slow tests.
SHARE = {
    "a key of 32 bits": "fusion",
    "exact symbols inside the range": "fusion",
    "labels flipped by a public seed": "fusion",
    "half the charges": "message",
    "noise like its neighbours": "message",
    "rows not clipped by agents": "message",
    "noise of another round": "message",
}

BY_NAME = {fault.name: fault for fault in FAULTS}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return audit_campaign.make_runs(tmp_path_factory.mktemp("campaign"))


@pytest.mark.representatives(1)
@pytest.mark.parametrize("name", SHARE)
def test_a_share_of_the_faults(runs, name):
    one = audit_campaign.one_fault(runs, BY_NAME[name], SHARE[name], "--trials", 10_000)
    assert one["found"], one


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("name", "mode", "check", "least", "most"),
    [
        ("a forgotten root of 40", "fusion", "cost of all messages, replayed", 3.2, 3.6),
        ("symbols at twice epsilon", "fusion", "cost of all messages, replayed", 1.4, 1.8),
        ("noise a fifth too small", "message", "size of the noise", 1.1, 1.5),
    ],
)
def test_the_epsilon_that_is_found(runs, name, mode, check, least, most):
    with pytest.MonkeyPatch.context() as patch:
        BY_NAME[name].plant(patch.setattr)
        _, flagged = audit_campaign.audit(runs, mode, "--trials", 20_000)
    assert least < next(one["epsilon"] for one in flagged if one["name"] == check) < most


@pytest.mark.slow
def test_all_faults(runs):
    assert len(FAULTS) >= 25
    found = [
        audit_campaign.one_fault(runs, fault, mode, "--trials", 200_000)
        for fault in FAULTS
        for mode in fault.modes
    ]
    missed = [(one["fault"], one["mode"], one["by"]) for one in found if not one["found"]]
    assert len(missed) <= len(found) // 25, missed


@pytest.mark.parametrize("mode", ["message", pytest.param("fusion", marks=pytest.mark.repeats)])
def test_honest_code(runs, mode):
    assert audit_campaign.audit(runs, mode, "--trials", 10_000) == (0, [])


@pytest.mark.repeats
@pytest.mark.parametrize(
    "settings",
    [
        Privacy(mode="message", epsilon=0.3, delta=1e-6, rounds=2, adjacency="zero_out"),
        Privacy(mode="message", epsilon=4.0, delta=1e-3, message_clip=None, label_epsilon=2.0),
        Privacy(mode="fusion", epsilon=0.1, delta=1e-7, label_epsilon=0.5),
        Privacy(mode="fusion", epsilon=30.0, delta=1e-5),
    ],
)
def test_honest_code_under_other_claims(settings):
    assert not [check for check in audit_settings(settings, 50.0, trials=5_000) if check.flagged]


# What the machine refuses is no finding.
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(12, "Cannot allocate memory"), StorageError),  # of fork, files, sockets
        (StorageError("ledger.jsonl: cannot write: No space left on device"), StorageError),
        (RuntimeError("can't start new thread"), StorageError),
        (MemoryError(), MemoryError),
    ],
)
def test_a_machine_without_room_says_nothing_about_the_code(monkeypatch, error, expected):
    def fails(*_):
        raise error

    monkeypatch.setattr(noise_tests, "drawn_in_a_child", fails)
    settings = Privacy(mode="message", epsilon=1.0, delta=1e-3)
    with pytest.raises(expected, match="could not be judged" if expected is StorageError else None):
        audit_settings(settings, 50.0, trials=1_000)


def test_code_that_refuses_allowed_data_is_flagged():
    (check,) = or_its_end("labels", lambda: {}["x"])
    assert check.flagged
    assert "the code ends with: KeyError" in check.found


def test_what_the_tests_of_noise_see():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=20_000)
    later = np.where(np.arange(20_000) < 12_000, noise, 0.7 * noise)
    sent = GridMessage(np.rint(later * 2.0**28).astype(np.int64), 2.0**-28)
    drawn = Release(np.zeros(20_000), Calibration(1.0, 2.0**-28, 1.0), sent, 0, 1)
    assert size_check(parts_of([drawn])).flagged
    assert links_check(at_distances([noise + 0.1 * np.roll(noise, 8_192)])).flagged
    assert links_check(at_distances([np.concatenate([noise, noise])])).flagged
    centred = [part - part.mean() for part in noise.reshape(-1, 100)]
    assert patterns_check(centred, centred).flagged
    assert directions_check(np.array(centred)).flagged


@pytest.mark.parametrize(("mu", "pure"), [(0.2, ()), (0.15, (0.6,)), (1.0, (0.3, 0.5)), (0.0, (0.7,))])
def test_the_second_opinion_is_that_of_the_accountant(mu, pure):
    for epsilon in (0.0, 0.4, 1.3):
        assert delta_spent(mu, epsilon, pure) == pytest.approx(
            accounting.delta_of(mu, epsilon, pure), rel=1e-6, abs=1e-15
        )
    assert epsilon_spent(mu, 1e-5, pure) == pytest.approx(accounting.epsilon_of(mu, 1e-5, pure), rel=1e-4)


def test_the_second_opinion_on_discrete_noise():
    found = epsilon_spent(0.3, 1e-5, (0.2,), discrete=True)
    assert found == pytest.approx(accounting.zcdp_epsilon(accounting.zcdp_of([0.3]), 1e-5) + 0.2, rel=1e-4)
    assert math.isinf(epsilon_spent(math.inf, 1e-5))


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_row_norms_of_features_that_stay_on_disk(tmp_path, kind):
    rows = np.random.default_rng(0).normal(size=(500, 7))
    rows[3] = 0.0
    with PartyWriter(tmp_path / "a.h5", name="a", n_features=7, kind=kind) as writer:
        writer.append(sparse.csr_array(rows) if kind == "csr" else rows)
    party = open_party(tmp_path / "a.h5")
    for streamed in (False, True):
        found = fusion_mechanisms.row_norms(load_block(party, streamed))
        np.testing.assert_allclose(found, np.linalg.norm(rows, axis=1), rtol=1e-14)


def test_the_page_counts_what_the_campaign_plants():
    page = (Path(__file__).parent.parent / "docs" / "attacks.md").read_text(encoding="utf-8")
    rows = page.split(audit_campaign.BEGIN)[1].split(audit_campaign.END)[0]
    counts = [sum(mode in fault.modes for fault in FAULTS) for mode in ("message", "fusion")]
    found = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) \|$", rows, re.MULTILINE)
    assert [sum(int(row[k]) for row in found) for k in (1, 2)] == counts
    assert not [row for row in found if "nothing" in row[0]]
    assert f"Of {len(FAULTS)} faults, planted in {sum(counts)} places" in rows


def test_transcripts_cost_what_their_releases_do():
    level = SimpleNamespace(sensitivity=2.0, sigma=4.0, gdp=0.5)

    def tap(*exact):
        releases = [
            SimpleNamespace(party=m, exact=np.array(x), level=level, round=1, on_grid=True)
            for m, x in enumerate(exact)
        ]
        return SimpleNamespace(releases=releases, uniforms=[])

    one, other = tap([0.0, 0.0], [1.0, 0.0]), tap([2.0, 0.0], [1.0, 1.5])
    assert compare_transcripts(one, other) == (np.hypot(0.5, 0.375), 0.5, "")
    assert "moves 1.5 times as far" in compare_transcripts(one, tap([0.0, 3.0], [1.0, 0.0]))[2]
    assert "number, size or noise" in compare_transcripts(one, tap([0.0, 0.0]))[2]
