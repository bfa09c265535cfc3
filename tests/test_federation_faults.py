"""A small share of the faults between organisations, and their table; all: ``make federation-faults``."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from page_outputs import between_markers
from scripts import script_of

CAMPAIGN = Path(__file__).parent / "faults" / "federation.py"
MEASURED = Path(__file__).parents[1] / "bench" / "federation_faults.json"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
@pytest.mark.parametrize(("way", "faults"), [("sockets", 6), ("nvflare", 8)])
def test_a_share_of_the_faults_is_survived(way: str, faults: int) -> None:
    if way == "nvflare":
        pytest.importorskip("nvflare", reason='needs NVFlare: pip install "fastadmm[nvflare]"')
    # In a process of its own: it forks, which threads do not survive.
    numbers = {"--faults": 0, "--nvflare": 0, "--faults" if way == "sockets" else "--nvflare": faults}
    command = [sys.executable, "-P", CAMPAIGN, *(str(part) for pair in numbers.items() for part in pair)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counted = json.loads(done.stdout)[way]
    assert len(counted) >= (3 if way == "sockets" else 7)  # a link is cut in a network of one's own
    assert sum(row["faults"] for row in counted.values()) >= faults
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
