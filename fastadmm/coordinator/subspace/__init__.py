"""Schemes on the span of the directions that parties sent."""
