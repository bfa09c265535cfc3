"""Joint generalised linear models over vertically split features by ADMM sharing."""

from __future__ import annotations

__version__ = "0.1.0"
