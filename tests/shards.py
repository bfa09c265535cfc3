"""Row shards as older versions wrote them: a partition cut into several, each with some rows of it."""

import tomllib
from dataclasses import replace

import h5py
import numpy as np
import tomli_w
from fastadmm.files.seal import seal_of
from fastadmm.store.label_file import write_columns
from fastadmm.store.partition import create_partition, open_partition, shard_name


def cut_partition(source, path, shards):
    """Write so many shards; returns the rows of each."""
    whole = open_partition(source, require_labels=False)
    n, contents = whole.n_samples, [party.content_digest for party in whole.parties]
    rows = [(n * k // shards, n * (k + 1) // shards) for k in range(shards)]
    path.mkdir()
    for number, own in enumerate(rows, start=1):
        folder = path / shard_name(number, shards)
        _copy_rows(whole, folder, *own)
        told = tomllib.loads((folder / "partition.toml").read_text())
        del told["digest"]
        shard = {"number": number, "of": shards, "first_row": own[0], "all_rows": n}
        told |= {
            "version": "1.1",
            "shard": shard | {"row_digest": whole.row_digest, "content_digests": contents},
        }
        (folder / "partition.toml").write_text(tomli_w.dumps({"digest": seal_of(told), **told}))
    told = {"format": "fastadmm-shards", "version": "1.0", "shards": shards, "n_samples": n}
    told["row_digest"] = whole.row_digest
    (path / "shards.toml").write_text(tomli_w.dumps({**told, "digest": seal_of(told)}))
    return rows


def _copy_rows(whole, folder, start, stop):
    ids = whole.parties[0].ids()[start:stop]
    with create_partition(folder, task=whole.task, source=whole.source) as writer:
        for party in whole.parties:
            with writer.party(
                party.name, n_features=party.n_features, kind=party.kind, dtype=party.dtype.name,
                feature_names=party.feature_names, transform=party.transform, encoder=party.encoder,
            ) as target:  # fmt: skip
                for first, block in party.of_rows(start, stop).iter_rows():
                    target.append(block, ids[first : first + block.shape[0]])
        known = whole.labels
        columns = {key: getattr(known, key) for key in ("y", "sample_weight", "offset")}
        own = {key: None if v is None else v[start:stop] for key, v in columns.items()}
        labels = writer.labels(classes=known.classes, reading=known.reading, exposure=known.exposure)
        write_columns(labels, replace(known, n_samples=stop - start, **own), ids)
    with h5py.File(folder / "labels.h5", "r+") as file:
        file.attrs["shard"] = np.int64(1)
