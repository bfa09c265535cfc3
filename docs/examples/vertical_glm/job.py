# SPDX-FileCopyrightText: The fastadmm authors
# SPDX-License-Identifier: Apache-2.0
"""Train a generalised linear model of columns that two sites keep, in NVFlare's simulator."""

import argparse
import json
from pathlib import Path

from fastadmm.between.recipe import VerticalGLMRecipe
from nvflare.recipe import SimEnv, set_per_site_config

SITES = ("site-1", "site-2")

SETTINGS = {
    "breast_cancer": {"loss": "logistic", "regularizer": "l2", "lambda": 1e-2},
    "diabetes": {"loss": "squared", "regularizer": "l2", "lambda": 1e-2},
}


def main() -> None:
    """Train on both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"), help="what prepare_data.py wrote")
    parser.add_argument("--workspace", default="/tmp/nvflare/simulation", help="of the simulator")
    arguments = parser.parse_args()
    for table, settings in SETTINGS.items():
        parts = arguments.data.absolute() / table / "parts"
        recipe = VerticalGLMRecipe(
            {"data": str(parts / "labels.h5"), **settings}, name=table, min_clients=len(SITES)
        )
        # Here sites approve whatever is asked; in production their owners do, by "fastadmm agent approve".
        own = {site: {"data": str(parts / f"{site}.h5")} for site in SITES}
        set_per_site_config(recipe, own)
        run = recipe.execute(SimEnv(clients=list(SITES), workspace_root=arguments.workspace))
        workspace = Path(run.get_result())
        result = json.loads((workspace / "server" / "run" / "result.json").read_text())
        print(f"{table}: {result['status']}, objective {result['objective']:.6f}")
        for site in SITES:
            (part,) = workspace.glob(f"{site}/state/*/{site}.h5")
            print(f"{table}: {site} has its part of the model, {part.relative_to(workspace).parts[-1]}")


if __name__ == "__main__":
    main()
