"""Statistical inference: standard errors, tests and fit statistics of a joint model."""
