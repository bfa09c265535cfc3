"""ChaCha20 keystream (RFC 8439), sixteen blocks at a time.

The loop over the sixteen blocks has no inner loop, so that LLVM keeps the
state in vector registers, one block per lane, and unrolls nothing else. Sums
and rotations are written in 64 bits and cut to 32, which LLVM narrows again:
then the same lines run without compilation and without overflow warnings.
"""

import numpy as np
from fastadmm.kernels.policy import inline

#: Blocks computed together; part of the layout of :mod:`fastadmm.kernels.gaussian_noise`.
LANES = 16

#: "expand 32-byte k", RFC 8439 section 2.3.
_C0, _C1, _C2, _C3 = (
    np.uint32(0x61707865),
    np.uint32(0x3320646E),
    np.uint32(0x79622D32),
    np.uint32(0x6B206574),
)


@inline
def _add(a, b):
    return np.uint32(np.uint64(a) + np.uint64(b))


@inline
def _rotate(x, left):
    wide = np.uint64(x)
    return np.uint32((wide << np.uint64(left)) | (wide >> np.uint64(32 - left)))


@inline
def _quarter_round(a, b, c, d):
    """RFC 8439 section 2.1."""
    a = _add(a, b)
    d = _rotate(d ^ a, 16)
    c = _add(c, d)
    b = _rotate(b ^ c, 12)
    a = _add(a, b)
    d = _rotate(d ^ a, 8)
    c = _add(c, d)
    b = _rotate(b ^ c, 7)
    return a, b, c, d


@inline
def _double_round(x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15):
    """A column round and a diagonal round, RFC 8439 section 2.3."""
    x0, x4, x8, x12 = _quarter_round(x0, x4, x8, x12)
    x1, x5, x9, x13 = _quarter_round(x1, x5, x9, x13)
    x2, x6, x10, x14 = _quarter_round(x2, x6, x10, x14)
    x3, x7, x11, x15 = _quarter_round(x3, x7, x11, x15)
    x0, x5, x10, x15 = _quarter_round(x0, x5, x10, x15)
    x1, x6, x11, x12 = _quarter_round(x1, x6, x11, x12)
    x2, x7, x8, x13 = _quarter_round(x2, x7, x8, x13)
    x3, x4, x9, x14 = _quarter_round(x3, x4, x9, x14)
    return x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15


@inline
def _twenty_rounds(s):
    s = _double_round(*s)
    s = _double_round(*s)
    s = _double_round(*s)
    s = _double_round(*s)
    s = _double_round(*s)
    s = _double_round(*s)
    s = _double_round(*s)
    s = _double_round(*s)
    s = _double_round(*s)
    return _double_round(*s)


@inline
def chacha_group(key, nonce, counter, words):
    """Write sixteen consecutive blocks of the ChaCha20 keystream, RFC 8439 section 2.3.

    Shapes: key (8,) of uint32; nonce (3,) of uint32; words (16, 16) of uint32.
    ``counter``: number of the first block. ``words``: output: words of a block by blocks.
    """
    k0, k1, k2, k3, k4, k5, k6, k7 = key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7]
    n0, n1, n2 = nonce[0], nonce[1], nonce[2]
    for lane in range(LANES):
        t = np.uint32(np.uint64(counter) + np.uint64(lane))
        s = _twenty_rounds((_C0, _C1, _C2, _C3, k0, k1, k2, k3, k4, k5, k6, k7, t, n0, n1, n2))
        words[0, lane] = _add(s[0], _C0)
        words[1, lane] = _add(s[1], _C1)
        words[2, lane] = _add(s[2], _C2)
        words[3, lane] = _add(s[3], _C3)
        words[4, lane] = _add(s[4], k0)
        words[5, lane] = _add(s[5], k1)
        words[6, lane] = _add(s[6], k2)
        words[7, lane] = _add(s[7], k3)
        words[8, lane] = _add(s[8], k4)
        words[9, lane] = _add(s[9], k5)
        words[10, lane] = _add(s[10], k6)
        words[11, lane] = _add(s[11], k7)
        words[12, lane] = _add(s[12], t)
        words[13, lane] = _add(s[13], n0)
        words[14, lane] = _add(s[14], n1)
        words[15, lane] = _add(s[15], n2)
