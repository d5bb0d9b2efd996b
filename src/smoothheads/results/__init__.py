"""Certification results: the ledger, everybody's logs, their metrics, comparisons and audits."""

from smoothheads.results.audit import Audit, audit
from smoothheads.results.compare import Comparison, compare
from smoothheads.results.ledger import Ledger
from smoothheads.results.merge import merge
from smoothheads.results.read import read_log, read_logs
from smoothheads.results.recertify import recertify
from smoothheads.results.results import Results, Row, stack
from smoothheads.results.summary import Summary, summarize

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
