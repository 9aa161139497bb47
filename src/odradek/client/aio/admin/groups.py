"""Groups: list, describe, delete, remove members.

A group is described by the API of its kind: first as a consumer group of the newer protocol, other
groups by the classic API, as Kafka's own admin does; then as a share group.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from odradek.client.aio.admin.base import IN_DOUBT, AdminBase, outcome
from odradek.client.apis import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LEAVE_GROUP,
    LIST_GROUPS,
    SHARE_GROUP_DESCRIBE,
)
from odradek.client.core.admin_types import GroupDescription, GroupListing, MemberDescription
from odradek.client.core.cluster import Message
from odradek.client.core.listed import each_once
from odradek.client.core.metadata import Node
from odradek.client.errors import (
    KafkaError,
    UnsupportedVersion,
    error_for,
    raise_for,
)
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.consumer_protocol import decode_assignment
from odradek.protocol.primitives import ProtocolError

_NOT_OF_THIS_KIND = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
_NO_OPERATIONS = -(1 << 31)
CLASSIC = "Classic"
CONSUMER = "Consumer"
SHARE = "Share"


class GroupCalls(AdminBase):
    """Calls about groups."""

    async def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """The groups of all coordinators, in some states or of some types only.

        Raises:
            KafkaError: a coordinator cannot be asked.
        """
        values = {"states_filter": each_once(states), "types_filter": each_once(types)}

        async def ask(node_id: int) -> list[GroupListing]:
            answer = await self._cluster.call(node_id, LIST_GROUPS, values)
            raise_for(int(answer.error_code))
            return [_listing(group) for group in answer.groups]

        async def ask_with_retries(node_id: int) -> list[GroupListing]:
            return await self._cluster.retrying(lambda: ask(node_id))

        found = await asyncio.gather(*map(ask_with_retries, await self._each_node()))
        by_id = {group.group_id: group for groups in found for group in groups}
        return list(by_id.values())

    async def describe_groups(
        self, group_ids: Iterable[str], *, include_authorized_operations: bool = False
    ) -> dict[str, GroupDescription | KafkaError]:
        """Groups with their members. A missing group is an error, or, on brokers before 4.0, a
        group in the state Dead."""

        async def ask(node_id: int, ids: list[str]) -> dict[str, GroupDescription | KafkaError]:
            operations = include_authorized_operations
            node = await self._known_node(node_id)
            found = await self._describe_consumer_groups(node, ids, operations)
            classic = [each for each in ids if _is_of_another_kind(found.get(each))]
            if classic:
                found = {each: found[each] for each in found if each not in classic}
                found |= await self._describe_classic_groups(node, classic, operations)
            shared = [each for each in classic if _is_of_another_kind(found.get(each))]
            if shared:
                found |= await self._describe_share_groups(node, shared, operations)
            return found

        return await self._retrying_each(group_ids, self._by_coordinator, ask)

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, KafkaError | None]:
        """Deletes groups that have no members, with their offsets."""

        async def ask(node_id: int, ids: list[str]) -> dict[str, KafkaError | None]:
            answer = await self._cluster.call(node_id, DELETE_GROUPS, {"groups_names": ids})
            return {each.group_id: outcome(each.error_code, None) for each in answer.results}

        return await self._retrying_each(group_ids, self._by_coordinator, ask, final=IN_DOUBT)

    async def remove_members(
        self, group_id: str, members: Mapping[str, str | None], *, reason: str = ""
    ) -> dict[str, KafkaError | None]:
        """Removes members from a group, by member id with the instance id where there is one."""

        async def ask(node_id: int | None, member_ids: list[str]) -> dict[str, KafkaError | None]:
            leaving = [
                {
                    "member_id": member_id,
                    "group_instance_id": members[member_id],
                    "reason": reason or None,
                }
                for member_id in member_ids
            ]
            values = {"group_id": group_id, "member_id": member_ids[0], "members": leaving}
            answer = await self._cluster.call(node_id, LEAVE_GROUP, values)
            raise_for(int(answer.error_code))
            return {each.member_id: outcome(each.error_code, None) for each in answer.members}

        return await self._retrying_change(members, self._whom(group_id), ask)

    async def _describe_consumer_groups(
        self, node: Node, group_ids: list[str], include_authorized_operations: bool
    ) -> dict[str, GroupDescription | KafkaError]:
        values = {
            "group_ids": group_ids,
            "include_authorized_operations": include_authorized_operations,
        }
        try:
            answer = await self._cluster.call(node.id, CONSUMER_GROUP_DESCRIBE, values)
        except UnsupportedVersion as error:
            return dict.fromkeys(group_ids, error)
        return _outcomes(answer.groups, lambda group: _consumer_group(group, node))

    async def _describe_classic_groups(
        self, node: Node, group_ids: list[str], include_authorized_operations: bool
    ) -> dict[str, GroupDescription | KafkaError]:
        values = {
            "groups": group_ids,
            "include_authorized_operations": include_authorized_operations,
        }
        answer = await self._cluster.call(node.id, DESCRIBE_GROUPS, values)
        return _outcomes(answer.groups, lambda group: _classic_group(group, node))

    async def _describe_share_groups(
        self, node: Node, group_ids: list[str], include_authorized_operations: bool
    ) -> dict[str, GroupDescription | KafkaError]:
        """The share groups among groups that are of no other kind."""
        values = {
            "group_ids": group_ids,
            "include_authorized_operations": include_authorized_operations,
        }
        try:
            answer = await self._cluster.call(node.id, SHARE_GROUP_DESCRIBE, values)
        except UnsupportedVersion:
            return {}
        found = _outcomes(answer.groups, lambda group: _share_group(group, node))
        return {each: group for each, group in found.items() if not _is_of_another_kind(group)}


def _outcomes(
    groups: Iterable[Message], read: Callable[[Message], GroupDescription]
) -> dict[str, GroupDescription | KafkaError]:
    found: dict[str, GroupDescription | KafkaError] = {}
    for group in groups:
        message = getattr(group, "error_message", None)
        found[group.group_id] = (
            error_for(int(group.error_code), message) if group.error_code else read(group)
        )
    return found


def _is_of_another_kind(found: GroupDescription | KafkaError | None) -> bool:
    return isinstance(found, KafkaError) and found.code in _NOT_OF_THIS_KIND


def _listing(group: Message) -> GroupListing:
    return GroupListing(
        group.group_id,
        group.protocol_type,
        getattr(group, "group_state", ""),
        # Older brokers have only one type.
        getattr(group, "group_type", "classic"),
    )


def _operations(group: Message) -> int | None:
    operations: int = getattr(group, "authorized_operations", _NO_OPERATIONS)
    return None if operations == _NO_OPERATIONS else operations


def _classic_group(group: Message, coordinator: Node) -> GroupDescription:
    is_consumer = group.protocol_type == "consumer"
    members = [
        MemberDescription(
            member.member_id,
            getattr(member, "group_instance_id", None),
            member.client_id,
            member.client_host,
            _assigned(member.member_assignment) if is_consumer else (),
        )
        for member in group.members
    ]
    return GroupDescription(
        group.group_id,
        CLASSIC,
        group.protocol_type,
        group.group_state,
        group.protocol_data,
        tuple(members),
        coordinator,
        authorized_operations=_operations(group),
    )


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment; none if it cannot be decoded."""
    try:
        return decode_assignment(data).partitions
    except ProtocolError:
        return ()


def _consumer_group(group: Message, coordinator: Node) -> GroupDescription:
    members = [
        MemberDescription(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            _partitions(member.assignment),
            _partitions(member.target_assignment),
            member.member_epoch,
            # From version 1 on: 0 for a member with the classic protocol, -1 if unknown.
            {0: True, 1: False}.get(getattr(member, "member_type", -1)),
        )
        for member in group.members
    ]
    return GroupDescription(
        group.group_id,
        CONSUMER,
        "consumer",
        group.group_state,
        group.assignor_name,
        tuple(members),
        coordinator,
        group.group_epoch,
        group.assignment_epoch,
        _operations(group),
    )


def _share_group(group: Message, coordinator: Node) -> GroupDescription:
    members = [
        MemberDescription(
            member.member_id,
            None,
            member.client_id,
            member.client_host,
            _partitions(member.assignment),
            member_epoch=member.member_epoch,
        )
        for member in group.members
    ]
    return GroupDescription(
        group.group_id,
        SHARE,
        "share",
        group.group_state,
        group.assignor_name,
        tuple(members),
        coordinator,
        group.group_epoch,
        group.assignment_epoch,
        _operations(group),
    )


def _partitions(assignment: Message) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )
