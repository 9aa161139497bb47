"""The calls of a producer's user about transactions: begin, commit, abort, or a block of them.

Calls that began before a commit, with records or offsets, are part of it, or fail it. Another block
meanwhile is refused: a producer has one transaction at a time.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from odradek.client.aio.closing import AsyncClosing
from odradek.client.aio.producing.transactions import TransactionManager
from odradek.client.core.groups.commits import Offsets, with_metadata
from odradek.client.core.groups.group_metadata import GroupMetadata, checked_group
from odradek.client.core.producing.transaction_state import TransactionState
from odradek.client.core.retries import TimeLimit
from odradek.client.errors import KafkaError, RequestTimedOut, UsageError
from odradek.errors import ErrorCode

_LOGGER: Final = logging.getLogger(__name__)
OPEN_STATES: Final = (
    TransactionState.IN_TRANSACTION,
    TransactionState.SETTLING,
    TransactionState.ABORTABLE,
    TransactionState.ABORTING,
)
"""Those that an abort leads out of."""


class Transacting(AsyncClosing):
    """The calls of a transaction, of a producer that knows when all is delivered."""

    _transactions: TransactionManager
    _idle: asyncio.Event
    # The calls about to enter the transaction, and how many tasks are in a block or end one.
    _entering = 0
    _in_use = 0

    async def init_transactions(self) -> None:
        """Makes this producer the owner of its transactional id; needed once, before the first
        transaction.

        Raises:
            KafkaError: it cannot.
        """
        self._check_transactional()
        await self._transactions.init_transactions()

    def begin_transaction(self) -> None:
        """Begins a transaction.

        Raises:
            KafkaError: there is one already, or none is possible.
        """
        self._check_transactional()
        self._transactions.begin()

    async def send_offsets_to_transaction(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commits a group's offsets together with the records of the transaction.

        Raises:
            KafkaError: the transaction can only be aborted then.
            TypeError: the group is a name, which would not fence former members.
        """
        self._check_transactional()
        member = checked_group(group)
        if offsets:
            with self._about_to_enter():
                await self._transactions.send_offsets(with_metadata(offsets), member)

    async def commit_transaction(self) -> None:
        """Delivers what was sent, and commits it.

        It takes at most `delivery.timeout.ms` and `max.block.ms`. After a cancellation or a
        retriable error, call it again: whether the transaction is committed is not known then.

        Raises:
            KafkaError: the transaction is to be aborted, or the producer has been replaced.
        """
        self._check_transactional()
        life = self._transactions.life
        number = life.number
        with self._using():
            if life.state is not TransactionState.COMMITTING:
                life.move(TransactionState.SETTLING)
                await self._settled(awaits_entering=True)
                if life.number != number:
                    raise UsageError(
                        "somebody else has ended the transaction", ErrorCode.INVALID_TXN_STATE
                    )
                life.move(TransactionState.COMMITTING)
            await self._transactions.end(commit=True, number=number)

    async def abort_transaction(self) -> None:
        """Aborts the transaction; unsent records fail with `TransactionAborted`.

        It takes at most `max.block.ms`. After a cancellation or a retriable error, call it again.

        Raises:
            KafkaError: the producer has been replaced, or it is not known whether it is aborted.
        """
        self._check_transactional()
        number = self._transactions.life.number
        with self._using():
            self._transactions.life.move(TransactionState.ABORTING)
            limit = self._transactions.time_limit()
            # Even for records that were given up: they must not arrive behind the end of their
            # transaction.
            await self._answered_within(limit)
            await self._transactions.end(commit=False, number=number, limit=limit)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction for the length of an `async with` block: aborted if the block raises, or if
        it cannot be committed.

        If the end of an earlier one is unknown, it is ended first. While another task is in such a
        block, or ends a transaction, there can be none.

        Raises:
            KafkaError: it was not committed; retriable, if it is not known whether it was.
        """
        self._check_transactional()
        if self._in_use:
            raise UsageError(
                "another task is in a transaction of this producer", ErrorCode.INVALID_TXN_STATE
            )
        with self._using():
            await self._end_earlier()
            self.begin_transaction()
            number = self._transactions.life.number
            try:
                yield
                self._check_number(number)
                await self.commit_transaction()
            except BaseException:
                await self._end_for_another_error(number)
                raise

    async def _end_earlier(self) -> None:
        """Ends a transaction that was left open, if no task is in it."""
        state = self._transactions.life.state
        if state is TransactionState.COMMITTING:
            await self.commit_transaction()
        elif state in OPEN_STATES and state is not TransactionState.IN_TRANSACTION:
            await self.abort_transaction()

    async def _end_for_another_error(self, number: int) -> None:
        life = self._transactions.life
        if self._cluster.is_forked or life.number != number or life.state not in OPEN_STATES:
            return
        try:
            await self.abort_transaction()
        except KafkaError as error:
            # The next one sees to it, or the coordinator does.
            _LOGGER.warning("a transaction could not be aborted: %s", error)

    def _check_number(self, number: int) -> None:
        if self._transactions.life.number != number:
            raise UsageError(
                "the transaction of this block was ended in it, and another begun",
                ErrorCode.INVALID_TXN_STATE,
            )

    def _check_transactional(self) -> None:
        self._cluster.check_process()
        if not self._transactions.is_transactional:
            raise UsageError("transactions need a transactional.id", ErrorCode.INVALID_TXN_STATE)

    @contextmanager
    def _about_to_enter(self) -> Iterator[None]:
        """A commit waits for the calls in here."""
        self._entering += 1
        try:
            yield
        finally:
            self._entering -= 1
            self._idle.set()

    @contextmanager
    def _using(self) -> Iterator[None]:
        self._in_use += 1
        try:
            yield
        finally:
            self._in_use -= 1

    async def _answered_within(self, limit: TimeLimit) -> None:
        try:
            async with asyncio.timeout(limit.ms / 1000):
                await self._settled(awaits_answers=True)
        except TimeoutError:
            text = f"requests of the transaction were not answered within {limit}"
            raise RequestTimedOut(text) from None

    async def _settled(
        self, *, awaits_answers: bool = False, awaits_entering: bool = False
    ) -> None:
        raise NotImplementedError
