"""What a site's operator sets for fastadmm: a file beside NVFlare's own, which NVFlare does not read.

Unknown keys of NVFlare's ``resources.json`` are sent to the server with their values, so ours are elsewhere.
"""

from __future__ import annotations

import json
from pathlib import Path

from fastadmm.errors import ConfigError, FormatError, StorageError
from fastadmm.files.reading import read_json

__all__ = ["SETTINGS", "read_socket", "write_socket"]

#: Name of the file in the kit's directory ``local``.
SETTINGS = "fastadmm.json"


def read_socket(local: str | Path) -> Path:
    """Path of the socket between NVFlare's process and the party's agent, or the coordinator."""
    path = Path(local, SETTINGS)
    try:
        settings = read_json(path, foreign=True)
    except StorageError as error:
        raise StorageError(f"{error}; write it with: fastadmm federate harden KIT") from None
    except FormatError as error:
        raise ConfigError(str(error)) from None
    socket = settings.get("socket") if isinstance(settings, dict) else None
    if not isinstance(socket, str) or not Path(socket).is_absolute() or settings.keys() != {"socket"}:
        raise ConfigError(f'{path}: must be {{"socket": "/absolute/path"}} and nothing else')
    return Path(socket)


def write_socket(local: str | Path, socket: Path) -> None:
    """Write the settings."""
    Path(local, SETTINGS).write_text(json.dumps({"socket": str(socket)}) + "\n", encoding="utf-8")
