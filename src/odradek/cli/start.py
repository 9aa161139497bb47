"""`odradek start`: runs a broker as a process.

When it serves it prints one line on standard output, and nothing else there; logs go to standard
error. An error at the start is one line on standard error and exit status 1. Settings come from
Kafka's defaults, `--config`, `--set` and the flags; later ones win.
"""

import argparse
import asyncio
import gc
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Final, NoReturn

from odradek.cli.arguments import natural_number, port
from odradek.cli.terminal import tell
from odradek.clock import SystemClock
from odradek.config import BrokerConfig, ConfigError
from odradek.config.endpoints import PLAIN, named_listener
from odradek.config.files.properties import load_properties
from odradek.config.files.providers import resolved
from odradek.config.single_node import SINGLE_NODE_DEFAULTS
from odradek.config.suggestions import with_suggestion
from odradek.config.unserved import unserved
from odradek.errors import reason_of
from odradek.log_limit import OneLineFormatter
from odradek.server.errors import StartError

if TYPE_CHECKING:
    from odradek.security.scram_users import NewUser
    from odradek.server.broker import BrokerServer

DEFAULT_DATA_DIR: Final = "odradek-data"
DEFAULT_BROKER_ID: Final = "1"
LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
YOUNG_OBJECTS: Final = 20_000
UNCOMPILED: Final = "ODRADEK_PURE is set, or there was no C compiler when odradek was installed"

logger = logging.getLogger("odradek.start")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `odradek start`."""
    parser.set_defaults(beneath={}, default_data_dir=DEFAULT_DATA_DIR, cluster_id=None)
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help=f"the data directory; sets log.dirs (default: {DEFAULT_DATA_DIR})",
    )
    addresses = parser.add_mutually_exclusive_group()
    addresses.add_argument(
        "--listener",
        metavar="[NAME://]HOST:PORT",
        action="append",
        type=named_listener,
        default=[],
        help="where to listen, any number of times; the name is PLAINTEXT unless given; port 0 "
        "takes a free one; sets listeners (default: PLAINTEXT://:9092)",
    )
    addresses.add_argument(
        "--port",
        metavar="N",
        type=port,
        help="listen on this port of every address, short for --listener :N",
    )
    parser.add_argument(
        "--broker-id",
        metavar="N",
        type=natural_number,
        help="sets broker.id (default: 1; in a cluster a new one)",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="settings in the form of Kafka's server.properties"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        type=key_value,
        default=[],
        help="one setting, any number of times; goes before --config",
    )
    parser.add_argument(
        "--add-scram",
        metavar="MECHANISM=[name=NAME,password=PASSWORD]",
        action="append",
        type=scram_user,
        default=[],
        help="a user who can log in by SCRAM, unless there is one of that name; as kafka-storage",
    )
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[,...][/CHROOT]",
        help="the ZooKeeper ensemble of a cluster; sets zookeeper.connect",
    )


def key_value(text: str) -> tuple[str, str]:
    """Reads `KEY=VALUE`; the value may contain `=`."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def scram_user(text: str) -> "NewUser":
    """Reads `--add-scram`."""
    from odradek.security.scram_users import parse_new_user

    try:
        return parse_new_user(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(arguments: argparse.Namespace) -> int:
    """Runs the broker until SIGTERM or SIGINT."""
    started_ns = time.monotonic_ns()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter(LOG_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    gc.disable()  # until it serves, as for all imports of the command
    # Imported here: usage errors and --help need no broker.
    from odradek.cli.before_start import check_before_start
    from odradek.event_loop import new_event_loop
    from odradek.server.broker import BrokerServer

    try:
        given = collect_settings(arguments)
        config = configure(given)
        if config.broker_id < 0:
            raise StartError("A broker needs its own broker.id, a number of at least 0")
        check_before_start(config, given)
        if config.unknown:
            names = ", ".join(with_suggestion(name) for name in config.unknown)
            logger.warning("Unknown settings are ignored: %s", names)
        if idle := unserved(given):
            logger.warning("Settings without effect: %s", ", ".join(idle))
        if closed := [each.listener_name for each in config.controller_listeners]:
            logger.info("Not opened, since they serve no clients: %s", ", ".join(closed))
        if arguments.cluster_id:
            from odradek.cli.data_directory.formatting import give_new

            give_new(config, arguments.cluster_id)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            server = BrokerServer(
                config, SystemClock(), on_halt=end_process, scram_users=arguments.add_scram
            )
            runner.run(serve(server, started_ns))
    except (StartError, ConfigError) as error:
        tell(str(error))
        return 1
    return 0


def end_process(reason: str) -> NoReturn:
    """Ends a broker that cannot continue: one line, exit status 1, and nothing else.

    An orderly stop would mark files as clean though their content is unknown.
    """
    logging.shutdown()
    tell(reason)
    os._exit(1)


def collect_settings(arguments: argparse.Namespace) -> dict[str, str]:
    """Collects the settings of all sources in their order of precedence, over those `beneath` them.

    Raises:
        StartError: the file of `--config` cannot be read.
        ConfigError: it is malformed, or a value stands where it cannot be read.
    """
    settings: dict[str, str] = dict(arguments.beneath)
    if arguments.config is not None:
        settings.update(read_properties(arguments.config))
    settings.update(arguments.set)
    if arguments.data_dir is not None:
        settings["log.dirs"] = arguments.data_dir
    elif "log.dir" not in settings:
        settings.setdefault("log.dirs", arguments.default_data_dir)
    if arguments.listener:
        settings["listeners"] = ",".join(arguments.listener)
    if arguments.port is not None:
        settings["listeners"] = f"{PLAIN}:{arguments.port}"
    if arguments.zookeeper is not None:
        settings["zookeeper.connect"] = arguments.zookeeper
    if arguments.broker_id is not None:
        settings["broker.id"] = str(arguments.broker_id)
        settings.pop("node.id", None)
    elif not settings.keys() & {"broker.id", "node.id", "zookeeper.connect"}:
        settings["broker.id"] = DEFAULT_BROKER_ID
    return resolved(settings)


def read_properties(path: str) -> dict[str, str]:
    """The settings of a properties file.

    Raises:
        StartError: it cannot be read.
        ConfigError: it is malformed.
    """
    try:
        return load_properties(path)
    except OSError as error:
        raise StartError(f"Cannot read {path}: {reason_of(error)}") from error


def configure(given: dict[str, str]) -> BrokerConfig:
    """Returns the settings that the broker runs with: Kafka's defaults in a cluster, else those of
    a single node.

    Raises:
        ConfigError: a setting has an illegal value.
        StartError: the broker has no id.
    """
    config = BrokerConfig(given)
    if not config["zookeeper.connect"]:
        return BrokerConfig({**SINGLE_NODE_DEFAULTS, **given})
    if config.broker_id >= 0:
        return config
    from odradek.server.metadata_store import find_broker_id

    return BrokerConfig({**given, "broker.id": str(find_broker_id(config))})


async def serve(server: "BrokerServer", started_ns: int) -> None:
    """Starts, prints the ready line, waits for a signal, and stops in order.

    Raises:
        StartError: the broker cannot be started.
    """
    from odradek.event_loop import on_end_signals

    asked_to_stop = asyncio.Event()
    on_end_signals(asyncio.get_running_loop(), lambda _: asked_to_stop.set())
    await server.start()
    try:
        started_in_ms = (time.monotonic_ns() - started_ns) // 1_000_000
        metrics = f" metrics={server.metrics_url}" if server.metrics_url else ""
        print(
            f"odradek ready bootstrap={server.bootstrap_servers} broker={server.config.broker_id} "
            f"cluster={server.cluster_id} started_in_ms={started_in_ms}{metrics}",
            flush=True,
        )
        if not is_compiled():
            logger.warning("Running uncompiled, slower: %s", UNCOMPILED)
        ease_collector()
        await asked_to_stop.wait()
    finally:
        logger.info("Stopping")
        await server.stop()
        logger.info("Stopped")


def is_compiled() -> bool:
    """Whether the modules that decide about speed are compiled."""
    from odradek.timer import timing_wheel

    return not str(timing_wheel.__file__).endswith(".py")


def ease_collector() -> None:
    """Makes the cyclic garbage collector run less often, and skip every object that is alive now.

    Requests in flight are thousands of objects that their last reference frees. With the
    collector's default settings, scanning them took a third of the time of pipelined commits.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)


def epilog() -> str:
    """The end of the `--help` text."""
    return """\
examples:
  odradek start                                    data in ./odradek-data, port 9092
  odradek start --port 9093 --data-dir /var/lib/odradek
  odradek start --listener 192.168.1.7:9092        for one network; clients are told this address
  odradek start --config server.properties --set num.partitions=3
  odradek start --zookeeper zk1:2181,zk2:2181/kafka --broker-id 2        one broker of a cluster

`odradek help settings` explains the settings, `odradek help settings retention` those of that word.

Prints one line on standard output when it serves; the log goes to standard error. SIGTERM and
SIGINT end it in order.

exit status:
  0  ended in order
  1  could not start, or a disk failed: the last line on standard error says why
  2  wrong usage
"""
