"""Other people's files into ours: readers, splits, labels, scaling, conversion, synthetic data."""
