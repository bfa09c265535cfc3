"""Small owners of rows for tests."""

from pathlib import Path

import numpy as np
import tomli_w
from fastadmm.store.owner_file import FORMAT, MANIFEST, VERSIONS, OwnerWriter
from scipy import sparse


def write_owners(path: Path, sizes=(30, 50), d=4, task="classification", kind="dense", kappa=1, seed=0):
    """A directory with owners a, b, ... and their rows as a list of (X, y)."""
    rng = np.random.default_rng(seed)
    truth, parts = rng.normal(size=d), []
    path.mkdir()
    names = [chr(ord("a") + k) for k in range(len(sizes))]
    for name, size in zip(names, sizes, strict=True):
        X = rng.normal(size=(size, d))
        y = X @ truth + 0.5 * rng.normal(size=size)
        if task == "classification":
            y = np.where(y > 0, 1.0, -1.0)
        parts.append((X, y))
        with OwnerWriter(
            path / f"{name}.h5",
            name=name,
            kind=kind,
            task=task,
            feature_names=[f"f{i + 1}" for i in range(d)],
            classes=("0", "1") if task == "classification" else None,
        ) as writer:
            writer.append(sparse.csr_array(X) if kind == "csr" else X, y)
    manifest = {"format": FORMAT, "version": VERSIONS[-1], "owners": names, "kappa": kappa}
    (path / MANIFEST).write_text(tomli_w.dumps(manifest))
    return path, parts
