"""``fastadmm demo``: the main job on real data, end to end."""

from __future__ import annotations

from pathlib import Path

from fastadmm.cli.app import app
from fastadmm.cli.options import FORCE, written
from fastadmm.cli.terminal import grid, say, show

_NEXT = """
Try next:
  fastadmm worth {out}/run
      what each laboratory's columns add to the joint model
  fastadmm train {out}/train.parts --regularizer l1 --lambda 1e-2 -o lasso
      the same with fewer columns
  fastadmm convert YOUR.csv --label COLUMN --parties 2 --standardize -o my.parts
      your own table; then: fastadmm train my.parts

The model, proved again by a second and plain implementation:
  fastadmm verify {out}/run
      {verified}"""


@app.command()
def demo(
    out: Path = written("DIR", Path("demo-run")),
    force: bool = FORCE,
) -> None:
    """Run a demo: three laboratories train a joint model, on real data, in seconds."""
    from fastadmm.cli.demo_run import STORY, run_demo
    from fastadmm.files.atomic import shown

    say(STORY)
    result = run_demo(out, force=force, say=say)
    names = ("log_loss", "accuracy", "auc")
    rows = (
        [row["name"], str(row["n_features"]), *(f"{row[n]:.4f}" for n in names)] for row in result["models"]
    )
    header = ("model", "features", "log loss", "accuracy", "AUC")
    show(grid("Test set: 143 patients the models have not seen", header, rows))
    say(result["message"])
    say(result["no_report"] or f"report: {result['report']}")
    say(_NEXT.format(out=shown(out), verified=result["verified"]))
