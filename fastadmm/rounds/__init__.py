"""Training over exchanged files: no open port, nobody online at the same time."""
