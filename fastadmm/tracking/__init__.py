"""Runs in TensorBoard and MLflow: settings, rounds, results, and what may be said of private runs."""

from fastadmm.tracking.display import Target, Tracker, Tracking, parse_target, tracked

__all__ = ["Target", "Tracker", "Tracking", "parse_target", "tracked"]
