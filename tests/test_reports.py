"""Reports: any run gives a page, the same run the same bytes, and a damaged run one clear line."""

import base64
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from fastadmm.errors import ConfigError, StorageError
from fastadmm.figures.numbers import format_number, format_percent, round_up
from fastadmm.problem.losses import get_loss
from fastadmm.reports import read_records, write_report
from fastadmm.solver.metrics import evaluation_metrics


def fake_round(t: int, n_parties: int = 3) -> dict:
    gap = 0.25 * 0.5**t
    return {
        "round": t,
        "seconds": 0.05 * t,
        "objective": 0.32 + 0.4 * gap,
        "gap": gap / 0.32,
        "gap_absolute": gap,
        "primal_residual": 30 * gap,
        "dual_residual": 9 * gap * (1.3 + math.sin(t)),
        "augmented_lagrangian": 0.32 + 0.6 * gap,
        "lyapunov": 0.32 + 2 * gap,
        "penalty": 0.05,
        "weight_norms": [(m + 1) * (1 - 0.5**t) for m in range(n_parties)],
        "test": {"log_loss": 0.33 + gap, "accuracy": 0.85 - 0.1 * gap, "auc": 0.9 - 0.1 * gap},
    }


def write_rounds(path, rounds):
    (path / "rounds.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rounds))


def fake_run(path, n_rounds=12, status="converged", names=("bank", "telco", "clinic"), **changes):
    """Write a run directory from a formula; ``changes`` go into result.json."""
    path.mkdir(parents=True, exist_ok=True)
    rounds = [fake_round(t, len(names)) for t in range(1, n_rounds + 1)]
    write_rounds(path, rounds)
    settings = 'loss = "logistic"\nlambda = 1e-4\ngap = 1e-3\n\n[data]\ntrain = "a.parts"\n'
    (path / "run.toml").write_text(settings)
    (path / "environment.json").write_text(json.dumps({"python": "3.11", "packages": {"numpy": "2.0"}}))
    if status is not None:
        last = rounds[-1] if rounds else {}
        told = {k: last.get(k) for k in ("seconds", "objective", "gap", "gap_absolute")}
        told |= {
            "status": status,
            "rounds": n_rounds,
            "scheme": "sharing",
            "lambda": 1e-4,
            "loss": "logistic",
        }
        told |= {"n_samples": 32561, "intercept": 0.0, "message": ""}
        told["parties"] = [
            {"name": name, "n_features": 10 + m, "weight_norm": float(m + 1), "file": f"party-{m + 1}.h5"}
            for m, name in enumerate(names)
        ]
        (path / "result.json").write_text(json.dumps(told | changes))
    return path


@pytest.fixture(name="run")
def a_run(tmp_path):
    return fake_run(tmp_path / "run")


class Page(HTMLParser):
    """Checks nesting and collects links and texts."""

    VOID = frozenset({"meta", "br", "link", "img", "hr", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack, self.text, self.links = [], [], []
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.stack.append(tag)
        self._attributes(attrs)

    def handle_startendtag(self, tag, attrs):
        self._attributes(attrs)

    def _attributes(self, attrs):
        for key, value in attrs:
            if key in ("src", "href", "xlink:href", "data", "action"):
                self.links.append(value)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def page_of(run) -> Page:
    return Page(write_report(run).read_text(encoding="utf-8"))


def test_page_is_complete_and_self_contained(run):
    y = np.arange(200) % 2
    z = (np.arange(200) * 0.37) % 1.0 - 0.5
    evaluation = {"data": "a9a.t.parts", "metrics": evaluation_metrics(get_loss("logistic"), y, z)}
    (run / "evaluation.json").write_text(json.dumps(evaluation))
    path = write_report(run)
    assert path == run / "report.html"
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    for expected in ("Certified", "bank", "telco", "clinic", "32 561", "a9a.t.parts", "Brier score"):
        assert expected in page.words
    assert text.count("<img") == 4  # three from the log, and calibration
    assert all(link.startswith("data:image/svg+xml;base64,") for link in page.links)
    svg = base64.b64decode(page.links[0].partition(",")[2]).decode()
    assert "<script" not in svg
    assert "mean predicted probability" in svg
    assert not re.search("@import|<script|https?://", text)
    assert [p.name for p in run.iterdir() if p.name.startswith(".")] == []


@pytest.mark.repeats
def test_another_process_writes_the_same_bytes(run, tmp_path):
    first = write_report(run, tmp_path / "a.html").read_bytes()
    code = "import sys; from fastadmm.reports import write_report; write_report(*sys.argv[1:])"
    subprocess.run([sys.executable, "-c", code, str(run), str(tmp_path / "c.html")], check=True, timeout=120)
    assert (tmp_path / "c.html").read_bytes() == first


def test_certificate_in_plain_words(run):
    words = page_of(run).words.replace("\N{NO-BREAK SPACE}", " ")
    found = re.search(r"The model's objective is at most ([0-9.]+) % above the best possible", words)
    last = fake_round(12)
    exact = 100 * last["gap_absolute"] / (last["objective"] - last["gap_absolute"])
    assert exact <= float(found[1]) <= 1.1 * exact  # rounded up: still a bound


@pytest.mark.representatives(2)
@pytest.mark.parametrize("n_rounds", [3, 0, 1, 2])
@pytest.mark.parametrize(
    ("status", "badge", "sentence"),
    [
        ("max_rounds", "Stopped", "stopped before the target"),
        ("time_limit", "Stopped", "stopped before the target"),
        ("at_rounding", "Stopped", "more rounds prove no more"),
        ("interrupted", "Stopped", "can be resumed"),
        ("diverged", "Diverged", "must not be used"),
        ("something-new", "Stopped", "something-new"),
        (None, "Not finished", "has not finished before the target"),
    ],
)
def test_other_endings_and_short_runs(tmp_path, status, badge, sentence, n_rounds):
    words = page_of(fake_run(tmp_path / "run", n_rounds=n_rounds, status=status)).words
    assert badge in words
    assert sentence in words or n_rounds == 0  # without a round no gap is far from the target
    assert "Certified" not in words
    assert ("No rounds have been logged yet" in words) == (n_rounds == 0)


def test_pages_without_numbers(tmp_path):
    words = page_of(fake_run(tmp_path / "run", gap=None, gap_absolute=None, n_rounds=0)).words
    assert "without a certificate" in words
    assert "nothing is proved" in words
    # Rounds without optional numbers.
    run = fake_run(tmp_path / "run", status=None)
    (run / "rounds.jsonl").write_text('{"round": 1, "objective": 0.5}\n{"round": 2, "objective": 0.5}\n')
    page = page_of(run)
    assert len(page.links) == 1
    # Names from files are escaped.
    run = fake_run(tmp_path / "run", names=HOSTILE, message="<img src=x>", scheme="<b>", loss="</style>")
    (run / "run.toml").write_text('"<i>k" = "<u>v"\n["<h1>"]\na = ["<s>", {b = "<q>"}]\n')
    (run / "evaluation.json").write_text(json.dumps({"data": "<p>", "metrics": {"<em>": 1.0}}))
    text = write_report(run).read_text(encoding="utf-8")
    page = Page(text)
    for tag in ("<script", "<img src=x", "<b>", "<i>", "<u>", "<s>", "<q>", "<em>"):
        assert tag not in text
    assert text.count("</style>") == 1
    assert "<script>alert(1)</script>" in page.words


HOSTILE = (
    "<script>alert(1)</script>",
    '_$x$ & "q" \u540d\u524d\n\x01',
    "' onload='x' style=\"stroke: #0072b2\"",
    "\ud800",
)


@pytest.mark.representatives(2)
@pytest.mark.parametrize("tail", [b'{"round": 13, "obj', b"{", b"\0\0\0\0", b'{"a": "\xc3', None])
def test_torn_last_line_is_dropped_and_a_whole_one_counts(run, tail):
    log = run / "rounds.jsonl"
    log.write_bytes(log.read_bytes().rstrip(b"\n") if tail is None else log.read_bytes() + tail)
    history = read_records(run).history
    assert len(history) == 12
    assert history.round[-1] == 12
    write_report(run)


def test_resumed_rounds_replace_earlier_ones(run):
    log = run / "rounds.jsonl"
    again = {**fake_round(11), "objective": 7.0}
    log.write_text(log.read_text() + json.dumps(again) + "\n")
    history = read_records(run).history
    assert history.round.tolist() == list(range(1, 12))
    assert history.series["objective"][-1] == 7.0


def test_output_must_be_a_page(run, tmp_path):
    before = (run / "rounds.jsonl").read_bytes()
    with pytest.raises(ConfigError, match=r"ends in \.html"):
        write_report(run, run / "rounds.jsonl")
    assert (run / "rounds.jsonl").read_bytes() == before
    with pytest.raises(StorageError):
        write_report(run, tmp_path / "absent" / "page.html")


def test_numbers_as_people_read_them():
    numbers = (None, math.nan, math.inf, 0.0, 32561, 0.05, 1e-4, 2.5e-7, -2.5e-7, 1234567.8)
    texts = ["–", "–", "∞", "0", "32\u202f561", "0.05", "0.0001", "2.5e-07", "−2.5e-07", "1.235e+06"]
    assert [format_number(value) for value in numbers] == texts
    shares = [format_percent(x).replace("\N{NO-BREAK SPACE}", " ") for x in (0.0, 2.61e-6, 0.0123, 0.5, 2.0)]
    assert shares == ["0 %", "0.00027 %", "1.3 %", "50 %", "200 %"]
    for value in (1.0, 0.991, 0.999999, 1.01e-7, 9.99e-9, 123.4, 5e-324, 0.1 + 0.2):  # never below
        assert value <= round_up(value) <= max(1.11 * value, 1e-323)
