"""The pooled solver: all columns are in this process, and nothing is exchanged."""
