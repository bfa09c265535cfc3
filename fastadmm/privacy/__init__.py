"""Differential privacy for parties that hold feature columns: sensitivities, mechanisms, accounting, audit."""
