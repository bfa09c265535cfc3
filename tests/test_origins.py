"""Every command that reads rows and writes a file of columns says of it where its constants come from."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import fastadmm
import numpy as np
import pytest
from fastadmm.between.approval import privacy_text
from fastadmm.between.approval_file import drafted
from fastadmm.between.host import Host, Site
from fastadmm.engine.engine import Engine
from fastadmm.errors import ExitCode, PrivacyBudgetError
from fastadmm.privacy.origins import declared, private_constants
from fastadmm.settings.privacy import Privacy
from fastadmm.store.encoder import DESCRIBED, Bins, ColumnEncoding, Encoder
from fastadmm.store.partition import open_partition
from fastadmm.store.party_file import open_party
from scipy import sparse

from run_tools import refused, refuses, run

N = 240
CHANGED = 7

# Modules that make files of parties or owners, by commands that the tests below and test_owners_files.py run;
# warmup makes up rows. A new one fails until it is here.
WRITERS = {
    *("data_tools/blocks.py", "data_tools/owners.py", "runs/scorecard.py"),
    *("store/owner_file.py", "store/partition.py", "store/party_file.py", "cli/warmup_run.py"),
    "between/audited_hosts.py",
}


def test_every_module_and_field_says_where_columns_come_from():
    package = Path(fastadmm.__file__).parent
    makes = re.compile(r"(?<!def )\b(PartyWriter|OwnerWriter|PartitionWriter|create_partition)\(")
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if makes.search(path.read_text())
    }
    assert found == WRITERS
    # Every field of a column says where it comes from.
    column = ColumnEncoding("x")
    assert {field.name for field in fields(ColumnEncoding)} == FITTED.keys() | STATED.keys()
    assert len(declared(column, "refuse")) > 1
    for name, value in FITTED.items():
        more = {"levels": FITTED["levels"]} if name in ("other", "fill_level") else {}
        missing = "mean" if name.startswith("fill") else "refuse"
        fitted = Encoder((column, replace(column, **{name: value}, **more)), missing)
        assert private_constants([fitted]), name
        described = bool(private_constants([replace(fitted, missing=DESCRIBED)]))
        assert described == (name in ("reading", "bins", "indicator")), name
    for name, value in STATED.items():
        assert private_constants([Encoder((replace(column, **{name: value}),))]) == []


def write_tables(folder, *, row=False, label=False):
    """A bank with the label, and a shop with numbers, gaps, words, dates and marks."""
    rng = np.random.default_rng(3)
    folder.mkdir(parents=True)
    job = rng.choice(["a", "b", "c"], N)
    y = np.where(rng.random(N) < 0.7, job == "b", rng.random(N) < 0.3).astype(int)
    y[CHANGED] = int(label)
    age, spent, day = rng.integers(18, 90, N), rng.normal(size=N).round(2), rng.integers(1, 13, N)
    own = np.where(rng.random(N) < 0.8, y, 0)
    age, paid = age + 20 * (job == "b"), np.arange(N) + N * (job == "b")
    (folder / "bank.csv").write_text(
        "id,y,age,own\n" + "".join(f"{i},{y[i]},{age[i]},o{own[i]}\n" for i in range(N))
    )
    gap = rng.random(N) < 0.3
    gap[CHANGED] = False
    lines = [
        f"{i},{'' if gap[i] else spent[i]},{job[i]},{day[i]:02d}/05/2020,{paid[i]}.5,{i}.7%,{i % 24}:30\n"
        for i in range(N)
    ]
    if row:
        lines[CHANGED] = f"{CHANGED},1000000,rare,28/05/2020,0.5,5.5%,4:15\n"
    (folder / "shop.csv").write_text("id,spent,job,when,paid,share,at\n" + "".join(lines))
    (folder / "d.toml").write_text(
        "[columns.own]\ntype = 'category'\nlevels = ['o0', 'o1']\n"
        "[columns.age]\ntype = 'number'\nlow = 0\nhigh = 200\n"
        "[columns.spent]\ntype = 'number'\nlow = -3\nhigh = 3\n"
        "[columns.job]\ntype = 'category'\nlevels = ['a', 'b', 'c', 'rare']\n"
        "[columns.paid]\ntype = 'number'\nlow = 0\nhigh = 500\n"
    )
    return folder


def convert(folder, keep, *options, like=None):
    """A partition of the columns to keep; of the names and columns of another, if one is given."""
    left_out = [
        name
        for name in ("age", "own", "spent", "job", "when", "paid", "share", "at")
        if name not in keep.split()
    ]
    own = ("--names", "bank,shop", "--drop", ",".join(left_out)) if like is None else ("--like", like)
    tables = ("--guest", folder / "bank.csv", "--host", folder / "shop.csv", "--id", "id", "--label", "y")
    assert run("convert", *tables, "-o", folder / "p.parts", *own, *options) == ExitCode.OK
    return folder / "p.parts"


def binned(parts, only=""):
    labels = ("--labels", parts / "labels.h5") if only else ()
    out = parts.with_name("woe")
    rules = ("--set", "min_share=0.01", "--set", "min_events=0")
    assert run("scorecard", "bins", parts / only, *labels, *rules, "-o", out) == ExitCode.OK
    return out


NUMBERS = "age paid"
GAPS = "age spent"


def described(folder, keep):
    return convert(folder, keep, "--public-columns", folder / "d.toml")


#: Ways to make columns, and whether they take constants from rows, and from labels.
WAYS = {
    "numbers": (lambda f: convert(f, NUMBERS), False, False),
    "rows by norm": (lambda f: convert(f, NUMBERS, "--set", "normalize=l2"), False, False),
    "described": (lambda f: described(f, "age own spent job paid"), False, False),
    "standardized": (lambda f: convert(f, NUMBERS, "--standardize"), True, False),
    "missing mean": (lambda f: convert(f, GAPS, "--missing", "mean"), True, False),
    "missing indicator": (lambda f: convert(f, GAPS, "--missing", "indicator"), True, False),
    "words": (lambda f: convert(f, "age job"), True, False),
    "categories": (lambda f: convert(f, NUMBERS, "--categorical", "paid"), True, False),
    "dates": (lambda f: convert(f, "age when", "--types", "when=days"), True, False),
    "dates of a stated format": (
        lambda f: convert(f, "age when", "--types", "when=days:%d/%m/%Y"),
        False,
        False,
    ),
    "marks": (lambda f: convert(f, "age share"), True, False),
    "times of day": (lambda f: convert(f, "age at", "--types", "at=hours"), False, False),
    "bins of a partition": (lambda f: binned(convert(f, NUMBERS)), True, True),
    "bins of described categories": (lambda f: binned(described(f, "own job")), True, True),
    "bins of one party": (lambda f: binned(convert(f, NUMBERS), "shop.h5"), True, True),
}


def parties(path):
    return open_partition(path, require_labels=False).parties if path.is_dir() else [open_party(path)]


def others(party):
    X = party.load()
    X = X.toarray() if sparse.issparse(X) else np.asarray(X)
    return np.delete(X, CHANGED, axis=0)


@pytest.mark.representatives(6)
@pytest.mark.parametrize("way", WAYS)
def test_what_moves_other_rows_says_so(way, tmp_path):
    """Where a change of one record, or of its label, moves the rows of others, the origin is not public."""
    command, private, labels = WAYS[way]
    made = {}
    for name, change in (("as it is", {}), ("row", {"row": True}), ("label", {"label": True})):
        if way == "dates" and name == "row":
            continue  # how dates are read hangs on one cell: without it the command refuses them
        folder = write_tables(tmp_path / name, **change)
        if way == "dates":
            text = (folder / "shop.csv").read_text().replace("01/05/2020", "28/05/2020")
            (folder / "shop.csv").write_text(text)
        made[name] = parties(command(folder))
    steps = [party.steps for party in made["as it is"]]
    found = {k: [private_constants(s, labels=k == "label") for s in steps] for k in ("row", "label")}
    for k, party in enumerate(made["as it is"]):
        for name in ("row", "label"):
            if name in made:
                other = made[name][k]
                moved = party.feature_names != other.feature_names or (others(party) != others(other)).any()
                assert not moved or found[name][k], f"{party.name}: a {name} moved others"
    assert (any(found["row"]), any(found["label"])) == (private, labels)


@pytest.mark.parametrize("way", ["missing mean", "described", "bins of described categories", "dates"])
def test_origins_are_carried_on(way, tmp_path):
    """By ``--like``."""
    folder, command = write_tables(tmp_path / "one"), WAYS[way][0]
    if way == "dates":
        (folder / "shop.csv").write_text(
            (folder / "shop.csv").read_text().replace("01/05/2020", "28/05/2020")
        )
    first = command(folder)
    said = [private_constants(party.steps) for party in parties(first)]
    new = write_tables(tmp_path / "two", row=way != "dates", label=True)
    if way == "dates":
        (new / "shop.csv").write_text((folder / "shop.csv").read_text())
    like = convert(new, "", like=first)
    assert [private_constants(party.steps) for party in parties(like)] == said


@pytest.fixture(scope="module")
def bins_of_described(tmp_path_factory):
    folder = write_tables(tmp_path_factory.mktemp("bins") / "one")
    return WAYS["bins of described categories"][0](folder)


@pytest.mark.parametrize("mode", ["fusion", "message"])
def test_bins_of_described_categories_claim_nothing(bins_of_described, tmp_path, capsys, mode):
    """Bins are made of rows and true labels, whoever described the categories."""
    asked = ("train", bins_of_described, "--privacy", mode, "--epsilon", 4, "-o", tmp_path / "run", "--quiet")
    named = "bank: {} 'own'" if mode == "message" else "shop: {} 'job'"
    said = named.format("epsilon 4 was asked for, but none is proved: bins of")
    assert said in refused(capsys, ExitCode.PRIVACY, *asked)
    (tmp_path / "c.toml").write_text("[privacy]\nallow_infinite_epsilon = true\n")
    wish = ("--config", tmp_path / "c.toml")
    for more in ((), wish):
        error = refused(capsys, ExitCode.PRIVACY, *asked, "--set", "privacy.label_epsilon=0.5", *more)
        assert named.format("label_epsilon 0.5 was asked for: bins of") in error
    assert not (tmp_path / "run").exists()
    assert run(*asked, *wish) == ExitCode.OK
    statement = json.loads((tmp_path / "run" / "privacy.json").read_text())["statement"]
    assert (statement["epsilon"], statement["label_epsilon"]) == ("inf", "inf")


FITTED = {
    "levels": ("a", "b"),
    "other": 1,
    "fill": 1.0,
    "fill_level": 0,
    "indicator": True,
    "low": -1.0,
    "high": 1.0,
    "reading": "number\tdecimal=,\tby=rows",
    "bins": Bins((0.5,), (), (0.1, 0.2, 0.0), (1.0, 2.0, 0.0), (2.0, 1.0, 0.0)),
}
STATED = {"name": "x", "na": ("none",), "shown": "y"}


@pytest.mark.parametrize("label_epsilon", [0.5, None])
def test_a_party_by_files_refuses_its_own_bins(bins_of_described, tmp_path, label_epsilon):
    """Whatever its owner agreed to about features, a claim about labels would be false."""
    asked = Privacy(mode="fusion", epsilon=4.0, label_epsilon=label_epsilon)
    terms = {"family": "fusion", "privacy": privacy_text(asked), "position": 1, "n_samples": N}
    data = open_party(bins_of_described / "shop.h5")
    agreed = drafted(asked).with_(allow_infinite_epsilon=True)
    approval = SimpleNamespace(protection=agreed)
    host = Host(Site(data, Engine(1), tmp_path / "ledger"), tmp_path, "run", approval)
    if label_epsilon is None:
        assert "bins of 'job'" in host.books(terms).unproved
    else:
        words = r"shop: label_epsilon 0\.5 was asked for: bins of 'job'"
        refuses(PrivacyBudgetError, words, host.books, terms)
    assert not (tmp_path / "ledger").exists()
