"""Checks that `odradek start` makes before it opens anything: a refusal leaves nothing behind.

Each check raises with a sentence that says what to do. They are here and not in the broker because
they check a user's settings: `odradek.Broker` in a test creates its own directories. They write
nothing. The broker itself checks what may change a moment later (a port, a lock).
"""

import os
from collections.abc import Iterator, Mapping
from typing import Final

from odradek.config import BrokerConfig
from odradek.config.protection import check_protection
from odradek.errors import reason_of
from odradek.metadata.sqlite import schema
from odradek.metadata.store import MetadataStoreError
from odradek.network import ListenerError, SocketOptions, format_host_port
from odradek.network.listener import bind_socket
from odradek.server.errors import StartError
from odradek.storage import checkpoints, names

_OWN_FILES: Final = frozenset(
    {
        names.LOCK_FILE,
        names.CLEAN_SHUTDOWN_FILE,
        names.RECOVERY_POINT_CHECKPOINT,
        names.LOG_START_OFFSET_CHECKPOINT,
        names.HIGH_WATERMARK_CHECKPOINT,
        names.CLEANER_CHECKPOINT,
        "lost+found",  # of a disk that is mounted there
    }
)
_NAMED_AT_MOST: Final = 3


def check_before_start(config: BrokerConfig, given: Mapping[str, str]) -> None:
    """Refuses a start that would fail, or that would not do what the user intended.

    Raises:
        StartError: with what to do about it.
        ConfigError: a setting promises something that is not served.
    """
    check_protection(config, given)
    check_first_directory(config.log_dirs[0])
    for directory in config.log_dirs:
        check_owner(directory, config.broker_id)
    if config["zookeeper.connect"]:
        check_zookeeper_client()
    else:
        check_metadata(config.log_dirs)
    check_addresses(config)


def check_first_directory(directory: str) -> None:
    """Refuses a first directory that cannot be made or written; others may be offline."""
    try:
        existing = os.path.abspath(directory)
    except FileNotFoundError as error:
        raise StartError("The current folder is gone; give --data-dir another") from error
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        raise StartError(f"{existing} is not a directory; give another one with --data-dir")
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        raise StartError(
            f"{existing} cannot be written; give this user the right to, or another --data-dir"
        )


def check_owner(directory: str, broker_id: int) -> None:
    """Refuses a directory that belongs to another broker, or to no broker at all."""
    found = _list(directory)
    if names.META_PROPERTIES in found:
        _check_broker_id(f"{directory}/{names.META_PROPERTIES}", broker_id)
        return
    strangers = sorted(name for name in found if not _is_own(name))
    if strangers and schema.FILE_NAME not in found:
        more = ", ..." if len(strangers) > _NAMED_AT_MOST else ""
        raise StartError(
            f"{directory} holds what is not a broker's ({', '.join(strangers[:_NAMED_AT_MOST])}"
            f"{more}); give --data-dir a directory that is new or empty"
        )


def _check_broker_id(path: str, broker_id: int) -> None:
    try:
        with open(path, "rb") as file:
            found = checkpoints.parse_meta_properties(file.read())
    except (OSError, checkpoints.CorruptCheckpoint):
        return  # the broker reports it, and may continue without this directory
    held = found.get("node.id", found.get("broker.id"))
    if held is not None and held != str(broker_id):
        raise StartError(
            f"{path} belongs to broker {held}, this is broker {broker_id}; start with "
            f"--broker-id {held}, or give another --data-dir"
        )


def check_zookeeper_client() -> None:
    """Refuses a start that would end at the first look for ZooKeeper."""
    from odradek.metadata.zookeeper.connection import require_kazoo

    try:
        require_kazoo()
    except MetadataStoreError as error:
        raise StartError(str(error)) from error


def check_metadata(directories: tuple[str, ...]) -> None:
    """Refuses metadata that cannot be written, and logs without any: a new store would know none of
    their topics."""
    path = f"{directories[0]}/{schema.FILE_NAME}"
    if os.path.lexists(path):
        if not os.access(path, os.R_OK | os.W_OK):
            raise StartError(f"{path} cannot be written; give this user the right to")
        return
    for directory in directories:
        if any(_partitions(directory)) or names.META_PROPERTIES in _list(directory):
            raise StartError(
                f"{directory} belongs to a broker, but its metadata {path} is missing; "
                "put a copy of it back, name the directories of log.dirs in their old order, or "
                "take logs of Apache Kafka over with `odradek import`"
            )


def check_addresses(config: BrokerConfig) -> None:
    """Refuses a start whose ports are taken, before there is a new directory."""
    for endpoint in config.listeners:
        name = f"{endpoint.listener_name}://{format_host_port(endpoint.host, endpoint.port)}"
        _check_address(name, endpoint.host, endpoint.port, "with --port or --listener")
    metrics = config["metrics.listener"]
    if metrics is not None:
        # Most brokers serve no metrics.
        from odradek.server.monitoring.monitoring import parse_address

        try:
            host, port = parse_address(metrics)
        except ListenerError as error:
            raise StartError(str(error)) from error
        _check_address(metrics, host, port, "in metrics.listener")


def _check_address(name: str, host: str, port: int, where: str) -> None:
    try:
        bind_socket(host, port, SocketOptions()).close()
    except OSError as error:
        raise StartError(
            f"Cannot listen on {name}: {reason_of(error)}; give another address {where}"
        ) from error


def _is_own(name: str) -> bool:
    return (
        name in _OWN_FILES
        or name.endswith(names.TEMPORARY_SUFFIX)
        or names.is_deleted_directory(name)
        or names.is_stray_directory(name)
        or names.parse_partition_directory(name) is not None
    )


def _partitions(directory: str) -> Iterator[str]:
    for name in _list(directory):
        if names.parse_partition_directory(name) and os.path.isdir(f"{directory}/{name}"):
            yield name


def _list(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []  # not there yet, or for the broker to take offline
