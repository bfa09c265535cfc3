"""The parties, one module per family of methods."""
