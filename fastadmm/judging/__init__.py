"""How a model is judged: curves, separation, lift, intervals, drift, and columns that say the same."""
