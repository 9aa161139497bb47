"""The command line: finds the subcommand in the table, lets its module parse and run.

A command's module has `add_arguments(parser)` and `run(arguments) -> int`, the exit status:
0, 1 when the broker or the environment refused, 2 for wrong usage. It may have `epilog()`,
which its `--help` ends with. Only the module that is asked for is imported, since most
commands need little and `start` should start quickly.

Without a command the help is shown; for an unknown command or flag the most similar one is
suggested.

A command that is interrupted, or whose reader goes away (`odradek dump-log ... | head`), ends
silently, with the exit status that shells expect. A write error, such as a full disk, is reported
in one sentence.
"""

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from importlib import import_module
from io import TextIOWrapper
from typing import Final, NamedTuple, NoReturn, TextIO, cast

from odradek import __version__
from odradek.cli.arguments import CommandParser, Help
from odradek.suggestions import did_you_mean

WRONG_USAGE: Final = 2
# How Python runs this command: with -P, else it would take modules from wherever it is called.
COMMAND: Final = ("-P", "-m", "odradek")
# Before a command: its wrong usage has the status that it has of Kafka's tools.
AS_KAFKA: Final = "--as-kafka"
KAFKA_WRONG_USAGE: Final = 1
INTERRUPTED: Final = 128 + 2
READER_GONE: Final = 128 + 13


class Command(NamedTuple):
    """A row of the table: the name, the module, and the line in `odradek --help`."""

    name: str
    module: str
    help: str


# What users of other tools type first.
OF_OTHERS: Final = {
    **dict.fromkeys(("create", "create-topic"), "topics --create"),
    **dict.fromkeys(("delete", "delete-topic"), "topics --delete"),
    **dict.fromkeys(("describe", "list", "ls"), "topics"),
    **dict.fromkeys(("lag", "offsets"), "groups"),
    **dict.fromkeys(("publish", "send", "write"), "produce"),
    **dict.fromkeys(("cat", "read"), "consume"),
    **dict.fromkeys(("follow", "tail", "watch"), "consume --follow"),
    **dict.fromkeys(("broker", "run", "serve", "server"), "start"),
    **dict.fromkeys(("restart", "status", "stop"), "cluster {}"),
    "version": "--version",
}

EPILOG: Final = """\
examples:
  odradek start --port 9092 --data-dir data
  odradek topics --bootstrap-server localhost:9092 --create --topic orders --partitions 3
  odradek console-consumer --bootstrap-server localhost:9092 --topic orders --from-beginning
  odradek help start                 what a command takes
  odradek help settings retention    what the settings of that word mean

exit status:
  0  done
  1  a broker or the environment refused; the last line says why
  2  wrong usage
"""

COMMANDS: Final = (
    Command("start", "odradek.cli.start", "run a broker in the foreground"),
    Command("consume", "odradek.cli.everyday.consume", "print the records of topics, all or some"),
    Command("produce", "odradek.cli.everyday.produce", "send lines, JSON or files as records"),
    Command("groups", "odradek.cli.everyday.groups", "groups, and their lag in records and time"),
    Command(
        "schedules", "odradek.cli.everyday.schedules", "the records to be delivered later, and when"
    ),
    Command(
        "top", "odradek.cli.everyday.monitoring.top", "watch brokers, topics and groups at work"
    ),
    Command(
        "metrics", "odradek.cli.everyday.monitoring.metrics", "the metrics that a broker serves"
    ),
    Command("explain", "odradek.cli.everyday.explain", "why nothing comes, in words"),
    Command("topics", "odradek.cli.tools.topics", "list, describe, create, alter, delete topics"),
    Command("configs", "odradek.cli.tools.configs", "describe and change settings"),
    Command(
        "consumer-groups",
        "odradek.cli.tools.groups.consumer_groups",
        "list, describe, reset groups",
    ),
    Command(
        "share-groups",
        "odradek.cli.tools.groups.share_groups",
        "list, describe, reset share groups",
    ),
    Command(
        "console-producer",
        "odradek.cli.tools.records.console_producer",
        "send lines as records",
    ),
    Command("console-consumer", "odradek.cli.tools.records.console_consumer", "print records"),
    Command(
        "console-share-consumer",
        "odradek.cli.tools.records.console_share_consumer",
        "print what a share group is handed",
    ),
    Command("get-offsets", "odradek.cli.tools.get_offsets", "offsets of partitions, by time"),
    Command("delete-records", "odradek.cli.tools.delete_records", "delete records before offsets"),
    Command("transactions", "odradek.cli.tools.transactions", "look at transactions and end them"),
    Command("acls", "odradek.cli.tools.acls", "list, add and remove ACLs"),
    Command(
        "delegation-tokens",
        "odradek.cli.tools.delegation_tokens",
        "create, renew, expire, describe tokens",
    ),
    Command("log-dirs", "odradek.cli.tools.log_dirs", "the contents of brokers' log directories"),
    Command(
        "reassign-partitions",
        "odradek.cli.tools.replicas.reassign_partitions",
        "move partitions to other brokers",
    ),
    Command(
        "leader-election",
        "odradek.cli.tools.replicas.leader_election",
        "elect leaders of partitions",
    ),
    Command(
        "cluster", "odradek.cli.tools.cluster", "run a small cluster; a cluster's id and brokers"
    ),
    Command(
        "producer-perf-test",
        "odradek.cli.tools.records.producer_perf_test",
        "how fast records go in",
    ),
    Command(
        "consumer-perf-test",
        "odradek.cli.tools.records.consumer_perf_test",
        "how fast they come out",
    ),
    Command(
        "broker-api-versions",
        "odradek.cli.tools.broker_api_versions",
        "which APIs brokers speak in which versions",
    ),
    Command("kafka-bin", "odradek.cli.tools.kafka_bin", "write kafka-topics.sh and its like"),
    Command("export", "odradek.cli.export", "write a topic to a Parquet, CSV, JSON or Arrow file"),
    Command("pipeline", "odradek.cli.pipeline", "run a Spark pipeline over a topic"),
    Command("dump-log", "odradek.cli.data_directory.dump_log", "print the files of a partition"),
    Command(
        "fsck", "odradek.cli.data_directory.fsck", "check a data directory without changing it"
    ),
    Command(
        "leases", "odradek.cli.data_directory.leases", "which queries hold records from retention"
    ),
    Command(
        "import",
        "odradek.cli.data_directory.import_kafka",
        "take over an Apache Kafka data directory",
    ),
    Command("wheel", "odradek.cli.wheel.command", "show a live timing wheel in the terminal"),
    Command("completion", "odradek.cli.completion", "print a completion script for a shell"),
    Command("help", "odradek.cli.help", "the help of a command, or what settings mean"),
)

# Those that exist, or mean something else, under the names of Kafka's scripts alone.
SCRIPTS: Final = (
    Command("features", "odradek.cli.tools.scripts.features", "the features of a cluster"),
    Command("groups", "odradek.cli.tools.groups.all_groups", "list groups of every kind"),
    Command(
        "metadata-quorum",
        "odradek.cli.tools.scripts.metadata_quorum",
        "the brokers that keep the metadata",
    ),
    Command("run-class", "odradek.cli.tools.scripts.run_class", "run a tool by its Java class"),
    Command("server-start", "odradek.cli.tools.scripts.server_start", "run a broker"),
    Command("server-stop", "odradek.cli.tools.scripts.server_stop", "stop brokers of this machine"),
    Command("storage", "odradek.cli.tools.scripts.storage", "give log directories to a cluster"),
    Command(
        "verifiable-consumer",
        "odradek.cli.tools.verifiable.consumer",
        "read, and print every event as JSON",
    ),
    Command(
        "verifiable-producer",
        "odradek.cli.tools.verifiable.producer",
        "send numbers, and print every event as JSON",
    ),
)
_SCRIPT_NAMES: Final = {command.name for command in SCRIPTS}
OF_SCRIPTS: Final = (
    *(command for command in COMMANDS if command.name not in _SCRIPT_NAMES),
    *SCRIPTS,
)


def main(argv: Sequence[str] | None = None, **beside: object) -> int:
    """Runs a command; returns its exit status. Wrong usage exits here with 2. `beside` are further
    arguments.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    is_kafkas = words[:1] == [AS_KAFKA]
    status = 0
    open_closed_streams()
    show_all_characters()
    try:
        try:
            if is_kafkas:
                status = run_command(words[1:], OF_SCRIPTS)
                status = KAFKA_WRONG_USAGE if status == WRONG_USAGE else status
            else:
                status = run_command(words, COMMANDS, **beside)
        finally:
            gc.enable()
            print(end="", flush=True)
    except SystemExit as ended:
        if is_kafkas and ended.code == WRONG_USAGE:
            return KAFKA_WRONG_USAGE
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        discard_output()
        return READER_GONE
    except UnicodeEncodeError as error:
        from odradek.cli.terminal import tell
        from odradek.errors import text_of

        tell(text_of(error))
        return 1
    except OSError as error:
        discard_output()
        if status == 0:  # else the command has said so
            # Imported here: most commands need less, and `start` should start quickly.
            from odradek.cli.terminal import tell
            from odradek.errors import text_of

            tell(text_of(error))
        return 1
    return status


def open_closed_streams() -> None:
    """Opens closed standard streams: a connection must not get their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Left open, as Python's own are: its end would warn of one that nobody has closed.
            opened = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(opened, mode, closefd=False))


def show_all_characters() -> None:
    """Writes characters that the terminal's encoding lacks as Python would: a group's name may have
    any."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Discards further output: Python flushes its streams once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_command(
    words: Sequence[str], commands: Sequence[Command] = COMMANDS, **beside: object
) -> int:
    """Parses `words` and runs the one of `commands` that they name; returns its exit status."""
    if not __debug__:
        # Assertions are part of how the broker protects its data; they stay on.
        print("odradek: python -O is not supported: it switches assertions off", file=sys.stderr)
        return 1
    # Imported objects stay: the collector would walk through all of them again and again.
    gc.disable()
    parser = build_parser(words, commands)
    if not words:
        parser.print_help()
        return 0
    check_command(parser, words[0], commands)
    arguments, unknown = parser.parse_known_args(in_its_own_way(parser, words))
    if unknown:
        refuse_arguments(arguments.parser, unknown)
    vars(arguments).update(beside)
    module = import_module(arguments.module)
    gc.enable()
    with harmless_output():
        status: int = module.run(arguments)
    return status


def harmless_output() -> AbstractContextManager[object]:
    """A block in which no name of a client moves the cursor of the terminal."""
    if not sys.stdout.isatty():
        return nullcontext()
    from odradek.cli.terminal import PrintableOutput

    return redirect_stdout(cast(TextIO, PrintableOutput(sys.stdout)))


def check_command(parser: argparse.ArgumentParser, word: str, commands: Sequence[Command]) -> None:
    """Ends with wrong usage if `word` is not a command, and suggests one."""
    known = [command.name for command in commands]
    if word.startswith("-"):
        if word not in parser._option_string_actions:
            refuse_arguments(parser, [word])
    elif word not in known:
        of_others = OF_OTHERS.get(word, "").format(word) if commands is COMMANDS else ""
        meant = f" (did you mean {of_others}?)" if of_others else did_you_mean(word, known)
        parser.error(f"there is no command {word!r}{meant}; `odradek --help` lists all")


def in_its_own_way(parser: argparse.ArgumentParser, words: Sequence[str]) -> Sequence[str]:
    """Returns the words as the command reads them: Kafka's tools have rules of their own."""
    command = command_parser(parser, words)
    read_words = command.get_default("read_words")
    return words if read_words is None else [words[0], *read_words(command, words[1:])]


def command_parser(
    parser: argparse.ArgumentParser, words: Sequence[str]
) -> argparse.ArgumentParser:
    """Returns the parser of the command that `words` name; without one the main parser."""
    assert parser._subparsers is not None, "there are commands"
    for action in parser._subparsers._group_actions:
        assert isinstance(action.choices, dict), "a command's parser is found by its name"
        for word in words:
            if word in action.choices:
                found: argparse.ArgumentParser = action.choices[word]
                return found
    return parser


def refuse_arguments(parser: argparse.ArgumentParser, unknown: Sequence[str]) -> NoReturn:
    """Ends with wrong usage, and suggests the flag that was probably meant."""
    flags = [flag for flag in parser._option_string_actions if flag.startswith("--")]
    mistyped = next((word for word in unknown if word.startswith("-")), "")
    meant = did_you_mean(mistyped.partition("=")[0], flags)
    typed = " ".join(word for word in unknown if word != "--")  # which we may have put there
    parser.error(f"unrecognized arguments: {typed}{meant}")


def build_parser(
    words: Sequence[str], commands: Sequence[Command] = COMMANDS
) -> argparse.ArgumentParser:
    """Builds the parser; only the command that `words` name is complete."""
    parser = CommandParser(
        prog="odradek",
        description="A broker that speaks Kafka's protocol, and its tools.",
        epilog=EPILOG,
        formatter_class=Help,
    )
    parser.add_argument("--version", action="version", version=f"odradek {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    named = next((word for word in words if not word.startswith("-")), None)
    # A parser for each of the others would cost a start 3 ms.
    asked = [command for command in commands if words[:1] == [command.name]]
    for command in asked or commands:
        subparser = subparsers.add_parser(
            command.name,
            help=command.help,
            description=command.help[0].upper() + command.help[1:] + ".",
            formatter_class=Help,
            allow_abbrev=False,
        )
        is_script = commands is OF_SCRIPTS
        subparser.set_defaults(module=command.module, parser=subparser, is_script=is_script)
        if command.name == named:
            module = import_module(command.module)
            module.add_arguments(subparser)
            if not {"-h", "--help"}.isdisjoint(words) and hasattr(module, "epilog"):
                subparser.epilog = module.epilog()
    return parser
