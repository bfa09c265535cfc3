"""Between organisations: one protocol for parties elsewhere, by files, over a socket or NVFlare."""
