"""What privacy is asked for: one frozen object of its mode's class, checked before data are read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from inspect import Parameter, Signature, cleandoc, formatannotation, signature
from numbers import Real
from typing import Any, ClassVar, Self, TypedDict, Unpack

from fastadmm.errors import ConfigError, PrivacyBudgetError
from fastadmm.other_names import choose_instead, near_key
from fastadmm.settings.checks import check_value
from fastadmm.settings.setting import Setting, declare, settings_of

#: Heading of the options in the help.
PANEL = "Privacy (docs/privacy.md)"

#: Which two data sets count as neighbours, and how a statement says it.
ADJACENCIES: dict[str, str] = {
    "replace_one": "one record's features in one party are replaced by any others",
    "zero_out": "one record's features in one party are present or absent (all zero)",
    "column": "one feature column of one party moves by at most 1 in l2 norm (research only: "
    "this protects one cell, not a person and not a feature)",
}

#: Where noise comes from; only the first two are private.
SAMPLERS: tuple[str, ...] = ("grid", "discrete", "insecure_test")

#: Settings of older versions, with the only value that there is now.
_CONSTANTS = (("message_center", 0.0), ("shrink", True))

_budget = partial(declare, "budget", panel=PANEL)

#: A positive number beyond which squares overflow, or the accountant finds no root.
_positive = partial(_budget, sign="positive", most=1e12)

#: How the mode itself is declared, by every mode's class.
_mode = partial(
    _budget,
    "`none`, `fusion` ([fusion.md](fusion.md)) or `message`",
    "Differential privacy: none, fusion or message.",
    option="--privacy",
)


class _Settings(TypedDict, total=False):
    """Those of all modes, for checkers of types and editors; at run time the modes' classes decide."""

    epsilon: float
    delta: float
    adjacency: str
    label_epsilon: float | None
    sampler: str
    seed: int | None
    total_epsilon: float | None
    public_scaling: bool
    allow_infinite_epsilon: bool
    rounds: int
    ball: float
    target_clip: float | None
    message_clip: float | None
    model_share: float
    model_epsilon_max: float
    row_norm: float | None
    label_party: str | None


@dataclass(frozen=True, init=False, repr=False)
class Privacy:
    """What to protect, how strongly, and the constants that the proofs need.

    The mode decides which settings there are: what belongs to another one is refused.
    """

    mode: str = _mode(default="none")
    __signature__: ClassVar[Signature]

    def __new__(cls, /, mode: str = "none", *values: Any, **settings: Unpack[_Settings]) -> Privacy:
        """Settings of the mode's class; that of ``__init__`` is called next."""
        kind: type[Privacy] = cls
        if cls not in _KINDS.values():
            if mode not in MODES:
                raise ConfigError(f"mode: unknown choice {mode!r}; {choose_instead(mode, MODES)}")
            kind = _KINDS[mode]
        for name in settings:
            _check_name(name, kind)
        return object.__new__(kind)

    def __post_init__(self) -> None:
        if self.mode != type(self).mode:
            raise ConfigError(
                f"mode: these settings are of mode {type(self).mode!r}; make others for {self.mode!r}"
            )

    def __repr__(self) -> str:
        said = {f.name: getattr(self, f.name) for f in fields(self)}
        others = "".join(f", {f.name}={said[f.name]!r}" for f in fields(self) if said[f.name] != f.default)
        return f"Privacy(mode={self.mode!r}{others})"

    def label_holder(self, names: Sequence[str]) -> str | None:
        """The party that holds the labels in mode "fusion"; None in other modes.

        Parameters
        ----------
        names : sequence of str
            The parties; the first, where ``label_party`` is None.
        """
        return None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for TOML and JSON, which have no None."""
        family: Any = type(self)
        own = settings_of(family)
        values = {key: getattr(self, key) for key in own if getattr(self, key) is not None}
        return values | {key: s.none for key, s in own.items() if s.none and getattr(self, key) is None}

    @staticmethod
    def from_dict(values: Mapping[str, Any], place: str = "privacy") -> Privacy:
        """Inverse of :meth:`to_dict`, for a TOML table ``[privacy]``.

        Parameters
        ----------
        values : mapping
            Keys are the fields' names.
        place : str
            What error messages begin with.

        Returns
        -------
        Privacy

        Raises
        ------
        ConfigError
            If a key is unknown or a value wrong.
        """
        none = {key: setting.none or None for key, setting in settings_of_modes().items()}
        now = {key: value for key, value in values.items() if (key, value) not in _CONSTANTS}
        given: dict[str, Any] = {k: None if value == none.get(k) else value for k, value in now.items()}
        try:
            return Privacy(**given)
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None

    def with_(self, **changes: Any) -> Self:
        """A copy with some fields changed, checked again.

        Parameters
        ----------
        **changes
            Fields and their new values.
        """
        return replace(self, **changes)


@dataclass(frozen=True, repr=False)
class NoPrivacy(Privacy):
    """Mode "none": messages are exact, and there is nothing else to say."""


@dataclass(frozen=True, repr=False)
class DifferentialPrivacy(Privacy):
    """What all modes with an epsilon have."""

    epsilon: float = _positive(
        help="Privacy budget, the epsilon of each party or owner for one record.",
        default_doc="needed",
        infinite=True,
        default=math.inf,
    )
    delta: float = _positive(
        help="Failure probability of the guarantee, below 1/N.",
        below=1,
        default=1e-5,
    )
    adjacency: str = _budget(
        "which data sets are neighbours, see *Adjacency*",
        choices=tuple(ADJACENCIES),
        default="replace_one",
    )
    label_epsilon: float | None = _positive(
        "ε of randomised response on labels, drawn once, before anything else "
        "([fusion.md](fusion.md)); by default labels are not protected",
    )
    sampler: str = _budget(
        '`grid`, `discrete` (needs `pip install "fastadmm[privacy]"`), or `insecure_test`, which '
        "gives no guarantee",
        choices=SAMPLERS,
        default="grid",
    )
    seed: int | None = _budget("seed of `insecure_test`; refused with other samplers")
    total_epsilon: float | None = _positive("budget of all runs that share `ledger`", default_doc="`epsilon`")
    public_scaling: bool = _budget(
        "states that scales, fill values and categories do not come from the private rows",
        default=False,
    )
    allow_infinite_epsilon: bool = _budget(
        "train even if no ε is proved; otherwise such a run is refused before anything is drawn or "
        "charged (exit code 9)",
        default=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        family: Any = type(self)
        for name, setting in settings_of(family).items():
            _check(setting, getattr(self, name))
        if self.total_epsilon is not None and self.total_epsilon < self.epsilon:
            raise ConfigError("total_epsilon: all runs together cannot have less than this run's epsilon")
        if math.isinf(self.epsilon):
            raise ConfigError(f"epsilon: mode {self.mode!r} needs a finite one, for example 1")
        if self.seed is not None and self.sampler != "insecure_test":
            raise ConfigError(
                "seed: private noise is never seeded; remove it, or take sampler 'insecure_test' for tests"
            )

    @property
    def budget(self) -> float:
        """Epsilon that a ledger allows over all runs."""
        return self.epsilon if self.total_epsilon is None else self.total_epsilon

    @property
    def exchanges(self) -> int:
        """How often each party sends."""
        return 1

    def check_samples(self, n_samples: int) -> None:
        """Refuse a delta that would let one whole record be published."""
        if not self.delta < 1.0 / max(n_samples, 1):
            raise ConfigError(
                f"delta: {self.delta:g} is not below 1/N = {1.0 / n_samples:.3g} for {n_samples} records: "
                "publishing one record at random would satisfy it; choose a smaller one"
            )

    def refuse_unproved(self, unproved: Mapping[str, str], *, labels: bool = False) -> None:
        """Refuse a run that would claim an infinite epsilon, unless that is said to be wanted; or of labels.

        Theorem: ``docs/privacy.md#what-a-private-run-takes-as-public``.
        """
        wanted, more = self.label_epsilon is not None, ""
        claim = f"label_epsilon {self.label_epsilon or 0.0:g} was asked for"
        if not labels:
            wanted = not self.allow_infinite_epsilon
            more = "; or go on with epsilon = infinity by allow_infinite_epsilon = true"
            claim = f"epsilon {self.epsilon:g} was asked for, but none is proved"
        # The tests' sampler claims nothing by construction: there is no claim to protect.
        if wanted and self.sampler != "insecure_test":
            for name, reason in unproved.items():
                if reason:
                    raise PrivacyBudgetError(f"{name}: {claim}: {reason}{more}")


@dataclass(frozen=True, repr=False)
class MessagePrivacy(DifferentialPrivacy):
    """Mode "message": ADMM sharing with Gaussian noise on every message."""

    mode: str = _mode(default="message")
    rounds: int = _budget(
        "T, number of messages of each party, fixed and charged in advance (`message`)",
        option="--private-rounds",
        sign="positive",
        default=1,
    )
    ball: float = _positive("B, bound on each party's weights (`message`)", default=8.0)
    target_clip: float | None = _positive("W, bound on public targets (`message`)", default_doc="`ball`")
    message_clip: float | None = _positive(
        'b, bound on each message entry (`message`); `"none"` for no clip', none="none", default=2.0
    )

    @property
    def exchanges(self) -> int:
        """How often each party sends."""
        return self.rounds

    @property
    def clip_of_targets(self) -> float:
        """W; the ball's radius where ``target_clip`` is None, for which the sensitivity is smallest."""
        return self.ball if self.target_clip is None else self.target_clip


@dataclass(frozen=True, repr=False)
class FusionPrivacy(DifferentialPrivacy):
    """Mode "fusion": locally private models and one symbol per record."""

    mode: str = _mode(default="fusion")
    model_share: float = _positive(
        "share of ε for a party's Gaussian releases, at most `model_epsilon_max` (`fusion`)",
        below=1,
        default=0.4,
    )
    model_epsilon_max: float = _positive("upper limit of this share of ε (`fusion`)", default=1.0)
    row_norm: float | None = _positive(
        "R, public bound; in training, longer rows are scaled down to it. By default found with "
        "noise and charged (`fusion`)"
    )
    label_party: str | None = _budget("party that holds the labels (`fusion`)", default_doc="the first")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adjacency == "column":
            raise ConfigError("adjacency: 'column' is for mode 'message'; fusion protects records")

    def label_holder(self, names: Sequence[str]) -> str:
        """The party that holds the labels."""
        return names[0] if self.label_party is None else self.label_party


#: Class of each mode, the default first.
_KINDS = {kind.mode: kind for kind in (NoPrivacy, FusionPrivacy, MessagePrivacy)}

#: Modes, the default first.
MODES: tuple[str, ...] = tuple(_KINDS)


@cache
def settings_of_modes() -> dict[str, Setting]:
    """The settings of all modes, by key, with the mode itself as the default has it."""
    return {key: setting for kind in reversed(_KINDS.values()) for key, setting in settings_of(kind).items()}


def _signature(*kinds: Any) -> Signature:
    """The settings of modes with the types of their values only, for ``help``."""
    made = (signature(kind.__init__, eval_str=True).parameters for kind in reversed(kinds))
    _, mode, *others = {name: p for parameters in made for name, p in parameters.items()}.values()
    return Signature([mode, *(p.replace(kind=Parameter.KEYWORD_ONLY) for p in others)])


for _kind in (*_KINDS.values(), Privacy):
    _kind.__signature__ = _signature(*(_KINDS.values() if _kind is Privacy else (_kind,)))

_without_links = partial(re.compile(r"\[([^]]*)\]\([^)]*\)").sub, r"\1")

#: The section on all settings, of their declarations.
_ENTRIES = [
    f"{name} : {formatannotation(p.annotation)}\n    {_without_links(settings_of_modes()[name].doc)}"
    for name, p in Privacy.__signature__.parameters.items()
]
Privacy.__doc__ = "\n".join([cleandoc(Privacy.__doc__ or ""), "", "Parameters", "----------", *_ENTRIES])


def without_other_modes(values: Mapping[str, Any]) -> dict[str, Any]:
    """A table that an older version wrote: without ``slack``, and defaults of settings of other modes."""
    own = settings_of(_KINDS.get(str(values.get("mode")), NoPrivacy))
    others = {key: s.default for key, s in settings_of_modes().items() if key not in own}
    kept = {key: value for key, value in values.items() if key not in others or value != others[key]}
    return {key: value for key, value in kept.items() if key != "slack"}


def _check_name(name: str, kind: Any) -> None:
    """Refuse a setting that a mode has not."""
    if name in settings_of(kind):
        return
    having = [mode for mode, other in _KINDS.items() if name in settings_of(other)]
    if not having:
        near, _ = near_key(name, settings_of_modes())
        hint = f"did you mean {near!r}?" if near else f"choose among {', '.join(sorted(settings_of_modes()))}"
        raise ConfigError(f"unknown key {name!r}; {hint}")
    if kind is NoPrivacy:
        raise ConfigError(
            f"{name}: mode 'none' gives none; choose mode {' or '.join(map(repr, having))}: "
            f"--privacy {having[0]}"
        )
    raise ConfigError(f"{name}: mode {kind.mode!r} has none, mode {having[0]!r} has; remove it")


def _check(setting: Setting, value: Any) -> None:
    """Refuse a value of another type or range than declared."""
    if value is None and (setting.none or setting.default is None):
        return
    if isinstance(value, Real) and not isinstance(value, int | float):
        value = value.item() if hasattr(value, "item") else float(value)  # of NumPy
    try:
        check_value(setting, value)
    except ValueError as error:
        raise ConfigError(f"{setting.key}: {error}") from None
