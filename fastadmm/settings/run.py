"""Settings of a training run: each key of a configuration, declared once."""

from dataclasses import MISSING, dataclass
from functools import partial
from typing import Any

from fastadmm.coordinator.subspace.scheme import DIRECTIONS
from fastadmm.method.scheme import SECRECY
from fastadmm.schemes.registry import SCHEMES
from fastadmm.settings import checks
from fastadmm.settings.privacy import PANEL, Privacy
from fastadmm.settings.setting import MORE, Group, declare, settings_of

#: Declare a setting by what it decides.
_budget, _data, _method, _objective, _output, _place = (
    partial(declare, role) for role in ("budget", "data", "method", "objective", "output", "place")
)

_limit = partial(_method, is_limit=True, resumed=True)
_EARLY = Group("validation", "Early stopping (docs/training.md)", "belongs to early stopping; add validation")
_PATH = Group("path", "Regularisation path (docs/training.md)", "belongs to a path; add path = true (--path)")

_early, _path = partial(_method, group=_EARLY), partial(_method, group=_PATH)


@dataclass(frozen=True)
class RunConfig:
    """What to train and how; each field is a key of ``docs/training.md``, ``lambda_`` the key ``lambda``."""

    data: str = _data("partition directory", is_path=True, default_doc="needed", default=MISSING)
    test: str | None = _data(
        "partition, converted with `--like` the training partition, whose metrics are logged in every round",
        "Other rows, on which the model is measured and nothing learned.",
        is_path=True,
    )
    loss: str = _objective(
        "a name of [losses.md](losses.md), with `:value` for a parameter other than the default "
        "(`huber:2.0`, `quantile:0.9`); auto is logistic for two classes, multinomial for more, "
        "and squared for regression. More than two classes need multinomial. `squared` on two "
        "classes is a regression on 0 and 1",
        "What is minimised, as a mean over rows: auto (by the labels), logistic, multinomial, squared, "
        "huber, quantile, hinge, smoothed_hinge, squared_hinge, poisson, gamma, tweedie, negative_binomial, "
        "binomial, or the non-convex sigmoid, tukey, welsch. A parameter follows a colon: huber:2.0.",
        words=checks.names_of_losses,
        estimator="loss",
        default="auto",
    )
    lambda_: float = _objective(
        help="Strength of the regularisation, on the mean loss; 1 / (N C) in scikit-learn.",
        sign="positive",
        most=checks.LARGEST_FACTOR,
        not_with=("path",),
        estimator="alpha",
        default=1e-4,
    )
    party_lambda: dict[str, float] | None = _objective(
        "λ for single parties, `{bank = 1e-3, shop = 1e-1}`: see *A party's own regularisation*",
        wanted="a table of numbers",
        check=checks.own_lambdas,
        not_with=("path", "private run", "run between parties"),
        in_model=True,
    )
    regularizer: str = _objective(
        help="l2 (ridge), l1 (lasso), elastic_net, group_lasso, none or log_sum:WIDTH.",
        words=checks.names_of_regularizers,
        in_model=True,
        estimator="regularizer",
        default="l2",
    )
    l1_ratio: float | None = _objective(
        "share of l1 in `elastic_net`, at most 1; default 0.5",
        sign="positive",
        in_model=True,
    )
    groups: list[list[list[int]]] | None = _objective(
        "groups of `group_lasso`: per party a list of groups, each a list of the party's column "
        "numbers from 0, or `[]` for one group; by default each party is one group: `groups = "
        "[[[0, 1], [2, 3, 4]], []]`",
        check=checks.groups,
        not_with=("run between parties",),
        in_model=True,
    )
    constraint: str = _objective(
        "set that each party's weights must lie in: `all`, `nonnegative`, `box:LOW,HIGH`, `ball:RADIUS`, "
        "`simplex:SUM`, `sum:VALUE` or `affine:NUMBERS=VALUE;...`",
        in_model=True,
        default="all",
    )
    party_constraint: dict[str, str] | None = _objective(
        'sets for single parties, `{bank = "box:0,1", shop = "nonnegative"}`: see '
        "*A party's own constraint*",
        wanted="a table of texts",
        check=checks.own_constraints,
        not_with=("private run",),
        in_model=True,
    )
    intercept: bool = _objective(
        "fit an intercept that is not penalised",
        estimator="fit_intercept",
        default=True,
    )
    scheme: str = _method(
        help=f"How parties work together: {', '.join(('auto', *list(SCHEMES)[:-1]))} or {list(SCHEMES)[-1]}.",
        panel=MORE,
        choices=lambda: ("auto", *SCHEMES),
        solver="scheme",
        estimator="scheme",
        default="auto",
    )
    penalty: float | None = _method(
        "ADMM penalty r, in units of the curvature of one sample's loss; by default it follows "
        "from the loss. It is the paper's ρ, whose problem 1 sums the loss",
        sign="positive",
        most=checks.LARGEST_FACTOR,
        solver="penalty",
        estimator="penalty",
    )
    acceleration: str = _method(
        "`anderson` or `none`; auto accelerates the scheme `sharing`, and runs the paper's "
        "schemes as printed",
        choices=("auto", "anderson", "none"),
        solver="acceleration",
        default="auto",
    )
    x_update: str = _method(
        "how parties solve their subproblem: `gram` (eigendecomposition of DᵀD), `kernel` (of "
        "DDᵀ, for more columns than rows), `cg` (conjugate gradients); auto chooses by shape",
        choices=("auto", "gram", "kernel", "cg"),
        solver="x_update",
        default="auto",
    )
    gap: float = _limit(
        help="Stop when the objective is proved to be this close to the best possible, relatively; 0: never.",
        sign="not negative",
        below=1,
        solver="gap",
        estimator="tol",
        default=1e-6,
    )
    stationarity: float = _limit(
        "replaces `gap` for a non-convex loss or regulariser ([losses.md](losses.md)): stop"
        " when the gradient has fallen to this share of its size at zero weights; 0: never",
        sign="not negative",
        below=1,
        not_with=("run between parties",),
        solver="stationarity",
        default=1e-5,
    )
    rounds: int = _limit(
        help="Rounds at most; in each a party sends once, an owner answers once.",
        panel=MORE,
        sign="positive",
        solver="max_rounds",
        estimator="max_rounds",
        default=10000,
    )
    time: float | None = _limit(
        "stop after this many seconds of training, including earlier parts of a resumed run",
        sign="positive",
        not_with=("path",),
        solver="max_seconds",
    )
    threads: int | None = _place(
        "number of threads; by default every core that affinity, cgroup, `OMP_NUM_THREADS` and "
        "`NUMBA_NUM_THREADS` allow. The result does not depend on it, to the last bit",
        "Threads; the result does not depend on it.",
        panel=MORE,
        sign="positive",
        resumed=True,
        solver="n_threads",
        estimator="n_threads",
    )
    cluster: str = _place(
        help="Share the rows between workers: mpi, in every process that mpiexec or srun starts "
        "(docs/streaming.md).",
        panel=MORE,
        choices=("none", "mpi"),
        resumed=True,
        default="none",
    )
    checkpoint_rounds: int | None = _output("number of rounds between checkpoints", sign="positive")
    checkpoint_seconds: float = _output(
        "longest time between checkpoints, in seconds", sign="positive", default=30.0
    )
    privacy: Privacy = _budget(
        "differential privacy of what parties send; the keys of `[privacy]` are the fields of "
        "`fastadmm.Privacy`: [privacy.md](privacy.md), and [fusion.md](fusion.md) for the "
        "recommended mode",
        default=Privacy(),
    )
    ledger: str | None = _place(
        help="Privacy ledger shared by all runs on these data. (default: one for each run)",
        panel=PANEL,
        is_path=True,
        estimator="ledger",
    )
    memory: str | None = _place(
        help="Limit on memory, for example 2GB or 512MiB; data that does not fit is streamed (default: "
        "80 % of what is free).",
        panel=MORE,
        check=checks.amount_of_memory,
        resumed=True,
    )
    history: int | None = _method(
        "how much of the past the coordinator keeps: directions per party in `subspace` (at least "
        "2, and more while the messages of a party are below 2 MB), otherwise differences of the "
        "acceleration. By default as much as is useful",
        sign="not negative",
        solver="history",
    )
    directions: str = _method(
        "what a party sends in a round of `subspace`: `one` direction in double precision, or "
        "`both` of its directions in single precision. auto is `both` with a smooth convex loss, one "
        "predictor per sample and a gap of at least 1e-9, otherwise `one`; parties of few columns then "
        "answer once with all of them: [solver.md](solver.md#all-directions-at-once)",
        choices=DIRECTIONS,
        not_with=("private run",),
        solver="directions",
        default="auto",
    )
    secrecy: str = _method(
        "`sums`: the coordinator sees only sums over all parties of what they send, in `subspace`; "
        "needs the extra `secrecy`: [between.md](between.md#sums-only)",
        choices=SECRECY,
        not_with=("path", "private run", "worth"),
        solver="secrecy",
        default="none",
    )
    class_weight: str | dict[str, float] | None = _objective(
        '`"balanced"`, or a factor for each class, `{yes = 2.0}`. '
        "The factors multiply the sample weights and count in W",
        wanted="'balanced' or a table of numbers",
        check=checks.class_weights,
        not_with=("private run",),
        estimator="class_weight",
    )
    warm_start: str | None = _method(
        "model or run directory at whose weights training starts: see *Warm starts*",
        is_path=True,
        not_with=("private run", "run between parties", "worth"),
    )
    # Held-out rows have weight 0: what is held out decides what is minimised.
    validation: float | str | None = _objective(
        "share of the rows to hold out, or a partition converted with `--like`: see *Early stopping*",
        wanted="a share of the rows or a partition",
        check=checks.share_or_partition,
        group=_EARLY,
        is_path=True,
        not_with=("path", "private run", "worth"),
    )
    validation_metric: str = _early(
        "`loss`, `log_loss`, `accuracy`, `auc`, `rmse` or `r2`",
        choices=("loss", "log_loss", "accuracy", "auc", "rmse", "r2"),
        default="loss",
    )
    patience: int = _early(
        "stop after this many rounds without a better value",
        sign="positive",
        estimator="n_iter_no_change",
        default=5,
    )
    # It draws the held-out rows.
    seed: int = _objective(
        "random seed for the choice of held-out rows and folds",
        sign="not negative",
        only_with=("validation", "path"),
        default=0,
    )
    path: bool = _path(
        help="Train a decreasing grid of lambda, and choose one by cross-validation.",
        not_with=("private run", "run between parties", "worth"),
        default=False,
    )
    path_values: list[float] | None = _path(
        "the values of the grid", wanted="a list of numbers", check=checks.grid
    )
    path_length: int = _path("number of values, if the grid is computed", sign="positive", default=20)
    path_ratio: float | None = _path(
        "ratio of the smallest to the largest value of the grid",
        sign="positive",
        below=1,
        estimator="eps",
    )
    folds: int = _path(
        "folds of the cross-validation that chooses λ; 0 for none",
        sign="not negative",
        check=checks.folds,
        estimator="cv",
        default=5,
    )
    rule: str = _path(
        "`best` or `1se`",
        choices=("best", "1se"),
        estimator="selection",
        default="best",
    )

    def to_toml(self) -> dict[str, Any]:
        """Plain dictionary with the documented keys; those unset or without a meaning are left out."""
        without = {"stationarity" if is_convex(self) else "gap", "privacy"}
        if self.path_values is not None:
            without |= {"path_length", "path_ratio"}
        if self.secrecy == "none":
            without |= {"secrecy"}
        values = {}
        for key, setting in settings_of(RunConfig).items():
            heads = setting.only_with or ((setting.group.head,) if setting.group else ())
            idle = heads and not any(getattr(self, head) not in (None, False) for head in heads)
            value = getattr(self, setting.name)
            if not (value is None or key in without or idle or (self.path and "path" in setting.not_with)):
                values[key] = value
        return values if self.privacy.mode == "none" else {**values, "privacy": self.privacy.to_dict()}


def is_convex(config: RunConfig) -> bool:
    """Whether loss and regulariser of a configuration are convex, so that there is a gap to certify."""
    from fastadmm.problem.losses import parse_loss
    from fastadmm.problem.regularizers import get_regularizer

    convex = config.loss == "auto" or parse_loss(config.loss).convex
    return convex and get_regularizer(config.regularizer).convex


def differing(config: RunConfig) -> dict[str, Any]:
    """Values that are not the defaults, by attribute."""
    values = {s.name: (getattr(config, s.name), s.default) for s in settings_of(RunConfig).values()}
    return {name: value for name, (value, default) in values.items() if value != default}
