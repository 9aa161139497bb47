"""The flags with which every tool finds its brokers, and how a tool runs.

`--bootstrap-server`, `--command-config FILE`, `--command-property K=V` (which wins over the file).
"""

import argparse
import asyncio
import json
import logging
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek import __version__
from odradek.cli.knocking import tell_if_nobody_answers
from odradek.cli.tools.client_properties import check_properties
from odradek.cli.tools.option_words import read_words, refuse_values
from odradek.client.addresses import parse_bootstrap_servers
from odradek.client.settings import ADMIN_SETTINGS
from odradek.config.definition import ConfigError, Setting, readable
from odradek.config.files.properties import load_properties
from odradek.config.files.providers import resolved
from odradek.expressions import (
    ExpressionError,
    ExpressionsUnavailable,
    Match,
    UnreadableExpression,
    java_pattern,
)

if TYPE_CHECKING:
    from odradek.client import Admin

# Kafka's tools' error for invalid addresses; there the reason is in a trace.
NO_ADMIN: Final = "Failed to create new KafkaAdminClient"

# The warning about a flag's old name; Kafka's tools have four texts.
IS_DEPRECATED: Final = (
    "Option {} is deprecated and will be removed in a future version. Use {} instead."
)
HAS_BEEN_DEPRECATED: Final = (
    "Option {} has been deprecated and will be removed in a future version. Use {} instead."
)
SOON: Final = "Warning: {} is deprecated. Use {} instead."
WARNING: Final = (
    "Warning: {} is deprecated and will be removed in a future version. Use {} instead."
)

# And of both names at once, the old one first.
CANNOT_BE_TOGETHER: Final = "Options --{} and --{} cannot be specified together."
CANNOT_BE_USED: Final = 'Option "[{}]" can\'t be used with option "[{}]"'

_HALF: Final = re.compile("[\ud800-\udfff]")


class _Gone(argparse.Action):
    """A flag that ends with wrong usage and names its replacement."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _namespace: argparse.Namespace,
        _values: object,
        option_string: str | None = None,
    ) -> None:
        """The flag was given."""
        parser.error(
            f"{option_string}: ZooKeeper is asked no longer: name brokers with --bootstrap-server "
            "HOST:PORT"
        )


class NoFile(ValueError):
    """A file of settings does not exist."""

    def __init__(self, path: str) -> None:
        """Says so."""
        super().__init__(f"{path}: No such file or directory")
        self.path = path


class NoAddress(ValueError):
    """The argument is not the address of a broker."""


class _OldFlag(NamedTuple):
    """A flag's old name beside its new one: the attributes of both values, and the warning."""

    dest: str
    new_dest: str
    deprecation: str
    together: str


def refuse_zookeeper(parser: argparse.ArgumentParser) -> None:
    """Adds `--zookeeper`, a flag of Kafka's old tools, which is refused in a sentence."""
    parser.add_argument("--zookeeper", nargs="?", action=_Gone, help=argparse.SUPPRESS)


def add_old_flag(
    parser: argparse.ArgumentParser,
    old: str,
    new: str,
    *,
    text: str = IS_DEPRECATED,
    together: str = CANNOT_BE_TOGETHER,
    action: str = "store",
    nargs: str | None = None,
    kind: Callable[[str], object] = str,
) -> None:
    """Adds the old name of a flag; `take_old_flags` gives its value to the new one."""
    dest = _dest(old)
    parser.add_argument(
        old, dest=dest, action=action, nargs=nargs, type=kind, help=argparse.SUPPRESS
    )
    flag = _OldFlag(dest, _dest(new), text.format(old, new), together.format(old[2:], new[2:]))
    parser.set_defaults(old_flags=[*(parser.get_default("old_flags") or ()), flag])


def take_old_flags(arguments: argparse.Namespace, *new: str) -> None:
    """Moves values given under old names to the new ones, for all flags or for some, and warns on
    standard output; ends with wrong usage where the new name was given too. Both in the words of
    Kafka's tool.
    """
    asked = [_dest(flag) for flag in new]
    given = [
        flag
        for flag in arguments.old_flags
        if is_given(arguments, flag.dest) and (not asked or flag.new_dest in asked)
    ]
    for flag in given:
        if is_given(arguments, flag.new_dest):
            arguments.parser.error(flag.together)
    for flag in given:
        print(flag.deprecation)
        setattr(arguments, flag.new_dest, getattr(arguments, flag.dest))


def _dest(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def add_connection(
    parser: argparse.ArgumentParser,
    *,
    server_flags: Sequence[str] = ("--bootstrap-server", "--broker-list"),
    controller_flags: Sequence[str] = (),
    config_flags: Sequence[str] = ("--command-config",),
    old_config_flag: str | None = None,
    old_property_flag: str | None = None,
    deprecation: str = IS_DEPRECATED,
    together: str = CANNOT_BE_TOGETHER,
    reads_options: bool = True,
) -> None:
    """Adds the flags, in the spellings of a tool; with `reads_options` the tool reads its words as
    most of Kafka's tools do.
    """
    if reads_options:
        parser.set_defaults(read_words=read_words)
    parser.add_argument("--version", action="version", version=f"odradek {__version__}")
    refuse_zookeeper(parser)
    parser.add_argument(
        *server_flags,
        dest="bootstrap_server",
        required=not reads_options and not controller_flags,
        metavar="HOST:PORT[,..]",
        help="brokers to begin with",
    )
    if controller_flags:
        parser.add_argument(
            *controller_flags,
            dest="bootstrap_controller",
            metavar="HOST:PORT[,..]",
            help="KRaft controllers to ask in place of brokers",
        )
    parser.add_argument(
        *config_flags, dest="command_config", metavar="FILE", help="a file of client settings"
    )
    parser.add_argument(
        "--command-property",
        action="append",
        default=[],
        metavar="K=V",
        help="a client setting; wins over the file",
    )
    old_flags = (
        (old_property_flag, "--command-property", "append"),
        (old_config_flag, "--command-config", "store"),
    )
    for old, new, action in old_flags:
        if old is not None:
            add_old_flag(parser, old, new, text=deprecation, together=together, action=action)


def add_format(parser: argparse.ArgumentParser, as_text: str = "as Kafka's tool prints it") -> None:
    """Adds `--format`; `as_text` describes what is printed without it."""
    parser.add_argument(
        "--format",
        dest="output",
        choices=("text", "json"),
        default="text",
        help=f"{as_text}, or as JSON (default: text)",
    )


def add_actions(parser: argparse.ArgumentParser, actions: Mapping[str, str | None]) -> None:
    """Adds the flags that select an action, with their help."""
    for name, text in actions.items():
        parser.add_argument(
            f"--{name}",
            dest="actions",
            action="append_const",
            const=name,
            default=[],
            help=text,
        )


def the_action(
    arguments: argparse.Namespace, actions: Sequence[str], *, last: str = ", ", end: str = ""
) -> str:
    """Returns the action that was given; ends with wrong usage unless it is exactly one, in Kafka's
    words.
    """
    given = list(dict.fromkeys(arguments.actions))
    if len(given) != 1:
        *flags, final = (f"--{name}" for name in actions)
        listed = f"{', '.join(flags)}{last}{final}{end}"
        arguments.parser.error(f"Command must include exactly one action: {listed}")
    action: str = given[0]
    return action


def require(arguments: argparse.Namespace, *options: str) -> None:
    """Ends with wrong usage unless all of these were given, in Kafka's words."""
    for option in options:
        if not is_given(arguments, option):
            arguments.parser.error(f'Missing required argument "[{option}]"')


def require_one(arguments: argparse.Namespace, options: Sequence[str]) -> None:
    """Ends with wrong usage unless exactly one of these was given, in Kafka's words."""
    if sum(is_given(arguments, option) for option in options) != 1:
        listed = ", ".join(f"[{option}]" for option in options)
        arguments.parser.error(f"Exactly one of the following arguments is required: {listed}")


def is_given(arguments: argparse.Namespace, option: str) -> bool:
    """Whether an option has another value than its default."""
    dest = option.replace("-", "_")
    return bool(getattr(arguments, dest) != arguments.parser.get_default(dest))


def refuse_together(arguments: argparse.Namespace, option: str, others: Sequence[str]) -> None:
    """Ends with wrong usage when one of `others` was given, in Kafka's words."""
    for other in others:
        if is_given(arguments, other):
            arguments.parser.error(CANNOT_BE_USED.format(other, option))


def check_whom_to_ask(arguments: argparse.Namespace, *, both: str, neither: str) -> None:
    """Ends with wrong usage, in the tool's words, unless either brokers or controllers are
    named."""
    named = (arguments.bootstrap_server, arguments.bootstrap_controller)
    if None not in named:
        arguments.parser.error(both)
    if named == (None, None):
        arguments.parser.error(neither)


def name_pattern(text: str) -> Match:
    """Compiles a regular expression for names.

    Raises:
        ValueError: it is malformed, in Kafka's words, or not supported here.
    """
    try:
        return java_pattern(text)
    except (UnreadableExpression, ExpressionsUnavailable) as error:
        raise ValueError(f"{text} cannot be matched here: {error}") from None
    except ExpressionError:
        raise ValueError(f"{text} is an invalid regex.") from None


def client_config(
    arguments: argparse.Namespace, rows: Mapping[str, Setting] = ADMIN_SETTINGS
) -> dict[str, object]:
    """Returns the settings that the flags name, as far as our client has them.

    Raises:
        NoFile: there is no such file.
        OSError: the file cannot be read.
        NoAddress: an address is malformed.
        ValueError: a flag has an illegal value.
    """
    refuse_values(arguments)
    given = given_properties(arguments)
    check_properties(given, rows)
    config: dict[str, object] = {name: value for name, value in given.items() if name in rows}
    flag = "bootstrap_controller"
    if not vars(arguments).get(flag):
        flag = "bootstrap_server"
    servers = getattr(arguments, flag)
    if servers:
        name = f"{flag.replace('_', '.')}s"
        config[name] = servers
        _check_addresses(name, servers)
        if rows is ADMIN_SETTINGS:  # others show the log of their clients
            tell_if_nobody_answers(servers, config.get("security.protocol"))
    return config


def given_properties(arguments: argparse.Namespace) -> dict[str, str]:
    """Returns the properties that the flags name, including those that our client does not have.

    A second call returns the same: a file may be a pipe, which can be read only once.

    Raises:
        NoFile: there is no such file.
        OSError: the file cannot be read.
        ConfigError: it is malformed, or a provider of settings does not know one.
    """
    given: dict[str, str] | None = vars(arguments).get("properties")
    if given is None:
        given = arguments.properties = _properties_of(arguments)
    return given


def _properties_of(arguments: argparse.Namespace) -> dict[str, str]:
    given = {} if arguments.command_config is None else read_properties(arguments.command_config)
    for pair in arguments.command_property:
        name, _, value = pair.partition("=")
        given[name.strip()] = value
    return resolved(given)


def read_properties(path: str) -> dict[str, str]:
    """The settings in a file.

    Raises:
        NoFile: there is none.
        OSError: it cannot be read.
        ConfigError: it is malformed.
    """
    try:
        found = load_properties(path)
    except FileNotFoundError:
        raise NoFile(path) from None
    for name, value in found.items():
        if _HALF.search(name + value):
            reason = "Half a character can neither be sent nor printed"
            raise ConfigError(name, "[hidden]", reason, f"{path}: {readable(name)}: {reason}")
    return found


def _check_addresses(name: str, text: str) -> None:
    try:
        for each in text.split(","):
            parse_bootstrap_servers(each, name)
    except ConfigError as error:
        raise NoAddress(str(error)) from None


def check_host_and_port(arguments: argparse.Namespace) -> None:
    """Ends with wrong usage unless all brokers are named as `host:port`, in the words of those
    tools of Kafka that check it themselves.
    """
    for each in arguments.bootstrap_server.split(","):
        host, _, port = each.rpartition(":")
        if not host or not port.isdecimal():
            arguments.parser.error("Please provide valid host:port like host1:9091,host2:9092")


@contextmanager
def silent_clients(of: str = "odradek.client") -> Iterator[None]:
    """Keeps the log of clients off the screen: the command itself reports what went wrong."""
    logger, handler = logging.getLogger(of), logging.NullHandler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def run_async(
    work: Callable[[], Awaitable[int]],
    on_error: Callable[[Exception], None],
    *,
    shows_log: bool = False,
) -> int:
    """Runs a tool; returns its exit status, or 1 when a broker, a setting or a file is at fault.

    With `shows_log` the log of its clients is on the screen: a tool that waits for records has no
    other way to say why none come.
    """
    from odradek.errors import BrokerError

    try:
        with nullcontext() if shows_log else silent_clients():
            return asyncio.run(_awaited(work()))
    except BrokenPipeError:
        # The reader has closed the pipe: no failure, and nothing to print.
        raise
    except (BrokerError, ConfigError, OSError, ValueError) as error:
        on_error(error)
        return 1


def check_socket_buffer(name: str, size: int | None) -> None:
    """Refuses a size that no socket can have; our client leaves all others to the system.

    Raises:
        ConfigError: the size is illegal.
    """
    if size is not None and size < -1:
        raise ConfigError(name, str(size), "Value must be at least -1")


async def reach_brokers(config: Mapping[str, object]) -> None:
    """Asks the brokers for the cluster, which fails if none answers; a consumer would wait for
    ever.

    Raises:
        KafkaError: none answers in time.
    """
    async with _admin_beside(config) as admin:
        await admin.describe_cluster()


async def topic_names(config: Mapping[str, object]) -> list[str]:
    """Returns the names of all topics, as a client with these settings finds them.

    Raises:
        KafkaError: none answers in time.
    """
    async with _admin_beside(config) as admin:
        return list(await admin.list_topics())


def _admin_beside(config: Mapping[str, object]) -> "Admin":
    from odradek.client import Admin

    return Admin(config={name: each for name, each in config.items() if name in ADMIN_SETTINGS})


async def _awaited(work: Awaitable[int]) -> int:
    return await work


def print_json(value: Any) -> None:
    """Prints one JSON value on one line."""
    json.dump(value, sys.stdout, separators=(",", ":"))
    print()
