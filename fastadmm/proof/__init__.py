"""What is printed as proved: computed once, from the weights as they are written, by this room alone."""
