"""What the commands share: parsing on top of a default, and output for people and programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import tyro

from smoothheads.certify.config import CertifyConfig, misplaced
from smoothheads.errors import ConfigError
from smoothheads.hub import is_address, local

if TYPE_CHECKING:
    from smoothheads.report.table import Table

T = TypeVar("T")
OUR_WORDS: Final = {
    "jobs": "workers",
    "processes": "workers",
    "output": "out",
    "outdir": "out",
    "data-dir": "root",
    "data-root": "root",
}
"""For what others call otherwise, and spelling does not tell."""


def parse(default: T, arguments: list[str], *, prog: str, description: str, kind: type[T] | None = None) -> T:
    """A dataclass from the command line: whatever is not given keeps the default's value. `kind` is the type
    of one that is generic."""
    for argument in arguments:
        word = argument.partition("=")[0].removeprefix("--")
        if argument.startswith("--") and hasattr(default, ours := OUR_WORDS.get(word, "")):
            raise ConfigError(f"--{ours}", f"--{word}", f"say --{ours}, as in all commands")
    return tyro.cli(
        kind or type(default),
        args=arguments,
        default=default,
        prog=f"smoothheads {prog}",
        description=description,
        config=(tyro.conf.AvoidSubcommands,),
    )


def short_help(arguments: list[str], usage: str, description: str, options: Mapping[str, str]) -> list[str]:
    """Answers --help with the options that most people need; else the arguments, --help-all as --help."""
    if not {"-h", "--help"} & set(arguments):
        return ["--help" if argument == "--help-all" else argument for argument in arguments]
    width = max(map(len, options))
    lines = [f"  {name:<{width}}  {meaning}".rstrip() for name, meaning in options.items()]
    text = [f"usage: smoothheads {usage} [options]", "", description, "", "options:", *lines]
    print("\n".join([*text, f"  {'--help-all':<{width}}  every option"]))
    raise SystemExit(0)


def first_argument(
    arguments: list[str], what: str, remedy: str, *, writes: bool = False
) -> tuple[str | None, list[str]]:
    """The leading positional, which decides the defaults of the rest; none when only help is asked.

    `hf://user/name[@revision]` becomes the folder of its copy; a command that `writes` beside what it is
    given must then be told where else.
    """
    if arguments and not arguments[0].startswith("-"):
        name, *rest = arguments
        if (
            writes
            and is_address(name)
            and not any(word.partition("=")[0] in ("-o", "--out") for word in rest)
        ):
            raise ConfigError(f"--out with {name}", "none", "say where the results go")
        return str(local(name)) if is_address(name) else name, rest
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


def named_plot(arguments: list[str], usual: str) -> list[str]:
    """A bare --plot gets its usual file."""
    if "--plot" not in arguments:
        return arguments
    after = arguments.index("--plot") + 1
    bare = after == len(arguments) or arguments[after].startswith("-")
    return [*arguments[:after], usual, *arguments[after:]] if bare else arguments


def take_components(arguments: list[str], config: CertifyConfig) -> tuple[CertifyConfig, list[str]]:
    """`config` with the budget, noise and engine that are named; what else can be said depends on them."""
    for kind in ("budget", "noise", "engine"):
        name, arguments = take_option(arguments, f"--{kind}")
        if name is not None:
            config = config.changed(**{kind: name})
    for argument in arguments:
        key = argument.partition("=")[0].removeprefix("--no-").removeprefix("--").replace("-", "_")
        if argument.startswith("--") and (error := misplaced(key, config.components)) is not None:
            raise error
    return config, arguments


def say(text: str) -> None:
    """For the person at the terminal; standard output is kept for the answer."""
    print(text, file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def print_tables(tables: Sequence[Table], form: str, *, as_json: bool, words: Sequence[str] = ()) -> None:
    """In one of the forms of `report.table`; `words` stand before the tables, but not in JSON."""
    from smoothheads.report import table

    if as_json:
        print_json([table.to_json(each) for each in tables])
    else:
        print("\n\n".join([*words, *map(table.FORMS[form], tables)]))


def image_size(image: tuple[int, int, int]) -> str:
    channels, height, width = image
    return f"{height}x{width} pixels, {channels} channel{'s' if channels > 1 else ''}"
