"""`odradek broker-api-versions`: the API versions of every broker, as
`kafka-broker-api-versions.sh` prints them; scripts use it as a health check.
"""

import argparse
import sys
from collections.abc import Mapping
from typing import Final

from odradek.cli.tools.connection import add_connection, client_config, require, run_async
from odradek.client import Admin
from odradek.client.apis import VersionRanges
from odradek.client.core.admin_types import ClusterDescription
from odradek.client.errors import KafkaError
from odradek.errors import text_of

# The APIs that Kafka's clients have and our brokers do not, or in one more version; name and last
# version.
_BEYOND_OURS: Final = {
    22: ("InitProducerId", 6),
    64: ("UnregisterBroker", 0),
    80: ("AddRaftVoter", 1),
    81: ("RemoveRaftVoter", 0),
    88: ("StreamsGroupHeartbeat", 0),
    89: ("StreamsGroupDescribe", 0),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser, server_flags=("--bootstrap-server",))


def run(arguments: argparse.Namespace) -> int:
    """Prints a paragraph for each broker."""
    require(arguments, "bootstrap-server")

    async def work() -> int:
        async with Admin(config=client_config(arguments)) as admin:
            cluster = await admin.describe_cluster()
            for broker_id in sorted(node.id for node in cluster.nodes):
                try:
                    versions = await admin.broker_versions(broker_id)
                except KafkaError as error:
                    print(f"{_broker(cluster, broker_id)} -> ERROR: {text_of(error)}")
                else:
                    print(f"{_broker(cluster, broker_id)} -> (\n{_listed(versions)}\n)")
        return 0

    return run_async(work, lambda error: print(text_of(error), file=sys.stderr))


def _broker(cluster: ClusterDescription, broker_id: int) -> str:
    node = next(each for each in cluster.nodes if each.id == broker_id)
    is_fenced = str(broker_id in cluster.fenced).lower()
    rack = node.rack or "null"
    return f"{node.host}:{node.port} (id: {node.id} rack: {rack} isFenced: {is_fenced})"


def _listed(versions: VersionRanges) -> str:
    known = _known()
    lines = [f"\t{_api(key, versions, known)}" for key in sorted({*versions, *known})]
    return ",\n".join(lines)


def _known() -> Mapping[int, tuple[str, int]]:
    """The APIs of Kafka's clients: name and last version. Ours serve nearly all of them."""
    from odradek.handlers.table import API_TABLE

    served = {int(key): (api.name, api.max_version) for key, api in API_TABLE.items()}
    return served | _BEYOND_OURS


def _api(key: int, versions: VersionRanges, known: Mapping[int, tuple[str, int]]) -> str:
    name, latest = known.get(key, ("UNKNOWN", None))
    if key not in versions:
        return f"{name}({key}): UNSUPPORTED"
    first, last = versions[key]
    text = f"{name}({key}): {first}" if first == last else f"{name}({key}): {first} to {last}"
    if latest is None:
        return text
    if first > latest:
        return f"{text} [unusable: node too new]"
    return f"{text} [usable: {min(last, latest)}]"
