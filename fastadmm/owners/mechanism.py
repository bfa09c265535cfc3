r"""How the gradient of one record is bounded, and the noise on an owner's answers; and the losses.

``clip:XI`` scales each record's gradient to norm at most Xi: where it does, the sum is no longer the gradient
of the objective. ``features:R`` scales features (and the squared loss's targets), from which a bound on the
gradient follows in the box of parameters. Norms are l1 for Laplace answers, l2 for Gaussian ones. The
objective is per mean loss, and its penalty takes in the constant; the paper's squared loss, gradients and Xi
are twice ours, its step constants half.

An answer is a sum of bounded gradients, which replacing one record moves by at most :math:`\Delta = 2\Xi`. It
is published in whole steps of a lattice, with whole noise, so that no low-order bit of the data survives:
discrete Laplace noise whose T answers add up to epsilon, rounding included, or Gaussian noise whose T answers
are exactly :math:`\sqrt T \Delta / \sigma`-GDP.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError
from fastadmm.other_names import choose_instead
from fastadmm.privacy.accounting import noise_multiplier
from fastadmm.privacy.noise import Calibration, NoiseSource
from fastadmm.settings.owners import OwnerSettings


@dataclass(frozen=True)
class Bound:
    """A bound on every record's gradient."""

    kind: str
    xi: float  # xi, the bound on the norm of one record's gradient
    euclidean: bool  # whether the norm is l2; else l1
    target_limit: float  # bound on the absolute target; infinite for none
    theta_max: float  # half the side of the box that queries must lie in
    row_limit: float = math.inf  # R; infinite unless features are bounded
    row_norm: float = math.inf  # largest norm of ``[x, 1]`` after scaling; infinite likewise

    @property
    def enforced(self) -> bool:
        """Whether there is one, which then holds whatever the data are."""
        return math.isfinite(self.xi)

    def describe(self) -> str:
        """One sentence for people."""
        norm = "l2" if self.euclidean else "l1"
        if self.kind == "clip":
            return f"each record's gradient is clipped to {norm} norm {self.xi:g}"
        if self.kind == "features":
            target = "" if math.isinf(self.target_limit) else f", targets to {self.target_limit:g}"
            return (
                f"each record's features are scaled to {norm} norm {self.row_limit:g}{target}, parameters "
                f"stay within {self.theta_max:g}: {norm} norm of the gradient at most {self.xi:g}"
            )
        return "nothing bounds a record's gradient"


@dataclass(frozen=True)
class OwnerLoss:
    """One loss."""

    name: str
    code: int  # as in owner_gradient
    task: str  # which labels it takes
    curvature: float  # largest second derivative in z; infinite for the hinge


LOSSES: dict[str, OwnerLoss] = {
    loss.name: loss
    for loss in (
        OwnerLoss("squared", 0, "regression", 1.0),
        OwnerLoss("hinge", 1, "classification", math.inf),
        OwnerLoss("logistic", 2, "classification", 0.25),
    )
}


def get_loss(name: str, task: str, place: str = "data") -> OwnerLoss:
    """The loss of a name; ``auto`` takes squared for a regression, logistic for two classes."""
    if name == "auto":
        name = "squared" if task == "regression" else "logistic"
    if name not in LOSSES:
        raise ConfigError(f"loss: unknown loss {name!r}; {choose_instead(name, ('auto', *LOSSES))}")
    loss = LOSSES[name]
    if loss.task == "classification" and task != "classification":
        said = f"{name} needs labels of two classes (-1 and 1), but {place} has real targets"
        raise ConfigError(f"loss: {said}; convert with --task classification, or choose squared")
    return loss


def make_bound(settings: OwnerSettings, loss: OwnerLoss, n_features: int) -> Bound:
    """Work out the bound on every record's gradient that settings ask for."""
    text, intercept, theta_max = settings.bound, settings.intercept, settings.theta_max
    euclidean = settings.mechanism == "gaussian"
    target = math.inf if settings.target_bound is None else settings.target_bound
    if text is None:
        return Bound("none", math.inf, euclidean, target, theta_max)
    kind, _, number = text.partition(":")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if kind not in ("clip", "features") or not 0 < value < math.inf:
        said = "is not clip:XI or features:R with a positive number, such as clip:1"
        raise ConfigError(f"bound: {text!r} {said}")
    if kind != "features":
        return Bound(kind, value, euclidean, target, theta_max)
    row = math.sqrt(value**2 + intercept) if euclidean else value + intercept
    slope = 1.0  # the largest
    if loss.name == "squared":
        if math.isinf(target + theta_max):
            said = f"with the squared loss needs target_bound and a finite theta_max, not {theta_max:g}"
            raise ConfigError(f"bound: {text!r} {said}; give both, or clip:XI")
        # |u'theta| <= |u|_1 max|theta|, and <= |u|_2 sqrt(p) max|theta|.
        slope = theta_max * row * (math.sqrt(n_features + intercept) if euclidean else 1.0) + target
    return Bound(kind, slope * row, euclidean, target, theta_max, value, row)


# --- the noise
#: The noise's scale is about this power of two in steps of the lattice.
_SCALE_BITS = 32

#: Sums of gradients stay below this power of two in units, so that they are exact in floating point.
_SUM_BITS = 51


def system_words(count: int) -> np.ndarray:
    """Independent random 64-bit words from the operating system, shape (count,)."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def lattice_unit(n_records: int, xi: float) -> float:
    """Power of two whose multiples below ``n_records * xi`` are added without rounding; 0 for infinite xi."""
    if math.isinf(xi):
        return 0.0
    return float(2.0 ** (math.ceil(math.log2(max(1, n_records) * xi)) - _SUM_BITS))


def discrete_laplace_integers(
    scale: int, size: int, words: Callable[[int], np.ndarray] = system_words
) -> np.ndarray:
    """Exact samples of the discrete Laplace law. Shapes: the result (size,)."""
    from fastadmm.kernels.owner_gradient import RESERVE, discrete_laplace

    out = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        done = discrete_laplace(words(RESERVE + 24 * (size - done)), scale, out, done)
    return out


@dataclass(frozen=True)
class Mechanism:
    """An owner's noise; by default none, for one that trains for itself or sets epsilon to infinity."""

    name: str = "none"
    step: float = 0.0  # g, a power of two
    scale: float = 0.0  # in steps: t of the Laplace law (a whole number), sigma of the normal one

    @property
    def private(self) -> bool:
        """Whether there is noise."""
        return self.name != "none"

    @property
    def variance(self) -> float:
        """Variance of the noise on each coordinate of the sum."""
        if self.name == "laplace":
            # 2 q / (1 - q)^2 with q = exp(-1/t), written so that nothing cancels.
            return (self.step / math.sinh(0.5 / self.scale)) ** 2 / 2.0
        return (self.scale * self.step) ** 2

    def answer(self, total: np.ndarray) -> np.ndarray:
        """Publish a sum, in multiples of the step; as it is without noise. Shapes: total, the result (p,)."""
        if not self.private:
            return total
        if self.name == "gaussian":
            level = Calibration(self.scale * self.step, self.step, math.inf)
            return NoiseSource().release(total, level, 0, Engine(1)).values
        steps = np.rint(total / self.step).astype(np.int64)
        return (steps + discrete_laplace_integers(int(self.scale), len(total))) * self.step


def owner_weights(weights: str, sizes: Sequence[int], variances: np.ndarray) -> np.ndarray:
    """Weights of the owners' mean answers, by their records or in inverse proportion to their noise.

    Shapes: sizes, variances, the result (owners,).
    """
    shares = np.array(sizes, dtype=float) if weights == "size" else 1.0 / variances
    return np.asarray(shares / shares.sum())


def _step(unit: float, scale: float) -> float:
    return max(unit, float(2.0 ** (math.floor(math.log2(scale)) - _SCALE_BITS)))


def make_answers(
    settings: OwnerSettings, bound: Bound, shape: tuple[int, int], epsilon: float, delta: float | None
) -> Mechanism:
    """Calibrate the answers of an owner with so many records and parameters."""
    if math.isinf(epsilon):
        return Mechanism()
    (n_records, n_parameters), rounds = shape, settings.rounds
    unit, sensitivity = lattice_unit(n_records, bound.xi), 2.0 * bound.xi
    if settings.mechanism == "laplace":
        # Contributions were rounded to the unit: half a unit per coordinate and record; so is their sum.
        sensitivity += n_parameters * unit
        step = _step(unit, sensitivity * rounds / epsilon)
        steps = sensitivity / step + n_parameters
        scale = math.ceil(steps * rounds / epsilon * (1.0 + 2.0**-40))
        if scale > 2**55:
            said = "is too small for the noise's lattice"
            raise ConfigError(f"epsilon: {epsilon:g} over {rounds} rounds {said}")
        return Mechanism("laplace", step, scale)
    if delta is None or not 0 < delta < 1:
        raise ConfigError("delta: Gaussian answers need a delta between 0 and 1, such as 1e-6")
    if delta * n_records >= 1:
        said = "at 1/n or above, publishing a random record would count as private; give less"
        raise ConfigError(f"delta: {delta:g} with {n_records} records: {said}")
    root = math.sqrt(n_parameters)
    sensitivity += root * unit
    multiplier = noise_multiplier(epsilon, delta, rounds)
    step = _step(unit, sensitivity * multiplier)
    return Mechanism("gaussian", step, (sensitivity + root * step) * multiplier / step)
