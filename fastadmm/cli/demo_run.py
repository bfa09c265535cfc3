"""The demonstration: scikit-learn's breast cancer data as three laboratories; all steps are the commands'."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError, StorageError
from fastadmm.files.atomic import atomic_directory, shown
from fastadmm.runs.config import make_config
from fastadmm.runs.evaluate import evaluate_partition
from fastadmm.runs.train import start_run
from fastadmm.store.partition import Partition

#: What each laboratory has measured.
MEASURED = {
    "lab-size": ("radius", "perimeter", "area"),
    "lab-surface": ("texture", "smoothness", "symmetry"),
    "lab-outline": ("compactness", "concavity", "concave_points", "fractal_dimension"),
}
PARTIES = tuple(MEASURED)
LAMBDA = 1e-2

STORY = """\
Three laboratories have measured the same tumours: one how large the cell
nuclei are, one their surface, one their outline. Together they learn to tell
malignant from benign. What they send are numbers per patient, never their
columns. (Breast Cancer Wisconsin; the division into three is ours.)
"""


def run_demo(out: Path, *, force: bool = False, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Convert, train, evaluate, report, compare with what each party gets alone, and verify."""
    from fastadmm.reports.html import write_report
    from fastadmm.runs.verify import verify_run

    if out.exists() and not force and (not out.is_dir() or any(out.iterdir())):
        raise StorageError(f"{shown(out)}: exists already; choose another name with --out or pass --force")
    with atomic_directory(out, force=force, marker="train.csv") as directory:
        train, test = convert_tables(directory, say)
        asked = {"data": str(train.path), "test": str(test.path), "lambda": LAMBDA}
        say(f"fastadmm train train.parts --test test.parts --lambda {LAMBDA:g}")
        result = start_run(make_config(asked), directory / "run")
        say(f"  {result['message']}")
        say("fastadmm evaluate run test.parts")
        joint = evaluate_partition(directory / "run", test.path)["metrics"]
        rows, difference = _compared(train, test, directory / "run")
        rows.append(_row("joint (fastadmm, 3 parties)", 30, joint, joint=True))
        say("fastadmm report run")
        missing = ""
        try:
            write_report(directory / "run")
        except ConfigError as error:  # an extra that is not installed; the rest of the demo is done
            missing = str(error)
    sent = max(party["bytes"] for party in result["parties"]) / train.n_samples
    table = max(party.n_features for party in train.parties) * np.dtype(float).itemsize
    return {
        "models": rows,
        **{key: result[key] for key in ("gap", "rounds", "exchanges")},
        "bytes_per_row": sent,
        "pooled_bytes_per_row": table,
        "largest_difference": difference,
        "message": (
            f"joint model {result['message']}\n"
            f"{result['exchanges']} exchanges of numbers, {sent:.0f} bytes a row from a party at most; "
            f"pooled: the columns themselves, {table} bytes a row\n"
            f"its weights differ from the pooled model's by at most {difference:.1e}"
        ),
        "verified": verify_run(out / "run").line,
        "report": None if missing else str(out / "run" / "report.html"),
        "no_report": missing,
    }


def convert_tables(directory: Path, say: Callable[[str], None]) -> tuple[Partition, Partition]:
    """Patients to learn from, and patients to test with; three laboratories."""
    from fastadmm.data_tools.convert import convert

    train = {"columns": _write_tables(directory), "names": ",".join(PARTIES), "standardize": True}
    asked: dict[str, dict[str, Any]] = {"train": train, "test": {"like": directory / "train.parts"}}
    made = []
    for name, options in asked.items():
        said = {key: "" if v is True else f" {getattr(v, 'name', v)}" for key, v in options.items()}
        words = " ".join(f"--{key}{value}" for key, value in said.items())
        say(f"fastadmm convert {name}.csv --label diagnosis {words} -o {name}.parts")
        source, out = directory / f"{name}.csv", directory / f"{name}.parts"
        made.append(convert(source, out, label="diagnosis", **options))
    return made[0], made[1]


def _write_tables(directory: Path) -> str:
    """Write train.csv and test.csv, one laboratory's columns after the other's; return how many each has."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split

    data = load_breast_cancer(as_frame=True)
    frame = data.data.rename(columns=lambda name: name.replace(" ", "_"))
    diagnosis = np.array(["malignant", "benign"])[data.target]
    of_lab = [[n for n in frame if any(what in n for what in kinds)] for kinds in MEASURED.values()]
    order = [name for own in of_lab for name in own]
    parts = train_test_split(frame[order], diagnosis, test_size=0.25, random_state=0, stratify=diagnosis)
    for file_name, X, y in (("train.csv", parts[0], parts[2]), ("test.csv", parts[1], parts[3])):
        X.insert(0, "diagnosis", y)
        X.to_csv(directory / file_name, index=False, lineterminator="\n")
    return ",".join(str(len(own)) for own in of_lab)


def _row(name: str, n_features: int, metrics: dict[str, Any], *, joint: bool = False) -> dict[str, Any]:
    scores = {key: metrics[key] for key in ("log_loss", "accuracy", "auc")}
    return {"name": name, "n_features": n_features, "joint": joint, **scores}


def _compared(train: Partition, test: Partition, run: Path) -> tuple[list[dict[str, Any]], float]:
    """What each laboratory reaches alone, and scikit-learn with all columns; how far ours is from that."""
    from sklearn.linear_model import LogisticRegression

    from fastadmm.problem.losses import get_loss
    from fastadmm.problem.problem import make_problem
    from fastadmm.solver.metrics import quick_of
    from fastadmm.solver.solver import solve
    from fastadmm.store.model import open_model

    y, y_test = (part.labels.y for part in (train, test) if part.labels is not None)
    rows = []
    blocks, others = ([party.load() for party in part.parties] for part in (train, test))
    for name, X, X_test in zip(PARTIES, blocks, others, strict=True):
        alone = solve(make_problem([X], y, lam=LAMBDA))
        z = X_test @ alone.weights[0] + alone.intercept
        rows.append(_row(f"{name} alone", X.shape[1], quick_of(get_loss("logistic"), y_test, z)))
    pooled = LogisticRegression(C=1.0 / (len(y) * LAMBDA), solver="newton-cholesky", tol=1e-10)
    pooled.fit(np.hstack(blocks), y)
    metrics = quick_of(get_loss("logistic"), y_test, pooled.decision_function(np.hstack(others)))
    rows.append(_row("pooled (scikit-learn)", pooled.n_features_in_, metrics))
    joint = np.concatenate([party.weights for party in open_model(run).parties])
    return rows, float(np.abs(joint - pooled.coef_[0]).max())
