"""HTML reports of runs. Matplotlib and Jinja are imported when a page is written, not before."""

from fastadmm.reports.html import write_report
from fastadmm.reports.records import compare_runs, read_records

__all__ = ["compare_runs", "read_records", "write_report"]
