"""`odradek cluster start`: plans and checks everything before it starts anything."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from odradek.cli.arguments import port as read_port
from odradek.cli.arguments import positive_number
from odradek.cli.before_start import check_first_directory
from odradek.cli.free_port import free_port
from odradek.cli.local_cluster.state import ClusterState, held, load
from odradek.cli.start import key_value, read_properties
from odradek.config import BrokerConfig
from odradek.config.files.providers import resolved
from odradek.errors import reason_of
from odradek.network.listener import SocketOptions, bind_socket
from odradek.server.errors import StartError
from odradek.server.in_process.arguments.settings import check_ports as check_each_has_a_port
from odradek.system_calls import core_count

DEFAULT_PORT: Final = 9092
_MOST_REPLICAS: Final = 3
# Each broker's own, or the whole cluster's: they follow from the flags.
_NOT_TO_BE_SET: Final = {
    "broker.id": "brokers are numbered from 1",
    "node.id": "brokers are numbered from 1",
    "listeners": "--port is the first broker's",
    "advertised.listeners": "--port is the first broker's",
    "log.dirs": "each broker has its own in --data-dir",
    "log.dir": "each broker has its own in --data-dir",
    "zookeeper.connect": "--zookeeper is its flag",
}


_ANY_PORT: Final = "PLAINTEXT://127.0.0.1:0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `odradek cluster start`."""
    parser.add_argument(
        "-n",
        "--brokers",
        type=positive_number,
        metavar="N",
        help="how many brokers (default: as many as the directory has, else one a core)",
    )
    parser.add_argument(
        "--port",
        type=read_port,
        metavar="N",
        help="the first broker listens on this port of 127.0.0.1, the others on those that follow; "
        f"0 takes free ones (default: as they were, else {DEFAULT_PORT})",
    )
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[,...][/CHROOT]",
        help="the ensemble to use (default: start one)",
    )
    parser.add_argument(
        "--fetch-zookeeper",
        action="store_true",
        help="if no ZooKeeper is installed, fetch one with Maven",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="settings of all brokers; read again at each restart"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        type=key_value,
        default=[],
        help="one setting of all brokers, any number of times; goes before --config",
    )


def start(arguments: argparse.Namespace) -> int:
    """Runs the cluster until SIGTERM, SIGINT or `odradek cluster stop`."""
    check_system()
    from odradek.cli.local_cluster.supervisor import Plan, Supervisor
    from odradek.cli.local_cluster.zookeeper import ZooKeeperCommand, find_zookeeper

    directory = Path(arguments.data_dir).absolute()
    known = load(directory)
    state = planned_state(arguments, known)
    count = len(state.ports)

    def flags() -> Sequence[str]:
        return broker_flags(arguments.config, arguments.set, count)

    def own_zookeeper() -> ZooKeeperCommand | None:
        check_ports(state.ports)
        return None if state.zookeeper else find_zookeeper(fetch=arguments.fetch_zookeeper)

    flags()
    own = None
    if known is None:  # a refusal leaves nothing behind
        check_first_directory(str(directory))
        own = own_zookeeper()
    with held(directory):
        if known is None:
            state.save(directory)
        else:  # its ports may be in use by itself, and that it runs be the better answer
            own = own_zookeeper()
        asyncio.run(Supervisor(Plan(directory, state, flags, own)).run())
    return 0


def check_system() -> None:
    """Refuses to start, before anything is fetched or made, where brokers could not form a cluster.

    Raises:
        StartError: this is no Linux, or the client library of ZooKeeper is missing.
    """
    if sys.platform != "linux":
        raise StartError(
            "A cluster of processes runs only on Linux: start its brokers by hand, each by "
            "`odradek start --zookeeper HOST:PORT`, or use odradek.Cluster in a program"
        )
    if find_spec("kazoo") is None:
        raise StartError(
            "Brokers on ZooKeeper need its client library kazoo: pip install 'odradek[zookeeper]'"
        )


def planned_state(arguments: argparse.Namespace, known: ClusterState | None) -> ClusterState:
    """Returns the brokers by their ports, and the ensemble: from the directory, and from flags. The
    brokers themselves find out if an ensemble is not the one of their records.

    Raises:
        StartError: the flags do not go with what the directory has.
    """
    ports = list(known.ports) if known is not None else []
    count = arguments.brokers or len(ports) or core_count()
    if count < len(ports):
        raise StartError(
            f"{arguments.data_dir} has a cluster of {len(ports)} brokers; to continue with "
            f"{count}, "
            "move the partitions away from the others first (odradek reassign-partitions)"
        )
    if arguments.port is not None:
        ports.clear()
    first = arguments.port if arguments.port is not None else (ports or [DEFAULT_PORT])[0]
    while len(ports) < count:
        ports.append(free_port() if first == 0 else (ports[-1] + 1 if ports else first))
    if ports[-1] > 65_535:
        raise StartError(f"There are no {count} ports from {first} on; give a smaller --port")
    return ClusterState(ports, arguments.zookeeper or (known.zookeeper if known else None))


def broker_settings(
    config: str | None, given: list[tuple[str, str]], brokers: int
) -> dict[str, str]:
    """The settings that all brokers start with: defaults for their number, the file, and `--set`.

    Raises:
        StartError: the file cannot be read, or a setting is illegal, or cannot be set here.
    """
    try:
        chosen = {**(read_properties(config) if config else {}), **dict(given)}
        for name, reason in _NOT_TO_BE_SET.items():
            if name in chosen:
                raise StartError(f"{name} cannot be set for all brokers: {reason}")
        settings = {**replication_defaults(brokers), **chosen}
        # For a look alone. Each broker resolves its own references: values are not resolved twice,
        # and do not appear in a command line that every user of this machine can read.
        look = {**resolved(settings), "broker.id": "1", "listeners": _ANY_PORT}
        BrokerConfig(look)
        check_each_has_a_port(look, brokers)
    except ValueError as error:
        raise StartError(str(error)) from error
    return settings


def broker_flags(config: str | None, given: list[tuple[str, str]], brokers: int) -> list[str]:
    """The flags that give a broker the settings of all. The broker reads the file itself: it may
    hold passwords, and every user of this machine can read the arguments of a command.

    Raises:
        StartError: see `broker_settings`.
    """
    settings = broker_settings(config, given, brokers)
    flags: list[str] = []
    if config is not None:
        flags += ["--config", os.path.abspath(config)]
        for name in read_properties(config).keys() - dict(given).keys():
            settings.pop(name, None)
    for name, value in settings.items():
        flags += ["--set", f"{name}={value}"]
    return flags


def replication_defaults(brokers: int) -> dict[str, str]:
    """Three replicas, two of them in sync before acks=all is answered; fewer where there are fewer
    brokers. Acknowledged records survive the loss of one broker.
    """
    replicas = str(min(brokers, _MOST_REPLICAS))
    in_sync = "2" if brokers >= _MOST_REPLICAS else "1"
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def check_ports(ports: list[int]) -> None:
    """Refuses a start whose ports are taken, before anything runs.

    Raises:
        StartError: one is.
    """
    for port in ports:
        try:
            bind_socket("127.0.0.1", port, SocketOptions()).close()
        except OSError as error:
            raise StartError(
                f"Cannot listen on 127.0.0.1:{port}: {reason_of(error)}; give another "
                "first port with --port"
            ) from error
