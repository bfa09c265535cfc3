"""Settings and the roles of their keys."""
