"""Runs on disk: configuration, training, checkpoints, prediction, evaluation, demonstration."""
