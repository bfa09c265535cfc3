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
from fastadmm.between import private_terms
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
from fastadmm.privacy.plan import lemma_sensitivity
from fastadmm.privacy.sensitivity import Sensitivity
from fastadmm.settings.privacy import DifferentialPrivacy

__all__ = ["FAULTS", "Fault"]

Patch = Callable[[Any, str, Any], None]


@dataclass(frozen=True)
class Fault:
    """One fault, and the modes that it is in."""

    name: str
    modes: tuple[str, ...]
    plant: Callable[[Patch], None]
    check: str = ""  # how the name of a check that has to find it begins; empty for any


FAULTS: list[Fault] = []


def fault(*modes: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Register a fault; its name is that of the function."""

    def register(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        FAULTS.append(Fault(plant.__name__.replace("_", " "), modes, plant))
        return plant

    return register


BOTH = ("message", "fusion")


def instead(
    modes: str | tuple[str, ...], *places: tuple[Any, str]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a fault that is called in these places; what was there is its first argument."""

    def register(faulty: Callable[..., Any]) -> Callable[..., Any]:
        def plant(patch: Patch) -> None:
            for owner, attribute in places:
                honest = getattr(owner, attribute)
                of_class = isinstance(inspect.getattr_static(owner, attribute), classmethod)
                made = _given_first(faulty, getattr(honest, "__func__", honest))
                patch(owner, attribute, classmethod(made) if of_class else made)

        name = faulty.__name__.replace("_", " ")
        FAULTS.append(Fault(name, (modes,) if isinstance(modes, str) else modes, plant))
        return faulty

    return register


def _given_first(faulty: Callable[..., Any], honest: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given, **named: faulty(honest, *given, **named)


def changed(patch: Patch, change: Callable[[np.ndarray, np.ndarray, int], np.ndarray]) -> None:
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
NOISE: dict[str, Callable[[np.ndarray, np.ndarray, int], np.ndarray]] = {
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
}
FAULTS += [Fault(name, BOTH, partial(changed, change=change)) for name, change in NOISE.items()]


# --- the source of noise
@fault(*BOTH)
def a_key_of_32_bits(patch):
    honest = noise._key
    patch(noise, "_key", lambda secret: honest(secret[:4] * 8))


@fault(*BOTH)
def a_key_hashed_from_32_bits(patch):
    honest = noise._key
    patch(noise, "_key", lambda secret: honest(hashlib.sha256(secret[:4]).digest()))


@fault(*BOTH)
def a_key_from_numpy(patch):
    honest = noise._key
    patch(noise, "_key", lambda secret: honest(np.random.default_rng().bytes(32)))


@fault(*BOTH)
def one_key_for_all_sources(patch):
    honest, kept = noise._key, []
    patch(noise, "_key", lambda secret: kept[0] if kept else (kept.append(honest(secret)), kept[0])[1])


@instead(BOTH, (NoiseSource, "_nonce"))
def rounds_counted_modulo_8(honest, self, round, stream):
    made = honest(self, round, stream)
    return np.array([made[0], round % 8, stream], dtype=np.uint32)


@fault(*BOTH)
def parties_counted_modulo_2_under_one_key(patch):
    honest, init = noise._key, NoiseSource.__init__

    def modulo(self, sampler="grid", seed=None, party=0):
        init(self, sampler, seed, party)
        self._number, self.party = party, party % 2

    patch(NoiseSource, "__init__", modulo)
    kept = []
    patch(noise, "_key", lambda secret: kept[0] if kept else (kept.append(honest(secret)), kept[0])[1])


@instead("fusion", (NoiseSource, "_nonce"))
def streams_that_are_one(honest, self, round, stream):
    return honest(self, round, stream) * np.array([1, 1, 0], dtype=np.uint32)


@fault(*BOTH)
def noise_like_its_neighbours(patch):
    def change(z, v, t):
        return z if len(z) < 3 else 0.95 * z + math.sqrt(1 - 0.95**2) * np.roll(z, 1)

    changed(patch, change)


@fault(*BOTH)
def noise_with_a_common_part(patch):
    def change(z, v, t):
        return 0.99 * z + math.sqrt(1 - 0.99**2) * z[0] if len(z) > 1 else z

    changed(patch, change)


@fault(*BOTH)
def noise_beside_the_exact_value(patch):
    def change(z, v, t):
        size = float(v @ v)
        return z - v * (0.6 * float(z @ v) / size) if size > 0.0 and len(z) > 1 else z

    changed(patch, change)


@fault(*BOTH)
def uniform_noise_of_the_same_size(patch):
    from scipy.special import ndtr

    changed(patch, lambda z, v, t: (2.0 * ndtr(z) - 1.0) * math.sqrt(3.0))


@fault(*BOTH)
def every_other_round_takes_the_noise_back(patch):
    kept = {}

    def change(z, v, t):
        if t % 2 and len(kept.get(len(z), ())) == len(z):
            return -kept.pop(len(z))
        kept[len(z)] = z
        return z

    changed(patch, change)


@instead("fusion", (NoiseSource, "uniform"))
def uniform_numbers_of_12_bits(honest, self, n, round, engine, stream=0):
    return np.floor(honest(self, n, round, engine, stream) * 4096) / 4096


@instead(BOTH, (NoiseSource, "_integers"))
def two_threads_draw_the_same_piece_twice(honest, self, scale, n, nonce_, engine):
    drawn = honest(self, scale, n, nonce_, engine)
    if engine.n_threads > 1 and n > 8_192:
        half = n // 2
        drawn[half : 2 * half] = drawn[:half]
    return drawn


# --- mode "message"
def of_blocks(patch: Patch, function: Callable[..., Any]) -> None:
    """Both ways by which a party's rows are clipped."""
    for place in (message, message_party):
        patch(place, "clipped_block", function)


@fault("message")
def rows_of_several_columns_clipped_at_four(patch):
    honest = message_party.clip_rows
    patch(
        message_party,
        "clip_rows",
        lambda rows: honest(rows) if rows.shape[1] < 2 else 4.0 * honest(rows / 4.0),
    )


@fault("message")
def sparse_rows_not_clipped(patch):
    honest = message_party.clipped_block

    def clipped(block, name):
        return block if type(block).__name__ == "CSRBlock" else honest(block, name)

    of_blocks(patch, clipped)


@instead("message", (message_party, "clip_rows"))
def the_last_row_not_clipped(honest, rows):
    made = honest(rows)
    if not hasattr(made, "indptr"):
        made[-1] = rows[-1]
    return made


@fault("message")
def rows_not_clipped_by_agents(patch):
    patch(message_party, "clipped_block", lambda block, name: block)


@fault("message")
def rows_divided_by_the_largest_column(patch):
    patch(message_party, "clip_rows", lambda rows: rows / np.maximum(abs(rows).max(), 1.0))


@fault("message")
def a_ball_twice_as_large(patch):
    honest = message_party.fixed_ball_solution
    patch(
        message_party,
        "fixed_ball_solution",
        lambda values, right, radius: honest(values, right, 2.0 * radius),
    )


@instead("message", (message_party.MessageParty, "exact"))
def messages_clipped_at_one_and_a_half(_, self, w):
    b, c = self.settings.message_clip, self.settings.message_center
    return np.clip(self.solve(w), c - 1.5 * b, c + 1.5 * b)


@instead("message", (message_party.MessageParty, "public_target"))
def targets_clipped_at_three_times_their_bound(_, self, w):
    limit = 3.0 * self.settings.clip_of_targets
    return np.clip(w, -limit, limit)


@fault("message")
def smaller_declared_noise_for_many_records(patch):
    honest = message_party.message_level

    def level(settings, mu, n):
        sensitivity, made = honest(settings, mu, n)
        return sensitivity, replace(made, sigma=0.8 * made.sigma) if n > 5_000 else made

    patch(message, "message_level", level)
    patch(message_party, "message_level", level)


@instead("message", (message_party, "message_level"))
def agents_calibrate_for_one_round_less(honest, settings, mu, n):
    return honest(settings.with_(rounds=max(1, settings.rounds - 1)), mu, n)


@instead("message", (message_party, "message_sensitivity"))
def half_the_sensitivity(honest, settings, mu, n):
    found = honest(settings, mu, n)
    return Sensitivity(0.5 * found.value, found.theorem)


@fault("message")
def more_rounds_than_charged(patch):
    honest = message.MessageSolver.next_round

    def next_round(self):
        true = self.settings
        self.settings = true.with_(rounds=true.rounds + 2)
        try:
            return (yield from honest(self))
        finally:
            self.settings = true

    patch(message.MessageSolver, "next_round", next_round)

    def noisy(self, target, round):
        return {"message": self.noised(target, round).values}

    patch(message_party.MessageParty, "noisy", noisy)


@instead("message", (message.MessageSolver, "_shrunk"))
def clean_messages_in_the_shrinkage(honest, self, sent):
    clean = [float(np.linalg.norm(p.block.product(p.weights, self.engine))) for p in self.parties]
    return honest(self, sent) * (1.0 + 1e-6 * sum(clean))


@instead("message", (message_party.MessageParty, "noised"))
def less_noise_in_the_second_round(honest, self, w, round):
    if round != 2:
        return honest(self, w, round)
    level = Calibration(0.9 * self.level.sigma, self.level.grid, self.level.sensitivity)
    return self.noise.release(self.exact(w), level, round, self.engine)


@instead("message", (message_party.MessageParty, "noised"))
def an_offset_by_the_mean_of_the_clean_message(honest, self, w, round):
    sent = honest(self, w, round)
    shift = round_to_int(self.exact(w).mean() / sent.grid)
    return GridMessage(sent.integers + shift, sent.grid)


def round_to_int(value: float) -> int:
    return int(np.rint(value))


# --- mode "fusion"
@instead("fusion", (fusion_party, "row_norms"))
def norms_of_several_columns_a_quarter(honest, block, engine):
    return honest(block, engine) / (4.0 if block.shape[1] > 1 else 1.0)


@instead("fusion", (fusion_party, "row_norms"))
def rows_up_to_twice_the_norm_kept(honest, block, engine):
    found = honest(block, engine)
    return np.where(found < 2.0**-7, 0.5 * found, found)


@instead("fusion", (fusion_party.FusionParty, "fuse"))
def exact_scores_beside_the_message(honest, self, target, classes):
    answer = honest(self, target, classes)
    return {**answer, "scores": self.block.product(self.weights, self.engine)}


@instead("fusion", (fusion_party, "row_norms"))
def largest_entry_for_norm_in_sparse_rows(honest, block, engine):
    if hasattr(block, "indptr"):
        return np.abs(block.to_scipy()).max(axis=1).toarray().ravel()
    return honest(block, engine)


@instead("fusion", (mechanisms.Channel, "release"))
def exact_symbols_inside_the_range(honest, self, score, source, round, engine):
    drawn = honest(self, score, source, round, engine)
    t = (score - self.center) / self.clip
    true = np.rint(0.5 * (t + 1.0) * (self.n_levels - 1))
    return np.where(np.abs(t) < 0.95, true, drawn).astype(np.uint8)


@instead("fusion", (mechanisms.Channel, "release"))
def exact_symbols_of_late_rows(honest, self, score, source, round, engine):
    drawn = honest(self, score, source, round, engine)
    t = np.clip((score - self.center) / self.clip, -1.0, 1.0)
    true = np.rint(0.5 * (t + 1.0) * (self.n_levels - 1))
    return np.where(np.arange(len(score)) > 4_500, true, drawn).astype(np.uint8)


@instead("fusion", (NoiseSource, "uniform"))
def symbols_that_neighbours_share(honest, self, n, round, engine, stream=0):
    drawn = honest(self, n, round, engine, stream)
    drawn[1 : 2 * (n // 2) : 2] = drawn[0 : 2 * (n // 2) : 2]
    return drawn


@fault("fusion")
def symbols_a_tenth_more_certain(patch):
    honest = mechanisms.keep_probability
    patch(mechanisms, "keep_probability", lambda epsilon, n: honest(1.1 * epsilon, n))


@instead("fusion", (fusion_party, "release_moments"))
def moments_not_clipped(_, score, public_class, origin, mu, source, round, engine):
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


@instead("fusion", (fusion_party, "release_moments"))
def the_mean_square_without_noise(honest, score, public_class, origin, mu, source, round, engine):
    made = honest(score, public_class, origin, mu, source, round, engine)
    t = np.clip((score - origin) / mechanisms.SCORE_RANGE, -1.0, 1.0)
    return replace(made, square=np.maximum(made.square, 1e-3 * float((t * t).mean())))


@instead("fusion", (fusion_party, "make_message"))
def a_median_of_the_clean_scores(honest, block, target, public_class, budget_, source, engine, norm=None):
    made = honest(block, target, public_class, budget_, source, engine, norm)
    scores = block.product(made.model.weights, engine) + made.model.intercept
    return replace(made, channel=replace(made.channel, center=float(np.median(scores))))


@instead("fusion", (fusion_party, "private_descent"))
def a_step_by_the_longest_row(honest, block, norms, norm, target, mu, source, round, engine):
    made = honest(block, norms, norm, target, mu, source, round, engine)
    return replace(made, weights=made.weights * (1.0 + 1e-9 * float(norms.mean())))


@fault("fusion")
def the_exact_row_norm(patch):
    patch(fusion_party, "find_row_norm", lambda norms, *_: float(np.quantile(norms, 0.9)) or 1.0)


@instead("fusion", (mechanisms, "calibrate"))
def half_the_noise_for_many_columns(honest, sensitivity, multiplier, n):
    return honest(sensitivity, multiplier * (0.5 if n > 100 else 1.0), n)


@instead("fusion", (fusion_party.FusionParty, "opened"))
def agents_spend_half_as_much_again(honest, cls, name, block, engine, terms):
    made = honest(cls, name, block, engine, terms)
    b = made.budget
    made.budget = fusion_party.FusionBudget(b.symbol, b.norm, 1.5 * b.model, b.moments)
    return made


# --- labels
@instead("fusion", (public, "randomise_labels"))
def labels_flipped_by_a_public_seed(_, y, epsilon, source, round, engine):
    flip = np.random.default_rng(0).random(len(y)) < public.flip_probability(epsilon)
    return ((y > 0.5) ^ flip).astype(np.uint8)


@instead("fusion", (public, "randomise_labels"))
def labels_flipped_in_pairs(_, y, epsilon, source, round, engine):
    drawn = np.repeat(source.uniform(len(y) // 2 + 1, round, engine), 2)[: len(y)]
    return ((y > 0.5) ^ (drawn < public.flip_probability(epsilon))).astype(np.uint8)


@instead("fusion", (public, "randomise_labels"))
def late_labels_as_they_are(honest, y, epsilon, source, round, engine):
    drawn = honest(y, epsilon, source, round, engine)
    return np.where(np.arange(len(y)) > 5_000, y, drawn).astype(np.uint8)


@instead("fusion", (public, "randomise_labels"))
def labels_of_one_class_flipped_alone(honest, y, epsilon, source, round, engine):
    return np.where(y > 0.5, honest(y, epsilon, source, round, engine), 0).astype(np.uint8)


@instead("fusion", (fusion, "publish_labels"))
def true_classes_beside_randomised_targets(honest, y, settings, store, payment, engine):
    made = honest(y, settings, store, payment, engine)
    return replace(made, classes=np.where(np.arange(len(y)) % 2, y, made.classes))


@instead("fusion", (fusion, "publish_labels"))
def a_target_scaled_by_the_true_share(honest, y, settings, store, payment, engine):
    made = honest(y, settings, store, payment, engine)
    return replace(made, target=made.target + 1e-9 * (float(y.mean()) - 0.5))


# --- accountant, ledger and statement
@instead(BOTH, (ledger.Charge, "to"))
def half_the_charges(honest, cls, account, run, release, *, gdp=0.0, pure=0.0, rho=0.0, draw=""):
    return honest(cls, account, run, release, gdp=0.5 * gdp, pure=0.5 * pure, rho=rho, draw=draw)


@instead("fusion", (ledger.Charge, "to"))
def symbols_charged_at_half(honest, cls, account, run, release, *, gdp=0.0, pure=0.0, rho=0.0, draw=""):
    pure = 0.5 * pure if release.startswith("one symbol") else pure
    return honest(cls, account, run, release, gdp=gdp, pure=pure, rho=rho, draw=draw)


@instead("fusion", (public, "label_payment"), (private_run, "label_payment"))
def labels_not_charged(honest, *arguments):
    return replace(honest(*arguments), charges=[])


@instead("message", (message_party.MessageParty, "payment"))
def the_first_round_alone_charged(honest, self, number):
    paid = honest(self, number)
    return paid if number == 1 else replace(paid, charges=[])


@instead(BOTH, (releases.Payment, "charge"))
def nothing_charged_by_agents_without_an_account(honest, self, draw):
    if not (self.charges and self.charges[0].run.startswith("agents")):
        honest(self, draw)


@fault(*BOTH)
def second_draws_for_nothing(patch):
    honest = ledger.Ledger.holds
    patch(ledger.Ledger, "holds", lambda self, charge: bool(self.planned(charge)) or honest(self, charge))


@fault(*BOTH)
def stored_releases_drawn_again(patch):
    honest = releases.Releases._draw

    def obtain(self, name, question, payment, draw, build):
        return build(honest(self, None, question, payment, draw))

    patch(releases.Releases, "obtain", obtain)


@fault(*BOTH)
def a_budget_that_is_not_enforced(patch):
    patch(ledger.Ledger, "_check", lambda *arguments: None)


@fault(*BOTH)
def charges_add_up_to_their_largest(patch):
    place = sys.modules[ledger.Spent.__module__]
    patch(place, "compose_gdp", lambda mus: max([*mus], default=0.0))


@fault(*BOTH)
def a_delta_above_one_over_n(patch):
    patch(DifferentialPrivacy, "check_samples", lambda self, n: None)


@fault(*BOTH)
def seeded_noise_in_answers_by_files(patch):
    def source(sampler, seed, party_):
        return NoiseSource("insecure_test", 3, party_)

    patch(private_terms, "NoiseSource", source)


@fault(*BOTH)
def the_joint_epsilon_of_one_party(patch):
    patch(statement, "compose_gdp", lambda mus: max([*mus], default=0.0))


@fault(*BOTH)
def epsilons_rounded_down(patch):
    patch(statement, "rounded_up", lambda value: statement._rounded(value, math.floor))
    honest = statement.state

    def state(*arguments):
        made = honest(*arguments)
        return replace(made, epsilon=0.99 * made.epsilon)

    for place in (private_run, releases):
        patch(place, "state", state)


@instead("fusion", (private_run, "state"))
def a_person_without_the_label(honest, *arguments):
    made = honest(*arguments)
    return replace(made, person_epsilon=made.joint_epsilon)


@fault(*BOTH)
def an_accountant_that_halves_epsilon(patch):
    honest = accounting.gdp_of

    def gdp(epsilon, delta, pure=()):
        return 1.2 * honest(epsilon, delta, pure)

    for place in (accounting, fusion_party):
        patch(place, "gdp_of", gdp)
    patch(accounting, "log_delta_of", partial(_shifted, accounting.log_delta_of))


def _shifted(honest: Callable[[float, float], float], mu: float, epsilon: float) -> float:
    return honest(mu / 1.2, epsilon)


@fault(*BOTH)
def a_root_of_t_in_the_wrong_place(patch):
    honest = message_party.noise_multiplier
    patch(message_party, "noise_multiplier", lambda e, d, t: honest(e, d, 1) * t**0.25)
    tall = mechanisms.STEPS
    honest_too = mechanisms.calibrate
    patch(mechanisms, "calibrate", _of_steps(honest_too, tall))


def _of_steps(honest, tall):
    """The noise of gradients alone: counts have one number, moments four."""
    return lambda s, multiplier, n: honest(s, multiplier * (1.0 if n in (1, 4) else tall**-0.25), n)


# --- the same kinds at their plainest, each with the check that has to see it
def plain(name: str, modes: tuple[str, ...], check: str, place: Any, attribute: str, faulty: Any) -> None:
    """Register a fault that replaces one attribute."""
    FAULTS.append(Fault(name, modes, lambda patch: patch(place, attribute, faulty), check))


def of_noise(name: str, check: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Register a change of all noise, in standard deviations."""
    plant = partial(changed, change=lambda z, exact, round: change(z))
    FAULTS.append(Fault(name, BOTH, plant, check))


def low_rank(z: np.ndarray) -> np.ndarray:
    """Half of the directions carry nothing, the others all."""
    pairs = z[: len(z) // 2 * 2].reshape(-1, 2)
    return np.concatenate([np.repeat(pairs.sum(axis=1) / math.sqrt(2), 2), z[len(pairs) * 2 :]])


def unrounded(honest):
    def release(self, values, level, round, engine, stream=0):
        sent = honest(self, values, level, round, engine, stream)
        exact = np.asarray(values) + sent.values - level.grid * np.rint(np.asarray(values) / level.grid)
        return GridMessage(np.rint(exact / level.grid * 2**10).astype(np.int64), level.grid / 2**10)

    return release


def same_round(honest):
    def nonce(self, round, stream):
        honest(self, round, stream)
        return np.array([self.party, 0, stream], dtype=np.uint32)

    return nonce


class Stuck(int):
    """A count that does not go on."""

    def __add__(self, other):
        return self


of_noise("noise a fifth too small", "size of the noise", lambda z: 0.8 * z)
of_noise("noise three percent too small", "size of the noise", lambda z: 0.97 * z)
of_noise("noise that is not centred", "mean of the noise", lambda z: z + 0.2)
of_noise("noise that is bounded", "law of the noise", lambda z: np.sign(z) * (1 - np.exp(-np.abs(z))) * 2.42)
of_noise("noise in half of the directions", "noise used twice", low_rank)
plain("digits below the grid", BOTH, "", NoiseSource, "release", unrounded(NoiseSource.release))
plain(
    "noise of another round", BOTH, "noise used twice", NoiseSource, "_nonce", same_round(NoiseSource._nonce)
)


@fault(*BOTH)
def noise_that_a_forked_process_draws_as_well(patch):
    patch(noise.os, "getpid", lambda: 1)
    patch(NoiseSource, "_forks", Stuck())


class CleanLater(message.MessageSolver):
    """A party subtracts its clean message instead of the noisy one it sent."""

    def _target(self, m):
        if not (self.n_rounds and self.parties):  # none where the parties are elsewhere
            return super()._target(m)
        clean = self.parties[m].block.product(self.parties[m].weights, self.engine)
        return super()._target(m) - self.messages[m] + clean


def parameter_noise(self, w, round):
    """The message of noisy weights."""
    self.solve(w)
    spoiled = self.weights + 1e3 * np.random.default_rng().normal(size=len(self.weights))
    sent = self.block.product(spoiled, self.engine)
    return GridMessage(np.rint(sent / self.level.grid).astype(np.int64), self.level.grid)


def papers_sensitivity(settings, mu, n):
    """Lemma 1 with 66 columns, two parties and b_1 = B."""
    return Sensitivity(lemma_sensitivity(66, 1.0, mu, 1.0, settings.ball, 2), "Lemma 1")


COST, PUBLIC, WHOLE = "cost of all", "what is public, on neighbours", "cost of a whole message, replayed"
party, zero_out = message_party.MessageParty, Sensitivity(2.1526, "T3")

for name, check, place, attribute, faulty in (
    ("targets not clipped", COST, party, "public_target", lambda self, w: w),
    ("rows not clipped", COST, message, "clipped_block", lambda block, name: block),
    ("messages not clipped", COST, party, "exact", lambda self, w: self.solve(w)),
    ("the calibration of the paper", COST, message_party, "message_sensitivity", papers_sensitivity),
    ("the bound of zero-out", COST, message_party, "message_sensitivity", lambda *_: zero_out),
    ("noise on parameters", PUBLIC, party, "noised", parameter_noise),
    ("a clean message in the target", PUBLIC, message, "MessageSolver", CleanLater),
):
    plain(name, ("message",), check, place, attribute, faulty)


def calibrated(factor, of, honest=mechanisms.calibrate):
    """Noise of another size, declared as it is: of counts (one number), moments (four) or gradients."""

    def faulty(sensitivity, multiplier, n):
        kind = {1: "counts", 4: "moments"}.get(n, "gradients")
        return honest(sensitivity, multiplier * (factor if kind == of else 1.0), n)

    return faulty


def at_twice(function, which):
    """The function with one of its arguments doubled."""
    return lambda *given: function(*(2 * a if k == which else a for k, a in enumerate(given)))


def exact_centre(block, *given, make=fusion_party.make_message):
    """The channel's centre is taken from clean scores."""
    made = make(block, *given)
    scores = block.product(made.model.weights, given[4])
    return replace(made, channel=replace(made.channel, center=float(scores.mean())))


twice_kept, twice_chosen = at_twice(mechanisms.keep_probability, 0), at_twice(mechanisms.choose_channel, 0)
twice_labels = at_twice(public.randomise_labels, 1)

for name, check, place, attribute, faulty in (
    ("a forgotten root of 40", WHOLE, mechanisms, "calibrate", calibrated(1 / math.sqrt(40), "gradients")),
    ("half of the noise of the moments", WHOLE, mechanisms, "calibrate", calibrated(0.5, "moments")),
    ("a forgotten root of 9", WHOLE, mechanisms, "calibrate", calibrated(1 / 3, "counts")),
    ("a gradient bound of 1", WHOLE, mechanisms, "gradient_sensitivity", lambda target: 1.0),
    ("rows as long as they are", WHOLE, fusion_party, "row_norms", lambda block, _: np.zeros(block.shape[0])),
    ("symbols at twice epsilon", WHOLE, fusion_party, "choose_channel", twice_chosen),
    ("symbols kept too often", WHOLE, mechanisms, "keep_probability", twice_kept),
    ("a centre of clean scores", PUBLIC, fusion_party, "make_message", exact_centre),
    ("labels at twice epsilon", "randomised labels", public, "randomise_labels", twice_labels),
):
    plain(name, ("fusion",), check, place, attribute, faulty)
