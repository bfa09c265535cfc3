"""A small share of the faults between organisations, and their table; all: ``make federation-faults``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from page_outputs import between_markers
from scripts import script_of

CAMPAIGN = Path(__file__).parent / "faults" / "federation.py"
MEASURED = Path(__file__).parents[1] / "bench" / "federation_faults.json"


# Side by side: kinds of fault over NVFlare, each with a server and sites of its own.
SITES = ("agent killed", "coordinator killed", "site's job killed", "site's job stopped")
SERVERS = ("site killed", "server's job killed", "server killed", "link cut")


def test_every_kind_of_fault_is_in_a_share() -> None:
    assert SITES + SERVERS == script_of("tests/faults/federation.py").FAR


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
@pytest.mark.parametrize(("way", "kinds"), [("nvflare", SITES), ("nvflare", SERVERS), ("sockets", ())])
def test_a_share_of_the_faults_is_survived(way: str, kinds: tuple[str, ...]) -> None:
    n_faults, n_kinds = 6, 3
    if way == "nvflare":
        pytest.importorskip("nvflare", reason='needs NVFlare: pip install "fastadmm[nvflare]"')
        n_faults = n_kinds = len(kinds) - ("link cut" in kinds and os.geteuid() > 0)
    numbers = ["--faults", 0, "--nvflare", 0, "--faults" if way == "sockets" else "--nvflare", n_faults]
    more = ["--kinds", *kinds] if kinds else []
    # In a process of its own: it forks, which threads do not survive.
    command = [sys.executable, "-P", CAMPAIGN, *map(str, numbers), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counted = json.loads(done.stdout)[way]
    # A link is cut where root may have a network of its own.
    assert len(counted) == n_kinds or (len(counted) == n_kinds - 1 and "link cut" not in counted)
    assert sum(row["faults"] for row in counted.values()) >= n_faults
    assert all(row["survived"] == row["faults"] for row in counted.values())


def test_the_page_shows_what_was_counted() -> None:
    campaign = script_of("tests/faults/federation.py")
    counts = json.loads(MEASURED.read_text(encoding="utf-8"))
    page = campaign.PAGE.read_text(encoding="utf-8")
    assert between_markers(page, "federation-faults", campaign.table(counts)) == page
    rows = [(way, row) for way in ("sockets", "nvflare") for row in counts[way].values()]
    assert sum(row["faults"] for _, row in rows) >= 200
    for way, row in rows:
        assert row["faults"] == row["survived"]
        deadline = counts["deadline" if way == "sockets" else "deadline_nvflare"]
        assert row["known"] is None or row["known"] <= deadline + campaign.MORE
