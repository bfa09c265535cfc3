"""Columns prepared by constants of private rows: no epsilon is claimed, and none is asked for in vain."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from fastadmm import Privacy, SolverOptions, make_problem
from fastadmm.data_tools.convert_tables import convert_tables
from fastadmm.errors import ConfigError, ExitCode
from fastadmm.privacy.fusion import FusionSolver
from fastadmm.privacy.message import MessageSolver
from fastadmm.privacy.origins import Constants, private_constants
from fastadmm.runs.train import resume_run
from fastadmm.store.encoder import ColumnEncoding, Encoder
from fastadmm.store.party_file import _ROOT_KEYS
from fastadmm.store.transform import Transform

from problems import make_vertical_classification
from run_tools import in_file, printed, refused, refuses, run, told

N = 240


def write_tables(folder, changed=False, n=N):
    """A bank with the label and a shop with numbers, gaps and words; one record of the shop may differ."""
    rng = np.random.default_rng(3)
    label = rng.integers(0, 2, n)
    age, spent = rng.integers(18, 90, n), rng.normal(size=n).round(2) + label
    city = rng.choice(["Bern", "Oslo", "Rome"], n)
    gap = rng.random(n) < 0.5
    gap[7] = False
    bank, shop = folder / "bank.csv", folder / "shop.csv"
    bank.write_text("id,y,age\n" + "".join(f"{i},{label[i]},{age[i]}\n" for i in range(n)))
    lines = [f"{i},{'' if gap[i] else spent[i]},{city[i]}\n" for i in range(n)]
    if changed:
        lines[7] = "7,1000000,Zug\n"
    shop.write_text("id,spent,city\n" + "".join(lines))
    return bank, shop


def convert(folder, name, changed=False, n=N, **options):
    tables = write_tables(folder, changed, n)
    return convert_tables(tables[0], [tables[1]], folder / name, id="id", label="y", **options)


@dataclass(frozen=True)
class Silent:
    """A toy step that forgets to declare itself."""

    rotation: tuple[float, ...] = (1.0,)


@dataclass(frozen=True)
class Declared(Silent):
    """The same with a declaration; ``said`` are the fields that it covers."""

    said: tuple[str, ...] = ("rotation", "said", "origin")
    origin: str = "private"

    def constants(self):
        return (Constants(self.said, "a rotation", self.origin),)


def test_undeclared_and_old_steps_count_as_private(tmp_path, capsys):
    refuses(ConfigError, "Silent does not say where its constants come from", private_constants, [Silent()])
    with pytest.raises(ConfigError, match="Declared does not say where its 'rotation' comes from"):
        private_constants([Declared(said=("said", "origin"))])
    refuses(ConfigError, "unknown origin 'secret'", private_constants, [Declared(origin="secret")])
    assert private_constants([Transform(), Declared()]) == ["a rotation"]
    assert private_constants([Declared(origin="public"), Declared(origin="charged")]) == []
    # They carry no declaration of their own: what they hold decides.
    old = Encoder((ColumnEncoding("city", ("Oslo", "Rome")), ColumnEncoding("age")))
    assert private_constants([old]) == ["categories of 'city'"]
    assert private_constants([Encoder((ColumnEncoding("age"),))]) == []
    assert private_constants([Transform(scale=np.ones(2))]) == ["centres or scales of columns"]
    # Inspect says it before anything is trained.
    convert(tmp_path, "p", missing="mean")
    shown = " ".join(printed(capsys, "inspect", tmp_path / "p").split())
    assert "host: computed from its rows, so no epsilon is proved: categories of 'city' and 1 more" in shown
    found = told(capsys, "inspect", tmp_path / "p")["parties"]
    assert [bool(party["private_constants"]) for party in found] == [True, True]


def test_every_step_that_a_party_file_may_hold_is_asked(tmp_path):
    """A new kind of step is a new key of the file; it has to be among the steps that are asked."""
    party = convert(tmp_path, "p", missing="mean").parties[1]
    assert {type(step).__name__.lower() for step in party.steps} == _ROOT_KEYS[""] - {"X", "obs", "var"}


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unproved")
    convert(folder, "filled.parts", missing="mean", drop=["city"])
    convert(folder, "scaled.parts", drop=["city"], missing="mean", standardize=True)
    return folder


@pytest.mark.parametrize("mode", ["fusion", "message"])
@pytest.mark.parametrize(
    ("name", "said"), [("filled", "what stands for missing cells"), ("scaled", "centres or scales")]
)
def test_a_run_that_could_claim_nothing_is_refused_before_anything_is_drawn(
    parts, tmp_path, capsys, monkeypatch, mode, name, said
):
    drawn = "fastadmm.privacy.noise.NoiseSource.__init__"
    monkeypatch.setattr(drawn, lambda *_: pytest.fail("noise was set up"))
    ledger = tmp_path / "ledger.jsonl"
    arguments = ("train", parts / f"{name}.parts", "-o", tmp_path / "run", "--privacy", mode, "--quiet")
    error = refused(capsys, ExitCode.PRIVACY, *arguments, "--epsilon", 1, "--ledger", ledger)
    assert said in error
    assert "host: " in error or mode == "message"
    assert "--public-columns" in error
    assert "allow_infinite_epsilon = true" in error
    assert list(tmp_path.iterdir()) == []
    assert run(*arguments, "--epsilon", 1, "--dry-run") == ExitCode.PRIVACY  # nor is it planned


@pytest.mark.parametrize("mode", ["fusion", "message"])
def test_an_explicit_wish_goes_on_and_claims_nothing(parts, tmp_path, mode):
    out = tmp_path / "run"
    arguments = ("train", parts / "scaled.parts", "-o", out, "--privacy", mode, "--epsilon", 1, "--quiet")
    assert run(*arguments, *in_file(privacy={"allow_infinite_epsilon": True})) == ExitCode.OK
    statement = json.loads((out / "privacy.json").read_text())["statement"]
    assert statement["epsilon"] == "inf"
    assert "private rows" in statement["reason"]
    assert "covered" not in statement["weights"]
    assert statement["weights"].startswith("epsilon = infinity")
    (out / "result.json").unlink()
    assert resume_run(out)["privacy"]["epsilon"] == "inf"  # the wish is in run.toml


def test_the_label_holder_of_fusion_may_prepare_its_columns_as_it_likes(tmp_path):
    """It sends nothing about them."""
    bank, shop = write_tables(tmp_path)
    shop.write_text("id,spent\n" + "".join(f"{i},{i / 100}\n" for i in range(N)))
    convert_tables(bank, [shop], tmp_path / "p", id="id", label="y", missing="mean")
    with_gap = convert_tables(bank, [shop], tmp_path / "q", id="id", label="y", categorical=["age"])
    assert [bool(private_constants(p.steps)) for p in with_gap.parties] == [True, False]
    asked = ("--privacy", "fusion", "--epsilon", 1, "--quiet")
    assert run("train", tmp_path / "q", *asked, "-o", tmp_path / "run") == ExitCode.OK
    statement = json.loads((tmp_path / "run" / "privacy.json").read_text())["statement"]
    assert statement["epsilon"] == pytest.approx(1.0)
    assert run("train", tmp_path / "p", *asked, "-o", tmp_path / "other") == ExitCode.PRIVACY


@pytest.mark.parametrize("kind", [FusionSolver, MessageSolver])
def test_arrays_say_nothing_of_their_preparation_and_the_statement_says_that(kind):
    blocks, y, _ = make_vertical_classification(300, (3, 2))
    given, mode = make_problem(blocks, y), kind.__module__.rpartition(".")[2]
    asked, options = Privacy(mode=mode, epsilon=1.0), SolverOptions(n_threads=1)
    line = "how columns were prepared before they were given"
    for settings, unproved, said in (
        (asked, None, True),
        (asked, {}, False),
        (asked.with_(public_scaling=True), None, False),
    ):
        made = kind(given, options, settings, unproved=unproved)
        assert any(line in text for text in made.statement().not_covered) == said
        made.close()
