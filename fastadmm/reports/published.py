"""The records of a run that may be passed on: the filter is that of :mod:`fastadmm.privacy.published`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fastadmm.privacy.published import config_of, fixed_result, is_private
from fastadmm.reports.records import RunRecords


def published(records: RunRecords) -> RunRecords:
    """The records of a run that may be passed on: ``docs/privacy.md#what-may-leave``."""
    records = replace(records, config=config_of(records.config))
    if not is_private(records.privacy, records.config):
        return records
    result = None if records.result is None else fixed_result(records.result)
    history = records.history
    nothing = replace(
        history,
        round=history.round[:0],
        series={name: values[:0] for name, values in history.series.items()},
        weight_norms=np.empty((0, 0)),
        test={},
    )
    gone: dict[str, Any] = dict.fromkeys(("evaluation", "worth", "path_table", "inference", "points"))
    return replace(records, history=nothing, result=result, **gone)
