"""Mutated messages between organisations: whatever comes in, the decoder raises its own error or accepts.

``python federation_fuzz.py COUNT [SEED]`` prints how many were accepted.
"""

import json
import struct
import sys
from typing import Any

import numpy as np
from fastadmm.between.schema import (
    Message,
    ProtocolError,
    Refusal,
    Request,
    answer_of,
    digest_of,
    encoded,
    most_bytes,
    open_envelope,
    request_of,
    task_request,
)
from fastadmm.conversation.calls import CALLS, TASKS, Asked, fields_of

N = 5
RUN, DIGEST = "0123456789abcdef", digest_of(b"")

#: What somebody may put in place of a value in a head.
_ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e200, "", "x", "\ud800", "a\nb"),
    *([], {}, [[]], {"array": []}, {"array": ["<f8", N]}, {"array": ["<f8", -1]}, {"array": ["|O", 1]}),
    *({"array": ["<f8", 2**39, 2**39]}, {"array": ["<i8", 1]}, {"bound": "infinite"}, {"array": None}),
]


def values_of(kinds: dict[str, str], rng: np.random.Generator) -> dict[str, Any]:
    """Values of these kinds, all that there may be."""
    values: dict[str, Any] = {}
    for key, rule in fields_of(kinds, N).items():
        if rule.shape is not None:
            shape = tuple(3 if n < 0 else n for n in rule.shape)
            values[key] = np.abs(rng.normal(size=shape)).astype(rule.dtype) + 1
        else:
            number = 2 if "count" in rule.kind else 0.25
            values[key] = {"text": "word", "names": "a,b", "flag": True}.get(rule.kind, number)
    return values


def request_with(calls: list[Asked], number: int = 3) -> Request:
    return Request(RUN, "shop", number, number - 1, calls, DIGEST)


def messages(rng: np.random.Generator) -> list[tuple[bytes, Asked | None]]:
    """Good ones: requests of every call, answers, a refusal; of answers, the call."""
    found: list[tuple[bytes, Asked | None]] = []
    for name in CALLS:
        found.append((encoded(request_with([(name, values_of(CALLS[name].arguments, rng))])), None))
    asked: Asked = ("respond_pair", {"gradient": np.ones(N), "coefficients": np.ones(2)})
    answer = {
        "squared_residual": 0.5,
        "products": np.ones(4),
        **{key: np.ones(N, dtype=np.float32) for key in ("first", "second")},
        **{"first_scale": 1.0, "second_scale": 2.0},
    }
    found.append((encoded(Message(RUN, "shop", 3, DIGEST, answer)), asked))
    found.append((encoded(Refusal("shop", 3, DIGEST, "lambda")), asked))
    for call, rule in TASKS.items():
        about = {"run": RUN, "row_digest": DIGEST, "n_samples": 3} if "run" in rule.arguments else {}
        task = task_request(RUN, "shop", call, values_of(rule.arguments, rng) | about)
        said = values_of(rule.answer, rng)
        said.pop("class_scores", None)  # or they, or scores
        found.append((encoded(task), None))
        found.append((encoded(Message(RUN, "shop", 0, DIGEST, said)), task.calls[0]))
    return found


def decode(raw: bytes, asked: Asked | None) -> object:
    envelope = open_envelope(raw, most_bytes(N), "test")
    return request_of(envelope, N, "test") if asked is None else answer_of(envelope, asked, N, "test")


def mutated(raw: bytes, others: list[bytes], rng: np.random.Generator) -> bytes:
    kind = rng.integers(7)
    if kind == 0:  # bits
        found = bytearray(raw)
        for _ in range(rng.integers(1, 4)):
            found[rng.integers(len(found))] ^= 1 << rng.integers(8)
        return bytes(found)
    if kind == 1:  # cut, or longer
        at = int(rng.integers(len(raw)))
        return raw[:at] if rng.integers(2) else raw + raw[:at]
    if kind == 2:  # two messages in one
        other = others[rng.integers(len(others))]
        return raw[: rng.integers(len(raw))] + other[rng.integers(len(other)) :]
    if kind == 3:  # sizes
        at = [8, 12, 16][rng.integers(3)]
        return raw[:at] + struct.pack("<I", int(rng.integers(2**32))) + raw[at + 4 :]
    if kind == 4:  # numbers that are none
        at = 8 * int(rng.integers(len(raw) // 8))
        odd = [np.nan, np.inf, -np.inf, 1e300, 5e-324]
        return raw[:at] + struct.pack("<d", odd[rng.integers(5)]) + raw[at + 8 :]
    return _other_head(raw, rng, canonical=kind == 5)


def _other_head(raw: bytes, rng: np.random.Generator, *, canonical: bool) -> bytes:
    """Another value somewhere in the head, with all sizes right."""
    n_head = struct.unpack_from("<I", raw, 12)[0]
    head = json.loads(raw[24 : 24 + n_head])
    body = raw[24 + n_head + -n_head % 8 :]
    at: Any = head
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            break
        key = keys[rng.integers(len(keys))]
        if isinstance(at[key], (dict, list)) and rng.integers(4):
            at = at[key]
            continue
        if rng.integers(5) == 0:
            del at[key]
        else:
            at[key] = _ODD[rng.integers(len(_ODD))]
        break
    text = json.dumps(head, sort_keys=canonical, separators=(",", ":") if canonical else None).encode()
    if not canonical and rng.integers(2):
        text = b"[" * int(rng.integers(1, 20000)) + text
    prefix = struct.pack("<8sIIQ", b"fastadmm", 1, len(text), len(body))
    return prefix + text + bytes(-len(text) % 8) + body


def fuzz(count: int, seed: int = 0) -> int:
    """Decode so many mutated messages; how many were accepted."""
    rng = np.random.default_rng(seed)
    good = messages(rng)
    all_raw = [raw for raw, _ in good]
    accepted = 0
    for _ in range(count):
        raw, asked = good[rng.integers(len(good))]
        try:
            decode(mutated(raw, all_raw, rng), asked)
            accepted += 1
        except ProtocolError:
            pass
    return accepted


if __name__ == "__main__":
    print(fuzz(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0), "accepted")
