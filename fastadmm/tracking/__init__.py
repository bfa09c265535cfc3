"""Runs in TensorBoard and MLflow: settings, rounds, results, and what may be said of private runs."""

from fastadmm.tracking.display import Tracking, tracked
from fastadmm.tracking.targets import Target, Tracker, parse_target

__all__ = ["Target", "Tracker", "Tracking", "parse_target", "tracked"]
