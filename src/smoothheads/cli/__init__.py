"""The command line. Each command is a class in a module that is imported only when it is used."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Final

from smoothheads import __version__
from smoothheads.errors import SmoothheadsError, one_of

COMMANDS: Final = {
    "demo": "train, certify and compare two small networks, and show what a certificate is",
    "train": "train a classifier from a recipe",
    "certify": "certify a checkpoint's predictions on test images",
    "export": "put a certified classifier into one folder to ship, with the evidence",
    "predict": "classify image files with a guarantee, or abstain",
    "push": "upload a classifier with its evidence to the Hugging Face Hub",
    "serve": "a page in the browser with live certificates and runs, and an API",
    "report": "tables, plots and a page from one or more ledgers or logs",
    "compare": "paired differences between logs on the same images",
    "audit": "check anybody's certification logs",
    "board": "one page of all logs below a folder that pass the audit",
    "recertify": "certify again from stored votes, with another alpha or aggregation",
    "threats": "l-infinity and top-k certificates from a ledger's stored votes",
    "merge": "join the ledgers of shards",
    "ensemble": "join checkpoints into one network with a head each, or learn the heads' weights",
    "import": "turn other people's weights (.pth) into a checkpoint",
    "attack": "try to prove a ledger wrong, and bound its certificates from above",
    "zoo": "trained classifiers that come with the package",
    "info": "recipes, architectures and their cost, checkpoints",
    "diversity": "how different a network's heads are under noise",
    "study": "train and certify many arms alike, and show them as one table",
    "paper": "the SOME paper's tables and figures: published, imported, or run here",
}
MODULES: Final = {
    **dict.fromkeys(("audit", "board", "compare", "merge", "recertify", "threats"), "report"),
    **dict.fromkeys(("ensemble", "export", "import", "push", "zoo"), "checkpoints"),
    "diversity": "attack",
    "paper": "study",
}
"""Modules of the commands that share one; the others lie in a module of their name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code, 2 for what the user can mend, or 130 for Ctrl-C."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    python_format, warnings.formatwarning = warnings.formatwarning, format_warning
    try:
        return _dispatch(arguments)
    except SmoothheadsError as error:
        print(f"smoothheads: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "smoothheads: interrupted; run the same command again (train: add --resume) to go on",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:
        # The reader of our output went away, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"smoothheads: {error.filename or 'system'}: {error.strerror or error}", file=sys.stderr)
        return 2
    finally:
        warnings.formatwarning = python_format


def format_warning(message: Warning | str, *_: Any, **__: Any) -> str:
    """Returns a warning as a user should read it: without the line of the source that gave it."""
    return f"smoothheads: warning: {message}\n"


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0
    if arguments[0] == "--version":
        print(f"smoothheads {__version__}")
        return 0
    return run_command(arguments)


def run_command(words: Sequence[str]) -> int:
    """Runs the command that the first word names with the arguments that follow."""
    name, *arguments = words
    if name not in COMMANDS:
        raise one_of("command", name, COMMANDS)
    module = importlib.import_module(f"smoothheads.cli.{MODULES.get(name, name)}")
    return getattr(module, f"{name.capitalize()}Command").read(arguments).run() or 0


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [
        "smoothheads: image classifiers with a proof attached",
        "",
        "usage: smoothheads COMMAND ... (smoothheads COMMAND --help tells more)",
        "",
        *(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()),
        "",
        "first steps:",
        "  smoothheads demo                                     a minute or two, writes demo/report.html",
        "  smoothheads train digits-some --out runs/some        train on the embedded digits",
        "  smoothheads certify runs/some --n 10000              certify the test images",
        "  smoothheads report runs/some/ledger                  certified accuracy, ACR, curves",
    ]
    return "\n".join(lines)
