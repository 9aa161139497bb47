"""The cluster itself: its brokers and their versions."""

from collections.abc import Iterable
from typing import Any

from odradek.client.aio.admin.base import AdminBase, outcome
from odradek.client.apis import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_QUORUM,
    UNREGISTER_BROKER,
    VersionRanges,
)
from odradek.client.core.admin_types import (
    ClusterDescription,
    FeatureDescription,
    QuorumDescription,
    QuorumReplica,
)
from odradek.client.core.api_versions import SOFTWARE_NAME
from odradek.client.core.metadata import Node
from odradek.client.errors import KafkaError, UnsupportedVersion, raise_for, unanswered
from odradek.model import CLUSTER_METADATA_TOPIC
from odradek.version import VERSION

_NO_OPERATIONS = -(1 << 31)
_NO_EPOCH = -1


class ClusterCalls(AdminBase):
    """Calls about the cluster."""

    async def describe_cluster(
        self, *, include_authorized_operations: bool = False, include_fenced_brokers: bool = False
    ) -> ClusterDescription:
        """The brokers, the controller, and the cluster's id.

        Raises:
            KafkaError: nobody answers.
        """
        values = {
            "include_cluster_authorized_operations": include_authorized_operations,
            "endpoint_type": self._cluster.endpoint_type,
            "include_fenced_brokers": include_fenced_brokers,
        }

        async def attempt() -> ClusterDescription:
            try:
                answer = await self._cluster.call(None, DESCRIBE_CLUSTER, values)
            except UnsupportedVersion:
                return await self._from_metadata()
            raise_for(int(answer.error_code), answer.error_message)
            nodes = [
                Node(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers
            ]
            operations = answer.cluster_authorized_operations
            return ClusterDescription(
                answer.cluster_id,
                answer.controller_id,
                tuple(nodes),
                frozenset(
                    each.broker_id for each in answer.brokers if getattr(each, "is_fenced", False)
                ),
                None if operations == _NO_OPERATIONS else operations,
            )

        return await self._cluster.retrying(attempt)

    async def broker_versions(self, broker_id: int) -> VersionRanges:
        """The versions of every API that a broker speaks, by key.

        Raises:
            KafkaError: it does not answer.
        """

        async def attempt() -> VersionRanges:
            return (await self._cluster.connection(broker_id)).versions

        return await self._cluster.retrying(attempt)

    async def describe_features(self) -> tuple[int, dict[str, FeatureDescription]]:
        """The epoch of the cluster's features, and those that the broker asked supports.

        Raises:
            KafkaError: nobody answers.
        """
        values = {
            "client_software_name": SOFTWARE_NAME,
            "client_software_version": VERSION,
        }

        async def attempt() -> tuple[int, dict[str, FeatureDescription]]:
            answer = await self._cluster.call(None, API_VERSIONS, values)
            raise_for(int(answer.error_code))
            finalized = getattr(answer, "finalized_features", ())
            levels = {each.name: each.max_version_level for each in finalized}
            features = {
                each.name: FeatureDescription(
                    each.min_version, each.max_version, levels.get(each.name, 0)
                )
                for each in getattr(answer, "supported_features", ())
            }
            return getattr(answer, "finalized_features_epoch", _NO_EPOCH), features

        return await self._cluster.retrying(attempt)

    async def describe_quorum(self) -> QuorumDescription:
        """Describes the quorum of controllers, with the progress of each.

        Raises:
            KafkaError: nobody answers.
        """
        partition = {"partition_index": 0}
        values = {"topics": [{"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [partition]}]}

        async def attempt() -> QuorumDescription:
            answer = await self._cluster.call(None, DESCRIBE_QUORUM, values)
            raise_for(int(answer.error_code), getattr(answer, "error_message", None))
            found = next((each for topic in answer.topics for each in topic.partitions), None)
            if found is None:
                raise unanswered(CLUSTER_METADATA_TOPIC)
            raise_for(int(found.error_code), getattr(found, "error_message", None))
            return QuorumDescription(
                found.leader_id,
                found.leader_epoch,
                found.high_watermark,
                _replicas(found.current_voters),
                _replicas(found.observers),
                {
                    node.node_id: tuple(
                        f"{each.name}://{each.host}:{each.port}" for each in node.listeners
                    )
                    for node in getattr(answer, "nodes", ())
                },
            )

        return await self._cluster.retrying(attempt)

    async def unregister_broker(self, broker_id: int) -> None:
        """Forgets a broker that will not come back.

        Raises:
            KafkaError: the controller refuses, or does not know how.
        """

        async def ask(node_id: int | None, _: list[int]) -> dict[int, KafkaError | None]:
            answer = await self._cluster.call(node_id, UNREGISTER_BROKER, {"broker_id": broker_id})
            return {broker_id: outcome(answer.error_code, None, answer.error_message)}

        found = (await self._retrying_change([broker_id], self._anybody, ask))[broker_id]
        if found is not None:
            raise found

    async def _from_metadata(self) -> ClusterDescription:
        """Describes the cluster from Metadata, for brokers before 2.8."""
        answer = await self._cluster.ask_metadata([])
        nodes = tuple(answer.nodes.values())
        return ClusterDescription(answer.cluster_id or "", answer.controller_id, nodes)


def _replicas(found: Iterable[Any]) -> tuple[QuorumReplica, ...]:
    return tuple(
        QuorumReplica(
            each.replica_id,
            getattr(each, "replica_directory_id", None),
            each.log_end_offset,
            getattr(each, "last_fetch_timestamp", -1),
            getattr(each, "last_caught_up_timestamp", -1),
        )
        for each in found
    )
