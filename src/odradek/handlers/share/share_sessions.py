"""Share sessions: the partitions that a member fetches, and the epoch of its requests.

A session begins with epoch 0, continues with the next one each time, and ends with -1 or with its
connection; then the member's records are available again. A member has one at a time.
"""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from odradek.background import do_each
from odradek.errors import BrokerError, ErrorCode
from odradek.replication.share.delayed_fetch import DelayedShareFetch
from odradek.replication.share.fetch import (
    OnShareFetched,
    ShareFetchParams,
    ShareFetchPartition,
)
from odradek.replication.share.manager import SharePartitionManager

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1

SessionPartition = tuple[UUID, int]


class ShareSession:
    """One member's session. `waiting` has its parked fetches, each with its connection: a member
    may use several at once."""

    def __init__(self, group_id: str, member_id: str, connection_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.connection_id = connection_id
        self.epoch = 1
        self.partitions: dict[SessionPartition, None] = {}
        self.waiting: list[tuple[str, DelayedShareFetch]] = []

    def advance(self) -> None:
        """Advances the epoch; after the last one comes the first again."""
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def update(
        self, added: Iterable[SessionPartition], forgotten: Iterable[SessionPartition]
    ) -> None:
        """Adds and removes partitions."""
        self.partitions.update(dict.fromkeys(added))
        for each in forgotten:
            self.partitions.pop(each, None)

    def park(self, connection_id: str, fetch: DelayedShareFetch) -> None:
        """Remembers a parked fetch, and forgets completed ones."""
        self.waiting = [each for each in self.waiting if not each[1].is_completed]
        self.waiting.append((connection_id, fetch))

    def give_up(self, connection_id: str | None = None) -> None:
        """Answers the parked fetches, or those of one connection, without records."""
        meant = [fetch for waits_on, fetch in self.waiting if connection_id in (None, waits_on)]
        do_each(meant, lambda fetch: fetch.give_up())

    def move_to_end(self, partition: SessionPartition) -> None:
        """Moves a partition that gave records behind the others."""
        if partition in self.partitions:
            del self.partitions[partition]
            self.partitions[partition] = None


class ShareSessionCache:
    """The sessions of this broker, at most `max_sessions`."""

    def __init__(self, max_sessions: int, partitions: SharePartitionManager) -> None:
        self._max_sessions = max_sessions
        self._partitions = partitions
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group_id: str, member_id: str, connection_id: str) -> ShareSession:
        """Opens a session, which replaces an earlier one of the member.

        Raises:
            BrokerError: SHARE_SESSION_LIMIT_REACHED.
        """
        replaced = self._sessions.pop((group_id, member_id), None)
        if replaced is not None:
            replaced.give_up()
        if len(self._sessions) >= self._max_sessions:
            raise BrokerError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession(group_id, member_id, connection_id)
        self._sessions[group_id, member_id] = session
        return session

    def go_on(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session of a request, with its epoch advanced unless the request ends the session.

        Raises:
            BrokerError: SHARE_SESSION_NOT_FOUND or INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise BrokerError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            return session
        if session.epoch != epoch:
            raise BrokerError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.advance()
        return session

    def fetch(
        self,
        session: ShareSession,
        connection_id: str,
        params: ShareFetchParams,
        partitions: list[ShareFetchPartition],
        on_done: OnShareFetched,
    ) -> None:
        """Hands out records, at once or when there are some. A session that has ended while the
        request was on its way gets none: its member would not receive them."""
        if not self._is_current(session):
            on_done([])
            return
        waiting = self._partitions.fetch(params, partitions, on_done)
        if waiting is not None:
            session.park(connection_id, waiting)

    def close(self, session: ShareSession) -> None:
        """Ends a session: its member's records are available again. A replaced session has already
        ended."""
        if not self._is_current(session):
            return
        del self._sessions[session.group_id, session.member_id]
        session.give_up()
        self._partitions.release_member(session.group_id, session.member_id)
        if all(each.group_id != session.group_id for each in self._sessions.values()):
            self._partitions.suspend_group(session.group_id)

    def connection_closed(self, connection_id: str) -> None:
        """Ends the sessions of a connection, and its parked fetches in other sessions."""
        do_each(list(self._sessions.values()), lambda each: self._let_go(each, connection_id))

    def _let_go(self, session: ShareSession, connection_id: str) -> None:
        if session.connection_id == connection_id:
            self.close(session)
        else:
            session.give_up(connection_id)

    def _is_current(self, session: ShareSession) -> bool:
        return self._sessions.get((session.group_id, session.member_id)) is session
