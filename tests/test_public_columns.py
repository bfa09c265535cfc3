"""A public description of columns: nothing is learned from rows, and a table ends in a finite epsilon."""

import json
from pathlib import Path

import numpy as np
import pytest
from fastadmm.data_tools.convert_tables import convert_tables
from fastadmm.data_tools.encoding import read_description
from fastadmm.errors import ConfigError, ExitCode
from fastadmm.privacy.origins import private_constants
from fastadmm.store.encoder import Encoder
from fastadmm.store.model import open_model, open_party_model
from fastadmm.store.partition import open_partition

from run_tools import printed, refuses, run

DESCRIPTION = """
[columns.age]
type = "number"
low = 0
high = 100
fill = 25

[columns.city]
type = "category"
levels = ["Oslo", "Rome"]

[columns.zone]
type = "category"
levels = [1, "2", "other"]
fill = "2"

[columns.spent]
type = "number"
low = -2.0
high = 6.0
"""

BANK = "id,y,age,city\n1,no,50,Rome\n2,yes,,Bern\n3,no,250,\n4,yes,-3,Oslo\n"
SHOP = "id,zone,spent\n4,1.0,6\n3,NA,-2\n2,7,\n1,2,4\n"


@pytest.fixture
def tables(tmp_path):
    for name, text in (("bank.csv", BANK), ("shop.csv", SHOP), ("columns.toml", DESCRIPTION)):
        (tmp_path / name).write_text(text)
    return tmp_path / "bank.csv", tmp_path / "shop.csv", tmp_path / "columns.toml"


def described(tables, out="p", **options):
    bank, shop, columns = tables
    given = {"id": "id", "label": "y", "public_columns": columns, **options}
    return convert_tables(bank, [shop], bank.parent / out, **given)


def test_cells_and_records(tables):
    guest, host = described(tables).parties
    assert guest.feature_names == ["age", "city=Oslo", "city=Rome", "city=other"]
    np.testing.assert_array_equal(
        guest.load(), [[0.0, 0, 1, 0], [-0.5, 0, 0, 1], [1.0, 0, 0, 1], [-1.0, 1, 0, 0]]
    )
    assert host.feature_names == ["zone=1", "zone=2", "zone=other", "spent"]
    np.testing.assert_array_equal(
        host.load(), [[0, 1, 0, 0.5], [0, 0, 1, 0.0], [0, 1, 0, -1.0], [1, 0, 0, 1.0]]
    )
    assert [private_constants(party.steps) for party in (guest, host)] == [[], []]
    # What the proofs take: also with gaps, unknown categories and numbers beyond the bounds.
    before = described(tables, "a").parties[1].load()
    for line in ("3,1,1e9", "3,,", "3,never seen,0.1"):
        tables[1].write_text(SHOP.replace("3,NA,-2", line))
        after = described(tables, "b", force=True).parties[1].load()
        assert np.flatnonzero((before != after).any(axis=1)).tolist() == [2]
    # Options that would learn what is described.
    for options in (
        {"missing": "mean"}, {"categorical": ["zone"]}, {"standardize": True}, {"like": tables[0].parent},
    ):  # fmt: skip
        option = f"--{next(iter(options))} and --public-columns: the description says"
        refuses(ConfigError, option, described, tables, "q", **options)
    tables[2].write_text(DESCRIPTION.replace("columns.city", "columns.town"))
    with pytest.raises(ConfigError, match=r"column 'city' of .*bank\.csv is not described: describe it, or"):
        described(tables, "q")
    assert described(tables, "q", drop=["city"]).parties[0].feature_names == ["age"]


def test_the_encoder_is_kept_and_damage_is_found(tables):
    import h5py
    from fastadmm.errors import FormatError

    encoder = described(tables).parties[1].encoder
    assert Encoder.from_json(json.loads(json.dumps(encoder.to_json())), "here") == encoder
    reopened = open_partition(tables[0].parent / "p").parties[1]
    assert reopened.encoder == encoder
    changed = encoder.to_json()
    changed["columns"][1]["high"] = 7.0
    refuses(FormatError, "does not agree with its digest", Encoder.from_json, changed, "here")
    for key, value in (("bounds", [[0.0, 0.0], [5.0, 1.0]]), ("other", [3, -1])):
        with h5py.File(reopened.path, "r+") as file:
            kept = file["encoder"][key][()]
            file["encoder"][key][...] = value
        refuses(FormatError, "", open_partition, tables[0].parent / "p")
        with h5py.File(reopened.path, "r+") as file:
            file["encoder"][key][...] = kept


def test_names_and_examples_of_the_page(tmp_path):
    (tmp_path / "g.csv").write_text("id,y,x\n1,0,5\n2,1,10\n")
    (tmp_path / "h.csv").write_text("id,x\n1,0\n2,2\n")
    arguments = ("--guest", tmp_path / "g.csv", "--host", tmp_path / "h.csv", "--id", "id", "--label", "y")
    columns = tmp_path / "columns.toml"
    columns.write_text(
        '[columns."guest.x"]\ntype = "number"\nlow = 0\nhigh = 10\n'
        '[columns."host.x"]\ntype = "number"\nlow = 0\nhigh = 4\n'
    )
    out = ("--public-columns", columns, "-o", tmp_path / "p")
    assert run("convert", *arguments, *out) == ExitCode.OK
    guest, host = open_partition(tmp_path / "p").parties
    np.testing.assert_array_equal(np.hstack([guest.load(), host.load()]), [[0.0, -1.0], [1.0, 0.0]])
    # The page shows the description that its example uses.
    from fastadmm.data_tools.synthetic import write_description

    write_description(tmp_path / "columns.toml")
    page = (Path(__file__).parents[1] / "docs" / "converting.md").read_text(encoding="utf-8")
    assert f"```toml\n{(tmp_path / 'columns.toml').read_text()}```" in page
    assert len(read_description(tmp_path / "columns.toml").columns) == 6


def write_shops(folder, n, seed):
    """A label that depends on numbers and categories of both parties, with gaps."""
    rng = np.random.default_rng(seed)
    age, spent = rng.integers(18, 90, n), rng.gamma(2.0, 1.0, n)
    city, zone = rng.choice(["Bern", "Oslo", "Rome"], n), rng.integers(1, 4, n)
    z = (age - 50) / 15 + 2.0 * (city == "Rome") - 1.5 * (spent - 2) + 2.0 * (zone == 1) - 0.7
    label = np.where(rng.random(n) < 1 / (1 + np.exp(-z)), "yes", "no")
    gap = rng.random((2, n)) < 0.1
    bank, shop = folder / f"bank{seed}.csv", folder / f"shop{seed}.csv"
    bank.write_text(
        "id,y,age,city\n"
        + "".join(f"{i},{label[i]},{'' if gap[0, i] else age[i]},{city[i]}\n" for i in range(n))
    )
    shop.write_text(
        "id,zone,spent\n"
        + "".join(f"{i},{zone[i]},{'' if gap[1, i] else spent[i].round(2)}\n" for i in range(n))
    )
    return bank, shop


def test_a_table_with_numbers_and_categories_ends_in_a_finite_epsilon(tmp_path, capsys):
    (tmp_path / "columns.toml").write_text(DESCRIPTION)
    arguments = ("convert", "--id", "id", "--label", "y")
    for seed, extra in (
        (1, ("--public-columns", tmp_path / "columns.toml")),
        (2, ("--like", tmp_path / "p1")),
    ):
        bank, shop = write_shops(tmp_path, 3000, seed)
        made = (*extra, "--guest", bank, "--host", shop, "-o", tmp_path / f"p{seed}")
        assert run(*arguments, *made) == ExitCode.OK
    out = tmp_path / "run"
    asked = ("--privacy", "fusion", "--epsilon", 1, "--test", tmp_path / "p2", "-o", out, "--quiet")
    assert run("train", tmp_path / "p1", *asked) == ExitCode.OK
    statement = json.loads((out / "privacy.json").read_text())["statement"]
    assert statement["epsilon"] == pytest.approx(1.0)
    y = open_partition(tmp_path / "p2").labels.y
    prior = -np.log([1 - y.mean(), y.mean()]) @ [1 - y.mean(), y.mean()]
    assert json.loads((out / "result.json").read_text())["comparison"]["test_loss"]["fusion"] < prior - 0.05

    # Predictions from tables replay bounds, categories and fills, and so does an exported part.
    capsys.readouterr()
    bank, shop = tmp_path / "bank2.csv", tmp_path / "shop2.csv"
    from_partition = printed(capsys, "predict", out, tmp_path / "p2")
    assert printed(capsys, "predict", out, bank, shop, "--id", "id") == from_partition
    assert run("export", out, "--party", "host", "-o", tmp_path / "host.h5") == ExitCode.OK
    assert open_party_model(tmp_path / "host.h5")[0].encoder == open_model(out).parties[1].encoder
