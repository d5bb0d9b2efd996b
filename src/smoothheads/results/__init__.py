"""Certification results: the ledger, everybody's logs, their metrics and comparisons."""

from smoothheads.results.cohen import read_log, read_logs
from smoothheads.results.compare import Comparison, compare
from smoothheads.results.ledger import Ledger
from smoothheads.results.log import Log
from smoothheads.results.row import Row
from smoothheads.results.summary import Summary, summarize

__all__ = [
    "Comparison",
    "Ledger",
    "Log",
    "Row",
    "Summary",
    "compare",
    "read_log",
    "read_logs",
    "summarize",
]
