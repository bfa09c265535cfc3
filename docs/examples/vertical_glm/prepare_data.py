# SPDX-FileCopyrightText: The fastadmm authors
# SPDX-License-Identifier: Apache-2.0
"""Write each site's features, and the labels, of two public tables that come with scikit-learn."""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes

SITES = ("site-1", "site-2")

TABLES = {"breast_cancer": load_breast_cancer, "diabetes": load_diabetes}


def prepare(name: str, folder: Path) -> None:
    """Write a table per site, half of the columns each, and convert them by the common ids."""
    data = TABLES[name](as_frame=True, **({"scaled": False} if name == "diabetes" else {}))
    ids = [f"patient-{number}" for number in range(len(data.frame))]
    folder.mkdir(parents=True)
    tables = {"labels": data.target.rename("label").to_frame()}
    columns = np.array_split(data.data.columns.to_numpy(), len(SITES))
    tables |= {site: data.data[list(own)] for site, own in zip(SITES, columns)}
    for table_name, table in tables.items():
        table.insert(0, "id", ids)
        # Every owner has its rows in an order of its own.
        table = table.sample(frac=1, random_state=len(table.columns))
        table.to_csv(folder / f"{table_name}.csv", index=False)
    hosts = [part for site in SITES for part in ("--host", f"{site}.csv")]
    command = [sys.executable, "-m", "fastadmm", "convert", "--guest", "labels.csv", *hosts, "--id", "id"]
    command += ["--label", "label", "--names", ",".join(SITES), "--standardize", "-o", "parts"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("data"))
    out = parser.parse_args().out
    for table in TABLES:
        prepare(table, out / table)
        print(f"{out / table / 'parts'}: labels.h5, {', '.join(f'{site}.h5' for site in SITES)}")
