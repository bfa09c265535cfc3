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


def linux(tests):
    """Slow, and of Linux alone."""
    return pytest.mark.slow(pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")(tests))


SITES = ("agent killed", "coordinator killed", "site's job killed", "site's job stopped")
SERVERS = ("site killed", "server's job killed", "server killed", "link cut")


def counted(way, n_faults, *kinds):
    """Counts by kind of so many faults, all of which are survived."""
    numbers = ["--faults", 0, "--nvflare", 0, "--faults" if way == "sockets" else "--nvflare", n_faults]
    more = ["--kinds", *kinds] if kinds else []
    # In a process of its own: it forks, which threads do not survive.
    command = [sys.executable, "-P", CAMPAIGN, *map(str, numbers), *more, "--more", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)[way]
    assert sum(row["faults"] for row in found.values()) >= n_faults
    return found


@linux
class TestOverSockets:
    """Classes run side by side, each with processes of its own; the shortest is first."""

    def test_faults_are_survived(self):
        near = script_of("tests/faults/federation.py").NEAR
        assert set(counted("sockets", len(near))) == set(near)


@linux
class TestOfSites:
    def test_faults_are_survived(self):
        pytest.importorskip("nvflare", reason='needs NVFlare: pip install "fastadmm[nvflare]"')
        assert set(counted("nvflare", 4, *SITES)) == set(SITES)


@linux
class TestOfServers:
    def test_faults_are_survived(self):
        pytest.importorskip("nvflare", reason='needs NVFlare: pip install "fastadmm[nvflare]"')
        # A link is cut where root may have a network of its own.
        n_faults = 3 if os.geteuid() else 4
        assert set(counted("nvflare", n_faults, *SERVERS)) >= set(SERVERS[:3])


def test_the_page_shows_what_was_counted():
    campaign = script_of("tests/faults/federation.py")
    assert SITES + SERVERS == campaign.FAR  # what CI tries a share of
    counts = json.loads(MEASURED.read_text(encoding="utf-8"))
    page = campaign.PAGE.read_text(encoding="utf-8")
    assert between_markers(page, "federation-faults", campaign.table(counts)) == page
    rows = [(way, row) for way in ("sockets", "nvflare") for row in counts[way].values()]
    assert sum(row["faults"] for _, row in rows) >= 200
    for way, row in rows:
        assert row["faults"] == row["survived"]
        deadline = counts["deadline" if way == "sockets" else "deadline_nvflare"]
        assert row["known"] is None or row["known"] <= deadline + campaign.MORE
