"""The settings without effect, and why they have none.

They are accepted, described and can be changed like all others, since files and tools that name
them must keep working. The broker logs one warning at its start if any is set; the reference pages
have a column for it. A name that ends in `*` means all names that begin so.
"""

from collections.abc import Iterable
from typing import Final

_NOT_SERVED: Final = "not served yet"
_NO_MEANING: Final = "has no meaning here"

_TABLE: Final = (
    (
        _NOT_SERVED,
        "tokens that brokers obtain with an assertion",
        "sasl.oauthbearer.assertion.*",
    ),
    (_NOT_SERVED, "Kerberos", "sasl.kerberos.*"),
    (
        _NO_MEANING,
        "it concerns the libraries of the JVM",
        "ssl.provider ssl.protocol ssl.keymanager.algorithm ssl.trustmanager.algorithm "
        "ssl.secure.random.implementation zookeeper.clientCnxnSocket",
    ),
    (
        _NO_MEANING,
        "only Kafka's own classes can be named",
        "principal.builder.class ssl.engine.factory.class sasl.server.callback.handler.class "
        "sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.jwt.retriever.class "
        "sasl.login.callback.handler.class sasl.login.class sasl.client.callback.handler.class",
    ),
    (
        _NO_MEANING,
        "as in Kafka, only a listener's and mechanism's own line counts: "
        "listener.name.NAME.MECHANISM.sasl.jaas.config",
        "sasl.jaas.config",
    ),
    (
        _NOT_SERVED,
        "tiered storage",
        "remote.* local.retention.bytes local.retention.ms log.local.retention.bytes "
        "log.local.retention.ms follower.fetch.last.tiered.offset.enable",
    ),
    (_NOT_SERVED, "streams groups", "streams.* group.streams.*"),
    (_NOT_SERVED, "quotas by a plug-in", "client.quota.callback.class"),
    (
        _NOT_SERVED,
        "every log directory takes new replicas",
        "cordoned.log.dirs",
    ),
    (_NOT_SERVED, "two-phase commit of other systems", "transaction.two.phase.commit.enable"),
    (
        _NOT_SERVED,
        "revocation of ZooKeeper's certificates",
        "zookeeper.ssl.crl.enable zookeeper.ssl.ocsp.enable",
    ),
    (
        _NO_MEANING,
        "Kafka's brokers without ZooKeeper need it",
        "broker.heartbeat.interval.ms broker.session.timeout.ms",
    ),
    (
        _NOT_SERVED,
        "sizes of buffers between brokers",
        "replica.socket.receive.buffer.bytes",
    ),
    (
        _NO_MEANING,
        "share groups have one assignor, `simple`",
        "group.share.assignors",
    ),
    (
        _NO_MEANING,
        "there is no Raft quorum",
        "sasl.mechanism.controller.protocol "
        "controller.quorum.* metadata.log.* metadata.max.* "
        "initial.broker.registration.timeout.ms early.start.listeners log.dir.failure.timeout.ms",
    ),
    (
        _NO_MEANING,
        "requests are handled on one event loop, without threads and queues of their own",
        "num.io.threads num.network.threads background.threads queued.max.requests "
        "group.coordinator.threads group.coordinator.background.threads "
        "group.coordinator.append.linger.ms group.coordinator.cached.buffer.max.bytes "
        "share.coordinator.threads share.coordinator.append.linger.ms "
        "share.coordinator.cached.buffer.max.bytes",
    ),
    (
        _NO_MEANING,
        "replicas move between directories in short steps on the event loop, at an even rate",
        "alter.log.dirs.replication.quota.* num.replica.alter.log.dirs.threads",
    ),
    (
        _NO_MEANING,
        "it concerns classes or metrics of the JVM",
        "metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms "
        "kafka.metrics.* auto.include.jmx.reporter "
        "security.providers alter.config.policy.class.name create.topic.policy.class.name",
    ),
    (
        _NO_MEANING,
        "brokers of Kafka 4 do not know it",
        "inter.broker.protocol.version",
    ),
)

_EXACT: Final[dict[str, str]] = {}
_BEGINNINGS: Final[dict[str, str]] = {}
for _mark, _why, _names in _TABLE:
    for _name in _names.split():
        if _name.endswith("*"):
            _BEGINNINGS[_name[:-1]] = f"{_mark}: {_why}"
        else:
            _EXACT[_name] = f"{_mark}: {_why}"


def why_unserved(name: str) -> str | None:
    """Returns why a setting has no effect; None if it has one, or is unknown."""
    exact = _EXACT.get(name)
    if exact is not None:
        return exact
    return next((why for begin, why in _BEGINNINGS.items() if name.startswith(begin)), None)


def unserved(names: Iterable[str]) -> list[str]:
    """Finds settings that have no effect here, each with the reason, for a person to read."""
    marked = ((name, why_unserved(name)) for name in sorted(names))
    return [f"{name} ({why})" for name, why in marked if why is not None]
