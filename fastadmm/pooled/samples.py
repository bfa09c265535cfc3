"""Growing samples of a table's rows: see :mod:`fastadmm.method.row_samples`."""

from fastadmm.blocks.block import CSRBlock
from fastadmm.blocks.mixed import Rows
from fastadmm.blocks.side_by_side import Beside, some_rows
from fastadmm.engine.engine import Engine
from fastadmm.engine.some_rows import SomeRowsEngine
from fastadmm.method.row_samples import chosen_rows, strides
from fastadmm.method.span import SomeRows
from fastadmm.pooled.table_span import TableSpan
from fastadmm.problem.problem import Problem


def samples_of(problem: Problem | SomeRows, rows: Rows, engine: Engine) -> list[tuple[int, TableSpan]]:
    """Copies of growing samples of rows, as spans, and of how many rows each has one."""
    (n, d), samples = rows.shape, []
    for stride in strides(engine.all_rows(n), d, problem.loss.name == "squared"):
        numbers = chosen_rows(n, stride, engine)
        own = SomeRowsEngine(engine, numbers, n)
        part: Rows
        if isinstance(rows, CSRBlock):
            part = some_rows(rows, numbers, own)
        else:
            part = rows.some_rows(numbers, own)
        samples.append((stride, TableSpan(SomeRows.of(problem, numbers, own, stride), part, own)))
    return samples


def give_back_samples(samples: list[tuple[int, TableSpan]], engine: Engine) -> None:
    """Let go of samples' rows, of :func:`samples_of`: their memory is given back by all threads."""
    for _, span in samples:
        if isinstance(span.rows, Beside):
            span.rows.give_back(engine)
