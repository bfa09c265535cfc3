"""Schemes with messages and targets: sharing, jacobi, gauss-seidel."""
