"""``fastadmm predict``: scores and predictions for new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastadmm.cli.app import app


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(readable=False, help="Run directory or model directory.")],
    data: Annotated[
        Path, typer.Argument(readable=False, help="Partition with the same columns; labels are not needed.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", readable=False, help="CSV file to write; unset: standard output."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Predict every row of a partition: id, score, and probability and label, or value."""
    import sys

    from fastadmm.runs.predict import predict_partition, write_predictions
    from fastadmm.store.atomic import atomic_file

    predictions = predict_partition(model, data)
    if out is None:
        write_predictions(sys.stdout, predictions)
        return
    with (
        atomic_file(out, force=force) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        write_predictions(file, predictions)
    print(f"{len(predictions.score)} predictions in {out}")
