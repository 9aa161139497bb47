"""The settings of clients: Kafka's names, defaults and bounds, in one table a client.

A value may be given under Kafka's name or, as a keyword, with underscores for its dots; as text or
as what it means. Settings that say what Python says better are not here: serializers are functions,
interceptors objects, and both are arguments of the client. `RETRY_BACKOFF_MS` and its like are for
shells that take no settings.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from odradek.config.definition import ConfigError, Setting, SettingType, Value, table

RETRY_BACKOFF_MS: Final = 100
RETRY_BACKOFF_MAX_MS: Final = 1_000
_INT32_MAX: Final = 0x7FFFFFFF

_BOOLEAN: Final = SettingType.BOOLEAN
_STRING: Final = SettingType.STRING
_INT: Final = SettingType.INT
_LONG: Final = SettingType.LONG
_LIST: Final = SettingType.LIST

_COMMON: Final = (
    Setting("bootstrap.servers", _LIST, (), "Brokers to begin with, as host:port,host:port."),
    Setting("client.id", _STRING, "", "What this client calls itself in logs and quotas."),
    Setting("client.rack", _STRING, "", "The rack of this client: its consumers read nearby."),
    Setting(
        "request.timeout.ms", _INT, 30_000, "How long a broker may take to answer.", at_least=0
    ),
    Setting(
        "socket.connection.setup.timeout.ms",
        _LONG,
        10_000,
        "How long a connection may take to come up at first.",
        at_least=0,
    ),
    Setting(
        "socket.connection.setup.timeout.max.ms",
        _LONG,
        30_000,
        "How long at most, after failures in a row.",
        at_least=0,
    ),
    Setting(
        "reconnect.backoff.ms",
        _LONG,
        50,
        "How long to leave a broker alone that could not be reached.",
        at_least=0,
    ),
    Setting("reconnect.backoff.max.ms", _LONG, 1_000, "The longest such pause.", at_least=0),
    Setting(
        "retry.backoff.ms",
        _LONG,
        RETRY_BACKOFF_MS,
        "The first pause before a request is repeated.",
        at_least=0,
    ),
    Setting(
        "retry.backoff.max.ms",
        _LONG,
        RETRY_BACKOFF_MAX_MS,
        "The longest pause before a request is repeated.",
        at_least=0,
    ),
    Setting(
        "metadata.max.age.ms",
        _LONG,
        300_000,
        "After how long metadata is asked for again though nothing has failed.",
        at_least=0,
    ),
    Setting(
        "connections.max.idle.ms", _LONG, 540_000, "After how long an idle connection is closed."
    ),
)
_API_TIMEOUT: Final = Setting(
    "default.api.timeout.ms",
    _INT,
    60_000,
    "How long a call may take with all its retries.",
    at_least=0,
)

ADMIN_SETTINGS: Final = table(
    [
        *_COMMON,
        Setting(
            "bootstrap.controllers",
            _LIST,
            (),
            "KRaft controllers to ask, as host:port,host:port, in place of bootstrap.servers.",
        ),
        _API_TIMEOUT,
        Setting("retries", _INT, _INT32_MAX, "How often a call is repeated at most.", at_least=0),
    ]
)

PRODUCER_SETTINGS: Final = table(
    [
        *_COMMON,
        Setting(
            "acks",
            _STRING,
            "all",
            "Who must have a batch before it is acknowledged: all in sync, the leader, or nobody.",
            choices=("all", "-1", "0", "1"),
        ),
        Setting("batch.size", _INT, 16_384, "How large a partition's batches become.", at_least=0),
        Setting("buffer.memory", _LONG, 33_554_432, "How much may wait to be sent.", at_least=0),
        Setting(
            "compression.type",
            _STRING,
            "none",
            "The codec of batches.",
            choices=("none", "gzip", "snappy", "lz4", "zstd"),
        ),
        Setting(
            "delivery.timeout.ms",
            _INT,
            120_000,
            "How long after `send` a record is given up.",
            at_least=0,
        ),
        Setting(
            "enable.idempotence",
            _BOOLEAN,
            True,
            "Numbers the batches, so that a repeated one is not appended twice.",
        ),
        Setting("linger.ms", _LONG, 5, "How long a batch waits for more records.", at_least=0),
        Setting(
            "max.block.ms",
            _LONG,
            60_000,
            "How long `send` waits for memory or metadata, and how long transactions' calls take.",
            at_least=0,
        ),
        Setting(
            "max.in.flight.requests.per.connection",
            _INT,
            5,
            "How many requests to a broker, and batches of a partition, are under way at once.",
            at_least=1,
        ),
        Setting("max.request.size", _INT, 1_048_576, "The largest record and request.", at_least=0),
        Setting("retries", _INT, _INT32_MAX, "How often a batch is repeated at most.", at_least=0),
        Setting(
            "transaction.timeout.ms",
            _INT,
            60_000,
            "After how long the coordinator aborts a transaction.",
        ),
        Setting("transactional.id", _STRING, None, "Makes the producer a transactional one."),
    ]
)

CONSUMER_SETTINGS: Final = table(
    [
        *_COMMON,
        _API_TIMEOUT,
        Setting("group.id", _STRING, None, "The group that the consumer is a member of."),
        Setting(
            "group.instance.id",
            _STRING,
            None,
            "Makes the member a static one: it may restart without a rebalance.",
        ),
        Setting(
            "group.protocol",
            _STRING,
            "classic",
            "Who assigns: a member (classic), or the coordinator (consumer).",
            choices=("classic", "consumer"),
            ignore_case=True,
        ),
        Setting(
            "group.remote.assignor",
            _STRING,
            None,
            "Which of the coordinator's assignors, with the consumer protocol.",
        ),
        Setting(
            "partition.assignment.strategy",
            _LIST,
            ("range", "cooperative-sticky"),
            "The assignors that this member knows, the best first.",
            choices=("range", "roundrobin", "sticky", "cooperative-sticky"),
        ),
        Setting(
            "session.timeout.ms",
            _INT,
            45_000,
            "After how long without a heartbeat a member is out.",
        ),
        Setting("heartbeat.interval.ms", _INT, 3_000, "How often heartbeats are sent.", at_least=1),
        Setting(
            "max.poll.interval.ms",
            _INT,
            300_000,
            "How long may pass between two reads before the member leaves its group.",
            at_least=1,
        ),
        Setting("max.poll.records", _INT, 500, "How many records one read gives.", at_least=1),
        Setting("enable.auto.commit", _BOOLEAN, True, "Commits what was read, on its own."),
        Setting("auto.commit.interval.ms", _INT, 5_000, "How often it does so.", at_least=0),
        Setting(
            "auto.offset.reset",
            _STRING,
            "latest",
            "Where to begin without a committed offset, or outside the log.",
            pattern=r"(?i)latest|earliest|none|by_duration:P.+",
        ),
        Setting(
            "isolation.level",
            _STRING,
            "read_uncommitted",
            "Whether records of open and aborted transactions are read.",
            choices=("read_uncommitted", "read_committed"),
            ignore_case=True,
        ),
        Setting("fetch.min.bytes", _INT, 1, "What a broker waits for.", at_least=0),
        Setting("fetch.max.bytes", _INT, 52_428_800, "The most that a broker answers.", at_least=0),
        Setting("fetch.max.wait.ms", _INT, 500, "How long a broker waits.", at_least=0),
        Setting(
            "max.partition.fetch.bytes",
            _INT,
            1_048_576,
            "The most that comes of a partition at once.",
            at_least=0,
        ),
        Setting("check.crcs", _BOOLEAN, True, "Checks the checksums of batches."),
        Setting(
            "exclude.internal.topics",
            _BOOLEAN,
            True,
            "Whether a pattern passes over internal topics.",
        ),
        Setting(
            "allow.auto.create.topics",
            _BOOLEAN,
            True,
            "Whether subscribing creates a topic, where the broker lets it.",
        ),
    ]
)


class ClientSettings:
    """The values of one client's settings; `number`, `text`, `flag`, `items` read them by name."""

    def __init__(
        self,
        rows: Mapping[str, Setting],
        config: Mapping[str, object],
        keywords: Mapping[str, object],
    ) -> None:
        """Checks every value.

        Raises:
            ValueError: a name is unknown, or a value illegal.
        """
        by_keyword = {name.replace(".", "_"): name for name in rows}
        given = dict(config)
        for keyword, value in keywords.items():
            given[by_keyword.get(keyword, keyword)] = value
        self._values: dict[str, Value] = {name: row.default for name, row in rows.items()}
        for name, value in given.items():
            if name not in rows:
                raise _unknown(name, rows)
            self._values[name] = rows[name].parse(_as_text(value))
        self.given = frozenset(given)

    def override(self, name: str, value: Value) -> None:
        """Sets what follows from other settings; for the client that owns these, at its start."""
        self._values[name] = value

    def number(self, name: str) -> int:
        """The value of a numeric setting."""
        value = self._values[name]
        assert isinstance(value, int), f"{name} is {value!r}"
        return value

    def text(self, name: str) -> str:
        """The value of a textual setting; "" where it is unset."""
        value = self._values[name]
        return "" if value is None else str(value)

    def flag(self, name: str) -> bool:
        """The value of a setting that is true or false."""
        value = self._values[name]
        assert isinstance(value, bool), f"{name} is {value!r}"
        return value

    def items(self, name: str) -> tuple[str, ...]:
        """The elements of a list."""
        value = self._values[name]
        assert isinstance(value, tuple), f"{name} is {value!r}"
        return value


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def _unknown(name: str, rows: Mapping[str, Setting]) -> ConfigError:
    near = get_close_matches(name.replace("_", "."), rows, 1)
    hint = f"; is {near[0]} meant?" if near else ""
    return ConfigError(name, None, f"there is no such setting{hint}")
