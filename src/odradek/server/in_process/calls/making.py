"""Makes what a test wants to be there: topics, ACLs and quotas, through the controller."""

from collections.abc import Sequence
from dataclasses import replace

from odradek.acl import AclBinding
from odradek.controller import CreatableTopic, CreateTopicResult
from odradek.controller.quota_control import QuotaAlteration
from odradek.errors import BrokerError, ErrorCode
from odradek.server.awaiting import outcome
from odradek.server.broker import BrokerServer
from odradek.server.coordination.coordinators import TOPIC_CHANGE_TIMEOUT_MS
from odradek.server.in_process.arguments.kinds import whole


async def create_topic(server: BrokerServer, topic: CreatableTopic) -> None:
    """Creates a topic; when this returns it can be appended to.

    Raises:
        TypeError: a count is no number.
        BrokerError: it cannot be created.
    """
    wish = replace(
        topic,
        num_partitions=whole("partitions", topic.num_partitions),
        replication_factor=whole("replication_factor", topic.replication_factor),
    )
    results: list[CreateTopicResult] = await outcome(
        lambda on_done: server.controller.create_topics([wish], TOPIC_CHANGE_TIMEOUT_MS, on_done)
    )
    if results[0].error_code != ErrorCode.NONE:
        raise BrokerError(results[0].error_code, results[0].message or "")


async def create_acls(server: BrokerServer, bindings: Sequence[AclBinding]) -> None:
    """Adds ACLs; this broker decides by them when it returns.

    Raises:
        BrokerError: one cannot be added, or there is no authorizer.
    """
    if not bindings:
        return
    control = server.acl_control
    if control is None:
        raise BrokerError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    _raise_first(await outcome(lambda on_done: control.create(bindings, on_done)))


async def set_quotas(server: BrokerServer, alterations: Sequence[QuotaAlteration]) -> None:
    """Sets the quotas of clients, which hold when it returns.

    Raises:
        BrokerError: one cannot be set.
    """
    if alterations:
        controller = server.controller
        _raise_first(
            await outcome(lambda on_done: controller.alter_client_quotas(alterations, on_done))
        )


def _raise_first(outcomes: Sequence[BrokerError | None]) -> None:
    for error in outcomes:
        if error is not None:
            raise error
