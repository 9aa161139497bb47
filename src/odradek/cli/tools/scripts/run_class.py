"""`kafka-run-class.sh CLASS`: runs the tool that corresponds to a Java class of Kafka, by its
current or an earlier name: many moved from `kafka.tools` and `kafka.admin` to
`org.apache.kafka.tools`.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Final

TOOLS: Final = {
    "AclCommand": "acls",
    "BrokerApiVersionsCommand": "broker-api-versions",
    "ClusterTool": "cluster",
    "ConfigCommand": "configs",
    "ConsoleConsumer": "console-consumer",
    "ConsoleProducer": "console-producer",
    "ConsoleShareConsumer": "console-share-consumer",
    "ConsumerGroupCommand": "consumer-groups",
    "ConsumerPerformance": "consumer-perf-test",
    "DelegationTokenCommand": "delegation-tokens",
    "DeleteRecordsCommand": "delete-records",
    "DumpLogSegments": "dump-log",
    "FeatureCommand": "features",
    "GetOffsetShell": "get-offsets",
    "GroupsCommand": "groups",
    "Kafka": "server-start",
    "LeaderElectionCommand": "leader-election",
    "LogDirsCommand": "log-dirs",
    "MetadataQuorumCommand": "metadata-quorum",
    "ProducerPerformance": "producer-perf-test",
    "ReassignPartitionsCommand": "reassign-partitions",
    "ShareGroupCommand": "share-groups",
    "StorageTool": "storage",
    "TopicCommand": "topics",
    "TransactionsCommand": "transactions",
    "VerifiableConsumer": "verifiable-consumer",
    "VerifiableProducer": "verifiable-producer",
}
_CLASS: Final = re.compile(
    r"(?:kafka|kafka\.(?:tools|admin)|org\.apache\.kafka\.tools(?:\.\w+)*)\.(\w+)"
)
# The flags of Kafka's own script before the class; the second has a value.
_FLAGS: Final = ("-loggc", "--loggc")
_NAMED: Final = "-name"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments, the same as the class's."""
    parser.set_defaults(read_words=_read_words)


def _read_words(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    parser.set_defaults(words=list(words))
    return []


def run(arguments: argparse.Namespace) -> int:
    """Runs the tool with the words after the class."""
    words: list[str] = arguments.words
    while words and words[0] in (*_FLAGS, _NAMED):
        del words[: 2 if words[0] == _NAMED else 1]
    if not words:
        print("USAGE: kafka-run-class.sh classname [opts]", file=sys.stderr)
        return 1
    found = _CLASS.fullmatch(words[0])
    if found is None or found[1] not in TOOLS:
        print(
            f"Error: Could not find or load main class {words[0]}: there are no Java classes "
            "here, only the tools of Kafka's that odradek has",
            file=sys.stderr,
        )
        return 1
    from odradek.cli.main import OF_SCRIPTS, run_command

    return run_command([TOOLS[found[1]], *words[1:]], OF_SCRIPTS)
