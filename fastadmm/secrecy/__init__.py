"""Sums only: what parties send is masked, so that the coordinator can read sums over all parties alone."""
