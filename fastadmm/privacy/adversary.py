"""The worst neighbours of both modes; of mode "message" those that a search finds.

The other records enter the x-update only through their Gram matrix G and a vector q, and any (G, q) can be
made of rows of norm at most 1 and targets in [-W, W]. So the worst case over all data sets in two columns is
a search over nine numbers, where G is diagonal: G, q, the record before and after, and its target. An audit
plays the game on the neighbours that the bounds are about, and for every clip on those that would be farthest
apart without it.

In mode "fusion" one record turns from a long row into its opposite, or, where the row norm is found with
noise, into the opposite row of the smallest norm, so that nearly every count differs as well. Noisy values
are chosen that drive the local model to where one record moves gradient, moments and symbol farthest.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fastadmm.errors import InputError
from fastadmm.privacy import public
from fastadmm.privacy.game import Array, Case, Script, many_rows, on_grid
from fastadmm.privacy.noise import Calibration
from fastadmm.settings.privacy import FusionPrivacy, MessagePrivacy

#: The diagonal of G. Vectors of two columns are complex numbers.
Gram = tuple[float, ...]


@dataclass(frozen=True)
class WorstPair:
    """Neighbours found by the search. Shapes: gram, image, before, after (2,)."""

    distance: float  # l2 distance of the two messages (of the two weights, for ``kind="weights"``)
    gram: np.ndarray  # of shape (2,): g of the other records, which is diagonal
    image: np.ndarray  # of shape (2,): q, the sum of the other records times their targets
    before: np.ndarray  # of shape (2,): the record in the one and in the other data set
    after: np.ndarray  # of shape (2,): the record in the one and in the other data set
    target: float  # its public target


@lru_cache(maxsize=32)
def find_worst_pair(
    ball: float,
    target: float,
    mu: float,
    clip: float | None = None,
    *,
    adjacency: str = "replace_one",
    kind: str = "message",
    starts: int = 24,
    rows: float = math.inf,
    longest: float = 1.0,
) -> WorstPair:
    """Maximise the distance between neighbours' messages, by Nelder-Mead from many starts."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(0)
    low, high = (-math.inf, math.inf) if clip is None else (-clip, clip)

    def measure(
        gram: Gram, image: complex, before: complex, after: complex, goal: float
    ) -> tuple[float, float]:
        """Distance of the messages, and the record's target that it is reached at."""
        best = 0.0, goal
        for w in (goal, target, -target):
            x, y = (_solve(gram, image, a, w, mu, ball) for a in (before, after))
            v = x - y
            if kind == "weights":
                best = max(best, (abs(v), w))
                continue
            own, other = (min(max(_inner(a, z), low), high) for a, z in ((before, x), (after, y)))
            others = gram[0] * v.real * v.real + gram[1] * v.imag * v.imag
            best = max(best, (math.sqrt((own - other) * (own - other) + others), w))
        return best

    def pair(parameters: Any) -> tuple[Gram, complex, complex, complex, float]:
        """Nine free numbers as an admissible pair; sizes on a logarithmic scale."""
        p = [float(v) for v in parameters]
        gram = tuple(math.exp(2.0 * min(max(v, -12.0), 12.0)) for v in p[:2])
        image = complex(p[2], p[3]) * math.exp(min(max(p[8], -12.0), 16.0))
        if math.isfinite(rows):  # the nearest that half of the rows make along each column
            gram = tuple(min(max(g, 1e-9), 0.5 * rows * longest * longest) for g in gram)
            limits = (target * math.sqrt(0.5 * g * rows) for g in gram)
            image = complex(*(min(max(q, -most), most) for q, most in zip((image.real, image.imag), limits)))
        before, after = (z / max(abs(z), 1.0) for z in (complex(p[4], p[5]), complex(p[6], p[7])))
        goal = target * math.sin(p[2] + p[4])
        return gram, image, before, 0j if adjacency == "zero_out" else after, goal

    def best_from(start: np.ndarray) -> tuple[float, np.ndarray]:
        best = math.inf
        for _ in range(5):  # a fresh simplex where the last one collapsed
            run = minimize(lambda p: -measure(*pair(p))[0], start, method="Nelder-Mead", options=_OPTIONS)
            before, best, start = best, float(run.fun), run.x
            if before - best <= 1e-9 * abs(best):
                break
        return best, start

    # First: the others hold x at the ball's edge, and the record changes its sign.
    strong = 0.5 * math.log(mu + 2.0), math.log(2.0 * target * (mu + 2.0))
    places = [np.array([strong[0], strong[0], 1.0, 0.1, 1.0, 0.1, -1.0, 0.1, strong[1]])]
    places += [rng.normal(size=9) * rng.choice([0.5, 2.0, 5.0]) for _ in range(starts - 1)]
    value, parameters = min(map(best_from, places), key=lambda item: item[0])
    gram, image, before, after, goal = pair(parameters)
    goal = measure(gram, image, before, after, goal)[1]
    q, a, b = (np.array([z.real, z.imag]) for z in (image, before, after))
    return WorstPair(-value, np.array(gram), q, a, b, goal)


_OPTIONS = {"maxiter": 1500, "maxfev": 3000, "xatol": 1e-9, "fatol": 1e-12, "adaptive": True}


def _inner(a: complex, b: complex) -> float:
    return a.real * b.real + a.imag * b.imag


def _solve(gram: Gram, image: complex, a: complex, w: float, mu: float, ball: float) -> complex:
    """The x-update of G and q with a record: minimise 1/2 x'Kx - q'x, |x| <= B, in the eigenbasis of K."""
    k11, k12, k22 = gram[0] + a.real * a.real + mu, a.real * a.imag, gram[1] + a.imag * a.imag + mu
    high = 0.5 * (k11 + k22) + math.hypot(0.5 * (k11 - k22), k12)
    low, angle = max((k11 * k22 - k12 * k12) / high, 1e-300), 0.5 * math.atan2(2.0 * k12, k11 - k22)
    turn = complex(math.cos(angle), math.sin(angle))
    p = (image + w * a) * turn.conjugate()
    x = complex(p.real / high, p.imag / low)
    if abs(x) > ball:
        nu = 0.0
        for _ in range(60):  # Newton's method for 1/|x|, which is concave in nu: it comes from below
            slope = x.real * x.real / (high + nu) + x.imag * x.imag / (low + nu)
            square = _inner(x, x)
            move = (math.sqrt(square) / ball - 1.0) * square / slope
            nu += move
            x = complex(p.real / (high + nu), p.imag / (low + nu))
            if move <= 1e-15 * nu:
                break
        x = x * ball / max(abs(x), ball)
    return x * turn


def concrete_rows(
    pair: WorstPair, target: float, longest: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two data sets with these G and q, within the theorems. Shapes: first, second (N, 2); w (N,)."""
    rows, goals = [], []
    for value, q, vector in zip(pair.gram.tolist(), pair.image.tolist(), np.eye(2)):
        # n rows of length s and target t: n s^2 = value, n s t = q, s <= longest, |t| <= W
        n = max(1, math.ceil(value / longest**2), math.ceil(q * q / (max(value, 1e-300) * target * target)))
        s = math.sqrt(max(value, 0.0) / n)
        rows.append(np.tile(s * vector, (n, 1)))
        goals.append(np.full(n, q / (n * s) if s > 0.0 else 0.0))
    others = np.vstack(rows)
    w = np.concatenate([[pair.target], *goals])
    return np.vstack([pair.before, others]), np.vstack([pair.after, others]), np.clip(w, -target, target)


#: Name, rows of both neighbours, of shape (N, d), and the target that an adversary asks with, of shape (N,).
Pair = tuple[str, np.ndarray, np.ndarray, np.ndarray]

#: Records of the neighbours.
_ROWS = 4_000

#: How much longer than allowed are rows and targets that have to be clipped.
_BEYOND = 10.0


def message_cases(settings: MessagePrivacy, mu: float) -> Iterator[Case]:
    """Pairs by columns, storage, place and rows, and whole runs: ``docs/privacy.md#the-audit``."""
    rounds, pairs = range(1, 1 + settings.rounds), worst_pairs(settings, mu)

    def case(name: str, pair: Sequence[np.ndarray], columns: int = 2, **how: Any) -> Case:
        """A pair, turned into an even number of columns and asked in every round."""
        first, second, target = pair
        turn = np.array([np.ones(columns), 1.0 - 2.0 * (np.arange(columns) % 2)]) / math.sqrt(columns)
        calls = [("noisy", {"target": target, "round": t}) for t in rounds]
        return Case(name, first @ turn, second @ turn, calls, **how)

    for name, *pair in pairs:
        yield case(name, pair)
        yield case(f"{name}, sparse", pair, 16, stored="sparse")
    for (name, *pair), stored in ((pairs[0], "sparse"), (pairs[-1], "dense")):
        backwards = [each[::-1] for each in pair]
        yield case(f"{name}, the record last", backwards, 4, stored=stored, threads=2)
    name, first, second, target = pairs[0]
    most = max(many_rows(40_000, settings.delta), len(first))
    more = [(0, most - len(first)), (0, 0)]  # rows of zeros move nothing
    many = np.pad(first, more), np.pad(second, more), np.pad(target, more[0])
    yield case(f"{name} among {most} rows", many, threads=2)
    yield Case("the worst neighbours in a whole run", first, second)
    # Neighbours whose other rows are any; the record turns from one side to the other.
    first = np.random.default_rng(2).normal(size=(many_rows(500, settings.delta), 4))
    second = first.copy()
    first[3], second[3] = 50.0, 0.0 if settings.adjacency == "zero_out" else -50.0
    yield Case("any neighbours in a whole run", first, second, stored="sparse", threads=2)


def worst_pairs(settings: MessagePrivacy, mu: float) -> list[Pair]:
    """Neighbours of the bounds before clipping, and for each clip those that need it most."""
    if settings.adjacency == "column":
        raise InputError("audit: the search covers adjacency replace_one and zero_out, not column")
    ball, target, clip = settings.ball, settings.clip_of_targets, settings.message_clip
    how: Any = {"adjacency": settings.adjacency, "starts": 1, "rows": min(float(_ROWS), 0.8 / settings.delta)}

    def search(name: str, b: float, w: float, m: float, clip: float | None, longer: float = 1.0) -> Pair:
        longest = 1.0 if clip is None else min(1.0, clip / b)
        pair = find_worst_pair(b, w, m, clip, **how, longest=longest)
        first, second, asked = concrete_rows(pair, w, longest)
        return name, longer * first, longer * second, asked

    pairs = [search("the worst neighbours", ball, target, mu, clip)]
    if clip is not None:
        pairs.append(search("neighbours that need clipped messages", ball, target, mu, None))
    pairs.append(search("neighbours that need clipped targets", ball, _BEYOND * target, mu, clip))
    # Rows that are longer by a factor are the same as a larger ball and a smaller ridge.
    far = _BEYOND * ball, target, mu / _BEYOND**2
    pairs.append(search("neighbours that need clipped rows", *far, clip, longer=_BEYOND))
    return [pair for pair in pairs if len(pair[1]) * settings.delta < 1.0] or pairs[:1]


# --- mode "fusion"
#: Shares of sigma by which the chosen past pushes every gradient.
_PUSHES = (0.3, 1.0, 3.0, 10.0)

#: Sizes of the records' rows: the longer one has to be shortened.
_LONG, _SHORT = 1e6, 2.0**-8


def fusion_cases(settings: FusionPrivacy) -> Iterator[Case]:
    """Neighbours by columns, storage, class, place, rows and past: ``docs/privacy.md#the-audit``."""
    norm = settings.row_norm
    pairs = [(_LONG, -_LONG), (_LONG, -_SHORT)] if norm is None else [(_LONG * norm, -_LONG * norm)]
    one, last = pairs[0], pairs[-1]
    short = _SHORT if norm is None else norm
    many = many_rows(40_000, settings.delta)

    def cases(
        record: tuple[float, float],
        rows: int = 2_000,
        columns: int = 1,
        *,
        place: int = 4,
        stored: str = "sparse",
        others: float = 0.0,
        label: int = 1,
        pushes: tuple[float | None, ...] = (3.0,),
        moments: float = 0.0,
    ) -> Iterator[Case]:
        """Neighbours whose record lies along a direction in which every column has a share."""
        if rows > many:
            return
        rng, along = np.random.default_rng(5), np.random.default_rng(6).normal(size=columns)
        along = along / np.linalg.norm(along) if columns > 1 else np.ones(1)
        first = others * rng.normal(size=(rows, columns))
        second = first.copy()
        first[place], second[place] = record[0] * along, record[1] * along
        classes = np.full(rows, 1.0 - label)
        classes[place] = float(label)  # the replaced record alone is of its class
        labels = public_labels(settings, classes)
        calls = [("fuse", {"target": labels.target, "classes": labels.classes})]
        for push in pushes:
            past = None if push is None else _past(along, label, push, moments)
            name = f"rows {record[0]:.3g} and {record[1]:.3g} long, {rows} rows of {columns} columns"
            yield Case(name, first, second, calls, past, stored, 1 + columns % 2, place)

    for pair in pairs:
        yield from cases(pair, pushes=_PUSHES)
    yield from cases(last, columns=6, stored="dense", pushes=_PUSHES)
    yield from cases(last, columns=5, place=-1, label=0, pushes=_PUSHES)
    yield from cases(one, columns=2, place=0, stored="dense")
    yield from cases(last, many, 2, place=-1, stored="dense")
    yield from cases(last, 40, 700)
    yield from cases(last, 12, 5_001)
    yield from cases(last, 9)
    yield from cases((1.9 * short, -1.9 * short), 400, 2)
    yield from cases((3.9 * short, -3.9 * short), 400, 2, stored="dense")
    yield from cases(last, 301, 4, stored="dense", others=1.0, pushes=(None,))
    yield from cases(one, 300, 6, others=30.0, pushes=(None,), label=0)
    yield from cases(one, 500, stored="dense", others=1e-3, pushes=(1.0,))
    for label, moments in ((1, -9.0), (0, 9.0)):
        yield from cases(last, 200, 2, others=2.0, pushes=(0.0, 0.1), moments=moments, label=label)


def _past(along: Array, label: int, push: float, moments: float) -> Callable[[], Script]:
    """Noisy values that lead to the smallest row norm and to a large, saturated local model."""
    away = np.append(-along, 8.0 if label else -8.0)

    def script(call: int, exact: Array, level: Calibration) -> Any:
        if len(exact) == 1:
            return on_grid(exact if call == 0 else np.zeros(1), level)
        if len(exact) == len(away):
            return on_grid(exact + push * level.sigma * away, level)
        return on_grid(exact + level.sigma * moments, level)

    return lambda: script


def public_labels(settings: FusionPrivacy, classes: Array) -> public.PublicLabels:
    """Classes of shape (n,) as everybody may know them, with the targets that they make."""
    epsilon = settings.label_epsilon
    return public.PublicLabels(classes, classes if epsilon is None else public.soft_targets(classes, epsilon))
