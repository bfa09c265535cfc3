"""Weights that no epsilon covers leave a private run through no door in silence."""

import shutil

import h5py
import numpy as np
import pytest
from fastadmm import ADMMSharingClassifier, Privacy
from fastadmm.errors import PrivacyBudgetError, PrivacyWarning
from fastadmm.runs.config import make_config
from fastadmm.runs.export import import_party
from fastadmm.runs.service import open_service
from fastadmm.runs.train import start_run
from fastadmm.store.model import open_shared_part

from run_tools import refused, refuses, run, write_problem

#: By privacy mode, the party whose weights are exact, and one whose are a release or nobody's promise.
RUNS = {
    "message": ({"mode": "message", "epsilon": 2.0, "delta": 1e-4}, ["party-1", "party-2"], []),
    "fusion": ({"mode": "fusion", "epsilon": 2.0, "delta": 1e-4, "row_norm": 1.0}, ["party-1"], ["party-2"]),
    "none": ({}, [], ["party-1", "party-2"]),
}

#: What gives weights of one party out, or scores that tell them: arguments after the model, and what is made.
DOORS = {
    "h5": ("export", ["--party", "{party}", "-o", "{out}.h5"]),
    "partial": ("predict", ["{data}/{party}.h5", "--partial", "-o", "{out}.h5"]),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("doors")
    write_problem(home / "a.parts", 60, (3, 2))
    for mode, (privacy, _, _) in RUNS.items():
        keys = {"data": str(home / "a.parts"), "lambda": 1e-2, **({"privacy": privacy} if privacy else {})}
        start_run(make_config(keys), home / mode)
    return home


@pytest.mark.parametrize("mode", RUNS)
@pytest.mark.parametrize("door", DOORS)
def test_a_door_asks_before_it_gives_exact_weights(home, tmp_path, capsys, mode, door):
    command, rest = DOORS[door]
    _, exact, other = RUNS[mode]
    for party in [*exact, *other]:
        out = tmp_path / party
        given = [a.format(party=party, out=out, data=home / "a.parts") for a in rest]
        # Also when the party has nothing but its own file.
        models = [home / mode] + [home / mode / "model" / f"{party}.h5"] * (door == "partial")
        for model in models:
            capsys.readouterr()
            code = run(command, model, *given, "--force")
            said = capsys.readouterr().err
            assert code == (9 if party in exact else 0), said
            if party in exact:
                assert "epsilon = infinity" in said
                assert "--allow-infinite-epsilon" in said
                assert len(said.splitlines()) == 1
                assert not list(tmp_path.iterdir())
                assert run(command, model, *given, "--allow-infinite-epsilon") == 0
                for made in tmp_path.iterdir():
                    made.unlink()


@pytest.mark.parametrize("mode", ["message", "fusion"])
def test_the_whole_model_is_not_exported_or_served_in_silence(home, tmp_path, mode):
    assert run("export", home / mode, "-o", tmp_path / "m.json") == 9
    assert run("export", home / mode, "-o", tmp_path / "m.json", "--allow-infinite-epsilon") == 0
    for party in (None, "party-1"):
        refuses(PrivacyBudgetError, "--allow-infinite-epsilon", open_service, home / mode, party, False, 5)
    open_service(home / mode, "party-1", False, 5, allow_infinite_epsilon=True)
    open_service(home / mode, None, True, 5)  # sums of what the parties give


def test_releases_and_python_say_what_they_give(home, tmp_path):
    open_service(home / "fusion", "party-2", False, 5)
    open_service(home / "none", "party-1", False, 5)
    # A part that lost its line is asked for by its model.
    out = tmp_path / "1.h5"
    assert run("export", home / "message", "--party", "party-1", "-o", out, "--allow-infinite-epsilon") == 0
    with h5py.File(out, "r+") as file:
        del file.attrs["privacy"], file.attrs["digest"]
    shared, directory = open_shared_part(home / "message")
    import_party(out, directory, force=True)
    assert run("export", home / "message", "--party", shared.names[0], "-o", tmp_path / "again.h5") == 9


@pytest.mark.parametrize("mode", RUNS)
def test_what_shows_scores_or_weights_says_what_they_cost(home, tmp_path, capsys, mode):
    for command in (["predict", home / mode, home / "a.parts", "-o", tmp_path / "p.csv"],
                    ["evaluate", home / mode, home / "a.parts"], ["coefficients", home / mode]):  # fmt: skip
        capsys.readouterr()
        assert run(*command) == 0
        captured = capsys.readouterr()
        said = " ".join((captured.out + captured.err).split())
        assert ("epsilon = infinity for whoever gets" in said) == (mode != "none"), command


def test_python_warns_of_exact_coefficients():
    X, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 2
    model = ADMMSharingClassifier(parties=[2, 2], privacy=Privacy(mode="message", epsilon=2.0, delta=1e-4))
    with pytest.warns() as said:
        model.fit(X, y)
    texts = [str(one.message) for one in said if issubclass(one.category, PrivacyWarning)]
    assert any("coef_" in text and "epsilon = infinity" in text for text in texts)


def test_a_part_comes_back_to_the_same_bytes(home, tmp_path, capsys):
    model, part = shutil.copytree(home / "none" / "model", tmp_path / "m"), tmp_path / "m" / "party-2.h5"
    out, before = tmp_path / "part.h5", part.read_bytes()
    assert run("export", model, "--party", "party-2", "-o", out) == 0
    part.unlink()
    assert run("import", out, model) == 0
    assert part.read_bytes() == out.read_bytes() == before
    with h5py.File(out, "r+") as file:
        file.attrs["note"] = "other bytes"
    assert "exists already" in refused(capsys, 6, "import", out, model)
    assert run("import", out, model, "--force") == 0
    assert run("export", model, "--party", "party-2", "-o", tmp_path / "part.json") == 5
