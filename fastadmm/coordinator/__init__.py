"""The coordinator: all shared state and every decision of ADMM sharing."""
