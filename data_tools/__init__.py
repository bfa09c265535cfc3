"""Converting data files to partitions: readers, splits, labels, scaling, conversion, synthetic data."""
