"""Differential privacy for parties that hold feature columns: sensitivity, mechanism, accounting, audit."""
