"""Certification results: the ledger, everybody's logs, their metrics, comparisons and audits."""

from smoothheads.results.audit import Audit, audit
from smoothheads.results.compare import Comparison, Summary, compare, summarize
from smoothheads.results.derive import merge, recertify
from smoothheads.results.ledger import Ledger
from smoothheads.results.read import read_log, read_logs
from smoothheads.results.results import Results, Row, stack

__all__ = [
    "Audit",
    "Comparison",
    "Ledger",
    "Results",
    "Row",
    "Summary",
    "audit",
    "compare",
    "merge",
    "read_log",
    "read_logs",
    "recertify",
    "stack",
    "summarize",
]
