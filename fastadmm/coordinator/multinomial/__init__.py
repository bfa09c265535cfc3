"""Several classes on the span of directions."""
