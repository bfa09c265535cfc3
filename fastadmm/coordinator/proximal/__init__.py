"""Non-smooth penalties and sets: faces of the penalty, hull of the weights sent.

Rounds by directions
    ``scheme`` declares, ``proximal`` is the method, ``coordinator`` runs its rounds; ``best_response`` is
    what a party answers. Several classes: ``multinomial``, with ``parts``.

The model: the best combination of points
    ``hull``, ``candidates``, ``shared_hull``, ``shared_directions``, ``weights_program``.

The proposal: Newton's method over faces
    ``face_search``, ``face_newton``, ``chord_newton``, ``segment_search``, ``spheres`` (balls). Several
    classes: ``class_newton``, ``class_hessian``, ``class_passes``.

Where the gap stands still
    ``dual_steps`` (steps of ADMM), ``central_path`` with ``barrier`` and ``path_rows`` (interior point

All columns, in one process
    ``narrow`` with ``narrow_newton`` (few: sent at once), ``stacked`` with
    ``sampled_columns``, ``working_sets`` and ``coordinate_newton`` (read in place), ``wide`` with
    ``predictor_newton`` (few rows), ``kinked_columns`` with ``kinked_work`` and ``interior_point`` (losses
    with kinks); ``small_steps`` for all of them. Several classes: ``narrow_classes``,
    ``narrow_class_newton``, ``class_coordinate_newton``.
"""
