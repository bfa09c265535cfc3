"""Every scheme, and the choice among them."""
