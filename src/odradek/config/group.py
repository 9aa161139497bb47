"""The settings of groups (ConfigResource GROUP), with the broker settings that stand for them."""

from collections.abc import Mapping
from typing import Final

from odradek.config.definition import Setting, SettingType, table

_INT: Final = SettingType.INT
_STRING: Final = SettingType.STRING
_BOOLEAN: Final = SettingType.BOOLEAN
_RESET_PATTERN: Final = r"latest|earliest|by_duration:P.+"

GROUP_SETTINGS: Final = table(
    [
        Setting(
            "consumer.session.timeout.ms",
            _INT,
            45_000,
            "After how long a silent member is out.",
            at_least=1,
        ),
        Setting(
            "consumer.heartbeat.interval.ms",
            _INT,
            5_000,
            "How often members send heartbeats.",
            at_least=1,
        ),
        Setting(
            "consumer.assignment.interval.ms",
            _INT,
            1_000,
            "How long the group rests between two assignments.",
            at_least=0,
        ),
        Setting(
            "share.session.timeout.ms",
            _INT,
            45_000,
            "After how long a silent member is out.",
            at_least=1,
        ),
        Setting(
            "share.heartbeat.interval.ms",
            _INT,
            5_000,
            "How often members send heartbeats.",
            at_least=1,
        ),
        Setting(
            "share.assignment.interval.ms",
            _INT,
            1_000,
            "How long the group rests between two assignments.",
            at_least=0,
        ),
        Setting(
            "share.record.lock.duration.ms",
            _INT,
            30_000,
            "How long a record is locked for one member.",
            at_least=1_000,
        ),
        Setting(
            "share.delivery.count.limit",
            _INT,
            5,
            "How often a record is delivered at most.",
            at_least=2,
        ),
        Setting(
            "share.partition.max.record.locks",
            _INT,
            2_000,
            "How many records of a partition may be locked at a time.",
            at_least=100,
        ),
        Setting(
            "share.auto.offset.reset",
            _STRING,
            "latest",
            "Where a new share group begins: `latest`, `earliest` or `by_duration:` with an "
            "ISO 8601 duration.",
            pattern=_RESET_PATTERN,
        ),
        Setting(
            "share.isolation.level",
            _STRING,
            "read_uncommitted",
            "Whether records of undecided transactions are delivered.",
            choices=("read_committed", "read_uncommitted"),
        ),
        Setting(
            "share.renew.acknowledge.enable",
            _BOOLEAN,
            True,
            "Whether members may prolong their locks.",
        ),
        Setting(
            "streams.session.timeout.ms",
            _INT,
            45_000,
            "After how long a silent member is out.",
            at_least=1,
        ),
        Setting(
            "streams.heartbeat.interval.ms",
            _INT,
            5_000,
            "How often members send heartbeats.",
            at_least=1,
        ),
        Setting(
            "streams.assignment.interval.ms",
            _INT,
            1_000,
            "How long the group rests between two assignments.",
            at_least=0,
        ),
        Setting(
            "streams.initial.rebalance.delay.ms",
            _INT,
            3_000,
            "How long the first rebalance waits for more members.",
            at_least=0,
        ),
        Setting(
            "streams.num.standby.replicas",
            _INT,
            0,
            "How many standby tasks are kept per task.",
            at_least=0,
        ),
    ]
)

_WITHOUT_SYNONYM: Final = frozenset(
    {"share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable"}
)

GROUP_SYNONYMS: Final[Mapping[str, str]] = {
    name: f"group.{name}" for name in GROUP_SETTINGS if name not in _WITHOUT_SYNONYM
}
"""The broker setting that a group's own setting stands before."""
