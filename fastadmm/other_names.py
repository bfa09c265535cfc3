"""What other programs call our settings: for a "did you mean" that is right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: Our key, and what else may be said, for the names of settings elsewhere.
KEYS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("alpha", "reg_lambda", "reg_param", "weight_decay", "strength"), ("lambda", "")),
    **dict.fromkeys(("c", "regparam"), ("lambda", "It is 1 / (N C) for N rows")),
    **dict.fromkeys(("reg", "regularization", "regularisation", "regulariser"), ("regularizer", "")),
    **dict.fromkeys(("tol", "tolerance", "duality_gap"), ("gap", "")),
    **dict.fromkeys(("max_iter", "max_rounds", "iterations", "iter", "n_iter", "epochs"), ("rounds", "")),
    **dict.fromkeys(("timeout", "max_time", "max_seconds", "seconds"), ("time", "")),
    **dict.fromkeys(("n_jobs", "jobs", "j", "n_threads", "num_threads", "workers", "cores"), ("threads", "")),
    **dict.fromkeys(("max_memory", "mem", "ram"), ("memory", "")),
    **dict.fromkeys(("bias", "fit_intercept"), ("intercept", "")),
    **dict.fromkeys(("family", "objective", "criterion"), ("loss", "")),
    **dict.fromkeys(("solver", "algorithm", "method", "optimizer"), ("scheme", "")),
    **dict.fromkeys(("val", "valid", "early_stopping", "validation_fraction"), ("validation", "")),
    **dict.fromkeys(("bounds", "positive", "nonneg"), ("constraint", "")),
    **dict.fromkeys(("test_set", "test_data", "holdout"), ("test", "")),
    **dict.fromkeys(("weights", "class_weights", "sample_weight"), ("class_weight", "")),
    **dict.fromkeys(("init", "start", "coef_init", "warmstart"), ("warm_start", "")),
    **dict.fromkeys(("cv", "k", "n_folds"), ("folds", "")),
    **dict.fromkeys(("n_lambda", "n_alphas", "nlambda"), ("path_length", "")),
    **dict.fromkeys(("lambdas", "alphas", "cs"), ("path_values", "")),
    **dict.fromkeys(("random_state", "random_seed"), ("seed", "")),
    **dict.fromkeys(("rho", "r"), ("penalty", "")),
    **dict.fromkeys(("dp", "private", "differential_privacy"), ("privacy", "")),
}


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def choose_instead(value: object, known: Iterable[str]) -> str:
    """What to write in place of a value that there is not: what is near, or else all that there is."""
    names = list(known)
    if isinstance(value, str):
        name, _, rest = value.strip().replace("=", ":").partition(":")
        plain = {_plain(own.partition(":")[0]): own for own in names}
        if near := difflib.get_close_matches(_plain(name), plain, n=1, cutoff=0.7):
            ours = plain[near[0]]
            meant = f"{ours.partition(':')[0]}:{rest}" if rest else ours
            if meant != value:
                return f"did you mean {meant!r}?"
    return f"choose {', '.join(names)}"


def near_key(name: str, known: Iterable[str]) -> tuple[str, str]:
    """The key that is meant by another name."""
    names = list(known)
    plain = _plain(name)
    if plain in names:
        return plain, ""
    if plain in KEYS and KEYS[plain][0] in names:
        return KEYS[plain]
    near = difflib.get_close_matches(plain, names, n=1)
    return (near[0], "") if near else ("", "")
