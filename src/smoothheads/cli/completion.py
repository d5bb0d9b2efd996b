"""smoothheads --print-completion bash|zsh|fish: commands, recipes and options for the shell's Tab key."""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress

from smoothheads.device import environment
from smoothheads.errors import one_of

_OPTION = re.compile(r"(?<![\w-])--[a-z][\w.-]*")

BASH = """\
_smoothheads() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands} --help --version"
  elif [[ "$current" == -* ]]; then
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
  elif [ "$COMP_CWORD" -eq 2 ]; then
    case "${{COMP_WORDS[1]}}" in train|info) words="{recipes}" ;; esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -o bashdefault -F _smoothheads smoothheads
"""
ZSH = "#compdef smoothheads\nautoload -U +X bashcompinit && bashcompinit\n"


def script(shell: str, commands: Mapping[str, str], modules: Mapping[str, str]) -> str:
    """A script for the shell to read; it takes some seconds to make, because every command is asked."""
    makers = {"bash": _bash, "zsh": lambda *asked: ZSH + _bash(*asked), "fish": _fish}
    if shell not in makers:
        raise one_of("shell", shell, makers)
    options = {name: _options(modules.get(name, name)) for name in commands}
    return makers[shell](commands, options)


def _bash(commands: Mapping[str, str], options: Mapping[str, list[str]]) -> str:
    cases = "\n".join(f'      {name}) words="{" ".join(found)}" ;;' for name, found in options.items())
    return BASH.format(commands=" ".join(commands), cases=cases, recipes=" ".join(_recipes()))


def _fish(commands: Mapping[str, str], options: Mapping[str, list[str]]) -> str:
    lines = [
        f"complete -c smoothheads -n __fish_use_subcommand -a {name} -d {_quoted(summary)}"
        for name, summary in commands.items()
    ]
    for name, found in options.items():
        used = f"-n '__fish_seen_subcommand_from {name}'"
        lines += [f"complete -c smoothheads {used} -l {option.removeprefix('--')}" for option in found]
    used = "-n '__fish_seen_subcommand_from train info'"
    lines.append(f"complete -c smoothheads {used} -a {_quoted(' '.join(_recipes()))}")
    return "\n".join(lines) + "\n"


def _options(module: str) -> list[str]:
    out = io.StringIO()
    command = importlib.import_module(f"smoothheads.cli.{module}")
    with environment({"COLUMNS": "400"}), redirect_stdout(out), suppress(SystemExit):  # no broken lines
        command.main(["--help-all" if hasattr(command, "COMMON") else "--help"])
    return sorted(set(_OPTION.findall(out.getvalue())))


def _recipes() -> list[str]:
    from smoothheads import cookbook

    return sorted(cookbook.names())


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
