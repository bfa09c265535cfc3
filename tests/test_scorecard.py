"""Scorecards: bins against labels, weights of evidence as features, points that add up."""

import csv
import io
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastadmm.data_tools.convert import convert
from fastadmm.data_tools.convert_tables import convert_tables
from fastadmm.judging.binning import Cells, Fitted, Rules, evidence, fit_bins
from fastadmm.privacy.ledger import Ledger
from fastadmm.runs.scorecard import Binning, bin_data, column_drift, read_bins
from fastadmm.store.partition import open_partition
from fastadmm.store.party_file import open_party

from run_tools import in_file, printed, refused, run

BANK, SHOP = "id,default,age,city\n", "id,spent\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables, their partition, bins, a model and its card; new tables with what training did not have."""
    home = tmp_path_factory.mktemp("card")
    rng = np.random.default_rng(1)
    age, spent = rng.integers(18, 80, 400), rng.normal(300, 80, 400)
    city = rng.choice(["Rome", "Oslo", "O'Hara"], 400, p=[0.5, 0.4, 0.1])
    z = 0.05 * (age - 50) + 1.2 * (city == "Oslo") - 0.01 * (spent - 300)
    y = rng.random(400) < 1 / (1 + np.exp(-z))
    ages = ["" if rng.random() < 0.1 else str(a) for a in age]
    bank = [f"{i},{'yes' if y[i] else 'no'},{ages[i]},{city[i]}\n" for i in range(400)]
    shop = [f'{i};"{spent[i]:.2f} €"\n'.replace(".", ",") for i in range(400)]
    (home / "bank.csv").write_text(BANK + "".join(bank))
    (home / "shop.csv").write_text(SHOP.replace(",", ";") + "".join(shop), encoding="utf-8")
    convert_tables(home / "bank.csv", [home / "shop.csv"], home / "p", id="id", label="default",
                   missing="indicator", standardize=True)  # fmt: skip
    assert not run("scorecard", "bins", home / "p", "-o", home / "w")
    assert not run("train", home / "w", "--lambda", "1e-4", "-q", "-o", home / "run")
    assert not run("scorecard", "points", home / "run", "-o", home / "card", "--decimals", 6)
    new = "901,,17,Rome\n902,,,Paris\n903,,33,O'Hara\n904,,200,\n"
    (home / "new-bank.csv").write_text(BANK + new)
    (home / "new-shop.csv").write_text(
        "id;spent\n904;7 €\n903;-1,5 €\n902;250,25 €\n901;999 €\n", encoding="utf-8"
    )
    return home


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_bins_obey_their_rules() -> None:
    rng = np.random.default_rng(3)
    x, weight = rng.normal(size=2000).round(2), rng.uniform(0.5, 2, 2000)
    y = (rng.random(2000) < 0.5 + 0.3 * np.sin(2 * x)).astype(float)

    def rates(way: str) -> np.ndarray:
        found = fit_numbers(x, y, weight, Rules(7, 0.08, 0, way))
        place = np.array([sum(v > e for e in found.edges) for v in x])
        total = np.bincount(place, weight)
        assert total.min() >= 0.08 * weight.sum() * (1 - 1e-9)
        return np.bincount(place, weight * y) / total

    free = rates("none")
    assert len(free) == 7
    assert not (np.diff(free) > 0).all()
    assert not (np.diff(free) < 0).all()
    found = {way: rates(way) for way in ("rising", "falling", "auto")}
    assert (np.diff(found["rising"]) > 0).all()
    assert (np.diff(found["falling"]) < 0).all()
    np.testing.assert_array_equal(found["auto"], found["rising"])
    assert 2 <= len(found["rising"]) < 7
    # Categories: similar rates together, the lowest first.
    codes = rng.integers(0, 9, 2000)
    t = (rng.random(2000) < np.array([0.1, 0.5, 0.9])[codes % 3]).astype(float)
    groups = fit_bins(Cells(codes, 9), t, weight, Rules(3, 0.1)).groups
    np.testing.assert_array_equal(groups, np.arange(9) % 3)


def fit_numbers(x: np.ndarray, y: np.ndarray, weight: np.ndarray, rules: Rules) -> Fitted:
    return fit_bins(Cells.of_numbers(x, np.isnan(x)), y, weight, rules)


def test_cross_fitted_values_tell_signal_from_luck() -> None:
    """20,000 rows, 2 % of class 1: noise of many levels looks strong to the rows that chose its bins."""
    rng = np.random.default_rng(5)
    columns = {f"noise{k}": (rng.integers(0, k, 20_000), np.zeros(k)) for k in (5, 20, 60, 200)}
    for k, size in ((5, 0.3), (20, 0.3), (60, 0.5)):
        effect = rng.normal(0, size, k)
        columns[f"real{k}"] = (rng.integers(0, k, 20_000), effect)
    z = sum(effect[level] for level, effect in columns.values())
    y = (rng.random(20_000) < 1 / (1 + np.exp(4.05 - z))).astype(float)
    one = np.ones(20_000)
    found = {
        name: fit_bins(Cells(level, len(effect)), y, one, Rules())
        for name, (level, effect) in columns.items()
    }
    assert found["noise200"].iv > 0.5
    assert max(abs(found[f"noise{k}"].iv_cross) for k in (5, 20, 60, 200)) < 0.04
    assert {name for name, own in found.items() if own.worth(0.0)} == {"real5", "real20", "real60"}
    for own in found.values():  # what a row learns from is the value of the rows that did not choose
        means = [own.feature[y == k].mean() for k in (0, 1)]
        assert own.iv_cross == pytest.approx(means[0] - means[1], rel=1e-12)
        assert own.iv == pytest.approx(own.woe @ (own.others / (1 - y).sum() - own.events / y.sum()))


def test_bins_have_enough_rows_of_each_class() -> None:
    rng = np.random.default_rng(4)
    x = np.where(rng.random(3000) < 0.05, np.nan, rng.normal(size=3000))
    y = (rng.random(3000) < np.where(x < 0, 0.002, 0.03)).astype(float)
    for least in (0, 5, 12):
        found = fit_numbers(x, y, np.ones(3000), Rules(least=least))
        assert min(found.events[:-1].min(), found.others[:-1].min()) >= least
        assert (found.woe[-1] == 0.0) == (found.events[-1] < least)  # missing, and too few
        assert len(found.edges)
    assert found.events[-1] > 0


def test_bins_of_large_numbers_and_marks() -> None:
    hour = np.random.default_rng(2).integers(0, 24, 4000).astype(float)
    y = (np.random.default_rng(3).random(4000) < np.where(hour > 11, 0.3, 0.1)).astype(float)
    small, large = (fit_numbers(x, y, np.ones(4000), Rules()) for x in (hour, 5e9 + 10 * hour))
    assert 11.5 in small.edges
    np.testing.assert_array_equal(large.edges, 5e9 + 10 * small.edges)
    np.testing.assert_array_equal(small.feature, large.feature)
    # Categories with the marks of bins.
    levels = ("a", "a,b", "b|c", "c", "d=1")
    for text, groups in (
        ("a,b,c", (2, 0, 2, 1, 2)),
        ("b|c|a,d=1,c", (0, 3, 0, 2, 1)),
        ("a,b|c", (1, 0, 1, 0, 1)),
    ):
        name, own = read_bins(f"x={text}")
        assert Binning(own={name: own}).of_column(levels, "x").groups == groups
    assert read_bins("x=y=1,2e3") == ("x=y", "1,2e3")
    # Weights of evidence are log ratios of shares.
    found = evidence(np.array([10.0, 30.0, 0.0, 0.0]), np.array([50.0, 40.0, 9.5, 0.0]))
    p, q = np.array([10, 30, 0.5]) / 40.5, np.array([50, 40, 9.5]) / 99.5
    np.testing.assert_allclose(found, [*np.log(q / p), 0.0], rtol=1e-14)


def test_a_column_that_alone_separates_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=4000)
    y = rng.random(4000) < 0.03 / (1 + np.exp(-2 * x))
    rows = [f"{x[i]:.3f},{int(y[i]) * 3},{int(y[i])}\n" for i in range(4000)]
    (tmp_path / "t.csv").write_text("x,dunned,bad\n" + "".join(rows))
    convert(tmp_path / "t.csv", tmp_path / "p", label="bad", columns="2")
    capsys.readouterr()
    assert not run("scorecard", "bins", tmp_path / "p", "-o", tmp_path / "w", "--json")
    said = capsys.readouterr()
    found = {row["column"]: row for row in json.loads(said.out)["columns"]}
    assert found["dunned"]["iv_cross"] > 5
    assert {name for name, row in found.items() if row["used"]} == {"x"}
    assert "dunned: parts the classes only in bins below min_share or min_events" in said.err


def test_own_edges_and_groups(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("scorecard", "bins", home / "p", "-o", tmp_path / "w", "--bins", "age=25,40.5,79")
    assert not run(*command)
    assert "age: one of --bins has fewer than 5 rows of a class" in capsys.readouterr().err
    encoder = open_party(tmp_path / "w/guest.h5").encoder
    (age,) = [column.bins for column in encoder.columns if column.name == "age"]
    assert age.edges == (25.0, 40.5, 79.0)
    # Those that are not named share a bin; what new rows have besides says nothing, as ever.
    for given, groups in (("O'Hara|Oslo,Rome", (0, 0, 1)), ("Rome", (1, 1, 0)), ("Oslo,Rome", (2, 0, 1))):
        command = ("scorecard", "bins", home / "p", "-o", tmp_path / "w", "--bins", f"city={given}")
        assert not run(*command, "--force")
        encoder = open_party(tmp_path / "w/guest.h5").encoder
        (city,) = [column for column in encoder.columns if column.name == "city"]
        assert city.levels == ("O'Hara", "Oslo", "Rome")
        assert city.bins.groups == groups
        assert city.bins.count == max(groups) + 1
    convert_tables(home / "new-bank.csv", [home / "new-shop.csv"], tmp_path / "new", id="id",
                   like=tmp_path / "w")  # fmt: skip
    woe = open_party(tmp_path / "new/guest.h5").load()[:, encoder.feature_names.index("city")]
    assert woe.tolist() == [city.bins.woe[1], 0.0, city.bins.woe[2], 0.0]


@pytest.mark.parametrize("old", [False, True])
def test_good_rows_get_more_points(tmp_path: Path, capsys: pytest.CaptureFixture[str], old: bool) -> None:
    rng = np.random.default_rng(2)
    late = rng.integers(0, 6, 400)
    bad = rng.random(400) < 0.1 + 0.12 * late
    rows = [f"{late[i]},{'bad' if bad[i] else 'good'}\n" for i in range(400)]
    (tmp_path / "t.csv").write_text("late,state\n" + "".join(rows))
    alphabetic = ["--positive", "good"] if old else []  # as partitions of before were
    assert not run("convert", tmp_path / "t.csv", "--label", "state", "--parties", 1, *alphabetic, "-o",
                   tmp_path / "p")  # fmt: skip
    assert not run("scorecard", "bins", tmp_path / "p", "-o", tmp_path / "w")
    assert not run("train", tmp_path / "w", "-q", "-o", tmp_path / "run")
    capsys.readouterr()
    assert not run("scorecard", "points", tmp_path / "run", "-o", tmp_path / "card")
    assert "points rise as the rate of 'bad' falls" in capsys.readouterr().err
    points = [float(row["points"]) for row in read((tmp_path / "card/party-1.csv").read_text())]
    assert len(points) > 1
    assert points == sorted(points, reverse=True)
    assert not run("evaluate", tmp_path / "run", tmp_path / "w")
    name, count = ("good", 400 - bad.sum()) if old else ("bad", bad.sum())
    assert f"class 1 = {name} ({count / 4:.3g} % of rows)" in capsys.readouterr().out


def test_points_are_scaled_log_odds_wherever_they_are_added(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = (home / "bank.csv", home / "shop.csv", "--id", "id")
    scores = read(printed(capsys, "predict", home / "run", *tables))
    card = read(printed(capsys, "scorecard", "apply", home / "card", *tables))
    assert [row["id"] for row in card] == [row["id"] for row in scores]
    z = np.array([float(row["score"]) for row in scores])
    total = np.array([float(row["points"]) for row in card])
    # 600 points are odds of 50 good ones to a bad one; 20 more double them.
    np.testing.assert_allclose(total, 600 + 20 / math.log(2) * (-z - math.log(50)), atol=1e-5)
    base = json.loads((home / "card" / "card.json").read_text())["base_points"]
    for party in ("guest", "host"):  # each alone, with its own file and table
        table = home / ("bank.csv" if party == "guest" else "shop.csv")
        assert not run("scorecard", "apply", home / "card" / f"{party}.json", table, "--id", "id")
        own = {row["id"]: float(row[f"points_{party}"]) for row in read(capsys.readouterr().out)}
        total -= np.array([own[row["id"]] for row in card])
    np.testing.assert_allclose(total, base, atol=1e-8)
    # A model's own file of a party is enough for that party's table.
    assert not run("scorecard", "points", home / "run/model/host.h5", "-o", home / "own", "--decimals", 6)
    for name in ("host.csv", "host.json"):
        assert (home / "own" / name).read_bytes() == (home / "card" / name).read_bytes()


def test_new_cells_follow_rules_and_are_counted(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = (home / "new-bank.csv", home / "new-shop.csv", "--id", "id")
    capsys.readouterr()
    assert not run("scorecard", "apply", home / "card", *tables)
    said = capsys.readouterr()
    points = {row["id"]: row for row in read(said.out)}
    (guest,) = (p for p in open_partition(home / "w").parties if p.name == "guest")
    bins = {row["column"] + "/" + row["bin"]: row for row in read((home / "card/guest.csv").read_text())}
    age, _ = guest.encoder.columns
    of_city = {c: float(r["points"]) for r in bins.values() for c in r["categories"].split("|") if c}
    expected = {
        "901": float(bins["age/1"]["points"]) + of_city["Rome"],
        "902": float(bins["age/missing"]["points"]),  # Paris is unseen: no points
        "904": float(bins[f"age/{age.bins.count}"]["points"]),  # no city: as unseen
    }
    for key, value in expected.items():
        assert float(points[key]["points_guest"]) == pytest.approx(value, abs=1e-9)
    assert "column 'age': 2 numbers below or above those of training: in the first or last bin" in said.err
    assert "column 'city': 1 cells with unseen categories, such as 'Paris'" in said.err
    twice = home / "twice.csv"
    lines = (home / "new-bank.csv").read_text().splitlines(keepends=True)
    twice.write_text("".join([*lines, lines[1]]))
    for choice, code in ((), 3), (("--duplicates", "last"), 0):
        assert run("scorecard", "apply", home / "card", twice, *tables[1:], *choice) == code
    other = home / "other.csv"  # ids with a prefix
    other.write_text((home / "new-bank.csv").read_text().replace("\n9", "\nC-9"))
    capsys.readouterr()
    pattern = "id_pattern=(?:C-0*)?([0-9]+)"
    assert not run("scorecard", "apply", home / "card", other, *tables[1:], "--set", pattern)
    assert capsys.readouterr().out == said.out
    for command in (["predict", home / "run", *tables], ["scorecard", "apply", home / "card", *tables]):
        assert not run(*command, "-o", home / "out.csv", "--force")


def test_a_party_bins_with_randomised_labels_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book = home / "book.jsonl"
    labels = ("scorecard", "labels", home / "p/labels.h5", "--ledger", book)
    assert not run(*labels, "-o", home / "weak.h5", "--label-epsilon", 3)
    assert not run(*labels, "-o", home / "exact.h5", "--label-epsilon", 40, "--total-epsilon", 43)
    bin_data(home / "p/guest.h5", home / "alone.h5", Binning(), home / "exact.h5")
    true, alone = open_party(home / "w/guest.h5"), open_party(home / "alone.h5")
    np.testing.assert_allclose(alone.load(), true.load(), rtol=1e-9, atol=1e-12)
    rows, notes = bin_data(home / "p/guest.h5", home / "weak-guest.h5", Binning(), home / "weak.h5")
    assert "epsilon 3: bins and IV are estimates" in notes[-1]
    weak = open_party(home / "weak-guest.h5").encoder
    partition = open_partition(home / "p")
    for column in weak.columns:  # debiased: 5 standard deviations around what is true
        deviation = math.sqrt(400 * math.exp(3)) / (math.exp(3) - 1)
        assert sum(column.bins.events) == pytest.approx(partition.labels.y.sum(), abs=5 * deviation)
    assert {row["column"] for row in rows} == {"age", "city"}
    assert run(*labels, "-o", home / "x.h5", "--label-epsilon", 0) == 5
    assert run(*labels[:2], home / "weak.h5", *labels[3:], "-o", home / "x.h5", "--label-epsilon", 1) == 3
    capsys.readouterr()
    # What left is charged to the labels, together with what training releases of them.
    train = ("train", home / "p", "--privacy", "fusion", "--epsilon", 1, "--delta", 1e-4, "-o", home / "x")
    private = ("-q", *in_file(privacy={"label_epsilon": 1.0, "public_scaling": True}))
    for again in ((*labels, "-o", home / "x.h5", "--label-epsilon", 1), (*train, *private, "--ledger", book)):
        assert "2 releases of 2 run(s) have spent epsilon 43" in " ".join(refused(capsys, 9, *again).split())
    assert not (home / "x.h5").exists()
    assert len(Ledger(book).charges) == 2


def test_what_is_said_of_binned_columns(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same rows do not drift although their own folds gave them no weights of evidence."""
    tables = ("--guest", home / "bank.csv", "--host", home / "shop.csv", "--id", "id", "--label", "default")
    assert not run("convert", *tables, "--like", home / "run", "-o", tmp_path / "like")
    own, whole = (open_party(folder / "guest.h5").load() for folder in (home / "w", tmp_path / "like"))
    assert np.abs(own - whole).max() > 0.01
    assert max(row["psi"] for row in column_drift(home / "w", tmp_path / "like")) == pytest.approx(
        0.0, abs=1e-12
    )
    capsys.readouterr()
    assert not run("infer", home / "run")
    assert "labels chose these columns and the bins of 3" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bins @p --bins city=1", "--bins city=1: '1' is no category of the column"),
        ("bins @p --bins city=Rome|oslo", "'oslo' is no category of the column"),
        ("bins @p --bins city=Rome|Oslo,Rome", "--bins city=Rome|Oslo,Rome: 'Rome' is in two bins"),
        ("bins @p --bins city=Rome,", "--bins city=Rome,: '' is no category of the column"),
        ("bins @w", "binned already"),
        ("points @run --good maybe", "--good 'maybe': the classes are no, yes"),
        ("points @run --pdo 0", "--pdo 0: is not positive"),
    ],
)
def test_mistakes_are_one_line(
    home: Path, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    capsys.readouterr()
    words = [str(home / word[1:]) if word.startswith("@") else word for word in line.split()]
    assert run("scorecard", *words, "-o", home / "never") > 1
    err = capsys.readouterr().err
    assert len([text for text in err.splitlines() if text.startswith("fastadmm: error: ")]) == 1
    assert message in err
    assert not (home / "never").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"parties": ["../card/guest", "host"]},
        {"parties": 5},
        {"base_points": "much"},
    ],
)
def test_a_card_of_somebody_else_names_no_other_files(
    home: Path, tmp_path: Path, change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(home / "card", tmp_path / "card")
    document = json.loads((tmp_path / "card" / "card.json").read_text())
    (tmp_path / "card" / "card.json").write_text(json.dumps(document | change))
    code = run("scorecard", "apply", tmp_path / "card", home / "new-bank.csv", home / "new-shop.csv")
    assert code == 4
    assert len(capsys.readouterr().err.splitlines()) == 1
