"""``fastadmm predict``: scores and predictions for new rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastadmm.cli.app import app

if TYPE_CHECKING:
    from fastadmm.runs.predict import Predictions


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(readable=False, help="Run directory or model directory.")],
    data: Annotated[
        Path,
        typer.Argument(
            readable=False,
            help="Partition with the same columns; labels are not needed. With --partial, one party's file.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", readable=False, help="CSV file to write; unset: standard output."),
    ] = None,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial", help="Write one party's contribution, for 'fastadmm combine'; MODEL may be its file."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Predict every row of a partition: id, score, and probability and label, or value."""
    from fastadmm.errors import ConfigError
    from fastadmm.runs.predict import predict_partition

    if not partial:
        write_csv(predict_partition(model, data), out, force)
        return
    from fastadmm.runs.combine import partial_predict

    if out is None:
        raise ConfigError("--partial: name the contribution file with -o FILE.h5")
    name, n_samples = partial_predict(model, data, out, force=force)
    print(f"contribution of {name} to {n_samples} rows in {out}")


def write_csv(predictions: Predictions, out: Path | None, force: bool) -> None:
    """Write predictions to a file, or to standard output."""
    import sys

    from fastadmm.runs.predict import write_predictions
    from fastadmm.store.atomic import atomic_file

    if out is None:
        write_predictions(sys.stdout, predictions)
        return
    with (
        atomic_file(out, force=force) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        write_predictions(file, predictions)
    print(f"{len(predictions.score)} predictions in {out}")
