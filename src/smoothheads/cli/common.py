"""The base of all commands: their class, parsing with tyro, readable help, and output."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import shutil
import sys
import textwrap
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeVar, Union, get_args, get_origin

import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from smoothheads.errors import ConfigError
from smoothheads.hub import is_address, local

if TYPE_CHECKING:
    from smoothheads.report.table import Table

T = TypeVar("T")
Logs = tyro.conf.Positional[tuple[Path, ...]]
OutFolder = Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")]
OutFile = Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")]
Form = Literal["text", "markdown", "latex", "csv"]
"""Forms in which tables are printed; `report.table` knows them."""

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
WORDS: Final = {str: "TEXT", int: "INT", float: "FLOAT", Path: "PATH"}
"""Placeholders by type."""

HELP = ConstructorRegistry()


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command: its fields are the options, its docstring is the help, and `run` does the work."""

    @classmethod
    def read(cls, arguments: list[str]) -> Self:
        """Returns the command with the options that the arguments give."""
        return parse(cls, arguments)

    def run(self) -> int | None:
        """Does the work and returns the exit code; None stands for 0."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class ResultCommand(Command):
    """A command that prints a result."""

    json: bool = False
    """Print the result as JSON."""


@HELP.struct_rule
def _readable_help(info: StructTypeInfo) -> StructConstructorSpec | None:
    """Gives every option a placeholder with a name, and no default where that is none.

    Tyro asks this rule for every dataclass and would write `{None}|STR` and `(default: None)`.
    """
    if not is_dataclass(info.type) or getattr(_busy, "rule", False):
        return None
    # Tyro itself says what it would do, while this rule stands aside.
    _busy.rule = True
    try:
        spec = ConstructorRegistry.get_struct_spec(info)
    finally:
        _busy.rule = False
    if not isinstance(spec, StructConstructorSpec):
        return None
    fields = map(_readable_field, spec.fields)
    # What the classes of all commands have comes last.
    return replace(spec, fields=tuple(sorted(fields, key=lambda each: each.name == "json")))


_busy = threading.local()


def _readable_field(field: StructFieldSpec) -> StructFieldSpec:
    kind, *metadata = get_args(field.type) if get_origin(field.type) is Annotated else (field.type,)

    def text() -> str | None:
        found = field.helptext() if callable(field.helptext) else field.helptext
        return found and " ".join(found.split())  # tyro keeps line breaks of docstrings

    def hint(default: str) -> str:
        # Nothing is said about a default that says nothing, or that the text names itself.
        silent = default in ("", "''", "None", "False") or "(default" in (text() or "")
        return "" if silent else f"(default: {default})"

    metavar = placeholder(kind, field.name.upper() if tyro.conf.Positional in metadata else None)
    settings = tyro.conf.arg(metavar=metavar, help_behavior_hint=hint)
    # The command's own settings come later, and so win.
    annotated: Any = Annotated[(kind, settings, *metadata)]
    return replace(field, type=annotated, helptext=text)


def placeholder(kind: Any, name: str | None = None) -> str | None:
    """Returns what stands for the value of an option, such as TEXT for `str | None`; None leaves it to tyro.

    Args:
        kind: The type of the value.
        name: Takes the place of the type's word, as LOGS for a positional list of logs, shown as LOG.
    """
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        parts = [placeholder(member, name) for member in get_args(kind) if member is not type(None)]
        return None if None in parts else "|".join(dict.fromkeys(filter(None, parts)))
    if get_origin(kind) is Literal:
        values = [str(value) for value in get_args(kind) if value is not None]
        return values[0] if len(values) == 1 else f"{{{','.join(values)}}}"
    if get_origin(kind) is tuple and get_args(kind)[1:] == (Ellipsis,):
        item = name.removesuffix("S") if name else placeholder(get_args(kind)[0])
        return f"[{item}...]" if item else None
    if get_origin(kind) is dict:
        return "[NAME VALUE...]"
    return name if name and kind in WORDS else WORDS.get(kind)


def parse(
    kind: type[T],
    arguments: list[str],
    *,
    default: T | None = None,
    prog: str | None = None,
    description: str | None = None,
) -> T:
    """Returns a dataclass from the command line; without arguments shows the help where some are needed.

    Args:
        kind: The dataclass; its docstring is the description.
        arguments: The words after the command.
        default: The settings to start from. If omitted, those of the class.
        prog: The command in the usage line. If omitted, the name of the class.
        description: What the command does. If omitted, the docstring of the class.
    """
    fields: Sequence[dataclasses.Field[Any]] = dataclasses.fields(kind)  # type: ignore[arg-type]
    # A command with arguments that must be given shows its help where none is.
    needed = [each for each in fields if each.default is each.default_factory is dataclasses.MISSING]
    if needed and not arguments and default is None:
        arguments = ["--help"]
    settings = (tyro.conf.AvoidSubcommands, tyro.conf.FlagCreatePairsOff, tyro.conf.SuppressFixed)
    more: dict[str, Any] = {} if default is None else {"default": default}
    value: T
    value, unknown = tyro.cli(
        kind,
        args=arguments,
        prog=f"smoothheads {prog or kind.__name__.removesuffix('Command').lower()}",
        description=_wrapped(description or inspect.getdoc(kind) or ""),
        config=settings,
        registry=HELP,
        return_unknown_args=True,
        **more,
    )
    # Tyro would print a box; our message is one sentence with the option that was probably meant.
    if unknown:
        parser = tyro.extras.get_parser(kind, config=settings, registry=HELP, **more)
        raise unknown_option(unknown[0], parser._option_string_actions)
    return value


def unknown_option(argument: str, options: Iterable[str]) -> ConfigError:
    """Returns the error for an argument that no option takes; it names the option that was probably meant."""
    option = argument.partition("=")[0]
    if not option.startswith("-"):
        return ConfigError(f"Leave out {argument!r}: no argument of this command takes it.")
    # A word of another script, such as --skip, is more likely meant than one that is spelled alike.
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


def first_argument(arguments: list[str], what: str, remedy: str) -> tuple[str, list[str]]:
    """Returns the leading word, which decides the defaults of the other arguments, and these.

    The word is empty if only help is asked for.

    Args:
        arguments: The words after the command.
        what: What the word names, as in "a checkpoint", for the error.
        remedy: What to do if it is missing.
    """
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], arguments[1:]
    if {"-h", "--help"} & set(arguments):
        return "", arguments
    found = f"the option {arguments[0]!r}" if arguments else "nothing"
    raise ConfigError(f"The first argument must be {what}, not {found}: {remedy}.")


def local_folder(name: str, *, has_out: bool) -> Path:
    """Returns the folder beside which a command writes unless --out says where else.

    Args:
        name: A folder, or `hf://user/name[@revision]`, which stands for a local copy.
        has_out: Whether --out is given. A copy from the Hub needs it.
    """
    if is_address(name) and not has_out:
        raise ConfigError(f"Add --out: the copy of {name} is no place for results.")
    return local(name)


def say(text: str) -> None:
    """Prints for the person at the terminal; standard output is for results."""
    print(text, file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Prints a result for programs."""
    print(json.dumps(value, indent=2))


def print_tables(tables: Sequence[Table], form: Form, *, as_json: bool, words: Sequence[str] = ()) -> None:
    """Prints tables.

    Args:
        tables: The tables.
        form: How they are printed.
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
