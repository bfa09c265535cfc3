"""A made table that memory does not hold, trained within a limit: docs/streaming.md.

    python -P bench/large.py [--rows 5000000] [--memory 4GB] [--lam 1e-6]

Four parties hold 100,000 columns each, 25 entries of which a row has; popular ones and rare ones, as words
are. The default takes 6 GB of disk and some ten minutes.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

PARTIES, COLUMNS, ENTRIES, ROWS_AT_ONCE = 4, 100_000, 25, 50_000


def make(path: Path, n_rows: int) -> None:
    """Write the partition."""
    from fastadmm.store.partition import create_partition

    rng = np.random.default_rng(5)
    weights = rng.normal(size=(PARTIES, COLUMNS)) * (rng.random((PARTIES, COLUMNS)) < 0.3)
    with create_partition(path, task="classification") as partition:
        parties = [partition.party(n_features=COLUMNS) for _ in range(PARTIES)]
        labels = partition.labels(classes=("0", "1"))
        for begin in range(0, n_rows, ROWS_AT_ONCE):
            n = min(ROWS_AT_ONCE, n_rows - begin)
            z = np.zeros(n)
            for party, own in zip(parties, weights):
                columns = (COLUMNS * rng.random((n, ENTRIES)) ** 1.5).astype(np.int32)
                columns.sort(axis=1)
                starts = np.arange(0, n * ENTRIES + 1, ENTRIES, dtype=np.int32)
                X = sp.csr_array((rng.normal(size=n * ENTRIES), columns.ravel(), starts), shape=(n, COLUMNS))
                X.sum_duplicates()
                z += X @ own
                party.append(X)
            labels.append((rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * z / z.std()))) * 1.0)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--lam", default="1e-6")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        data, run = Path(folder, "large.parts"), Path(folder, "run")
        make(data, options.rows)
        command = [str(Path(sys.executable).with_name("fastadmm")), "train", str(data)]
        limits = ["--memory", options.memory, "--lambda", options.lam]
        plan = subprocess.run([*command, *limits, "--dry-run", "--json"], stdout=subprocess.PIPE, check=True)
        subprocess.run([*command, *limits, "--out", str(run)], check=True)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        planned = json.loads(plan.stdout)
        rounds = len((run / "rounds.jsonl").read_text("utf-8").splitlines())
    told = f"{planned['history']} directions per party, planned {planned['total'] / 1e9:.2f} GB"
    print(f"{rounds} rounds; {peak / 1e9:.2f} GB at most; {told}")


if __name__ == "__main__":
    main()
