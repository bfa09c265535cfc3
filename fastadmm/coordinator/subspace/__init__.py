"""Schemes on the span of the directions that parties sent.

Rounds by directions
    ``scheme`` declares, ``subspace`` is the method and its coordinator. ``moves`` says which directions are
    discarded; ``rounded_messages`` what single precision costs. The span is minimised over in
    ``fastadmm.method``.

Other losses and settings
    ``smoothed`` (kinks), ``descent`` (non-convex, and log-sums), ``multinomial``, ``few_rows`` (more
    columns than rows), ``summed`` (the coordinator sees sums only).
"""
