"""The model card says what the files say."""

import json
import shutil

from fastadmm.runs.evaluate import evaluate_partition
from fastadmm.store.model import open_model
from fastadmm.store.partition import open_partition

from run_tools import refused, run, write_problem


def test_card(tmp_path, capsys):
    write_problem(tmp_path / "d.parts", 80, (3, 2))
    assert run("train", tmp_path / "d.parts", "-o", tmp_path / "run", "-q") == 0
    capsys.readouterr()
    assert run("card", tmp_path / "run") == 0
    assert "Not evaluated" in capsys.readouterr().out
    metrics = evaluate_partition(tmp_path / "run", tmp_path / "d.parts")["metrics"]
    model, partition = open_model(tmp_path / "run"), open_partition(tmp_path / "d.parts")
    for path in (tmp_path / "run", tmp_path / "run" / "model"):
        assert run("card", path, "--json") == 0
        card = json.loads(capsys.readouterr().out)
        assert card["model"]["id"] == model.model_id
        kept = {key: value for key, value in model.certificate.items() if key not in ("weights", "settings")}
        assert card["certificate"] == kept
        assert card["claim"].startswith("certified: relative duality gap")
        assert card["metrics"]["metrics"]["auc"] == metrics["auc"]
        assert card["data"]["data"] == "d.parts"
        assert card["data"]["n_samples"] == sum(card["data"]["class_rows"].values()) == 80
        assert (card["asked"]["gap"], card["asked"]["rounds"]) == (1e-6, 10_000)
        assert card["privacy"] == model.privacy.to_json()
    assert run("card", tmp_path / "run", "-o", tmp_path / "card.md") == 0
    text = (tmp_path / "card.md").read_text()
    assert model.model_id in text
    assert str(metrics["auc"]) in text
    assert partition.row_digest not in text  # digests stay at home
    assert "epsilon = infinity" in text

    shutil.copytree(tmp_path / "run" / "model", tmp_path / "alone")
    assert run("card", tmp_path / "alone") == 0
    assert "Not recorded here" in capsys.readouterr().out
    (tmp_path / "run" / "evaluation.json").write_text("{")
    assert "evaluate again" in refused(capsys, 4, "card", tmp_path / "run", "-o", tmp_path / "two.md")
    assert not (tmp_path / "two.md").exists()
