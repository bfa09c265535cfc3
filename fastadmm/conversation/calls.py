"""The one table of what may be asked of a party and what it may answer, with the kind of every value.

Both sides check against it: a party every request before it computes anything, the
coordinator every message before it keeps it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from fastadmm.conversation.by_class import by_class_kinds, unpack
from fastadmm.errors import FormatError

#: One call as it stands in a request: its name and its arguments.
Asked = tuple[str, dict[str, Any]]

#: What to do about a call or an argument that the table has not.
OTHER_VERSION = "install the version of fastadmm that the coordinator has"

#: Beyond it a square overflows: no run that goes well comes near.
_LARGEST = 1e150

#: Longest text that passes, and longest list of names.
_LONGEST, _LONGEST_NAMES = 2000, 1 << 16


@dataclass(frozen=True, eq=False)
class CallRule:
    """What one call takes and answers.

    A kind that ends in ``?`` may be absent.
    """

    families: tuple[str, ...]  # of runs in which it may be asked; "" before a run has begun
    arguments: dict[str, str]  # kind of every argument
    answer: dict[str, str] = field(default_factory=dict)

    @property
    def vectors(self) -> int:
        """Arrays of N numbers that an answer may hold; of several classes so many for each."""
        return sum("rows" in kind and "many" not in kind for kind in self.answer.values())


def _rule(families: tuple[str, ...], *texts: str) -> CallRule:
    """A call's arguments and answer, each as names and kinds: "gradient: rows, also: rows?"."""
    return CallRule(families, *(dict(one.split(": ") for one in text.split(", ") if one) for text in texts))


@dataclass(frozen=True)
class Field:
    """One value of a message or request."""

    kind: str
    required: bool
    shape: tuple[int, ...] | None  # of an array, -1 for any length; None for a scalar
    dtype: str = ""  # of an array

    @property
    def expected(self) -> str:
        """What fits, in the table's words."""
        shape = f" {self.shape} of {self.dtype}, finite".replace("-1", "any")
        return self.kind if self.shape is None else self.kind + shape


#: Of runs without privacy: see :data:`fastadmm.parties.families.FAMILIES`.
_MULTINOMIAL = ("multinomial_subspace", "multinomial_admm", "multinomial_proximal")
_FAMILIES = ("subspace", "log_sum", "admm", "proximal", *_MULTINOMIAL)

#: Of runs of whose answers the coordinator sees sums only: see :mod:`fastadmm.secrecy`.
SUMS = ("subspace_sums",)

#: Of standard errors between parties, after a run: see :class:`fastadmm.inference.between.InferenceParty`.
_INFERENCE = ("inference",)

#: Of the face of a party's weights: see :mod:`fastadmm.parties.face`.
_FACE = "basis: matrix, slope: vector, stiffness: matrix, curvature: matrix?"

#: What a party needs to know its weights: coefficients of its directions, for several classes a row each.
_COEFFICIENTS = "coefficients: vector?, class_coefficients: matrix?"

#: A party's part of the proof, as :class:`fastadmm.proof.share.Share` says it.
_SHARE = (
    "penalty: nonnegative bound, inner: number, inner_error: nonnegative bound, weighed: nonnegative, "
    "scale: fraction, at_scale: nonnegative bound, at_zero: nonnegative bound, free: fraction, "
    "at_free: nonnegative bound, within: nonnegative bound, rounding: nonnegative"
)

#: What the end of a run asks of a dual vector, beside itself: its distance to a feasible one, R where nothing
#: bounds the weights and else 0, whether deviations are from the mean, and whether it is about kept weights.
_PROVE = "eps: nonnegative, reach: nonnegative, about_mean: flag, kept: flag"

#: "bound": a number, or infinity; "fraction": one from 0 to 1. "rows": N numbers; "short rows": N numbers of
#: 4 bytes; "byte rows": N symbols of one byte; "class rows": N numbers for each class; "short class rows": N
#: numbers of 4 bytes for each direction; "vector": any number of numbers; "matrix": a table of them;
#: "products": a number for each of the party's directions, those of this answer included; "words": any
#: number of words of 8 bytes, which only a sum over all parties gives a meaning; "word rows": N of them;
#: "paired word rows": 2 N.
CALLS: dict[str, CallRule] = {
    # "privacy": settings as JSON; "test", "validation": row digests of what will be scored; "release": the
    # coordinator's version; "table": digest of this one; "parties": all names.
    "start": _rule(
        ("",),
        "family: text, regularization: positive, x_update: text, regularizer: text, l1_ratio: number, "
        "constraint: text, n_samples: count, row_digest: text, position: count, loss: text, "
        "penalty: nonnegative, privacy: text?, test: text?, validation: text?, "
        "n_classes: positive count?, release: text, table: text, parties: names",
        "n_features: positive count, kind: text, reason: text",
    ),
    "set_metric": _rule(
        ("subspace", "log_sum", "admm", "proximal", "multinomial_subspace", *SUMS),
        "curvature: positive rows",
    ),
    "forget": _rule(("subspace", "log_sum", "subspace_sums"), "direction: vector"),
    "respond": _rule(
        ("subspace", "log_sum"),
        "gradient: rows, coefficients: vector, newton: flag, also: rows?",
        "squared_residual: nonnegative, message: rows?, other: rows?",
    ),
    "respond_pair": _rule(
        ("subspace",),
        "gradient: rows, coefficients: vector",
        "squared_residual: nonnegative, products: products, first: short rows?, first_scale: positive?, "
        "second: short rows?, second_scale: positive?",
    ),
    # Of as many directions as are asked for or the party has columns; with their scales in single precision.
    "respond_first": _rule(
        ("subspace", "multinomial_subspace"),
        f"gradient: class rows, {_COEFFICIENTS}, most: positive count, exact: flag",
        "squared_residual: nonnegative, products: products?, messages: class rows?, "
        "short_messages: short class rows?, scales: vector?",
    ),
    "restate": _rule(
        ("subspace",),
        "gradient: rows, coefficients: vector",
        "squared_residual: nonnegative, products: products, message: rows?",
    ),
    "forget_classes": _rule(("multinomial_subspace",), "directions: matrix"),
    "respond_classes": _rule(
        ("multinomial_subspace",),
        "gradient: class rows, class_coefficients: matrix, newton: flag",
        "squared_residual: nonnegative, message: class rows?",
    ),
    "squared_residual": _rule(
        ("subspace", "log_sum"),
        "gradient: rows, coefficients: vector",
        "squared_residual: nonnegative",
    ),
    # "exact" and "above" are curvatures, of the regulariser and of parabolas above it.
    "bend": _rule(
        ("log_sum",),
        "coefficients: vector",
        "value: nonnegative, slope: vector, exact: matrix, above: matrix",
    ),
    "step": _rule(
        ("admm",),
        "w: rows, scaled_penalty: positive",
        "message: rows, penalty: nonnegative, norm: nonnegative",
    ),
    "certify": _rule(("admm",), "gradient: rows, pull: rows", "gap: nonnegative, stationarity: nonnegative"),
    "stationarity": _rule(("admm",), "pull: rows", "value: nonnegative"),
    "dual_scale": _rule(("admm",), "u: rows", "value: nonnegative"),
    # Of the u of the last "dual_scale".
    "dual_value": _rule(("admm", "multinomial_admm"), "scale: number", "value: bound"),
    "fuse": _rule(
        ("fusion",),
        "target: rows, classes: rows",
        "row_norm: vector, weights: vector, model: vector, count: vector, mean: vector, square: vector, "
        "moments: vector, channel: vector, levels: byte rows",
    ),
    "noisy": _rule(("message",), "target: rows, round: positive count", "message: rows"),
    "settle": _rule(("message",), "target: rows"),
    "keep": _rule(("fusion", "message"), "model_id: text", "kept: flag"),
    "feasible_start": _rule(("proximal",), "", "message: rows?, products: vector, coefficients: vector"),
    "recombine": _rule(("proximal",), "rotation: matrix"),
    "best_response": _rule(
        ("proximal",),
        "gradient: rows, model: vector, proposal: vector?, common: flag?, most: positive count?, "
        "curvature: positive?",
        "message: rows?, products: vector, messages: class rows?, products_of_all: matrix?, "
        "coefficients: vector, norms: vector, proposal_positions: vector?, proposal_norms: vector?, "
        "clipped: vector?, clipped_norm: nonnegative?, "
        "dual_scale: nonnegative, dual_value: number, "
        "dual_at_zero: number, dual_free: nonnegative?, excess: nonnegative?, squared: nonnegative, "
        f"{_FACE}",
    ),
    # Of a loss that is not convex: how far the model's weights are from stationary.
    "prox_gradient": _rule(
        ("proximal",), "gradient: rows, curvature: positive, coefficients: vector", "squared: nonnegative"
    ),
    "describe_model": _rule(("proximal",), "model: vector", "norm: nonnegative, heaviest: nonnegative?"),
    "show_key": _rule(SUMS, "", "key: words"),
    "introduce": _rule(SUMS, "keys: words"),
    "sum_squares": _rule(SUMS, "exchange: positive count", "numbers: words"),
    "respond_masked": _rule(
        SUMS,
        "exchange: positive count, gradient: rows, coefficients: vector, units: vector, measured: count, "
        "step: positive",
        "rows: many word rows, numbers: words",
    ),
    "orthonormalise": _rule(SUMS, "factors: matrix, kept: count"),
    # The message of the weights as they will be written, and what they add to the gap of a dual vector.
    "prove": _rule(
        ("subspace", "admm", "proximal"),
        f"u: rows, {_PROVE}, {_COEFFICIENTS}",
        f"message: rows, {_SHARE}",
    ),
    "prove_masked": _rule(
        SUMS,
        "exchange: positive count, u: rows, eps: nonnegative, scale: fraction, kept: flag, "
        f"{_COEFFICIENTS}, step: positive",
        "rows: word rows, numbers: words",
    ),
    # Columns first to last of the party's, up to a rotation, and its weights for them.
    "span": _rule(
        _INFERENCE,
        "ridge: nonnegative, first: count, last: positive count",
        "basis: class rows, weights: vector",
    ),
    # Covariance and Newton step of these weights; "about" is what everybody learns of the fit, as JSON.
    "learn": _rule(
        _INFERENCE,
        "ridge: nonnegative, covariance: matrix, step: vector, about: text",
        "done: flag",
    ),
    # Of rows that are not trained on, or of training where these are held out; class by class.
    "scores": _rule(_FAMILIES, f"rows: text, {_COEFFICIENTS}", "scores: vector"),
    "keep_best": _rule((*_FAMILIES, *SUMS), f"{_COEFFICIENTS}"),
    "finish": _rule(
        (*_FAMILIES, *SUMS),
        f"{_COEFFICIENTS}, model_id: text, kept: flag?",
        "done: flag",
    ),
}

#: Families of calls that are asked of several classes at once: what has N numbers has so many for each.
_OF_CLASSES = {
    **dict.fromkeys(("step", "certify", "stationarity", "dual_scale"), ("multinomial_admm",)),
    "prove": _MULTINOMIAL,
}
for _name, _families in _OF_CLASSES.items():
    _each = [
        {key: kind.replace("rows", "class rows") for key, kind in kinds.items()}
        for kinds in (CALLS[_name].arguments, CALLS[_name].answer)
    ]
    CALLS[f"{_name}_classes"] = CallRule(_families, *_each)

#: The calls of `proximal`, and under which name several classes are asked at once.
BY_CLASS = {name: f"{name}_classes" for name, rule in CALLS.items() if rule.families == ("proximal",)}
BY_CLASS["set_metric"] = "set_metric_classes"
CALLS.update(
    {
        several: CallRule(
            ("multinomial_proximal",),
            by_class_kinds(CALLS[one].arguments),
            by_class_kinds(CALLS[one].answer) if CALLS[one].answer else {},
        )
        for one, several in BY_CLASS.items()
    }
)
_OF_ONE_CLASS = {several: one for one, several in BY_CLASS.items()}

#: Which model, and which rows.
_MODEL = "run: text, model_id: text, n_samples: positive count, row_digest: text"

#: Beside a run, each standing for itself. "request", "response": of the private set intersection. "runs":
#: which are to be approved together, with rows of their models to be scored. "alignment": the file of the
#: common ids. "release": labels after randomised response, a byte each; "classes" is JSON. "scores": D x of
#: these rows, each of several classes. "span", "learn": as above, of a model.
TASKS = {
    "intersect": _rule(("task",), "n_ids: positive count, request: bytes", "response: bytes"),
    "align": _rule(("task",), "alignment: bytes", "n_samples: positive count"),
    "release": _rule(
        ("task",),
        "n_samples: positive count, row_digest: text, label_epsilon: positive, classes: text, labels: bytes",
        "n_samples: positive count",
    ),
    "join": _rule(("task",), "runs: bytes, n_samples: positive count", "n_runs: positive count"),
    "contribute": _rule(("task",), _MODEL, "scores: vector?, class_scores: matrix?"),
}
for _name in ("span", "learn"):
    _about = {**TASKS["contribute"].arguments, **CALLS[_name].arguments}
    TASKS[_name] = CallRule(("task",), _about, CALLS[_name].answer)

#: Types of arrays that are not of 8 bytes, or no numbers, by the first word of their kind that is here.
_TYPES = {"short": "<f4", "byte": "|u1", "bytes": "|u1", "word": "<i8", "words": "<i8"}

#: Shapes that do not depend on N.
_SHAPES = {
    **dict.fromkeys(("vector", "products", "words", "bytes", "many word rows"), (-1,)),
    "matrix": (-1, -1),
}

#: Calls answered with a message of the classes of one of their arguments, or of as many directions at most.
_BY_CLASS = {"respond_classes": "gradient", "step_classes": "w", "prove_classes": "u"}
#: Words of one masked scalar.
_WORDS_EACH = 8


def _of_directions(asked: Mapping[str, Any]) -> int:
    k, fresh = len(asked["coefficients"]), len(asked["units"])
    return 1 + asked["measured"] * k + fresh * (k + fresh)


#: How many scalars masked answers have.
_MASKED: dict[str, Callable[[Mapping[str, Any]], int]] = {
    "sum_squares": lambda asked: 1,
    "respond_masked": _of_directions,
    "prove_masked": lambda asked: 5,
}

#: Answers in coefficients of directions.
_OF_DIRECTIONS = ("feasible_start", "best_response")


def fields_of(kinds: Mapping[str, str], n_samples: int = -1) -> dict[str, Field]:
    """What values of these kinds are, among N rows."""
    fields = {}
    for key, kind in kinds.items():
        name = kind.removesuffix("?")
        shape: tuple[int, ...] | None = _SHAPES.get(name)
        if shape is None and name.endswith("rows"):
            shape = (-1, n_samples) if "class" in name else (n_samples,)
        dtype = next((_TYPES[word] for word in name.split() if word in _TYPES), "<f8")
        fields[key] = Field(name, name == kind, shape, dtype)
    return fields


@cache
def rule_fields(rule: CallRule, n_samples: int) -> tuple[dict[str, Field], dict[str, Field]]:
    """What the arguments and the answer of a call hold."""
    return fields_of(rule.arguments, n_samples), fields_of(rule.answer, n_samples)


def argument_fields(name: str, n_samples: int) -> dict[str, Field]:
    """What a request of this name holds."""
    return rule_fields(CALLS[name], n_samples)[0]


def check_values(
    values: Mapping[str, Any],
    fields: Mapping[str, Field],
    place: str,
    unknown: str = "is not what was asked for",
) -> None:
    """Refuse values that are missing, too many, not finite or out of range."""
    for key in values:
        if key not in fields:
            raise FormatError(f"{place}: {key[:80]!r} {unknown}")
    for key, rule in fields.items():
        if key not in values:
            if rule.required:
                raise FormatError(f"{place}: {key!r} is missing")
            continue
        if not _fits(values[key], rule):
            raise FormatError(f"{place}: {key!r} is not as expected: {rule.expected}")


def check_answer(
    call: Asked, answer: Mapping[str, Any], n_samples: int, place: str, shared: tuple[int, int] = (0, 0)
) -> None:
    """Refuse an answer that this call does not have.

    ``shared`` are the directions that other classes send with it and have in common: before it, and after.
    """
    check_values(answer, rule_fields(CALLS.get(call[0]) or TASKS[call[0]], n_samples)[1], place)
    if (one := _OF_ONE_CLASS.get(call[0])) is not None and answer:
        _check_by_class(one, call, answer, n_samples, place)
        return
    if (
        any((key in answer) != (f"{key}_scale" in answer) for key in ("first", "second"))
        or ("second" in answer and "first" not in answer)
        or ("other" in answer and not ("message" in answer and "also" in call[1]))
        or (call[0] == "contribute" and len(answer) != 1)
    ):
        raise FormatError(f"{place}: {', '.join(sorted(answer))} do not go together, or were not asked for")
    for key, shape in _shapes(call, answer, n_samples, place, shared).items():
        if key in answer and any(n not in (-1, m) for n, m in zip(shape, answer[key].shape, strict=True)):
            raise FormatError(f"{place}: {key!r} has shape {answer[key].shape} instead of {shape}")


def _shapes(
    call: Asked, answer: Mapping[str, Any], n_samples: int, place: str, shared: tuple[int, int]
) -> dict[str, tuple[int, ...]]:
    """Shapes that follow from what was asked, or from other values of the answer; -1 stands for any."""
    name, asked = call
    if name in _OF_DIRECTIONS:
        return _shapes_of_directions(asked, answer, place, shared)
    k = len(asked.get("coefficients", ()))
    shapes: dict[str, tuple[int, ...]] = {}
    if name in _BY_CLASS:
        classes, found = len(asked[_BY_CLASS[name]]), len(answer.get("message", ()))
        fits = name == "respond_classes" and 0 < found <= classes
        shapes["message"] = (found if fits else classes, -1)
    if name in _MASKED:
        shapes["numbers"] = (_WORDS_EACH * _MASKED[name](asked),)
    if "units" in asked:
        shapes["rows"] = (len(asked["units"]) * n_samples,)
    if name == "contribute":
        shapes |= {"scores": (asked["n_samples"],), "class_scores": (asked["n_samples"], -1)}
    if name == "bend":
        shapes |= {"slope": (k,), "exact": (k, k), "above": (k, k)}
    fresh = sum(key in answer for key in ("first", "second", "message")) if name == "respond_pair" else 0
    if name == "respond_first":
        wanted = {"messages"} if asked["exact"] else {"short_messages", "scales", "products"}
        if set(answer) != wanted | {"squared_residual"}:
            raise FormatError(f"{place}: {', '.join(sorted(answer))} instead of {', '.join(sorted(wanted))}")
        fresh = len(answer["messages" if asked["exact"] else "short_messages"])
        if fresh > asked["most"]:
            raise FormatError(f"{place}: {fresh} messages of at most {asked['most']}")
        shapes["scales"] = (fresh,)
    return {**shapes, "products": (k + fresh,)}


def _check_by_class(one: str, call: Asked, answer: Mapping[str, Any], n_samples: int, place: str) -> None:
    """Refuse an answer whose parts by class do not have the shapes that the call promises."""
    try:
        asked = unpack(call[1], CALLS[one].arguments)
        answers = unpack(answer, CALLS[one].answer)
    except FormatError as error:
        raise FormatError(f"{place}: {error}") from None
    if [part is None for part in asked] != [part is None for part in answers]:
        raise FormatError(f"{place}: 'layout' is of other classes than were asked")
    sent = [0 if part is None else len(part.get("messages", ())) + ("message" in part) for part in answers]
    for c, (arguments, part) in enumerate(zip(asked, answers)):
        if arguments is not None and part is not None:
            common = arguments.get("common", False)
            shared = (sum(sent[:c]), sum(sent[c + 1 :])) if common else (0, 0)
            check_answer((one, arguments), part, n_samples, place, shared)


def _shapes_of_directions(
    asked: Mapping[str, Any], answer: Mapping[str, Any], place: str, shared: tuple[int, int]
) -> dict[str, tuple[int, ...]]:
    """Vectors and tables have a number for each direction."""
    fresh, most = len(answer.get("messages", ())), asked.get("most", 0)
    if fresh > most or ("messages" in answer) != ("products_of_all" in answer):
        raise FormatError(f"{place}: {fresh} messages of at most {most}, and their products")
    so_far = len(asked.get("model", ())) + shared[0] + fresh + int("message" in answer)
    k = so_far + shared[1]
    shapes: dict[str, tuple[int, ...]] = {
        "products": (so_far if "message" in answer else 0,),
        "products_of_all": (fresh, so_far),
        **dict.fromkeys(("stiffness", "curvature"), (k, k)),
        "norms": (2,),
        **dict.fromkeys(("coefficients", "slope", "clipped"), (k,)),
        "basis": (k, -1),
    }
    if "proposal_positions" in answer and "proposal_norms" in answer:
        shapes["proposal_norms"] = answer["proposal_positions"].shape
    if "basis" in answer and answer["basis"].shape[1] > k:
        raise FormatError(f"{place}: 'basis' has shape {answer['basis'].shape}: more than {k} directions")
    return shapes


def _fits(value: Any, rule: Field) -> bool:
    """Whether a value is of its kind."""
    kind, is_flag = rule.kind, isinstance(value, (bool, np.bool_))
    if rule.shape is not None:
        return _array_fits(value, rule, rule.shape)
    if kind in ("text", "names"):
        most = _LONGEST if kind == "text" else _LONGEST_NAMES
        return isinstance(value, str) and len(value) <= most and value.isprintable()
    if kind == "flag" or is_flag:
        return kind == "flag" and is_flag
    if kind.endswith("count"):
        return isinstance(value, int) and ("positive" in kind) <= value < 2**31
    if not isinstance(value, (float, int)):
        return False
    if kind.endswith("bound") and value == math.inf:
        return True  # a conjugate is infinite outside its domain
    low = 0.0 if kind.startswith(("nonnegative", "fraction", "positive")) else -_LARGEST
    high = 1.0 if kind == "fraction" else _LARGEST
    return low <= value <= high and not (kind == "positive" and value == 0.0)


def _array_fits(value: Any, rule: Field, shape: tuple[int, ...]) -> bool:
    if not (isinstance(value, np.ndarray) and value.dtype == np.dtype(rule.dtype)):
        return False
    if value.ndim != len(shape) or any(n not in (-1, m) for n, m in zip(shape, value.shape)):
        return False
    if rule.kind == "bytes":
        return True
    low, high = float(value.min(initial=0.0)), float(value.max(initial=0.0))
    inside = low >= -_LARGEST and high <= _LARGEST  # NaN is neither
    return inside and (rule.kind != "positive rows" or bool((value > 0.0).all()))
