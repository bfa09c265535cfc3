"""Estimators in the style of scikit-learn."""
