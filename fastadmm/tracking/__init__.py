"""Runs in MLflow: settings, rounds, results, and what may be said of private runs."""

from fastadmm.tracking.display import Tracking, tracked

__all__ = ["Tracking", "tracked"]
