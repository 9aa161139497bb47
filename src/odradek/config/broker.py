"""The broker's settings: the joined table, and `BrokerConfig`, their values at work.

Four layers lie over one another: what was set for this broker at run time, what was set for all
brokers at run time, the properties the broker was started with, and the table's defaults. The first
layer that knows a setting decides. `dynamic` says what may be in the upper two. Unknown names are
no error in any of them, since versions share files; those in the properties are kept in `unknown`,
and the server logs them once.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from odradek.config.definition import ConfigError, ConfigSource, Value, table
from odradek.config.dynamic import check_names, check_values, usable
from odradek.config.layers import Layered, base_name, layers_of, synonyms_of
from odradek.config.listeners import check_listeners, effective_protocol_map, endpoints_of
from odradek.config.tables.rows import rows
from odradek.config.tables.security import SECURITY_SETTINGS
from odradek.config.topic import (
    BROKER_SYNONYMS,
    TOPIC_SETTINGS,
    LogConfig,
    Synonym,
)
from odradek.model import EndPoint

BROKER_SETTINGS: Final = table(
    [
        *rows("cluster"),
        *rows("network"),
        *rows("log"),
        *rows("coordinators"),
        *rows("share_groups"),
        *SECURITY_SETTINGS,
        *rows("identities"),
        *rows("without_effect"),
    ]
)


class BrokerConfig:
    """The values of a broker's settings.

    `config["log.segment.bytes"]` is the parsed value, of the type that the table names, or
    None when the setting is unset and has no default. Values that are read per request are
    attributes as well. A change at run time is applied in place and announced, so holders
    keep one object for the broker's life.

    Raises:
        ConfigError: a value is illegal, or two settings contradict each other.
    """

    message_max_bytes: int
    fetch_max_bytes: int
    auto_create_topics_enable: bool
    num_partitions: int
    default_replication_factor: int
    socket_request_max_bytes: int
    queued_max_request_bytes: int
    min_insync_replicas: int
    replica_lag_time_max_ms: int
    producer_id_expiration_ms: int
    connections_max_idle_ms: int
    max_connections: int
    max_connections_per_ip: int
    connections_per_ip_overrides: Mapping[str, int]

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self.originals: Final[Mapping[str, str]] = dict(properties or {})
        self.unknown: Final = sorted(name for name in self.originals if not _is_known(name))
        self._static: Final = _with_both_ids(self.originals)
        self._cluster: dict[str, str] = {}
        self._broker: dict[str, str] = {}
        self._listeners: list[Callable[[frozenset[str]], None]] = []
        self._checks: list[Callable[[BrokerConfig, frozenset[str]], None]] = []
        self._adopt(_parse(self._static))

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a setting, or `default` when no such setting is known."""
        return self._values.get(name, default)

    @property
    def broker_id(self) -> int:
        """`broker.id`, else `node.id`; -1 when neither is set."""
        broker_id: int = self._values["broker.id"]
        return broker_id

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The data directories: `log.dirs`, else `log.dir`."""
        directories: tuple[str, ...] | None = self._values["log.dirs"]
        fallback: tuple[str, ...] = self._values["log.dir"]
        return directories or fallback

    @property
    def listeners(self) -> list[EndPoint]:
        """`listeners`, parsed, without those of the controller."""
        return self._endpoints("listeners")

    @property
    def controller_listeners(self) -> list[EndPoint]:
        """The controller's listeners among `listeners`, which are not opened."""
        return endpoints_of("listeners", self._values, _protocols(self._values), controllers=True)

    @property
    def advertised_listeners(self) -> list[EndPoint]:
        """`advertised.listeners`, parsed, without those of the controller; `listeners` when
        unset."""
        unset = self._values["advertised.listeners"] is None
        return self._endpoints("listeners" if unset else "advertised.listeners")

    @property
    def inter_broker_listener_name(self) -> str:
        """The listener that brokers use among themselves."""
        name: str | None = self._values["inter.broker.listener.name"]
        protocol: str = self._values["security.inter.broker.protocol"]
        return name.upper() if name else protocol

    @property
    def control_plane_listener_name(self) -> str:
        """The listener between a controller and its brokers; the inter-broker listener, unless
        there is a separate one."""
        name: str | None = self._values["control.plane.listener.name"]
        return name or self.inter_broker_listener_name

    def for_listener(self, listener_name: str, name: str) -> Any:
        """The value of `listener.name.<listener>.<name>`; None if the listener has none."""
        return self._values.get(f"listener.name.{listener_name.lower()}.{name}")

    def of_listener(self, listener_name: str, name: str, mechanism: str | None = None) -> Any:
        """The value of a setting for a listener, and for a SASL mechanism on it: its own, else the
        one for all.
        """
        prefix = f"listener.name.{listener_name.lower()}."
        names = [prefix + name, name]
        if mechanism is not None:
            names.insert(0, f"{prefix}{mechanism.lower()}.{name}")
        return next((self._values[each] for each in names if each in self._values), None)

    def topic_defaults(self) -> Mapping[str, Value]:
        """The value of every topic setting for a topic that sets nothing itself; another
        mapping after every change at run time."""
        return self._topic_defaults

    @property
    def log_defaults(self) -> LogConfig:
        """The settings of a topic that sets nothing itself."""
        return self._log_defaults

    def log_config(self, stored: Mapping[str, str]) -> tuple[LogConfig, list[ConfigError]]:
        """The settings of a topic that has stored these; see `LogConfig.from_stored`. Topics that
        have stored none share theirs."""
        if not stored:
            return self._log_defaults, []
        return LogConfig.from_stored(stored, self._topic_defaults)

    def layers(self, name: str) -> list[Layered]:
        """The values of a broker setting by layer: the one in effect first, the default last."""
        return layers_of(name, BROKER_SETTINGS, self._sources())

    def topic_layers(self, name: str) -> list[Layered]:
        """The broker's values for a topic setting by layer, the one in effect first."""
        synonyms = BROKER_SYNONYMS.get(name)
        return self.layers(synonyms[0].name) if synonyms else []

    def topic_source(self, name: str) -> ConfigSource:
        """The first layer with any setting for a topic's, coarser ones included."""
        for settings, source in self._sources():
            if any(synonym.name in settings for synonym in BROKER_SYNONYMS.get(name, ())):
                return source
        return ConfigSource.DEFAULT_CONFIG

    def set_names(self) -> set[str]:
        """Every name that has been set in any layer, known or not."""
        return {*self._static, *self._cluster, *self._broker}

    def check_dynamic(self, settings: Mapping[str, str], *, per_broker: bool) -> None:
        """Refuses changes that `update_dynamic` could not apply.

        Raises:
            ConfigError: a name may not change in this scope, or a value is illegal.
        """
        check_names(BROKER_SETTINGS, settings, per_broker=per_broker)
        scope = {"broker": settings} if per_broker else {"cluster": settings}
        merged = self._merged(**scope)
        values = _parse(merged)
        check_values(self._values, values)
        changed = _changed(self._values, values)
        for check in self._checks:
            check(BrokerConfig(merged), changed)

    def check_by(self, check: "Callable[[BrokerConfig, frozenset[str]], None]") -> None:
        """Adds a check of changes at run time. `check` gets the settings as they would be and the
        names of those that change, and raises `ConfigError` to refuse.
        """
        self._checks.append(check)

    def update_dynamic(
        self, *, cluster: Mapping[str, str], broker: Mapping[str, str]
    ) -> list[ConfigError]:
        """Applies the settings of run time, for all brokers and for this one, and notifies
        listeners.

        Returns the faults of settings that are left out: they were checked when they were set, but
        maybe by another version, or beside another file. All for this broker are left out where
        they do not go together with the others; those for all brokers always do.
        """
        cluster, problems = usable(BROKER_SETTINGS, cluster, per_broker=False)
        broker, others = usable(BROKER_SETTINGS, broker, per_broker=True)
        problems += others
        try:
            values = _parse(self._merged(cluster, broker))
        except ConfigError as error:
            problems.append(error)
            broker = {}
            values = _parse(self._merged(cluster, broker))
        self._take(values, cluster, broker)
        return problems

    def _take(
        self, values: dict[str, Any], cluster: dict[str, str], broker: dict[str, str]
    ) -> None:
        changed = _changed(self._values, values)
        self._cluster, self._broker = cluster, broker
        self._adopt(values)
        if changed:
            for listener in tuple(self._listeners):
                listener(changed)

    def subscribe(self, listener: Callable[[frozenset[str]], None]) -> None:
        """Calls `listener` with the changed names after every change at run time."""
        self._listeners.append(listener)

    def _merged(
        self,
        cluster: Mapping[str, str] | None = None,
        broker: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        cluster = self._cluster if cluster is None else cluster
        broker = self._broker if broker is None else broker
        # As in Kafka: a setting at run time overrides the coarser ones of the file.
        coarser = {other for name in (*cluster, *broker) for other in synonyms_of(name)}
        static = {name: text for name, text in self._static.items() if name not in coarser}
        return {**static, **cluster, **broker}

    def _adopt(self, values: dict[str, Any]) -> None:
        self._values = values
        self.message_max_bytes = values["message.max.bytes"]
        self.fetch_max_bytes = values["fetch.max.bytes"]
        self.auto_create_topics_enable = values["auto.create.topics.enable"]
        self.num_partitions = values["num.partitions"]
        self.default_replication_factor = values["default.replication.factor"]
        self.socket_request_max_bytes = values["socket.request.max.bytes"]
        self.queued_max_request_bytes = values["queued.max.request.bytes"]
        self.min_insync_replicas = values["min.insync.replicas"]
        self.replica_lag_time_max_ms = values["replica.lag.time.max.ms"]
        self.producer_id_expiration_ms = values["producer.id.expiration.ms"]
        self.connections_max_idle_ms = values["connections.max.idle.ms"]
        self.max_connections = values["max.connections"]
        self.max_connections_per_ip = values["max.connections.per.ip"]
        self.connections_per_ip_overrides = _parse_overrides(values)
        self._topic_defaults = MappingProxyType(_topic_defaults(values, self._merged()))
        self._log_defaults = LogConfig(self._topic_defaults)

    def _endpoints(self, name: str) -> list[EndPoint]:
        return endpoints_of(name, self._values, _protocols(self._values))

    def _sources(self) -> tuple[tuple[Mapping[str, str], ConfigSource], ...]:
        return (
            (self._broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self._cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self._static, ConfigSource.STATIC_BROKER_CONFIG),
        )


def _is_known(name: str) -> bool:
    """Whether a property is a setting, or one for a single listener or provider."""
    is_of_one = base_name(name) is not None or name.startswith("config.providers.")
    return name in BROKER_SETTINGS or is_of_one


def _with_both_ids(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with the broker's number under both of its names; -1 is none."""
    both = dict(properties)
    for name, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if name in both and other not in both and both[name].strip() != "-1":
            both[other] = both[name]
    return both


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> frozenset[str]:
    names = before.keys() | after.keys()
    return frozenset(name for name in names if after.get(name) != before.get(name))


def _parse(texts: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {name: row.default for name, row in BROKER_SETTINGS.items()}
    for name, text in texts.items():
        row = BROKER_SETTINGS.get(base_name(name) or name)
        if row is not None:
            values[name] = row.parse(text)
    _check_together(values, texts)
    return values


def _protocols(values: Mapping[str, Any]) -> dict[str, str]:
    default = BROKER_SETTINGS["listener.security.protocol.map"].default
    return effective_protocol_map(values, str(default))


def _check_together(values: Mapping[str, Any], texts: Mapping[str, str]) -> None:
    check_listeners(values, texts, _protocols(values))
    _check_order(values, "group.min.session.timeout.ms", "group.max.session.timeout.ms")
    _check_order(values, "replica.fetch.wait.max.ms", "replica.lag.time.max.ms")
    _check_ids(values["broker.id"], values["node.id"])
    if values["remote.log.storage.system.enable"]:
        reason = "tiered storage is not available"
        raise ConfigError("remote.log.storage.system.enable", "true", reason)


def _check_order(values: Mapping[str, Any], smaller: str, larger: str) -> None:
    if values[smaller] > values[larger]:
        reason = f"it must not exceed {larger} ({values[larger]})"
        raise ConfigError(smaller, str(values[smaller]), reason)


def _check_ids(broker_id: int, node_id: int | None) -> None:
    if broker_id >= 0 and node_id is not None and broker_id != node_id:
        raise ConfigError("broker.id", str(broker_id), f"it contradicts node.id ({node_id})")


def _topic_defaults(values: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Value]:
    """The topic settings from the broker's: the first synonym that is set, else the first that has
    a default."""
    defaults: dict[str, Value] = {}
    for name, row in TOPIC_SETTINGS.items():
        synonyms = BROKER_SYNONYMS.get(name, ())
        given = [synonym for synonym in synonyms if synonym.name in texts]
        defaults[name] = _first_value(given or synonyms, values, row.default)
    return defaults


def _first_value(synonyms: Iterable[Synonym], values: Mapping[str, Any], default: Value) -> Value:
    for synonym in synonyms:
        value = values[synonym.name]
        if value is not None:
            return value if synonym.factor == 1 else _scaled(value, synonym.factor)
    return default


def _scaled(value: int, factor: int) -> int:
    """A duration in milliseconds; every negative one means "for ever", which is -1."""
    return value * factor if value >= 0 else -1


def _parse_overrides(values: Mapping[str, Any]) -> dict[str, int]:
    text: str = values["max.connections.per.ip.overrides"]
    parts = (part.strip().rpartition(":") for part in text.split(",") if part.strip())
    return {address: int(count) for address, _, count in parts}
