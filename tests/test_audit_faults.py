"""The audit, run as a user runs it, passes honest code and finds every fault that is planted in it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from fastadmm.data_tools.synthetic import make_vertical_classification
from fastadmm.errors import ExitCode
from fastadmm.privacy import fusion_mechanisms as mechanisms
from fastadmm.privacy import fusion_party, message, message_party, noise, public
from fastadmm.privacy.noise import Calibration, GridMessage, NoiseSource
from fastadmm.privacy.plan import lemma_sensitivity
from fastadmm.privacy.sensitivity import Sensitivity

from run_tools import in_file, run, write_blocks


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Honest private runs: a claim of 1 in either mode."""
    folder = tmp_path_factory.mktemp("audited")
    blocks, y, _ = make_vertical_classification(300, (4, 3))
    data = write_blocks(folder / "a.parts", blocks, y)
    common = ["--epsilon", 1, "--delta", 1e-4, "--lambda", 1e-2, "-q"]
    made = {"message": ["--privacy", "message", *in_file(privacy={"rounds": 4})]}
    made["fusion"] = ["--privacy", "fusion", "--label-epsilon", 1]
    for name, options in made.items():
        assert run("train", data, "-o", folder / name, *options, *common) == ExitCode.OK
    return folder


def audit(runs, mode, capsys, trials=4_000):
    """Exit code, and the names of the checks that are flagged."""
    capsys.readouterr()
    code = run("audit", runs / mode, "--trials", trials, "--json")
    found = json.loads(capsys.readouterr().out)
    return code, {check["name"]: check for check in found["checks"] if check["flagged"]}


#: Both modes draw from one source of noise: what is found in one is found in the other.
MODES = ["message", pytest.param("fusion", marks=pytest.mark.repeats)]


@pytest.mark.repeats
@pytest.mark.parametrize("mode", ["message", "fusion"])
def test_honest_runs_pass(runs, mode, capsys):
    assert audit(runs, mode, capsys) == (ExitCode.OK, {})


# --- faults of the noise, in either mode


def release_with(change):
    """NoiseSource.release whose noise, in standard deviations, is changed."""
    honest = NoiseSource.release

    def faulty(self, values, level, round, engine, stream=0):
        sent = honest(self, values, level, round, engine, stream)
        drawn = sent.values - np.asarray(values)
        changed = np.asarray(values) + level.sigma * change(drawn / level.sigma)
        return GridMessage(np.rint(changed / level.grid).astype(np.int64), level.grid)

    return faulty


def low_rank(noise):
    """Half of the directions carry nothing, the others all."""
    pairs = noise[: len(noise) // 2 * 2].reshape(-1, 2)
    return np.concatenate([np.repeat(pairs.sum(axis=1) / math.sqrt(2), 2), noise[len(pairs) * 2 :]])


NOISE = {
    "four fifths": (lambda z: 0.8 * z, "size of the noise"),
    "not centred": (lambda z: z + 0.2, "mean of the noise"),
    "bounded": (lambda z: math.sqrt(3) * np.sign(z) * (1 - np.exp(-np.abs(z))) * 1.4, "law of the noise"),
    "low rank": (low_rank, "noise used twice"),
}


@pytest.mark.representatives(1)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", NOISE)
def test_faults_of_the_noise_are_found(runs, mode, fault, capsys, monkeypatch):
    change, name = NOISE[fault]
    monkeypatch.setattr(NoiseSource, "release", release_with(change))
    code, flagged = audit(runs, mode, capsys)
    assert code == ExitCode.PRIVACY
    assert any(check.startswith(name) for check in flagged)


@pytest.mark.parametrize("mode", MODES)
def test_digits_below_the_grid_are_found(runs, mode, capsys, monkeypatch):
    honest = NoiseSource.release

    def unrounded(self, values, level, round, engine, stream=0):
        sent = honest(self, values, level, round, engine, stream)
        exact = np.asarray(values) + sent.values - level.grid * np.rint(np.asarray(values) / level.grid)
        return GridMessage(np.rint(exact / level.grid * 2**10).astype(np.int64), level.grid / 2**10)

    monkeypatch.setattr(NoiseSource, "release", unrounded)
    code, found = audit(runs, mode, capsys)
    assert code == ExitCode.PRIVACY
    assert ("grid of the noise" if mode == "fusion" else "what is public, on neighbours") in found


@pytest.mark.parametrize("mode", MODES)
def test_noise_three_percent_too_small_is_found(runs, mode, capsys, monkeypatch):
    monkeypatch.setattr(NoiseSource, "release", release_with(lambda z: 0.97 * z))
    code, flagged = audit(runs, mode, capsys, trials=100_000)
    assert code == ExitCode.PRIVACY
    assert any(check.startswith("size of the noise") for check in flagged)


def test_the_size_of_the_noise_tells_a_lower_bound(runs, capsys, monkeypatch):
    monkeypatch.setattr(NoiseSource, "release", release_with(lambda z: 0.2 * z))
    _, flagged = audit(runs, "fusion", capsys)
    # 3.0 in truth. The noise has no seed, and now and then a lower bound lies above the truth by chance.
    assert 2.5 < flagged["size of the noise, gradients"]["epsilon"] < 3.5
    _, flagged = audit(runs, "message", capsys)
    assert 6.0 < flagged["size of the noise, all messages"]["epsilon"] < 7.5


@pytest.mark.parametrize("mode", MODES)
def test_noise_drawn_again_in_another_round_is_found(runs, mode, capsys, monkeypatch):
    honest = NoiseSource._nonce

    def same(self, round, stream):
        honest(self, round, stream)
        return np.array([self.party, 0, stream], dtype=np.uint32)

    monkeypatch.setattr(NoiseSource, "_nonce", same)
    code, flagged = audit(runs, mode, capsys)
    assert code == ExitCode.PRIVACY
    assert any(check.startswith("noise used twice") for check in flagged)
    assert any(check.startswith("independence of the noise between") for check in flagged)


@pytest.mark.parametrize("mode", MODES)
def test_noise_shared_by_parties_is_found(runs, mode, capsys, monkeypatch):
    honest = NoiseSource.__init__

    def same(self, *arguments, **options):
        honest(self, *arguments, **options)
        self.party = 1

    monkeypatch.setattr(NoiseSource, "__init__", same)
    monkeypatch.setattr(noise.os, "urandom", lambda n: b"k" * n)
    code, flagged = audit(runs, mode, capsys)
    assert code == ExitCode.PRIVACY
    assert "independence of the noise between parties" in flagged


class Stuck(int):
    """A count that does not go on."""

    def __add__(self, other):
        return self


@pytest.mark.skipif(not hasattr(noise.os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("mode", MODES)
def test_noise_that_a_forked_process_draws_as_well_is_found(runs, mode, capsys, monkeypatch):
    monkeypatch.setattr(noise.os, "getpid", lambda: 1)
    monkeypatch.setattr(NoiseSource, "_forks", Stuck())
    code, flagged = audit(runs, mode, capsys)
    assert code == ExitCode.PRIVACY
    assert any(check.startswith("source of messages, noise used twice") for check in flagged)


# --- faults of mode "message"


class CleanLater(message.MessageSolver):
    """A party subtracts its clean message instead of the noisy one it sent."""

    def _target(self, m):
        if not (self.n_rounds and self.parties):  # none where the parties are elsewhere
            return super()._target(m)
        clean = self.parties[m].block.product(self.parties[m].weights, self.engine)
        return super()._target(m) - self.messages[m] + clean


def parameter_noise(self, w, round):
    """The message of noisy weights."""
    rng = np.random.default_rng()
    self.solve(w)
    spoiled = self.weights + 1e3 * rng.normal(size=len(self.weights))
    sent = self.block.product(spoiled, self.engine)
    return GridMessage(np.rint(sent / self.level.grid).astype(np.int64), self.level.grid)


def papers_sensitivity(settings, mu, n):
    """Lemma 1 with 66 columns, two parties and b_1 = B."""
    return Sensitivity(lemma_sensitivity(66, 1.0, mu, 1.0, settings.ball, 2), "Lemma 1")


def smaller_noise_later(self, w, round):
    level = self.level if round < 2 else Calibration(*(np.array([0.8, 1, 1]) * vars_of(self.level)))
    return self.noise.release(self.exact(w), level, round, self.engine)


def vars_of(level):
    return np.array([level.sigma, level.grid, level.sensitivity])


COST, PUBLIC = "cost of all messages, replayed", "what is public, on neighbours"

MESSAGE = {
    "a forgotten root of T": (
        message_party,
        "noise_multiplier",
        lambda e, d, t: math.sqrt(1 / t) * 7.5,
        COST,
    ),
    "a skipped target clip": (message_party.MessageParty, "public_target", lambda self, w: w, COST),
    "a skipped row clip": (message, "clipped_block", lambda block, name: block, COST),
    "a skipped message clip": (message_party.MessageParty, "exact", lambda self, w: self.solve(w), COST),
    "the paper's calibration": (message_party, "message_sensitivity", papers_sensitivity, COST),
    "the bound of zero-out": (
        message_party,
        "message_sensitivity",
        lambda *_: Sensitivity(2.1526, "T3"),
        COST,
    ),
    "less noise from round 2": (message_party.MessageParty, "answer", smaller_noise_later, COST),
    "noise on parameters": (message_party.MessageParty, "answer", parameter_noise, PUBLIC),
    "a clean value in a target": (message, "MessageSolver", CleanLater, PUBLIC),
}


@pytest.mark.representatives(2)
@pytest.mark.parametrize("fault", MESSAGE)
def test_faults_of_messages_are_found(runs, fault, capsys, monkeypatch):
    place, name, faulty, check = MESSAGE[fault]
    monkeypatch.setattr(place, name, faulty)
    code, flagged = audit(runs, "message", capsys)
    assert code == ExitCode.PRIVACY
    assert check in flagged


# --- faults of mode "fusion"


def calibrated(factor, of):
    """Noise of another size, declared as it is: of counts (one number), moments (four) or gradients."""
    honest = noise.calibrate

    def faulty(sensitivity, multiplier, n):
        kind = {1: "counts", 4: "moments"}.get(n, "gradients")
        return honest(sensitivity, multiplier * (factor if kind == of else 1.0), n)

    return faulty


def at_twice(function, which):
    """The function with one of its arguments doubled."""

    def faulty(*arguments):
        return function(*(2 * a if k == which else a for k, a in enumerate(arguments)))

    return faulty


def exact_centre(block, target, public_class, budget, source, engine, row_norm=None):
    """The channel's centre is taken from clean scores."""
    from dataclasses import replace

    made = HONEST_MESSAGE(block, target, public_class, budget, source, engine, row_norm)
    scores = block.product(made.model.weights, engine)
    return replace(made, channel=replace(made.channel, center=float(scores.mean())))


HONEST_MESSAGE = fusion_party.make_message
CHANNEL, KEEP = mechanisms.choose_channel, mechanisms.keep_probability

WHOLE = "cost of a whole message, replayed"

FUSION = {
    "a forgotten root of 40": (mechanisms, "calibrate", calibrated(1 / math.sqrt(40), "gradients"), WHOLE),
    "a fifth of the noise, declared": (mechanisms, "calibrate", calibrated(0.2, "gradients"), WHOLE),
    "half of the moments' noise": (mechanisms, "calibrate", calibrated(0.5, "moments"), WHOLE),
    "a forgotten root of 9": (mechanisms, "calibrate", calibrated(1 / 3, "counts"), WHOLE),
    "a gradient bound of 1": (mechanisms, "gradient_sensitivity", lambda target: 1.0, WHOLE),
    "rows as long as they are": (
        fusion_party,
        "row_norms",
        lambda block, engine: np.zeros(block.shape[0]),
        WHOLE,
    ),
    "symbols at twice epsilon": (
        fusion_party,
        "choose_channel",
        at_twice(mechanisms.choose_channel, 0),
        WHOLE,
    ),
    "symbols kept too often": (
        mechanisms,
        "keep_probability",
        at_twice(mechanisms.keep_probability, 0),
        WHOLE,
    ),
    "a clean centre": (fusion_party, "make_message", exact_centre, PUBLIC),
    "labels at twice epsilon": (
        public,
        "randomise_labels",
        at_twice(public.randomise_labels, 1),
        "randomised labels of class 0",
    ),
}


@pytest.mark.representatives(2)
@pytest.mark.parametrize("fault", FUSION)
def test_faults_of_fusion_are_found(runs, fault, capsys, monkeypatch):
    place, name, faulty, check = FUSION[fault]
    monkeypatch.setattr(place, name, faulty)
    code, flagged = audit(runs, "fusion", capsys)
    assert code == ExitCode.PRIVACY
    assert check in flagged


@pytest.mark.repeats
def test_sizes_of_what_refuted_claims(runs, capsys, monkeypatch):
    for fault, truth in (("a forgotten root of 40", 3.4), ("symbols at twice epsilon", 1.6)):
        place, name, faulty, check = FUSION[fault]
        with monkeypatch.context() as patch:
            patch.setattr(place, name, faulty)
            _, flagged = audit(runs, "fusion", capsys)
        assert flagged[check]["epsilon"] == pytest.approx(truth, abs=0.2)
