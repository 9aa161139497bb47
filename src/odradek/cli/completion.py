"""`odradek completion`: prints a script that completes commands, flags and choices in a shell.

The script is made from the parsers themselves and is complete: Odradek does not run when the user
presses Tab.
"""

import argparse
import shlex
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Final, NamedTuple

from odradek.cli.main import COMMANDS


class Flag(NamedTuple):
    """One flag, such as `--format`: its meaning, and its values when there are few."""

    name: str
    text: str
    takes_value: bool
    choices: tuple[str, ...]


class Completed(NamedTuple):
    """The completions of one command: its own words, then flags; file names anywhere."""

    name: str
    text: str
    words: tuple[str, ...]
    flags: tuple[Flag, ...]


HEADER: Final = "# Completion of odradek for {shell}. Written by `odradek completion {shell}`."
INSTALL: Final = """\
to have it in every new shell:
  bash   odradek completion bash > ~/.local/share/bash-completion/completions/odradek
  zsh    odradek completion zsh > DIR/_odradek    with DIR one of the folders in $fpath
to try it in this one:
  bash   source <(odradek completion bash)
  zsh    source <(odradek completion zsh)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Defines the arguments of `odradek completion`."""
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="which shell the script is for")


def epilog() -> str:
    """The end of the `--help` text: where to put the script."""
    return INSTALL


def run(arguments: argparse.Namespace) -> int:
    """Prints the script; returns the exit status."""
    print(SCRIPTS[arguments.shell](list(completed_commands())), end="")
    return 0


def completed_commands() -> Iterator[Completed]:
    """Every command with its parser's flags and values."""
    for command in COMMANDS:
        parser = argparse.ArgumentParser(prog=command.name)
        import_module(command.module).add_arguments(parser)
        words: list[str] = []
        flags: dict[str, Flag] = {}
        for action in actions_of(parser):
            choices = tuple(map(str, action.choices or _named_by(action.metavar)))
            if not action.option_strings:
                words += choices
            for name in action.option_strings:
                if name.startswith("--") and action.help is not argparse.SUPPRESS:
                    text = (action.help or "").partition("; ")[0].partition(" (default")[0]
                    flags[name] = Flag(name, text, action.nargs != 0, choices)
        yield Completed(command.name, command.help, tuple(words), tuple(flags.values()))


def _named_by(metavar: object) -> Sequence[str]:
    """Returns the values `{preferred,unclean}` that the help of a flag names, where the parser does
    not check them.
    """
    if metavar == "COMMAND":
        return [command.name for command in COMMANDS]
    text = str(metavar)
    return text[1:-1].split(",") if text.startswith("{") else ()


def actions_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The parser's arguments, and those of the actions that it has (`transactions list`)."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from actions_of(subparser)


def bash(commands: list[Completed]) -> str:
    """The script for bash: file names where nothing else fits."""
    names = " ".join([*(command.name for command in commands), "--help", "--version"])
    cases = []
    for command in commands:
        words = " ".join([*command.words, *(flag.name for flag in command.flags)])
        chosen = [flag for flag in command.flags if flag.choices]
        free = [flag.name for flag in command.flags if flag.takes_value and not flag.choices]
        cases.append(f"        {command.name})")
        cases.append("            case $before in")
        if free:
            cases.append(f"                {'|'.join(free)}) ;;")
        cases += [
            f"                {flag.name}) words={shlex.quote(' '.join(flag.choices))} ;;"
            for flag in chosen
        ]
        cases.append(f"                *) words={shlex.quote(words)} ;;")
        cases.append("            esac ;;")
    return "\n".join(
        [
            HEADER.format(shell="bash"),
            "_odradek() {",
            "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words=",
            "    if ((COMP_CWORD == 1)); then",
            f"        words='{names}'",
            "    else",
            "        case ${COMP_WORDS[1]} in",
            *(f"    {line}" for line in cases),
            "        esac",
            "    fi",
            '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
            "}",
            "complete -o default -F _odradek odradek",
            "",
        ]
    )


def zsh(commands: list[Completed]) -> str:
    """The script for zsh, which shows the meaning of each word."""
    cases = []
    for command in commands:
        cases.append(f"            {command.name})")
        cases.append("                case $words[CURRENT-1] in")
        free = [flag.name for flag in command.flags if flag.takes_value and not flag.choices]
        if free:
            cases.append(f"                    {'|'.join(free)}) _files; return ;;")
        cases += [
            f"                    {flag.name}) compadd -- {shlex.join(flag.choices)}; return ;;"
            for flag in command.flags
            if flag.choices
        ]
        cases.append("                esac")
        flags = " ".join(described(flag.name, flag.text) for flag in command.flags)
        cases.append(f"                flags=({flags})")
        if command.words:
            cases.append(f"                compadd -- {shlex.join(command.words)}")
        cases.append("                ;;")
    names = " ".join(described(command.name, command.text) for command in commands)
    return "\n".join(
        [
            "#compdef odradek",
            HEADER.format(shell="zsh"),
            "_odradek() {",
            "    local -a commands flags",
            "    if ((CURRENT == 2)); then",
            f"        commands=({names})",
            "        _describe -t commands command commands",
            "    else",
            "        case $words[2] in",
            *cases,
            "        esac",
            "        _describe -o -t flags flag flags",
            "        _files",
            "    fi",
            "}",
            "# Found in $fpath, this file is the function; sourced, it has to say whose it is.",
            "if [[ $funcstack[1] == _odradek ]]; then",
            '    _odradek "$@"',
            "else",
            "    compdef _odradek odradek",
            "fi",
            "",
        ]
    )


def described(name: str, text: str) -> str:
    """A word with its meaning, as zsh's `_describe` takes them."""
    return shlex.quote(f"{name}:{text}" if text else name)


SCRIPTS: Final = {"bash": bash, "zsh": zsh}
