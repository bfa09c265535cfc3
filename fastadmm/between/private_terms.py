"""What a private run by files is about: settings travel as text, its protection a party decides itself."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastadmm.between.schema import refused
from fastadmm.errors import ConfigError, FormatError, PrivacyBudgetError
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
        raise refused("privacy", text, FormatError)
    if "privacy" not in terms:
        return None
    try:
        settings = Privacy.from_dict(json_of(terms["privacy"], foreign=True))
        if isinstance(settings, DifferentialPrivacy):
            settings.check_samples(int(terms["n_samples"]))
    except (ValueError, TypeError, AttributeError, ConfigError) as error:
        raise refused("privacy", f"{place}: argument 'privacy': {error}", FormatError) from None
    if settings.mode != terms["family"] or not isinstance(settings, DifferentialPrivacy):
        text = f"{place}: argument 'privacy': mode {settings.mode!r} in a run {terms['family']!r}"
        raise refused("privacy", text, FormatError)
    return settings


#: Keys of an approval's table ``privacy`` that only the owner of the data says.
OWNERS = ("total_epsilon", "public_scaling", "allow_infinite_epsilon")

#: What only bounds a request, or is not the requester's to say.
_NOT_COMPARED = (*OWNERS, "mode", "epsilon", "delta")


def drafted(asked: DifferentialPrivacy) -> DifferentialPrivacy:
    """What a request asks for; what only the owner can say is not said yet."""
    owners = {"public_scaling": False, "allow_infinite_epsilon": False}
    return asked.with_(total_epsilon=float(asked.budget), **owners)


def protection_table(agreed: DifferentialPrivacy, penalty: float | None) -> dict[str, Any]:
    """As the file of an approval has it."""
    said = {key: value for key, value in agreed.to_dict().items() if key != "mode"}
    return said if penalty is None else {**said, "penalty": penalty}


def protection_of(table: Mapping[str, Any], family: str, place: str) -> DifferentialPrivacy:
    """Inverse of :func:`protection_table`, without the penalty; what it does not say has its default."""
    for key in ("epsilon", "delta", "total_epsilon", "adjacency", "sampler"):
        if key not in table:
            raise ConfigError(f"{place}: key {key!r} is missing")
    said = {key: value for key, value in table.items() if key != "penalty"}
    agreed = Privacy.from_dict({"mode": family, **said}, place)
    if not isinstance(agreed, DifferentialPrivacy):
        raise ConfigError(f"{place}: not of a run {family!r}")
    return agreed


def privacy_excess(
    agreed: DifferentialPrivacy, penalty: float | None, asked: DifferentialPrivacy, terms: Mapping[str, Any]
) -> str:
    """What of a request is beyond an approval; empty for nothing: ``docs/privacy.md#outcomes-are-public``."""
    for key, value in (("epsilon", asked.epsilon), ("delta", asked.delta), ("total_epsilon", asked.epsilon)):
        if not value <= (most := getattr(agreed, key)):
            return f"{key} is at most {most:g}, not {value:g}"
    allowed, wanted = (
        {key: value for key, value in one.to_dict().items() if key not in _NOT_COMPARED}
        for one in (agreed, asked)
    )
    if penalty is not None:  # an approval of an older release has none
        allowed["penalty"], wanted["penalty"] = penalty, float(terms.get("penalty", 0.0))
    for key in {**wanted, **allowed}:
        if wanted.get(key) != allowed.get(key):
            own, other = allowed.get(key, "not set"), wanted.get(key, "not set")
            return f"key {key!r} is {own!r}, but the request is about {other!r}"
    return ""


def books_of(
    data: PartyData,
    terms: Mapping[str, Any],
    run: str,
    protection: DifferentialPrivacy,
    ledger: Path | None,
    releases: Path,
    place: str,
) -> Books:
    """The books of a party in a private run by files."""
    asked = asked_privacy(terms, place)
    if asked is None or ledger is None:
        text = (
            f"{place}: a private run (mode {terms['family']!r}): what leaves is charged to your own ledger "
            "first; name its file with --ledger"
        )
        raise refused("privacy", text)
    settings = asked.with_(**{key: getattr(protection, key) for key in OWNERS})
    why = "" if settings.public_scaling else why_unproved(data.steps)
    try:
        settings.refuse_told_labels({data.name: why_no_labels(data.steps) if why else ""})
        settings.refuse_unproved({data.name: why} if why else {})
    except PrivacyBudgetError as error:
        # The requester is told no more than of an owner who has not agreed.
        error.refusal = "privacy"
        raise
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
        raise refused("privacy", text)
