"""What leaves a run says nothing exact of private data, and nothing that its writer did not prove."""

import json
import re
import shutil
import tomllib
from dataclasses import replace

import h5py
import pytest
from fastadmm.privacy.published import KEPT_BACK, privacy_facts, result_numbers, result_texts, settings_of
from fastadmm.privacy.statement import PartyGuarantee, PrivacyStatement, no_privacy, rounded_up, state
from fastadmm.reports import compare_runs, read_records, write_report
from fastadmm.reports.records import comparison_rows
from fastadmm.runs.config import make_config
from fastadmm.runs.evaluate import evaluate_partition
from fastadmm.runs.export import card_text, model_card
from fastadmm.runs.train import start_run
from fastadmm.settings.privacy import Privacy
from fastadmm.store.model import content_id, open_shared_part

from run_tools import printed, run, write_problem

#: Settings of private runs with a finite claim.
PRIVATE = {
    "fusion": {"mode": "fusion", "epsilon": 2.0, "delta": 1e-4, "row_norm": 1.0},
    "message": {"mode": "message", "epsilon": 2.0, "delta": 1e-4},
}


@pytest.fixture(scope="module", params=PRIVATE)
def private(request, tmp_path_factory):
    """A directory with data and a finished, evaluated private run."""
    home = tmp_path_factory.mktemp("private")
    write_problem(home / "a.parts", 60, (3, 2))
    write_problem(home / "t.parts", 30, (3, 2), seed=5)
    keys = {"data": str(home / "a.parts"), "test": str(home / "t.parts"), "privacy": PRIVATE[request.param]}
    start_run(make_config({**keys, "lambda": 1e-2}), home / "run")
    evaluate_partition(home / "run", home / "t.parts")
    return home


def numbers_in(value):
    """All numbers of a document that are no small whole ones."""
    if isinstance(value, dict):
        return set().union(*map(numbers_in, value.values()))
    if isinstance(value, list):
        return set().union(*map(numbers_in, value))
    exact = isinstance(value, int | float) and not isinstance(value, bool) and value != int(value)
    return {float(value)} if exact else set()


def secrets_of(run_directory):
    """Exact numbers and digests that the run directory holds, but not its settings and its statement."""
    result = json.loads((run_directory / "result.json").read_text())
    settings = numbers_in(tomllib.loads((run_directory / "run.toml").read_text()))
    settings |= numbers_in(result.pop("privacy"))
    measured = numbers_in(result) | numbers_in(json.loads((run_directory / "evaluation.json").read_text()))
    for line in (run_directory / "rounds.jsonl").read_text().splitlines():
        measured |= numbers_in(json.loads(line))
    shared, _ = open_shared_part(run_directory)
    measured |= {float(shared.intercept), *map(float, shared.scales)} - {0.0, 1.0}
    digests = set(re.findall(r"sha256:[0-9a-f]{64}", (run_directory / "run.toml").read_text()))
    # What an attacker would try who has guessed everything right.
    manifest = {"loss": shared.loss, "task": shared.task, "lambda": shared.lam}
    parties = [{"name": n, "n_features": d} for n, d in zip(shared.names, shared.n_features)]
    kept = ("status", "objective", "gap", "gap_absolute", "stationarity", "rounds")
    certificate = {key: result.get(key) for key in kept}
    guess = (shared.intercept, shared.classes, shared.scales)
    digests.add(content_id({**manifest, "party": parties}, *guess, certificate))
    with h5py.File(run_directory / "model" / "coordinator.h5") as file:
        digests.add(file.attrs["digest"])
    assert len(digests) >= 2 * 4 + 2  # rows, labels and two parties of training and test data
    return measured - settings, digests


def holds(text, number):
    """Whether a text shows five digits or more of a number, however it is rounded."""
    text = re.sub(r"(?s)<(svg|style).*?</\1>", "", text)
    for word in re.findall(r"(?<![\w.])\d+\.\d+(?:e[-+]?\d+)?(?![\w.])", text):
        digits = len(word.partition("e")[0].replace(".", "").lstrip("0"))
        if digits >= 5 and abs(float(word) - abs(number)) <= 10.0 ** (1 - digits) * abs(number):
            return True
    return False


def left(home, out):
    """Everything that is made of a run to be handed on, as text."""
    run_directory = home / "run"
    made = {name: out / name for name in ("card.md", "card.json", "report.html")}
    assert run("card", run_directory, "-o", made["card.md"]) == 0
    assert run("card", run_directory, "--json", "-o", made["card.json"]) == 0
    assert run("report", run_directory, "-o", made["report.html"]) == 0
    shutil.copytree(run_directory, out / "again")
    compared = compare_runs([run_directory, out / "again"])
    texts = {name: path.read_text(encoding="utf-8") for name, path in made.items()}
    texts["c.txt"] = str(comparison_rows(compared))
    texts["c.json"] = json.dumps(compared.to_json())
    texts["model.toml"] = (run_directory / "model" / "model.toml").read_text()
    for name in open_shared_part(run_directory)[0].names:
        with h5py.File(run_directory / "model" / f"{name}.h5") as file:
            texts[f"{name}.h5"] = "\n".join(map(str, file.attrs.values()))
            assert set(file) <= {"weights", "var", "transform", "encoder"}
    records = read_records(run_directory)
    assert records.privacy is not None
    assert records.result is not None
    logged = [settings_of(records.config), privacy_facts(records.privacy)]
    logged += [result_numbers(records.result, private=True), result_texts(records.result, private=True)]
    texts["log"] = json.dumps(logged)
    texts["privacy.json"] = (run_directory / "privacy.json").read_text()
    return texts


@pytest.mark.representatives(1)
def test_what_leaves_a_private_run_holds_no_exact_number_and_no_digest(private, tmp_path):
    numbers, digests = secrets_of(private / "run")
    assert len(numbers) > 10
    for name, text in left(private, tmp_path).items():
        assert not [d for d in digests if d in text or d.removeprefix("sha256:")[:16] in text], name
        assert text.count("sha256") == name.startswith("party-"), name  # of what it holds itself
        assert not [number for number in numbers if holds(text, number)], name
        assert str(private) not in text.replace(str(private / "run"), ""), name


def test_what_leaves_says_what_was_kept_back(private, tmp_path, capsys):
    texts = left(private, tmp_path)
    for name in ("card.md", "card.json", "report.html", "c.json"):
        assert KEPT_BACK in texts[name], name
    values = re.findall(r'<dt>([^<]*)</dt><dd class="value">([^<]*)</dd>', texts["report.html"])
    assert {name for name, value in values if value == "–"} == {"Objective", "Relative gap", "Time"}
    assert "<img" not in texts["report.html"]
    capsys.readouterr()
    assert run("inspect", private / "run") == 0  # a view for who holds the run
    assert "they stay in the run directory" in " ".join(capsys.readouterr().out.split())
    # A page of a run whose privacy.json or run.toml got lost holds back what the other one says.
    for lost in ("privacy.json", "run.toml"):
        copy = tmp_path / f"without-{lost}"
        shutil.copytree(private / "run", copy)
        (copy / lost).unlink()
        assert KEPT_BACK in write_report(copy).read_text(encoding="utf-8")


def test_a_run_without_privacy_shows_its_numbers_and_no_digest(tmp_path):
    write_problem(tmp_path / "a.parts", 60, (3, 2))
    start_run(make_config({"data": str(tmp_path / "a.parts"), "rounds": 2}), tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    texts = left(tmp_path, tmp_path)
    for name in ("card.md", "card.json", "report.html", "c.json", "model.toml"):
        assert any(holds(texts[name], one["objective"]) for one in (result, result["certificate"])), name
        # The model names the weights and settings that it claims something of; neither tells of a column.
        allowed = ("weights", "settings") if name == "model.toml" else ()
        assert texts[name].count("sha256") == len(allowed), name
        assert all(result["certificate"][key] in texts[name] for key in allowed), name
        assert result["certificate"]["data"] not in texts[name], name


@pytest.mark.parametrize("value", [1230.0, 20000.0, 150.84785, 2.00001, 1.0, 0.30000001, 1e-7, 99999.9])
def test_an_epsilon_is_never_shown_smaller_than_it_is(value):
    assert value * (1 - 1e-9) <= float(rounded_up(value)) <= 1.0011 * value


def a_statement(**values):
    settings = Privacy(mode="message", epsilon=4.0, delta=1.2345678e-5)
    party = PartyGuarantee("delta", "gaussian message", "T2", 2.00001, sigma=7.46189, rounds=3, gdp=0.9)
    return replace(state(settings, [party], {"coordinator": "messages"}, ("labels",)), **values)


def test_statements_and_cards_show_every_row_no_better_than_it_is(tmp_path):
    text = dict(a_statement().table())["delta"]  # the party's row comes later than the row of delta
    assert "sigma 7.461" in text
    assert "sensitivity 2.001" in text
    assert "at delta = 1.2345678e-05" in a_statement().one_line()
    # Rows with one heading, and a party that is called like one, do not displace each other.
    write_problem(tmp_path / "a.parts", 60, (3, 2))
    start_run(make_config({"data": str(tmp_path / "a.parts"), "rounds": 1}), tmp_path / "run")
    card = model_card(tmp_path / "run")
    text = card_text({**card, "privacy": a_statement().to_json()})
    for key, value in a_statement().table():
        assert f"| {key} | {value} |" in text


def test_what_is_assumed_is_said(private, tmp_path):
    said = read_records(private / "run").privacy
    assert "honest coordinator" not in said.one_line()
    assert "bounds hold for any" in dict(said.table())["assumed"]
    for name, text in left(private, tmp_path).items():
        if name in ("card.md", "report.html"):
            assert said.assumed in text
    none = no_privacy(["a", "b"])
    assert none.one_line().endswith("an honest coordinator is assumed)")
    assert "reads columns exactly" in dict(none.table())["assumed"]
    old = {key: value for key, value in none.to_json().items() if key != "assumed"}
    assert "assumed" not in dict(PrivacyStatement.from_json(old).table())


def test_the_line_has_what_all_runs_of_a_ledger_spent(tmp_path, capsys):
    write_problem(tmp_path / "a.parts", 60, (3, 2))
    budget = {**PRIVATE["message"], "total_epsilon": 8.0}
    keys = {"data": str(tmp_path / "a.parts"), "privacy": budget, "ledger": str(tmp_path / "l.jsonl")}
    for name in ("one", "two"):
        start_run(make_config({**keys, "lambda": 1e-2}), tmp_path / name)
    capsys.readouterr()
    for name in ("one", "two"):  # the first one's own statement is from before the second
        assert run("privacy", tmp_path / name) == 0
        rows = [line for line in capsys.readouterr().out.splitlines() if "ledger now" in line]
        assert len(rows) == 2  # of each party's columns
        assert all("features" in row and row.endswith("of 2 run(s)") for row in rows)
    said = read_records(tmp_path / "two").privacy
    assert " of 8.0 at delta " in said.one_line()
    together = re.search(
        r"1 other run\(s\) in this ledger; all together epsilon ([\d.]+) of", said.one_line()
    )
    assert float(together[1]) > said.epsilon
    (tmp_path / "l.jsonl").unlink()
    assert "what else was spent on these data is not known" in printed(capsys, "privacy", tmp_path / "two")
