"""Files on disk: partitions, party and label files, and the elements they are made of.

Nothing heavy is imported here: each name below loads its module on first use.
"""

from fastadmm.lazy import load_on_use

_HOME = {
    "elements": (
        "read_array",
        "read_attribute",
        "read_strings",
        "write_array",
        "write_strings",
    ),
    "encoder": ("ColumnEncoding", "Encoder"),
    "h5file": ("create_h5", "read_h5"),
    "label_file": ("LabelData", "LabelWriter", "open_labels"),
    "partition": ("Partition", "PartitionWriter", "create_partition", "merge_partitions", "open_partition"),
    "party_file": ("PartyData", "PartyWriter", "open_party"),
    "transform": ("Transform",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605


__getattr__, __dir__ = load_on_use(globals(), _MODULE_OF)
