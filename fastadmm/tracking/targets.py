"""What can be logged to, and what each must be able to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from fastadmm.errors import ConfigError

#: Kinds of targets; the extra of each has its name.
KINDS = ("mlflow", "tensorboard")


@dataclass(frozen=True)
class Target:
    """Where a run is logged."""

    kind: str
    place: str = ""  # tracking URI or directory; empty for the default of the kind


class Tracker(Protocol):
    """One open log of one run."""

    def begin(self, settings: dict[str, Any], privacy: dict[str, Any], first_round: int) -> None:
        """Settings and privacy statement; ``first_round`` is the next round."""

    def round(self, number: int, values: dict[str, float]) -> None:
        """Numbers of one round."""

    def flush(self) -> None:
        """Hand over what is buffered."""

    def end(self, status: str, values: dict[str, float], texts: dict[str, str]) -> None:
        """Final numbers and words; the log is closed."""

    def state(self) -> dict[str, Any]:
        """What a resumed run needs to go on with the same log."""


def parse_target(text: str) -> Target:
    """Read ``KIND`` or ``KIND=PLACE``."""
    kind, given, place = text.partition("=")
    if kind not in KINDS:
        raise ConfigError(
            f"log-to: unknown kind {kind!r}; choose {' or '.join(KINDS)}, with =DIR or =URI behind it"
        )
    if given and not place:
        raise ConfigError(f"log-to: {text!r}: nothing behind the equals sign; leave it out for the default")
    if kind == "mlflow" and "://" in place and urlsplit(place).password is not None:
        # The URI is kept in the run directory, so that a resumed run finds its log.
        raise ConfigError(
            "log-to: a password in the URI would be kept in the run directory; set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead"
        )
    return Target(kind, place)


def missing(kind: str, what: str) -> ConfigError:
    """The error for a library that is not installed."""
    return ConfigError(f'log-to: {kind} needs {what}: pip install "fastadmm[{kind}]"')
