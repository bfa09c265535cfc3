"""What other programs call our settings and their values: for a "did you mean" that is right."""

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

_VALUES: dict[str, dict[str, str]] = {
    "loss": {
        **dict.fromkeys(("logit", "log", "log_loss", "logloss", "logreg", "logistic_regression"), "logistic"),
        **dict.fromkeys(("binary", "bernoulli", "bce", "cross_entropy", "sigm"), "logistic"),
        **dict.fromkeys(("softmax", "categorical", "multiclass", "crossentropy"), "multinomial"),
        **dict.fromkeys(("mse", "l2", "ls", "ols", "linear", "gaussian", "normal", "regression"), "squared"),
        **dict.fromkeys(("squared_error", "squared_loss", "least_squares", "quadratic"), "squared"),
        **dict.fromkeys(("mae", "l1", "lad", "absolute", "absolute_error", "median"), "quantile:0.5"),
        **dict.fromkeys(("pinball", "quantile_loss"), "quantile"),
        **dict.fromkeys(("svm", "svc", "linear_svc", "hinge_loss"), "hinge"),
        **dict.fromkeys(("count", "counts", "log_linear", "loglinear"), "poisson"),
        **dict.fromkeys(("negbin", "nbinom", "nb", "nb2", "negativebinomial"), "negative_binomial"),
        **dict.fromkeys(("compound_poisson", "poisson_gamma", "pure_premium"), "tweedie"),
        **dict.fromkeys(("biweight", "bisquare"), "tukey"),
        "modified_huber": "smoothed_hinge",
    },
    "regularizer": {
        **dict.fromkeys(("lasso", "sparse", "l_1"), "l1"),
        **dict.fromkeys(("ridge", "tikhonov", "squared_l2", "l_2", "weight_decay"), "l2"),
        **dict.fromkeys(("elasticnet", "enet", "l1_l2", "l1l2"), "elastic_net"),
        **dict.fromkeys(("group", "grouplasso", "l21"), "group_lasso"),
        **dict.fromkeys(("off", "no", "null", "0"), "none"),
        **dict.fromkeys(("scad", "mcp", "nonconvex"), "log_sum"),
    },
    "constraint": {
        **dict.fromkeys(("positive", "non_negative", "nonneg", "nn"), "nonnegative"),
        **dict.fromkeys(("none", "no", "off"), "all"),
        **dict.fromkeys(("bounds", "interval"), "box:LOW,HIGH"),
        **dict.fromkeys(("l2", "norm", "sphere"), "ball:RADIUS"),
        **dict.fromkeys(("probability", "probabilities", "convex", "portfolio"), "simplex:SUM"),
        **dict.fromkeys(("linear", "equality", "hyperplane"), "affine:NUMBERS=VALUE;..."),
    },
    "scheme": {
        **dict.fromkeys(("admm", "consensus"), "sharing"),
        **dict.fromkeys(("default", "best"), "auto"),
        **dict.fromkeys(("gs", "seidel", "sequential"), "gauss-seidel"),
        **dict.fromkeys(("prox", "proximal_gradient", "fista"), "proximal"),
        **dict.fromkeys(("parallel", "paper"), "jacobi"),
    },
    "mode": {
        **dict.fromkeys(("dp", "on", "yes", "true", "differential"), "fusion"),
        **dict.fromkeys(("off", "no", "false"), "none"),
        **dict.fromkeys(("messages", "noise", "gaussian", "dp_sgd"), "message"),
    },
    "validation_metric": {
        **dict.fromkeys(("logloss", "neg_log_loss", "cross_entropy"), "log_loss"),
        **dict.fromkeys(("roc_auc", "roc", "auroc"), "auc"),
        **dict.fromkeys(("acc", "error"), "accuracy"),
        **dict.fromkeys(("mse", "squared_error"), "rmse"),
        "objective": "loss",
    },
}


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def choose_instead(key: str, value: object, known: Iterable[str]) -> str:
    """What to write in place of a value that there is not.

    Returns: ``"did you mean 'l1'?"``, or ``"choose l2, l1"`` where nothing is near.
    """
    names = list(known)
    listed = f"choose {', '.join(names)}"
    if not isinstance(value, str):
        return listed
    name, _, rest = value.strip().replace("=", ":").partition(":")
    name = _plain(name)
    plain = {_plain(known_name.partition(":")[0]): known_name for known_name in names}
    ours = plain.get(name) or _VALUES.get(key, {}).get(name)
    if ours is None:
        near = difflib.get_close_matches(name, plain, n=1, cutoff=0.7)
        ours = plain[near[0]] if near else None
    if ours is None:
        return listed
    meant = f"{ours.partition(':')[0]}:{rest}" if rest else ours
    return f"did you mean {meant!r}?" if meant != value else listed


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
