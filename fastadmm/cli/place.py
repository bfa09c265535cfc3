"""Where settings come from, for messages about combinations that only the data or the whole reveal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastadmm.errors import ConfigError


@contextmanager
def settings_of(config: Path | None) -> Iterator[None]:
    """Name the configuration file in every :class:`ConfigError` that does not say where its value came
    from.
    """
    try:
        yield
    except ConfigError as error:
        from fastadmm.files.atomic import shown

        if config is None or shown(config) in str(error) or str(error).startswith("command line:"):
            raise
        raise ConfigError(f"{shown(config)}, with the command line: {error}") from None
