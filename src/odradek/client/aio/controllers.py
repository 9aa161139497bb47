"""KRaft's controllers, asked without a broker between (KIP-919).

For calls that must work while no broker runs. Apache Kafka has controllers that listen; a broker,
also ours, answers that it is none.
"""

from collections.abc import Iterable
from typing import Final, TypeVar

from odradek.client.aio.cluster import ClusterClient
from odradek.client.apis import DESCRIBE_CLUSTER, ClientApi
from odradek.client.core.cluster import Decode, Encode
from odradek.client.core.metadata import ClusterMetadata, Node
from odradek.client.core.network.connections import MAIN_CHANNEL
from odradek.client.core.waits import Gen
from odradek.client.errors import RequestError, UnsupportedVersion, raise_for
from odradek.errors import ErrorCode

T = TypeVar("T")
CONTROLLERS: Final = 2


class ControllerClient(ClusterClient):
    """Asks the active controller, through any controller."""

    bootstrap_setting = "bootstrap.controllers"
    endpoint_type = CONTROLLERS
    # The second is the word of KRaft's own requests, DescribeQuorum say.
    not_controller = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER})

    def metadata_gen(self, names: Iterable[str] | None, **_: bool) -> Gen[ClusterMetadata]:
        """Asks any controller for all of them; none knows topics.

        Raises:
            KafkaError: nobody answers, or topics were asked for.
        """
        if names is None or [*names]:
            raise _unsupported()
        answer = yield from self.call_gen(None, DESCRIBE_CLUSTER, {"endpoint_type": CONTROLLERS})
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
        return self.metadata

    def exchange_gen(
        self,
        node_id: int | None,
        api: ClientApi,
        encode: Encode,
        decode: "Decode[T]",
        *,
        channel: str = MAIN_CHANNEL,
        timeout_ms: int | None = None,
    ) -> Gen[T]:
        """Asks the active controller, whose address any controller knows.

        Raises:
            KafkaError: no answer came, or controllers do not take this.
        """
        node_id = None if api is DESCRIBE_CLUSTER else (yield from self.controller_gen())
        try:
            return (
                yield from super().exchange_gen(
                    node_id, api, encode, decode, channel=channel, timeout_ms=timeout_ms
                )
            )
        except UnsupportedVersion:
            raise _unsupported() from None


def _unsupported() -> RequestError:
    """Refuses requests that only brokers can serve, with Kafka's text."""
    return RequestError(
        "This Admin API is not yet supported when communicating directly with the controller "
        "quorum.",
        ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
    )
