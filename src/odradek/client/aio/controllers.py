"""KRaft's controllers, asked without a broker between (KIP-919).

For what has to be done while no broker runs. Apache Kafka has controllers that listen; a broker,
ours among them, says that it is none.
"""

from collections.abc import Iterable
from typing import Final, TypeVar

from odradek.client.aio.cluster import (
    MAIN_CHANNEL,
    ClusterClient,
    Decode,
    Encode,
)
from odradek.client.apis import DESCRIBE_CLUSTER, ClientApi
from odradek.client.core.metadata import ClusterMetadata, Node
from odradek.client.errors import RequestError, UnsupportedVersion, raise_for
from odradek.errors import ErrorCode

T = TypeVar("T")
CONTROLLERS: Final = 2


class ControllerClient(ClusterClient):
    """Asks the active controller, whoever is named."""

    bootstrap_setting = "bootstrap.controllers"
    endpoint_type = CONTROLLERS

    async def refresh(self, names: Iterable[str] | None, **_: bool) -> ClusterMetadata:
        """Asks any controller for all of them; none knows topics.

        Raises:
            KafkaError: nobody answers, or topics were asked for.
        """
        if names is None or [*names]:
            raise _unsupported()
        answer = await self.call(None, DESCRIBE_CLUSTER, {"endpoint_type": CONTROLLERS})
        raise_for(int(answer.error_code), answer.error_message)
        kind = getattr(answer, "endpoint_type", None)
        if kind != CONTROLLERS:
            raise RequestError(
                "Expected response from CONTROLLER endpoint, but got response from endpoint type "
                f"{kind}",
                ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            )
        nodes = [Node(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers]
        self.metadata = ClusterMetadata(
            {node.id: node for node in nodes},
            cluster_id=answer.cluster_id,
            controller_id=answer.controller_id,
        )
        self.metadata_updated_ms = self.clock.monotonic_ms()
        return self.metadata

    async def exchange(
        self,
        node_id: int | None,
        api: ClientApi,
        encode: Encode,
        decode: "Decode[T]",
        *,
        channel: str = MAIN_CHANNEL,
        timeout_ms: int | None = None,
    ) -> T:
        """Asks the active controller; any for who it is.

        Raises:
            KafkaError: no answer came, or controllers do not take this.
        """
        node_id = None if api is DESCRIBE_CLUSTER else await self.controller_id()
        try:
            return await super().exchange(
                node_id, api, encode, decode, channel=channel, timeout_ms=timeout_ms
            )
        except UnsupportedVersion:
            raise _unsupported() from None


def _unsupported() -> RequestError:
    """The refusal of what only brokers do, in Kafka's words."""
    return RequestError(
        "This Admin API is not yet supported when communicating directly with the controller "
        "quorum.",
        ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
    )
