"""Text to the nearest float64, as Python's ``float`` rounds it, a thousand times as fast as cell by cell.

A number of at most 19 digits w and a power of ten is the product w 5^q 2^q. Its 128 leading bits are enough
to round it (Eisel; Lemire, "Number parsing at a gigabyte per second", 2021). Where they are not, where there
are more digits, or where the number is subnormal or infinite, the cell is left to ``float``.
"""

import numpy as np
from fastadmm.kernels.policy import apart, inline

#: Smallest and largest decimal exponent that is decided here.
LEAST_POWER, MOST_POWER = -342, 308

#: What a cell is; the bits of :func:`read_number`'s first answer.
UNDECIDED, NUMBER, ABSENT = 0, 1, 2

#: The cell is a whole number that begins with a zero; has a point; one that cannot group thousands.
LEADING_ZERO, POINT, UNGROUPED = 4, 8, 16

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_ZERO = np.uint64(0)


#: Powers of ten that a float64 holds exactly.
_EXACT_POWERS = np.array([10.0**k for k in range(23)])

_ZERO_DIGIT = np.uint8(48)


def powers_of_five() -> np.ndarray:
    """Leading 128 bits of 5^q for q from -342 to 308.

    Returns
    -------
    ndarray
        ``(651, 2)`` uint64, high and low half; rounded down, reciprocals up.
    """
    table = np.empty((MOST_POWER - LEAST_POWER + 1, 2), dtype=np.uint64)
    for q in range(LEAST_POWER, MOST_POWER + 1):
        power = 5 ** abs(q)
        if q < 0:
            size = (power - 1).bit_length()
            bits = (1 << (size + 127 if q >= -27 else 2 * size + 128)) // power + 1
        else:
            bits = power << max(0, 128 - power.bit_length())
        bits >>= max(0, bits.bit_length() - 128)
        table[q - LEAST_POWER] = bits >> 64, bits & (2**64 - 1)
    return table


@inline
def _product(a, b):
    """High and low half of the 128 bits of a b."""
    a1, a0, b1, b0 = a >> _HALF, a & _LOW, b >> _HALF, b & _LOW
    low, middle, other, high = a0 * b0, a1 * b0, a0 * b1, a1 * b1
    carry = (low >> _HALF) + (middle & _LOW) + (other & _LOW)
    return high + (middle >> _HALF) + (other >> _HALF) + (carry >> _HALF), a * b


@inline
def _nearest(w, q, powers):
    """Bits of the float64 nearest to w 10^q; False where they are not decided."""
    if w == _ZERO:
        return True, _ZERO
    if q < LEAST_POWER or q > MOST_POWER:
        return False, _ZERO
    shift = 0
    while not (w >> np.uint64(56)):
        w <<= np.uint64(8)
        shift += 8
    while not (w >> np.uint64(63)):
        w <<= _ONE
        shift += 1
    high, low = _product(w, powers[2 * (q - LEAST_POWER)])
    if (high & np.uint64(0x1FF)) == np.uint64(0x1FF):
        more, _ = _product(w, powers[2 * (q - LEAST_POWER) + 1])
        low += more
        if more > low:
            high += _ONE
    if low == np.uint64(0xFFFFFFFFFFFFFFFF) and (q < -27 or q > 55):
        return False, _ZERO
    upper = high >> np.uint64(63)
    places = upper + np.uint64(9)
    mantissa = high >> places
    exponent = ((217706 * q) >> 16) + 63 + np.int64(upper) - shift + 1023
    if exponent <= 0:
        return False, _ZERO
    if (
        low <= _ONE
        and q >= -4
        and q <= 23
        and (mantissa & np.uint64(3)) == _ONE
        and mantissa << places == high
    ):
        mantissa &= ~_ONE  # exactly between two: to the even one
    mantissa += mantissa & _ONE
    mantissa >>= _ONE
    if mantissa >= np.uint64(1 << 53):
        mantissa = np.uint64(1 << 52)
        exponent += 1
    if exponent >= 2047:
        return False, _ZERO
    return True, (mantissa & np.uint64((1 << 52) - 1)) | (np.uint64(exponent) << np.uint64(52))


@inline
def _rounded(w, q, powers):
    """Bits of the float64 nearest to w 10^q; False where they are not decided.

    A whole number below 2^53 times or divided by a power of ten that is exact is rounded once, as it must be
    (Clinger, "How to read floating point numbers accurately", 1990).
    """
    if w < np.uint64(1 << 53) and -23 < q < 23:
        value = np.float64(w)
        if q < 0:
            value /= _EXACT_POWERS[-q]
        elif q > 0:
            value *= _EXACT_POWERS[q]
        return True, np.float64(value).view(np.uint64)
    return _nearest(w, q, powers)


@inline
def _significant(text, start, stop):
    """How many digits there are from the first that is not zero."""
    digits = 0
    for at in range(start, stop):
        digits += text[at] != 46 and (digits > 0 or text[at] != 48)
    return digits


@inline
def read_number(text, start, stop, powers):
    """What ``text[start:stop]`` is, and the bits of its number.

    Parameters
    ----------
    text : pointer to uint8
        Of :func:`fastadmm.kernels.cells.bare`.
    start, stop : int
        Without spaces around.
    powers : pointer to uint64
        To those of :func:`powers_of_five`.

    Returns
    -------
    int
        ``NUMBER`` with flags, or ``UNDECIDED``.
    uint64
    """
    at, sign = start, _ZERO
    if at < stop and (text[at] == 45 or text[at] == 43):
        if text[at] == 45:
            sign = _ONE << np.uint64(63)
        at += 1
    whole = at
    w = _ZERO
    while at < stop and 48 <= text[at] <= 57:
        w = w * np.uint64(10) + np.uint64(text[at] - 48)
        at += 1
    n_whole = at - whole
    flags, q, n_fraction = NUMBER, np.int64(0), 0
    if at < stop and text[at] == 46:
        at += 1
        fraction = at
        while at < stop and 48 <= text[at] <= 57:
            w = w * np.uint64(10) + np.uint64(text[at] - 48)
            at += 1
        n_fraction = at - fraction
        q = np.int64(-n_fraction)
        flags |= POINT
        if (
            n_whole == 0
            or (n_whole == 1 and text[whole] == 48)
            or n_whole > 3
            or n_fraction != 3
            or at < stop
        ):
            flags |= UNGROUPED
    elif at == stop and n_whole > 1 and text[whole] == 48:
        flags |= LEADING_ZERO
    if n_whole + n_fraction == 0 or (n_whole + n_fraction > 19 and _significant(text, whole, at) > 19):
        return UNDECIDED, _ZERO
    if at < stop:
        if text[at] != 101 and text[at] != 69:
            return UNDECIDED, _ZERO
        at += 1
        negative = at < stop and text[at] == 45
        if at < stop and (text[at] == 45 or text[at] == 43):
            at += 1
        if at == stop or stop - at > 4:
            return UNDECIDED, _ZERO
        power = np.int64(0)
        while at < stop:
            if not 48 <= text[at] <= 57:
                return UNDECIDED, _ZERO
            power = power * 10 + np.int64(text[at] - 48)
            at += 1
        q = q - power if negative else q + power
    decided, bits = _rounded(w, q, powers)
    if not decided:
        return UNDECIDED, _ZERO
    return flags, bits | sign


@apart
def _read_rare(text, start, stop, powers):
    return read_number(text, start, stop, powers)


@inline
def _digits(text, at, w):
    """Behind the digits that begin here, and w with them at its end."""
    digit = text[at] ^ _ZERO_DIGIT
    while digit <= 9:
        w = w * np.uint64(10) + np.uint64(digit)
        at += _ONE
        digit = text[at] ^ _ZERO_DIGIT
    return at, w


@inline
def read_token(text, at, powers):
    """The number that begins here, read once where it has at most 19 digits.

    Parameters
    ----------
    text : pointer to uint8
        Of :func:`fastadmm.kernels.cells.bare`, with a byte that belongs to no number at its end.
    at : uint64
        Unsigned, so that no index counts from the end.
    powers : pointer to uint64
        To those of :func:`powers_of_five`.

    Returns
    -------
    uint64
        Behind the number; what follows is for the caller to judge.
    uint64
        Bits of the float64.
    bool
        Whether it is a number that is decided here.
    """
    start = at
    negative = text[at] == 45
    if negative or text[at] == 43:
        at += _ONE
    begin = at
    at, w = _digits(text, at, _ZERO)
    size, q = at - begin, np.int64(0)
    if text[at] == 46:
        begin = at + _ONE
        at, w = _digits(text, begin, w)
        q = -np.int64(at - begin)
        size += at - begin
    if (text[at] | 32) == 101:
        at += _ONE
        below = text[at] == 45
        if below or text[at] == 43:
            at += _ONE
        begin = at
        at, power = _digits(text, at, _ZERO)
        if at == begin or at - begin > np.uint64(4):
            return at, _ZERO, False
        q += -np.int64(power) if below else np.int64(power)
    if size - _ONE >= np.uint64(19):  # none, or so many that w may have overflowed
        kind, bits = _read_rare(text, np.int64(start), np.int64(at), powers)
        return at, bits, kind != 0
    sign = np.uint64(negative) << np.uint64(63)
    decided, bits = _rounded(w, q, powers)
    return at, bits | sign, decided
