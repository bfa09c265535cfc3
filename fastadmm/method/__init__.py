"""What both programs need: schemes, methods, bounds, and Newton over a span."""
