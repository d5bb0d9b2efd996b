"""What all commands share: parsing with tyro, readable help, and output for people and programs."""

from __future__ import annotations

import difflib
import json
import shutil
import sys
import textwrap
import threading
from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from smoothheads.errors import ConfigError
from smoothheads.hub import is_address, local

if TYPE_CHECKING:
    from smoothheads.report.table import Table

T = TypeVar("T")

THEIR_WORDS: Final = {
    "N": ("n",),
    "N0": ("n0",),
    "batch": ("train.batch", "block"),
    "data-dir": ("root",),
    "data-root": ("root",),
    "epochs": ("train.epochs",),
    "gpu": ("train.device", "device"),
    "jobs": ("workers",),
    "lr": ("train.lr",),
    "max": ("first",),
    "noise-sd": ("sigma",),
    "outdir": ("out",),
    "outfile": ("out",),
    "output": ("out",),
    "processes": ("workers",),
    "rule": ("aggregation",),
    "skip": ("every",),
    "workers": ("jobs",),
}
"""Options of the field's scripts, and of people's habits, with ours that may mean the same."""
WIDTH: Final = 110  # of help on terminals that are wider

HELP = ConstructorRegistry()


@HELP.struct_rule
def _readable_help(info: StructTypeInfo) -> StructConstructorSpec | None:
    """Gives every option a placeholder with a name, and no default where that is none.

    Tyro asks this rule for every dataclass and would write `{None}|STR` and `(default: None)`.
    """
    if not is_dataclass(info.type) or getattr(_busy, "rule", False):
        return None
    _busy.rule = True  # ask tyro itself what it would do
    try:
        spec = ConstructorRegistry.get_struct_spec(info)
    finally:
        _busy.rule = False
    if not isinstance(spec, StructConstructorSpec):
        return None
    return replace(spec, fields=tuple(map(_readable_field, spec.fields)))


_busy = threading.local()


def _readable_field(field: StructFieldSpec) -> StructFieldSpec:
    kind, *metadata = get_args(field.type) if get_origin(field.type) is Annotated else (field.type,)

    def text() -> str | None:
        found = field.helptext() if callable(field.helptext) else field.helptext
        return found and " ".join(found.split())  # tyro keeps line breaks of docstrings

    def hint(default: str) -> str:
        return "" if "(default" in (text() or "") else _hint(default)  # a text that names it knows better

    settings = tyro.conf.arg(metavar=_placeholder(field.name, kind, metadata), help_behavior_hint=hint)
    # The command's own settings come later, and so win.
    annotated: Any = Annotated[(kind, settings, *metadata)]
    return replace(field, type=annotated, helptext=text)


def _placeholder(name: str, kind: Any, metadata: Sequence[Any]) -> str | None:
    """Returns TEXT for `str | None`, LOG... for a positional list of logs; None leaves it to tyro."""
    if get_origin(kind) in (Union, UnionType):
        members = [member for member in get_args(kind) if member is not type(None)]
        kind = members[0] if len(members) == 1 else None
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    words = {str: "TEXT", int: "INT", float: "FLOAT", Path: "PATH"}
    positional = tyro.conf.Positional in metadata
    if get_origin(kind) is tuple and get_args(kind)[1:] == (Ellipsis,):
        item = name.removesuffix("s").upper() if positional else words.get(get_args(kind)[0])
        return f"[{item}...]" if item else None
    return name.upper() if positional and kind in words else words.get(kind)


def _hint(default: str) -> str:
    return "" if default in ("", "None", "False") else f"(default: {default})"


def parse(
    default: T,
    arguments: list[str],
    *,
    prog: str,
    description: str,
    kind: type[T] | None = None,
) -> T:
    """Returns a dataclass from the command line, where options that are not given keep the default's value.

    Args:
        default: The settings to start from.
        arguments: The words after the command.
        prog: The command, for the usage line.
        description: What the command does, for `--help`.
        kind: The type to parse, if `default` is generic.
    """
    kind = kind or type(default)
    settings = (tyro.conf.AvoidSubcommands, tyro.conf.FlagCreatePairsOff)
    value, unknown = tyro.cli(
        kind,
        args=arguments,
        default=default,
        prog=f"smoothheads {prog}",
        description=_wrapped(description),
        config=settings,
        registry=HELP,
        return_unknown_args=True,
    )
    if unknown:
        parser = tyro.extras.get_parser(kind, default=default, config=settings, registry=HELP)
        raise unknown_option(unknown[0], parser._option_string_actions)
    return value


def unknown_option(argument: str, options: Iterable[str]) -> ConfigError:
    """Returns the error for an argument that no option takes; it names the option that was probably meant."""
    option = argument.partition("=")[0]
    if not option.startswith("-"):
        return ConfigError(f"Leave out {argument!r}: no argument of this command takes it.")
    ours = [f"--{word}" for word in THEIR_WORDS.get(option.removeprefix("--").replace("_", "-"), ())]
    if meant := [word for word in ours if word in options]:
        return ConfigError(f"Use {meant[0]} instead of {option}.")
    near = difflib.get_close_matches(option, options, n=1)
    return ConfigError(f"Unknown option {option}: " + (f"did you mean {near[0]}?" if near else "see --help."))


def _wrapped(text: str) -> str:
    """Returns the paragraphs at the width of the boxes; those that begin with a blank stay as they are."""
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns) - 2
    lines: list[str] = []
    for part in text.split("\n\n"):
        lines += [*(part.splitlines() if part[:1] == " " else textwrap.wrap(part, width)), "\u200b"]
    # Tyro joins lines that begin with a letter, so all are indented, and blank ones hold an invisible mark.
    return "\n".join(f" {line}" for line in lines[:-1])


def first_argument(
    arguments: list[str], what: str, remedy: str, *, writes: bool = False
) -> tuple[str | None, list[str]]:
    """Returns the leading word, which decides the defaults of the rest, and the other arguments.

    Args:
        arguments: The words after the command; `hf://user/name[@revision]` becomes the folder of its copy.
        what: What the word names, as in "a checkpoint", for the error.
        remedy: What to do if it is missing.
        writes: The command writes beside what it is given, so a copy from the Hub needs --out.

    The word is None if only help is asked for.
    """
    if arguments and not arguments[0].startswith("-"):
        name, *rest = arguments
        if not is_address(name):
            return name, rest
        if writes and not any(word.partition("=")[0] in ("-o", "--out") for word in rest):
            raise ConfigError(f"Add --out: the copy of {name} is no place for results.")
        return str(local(name)), rest
    if any(flag in arguments for flag in ("-h", "--help")):
        return None, arguments
    found = f"the option {arguments[0]!r}" if arguments else "nothing"
    raise ConfigError(f"The first argument must be {what}, not {found}: {remedy}.")


def take_option(arguments: list[str], option: str) -> tuple[str | None, list[str]]:
    """Returns the value of an option that has another meaning for one command, and the other arguments."""
    for position, argument in enumerate(arguments):
        if argument == option and position + 1 < len(arguments):
            return arguments[position + 1], arguments[:position] + arguments[position + 2 :]
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2], arguments[:position] + arguments[position + 1 :]
    return None, arguments


def named_plot(arguments: list[str], usual: str) -> list[str]:
    """Returns the arguments with the usual file after a bare --plot; tyro has no optional values."""
    if "--plot" not in arguments:
        return arguments
    after = arguments.index("--plot") + 1
    bare = after == len(arguments) or arguments[after].startswith("-")
    return [*arguments[:after], usual, *arguments[after:]] if bare else arguments


def say(text: str) -> None:
    """Prints for the person at the terminal; standard output is for results."""
    print(text, file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Prints a result for programs."""
    print(json.dumps(value, indent=2))


def print_tables(tables: Sequence[Table], form: str, *, as_json: bool, words: Sequence[str] = ()) -> None:
    """Prints tables.

    Args:
        tables: The tables.
        form: One of the forms of `report.table`: text, markdown or latex.
        as_json: Print JSON instead.
        words: Paragraphs before the tables; they are left out in JSON.
    """
    from smoothheads.report import table

    if as_json:
        print_json([table.to_json(each) for each in tables])
    else:
        print("\n\n".join([*words, *map(table.FORMS[form], tables)]))


def image_size(image: tuple[int, int, int]) -> str:
    """Returns the shape (channels, height, width) in words."""
    channels, height, width = image
    return f"{height}x{width} pixels, {channels} channel{'s' if channels > 1 else ''}"
