"""Compression of stored blocks: smaller files, where reading is slower than decompressing.

gzip is part of HDF5. Zstandard and Blosc2 come with the package ``hdf5plugin``
(the extra ``fastadmm[compression]``), for writing as for reading; like every
HDF5 filter they are invisible to whoever reads the values, so files keep to
anndata's convention.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fastadmm.errors import ConfigError, StorageError
from fastadmm.store.atomic import shown

if TYPE_CHECKING:
    import h5py

__all__ = ["COMPRESSIONS", "compression_options", "require_filters"]

#: What blocks may be stored with.
COMPRESSIONS = ("none", "gzip", "zstd", "blosc2")

_NAMES = {32015: "Zstandard", 32026: "Blosc2", 32001: "Blosc", 32004: "LZ4", 32008: "Bitshuffle"}
_INSTALL = "install it with: pip install 'fastadmm[compression]'"


def compression_options(name: str) -> dict[str, Any]:
    """Arguments of h5py's ``create_dataset`` for a compression.

    Parameters
    ----------
    name : str
        One of :data:`COMPRESSIONS`.

    Returns
    -------
    dict

    Raises
    ------
    ConfigError
        Unknown, or its package is not installed.
    """
    if name not in COMPRESSIONS:
        raise ConfigError(f"compression: unknown choice {name!r}; choose {', '.join(COMPRESSIONS)}")
    if name == "none":
        return {}
    if name == "gzip":
        return {"compression": "gzip", "compression_opts": 4, "shuffle": True}
    try:
        import hdf5plugin
    except ImportError:
        raise ConfigError(f"compression: {name!r} needs the package hdf5plugin; {_INSTALL}") from None
    if name == "zstd":
        return {**hdf5plugin.Zstd(clevel=3), "shuffle": True}
    return dict(hdf5plugin.Blosc2(cname="zstd", clevel=3, filters=hdf5plugin.Blosc2.SHUFFLE))


def require_filters(dataset: h5py.Dataset) -> None:
    """Make the filters of a dataset available, or say which package has them.

    Parameters
    ----------
    dataset : h5py.Dataset

    Raises
    ------
    StorageError
        A filter is not available.
    """
    import h5py

    properties = dataset.id.get_create_plist()
    for k in range(properties.get_nfilters()):
        number = properties.get_filter(k)[0]
        if h5py.h5z.filter_avail(number):
            continue
        with suppress(ImportError):
            import hdf5plugin  # noqa: F401 (registers its filters)
        if not h5py.h5z.filter_avail(number):
            name = _NAMES.get(number, f"HDF5 filter {number}")
            raise StorageError(
                f"{shown(dataset.file.filename)}: key {dataset.name.strip('/')!r}: compressed with {name}, "
                f"which needs the package hdf5plugin; {_INSTALL}"
            )
