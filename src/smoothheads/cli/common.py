"""What the commands share: parsing on top of a default, and output for people and programs."""

from __future__ import annotations

import json
import sys
from typing import Any, TypeVar

import tyro

from smoothheads.errors import ConfigError

T = TypeVar("T")


def parse(kind: type[T], arguments: list[str], *, default: T, prog: str, description: str) -> T:
    """The dataclass `kind` from the command line; whatever is not given keeps the default's value."""
    return tyro.cli(
        kind,
        args=arguments,
        default=default,
        prog=f"smoothheads {prog}",
        description=description,
        config=(tyro.conf.AvoidSubcommands,),
    )


def first_argument(arguments: list[str], what: str, remedy: str) -> tuple[str | None, list[str]]:
    """The leading positional, which decides the defaults of the rest; none when only help is asked."""
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], arguments[1:]
    if any(flag in arguments for flag in ("-h", "--help")):
        return None, arguments
    got = f"the option {arguments[0]!r}" if arguments else "nothing"
    raise ConfigError(f"{what} as the first argument", got, remedy)


def take_option(arguments: list[str], option: str) -> tuple[str | None, list[str]]:
    """The value of an option that decides the defaults of others, and the arguments without it."""
    for position, argument in enumerate(arguments):
        if argument == option and position + 1 < len(arguments):
            return arguments[position + 1], arguments[:position] + arguments[position + 2 :]
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2], arguments[:position] + arguments[position + 1 :]
    return None, arguments


def say(text: str) -> None:
    """For the person at the terminal; standard output is kept for the answer."""
    print(text, file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def duration(seconds: float) -> str:
    """Short and readable: 8 s, 3 min 05 s, 2 h 10 min, 4 days."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 100:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 72 else f"{hours / 24:.1f} days"
