"""Rows over several processes: every worker runs the same coordinator and parties on its rows."""
