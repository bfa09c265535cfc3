"""Put the sites of released versions beside the newest: ``python website/versions.py SITE ARCHIVE ...``.

An archive is ``site-1.2.3.tar.gz``, what ``make docs`` wrote for that release, and becomes ``SITE/1.2.3``.
``SITE/versions.json`` lists them, newest first, for the choice in the pages' side bar (``static/site.js``).
"""

from __future__ import annotations

import json
import re
import sys
import tarfile
from pathlib import Path

ARCHIVE = re.compile(r"site-(\d+(?:\.\d+)*)\.tar\.gz")


def add_versions(site: Path, archives: list[Path]) -> list[str]:
    """Unpack the sites of releases and list them."""
    found: dict[tuple[int, ...], str] = {}
    for archive in archives:
        match = ARCHIVE.fullmatch(archive.name)
        if match is None:
            raise ValueError(f"{archive}: expected a name like site-1.2.3.tar.gz")
        found[tuple(int(number) for number in match[1].split("."))] = match[1]
        with tarfile.open(archive) as packed:
            packed.extractall(site / match[1], filter="data")
    versions = [found[key] for key in sorted(found, reverse=True)]
    (site / "versions.json").write_text(json.dumps(versions) + "\n", encoding="utf-8")
    return versions


if __name__ == "__main__":
    print(*add_versions(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]))
