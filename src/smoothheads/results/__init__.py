"""Certification results: the ledger, everybody's logs, their metrics, comparisons and audits."""

from smoothheads.results.audit import Audit, audit
from smoothheads.results.cohen import read_log, read_logs
from smoothheads.results.compare import Comparison, compare
from smoothheads.results.ledger import Ledger
from smoothheads.results.log import Log
from smoothheads.results.merge import merge
from smoothheads.results.recertify import recertify
from smoothheads.results.row import Row
from smoothheads.results.summary import Summary, summarize

__all__ = [
    "Audit",
    "Comparison",
    "Ledger",
    "Log",
    "Row",
    "Summary",
    "audit",
    "compare",
    "merge",
    "read_log",
    "read_logs",
    "recertify",
    "summarize",
]
