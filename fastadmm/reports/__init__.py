"""HTML reports of runs. Matplotlib and Jinja are imported when a page is written, not before."""

from __future__ import annotations

from fastadmm.reports.html import write_report
from fastadmm.reports.records import History, RunRecords, read_records

__all__ = ["History", "RunRecords", "read_records", "write_report"]
