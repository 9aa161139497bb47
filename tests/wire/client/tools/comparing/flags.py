"""Every flag of Kafka's tools beside every action: what goes together, and what is refused.

Nothing of what these lines name is there but the topic that none of them can make a second time.
"""

from collections.abc import Iterator

TOPIC = "flags"
FILE = "/no-such-file"
# A flag's value; the others have none.
VALUES = {
    "partitions": "2",
    "replication-factor": "1",
    "replica-assignment": "1",
    "config": "retention.ms=1",
    "delete-config": "x",
    "topic": TOPIC,
    "topic-id": "AAAAAAAAAAAAAAAAAAAAAA",
    "partition-size-limit-per-response": "3",
    "add-config": "a=b",
    "add-config-file": FILE,
    "group": "no-such-group",
    "type": "classic",
    "to-offset": "1",
    "to-datetime": "2020-01-01T00:00:00.000",
    "by-duration": "PT1H",
    "shift-by": "1",
    "from-file": FILE,
    "timeout": "5000",
    "throttle": "5",
    "replica-alter-log-dirs-throttle": "5",
    "reassignment-json-file": FILE,
    "topics-to-move-json-file": FILE,
    "broker-list": "1",
}
# By tool: its actions, each with what it needs, and its flags.
TOOLS: dict[str, tuple[dict[str, tuple[str, ...]], tuple[str, ...]]] = {
    "topics": (
        {
            "list": (),
            "describe": ("topic",),
            "alter": ("topic", "partitions"),
            # The test makes it, so that none of these lines does.
            "create": ("topic",),
            "delete": ("topic", "if-exists"),
        },
        (
            *("topic", "topic-id", "partitions", "replication-factor", "replica-assignment"),
            *("config", "delete-config", "if-exists", "if-not-exists", "exclude-internal"),
            *("under-replicated-partitions", "unavailable-partitions", "topics-with-overrides"),
            *("under-min-isr-partitions", "at-min-isr-partitions"),
            "partition-size-limit-per-response",
        ),
    ),
    "consumer-groups": (
        {
            "list": (),
            "describe": ("group",),
            "delete": ("group",),
            "delete-offsets": ("group", "topic"),
            "reset-offsets": ("group", "topic", "to-latest"),
        },
        (
            *("group", "all-groups", "topic", "all-topics", "state", "type", "members", "offsets"),
            *("verbose", "timeout", "to-earliest", "to-latest", "to-current", "to-offset"),
            *("to-datetime", "by-duration", "shift-by", "from-file"),
            *("dry-run", "execute", "export"),
        ),
    ),
    "reassign-partitions": (
        {
            "list": (),
            "generate": ("topics-to-move-json-file", "broker-list"),
            "execute": ("reassignment-json-file",),
            "verify": ("reassignment-json-file",),
            "cancel": ("reassignment-json-file",),
        },
        (
            *("reassignment-json-file", "topics-to-move-json-file", "broker-list"),
            *("disable-rack-aware", "throttle", "replica-alter-log-dirs-throttle", "timeout"),
            *("additional", "preserve-throttles", "disallow-replication-factor-change"),
        ),
    ),
    "configs": (
        {"describe": ("topic",), "alter": ("topic", "add-config")},
        ("all", "add-config", "add-config-file", "delete-config", "entity-default"),
    ),
}


def lines() -> Iterator[list[str]]:
    """The tool and its words, for an action without more, and for each flag beside it."""
    for tool, (actions, flags) in TOOLS.items():
        for action, needed in actions.items():
            words = [tool, f"--{action}", *_words(needed)]
            yield words
            yield from ([*words, *_words((flag,))] for flag in flags if flag not in needed)
        yield from ([tool, f"--{action}"] for action in actions)
        if tool != "consumer-groups":  # where Kafka's does the one, and nothing of the other
            first, second, *_ = actions
            yield [tool, f"--{first}", f"--{second}", *_words(actions[second])]
        if tool == "topics":  # which has a table then, for people
            continue
        yield [tool]


def _words(flags: tuple[str, ...]) -> Iterator[str]:
    for flag in flags:
        yield f"--{flag}"
        if flag in VALUES:
            yield VALUES[flag]
