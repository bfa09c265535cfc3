"""Command line: each command is a thin file over the library."""
