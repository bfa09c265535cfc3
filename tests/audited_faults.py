"""Faults to plant in the private modes: each as somebody could make it, none written for a test of the audit.

A fault is a function that changes the program through ``patch(place, name, faulty)``, as
:class:`pytest.MonkeyPatch` does, in one or both of the modes.
"""

import hashlib
import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from fastadmm.privacy import (
    accounting,
    fusion,
    fusion_party,
    ledger,
    message,
    message_party,
    noise,
    private_run,
    public,
    releases,
    statement,
)
from fastadmm.privacy import fusion_mechanisms as mechanisms
from fastadmm.privacy.noise import Calibration, GridMessage, NoiseSource
from fastadmm.privacy.paper_noise import lemma_sensitivity
from fastadmm.privacy.sensitivity import Sensitivity
from fastadmm.settings.privacy import DifferentialPrivacy
from scipy.special import ndtr

Patch = Callable[[Any, str, Any], None]


@dataclass(frozen=True)
class Fault:
    """One fault, and the modes that it is in."""

    name: str
    modes: tuple[str, ...]
    plant: Callable[[Patch], None]
    check: str = ""  # how the name of a check that has to find it begins; empty for any


FAULTS = []
BOTH = ("message", "fusion")


def instead(modes, faults, check=""):
    """Register faults that are called in one or more places; what was there is their first argument."""
    for name, (faulty, *places) in faults.items():
        plant = partial(_replace, faulty=faulty, places=places)
        FAULTS.append(Fault(name, (modes,) if isinstance(modes, str) else modes, plant, check))


def _replace(patch, faulty, places):
    for owner, attribute in places:
        honest = getattr(owner, attribute)
        of_class = isinstance(inspect.getattr_static(owner, attribute), classmethod)
        made = _given_first(faulty, getattr(honest, "__func__", honest))
        patch(owner, attribute, classmethod(made) if of_class else made)


def _given_first(faulty, honest):
    return lambda *given, **named: faulty(honest, *given, **named)


def then(change):
    """What is there, and a change of what it gives, by that and what was given."""
    return lambda honest, *given, **named: change(honest(*given, **named), *given)


def changed(patch, change):
    """Noise, in standard deviations, is changed; by its values and its round."""
    honest = NoiseSource.release

    def release(self, values, level, round, engine, stream=0):
        sent = honest(self, values, level, round, engine, stream)
        exact = np.rint(np.asarray(values) / level.grid) * level.grid
        drawn = (sent.values - exact) / level.sigma
        steps = np.rint(exact / level.grid) + np.rint(level.sigma * change(drawn, exact, round) / level.grid)
        return GridMessage(steps.astype(np.int64), level.grid)

    patch(NoiseSource, "release", release)


#: Changes of noise, in standard deviations, by its values and its round.
NOISE = {
    "noise a fifth too small beyond 5000 numbers": lambda z, v, t: np.where(
        np.arange(len(z)) < 5_000, z, 0.8 * z
    ),
    "long releases a fifth too small": lambda z, v, t: z if len(z) <= 5_000 else 0.8 * z,
    "no noise behind the first piece": lambda z, v, t: np.where(np.arange(len(z)) < 8_192, z, 0.0),
    "the last number without noise": lambda z, v, t: np.append(z[:-1], 0.0) if len(z) > 1 else z,
    "noise that sums to zero": lambda z, v, t: z - z.mean() if len(z) > 2 else z,
    "zeros sent as zeros": lambda z, v, t: np.where((v == 0.0) & (len(v) > 1), 0.0, z),
    "noise cut at two deviations": lambda z, v, t: np.clip(z, -2.0, 2.0) * 1.06,
    "large values with half the noise": lambda z, v, t: np.where(np.abs(v) > 1.99, 0.5 * z, z),
    "noise cut at three deviations": lambda z, v, t: np.clip(z, -3.0, 3.0),
    "one release in five hundred without noise": lambda z, v, t: 0.0 * z if t % 500 == 33 else z,
    "noise like its neighbours": lambda z, v, t: (
        z if len(z) < 3 else 0.95 * z + math.sqrt(1 - 0.95**2) * np.roll(z, 1)
    ),
    "noise with a common part": lambda z, v, t: 0.99 * z + math.sqrt(1 - 0.99**2) * z[0] if len(z) > 1 else z,
    "uniform noise of the same size": lambda z, v, t: (2.0 * ndtr(z) - 1.0) * math.sqrt(3.0),
}
FAULTS += [Fault(name, BOTH, partial(changed, change=change)) for name, change in NOISE.items()]


def beside_the_exact_value(z, v, t):
    size = float(v @ v)
    return z - v * (0.6 * float(z @ v) / size) if size > 0.0 and len(z) > 1 else z


def taken_back_every_other_round(patch):
    kept = {}

    def change(z, v, t):
        if t % 2 and len(kept.get(len(z), ())) == len(z):
            return -kept.pop(len(z))
        kept[len(z)] = z
        return z

    changed(patch, change)


FAULTS += [
    Fault("noise beside the exact value", BOTH, partial(changed, change=beside_the_exact_value)),
    Fault("every other round takes the noise back", BOTH, taken_back_every_other_round),
]


def one_key(patch):
    honest, kept = noise._key, []
    patch(noise, "_key", lambda secret: kept[0] if kept else (kept.append(honest(secret)), kept[0])[1])


def one_key_and_parties_modulo_2(patch):
    init = NoiseSource.__init__

    def modulo(self, sampler="grid", seed=None, party=0):
        init(self, sampler, seed, party)
        self._number, self.party = party, party % 2

    patch(NoiseSource, "__init__", modulo)
    one_key(patch)


def drawn_twice(honest, self, scale, n, nonce_, engine):
    drawn = honest(self, scale, n, nonce_, engine)
    if engine.n_threads > 1 and n > 8_192:
        half = n // 2
        drawn[half : 2 * half] = drawn[:half]
    return drawn


FAULTS += [
    Fault("one key for all sources", BOTH, one_key),
    Fault("parties counted modulo 2 under one key", BOTH, one_key_and_parties_modulo_2),
]
KEY, UNIFORM, NONCE = (noise, "_key"), (NoiseSource, "uniform"), (NoiseSource, "_nonce")
instead(
    BOTH,
    {
        "a key of 32 bits": (lambda honest, secret: honest(secret[:4] * 8), KEY),
        "a key hashed from 32 bits": (
            lambda honest, secret: honest(hashlib.sha256(secret[:4]).digest()), KEY),
        "a key from numpy": (lambda honest, secret: honest(np.random.default_rng().bytes(32)), KEY),
        "rounds counted modulo 8": (
            lambda honest, self, round, stream: np.array(
                [honest(self, round, stream)[0], round % 8, stream], dtype=np.uint32), NONCE),
        "two threads draw the same piece twice": (drawn_twice, (NoiseSource, "_integers")),
    },
)  # fmt: skip
instead(
    "fusion",
    {
        "streams that are one": (
            lambda honest, *given: honest(*given) * np.array([1, 1, 0], dtype=np.uint32), NONCE),
        "uniform numbers of 12 bits": (
            lambda honest, *given: np.floor(honest(*given) * 4096) / 4096, UNIFORM),
    },
)  # fmt: skip


def last_row_not_clipped(honest, rows):
    made = honest(rows)
    if not hasattr(made, "indptr"):
        made[-1] = rows[-1]
    return made


def exact_one_and_a_half(_, self, w):
    b = 1.5 * self.settings.message_clip
    return np.clip(self.solve(w), -b, b)


def target_three_times(_, self, w):
    limit = 3.0 * self.settings.clip_of_targets
    return np.clip(w, -limit, limit)


def two_rounds_more(honest, self):
    true = self.settings
    self.settings = true.with_(rounds=true.rounds + 2)
    try:
        return (yield from honest(self))
    finally:
        self.settings = true


def more_rounds(patch):
    _replace(patch, two_rounds_more, [(message.MessageSolver, "next_round")])

    def noisy(self, target, round):
        return {"message": self.noised(target, round).values}

    patch(message_party.MessageParty, "noisy", noisy)


def shrunk_by_clean_messages(honest, self, sent):
    clean = [float(np.linalg.norm(p.block.product(p.weights, self.engine))) for p in self.parties]
    return honest(self, sent) * (1.0 + 1e-6 * sum(clean))


def less_in_the_second(honest, self, w, round):
    if round != 2:
        return honest(self, w, round)
    level = Calibration(0.9 * self.level.sigma, self.level.grid, self.level.sensitivity)
    return self.noise.release(self.exact(w), level, round, self.engine)


FAULTS += [Fault("more rounds than charged", ("message",), more_rounds)]
CLIP_ROWS, NOISED = (message_party, "clip_rows"), (message_party.MessageParty, "noised")
LEVEL = (message_party, "message_level")
BLOCKS = ((message, "clipped_block"), (message_party, "clipped_block"))  # both ways of clipping
instead(
    "message",
    {
        "rows of several columns clipped at four": (
            lambda honest, rows: honest(rows) if rows.shape[1] < 2 else 4.0 * honest(rows / 4.0), CLIP_ROWS),
        "sparse rows not clipped": (
            lambda honest, block, name: block if type(block).__name__ == "CSRBlock" else honest(block, name),
            *BLOCKS),
        "the last row not clipped": (last_row_not_clipped, CLIP_ROWS),
        "rows not clipped by agents": (lambda honest, block, name: block, BLOCKS[1]),
        "rows divided by the largest column": (
            lambda honest, rows: rows / np.maximum(abs(rows).max(), 1.0), CLIP_ROWS),
        "messages clipped at one and a half": (exact_one_and_a_half, (message_party.MessageParty, "exact")),
        "targets clipped at three times their bound": (
            target_three_times, (message_party.MessageParty, "public_target")),
        "smaller declared noise for many records": (
            then(lambda made, settings, mu, n: (made[0], replace(made[1], sigma=0.8 * made[1].sigma))
                 if n > 5_000 else made), (message, "message_level"), LEVEL),
        "agents calibrate for one round less": (
            lambda honest, settings, mu, n: honest(
                settings.with_(rounds=max(1, settings.rounds - 1)), mu, n), LEVEL),
        "half the sensitivity": (
            then(lambda found, *_: Sensitivity(0.5 * found.value, found.theorem)),
            (message_party, "message_sensitivity")),
        "clean messages in the shrinkage": (shrunk_by_clean_messages, (message.MessageSolver, "_shrunk")),
        "less noise in the second round": (less_in_the_second, NOISED),
        "an offset by the mean of the clean message": (
            then(lambda sent, self, w, round: GridMessage(
                sent.integers + int(np.rint(self.exact(w).mean() / sent.grid)), sent.grid)), NOISED),
    },
)  # fmt: skip


def largest_entry(honest, block):
    if hasattr(block, "indptr"):
        return np.abs(block.to_scipy()).max(axis=1).toarray().ravel()
    return honest(block)


def true_symbols(channel, score):
    """Places between -1 and 1, and the symbols that stand for them."""
    t = (score - channel.center) / channel.clip
    return t, np.rint(0.5 * (np.clip(t, -1.0, 1.0) + 1.0) * (channel.n_levels - 1))


def exact_inside(honest, self, score, *given):
    drawn, (t, true) = honest(self, score, *given), true_symbols(self, score)
    return np.where(np.abs(t) < 0.95, true, drawn).astype(np.uint8)


def exact_late(honest, self, score, *given):
    drawn, (_, true) = honest(self, score, *given), true_symbols(self, score)
    return np.where(np.arange(len(score)) > 4_500, true, drawn).astype(np.uint8)


def shared_by_neighbours(honest, self, n, round, engine, stream=0):
    drawn = honest(self, n, round, engine, stream)
    drawn[1 : 2 * (n // 2) : 2] = drawn[0 : 2 * (n // 2) : 2]
    return drawn


def moments_of_any_size(_, score, public_class, origin, mu, source, round, engine):
    patched = np.array(score)
    t = (patched - origin) / mechanisms.SCORE_RANGE
    second = public_class > 0.5
    count = np.array([float((~second).sum()), float(second.sum())])
    sums = np.array([t[~second].sum(), t[second].sum(), (t[~second] ** 2).sum(), (t[second] ** 2).sum()])
    level = noise.calibrate(2.0, 1.0 / mu, 4)
    noisy = source.release(sums, level, round, engine).values
    some = np.maximum(count, 1.0)
    mean, square = np.clip(noisy[:2] / some, -1, 1), np.clip(noisy[2:] / some, 0, 1)
    size = mechanisms.SCORE_RANGE
    return mechanisms.ScoreMoments(count, origin + size * mean, size**2 * square, origin, level.sigma)


def clean_mean_square(honest, score, public_class, origin, *given):
    made = honest(score, public_class, origin, *given)
    t = np.clip((score - origin) / mechanisms.SCORE_RANGE, -1.0, 1.0)
    return replace(made, square=np.maximum(made.square, 1e-3 * float((t * t).mean())))


def clean_median(honest, block, target, public_class, budget_, source, engine, norm=None):
    made = honest(block, target, public_class, budget_, source, engine, norm)
    scores = block.product(made.model.weights, engine) + made.model.intercept
    return replace(made, channel=replace(made.channel, center=float(np.median(scores))))


def half_as_much_again(honest, cls, name, block, engine, terms):
    made = honest(cls, name, block, engine, terms)
    b = made.budget
    made.budget = fusion_party.FusionBudget(b.symbol, b.norm, 1.5 * b.model, b.moments)
    return made


NORMS, SYMBOLS = (mechanisms, "row_norms"), (mechanisms.Channel, "release")
instead(
    "fusion",
    {
        "norms of several columns a quarter": (
            lambda honest, block: honest(block) / (4 if block.shape[1] > 1 else 1), NORMS),
        "rows up to twice the norm kept": (
            lambda honest, *given: (n := honest(*given)) * np.where(n < 2.0**-7, 0.5, 1.0), NORMS),
        "exact scores beside the message": (
            then(lambda made, self, *_: {**made, "scores": self.block.product(self.weights, self.engine)}),
            (fusion_party.FusionParty, "fuse")),
        "largest entry for norm in sparse rows": (largest_entry, NORMS),
        "exact symbols inside the range": (exact_inside, SYMBOLS),
        "exact symbols of late rows": (exact_late, SYMBOLS),
        "symbols that neighbours share": (shared_by_neighbours, UNIFORM),
        "symbols a tenth more certain": (
            lambda honest, epsilon, n: honest(1.1 * epsilon, n), (mechanisms, "keep_probability")),
        "moments not clipped": (moments_of_any_size, (mechanisms, "release_moments")),
        "the mean square without noise": (clean_mean_square, (mechanisms, "release_moments")),
        "a median of the clean scores": (clean_median, (fusion_party, "make_message")),
        "a step by the longest row": (
            then(lambda made, block, norms, *_: replace(
                made, weights=made.weights * (1.0 + 1e-9 * float(norms.mean())))),
            (mechanisms, "private_descent")),
        "the exact row norm": (
            lambda honest, norms, *_: float(np.quantile(norms, 0.9)) or 1.0, (mechanisms, "find_row_norm")),
        "half the noise for many columns": (
            lambda honest, sensitivity, multiplier, n: honest(
                sensitivity, multiplier * (0.5 if n > 100 else 1.0), n), (mechanisms, "calibrate")),
        "agents spend half as much again": (half_as_much_again, (fusion_party.FusionParty, "opened")),
    },
)  # fmt: skip


def by_a_public_seed(_, y, epsilon, source, round, engine):
    flip = np.random.default_rng(0).random(len(y)) < public.flip_probability(epsilon)
    return ((y > 0.5) ^ flip).astype(np.uint8)


def in_pairs(_, y, epsilon, source, round, engine):
    drawn = np.repeat(source.uniform(len(y) // 2 + 1, round, engine), 2)[: len(y)]
    return ((y > 0.5) ^ (drawn < public.flip_probability(epsilon))).astype(np.uint8)


FLIPS, PUBLISHED = (public, "randomise_labels"), (fusion, "publish_labels")
instead(
    "fusion",
    {
        "labels flipped by a public seed": (by_a_public_seed, FLIPS),
        "labels flipped in pairs": (in_pairs, FLIPS),
        "late labels as they are": (
            lambda honest, y, *given: np.where(
                np.arange(len(y)) > 5_000, y, honest(y, *given)).astype(np.uint8), FLIPS),
        "labels of one class flipped alone": (
            lambda honest, y, *given: np.where(y > 0.5, honest(y, *given), 0).astype(np.uint8), FLIPS),
        "true classes beside randomised targets": (
            then(lambda made, y, *_: replace(
                made, classes=np.where(np.arange(len(y)) % 2, y, made.classes))), PUBLISHED),
        "a target scaled by the true share": (
            then(lambda made, y, *_: replace(made, target=made.target + 1e-9 * (float(y.mean()) - 0.5))),
            PUBLISHED),
    },
)  # fmt: skip


def charged_at(share_of_gdp, share_of_pure):
    """Charges at shares of their costs; of pure ones by the release's name."""

    def faulty(honest, cls, account, run, release, *, gdp=0.0, pure=0.0, rho=0.0, draw=""):
        less = {"gdp": share_of_gdp * gdp, "pure": share_of_pure(release) * pure}
        return honest(cls, account, run, release, **less, rho=rho, draw=draw)

    return faulty


def nothing_for_agents(honest, self, draw):
    if not (self.charges and self.charges[0].run == "audit"):
        honest(self, draw)


def rounded_down(patch):
    patch(statement, "rounded_up", lambda value: statement._rounded(value, math.floor))

    less = then(lambda made, *_: replace(made, epsilon=0.99 * made.epsilon))

    _replace(patch, less, [(private_run, "state")])


def halves_epsilon(patch):
    def gdp(honest, epsilon, delta, pure=()):
        return 1.2 * honest(epsilon, delta, pure)

    def less(honest, mu, epsilon):
        return honest(mu / 1.2, epsilon)

    _replace(patch, gdp, [(accounting, "gdp_of"), (fusion_party, "gdp_of")])
    _replace(patch, less, [(accounting, "log_delta_of")])


def root_of_t(patch):
    """In mode fusion of the noise of gradients alone: counts have one number, moments four."""
    honest = message_party.noise_multiplier
    patch(message_party, "noise_multiplier", lambda e, d, t: honest(e, d, 1) * t**0.25)

    def other(honest, s, multiplier, n):
        return honest(s, multiplier * (1.0 if n in (1, 4) else mechanisms.STEPS**-0.25), n)

    _replace(patch, other, [(mechanisms, "calibrate")])


FAULTS += [
    Fault("epsilons rounded down", BOTH, rounded_down),
    Fault("an accountant that halves epsilon", BOTH, halves_epsilon),
    Fault("a root of t in the wrong place", BOTH, root_of_t),
]


def largest(honest, mus):
    return max([*mus], default=0.0)


instead(
    BOTH,
    {
        "half the charges": (charged_at(0.5, lambda release: 0.5), (ledger.Charge, "to")),
        "nothing charged by agents without an account": (nothing_for_agents, (releases.Payment, "charge")),
        "second draws for nothing": (
            lambda honest, self, charge: bool(self.planned(charge)) or honest(self, charge),
            (ledger.Ledger, "holds")),
        "stored releases drawn again": (
            lambda honest, self, name, question, payment, draw, build: build(
                releases.Releases._draw(self, None, question, payment, draw)), (releases.Releases, "obtain")),
        "a budget that is not enforced": (lambda *given: None, (ledger.Ledger, "_check")),
        "charges add up to their largest": (
            largest, (sys.modules[ledger.Spent.__module__], "compose_gdp")),
        "a delta above one over n": (lambda honest, self, n: None, (DifferentialPrivacy, "check_samples")),
        "the joint epsilon of one party": (largest, (statement, "compose_gdp")),
    },
)  # fmt: skip
instead(
    "fusion",
    {
        "symbols charged at half": (
            charged_at(1.0, lambda release: 0.5 if release.startswith("one symbol") else 1.0),
            (ledger.Charge, "to")),
        "labels not charged": (
            lambda honest, *given: replace(honest(*given), charges=[]),
            (public, "label_payment"), (private_run, "label_payment")),
        "a person without the label": (
            then(lambda made, *_: replace(made, person_epsilon=made.joint_epsilon)), (private_run, "state")),
    },
)  # fmt: skip
instead(
    "message",
    {
        "the first round alone charged": (
            lambda honest, self, number: honest(self, number) if number == 1 else replace(
                honest(self, number), charges=[]), (message_party.MessageParty, "payment")),
    },
)  # fmt: skip


def low_rank(z, *_):
    """Half of the directions carry nothing, the others all."""
    pairs = z[: len(z) // 2 * 2].reshape(-1, 2)
    return np.concatenate([np.repeat(pairs.sum(axis=1) / math.sqrt(2), 2), z[len(pairs) * 2 :]])


def bounded(z, *_):
    return np.sign(z) * (1 - np.exp(-np.abs(z))) * 2.42


FAULTS += [
    Fault(name, BOTH, partial(changed, change=change), check)
    for name, check, change in (
        ("noise a fifth too small", "size of the noise", lambda z, *_: 0.8 * z),
        ("noise three percent too small", "size of the noise", lambda z, *_: 0.97 * z),
        ("noise that is not centred", "law of the noise", lambda z, *_: z + 0.2),
        ("noise that is bounded", "law of the noise", bounded),
        ("noise in half of the directions", "noise used twice", low_rank),
    )
]


def unrounded(honest, self, values, level, round, engine, stream=0):
    sent = honest(self, values, level, round, engine, stream)
    exact = np.asarray(values) + sent.values - level.grid * np.rint(np.asarray(values) / level.grid)
    return GridMessage(np.rint(exact / level.grid * 2**10).astype(np.int64), level.grid / 2**10)


class Stuck(int):
    """A count that does not go on."""

    def __add__(self, other):
        return self


def drawn_by_forks_as_well(patch):
    patch(noise.os, "getpid", lambda: 1)
    patch(NoiseSource, "_forks", Stuck())


FAULTS.append(Fault("noise that a forked process draws as well", BOTH, drawn_by_forks_as_well))
instead(BOTH, {"digits below the grid": (unrounded, (NoiseSource, "release"))})
another = {
    "noise of another round": (
        lambda honest, self, round, stream: np.array([self.party, 0, stream], dtype=np.uint32), NONCE),
}  # fmt: skip
instead(BOTH, another, "noise used twice")


class CleanLater(message.MessageSolver):
    """A party subtracts its clean message instead of the noisy one it sent."""

    def _target(self, m):
        if not (self.n_rounds and self.parties):  # none where the parties are elsewhere
            return super()._target(m)
        clean = self.parties[m].block.product(self.parties[m].weights, self.engine)
        return super()._target(m) - self.messages[m] + clean


def parameter_noise(_, self, w, round):
    """The message of noisy weights."""
    self.solve(w)
    spoiled = self.weights + 1e3 * np.random.default_rng().normal(size=len(self.weights))
    sent = self.block.product(spoiled, self.engine)
    return GridMessage(np.rint(sent / self.level.grid).astype(np.int64), self.level.grid)


def papers_sensitivity(_, settings, mu, n):
    """Lemma 1 with 66 columns, two parties and b_1 = B."""
    return Sensitivity(lemma_sensitivity(66, 1.0, mu, 1.0, settings.ball, 2), "Lemma 1")


def calibrated(factor, of):
    """Noise of another size, declared as it is: of counts (one number), moments (four) or gradients."""

    def faulty(honest, sensitivity, multiplier, n):
        kind = {1: "counts", 4: "moments"}.get(n, "gradients")
        return honest(sensitivity, multiplier * (factor if kind == of else 1.0), n)

    return faulty


def exact_centre(honest, block, *given):
    """The channel's centre is taken from clean scores."""
    made = honest(block, *given)
    scores = block.product(made.model.weights, given[4])
    return replace(made, channel=replace(made.channel, center=float(scores.mean())))


COST, PUBLIC, CALIBRATE = "cost of", "what is public of", (mechanisms, "calibrate")
SENSITIVITY = (message_party, "message_sensitivity")
instead(
    "message",
    {
        "targets not clipped": (lambda _, self, w: w, (message_party.MessageParty, "public_target")),
        "rows not clipped": (lambda _, block, name: block, BLOCKS[0]),
        "messages not clipped": (lambda _, self, w: self.solve(w), (message_party.MessageParty, "exact")),
        "the calibration of the paper": (papers_sensitivity, SENSITIVITY),
        "the bound of zero-out": (lambda *_: Sensitivity(2.1526, "T3"), SENSITIVITY),
    },
    COST,
)
clean = {
    "noise on parameters": (parameter_noise, NOISED),
    "a clean message in the target": (lambda _, *given: CleanLater(*given), (message, "MessageSolver")),
}
instead("message", clean, PUBLIC)
instead(
    "fusion",
    {
        "a forgotten root of 40": (calibrated(1 / math.sqrt(40), "gradients"), CALIBRATE),
        "half of the noise of the moments": (calibrated(0.5, "moments"), CALIBRATE),
        "a forgotten root of 9": (calibrated(1 / 3, "counts"), CALIBRATE),
        "a gradient bound of 1": (lambda _, target: 1.0, (mechanisms, "gradient_sensitivity")),
        "rows as long as they are": (lambda _, block: np.zeros(block.shape[0]), NORMS),
        "symbols at twice epsilon": (
            lambda honest, epsilon, *given: honest(2 * epsilon, *given), (mechanisms, "choose_channel")),
        "symbols kept too often": (
            lambda honest, epsilon, *given: honest(2 * epsilon, *given), (mechanisms, "keep_probability")),
    },
    COST,
)  # fmt: skip
instead("fusion", {"a centre of clean scores": (exact_centre, (fusion_party, "make_message"))}, PUBLIC)
twice = {
    "labels at twice epsilon": (lambda honest, y, epsilon, *given: honest(y, 2 * epsilon, *given), FLIPS),
}
instead("fusion", twice, "randomised labels")
