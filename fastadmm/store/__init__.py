"""Files on disk: partitions, party and label files, and the elements they are made of."""
