"""Compression of stored blocks: smaller files, useful if the disk is slower than decompression.

gzip is part of HDF5. Zstandard and Blosc2 come with the package ``hdf5plugin``
(the extra ``fastadmm[compression]``), for writing as for reading; like every
HDF5 filter they are invisible to whoever reads the values, so files keep to
anndata's convention.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fastadmm.errors import ConfigError, FormatError, StorageError
from fastadmm.files.atomic import shown

if TYPE_CHECKING:
    import h5py

#: What blocks may be stored with.
COMPRESSIONS = ("none", "gzip", "zstd", "blosc2")

_NAMES = {32015: "Zstandard", 32026: "Blosc2", 32001: "Blosc", 32004: "LZ4", 32008: "Bitshuffle"}
_INSTALL = "install it with: pip install 'fastadmm[compression]'"


def compression_options(name: str) -> dict[str, Any]:
    """Arguments of h5py's ``create_dataset`` for a compression."""
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
    """Make the filters of a dataset available, or say which package has them."""
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


def refuse_packed(dataset: h5py.Dataset) -> None:
    """Refuse a dataset that takes more memory than its file has bytes.

    Files that organisations exchange are written without compression, so that a few bytes cannot become
    gigabytes before they are checked.
    """
    import h5py

    properties = dataset.id.get_create_plist()
    filters = {properties.get_filter(k)[0] for k in range(properties.get_nfilters())}
    if filters - {h5py.h5z.FILTER_FLETCHER32}:
        raise FormatError(
            f"{_place(dataset)}: is compressed, but what is sent must not be; have it sent again"
        )
    _refuse_oversized(dataset, 0, "have it sent again")


def refuse_oversized(dataset: h5py.Dataset) -> None:
    """Refuse a dataset that the format does not compress and that takes far more memory than its file."""
    _refuse_oversized(dataset, _HARMLESS, "damaged, or made to fill the memory")


#: Bytes of an array that are harmless, whatever the size of the file.
_HARMLESS = 1 << 20


def _refuse_oversized(dataset: h5py.Dataset, harmless: int, remedy: str) -> None:
    size = dataset.file.id.get_filesize()
    for shape in (dataset.shape, dataset.chunks or ()):
        needed = math.prod(shape) * dataset.dtype.itemsize
        if needed > max(size, harmless):
            raise FormatError(f"{_place(dataset)}: claims {needed} bytes in a file of {size}; {remedy}")


def _place(dataset: h5py.Dataset) -> str:
    return f"{shown(dataset.file.filename)}: key {dataset.name.strip('/')!r}"
