"""Non-smooth penalties and sets: faces of the penalty, hull of the weights sent."""
