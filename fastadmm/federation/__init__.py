"""Parties in different organisations: each one's process decides what it answers, an engine carries bytes."""
