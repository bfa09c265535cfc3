"""Pages of memory, given back to the system piece by piece: for one thread all others would wait."""

from fastadmm.kernels.policy import intrinsic, kernel
from llvmlite import ir
from numba import types


@intrinsic
def _advise(typing_context, madvise, place, size, advice):
    """Call the system's ``madvise`` at an address."""
    signature = types.int32(*[types.int64] * 4)

    def generate(context, builder, signature, arguments):
        whole, pointer = ir.IntType(64), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.IntType(32), [pointer, whole, ir.IntType(32)])
        function = builder.inttoptr(arguments[0], kind.as_pointer())
        advice = builder.trunc(arguments[3], ir.IntType(32))
        return builder.call(function, [builder.inttoptr(arguments[1], pointer), arguments[2], advice])

    return signature, generate


@kernel
def piece_of_pages(places, step, small, large, number):
    """One of the pieces that whole pages of several memories are cut into.

    Each has the large pages of a step; the first and the last of a memory have the small ones at its ends.

    Shapes: places (k, 2) of int64.
    ``places``: address and bytes of each memory. ``step``: bytes of a piece: of large pages. ``small``,
    ``large``: bytes of the system's pages. ``number``: of the piece. A memory has one for each whole step,
    and one more.
    Returns: addresses; no more than the beginning where nothing is left.
    """
    k = 0
    while number > places[k, 1] // step:
        number -= places[k, 1] // step + 1
        k += 1
    address, size = places[k, 0], places[k, 1]
    begin = -(-address // large) * large + number * step
    end = min(begin + step, (address + size) // small * small)
    return (-(-address // small) * small if number == 0 else begin), end


@kernel
def discard(madvise, advice, places, step, small, large, start, stop):
    """Let go of memory; what stood there is lost.

    ``madvise``: address of the system's function. ``advice``: ``MADV_DONTNEED``. ``start``, ``stop``: range
    of pieces. Others as of :func:`piece_of_pages`.
    """
    for number in range(start, stop):
        begin, end = piece_of_pages(places, step, small, large, number)
        if begin < end:
            _advise(madvise, begin, end - begin, advice)
