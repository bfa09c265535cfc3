"""A small share of the campaign of faults, and its page. The whole: ``make faults``."""

import json
import shutil
import sys

import pytest

from page_outputs import between_markers
from scripts import script_of


@pytest.fixture(scope="module")
def campaign():
    return script_of("tests/faults/campaign.py")


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)
def test_a_share_of_the_faults_is_survived(campaign, tmp_path):
    reports = list(campaign.run_campaign(240, 2, tmp_path))
    assert [report for report in reports if report[3]] == []
    assert {report[0] for report in reports} == set(campaign.subjects())
    assert {report[1] for report in reports} == set(campaign.FAULTS)


def test_the_page_shows_what_was_counted(campaign):
    counts = json.loads(campaign.MEASURED.read_text(encoding="utf-8"))
    page = campaign.PAGE.read_text(encoding="utf-8")
    assert between_markers(page, "faults", campaign.table(counts)) == page
    assert counts["faults"] == sum(n for row in counts["subjects"].values() for n in row.values())
    assert counts["lost"] == counts["silent"] == counts["traceback"] == counts["crash"] == counts["hang"] == 0
