"""Queries that write exactly once, before a simulated cluster that keeps offsets of groups too.

Real: what tasks and drivers of Spark's sink do, `BatchTransaction` and `BatchCommit`, and all of a
client but its sockets and its clock. Made up: Spark, which repeats its last batch after a crash and
may cut it otherwise, repeats tasks, and runs one twice at once; and brokers that keep transactions
as Kafka's do. Runs are killed, also when they only seem to be dead and go on later; transactions
time out; a run begins beside another.

What has to hold: no row is committed twice, whatever happens; and when peace has come, a run that
cuts its batch as an earlier one did gets to the end, all rows are there, and no transaction is
open.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from unittest import mock

from tests.simulation.client.producing.client_producers import Brokers, _refusal
from tests.simulation.virtual import LoopClock, Network, VirtualLoop

from odradek.client.aio import cluster as cluster_module
from odradek.client.errors import FencedError, KafkaError
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.tables.errors import OutdatedQuery
from odradek.tables.write.batch_commit import BatchCommit
from odradek.tables.write.query_run import QueryRun
from odradek.tables.write.transaction import BatchTransaction, Content, Share

OFFSET_COMMIT, OFFSET_FETCH, ADD_OFFSETS, TXN_OFFSET_COMMIT, LIST_TRANSACTIONS = 8, 9, 25, 28, 66
MARKER = TopicPartition("t", 0)
BATCHES, ROWS = 12, 12
# How a batch may be cut: among so many tasks, and by a hash or by blocks.
CUTS = ((4, True), (4, False), (7, True), (2, False), (1, True))
ATTEMPTS = 4
TIMEOUT_MS = 60_000
TROUBLED_S = 120.0
PEACE_S = 600

Row = tuple[int, int]
Note = tuple[str, str, int]


class NoteKeepers(Brokers):
    """Brokers that keep offsets of groups, inside and outside of transactions, and rows."""

    served = Brokers.served | {
        OFFSET_COMMIT, OFFSET_FETCH, ADD_OFFSETS, TXN_OFFSET_COMMIT, LIST_TRANSACTIONS
    }  # fmt: skip

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.notes: dict[Note, tuple[int, str]] = {}
        self.rows: Counter[Row] = Counter()
        # Of each open transaction: notes and rows that come with its commit.
        self._pending: dict[str, dict[Note, tuple[int, str]]] = {}
        self._written: dict[str, list[Row]] = {}
        self._asked |= {OFFSET_FETCH: self._fetch, LIST_TRANSACTIONS: self._list}
        self._coordinated |= {
            OFFSET_COMMIT: self._commit,
            ADD_OFFSETS: self._add_offsets,
            TXN_OFFSET_COMMIT: self._commit_in_transaction,
        }

    def write(self, name: str, producer: tuple[int, int], rows: list[Row]) -> None:
        """Rows of an open transaction, from a producer that is not fenced."""
        known = self._known(name, *producer)
        if isinstance(known, ErrorCode) or not known.is_open:
            raise FencedError("fenced", ErrorCode.INVALID_PRODUCER_EPOCH)
        self._written.setdefault(name, []).extend(rows)

    def time_out(self, name: str) -> None:
        known = self.transactions[name]
        if known.is_open:
            self._fence(known)
            self._drop(name)

    def open_transactions(self) -> list[str]:
        return sorted(name for name, known in self.transactions.items() if known.is_open)

    def _drop(self, name: str) -> None:
        self._pending.pop(name, None)
        self._written.pop(name, None)

    def _init_producer_id(self, body: Any) -> dict[str, object]:
        self._drop(body.transactional_id)
        return super()._init_producer_id(body)

    def _end_txn(self, body: Any) -> dict[str, object]:
        name = body.transactional_id
        was_open = name in self.transactions and self.transactions[name].is_open
        answer = super()._end_txn(body)
        if was_open and not answer.get("error_code"):
            if body.committed:
                self.notes |= self._pending.get(name, {})
                self.rows.update(self._written.get(name, ()))
            self._drop(name)
        return answer

    def _ask_coordinator(self, key: int, body: Any, port: int) -> dict[str, object]:
        if key not in (OFFSET_COMMIT, TXN_OFFSET_COMMIT):
            return super()._ask_coordinator(key, body, port)
        if port != self.coordinator:
            return _per_partition(body, ErrorCode.NOT_COORDINATOR)
        if self.rng.random() < self.refusals:
            return _per_partition(body, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._coordinated[key](body)

    def _add_offsets(self, body: Any) -> dict[str, object]:
        known = self._known(body.transactional_id, body.producer_id, body.producer_epoch)
        if isinstance(known, ErrorCode):
            return _refusal(ADD_OFFSETS, body, known)
        if not known.is_open:
            known.number += 1
            known.is_open = True
        return {}

    def _commit_in_transaction(self, body: Any) -> dict[str, object]:
        known = self._known(body.transactional_id, body.producer_id, body.producer_epoch)
        if isinstance(known, ErrorCode):
            return _per_partition(body, known)
        if not known.is_open:
            return _per_partition(body, ErrorCode.INVALID_TXN_STATE)
        self._pending.setdefault(body.transactional_id, {}).update(_notes_of(body))
        return _per_partition(body, ErrorCode.NONE)

    def _commit(self, body: Any) -> dict[str, object]:
        self.notes |= _notes_of(body)
        return _per_partition(body, ErrorCode.NONE)

    def _fetch(self, body: Any, _host: str) -> dict[str, object]:
        groups = [
            {
                "group_id": group.group_id,
                "topics": [
                    {"name": name, "partitions": [self._fetched(note, body) for note in notes]}
                    for name, notes in self._asked_for(group)
                ],
            }
            for group in body.groups
        ]
        return {"groups": groups}

    def _asked_for(self, group: Any) -> list[tuple[str, list[Note]]]:
        if group.topics is None:
            # All that are there, which are of one topic.
            notes = [note for note in self.notes if note[0] == group.group_id]
            return [(MARKER.topic, notes)] if notes else []
        return [
            (topic.name, [(group.group_id, topic.name, index) for index in topic.partition_indexes])
            for topic in group.topics
        ]

    def _fetched(self, note: Note, body: Any) -> dict[str, object]:
        is_unstable = any(note in notes for notes in self._pending.values())
        waits = body.require_stable and is_unstable
        offset, metadata = self.notes.get(note, (-1, ""))
        return {
            "partition_index": note[2],
            "committed_offset": offset,
            "metadata": metadata,
            "error_code": ErrorCode.UNSTABLE_OFFSET_COMMIT if waits else ErrorCode.NONE,
        }

    def _list(self, _body: Any, _host: str) -> dict[str, object]:
        states = [
            {"transactional_id": name, "producer_id": 1, "transaction_state": "Ongoing"}
            for name in self.open_transactions()
        ]
        return {"transaction_states": states}


def _notes_of(body: Any) -> dict[Note, tuple[int, str]]:
    return {
        (body.group_id, topic.name, each.partition_index): (
            each.committed_offset,
            each.committed_metadata or "",
        )
        for topic in body.topics
        for each in topic.partitions
    }


def _per_partition(body: Any, code: ErrorCode) -> dict[str, object]:
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": each.partition_index, "error_code": code}
                for each in topic.partitions
            ],
        }
        for topic in body.topics
    ]
    return {"topics": topics}


class Checkpoint:
    """Spark's: which batches are done."""

    def __init__(self) -> None:
        self.done = -1


class Driver(BatchCommit):
    """A driver that may be held up between any two of its steps."""

    pause: Callable[[], Awaitable[None]]

    async def _check_cut(self, *arguments: Any) -> None:
        await self.pause()
        await super()._check_cut(*arguments)
        await self.pause()

    async def _write_cut(self, *arguments: Any) -> None:
        await super()._write_cut(*arguments)
        await self.pause()


class SparkRun:
    """A query that was started, from its checkpoint to its death."""

    def __init__(self, story: "Story", number: int, checkpoint: Checkpoint, cut: int) -> None:
        self.story = story
        self.host = f"run-{number}"
        self.checkpoint = checkpoint
        self.cut = CUTS[cut]
        self.query_run = QueryRun("q", "c", self.host, MARKER)
        self.rng = random.Random(story.rng.random())
        self.failure: BaseException | None = None
        self.attempts: set[asyncio.Task[Share]] = set()
        # A process each: the driver's, and that of every attempt.
        self.hosts = [self.host]

    async def work(self) -> None:
        """Batch after batch, until one fails or all are done."""
        try:
            while self.checkpoint.done < self.story.batches - 1:
                await self._batch(self.checkpoint.done + 1)
        except (KafkaError, OutdatedQuery) as error:
            self.failure = error

    async def _batch(self, batch_id: int) -> None:
        shares = await asyncio.gather(
            *(self._task(batch_id, task, rows) for task, rows in enumerate(self._pieces(batch_id)))
        )
        driver = Driver(
            f"{self.host}:1", self.query_run, timeout_ms=TIMEOUT_MS, may_lack_records=False
        )
        driver.pause = self._pause
        await self._pause()
        try:
            await driver._commit(batch_id, shares)
        except BaseException:
            with suppress(KafkaError, OutdatedQuery, TimeoutError):
                await driver._abort(shares)
            raise
        await self._pause()
        self.checkpoint.done = max(self.checkpoint.done, batch_id)

    def _pieces(self, batch_id: int) -> list[list[Row]]:
        tasks, by_hash = self.cut
        pieces: list[list[Row]] = [[] for _ in range(tasks)]
        for row in range(ROWS):
            # Some tasks have nothing.
            task = (row * 5 + batch_id) % 11 if by_hash else row * tasks // ROWS
            pieces[task % tasks].append((batch_id, row))
        return pieces

    async def _task(self, batch_id: int, task: int, rows: list[Row]) -> Share:
        """Attempts one after the other; sometimes two at once, of which the first counts."""
        for number in range(ATTEMPTS):
            attempts = {self._begin(batch_id, task, rows, number)}
            if self.story.is_troubled and self.rng.random() < 0.1:
                await self._pause()
                attempts.add(self._begin(batch_id, task, rows, number + ATTEMPTS))
            while attempts:
                done, attempts = await asyncio.wait(attempts, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    if each.exception() is None:
                        for other in attempts:
                            other.cancel()
                        return each.result()
                    failure = each.exception()
        assert failure is not None
        raise failure

    def _begin(
        self, batch_id: int, task: int, rows: list[Row], number: int
    ) -> "asyncio.Task[Share]":
        work = self._attempt(batch_id, task, rows, f"{self.host}-{batch_id}-{task}-{number}")
        attempt = asyncio.create_task(work)
        self.attempts.add(attempt)
        return attempt

    async def _attempt(self, batch_id: int, task: int, rows: list[Row], host: str) -> Share:
        if not rows:
            return Share(task, Content())
        self.hosts.append(host)
        content = Content(len(rows), sum(1 << (row % 64) for _, row in rows))
        share = BatchTransaction(f"{host}:1", self.query_run, task, timeout_ms=TIMEOUT_MS)
        try:
            await self._pause()
            if not await share._begin(batch_id):
                return share.repeated(content)
            await share._manager.add_partitions([MARKER])  # type: ignore[union-attr]
            for row in rows:
                await self._pause()
                self.story.brokers.write(share.transactional_id, share.producer(), [row])
            await share._prepare(batch_id, content)
            if self.story.is_troubled and self.rng.random() < 0.05:
                raise KafkaError(
                    "its executor is lost with what it said", ErrorCode.NETWORK_EXCEPTION
                )
            return Share(task, content, share.producer())
        finally:
            await share._close()

    async def _pause(self) -> None:
        """A moment; seldom so long that others take it for dead."""
        chance = self.rng.random() if self.story.is_troubled else 1.0
        await asyncio.sleep(self.rng.random() * (40 if chance < 0.02 else 0.05))


class Story:
    """Runs of one query, what happens to them, and what they have written."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.brokers = NoteKeepers(self.rng)
        self.network = Network(self.rng, self.brokers.serve)
        self.is_troubled = True
        self.runs: dict[SparkRun, asyncio.Task[None]] = {}
        self.checkpoint = Checkpoint()
        self.batches = BATCHES

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.network = self.network
        self.network.trouble = self.brokers.refusals = self.rng.choice((0.0, 0.01, 0.03))
        end_s = loop.time() + TROUBLED_S
        while loop.time() < end_s:
            if not any(not task.done() for task in self.runs.values()) or self.rng.random() < 0.08:
                self.begin(self.rng.randrange(len(CUTS)))
            await asyncio.sleep(self.rng.random() * 3)
            await self._misfortune()
            self.check()
        self.is_troubled = False
        # With something to do for the last run it ends what those before have left.
        self.batches += 1
        self.network.trouble = self.brokers.refusals = 0.0
        async with asyncio.timeout(PEACE_S):
            await self._come_to_an_end()
        self.check()
        assert self.brokers.open_transactions() == []
        expected = Counter((batch, row) for batch in range(self.batches) for row in range(ROWS))
        assert self.brokers.rows == expected, "everything is there once"

    def begin(self, cut: int) -> SparkRun:
        run = SparkRun(self, len(self.runs), self.checkpoint, cut)
        self.runs[run] = asyncio.create_task(run.work())
        return run

    def check(self) -> None:
        doubled = sorted(row for row, count in self.brokers.rows.items() if count > 1)
        assert not doubled, f"there twice: {doubled}"

    async def _come_to_an_end(self) -> None:
        """Somebody starts the query again, if need be once as it was cut before."""
        for run in self.runs:
            await self._kill(run)
        failures = []
        for cut in range(len(CUTS)):
            run = self.begin(cut)
            await self.runs[run]
            if run.failure is None:
                break
            failures.append(run.failure)
        else:
            raise AssertionError(f"no cut is the one there was: {failures}")
        assert self.checkpoint.done == self.batches - 1

    async def _kill(self, run: SparkRun) -> None:
        """Kills a run: its hosts are cut off, and its tasks cancelled."""
        for host in run.hosts:
            self.network.cut(host)
        self.runs[run].cancel()
        for attempt in run.attempts:
            attempt.cancel()
        await asyncio.wait([self.runs[run]])

    async def _misfortune(self) -> None:
        chance = self.rng.random()
        alive = [run for run, task in self.runs.items() if not task.done()]
        if chance < 0.2 and alive:
            await self._kill(self.rng.choice(alive))
        elif chance < 0.3:
            self.brokers.coordinator = self.rng.choice((1, 2, 3))
        elif chance < 0.35 and self.brokers.transactions:
            self.brokers.time_out(self.rng.choice(sorted(self.brokers.transactions)))


def play(seed: int) -> Story:
    """A whole story; the same for the same seed."""

    async def scenario() -> Story:
        loop, rng = asyncio.get_running_loop(), random.Random(seed)
        with (
            mock.patch.object(cluster_module, "SystemClock", return_value=LoopClock(loop)),
            mock.patch.object(cluster_module, "random", **{"Random.return_value": rng}),
        ):
            story = Story(seed)
            await story.run()
            return story

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scenario())
