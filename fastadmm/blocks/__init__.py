"""Products with a party's block, dense or CSR, in memory or in tiles."""
