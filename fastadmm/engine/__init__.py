"""Threads and pieces of work; results do not depend on how many threads there are."""
