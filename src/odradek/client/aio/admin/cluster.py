"""The cluster itself: its brokers and their versions."""

from odradek.client.aio.admin.base import AdminBase
from odradek.client.apis import DESCRIBE_CLUSTER, UNREGISTER_BROKER, VersionRanges
from odradek.client.core.admin_types import ClusterDescription
from odradek.client.core.metadata import Node
from odradek.client.errors import UnsupportedVersion, raise_for

_NO_OPERATIONS = -(1 << 31)


class ClusterCalls(AdminBase):
    """Calls about the cluster."""

    async def describe_cluster(
        self, *, include_authorized_operations: bool = False, include_fenced_brokers: bool = False
    ) -> ClusterDescription:
        """The brokers, who is the controller, and the cluster's id.

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

    async def unregister_broker(self, broker_id: int) -> None:
        """Forgets a broker that will not come back.

        Raises:
            KafkaError: the controller refuses, or does not know how.
        """

        async def attempt() -> None:
            answer = await self._cluster.call(None, UNREGISTER_BROKER, {"broker_id": broker_id})
            raise_for(int(answer.error_code), answer.error_message)

        await self._cluster.retrying(attempt)

    async def _from_metadata(self) -> ClusterDescription:
        """What brokers before 2.8 know."""
        answer = await self._cluster.refresh([])
        nodes = tuple(answer.nodes.values())
        return ClusterDescription(answer.cluster_id or "", answer.controller_id, nodes)
