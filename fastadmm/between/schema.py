"""Messages between organisations, version 1: a head of canonical JSON, and arrays.

A message is a prefix of 24 bytes (``fastadmm``, the version in 4 bytes, the head's size in 4, the body's in
8, all little-endian), the head, zeros up to a multiple of 8, and the body: arrays one after the other, each
followed by zeros up to a multiple of 8. In the head an array is ``{"array": [dtype, *shape]}``. Equal content
is equal bytes: whatever is spelled in another way than :func:`encoded` would is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np

from fastadmm.conversation import calls as table
from fastadmm.conversation.calls import Asked
from fastadmm.errors import FastadmmError, FormatError, InputError, PrivacyBudgetError, WaitingError
from fastadmm.files.reading import json_of
from fastadmm.store.party_file import check_party_name

#: Of the messages.
VERSION = 1

_MAGIC = b"fastadmm"
_PREFIX = struct.Struct("<8sIIQ")
_MOST_HEAD = 1 << 20

#: A message holds a few vectors of N numbers and small things.
_SMALL, _VECTORS = 16 << 20, 64

#: A request merges a few directions at most.
_MOST_CALLS = 1000

_UNSPELLED = "not spelled as this protocol spells it"

_DTYPES = ("<f8", "<f4", "<i8", "|u1")
_RUN = re.compile(r"[0-9a-f]{16}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class ProtocolError(FormatError):
    """Bytes that are no message of this protocol, or one that does not fit."""

    def __init__(self, text: str, code: str = "damaged") -> None:
        super().__init__(text)
        self.refusal = code


@dataclass(frozen=True)
class Request:
    """What the coordinator asks of one party."""

    run: str  # identifier of the training run
    party: str
    number: int  # of the exchange; 0 opens the run
    previous: int  # number of this party's exchange before; -1 before the first
    calls: list[Asked]  # in order; the last one is answered
    answered: str = ""
    digest: str = ""  # ``sha256:<hex>`` of its bytes; empty before it is written
    kind: str = "request"  # or "task": one call of TASKS, which stands for itself

    @property
    def call(self) -> str:
        """Of the call that is answered: its name."""
        return self.calls[-1][0]

    @property
    def arguments(self) -> dict[str, Any]:
        """Of the call that is answered."""
        return self.calls[-1][1]


def task_request(task: str, party: str, call: str, arguments: dict[str, Any]) -> Request:
    """What is asked beside a run; ``task`` is the identifier of the coordinator's task.

    A request that is made again gets the stored answer: the same question in another task is another request.
    """
    return Request(task, party, 0, -1, [(call, arguments)], kind="task")


@dataclass(frozen=True)
class Message:
    """A party's answer."""

    kind: ClassVar[str] = "message"
    run: str  # as of the request
    party: str  # as of the request
    number: int  # as of the request
    request: str  # digest of the request that it answers
    answer: dict[str, Any]  # arrays and scalars
    digest: str = ""  # ``sha256:<hex>`` of its bytes; empty before it is written


@dataclass(frozen=True)
class Refusal:
    """A party does not answer."""

    kind: ClassVar[str] = "refusal"
    party: str
    number: int  # of the exchange; -1 where the request could not be read
    request: str  # digest of the request, or UNREAD
    code: str  # a key of CODES


@dataclass(frozen=True)
class Envelope:
    """A message whose bytes are in order, and whose values have not been looked at."""

    head: dict[str, Any]
    body: memoryview
    raw: bytes  # all of it

    @cached_property
    def digest(self) -> str:
        """Of all bytes; a long message takes time, so it is asked for once it is known to be wanted."""
        return digest_of(self.raw)


def digest_of(raw: bytes) -> str:
    """``sha256:<hex>`` of a message."""
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


#: What a refusal names in place of a long request's digest: nobody may ask it, so it was not read.
UNREAD = digest_of(b"")


def table_digest() -> str:
    """Digest of the table of calls: two sides that differ in it do not begin a run."""
    rules = {name: [list(rule.families), rule.arguments, rule.answer] for name, rule in table.CALLS.items()}
    return digest_of(_canonical(rules))


def run_identifier(run: object, place: str) -> str:
    """A run's identifier, which is a file name at the party."""
    if not isinstance(run, str) or not _RUN.fullmatch(run):
        raise ProtocolError(f"{place}: 'run' is no identifier of a run: 16 hexadecimal digits")
    return run


def most_bytes(n_samples: int, n_classes: int = 1) -> int:
    """The longest message of a run."""
    return _SMALL + _VECTORS * 8 * n_samples * n_classes


# --- out --------------------------------------------------------------------------------------------------


def encoded(content: Request | Message | Refusal) -> bytes:
    """The bytes of a request, an answer or a refusal; equal ones are equal bytes."""
    arrays: list[np.ndarray] = []
    head = {"kind": content.kind, **{key: value for key, value in vars(content).items() if key != "digest"}}
    if "answer" in head:
        head["answer"] = pack_values(head["answer"], arrays)
    if "calls" in head:
        head["calls"] = [[name, pack_values(arguments, arrays)] for name, arguments in head["calls"]]
    return message_bytes(head, arrays)


def _canonical(head: Any) -> bytes:
    return json.dumps(head, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def message_bytes(head: dict[str, Any], arrays: list[np.ndarray]) -> bytes:
    """The bytes of any message."""
    text = _canonical(head)
    if len(text) > _MOST_HEAD:
        raise ProtocolError(f"a head of {len(text)} bytes; it has at most {_MOST_HEAD}", "values")
    body = [part for array in arrays for part in (array.data, _padding(array.nbytes))]
    size = sum(len(part) if isinstance(part, bytes) else part.nbytes for part in body)
    prefix = _PREFIX.pack(_MAGIC, VERSION, len(text), size)
    return b"".join([prefix, text, _padding(len(text)), *body])


def _padding(size: int) -> bytes:
    return bytes(-size % 8)


def pack_values(values: Mapping[str, Any], arrays: list[np.ndarray]) -> dict[str, Any]:
    """Values as the head of a message has them, both in the order of the keys."""
    packed: dict[str, Any] = {}
    for key in sorted(values):
        value = values[key]
        if isinstance(value, np.ndarray) and value.ndim:
            own = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
            arrays.append(own.reshape(-1).view(np.uint8))
            packed[key] = {"array": [own.dtype.str, *own.shape]}
            continue
        value = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
        if isinstance(value, float) and not math.isfinite(value):
            if value != math.inf:
                raise ProtocolError(f"{key!r} is {value}: nothing that could be sent", "values")
            value = {"bound": "infinite"}
        packed[key] = value
    return packed


# --- in ---------------------------------------------------------------------------------------------------


def open_envelope(raw: bytes, most: int, place: str) -> Envelope:
    """Take a message apart."""
    if len(raw) > most:
        raise ProtocolError(f"{place}: {len(raw)} bytes, but here a message has at most {most}")
    if len(raw) < _PREFIX.size or raw[:8] != _MAGIC:
        raise ProtocolError(f"{place}: not a message of fastadmm: give a file that it wrote")
    _, version, n_head, n_body = _PREFIX.unpack_from(raw)
    if version != VERSION:
        raise ProtocolError(f"{place}: version {version} of the protocol; known: {VERSION}", "version")
    begin = _PREFIX.size + n_head + len(_padding(n_head))
    if n_head > _MOST_HEAD or begin + n_body != len(raw):
        raise ProtocolError(f"{place}: cut, or longer than it says")
    text = raw[_PREFIX.size : _PREFIX.size + n_head]
    try:
        head = json_of(text.decode("ascii"), foreign=True)
        good = isinstance(head, dict) and _canonical(head) == text
    except (ValueError, OverflowError):  # ValueError also for ASCII, NaN and long numbers
        raise ProtocolError(f"{place}: the head is not JSON, or has a number that is not finite") from None
    if not good or any(raw[_PREFIX.size + n_head : begin]):
        raise ProtocolError(f"{place}: {_UNSPELLED}")
    return Envelope(head, memoryview(raw)[begin:], raw)


def request_of(envelope: Envelope, n_samples: int, place: str) -> Request:
    """The request in an envelope, each value checked against the table of calls."""
    head, body = envelope.head, Body(envelope.body, place)
    is_task = head.get("kind") == "task"
    kind, known, most = ("task", table.TASKS, 1) if is_task else ("request", table.CALLS, _MOST_CALLS)
    keys = ("run", "party", "number", "previous", "answered", "calls")
    check_head(head, keys, kind, place)
    number, previous, items = head["number"], head["previous"], head["calls"]
    if not (
        type(previous) is int
        and -1 <= previous < number + (number == 0)
        and isinstance(items, list)
        and 0 < len(items) <= most
        and not (is_task and number != 0)
        and all(isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) for item in items)
    ):
        raise ProtocolError(f"{place}: not 1 to {most} calls after an earlier exchange")
    if head["answered"] != "":
        check_digest(head["answered"], "answered", place)
    calls: list[Asked] = []
    unknown = f"is unknown here; {table.OTHER_VERSION}"
    for name, packed in items:
        if name not in known:
            raise ProtocolError(f"{place}: call {name[:80]!r} {unknown}", "call")
        arguments = body.values(packed)
        rules = table.rule_fields(known[name], n_samples)[0]
        judged(table.check_values, arguments, rules, f"{place}: call {name!r}", unknown)
        calls.append((name, arguments))
    body.end()
    if is_task and "run" in arguments:
        run_identifier(arguments["run"], place)
    if is_task and "row_digest" in arguments:
        check_digest(arguments["row_digest"], "row_digest", place)
    # A task's digest is asked for once it is known to be wanted.
    own = {key: head[key] for key in keys} | {"calls": calls, "digest": "" if is_task else envelope.digest}
    return Request(**own, kind=kind)


def answer_of(envelope: Envelope, asked: Asked, n_samples: int, place: str) -> Message | Refusal:
    """What a party answered to a call, each value checked against the table of calls; or its refusal."""
    head, body = envelope.head, Body(envelope.body, place)
    if head.get("kind") == "refusal":
        return _refusal_of(head, body, place)
    message = message_of(envelope, place)
    answer = body.values(head["answer"])
    body.end()
    judged(table.check_answer, asked, answer, n_samples, f"{place}: answer to {asked[0]!r}")
    return replace(message, answer=answer)


def message_of(envelope: Envelope, place: str) -> Message:
    """Whose answer to which request a message is; the answer itself is not read."""
    head = envelope.head
    check_head(head, ("run", "party", "number", "request", "answer"), "message", place)
    check_digest(head["request"], "request", place)
    return Message(head["run"], head["party"], head["number"], head["request"], {}, envelope.digest)


def _refusal_of(head: dict[str, Any], body: Body, place: str) -> Refusal:
    keys = [one.name for one in fields(Refusal)]
    types = [type(head.get(key)) for key in ("code", "number", "party")]
    if head.keys() != {"kind", *keys} or types != [str, int, str] or head["code"] not in CODES:
        raise ProtocolError(f"{place}: a refusal with a code that is unknown here, or of no exchange")
    check_digest(head["request"], "request", place)
    body.end()
    return Refusal(*(head[key] for key in keys))


def check_head(head: dict[str, Any], keys: tuple[str, ...], kind: str, place: str) -> None:
    """Refuse a head with other keys than a message of this kind has, or of no run, or no party."""
    if head.get("kind") != kind or head.keys() != {"kind", *keys}:
        raise ProtocolError(f"{place}: not a {kind} of this protocol")
    run_identifier(head["run"], place)
    judged(check_party_name, head["party"], place, FormatError)
    if "number" in keys and (type(head["number"]) is not int or not 0 <= head["number"] < 10**9):
        raise ProtocolError(f"{place}: 'number' is no number of an exchange")


def check_digest(value: object, key: str, place: str) -> None:
    """Refuse what is no digest."""
    if not isinstance(value, str) or not DIGEST.fullmatch(value):
        raise ProtocolError(f"{place}: {key!r} is no digest")


def judged(check: Callable[..., object], *arguments: Any) -> None:
    """Apply a rule of a table; what it refuses is an error of the protocol."""
    try:
        check(*arguments)
    except ProtocolError:
        raise
    except FormatError as error:
        raise ProtocolError(str(error), "values") from None


class Body:
    """Takes arrays from a body, in the order in which the head names them."""

    def __init__(self, body: memoryview, place: str) -> None:
        self._body, self._at, self._place = body, 0, place

    def values(self, packed: object) -> dict[str, Any]:
        """Values with their arrays, of what :func:`pack_values` made of them."""
        if not isinstance(packed, dict):
            raise ProtocolError(f"{self._place}: values are no table")
        return {key: self._value(value) for key, value in packed.items()}

    def _value(self, packed: object) -> Any:
        if isinstance(packed, dict):
            if packed == {"bound": "infinite"}:
                return math.inf
            return self._array(packed.get("array") if packed.keys() == {"array"} else None)
        # Integers of JSON have no end, those of a table do.
        if isinstance(packed, (bool, float, str)) or (isinstance(packed, int) and abs(packed) < 2**63):
            return packed
        raise ProtocolError(f"{self._place}: a value that is neither a number, nor text, nor an array")

    def _array(self, described: object) -> np.ndarray:
        good = isinstance(described, list) and 2 <= len(described) <= 3 and described[0] in _DTYPES
        if not good or not all(type(n) is int and 0 <= n < 2**40 for n in described[1:]):  # type: ignore[index]
            raise ProtocolError(f"{self._place}: an array of another type or shape than this protocol has")
        dtype, shape = np.dtype(described[0]), tuple(described[1:])  # type: ignore[index]
        size = math.prod(shape) * dtype.itemsize
        end = self._at + size
        padded = end + -size % 8
        if padded > len(self._body):
            raise ProtocolError(f"{self._place}: an array goes beyond the end")
        if any(self._body[end:padded]):
            raise ProtocolError(f"{self._place}: {_UNSPELLED}")
        array = np.frombuffer(self._body[self._at : end], dtype=dtype).reshape(shape)
        self._at = padded
        # Kernels are compiled for arrays that may be written to; nothing computes with bytes.
        return array if dtype == np.uint8 else array.copy()

    def end(self) -> None:
        """Refuse a body with more in it than was taken."""
        if self._at != len(self._body):
            raise ProtocolError(f"{self._place}: holds more than its head names")


_E = TypeVar("_E", bound=FastadmmError)

#: Every reason that may leave a party, and what it means to who asked.
CODES = {
    "amount": "more rows, or more ids, than it approved",
    "budget": "its privacy ledger has no room for this run",
    "busy": "it is answering another run; wait until that has ended",
    "call": "it was asked what is not for this run, or not for its state",
    "caller": "it does not answer this caller: its approval names others",
    "changed": "it has answered another request under this number, or its last answer was not the one taken",
    "damaged": "the request is no message of this protocol, or was changed or cut on its way",
    "directions": "more vectors than it approved",
    "ended": "the run has ended for it",
    "exchanges": "more exchanges than it approved",
    "expired": "its approval has expired",
    "failed": "it could not answer; its own log has the reason",
    "keys": "its owner has not compared the fingerprints of the keys with the other parties yet",
    "lambda": "lambda is below what it approved",
    "members": "its data were added up among other parties before, and its owner does not allow both sums",
    "order": "the request does not follow the last one that it answered",
    "party": "the request is for another party",
    "penalty": "a penalty that moves as no honest run's does",
    "privacy": "another privacy than it approved, or it has not all that a private run needs of it",
    "rows": "the run is about other rows than it has; align the rows first",
    "run": "it has not approved this run",
    "scores": "it gives no scores of these rows",
    "task": "it has not approved this alignment, or standard errors or predictions with this model",
    "terms": "another family, loss, regularizer, constraint or data than it approved",
    "values": "a value that is not what the table of calls says",
    "version": "another version of the protocol or of fastadmm than its own, or than it approved",
}


def refused(code: str, text: str, kind: type[_E] = InputError) -> _E:  # type: ignore[assignment]
    """The error that tells a party's owner why a request is not answered, with the code for who asked."""
    error = kind(text)
    error.refusal = code
    return error


def code_of(error: BaseException) -> str:
    """The code that may leave a party for an error."""
    if isinstance(error, FastadmmError) and error.refusal:
        return error.refusal
    return "budget" if isinstance(error, PrivacyBudgetError) else "failed"


#: What an owner names with ``agent approve``, by the kind of request.
_NAMED = {**dict.fromkeys(("run", "infer", "labels"), "--data FILE"), "worth": "--data FILE --rows FILE"}

_KINDS = {"contribute": "predict", "span": "infer", "learn": "infer", "join": "worth", "release": "labels"}


def kind_of(call: str) -> str:
    """The kind of request that a call beside runs belongs to."""
    return _KINDS.get(call, "align")


def approve_command(what: str, kind: str, state: str = "DIR") -> str:
    """What shows an owner a request; ``kind`` is ``run`` or a task's."""
    return f"fastadmm agent approve {what} --state {state} {_NAMED.get(kind, '--rows FILE --id NAME')}"


def unapproved(names: Sequence[str], what: str, kind: str) -> WaitingError:
    """What to send to the owners who have not approved a run or a task yet."""
    text = f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} not approved {what}"
    text += f"; give the same command again once they have; send them: {approve_command(what, kind)}"
    return refused("run" if kind == "run" else "task", text, WaitingError)


#: Longest text of somebody else's that a line shows.
_CUT = 40


def quoted(text: object, most: int = _CUT) -> str:
    """Somebody else's text within a line of ours: in quotes, escaped and cut."""
    words = str(text)
    return ascii(words[:most]) + ("…" if len(words) > most else "")
