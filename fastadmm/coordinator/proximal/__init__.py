"""Non-smooth penalties and sets: faces of the penalty, hull of the weights sent.

Rounds by directions
    ``scheme`` declares, ``proximal`` is the method, ``coordinator`` runs its rounds; ``best_response`` is
    what a party answers. Several classes: ``multinomial``, with ``parts``. Not convex: ``descent``.

The model: the best combination of points
    ``best_response``, ``shared_hull``, ``shared_directions``.

The proposal: Newton's method over faces
    ``face_search``, ``chord_newton``, ``segment_search``, ``newton_system``. Several classes:
    ``class_newton``.
"""
