"""Figures and numbers as they are shown: what runs and reports draw with."""
