"""Schemes on the span of the directions that parties sent.

Rounds by directions
    ``scheme`` declares, ``subspace`` is the method and its coordinator. ``direction_choice`` and
    ``metric_watch`` decide what a round asks for; ``moves`` which directions are discarded;
    ``rounded_messages`` what single precision costs.

Minimising over the span
    :mod:`fastadmm.method.span`; ``near_rows`` if the loss has curvature at few rows.

Other losses and settings
    ``smoothed`` (kinks), ``descent`` (non-convex), ``log_sum``, ``few_rows`` with ``box_program`` (more
    columns than rows), ``summed`` and ``summed_scheme`` (the coordinator sees sums only).
"""
