"""What a private run by files is about: settings travel as text, its protection a party decides itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from fastadmm.between.schema import refused
from fastadmm.errors import ConfigError, FormatError, InputError, PrivacyBudgetError
from fastadmm.files.atomic import shown
from fastadmm.files.reading import json_of
from fastadmm.privacy.accounts import feature_account
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.noise import NoiseSource
from fastadmm.privacy.origins import why_no_labels, why_unproved
from fastadmm.privacy.releases import Books
from fastadmm.settings.privacy import DifferentialPrivacy, Privacy
from fastadmm.store.party_file import PartyData

#: Families of private runs: each is the mode of the same name.
PRIVATE = ("fusion", "message")


def privacy_text(settings: Privacy) -> str:
    """Settings as the call ``start`` says them."""
    return json.dumps(settings.to_dict(), sort_keys=True)


def asked_privacy(terms: Mapping[str, Any], place: str) -> DifferentialPrivacy | None:
    """The settings of a private run; None for a run without noise."""
    if (terms["family"] in PRIVATE) != ("privacy" in terms):
        text = f"{place}: argument 'privacy' goes with families {' and '.join(PRIVATE)} alone"
        raise refused("privacy", FormatError(text))
    if "privacy" not in terms:
        return None
    try:
        settings = Privacy.from_dict(json_of(terms["privacy"], foreign=True))
        if isinstance(settings, DifferentialPrivacy):
            settings.check_samples(int(terms["n_samples"]))
    except (ValueError, TypeError, AttributeError, ConfigError) as error:
        raise refused("privacy", FormatError(f"{place}: argument 'privacy': {error}")) from None
    if settings.mode != terms["family"] or not isinstance(settings, DifferentialPrivacy):
        text = f"{place}: argument 'privacy': mode {settings.mode!r} in a run {terms['family']!r}"
        raise refused("privacy", FormatError(text))
    return settings


#: Beside ``allow_infinite_epsilon``.
GO_ON = "true: go on where nothing is proved"


@dataclass(frozen=True)
class Protection:
    """What the owner of the data agreed to in a private run."""

    epsilon: Annotated[float, "of this run, at most"]
    delta: float  # of this run, at most
    total_epsilon: Annotated[float, "of all runs that charge the same ledger"]
    adjacency: str  # what is protected
    sampler: str  # where noise comes from
    public_scaling: Annotated[
        bool, "true: you say that no centre, scale, fill or category comes from private rows"
    ] = False
    allow_infinite_epsilon: Annotated[bool, GO_ON] = False
    mechanism: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def draft(cls, settings: DifferentialPrivacy, terms: Mapping[str, Any]) -> Protection:
        """What a request asks for; what only the owner can say is not said yet."""
        s, rest = settings, _mechanism(settings, terms)
        return cls(float(s.epsilon), float(s.delta), float(s.budget), s.adjacency, s.sampler, mechanism=rest)

    def table(self) -> dict[str, Any]:
        """As the file of an approval has it."""
        return {**{key: getattr(self, key) for key in PROTECTION}, **self.mechanism}

    @classmethod
    def of_table(cls, table: Mapping[str, Any], family: str, place: str) -> Protection:
        """Inverse of :meth:`table`; what it does not say of the mechanism has its default."""
        own = {key: value for key, value in table.items() if key in PROTECTION}
        rest = {key: value for key, value in table.items() if key not in PROTECTION and key != "penalty"}
        said = {"mode": family, "epsilon": own["epsilon"], "sampler": own["sampler"], **rest}
        penalty = {key: table[key] for key in ("penalty",) if key in table}
        return cls(**own, mechanism=_mechanism(Privacy.from_dict(said, place), penalty))

    def excess(self, settings: DifferentialPrivacy, terms: Mapping[str, Any]) -> str:
        """What of a request is beyond this; empty for nothing: ``docs/privacy.md#outcomes-are-public``."""
        s = settings
        for key, asked in (("epsilon", s.epsilon), ("delta", s.delta), ("total_epsilon", s.epsilon)):
            if not asked <= (most := getattr(self, key)):
                return f"{key} is at most {most:g}, not {asked:g}"
        for key in ("adjacency", "sampler"):
            if getattr(settings, key) != getattr(self, key):
                allowed, asked = getattr(self, key), getattr(settings, key)
                return f"key {key!r} is {allowed!r}, but the request is about {asked!r}"
        rest = _mechanism(settings, terms)
        if "penalty" not in self.mechanism:
            rest.pop("penalty", None)  # an approval of an older release
        for key in {**rest, **self.mechanism}:
            if rest.get(key) != self.mechanism.get(key):
                allowed, asked = self.mechanism.get(key, "not set"), rest.get(key, "not set")
                return f"key {key!r} is {allowed!r}, but the request is about {asked!r}"
        return ""

    def agreed(self, settings: DifferentialPrivacy) -> DifferentialPrivacy:
        """The settings that hold for the party."""
        return settings.with_(
            total_epsilon=self.total_epsilon,
            public_scaling=self.public_scaling,
            allow_infinite_epsilon=self.allow_infinite_epsilon,
        )


#: What the owner says by itself.
PROTECTION = [one.name for one in fields(Protection) if one.name != "mechanism"]


def _mechanism(settings: Privacy, terms: Mapping[str, Any]) -> dict[str, Any]:
    """What else a request decides about a mechanism: settings that are not the owner's, and the penalty."""
    rest = {k: v for k, v in settings.to_dict().items() if k not in (*PROTECTION, "mode")}
    return {**rest, **({"penalty": float(terms["penalty"])} if "penalty" in terms else {})}


def books_of(
    data: PartyData,
    terms: Mapping[str, Any],
    run: str,
    protection: Protection,
    ledger: Path | None,
    releases: Path,
    place: str,
) -> Books[DifferentialPrivacy]:
    """The books of a party in a private run by files."""
    asked = asked_privacy(terms, place)
    if asked is None or ledger is None:
        text = (
            f"{place}: a private run (mode {terms['family']!r}): what leaves is charged to your own ledger "
            "first; name its file with --ledger"
        )
        raise refused("privacy", InputError(text))
    settings = protection.agreed(asked)
    why = "" if settings.public_scaling else why_unproved(data.steps)
    try:
        settings.refuse_told_labels({data.name: why_no_labels(data.steps) if why else ""})
        settings.refuse_unproved({data.name: why} if why else {})
    except PrivacyBudgetError as error:
        # The requester is told no more than of an owner who has not agreed.
        raise refused("privacy", error) from None
    position = int(terms["position"])
    return Books(
        settings,
        Ledger(ledger),
        run,
        feature_account(data),
        data.content_digest,
        releases,
        lambda: NoiseSource(settings.sampler, settings.seed, position),
        why,
    )


def refuse_ledger(ledger: Path | None, place: str) -> None:
    """Refuse a ledger in a run without noise: whoever names one expects to be protected."""
    if ledger is not None:
        text = (
            f"{place}: a run without privacy: answers are exact and nothing is charged to "
            f"{shown(ledger)}; leave --ledger out if that is meant"
        )
        raise refused("privacy", InputError(text))
