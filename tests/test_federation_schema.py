"""Messages between organisations: equal content is equal bytes, and what is not ours is refused."""

import json
import math
import random
import struct
from contextlib import suppress

import numpy as np
import pytest
from fastadmm.between.schema import (
    CODES,
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
    table_digest,
    task_request,
)
from fastadmm.conversation.calls import CALLS, TASKS, fields_of
from fastadmm.errors import FormatError

from fuzz_mutations import change, spoiled
from run_tools import refuses

N = 5
RUN, DIGEST = "0123456789abcdef", digest_of(b"")

#: What somebody may put in place of a value in a head.
_ODD = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e200, "", "x", "\ud800", "a\nb"),
    *([], {}, [[]], {"array": []}, {"array": ["<f8", N]}, {"array": ["<f8", -1]}, {"array": ["|O", 1]}),
    *({"array": ["<f8", 2**39, 2**39]}, {"array": ["<i8", 1]}, {"bound": "infinite"}, {"array": None}),
]


def values_of(kinds, rng):
    """Values of these kinds, all that there may be."""
    values = {}
    for key, rule in fields_of(kinds, N).items():
        if rule.shape is not None:
            shape = tuple(3 if n < 0 else n for n in rule.shape)
            values[key] = np.abs(rng.normal(size=shape)).astype(rule.dtype) + 1
        else:
            number = 2 if "count" in rule.kind else 0.25
            values[key] = {"text": "word", "names": "a,b", "flag": True}.get(rule.kind, number)
    return values


def request_with(calls, number=3):
    return Request(RUN, "shop", number, number - 1, calls, DIGEST)


def messages(rng):
    """Good ones: requests of every call, answers, a refusal; of answers, the call."""
    found = []
    for name in CALLS:
        found.append((encoded(request_with([(name, values_of(CALLS[name].arguments, rng))])), None))
    asked = ("respond_pair", {"gradient": np.ones(N), "coefficients": np.ones(2)})
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


def decode(raw, asked):
    envelope = open_envelope(raw, most_bytes(N), "test")
    return request_of(envelope, N, "test") if asked is None else answer_of(envelope, asked, N, "test")


def mutated(raw, others, rng):
    """A message with other bytes, the end of another, other sizes, numbers that are none, or another head."""
    kind = rng.choice(["bytes", "bytes", "two", "sizes", "number", "head", "head"])
    if kind == "bytes":
        return spoiled(raw, rng)[1]
    if kind == "two":
        other = rng.choice(others)
        return raw[: rng.randrange(len(raw))] + other[rng.randrange(len(other)) :]
    if kind == "sizes":
        at = rng.choice([8, 12, 16])
        return raw[:at] + rng.randbytes(4) + raw[at + 4 :]
    if kind == "number":
        at = 8 * rng.randrange(len(raw) // 8)
        return (
            raw[:at] + struct.pack("<d", rng.choice([np.nan, np.inf, -np.inf, 1e300, 5e-324])) + raw[at + 8 :]
        )
    # Another head, with all sizes right; half of them as nobody spells them.
    n_head = struct.unpack_from("<I", raw, 12)[0]
    head, body = json.loads(raw[24 : 24 + n_head]), raw[24 + n_head + -n_head % 8 :]
    change(head, rng, _ODD)
    canonical, deep = rng.random() < 0.5, rng.random() < 0.5
    text = json.dumps(head, sort_keys=canonical, separators=(",", ":") if canonical else None).encode()
    text = b"[" * (0 if canonical or deep else rng.randrange(1, 20000)) + text
    prefix = struct.pack("<8sIIQ", b"fastadmm", 1, len(text), len(body))
    return prefix + text + bytes(-len(text) % 8) + body


def fuzz(count, seed):
    """Decode so many mutated messages; how many were accepted."""
    good, rng, accepted = messages(np.random.default_rng(seed)), random.Random(seed), 0
    for _ in range(count):
        raw, asked = rng.choice(good)
        with suppress(ProtocolError):
            decode(mutated(raw, [raw for raw, _ in good], rng), asked)
            accepted += 1
    return accepted


RNG = np.random.default_rng(5)


@pytest.mark.parametrize("name", CALLS)
def test_a_request_comes_back_and_its_bytes_do_not_depend_on_the_order_of_keys(name):
    values = values_of(CALLS[name].arguments, RNG)
    raw = encoded(request_with([(name, values), (name, values)]))
    back = decode(raw, None)
    assert [asked[0] for asked in back.calls] == [name, name]
    for _, found in back.calls:
        assert found.keys() == values.keys()
        for key, value in values.items():
            assert type(found[key]) is type(value)
            np.testing.assert_array_equal(found[key], value)
            assert not isinstance(value, np.ndarray) or (
                found[key].flags.writeable and found[key].flags.aligned
            )
    assert encoded(request_with([(name, dict(reversed(values.items())))] * 2)) == raw
    assert encoded(back) == raw


def test_numbers_keep_their_last_bit_and_one_bound_may_be_infinite():
    value = float(np.nextafter(0.1, 1))
    message = Message(RUN, "shop", 3, DIGEST, {"value": np.float64(value)})
    assert decode(encoded(message), ("dual_scale", {})).answer == {"value": value}
    message = Message(RUN, "shop", 3, DIGEST, {"value": math.inf})
    raw = encoded(message)
    assert decode(raw, ("dual_value", {})).answer == {"value": math.inf}
    refuses(ProtocolError, "'value' is not as expected: nonnegative", decode, raw, ("dual_scale", {}))
    with pytest.raises(ProtocolError, match="nothing that could be sent"):
        encoded(Message(RUN, "shop", 3, DIGEST, {"value": math.nan}))


def test_layout_and_digest():
    raw = encoded(request_with([("respond", {"gradient": np.arange(5.0)})]))
    magic, version, n_head, n_body = struct.unpack_from("<8sIIQ", raw)
    assert (magic, version, n_body) == (b"fastadmm", 1, 40)
    begin = 24 + n_head + -n_head % 8
    assert begin % 8 == 0
    assert len(raw) == begin + n_body
    np.testing.assert_array_equal(np.frombuffer(raw[begin:]), np.arange(5.0))
    assert table_digest() == table_digest() != DIGEST
    # An answer to another call is refused.
    raw, asked = next(pair for pair in messages(RNG) if pair[1] is not None)
    assert isinstance(answer_of(open_envelope(raw, 10**6, "m"), asked, N, "m"), Message)
    with pytest.raises(ProtocolError):
        decode(raw, ("respond", {"coefficients": np.ones(2)}))
    refuses(ProtocolError, "not a request", request_of, open_envelope(raw, 10**6, "m"), N, "m")


@pytest.mark.parametrize("code", CODES)
def test_a_refusal_is_a_code_and_no_text(code):
    refusal = Refusal("shop", 3, DIGEST, code)
    assert decode(encoded(refusal), ("respond", {})) == refusal
    with pytest.raises(ProtocolError, match="unknown"):
        decode(encoded(Refusal("shop", 3, DIGEST, "x: y.h5 not found")), ("respond", {}))


def test_what_is_not_ours_is_refused():
    good = {"gradient": np.ones(N), "coefficients": np.ones(1), "newton": True}
    bad = [
        *(("gradient", value) for value in (np.full(N, np.nan), np.ones(N + 1), np.ones(N, dtype="f4"))),
        *(("coefficients", np.ones((1, 1))), ("newton", 1)),
    ]
    for key, value in bad:
        with pytest.raises(ProtocolError, match=f"call 'respond': '{key}' is not as expected") as caught:
            decode(encoded(request_with([("respond", {**good, key: value})])), None)
        assert caught.value.refusal == "values"
    with pytest.raises(ProtocolError, match="'extra' is unknown here"):
        decode(encoded(request_with([("respond", {**good, "extra": 1.0})])), None)
    # Another version too long and another spelling are refused.
    raw = messages(RNG)[0][0]
    with pytest.raises(ProtocolError, match="version 2") as caught:
        decode(raw[:8] + b"\2" + raw[9:], None)
    assert caught.value.refusal == "version"
    refuses(ProtocolError, "at most 10", open_envelope, raw, 10, "test")
    assert (
        most_bytes(10**7, 3) > 8 * 3 * 10**7 > most_bytes(0)
    )  # a vector of each class passes, not of other rows
    spaced = raw[24:].split(b"}")[0].replace(b":", b": ", 1) + b"}"
    with pytest.raises(ProtocolError):
        decode(struct.pack("<8sIIQ", b"fastadmm", 1, len(spaced), 0) + spaced + bytes(-len(spaced) % 8), None)
    assert issubclass(ProtocolError, FormatError)


def test_mutated_messages_raise_nothing_but_the_protocols_error():
    # What is accepted has another number, name or value that is as good.
    assert 0 < fuzz(2000, seed=7) < 800
