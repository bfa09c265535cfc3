"""What each party's data adds to a model: coalitions, leave-one-out, Shapley values."""

from fastadmm.worth.coalitions import Coalition, Worth, measure_worth, shapley_values

__all__ = ["Coalition", "Worth", "measure_worth", "shapley_values"]
