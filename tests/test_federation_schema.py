"""Messages between organisations: equal content is equal bytes, and what is not ours is refused."""

import math
import struct

import numpy as np
import pytest
from fastadmm.between.schema import (
    CODES,
    Message,
    ProtocolError,
    Refusal,
    answer_of,
    encoded,
    most_bytes,
    open_envelope,
    request_of,
    table_digest,
)
from fastadmm.conversation.calls import CALLS
from fastadmm.errors import FormatError

from federation_fuzz import DIGEST, RUN, N, decode, fuzz, messages, request_with, values_of

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("name", CALLS)
def test_a_request_comes_back_and_its_bytes_do_not_depend_on_the_order_of_keys(name: str) -> None:
    values = values_of(CALLS[name].arguments, RNG)
    raw = encoded(request_with([(name, values), (name, values)]))
    back = decode(raw, None)
    assert [asked[0] for asked in back.calls] == [name, name]  # type: ignore[attr-defined]
    for _, found in back.calls:  # type: ignore[attr-defined]
        assert found.keys() == values.keys()
        for key, value in values.items():
            assert type(found[key]) is type(value)
            np.testing.assert_array_equal(found[key], value)
            assert not isinstance(value, np.ndarray) or (
                found[key].flags.writeable and found[key].flags.aligned
            )
    assert encoded(request_with([(name, dict(reversed(values.items())))] * 2)) == raw
    assert encoded(back) == raw  # type: ignore[arg-type]


def test_numbers_keep_their_last_bit_and_one_bound_may_be_infinite() -> None:
    value = float(np.nextafter(0.1, 1))
    message = Message(RUN, "shop", 3, DIGEST, {"value": np.float64(value)})
    assert decode(encoded(message), ("dual_scale", {})).answer == {"value": value}  # type: ignore[attr-defined]
    message = Message(RUN, "shop", 3, DIGEST, {"value": math.inf})
    raw = encoded(message)
    assert decode(raw, ("dual_value", {})).answer == {"value": math.inf}  # type: ignore[attr-defined]
    with pytest.raises(ProtocolError, match="not finite"):
        decode(raw, ("dual_scale", {}))
    with pytest.raises(ProtocolError, match="nothing that could be sent"):
        encoded(Message(RUN, "shop", 3, DIGEST, {"value": math.nan}))


def test_layout_and_digest() -> None:
    raw = encoded(request_with([("respond", {"gradient": np.arange(5.0)})]))
    magic, version, n_head, n_body = struct.unpack_from("<8sIIQ", raw)
    assert (magic, version, n_body) == (b"fastadmm", 1, 40)
    begin = 24 + n_head + -n_head % 8
    assert begin % 8 == 0
    assert len(raw) == begin + n_body
    np.testing.assert_array_equal(np.frombuffer(raw[begin:]), np.arange(5.0))
    # The table has a digest.
    assert table_digest() == table_digest() != DIGEST
    # An answer to another call is refused.
    raw, asked = next(pair for pair in messages(RNG) if pair[1] is not None)
    assert isinstance(answer_of(open_envelope(raw, 10**6, "m"), asked, N, "m"), Message)  # type: ignore[arg-type]
    with pytest.raises(ProtocolError):
        decode(raw, ("respond", {"coefficients": np.ones(2)}))
    with pytest.raises(ProtocolError, match="not a request"):
        request_of(open_envelope(raw, 10**6, "m"), N, "m")


@pytest.mark.parametrize("code", CODES)
def test_a_refusal_is_a_code_and_no_text(code: str) -> None:
    refusal = Refusal("shop", 3, DIGEST, code)
    assert decode(encoded(refusal), ("respond", {})) == refusal
    with pytest.raises(ProtocolError, match="unknown"):
        decode(encoded(Refusal("shop", 3, DIGEST, "x: y.h5 not found")), ("respond", {}))


def test_what_is_not_ours_is_refused() -> None:
    good = {"gradient": np.ones(N), "coefficients": np.ones(1), "newton": True}
    bad = [
        ("gradient", np.full(N, np.nan), "NaN"),
        ("gradient", np.ones(N + 1), "5 numbers"),
        ("gradient", np.ones(N, dtype=np.float32), "8 bytes"),
        ("coefficients", np.ones((1, 1)), "not numbers"),
        ("newton", 1, "true or false"),
    ]
    for key, value, match in bad:
        with pytest.raises(ProtocolError, match=match) as caught:
            decode(encoded(request_with([("respond", {**good, key: value})])), None)
        assert caught.value.refusal == "values"
    with pytest.raises(ProtocolError, match="'extra' is unknown here"):
        decode(encoded(request_with([("respond", {**good, "extra": 1.0})])), None)
    # Another version too long and another spelling are refused.
    raw = messages(RNG)[0][0]
    with pytest.raises(ProtocolError, match="version 2") as caught:
        decode(raw[:8] + b"\2" + raw[9:], None)
    assert caught.value.refusal == "version"
    with pytest.raises(ProtocolError, match="at most 10"):
        open_envelope(raw, 10, "test")
    assert (
        most_bytes(10**7, 3) > 8 * 3 * 10**7 > most_bytes(0)
    )  # a vector of each class passes, not of other rows
    spaced = raw[24:].split(b"}")[0].replace(b":", b": ", 1) + b"}"
    with pytest.raises(ProtocolError):
        decode(struct.pack("<8sIIQ", b"fastadmm", 1, len(spaced), 0) + spaced + bytes(-len(spaced) % 8), None)
    assert issubclass(ProtocolError, FormatError)


def test_mutated_messages_raise_nothing_but_the_protocols_error() -> None:
    # What is accepted has another number, name or value that is as good.
    assert 0 < fuzz(2000, seed=7) < 800
