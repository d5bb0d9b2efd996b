"""smoothheads compare A B ..."""

from __future__ import annotations

from smoothheads.cli import report
from smoothheads.errors import ConfigError

DESCRIPTION = """Compare logs image by image: paired differences from the first log, with bootstrap intervals
and an exact paired test, besides everything that `report` shows.

Logs with different images, alpha or n are refused; --align compares them on the images they share and
certifies stored votes again at the smallest alpha."""


def main(arguments: list[str]) -> None:
    args = report.read_arguments(arguments, "compare", DESCRIPTION)
    if len(args.logs) < 2:
        raise ConfigError("`compare` needs two logs or more; `report` shows a single one.")
    report.run(args)
