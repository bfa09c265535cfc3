"""What the fuzzing of ``test_fuzz.py`` has found, each as a small case of its own."""

import json
import shutil

import h5py
import numpy as np
import pytest
from fastadmm import Privacy
from fastadmm.errors import ConfigError, ExitCode, FormatError
from fastadmm.privacy.statement import PrivacyStatement

from owners_data import write_owners
from run_tools import refused, refuses, run, within, write_blocks, write_problem

TABLE = "id,a,y\n" + "".join(f"{i},{i % 5},{'yes' if i % 2 else 'no'}\n" for i in range(12))


def test_tables_that_are_odd(tmp_path, capsys):
    (tmp_path / "guest.csv").write_text(TABLE.replace("yes", "inf"))
    (tmp_path / "host.csv").write_text("id,b\n" + "".join(f"{i},{i}\n" for i in range(12)))
    code = run(
        "convert", "--guest", tmp_path / "guest.csv", "--host", tmp_path / "host.csv", "--id", "id", "--label", "y",
        "--positive", "inf", "-o", tmp_path / "o.parts",
    )  # fmt: skip
    assert code == 0
    # Text in parquet that is not utf8.
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    words = pa.array([b"\x80x", b"b"]).view(pa.string())
    pq.write_table(pa.table({"id": [1, 2], "word": words, "y": [0, 1]}), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("id,c\n1,1\n2,2\n")
    err = refused(
        capsys, ExitCode.INPUT, "convert", "--guest", tmp_path / "a.parquet", "--host", tmp_path / "b.csv", "--id",
        "id", "--label", "y", "-o", tmp_path / "o",
    )  # fmt: skip
    assert "a.parquet" in err
    # More columns than any file has.
    one = np.array([1.0])
    for columns in (2**62, 2**40):
        np.savez(tmp_path / "a.npz", data=one, indices=[0], indptr=[0, 1], shape=[1, columns], y=one)
        err = refused(
            capsys, ExitCode.INPUT, "convert", tmp_path / "a.npz", "--parties", 1, "-o", tmp_path / "o"
        )
        assert f"shape [1, {columns}], but" in err


def test_what_training_refuses_leaves_no_run(tmp_path, capsys):
    X = np.random.default_rng(0).normal(size=(20, 2))
    X[3, 0] = 1e300
    data = write_blocks(tmp_path / "d.parts", [X], np.arange(20) % 2)
    err = refused(capsys, ExitCode.INPUT, "train", data, "-q", "-o", tmp_path / "run")
    assert "d.parts: party-1" in err
    assert not (tmp_path / "run").exists()
    # What a party remembers must fit.
    tmp_path = within(tmp_path)
    data = write_problem(tmp_path / "d.parts", 40, (2, 3))
    assert not run("coordinator", "start", data / "labels.h5", "--party", "party-1", "-o", tmp_path / "run")
    request, state = tmp_path / "run" / "requests" / "party-1-000000.msg", tmp_path / "state"
    step = ("party", "step", "--data", data / "party-1.h5", "--state", state, "--in")
    assert not run(*step, request, "-o", tmp_path / "a.h5")
    assert not run("coordinator", "step", tmp_path / "run", tmp_path / "a.h5")
    with h5py.File(state / "state.h5", "r+") as file:
        attributes = dict(file["party/directions"].attrs)
        del file["party/directions"]
        file["party"].create_dataset("directions", data=np.zeros((0, 7))).attrs.update(attributes)
    request = tmp_path / "run" / "requests" / "party-1-000001.msg"
    err = refused(capsys, ExitCode.FORMAT, *step, request, "-o", tmp_path / "b.h5")
    assert "not what a step left (ValueError('directions'))" in err
    assert not (tmp_path / "b.h5").exists()


@pytest.mark.parametrize("partial", [True, False])
def test_scores_that_overflow(partial, tmp_path, capsys):
    data = write_problem(tmp_path / "d.parts", 40, (2, 3))
    assert run("train", data, "-q", "--rounds", 8, "-o", tmp_path / "run") == ExitCode.OK
    for part in ("party-1.h5", "party-2.h5"):
        with h5py.File(tmp_path / "run" / "model" / part, "r+") as file:
            file["weights"][:] = [1.7e308] + [1.7e308 if partial else 0.0] * (len(file["weights"]) - 1)
            del file.attrs["digest"]
    out = tmp_path / ("c.h5" if partial else "scores.csv")
    given = ("--partial", tmp_path / "run", data / "party-1.h5") if partial else (tmp_path / "run", data)
    assert "row" in refused(capsys, ExitCode.INPUT, "predict", *given, "-o", out)
    assert not out.exists()


def test_owners_kappa_and_finished_run(tmp_path, capsys):
    owners, _ = write_owners(tmp_path / "d.owners")
    options = ("--epsilon", 5, "--bound", "clip:1", "--step", 0.1, "--rounds", 2, "-q")
    assert run("owners", "train", owners, *options, "-o", tmp_path / "run") == 0
    (tmp_path / "run" / "result.json").write_bytes(b'{"status": "\x80"}')
    assert "result.json: damaged" in refused(capsys, ExitCode.FORMAT, "owners", "resume", tmp_path / "run")
    manifest = owners / "owners.toml"
    good = manifest.read_text()
    manifest.write_text(good.replace("kappa = 1", "kappa = 3"))
    assert "kappa 3" in refused(capsys, ExitCode.FORMAT, "inspect", owners)
    manifest.write_text(good.replace('"a"', r'"a\u0000"'))
    assert "owners.toml: key 'owners'" in refused(capsys, ExitCode.FORMAT, "inspect", owners)


def test_statements_and_budgets_beyond_numbers():
    from fastadmm.privacy.accounting import epsilon_of, gdp_of

    assert epsilon_of(1e308, 1e-5) == np.inf
    refuses(ConfigError, "epsilon: 1e\\+30 protects nothing", gdp_of, 1e30, 1e-3)
    from fastadmm.privacy.statement import no_privacy

    document = json.loads(json.dumps(no_privacy(["a", "b"]).to_json()))
    assert PrivacyStatement.from_json(document) == no_privacy(["a", "b"])
    for key, value in [
        ("epsilon", "5"),
        ("mode", 3),
        ("seen", ["a"]),
        ("not_covered", [1]),
        ("delta", float("nan")),
    ]:
        refuses(FormatError, key, PrivacyStatement.from_json, {**document, key: value})
    document["parties"][0]["rounds"] = "many"
    refuses(FormatError, "rounds", PrivacyStatement.from_json, document)


@pytest.mark.parametrize("key", ["epsilon", "ball", "message_clip"])
def test_privacy_settings_beyond_floating_point(key):
    with pytest.raises(ConfigError, match=f"{key}: 2e\\+300 is above 1e"):
        Privacy(**{"mode": "message", "epsilon": 1.0, key: 2e300})


def test_report_of_numbers_beyond_every_axis(tmp_path):
    pytest.importorskip("matplotlib")
    data = write_problem(tmp_path / "d.parts", 40, (2, 3))
    assert run("train", data, "-q", "--rounds", 8, "-o", tmp_path / "run") == ExitCode.OK
    log = tmp_path / "run" / "rounds.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[0] |= {"objective": 1.7e308, "gap": 1.7e308}
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert run("report", tmp_path / "run") == 0


def test_columns_whose_matrix_has_no_factor_get_block_gradients(tmp_path):
    rng = np.random.default_rng(0)
    column = 1e9 * rng.normal(size=40)
    blocks = [np.column_stack([column, column, rng.normal(size=40)]), rng.normal(size=(40, 2))]
    data = write_blocks(tmp_path / "d.parts", blocks, np.arange(40) % 2.0)
    options = ("--lambda", 1e-2, "--rounds", 2, "--scheme", "subspace", "--threads", 1, "-q")
    assert run("train", data, *options, "-o", tmp_path / "run") in (0, 7)
