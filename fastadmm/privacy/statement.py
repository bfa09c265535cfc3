"""The privacy statement: what a run guarantees, to whom, against what, in words and as data.

Every run has one, including runs without privacy, where it says that epsilon is infinite, and why. It is a
record; nothing here decides anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from types import UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints

from fastadmm.errors import FormatError
from fastadmm.files.atomic import plain
from fastadmm.privacy.accounting import compose_gdp, epsilon_of, zcdp_epsilon, zcdp_of
from fastadmm.settings.privacy import ADJACENCIES, DifferentialPrivacy

#: What no mode protects.
NOT_COVERED: tuple[str, ...] = (
    "participation and record ids, their order, N and every party's number of columns",
    "several rows of one person (each row counts as a person of its own)",
    "whole features and a party's aggregate statistics",
    "hyper-parameters that were tuned on private data, unless the tuning runs share this run's ledger",
    "timing and crash behaviour, and a compromised machine",
)

#: What is assumed of those who take part, by mode: ``docs/privacy.md#threat-model``.
_ASSUMED = {
    "none": "an honest coordinator: one that chooses questions reads columns exactly; in proximal, any may",
    "message": "of the coordinator nothing: the bounds hold for any targets that it sends and whoever "
    "colludes; each party answers by this program, and who holds the labels randomises them where "
    "label_epsilon is set",
    "fusion": "of the label holder nothing as to the features of others: the bounds hold for any labels that "
    "it sends and whoever colludes; each party answers by this program, and the label holder randomises "
    "labels where label_epsilon is set",
}


#: What holds for weights that are no release themselves.
EXACT_WEIGHTS = "epsilon = infinity: they are exact functions of private data"


@dataclass(frozen=True)
class PartyGuarantee:
    """What one party's releases cost, for the features of one record in it."""

    name: str
    mechanism: str  # for example ``"gaussian message"`` or ``"DP gradient descent + one bit"``
    theorem: str = ""
    sensitivity: float | None = None  # largest l2 change of one release between neighbours
    sigma: float | None = None  # standard deviation of the noise on each number of a release
    rounds: int = 0  # releases charged
    gdp: float = math.inf  # mu of all Gaussian releases together
    pure: tuple[float, ...] = ()  # epsilons of pure mechanisms
    epsilon: float = math.inf
    reason: str = ""  # why epsilon is infinite; else empty


@dataclass(frozen=True)
class PrivacyStatement:
    """What a run guarantees."""

    mode: str
    unit: str  # what is protected, in words
    adjacency: str  # key of ADJACENCIES, or ``"none"``
    epsilon: float  # largest over the parties, at ``delta``
    joint_epsilon: float  # for one person who is in every party, features only
    person_epsilon: float  # the same with the label; infinite while labels are not protected
    label_epsilon: float  # pure; infinite while labels are not protected
    delta: float  # 0 where nothing is claimed
    sampler: str  # where noise comes from, ``"none"`` without noise
    parties: tuple[PartyGuarantee, ...] = ()
    seen: dict[str, str] = field(default_factory=dict)  # who sees what
    not_covered: tuple[str, ...] = NOT_COVERED
    reason: str = ""  # why epsilon is infinite; else empty
    tuning: str = ""  # what other runs the ledger has charged to the same data; empty for none
    weights: str = EXACT_WEIGHTS  # what holds for the weights themselves, which a model file contains
    assumed: str = ""  # what is assumed of those who take part; empty in a statement of an older version

    @property
    def is_private(self) -> bool:
        """Whether any finite epsilon is claimed for features."""
        return math.isfinite(self.epsilon)

    def one_line(self) -> str:
        """The statement in one line, for a terminal or a table cell."""
        if not self.is_private:
            honest = "; an honest coordinator is assumed" * (self.mode == "none")
            return f"privacy: epsilon = infinity ({self.reason}{honest})"
        protected = math.isfinite(self.label_epsilon)
        label = f"label epsilon = {rounded_up(self.label_epsilon)}" if protected else "labels not protected"
        return (
            f"privacy: epsilon = {rounded_up(self.epsilon)} at delta = {self.delta!r} per party and record "
            f"({self.adjacency}), {rounded_up(self.joint_epsilon)} for a person in all "
            f"{len(self.parties)} parties, {label}, sampler {self.sampler}"
            + (f"; {self.tuning}" if self.tuning else "")
        )

    def weights_line(self, party: str = "") -> str:
        """What holds for a file with weights, or with those of one party, in one line."""
        kept = any(p.name == party and p.gdp == 0.0 and not p.pure and not p.reason for p in self.parties)
        return f"weights: {EXACT_WEIGHTS if kept else self.weights}; training: {self.one_line()}"

    def table(self) -> list[tuple[str, str]]:
        """The statement as rows of two cells, for terminal, report and model card."""
        return [
            ("mode", self.mode),
            ("protected unit", self.unit),
            ("adjacency", self.adjacency),
            ("epsilon per party", rounded_up(self.epsilon)),
            ("epsilon, one person in all parties", rounded_up(self.joint_epsilon)),
            ("epsilon, the same with the label", rounded_up(self.person_epsilon)),
            ("label epsilon", rounded_up(self.label_epsilon)),
            ("delta", f"{self.delta!r}" if self.is_private else "–"),
            ("noise", self.sampler),
            ("weights", self.weights),
            *([("why infinite", self.reason)] if self.reason else []),
            *([("with other runs, when this one ended", self.tuning)] if self.tuning else []),
            *((party.name, _party_cell(party, self.delta)) for party in self.parties),
            *((f"seen by {who}", what) for who, what in self.seen.items()),
            *([("assumed", self.assumed)] if self.assumed else []),
            *(("not covered", text) for text in self.not_covered),
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain values; an infinite number is the text ``"inf"``, as JSON has none."""
        return dict(plain(asdict(self), "inf"))

    @classmethod
    def from_json(cls, values: Any, place: str = "privacy") -> Self:
        """Inverse of :meth:`to_json`; unknown keys are ignored."""
        try:
            return _record(cls, values)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise FormatError(f"{place}: not a privacy statement: {error}") from None


def _record(kind: Any, values: Mapping[str, Any]) -> Any:
    """A record of plain values; unknown keys are ignored, and the file they are of may have been edited."""
    hints = get_type_hints(kind)
    return kind(**{key: _typed(key, value, hints[key]) for key, value in values.items() if key in hints})


def _typed(name: str, value: Any, hint: Any) -> Any:
    """A value of the declared type, or TypeError."""
    kind, inner = get_origin(hint), get_args(hint)
    if hint is PartyGuarantee:
        return _record(hint, value)
    if kind is UnionType:  # a number or none
        return None if value is None else _typed(name, value, inner[0])
    if kind is tuple and isinstance(value, list | tuple):
        return tuple(_typed(name, item, inner[0]) for item in value)
    if hint is float and value == "inf":
        return math.inf
    if kind is dict:
        fits = isinstance(value, dict) and all(isinstance(text, str) for text in (*value, *value.values()))
    elif hint is float:
        fits = type(value) in (int, float) and not math.isnan(value)
    else:
        fits = type(value) is hint
    if not fits:
        raise TypeError(f"{name!r} is {value!r}")
    return value


def state(
    settings: DifferentialPrivacy,
    parties: Sequence[PartyGuarantee],
    seen: Mapping[str, str],
    not_covered: Sequence[str] = (),
    tuning: str = "",
    weights: str = EXACT_WEIGHTS,
) -> PrivacyStatement:
    """Put a run's statement together: composition over parties is done here, exactly."""
    seeded = "noise is seeded: sampler 'insecure_test' is for tests" * (settings.sampler == "insecure_test")
    made = []
    for party in parties:
        why = party.reason or seeded
        epsilon = math.inf if why else _epsilon(settings, party.gdp, party.pure)
        made.append(replace(party, epsilon=epsilon, reason=why))
    label = settings.label_epsilon if settings.label_epsilon is not None and not seeded else math.inf
    largest = max((party.epsilon for party in made), default=0.0)
    joint = person = math.inf
    if math.isfinite(largest):
        mu = compose_gdp(party.gdp for party in made)
        pure = [epsilon for party in made for epsilon in party.pure]
        joint = _epsilon(settings, mu, pure)
        person = _epsilon(settings, mu, [*pure, label]) if math.isfinite(label) else math.inf
    return PrivacyStatement(
        mode=settings.mode,
        unit=f"{ADJACENCIES[settings.adjacency]}; each party by itself",
        adjacency=settings.adjacency,
        epsilon=largest,
        joint_epsilon=joint,
        person_epsilon=person,
        label_epsilon=label,
        delta=settings.delta,
        sampler=settings.sampler,
        parties=tuple(made),
        seen=dict(seen),
        not_covered=(*not_covered, *NOT_COVERED),
        reason=next((party.reason for party in made if party.reason), ""),
        tuning=tuning,
        weights=weights,
        assumed=_ASSUMED[settings.mode],
    )


def _epsilon(settings: DifferentialPrivacy, gdp: float, pure: Sequence[float]) -> float:
    """Exact for continuous noise; for discrete noise what zCDP proves, pure mechanisms added."""
    if settings.mode == "message" and settings.sampler == "discrete":
        return zcdp_epsilon(zcdp_of([gdp]), settings.delta) + math.fsum(pure)
    return epsilon_of(gdp, settings.delta, pure)


def no_privacy(names: Sequence[str]) -> PrivacyStatement:
    """The statement of a run without differential privacy."""
    reason = "messages are exact functions of the data: no noise was drawn"
    others = "the other party's messages" if len(names) == 2 else "the sum of all messages"
    seen = {
        "coordinator": "record order, N, labels, every party's exact message in every round: enough to "
        "rebuild features, given as many known records as a party has columns, and every column with scheme "
        "'proximal' or where the coordinator does not follow the protocol",
        "other parties": f"gradients or targets: enough to work out all labels and {others}",
        "outsiders": "nothing, until a model or predictions are given out",
    }
    keys = ("epsilon", "joint_epsilon", "person_epsilon", "label_epsilon")
    infinite: dict[str, Any] = dict.fromkeys(keys, math.inf)
    return PrivacyStatement(
        mode="none",
        unit="nothing",
        adjacency="none",
        **infinite,
        delta=0.0,
        sampler="none",
        parties=tuple(PartyGuarantee(name, "exact message", reason=reason) for name in names),
        seen=seen,
        not_covered=("features, labels, the local models and predictions made with them", *NOT_COVERED),
        reason=reason,
        assumed=_ASSUMED["none"],
    )


def _party_cell(party: PartyGuarantee, delta: float) -> str:
    parts = [party.mechanism]
    given = party.sensitivity
    if party.theorem:
        parts.append(f"{party.theorem}: sensitivity {'–' if given is None else rounded_up(given)}")
    if party.sigma is not None:
        # Rounded down: a noise must not look larger than it is.
        parts.append(f"sigma {_rounded(party.sigma, math.floor)}")
    if party.rounds:
        parts.append(f"{party.rounds} charged release{'s' * (party.rounds != 1)}")
    parts.append(f"epsilon {rounded_up(party.epsilon)}" + (f" at delta {delta!r}" if party.gdp else ""))
    if party.reason:
        parts.append(party.reason)
    return ", ".join(parts)


def rounded_up(value: float) -> str:
    """An epsilon with four digits, rounded up, so that no page claims more than was proved."""
    return _rounded(value, math.ceil)


def _rounded(value: float, whole: Callable[[float], int]) -> str:
    if math.isinf(value):
        return "infinity"
    context = Context(prec=4, rounding=ROUND_CEILING if whole is math.ceil else ROUND_FLOOR)
    # What is within rounding of a short number is that number.
    text = f"{context.create_decimal(f'{value:.10g}'):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
