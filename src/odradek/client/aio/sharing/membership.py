"""`ShareMembership`: a member of a share group sends heartbeats, and gets its partitions.

One request: the heartbeat. Epoch 0 joins, -1 leaves. No member has to give up partitions first, so
an assignment is valid at once.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.coordinators import ask_coordinator, say_goodbye
from odradek.client.apis import SHARE_GROUP_HEARTBEAT
from odradek.client.core.cluster import Message
from odradek.client.core.network.connections import GROUP_CHANNEL
from odradek.client.core.retries import ExponentialBackoff
from odradek.client.errors import KafkaError, raise_for
from odradek.errors import ErrorCode
from odradek.protocol.uuids import uuid_text

_JOIN_EPOCH: Final = 0
_LEAVE_EPOCH: Final = -1
_FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
Assignment = Mapping[UUID, tuple[int, ...]]


class ShareMembership:
    """Belongs to one consumer. Calls `wakes` when the assignment has changed, or after an error."""

    def __init__(self, cluster: ClusterClient, wakes: Callable[[], None]) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self._wakes = wakes
        self.group_id = settings.text("group.id")
        # The same for its whole life: the member makes it, and its sessions are identified by it.
        self.member_id = uuid_text(UUID(int=cluster.rng.getrandbits(128), version=4))
        self.assignment: Assignment = {}
        self._topics: frozenset[str] = frozenset()
        self._told: frozenset[str] | None = None
        self._epoch = _JOIN_EPOCH
        self._interval_ms = 0
        self._must_tell = asyncio.Event()
        self._heartbeats: asyncio.Task[None] | None = None
        self._error: KafkaError | None = None
        self._backoff = ExponentialBackoff(
            settings.number("retry.backoff.ms"),
            settings.number("retry.backoff.max.ms"),
            cluster.rng,
        )

    def subscribe(self, topics: frozenset[str]) -> None:
        """Reads these topics, from the next heartbeat on."""
        self._topics = topics
        self._must_tell.set()

    def poll(self) -> None:
        """Starts the heartbeats, unless they are running.

        Raises:
            KafkaError: this consumer cannot be a member.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error
        # A program that cancels all tasks of its loop ends them, too.
        is_silent = self._heartbeats is None or self._heartbeats.done()
        if is_silent and self._topics:
            self._heartbeats = asyncio.create_task(self._send_heartbeats())

    async def leave(self) -> None:
        """Ends the heartbeats, and leaves the group if it may have joined it."""
        has_joined = self._heartbeats is not None or self._epoch != _JOIN_EPOCH
        await self.end()
        if has_joined:
            await say_goodbye(self._cluster, self.group_id, self._ask(_LEAVE_EPOCH))
        self._begin_anew()

    async def end(self) -> None:
        """Ends only the heartbeats: the group notices that they are missing."""
        task, self._heartbeats = self._heartbeats, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _begin_anew(self) -> None:
        self._epoch, self._told = _JOIN_EPOCH, None
        self.assignment = {}

    async def _send_heartbeats(self) -> None:
        failures = 0
        while True:
            try:
                await self._heartbeat()
            except KafkaError as error:
                if error.code in _FENCED:
                    self._begin_anew()
                    self._wakes()
                elif not error.retriable:
                    self._give_up(error)
                    return
                # It is unknown whether it has arrived.
                self._told = None
                await asyncio.sleep(self._backoff.wait_ms(failures) / 1000)
                failures += 1
            else:
                failures = 0
                await self._pause()

    def _give_up(self, error: KafkaError) -> None:
        self._begin_anew()
        self._heartbeats, self._error = None, error
        self._wakes()

    async def _heartbeat(self) -> None:
        self._must_tell.clear()
        topics = self._topics
        answer = await self._ask(self._epoch, topics if topics != self._told else None)
        self._told = topics
        self._epoch = answer.member_epoch
        self._interval_ms = max(1, round(answer.heartbeat_interval.total_seconds() * 1000))
        if answer.assignment is not None:
            self.assignment = {
                each.topic_id: tuple(each.partitions) for each in answer.assignment.topic_partitions
            }
            self._wakes()

    async def _ask(self, epoch: int, topics: frozenset[str] | None = None) -> Message:
        values = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "rack_id": self._cluster.settings.text("client.rack") or None,
            "subscribed_topic_names": None if topics is None else sorted(topics),
        }
        answer = await ask_coordinator(
            self._cluster, self.group_id, SHARE_GROUP_HEARTBEAT, values, channel=GROUP_CHANNEL
        )
        raise_for(int(answer.error_code), answer.error_message)
        return answer

    async def _pause(self) -> None:
        """Waits until the next heartbeat is due, or there is something to report."""
        try:
            async with asyncio.timeout(self._interval_ms / 1000):
                await self._must_tell.wait()
        except TimeoutError:
            pass
