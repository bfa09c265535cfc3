"""Schemes on the span of the directions that parties sent.

Rounds by directions
    ``scheme`` declares, ``subspace`` is the method and its coordinator. ``direction_choice``,
    ``metric_watch`` and ``gap_forecast`` decide what a round asks for; ``moves`` which directions are
    discarded; ``rounded_messages`` what single precision costs.

Minimising over the span
    ``span`` with ``span_hessian``; ``one_leaf`` and ``many_leaves`` do it in few compiled calls;
    ``near_rows`` and ``bent_rows`` if the loss has curvature at few rows.

Other losses and settings
    ``smoothed`` (kinks), ``descent`` (non-convex), ``log_sum``, ``few_rows`` with ``box_program`` (more
    columns than rows), ``summed`` and ``summed_scheme`` (the coordinator sees sums only).

All columns, in one process
    ``whole_span`` chooses by the costs of ``work_of_ways`` and ``memory_of_ways``. ``stacked`` reads columns
    in place, with ``stacked_span``, ``stacked_smoothed`` (kinks), ``stacked_newton`` and ``preconditioner``
    (truncated Newton), ``row_samples`` and ``sampled_start`` (a start from samples), ``row_ascent`` (dual
    coordinate ascent) and ``row_kernel`` (the Gram matrix of few rows). ``dense_kinks`` says where kinks go
    by an interior point method.
"""
