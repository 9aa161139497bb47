"""Whole producers of ours before a simulated cluster, with several tasks each, and checkers.

Everything of a client is real but its sockets and its clock. Brokers are logs that check sequences,
epochs and transactions as Kafka's do, and lists of who leads what. Requests are lost, late, or
answered in vain, connections break or go silent, leaders and the coordinator move, batches are
refused, calls are cancelled, topics are unknown for a while or forbidden, producers are closed in
the midst of all that. One topic, to which nobody writes in transactions, is made anew, or
loses the end of its logs. What was promised is compared with what the logs have.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from tests.simulation.virtual import Connection, LoopClock, Network, VirtualLoop

from odradek.client import CommittedOffset, GroupMetadata, Producer
from odradek.client.core.producing.transaction_state import TransactionState
from odradek.client.errors import (
    FencedError,
    KafkaError,
    TransactionAborted,
    UsageError,
)
from odradek.client.record_metadata import RecordMetadata
from odradek.errors import ErrorCode
from odradek.handlers.table import API_TABLE
from odradek.model import TopicPartition
from odradek.protocol import messages
from odradek.protocol.direct.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopicResponse,
    decode_produce_request,
    encode_produce_response,
)
from odradek.protocol.header import (
    decode_request_header,
    encode_response_header,
    response_header_version,
)
from odradek.records.batch import BatchHeader, parse_header
from odradek.records.reader import iter_records

TOPICS = ("t", "u")
LOSING = "v"
ALL_TOPICS = (*TOPICS, LOSING)
PARTITIONS = 2
BROKERS = (1, 2, 3)
PRODUCE, METADATA, FIND_COORDINATOR, API_VERSIONS = 0, 3, 10, 18
INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 28
SERVED = {
    PRODUCE, METADATA, FIND_COORDINATOR, API_VERSIONS, INIT_PRODUCER_ID, ADD_PARTITIONS,
    ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT,
}  # fmt: skip
FLEXIBLE_FROM = {api.key: api.flexible_from for api in API_TABLE.values()}
REMEMBERED = 5
TOO_LARGE = b"!"
DELIVERY_TIMEOUT_MS = 6_000
SLACK_MS = 100
PEACE_S = 60
MAX_BLOCK_MS = 5_000
# What closing takes without a limit: the records' time, and that of a transaction's end.
CLOSED_AFTER_MS = DELIVERY_TIMEOUT_MS + MAX_BLOCK_MS + SLACK_MS
BEFORE_APPEND = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.INVALID_RECORD,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
NO_MEMBER = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
)
NO_TOPIC = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
AFTER_APPEND = (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)
SETTINGS: dict[str, object] = {
    "request.timeout.ms": 1_500,
    "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
    "max.block.ms": MAX_BLOCK_MS,
    "socket.connection.setup.timeout.ms": 1_000,
    "socket.connection.setup.timeout.max.ms": 1_000,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "metadata.max.age.ms": 4_000,
}

Where = tuple[str, int]


class Entry(NamedTuple):
    """A record in a log; of which transaction."""

    value: bytes
    transaction: tuple[str, int] | None


class ProducerInLog:
    """A producer's state at a partition's leader."""

    def __init__(self, epoch: int, next_sequence: int) -> None:
        self.epoch = epoch
        self.next_sequence = next_sequence
        self.recent: deque[tuple[int, int, int]] = deque(maxlen=REMEMBERED)


class PartitionLog:
    """A partition, which every broker has; one of them leads."""

    def __init__(self) -> None:
        self.leader = 1
        self.leader_epoch = 0
        self.entries: list[Entry] = []
        self.batches: list[tuple[BatchHeader, int]] = []
        self.producers: dict[int, ProducerInLog] = {}
        self.lost: list[list[Entry]] = []  # what it had when it lost something
        self.unsettled = 0  # so many batches may be refused: its brokers hear of it one by one

    def cut_to(self, count: int) -> None:
        """It has so many batches left."""
        self.lost.append(self.entries)
        kept, self.batches, self.producers = self.batches[:count], [], {}
        self.entries = self.entries[: self.batches_end(kept)]
        for header, offset in kept:
            self._note(header, offset)

    @staticmethod
    def batches_end(batches: list[tuple[BatchHeader, int]]) -> int:
        return batches[-1][1] + batches[-1][0].record_count if batches else 0

    def has_had(self, value: bytes, offset: int) -> bool:
        """Whether a record is there, or was when it lost it."""
        return any(
            value in [each.value for each in (known if offset < 0 else known[offset : offset + 1])]
            for known in (self.entries, *self.lost)
        )

    def append(
        self, header: BatchHeader, values: list[bytes], transaction: tuple[str, int] | None
    ) -> tuple[ErrorCode, int]:
        """Appends a batch, or refuses it; returns the error and the offset."""
        first, count = header.base_sequence, header.record_count
        known = self.producers.get(header.producer_id)
        if known is not None and header.producer_id >= 0:
            if header.producer_epoch < known.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if header.producer_epoch > known.epoch:
                if first != 0:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
                known = None
        if known is not None and header.producer_id >= 0:
            for sequence, length, offset in known.recent:
                if (sequence, length) == (first, count):
                    return ErrorCode.NONE, offset
            if first != known.next_sequence:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = len(self.entries)
        self._note(header, offset)
        self.entries += [Entry(value, transaction) for value in values]
        return ErrorCode.NONE, offset

    def _note(self, header: BatchHeader, offset: int) -> None:
        """Notes a batch in the log. An unknown producer may begin anywhere, as with Kafka."""
        first, count = header.base_sequence, header.record_count
        known = self.producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = ProducerInLog(header.producer_epoch, first)
            self.producers[header.producer_id] = known
        known.next_sequence = first + count
        known.recent.append((first, count, offset))
        self.batches.append((header, offset))


class Transactions:
    """The coordinator's state of a transactional id. `outcomes` are those of its transactions, by
    their numbers: True for a commit. `owner` is the client that was the last to begin.
    """

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = -1
        self.last_epoch = -1
        self.number = 0
        self.is_open = False
        self.partitions: set[Where] = set()
        self.groups: set[str] = set()
        self.outcomes: dict[int, bool] = {}
        self.owner: str | None = None

    def open(self) -> None:
        if not self.is_open:
            self.number += 1
            self.is_open = True

    def end(self, is_commit: bool) -> None:
        self.outcomes[self.number] = is_commit
        self.is_open = False
        self.partitions, self.groups = set(), set()


class Brokers:
    """Three brokers."""

    served = frozenset(SERVED)

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.logs = {(t, index): PartitionLog() for t in ALL_TOPICS for index in range(PARTITIONS)}
        self.topic_ids = {topic: UUID(int=number) for number, topic in enumerate(ALL_TOPICS, 1)}
        self.coordinator = 1
        self.transactions: dict[str, Transactions] = {}
        self.commits: list[tuple[int, tuple[str, int]]] = []  # offsets, of which transaction
        self.refusals = 0.0
        self.throttle_time_ms = 0
        self.newest = {PRODUCE: 11}  # topics by name are enough here
        self._producer_ids = 100
        self._asked: dict[int, Callable[[Any, str], dict[str, object]]] = {
            METADATA: self._metadata,
            FIND_COORDINATOR: self._find,
            API_VERSIONS: self._versions,
        }
        self._coordinated: dict[int, Callable[[Any], dict[str, object]]] = {
            INIT_PRODUCER_ID: self._init_producer_id,
            ADD_PARTITIONS: self._add_partitions,
            ADD_OFFSETS: self._add_offsets,
            TXN_OFFSET_COMMIT: self._txn_offset_commit,
            END_TXN: self._end_txn,
        }

    def move_leader(self) -> None:
        log = self.logs[self.rng.choice(sorted(self.logs))]
        log.leader = self.rng.choice([*(each for each in BROKERS if each != log.leader), -1])
        log.leader_epoch += 1

    def make_anew(self, topic: str) -> None:
        """Another topic of the same name, to which nothing was ever written."""
        self.topic_ids[topic] = UUID(int=self.topic_ids[topic].int + 100)
        for index in range(PARTITIONS):
            self.logs[topic, index].cut_to(0)
            self.logs[topic, index].unsettled = self.rng.randrange(6)

    def lose_end(self, topic: str) -> None:
        """Somebody leads who does not have all that was acknowledged."""
        log = self.logs[topic, self.rng.randrange(PARTITIONS)]
        log.cut_to(max(0, len(log.batches) - self.rng.randint(1, 4)))

    def elect_all(self) -> None:
        """There are no partitions without a leader any more."""
        for log in self.logs.values():
            if log.leader < 0:
                log.leader, log.leader_epoch = 1, log.leader_epoch + 1

    def serve(self, connection: Connection, frame: bytes, answer: Callable[[bytes], None]) -> None:
        """Serves a request to the broker that listens at the connection's port."""
        header = decode_request_header(memoryview(frame), FLEXIBLE_FROM)
        key, version = header.api_key, header.api_version
        view = memoryview(frame)
        if key == PRODUCE:
            request = decode_produce_request(view, version, header.body_position)
            topics = [
                ProduceTopicResponse(
                    topic.name,
                    topic.topic_id,
                    [
                        self._append(connection.port, topic.name or "", each)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
            response = ProduceResponse(topics, self.throttle_time_ms)
            encoded = encode_produce_response(response, version, header.correlation_id)
            answer(encoded if request.acks else b"")
            return
        body = messages.decode_request(key, version, view, header.body_position)
        if key in self._asked:
            values = self._asked[key](body, connection.host)
        elif not connection.is_open:
            # Its sender has given it up, asked again, and may have gone on to its next transaction:
            # nothing in these versions of the protocol tells the two (KIP-890).
            return
        else:
            values = self._ask_coordinator(key, body, connection.port)
            if key == INIT_PRODUCER_ID and not values.get("error_code"):
                self._note_owner(body, header.client_id)
        header_version = response_header_version(key, version, FLEXIBLE_FROM[key])
        head = encode_response_header(header.correlation_id, header_version)
        answer(head + messages.encode_response(key, version, values))

    # --- records ----------------------------------------------------------------------------

    def _append(self, port: int, topic: str, sent: ProducePartition) -> ProducePartitionResponse:
        log = self.logs[topic, sent.index]
        if log.leader != port:
            return ProducePartitionResponse(sent.index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        data = bytes(sent.records or b"")
        header = parse_header(data)
        values = [bytes(record.value or b"") for record in iter_records(data, check_crc=True)]
        chance, refusals = self.rng.random(), self.refusals
        if refusals and log.unsettled:
            log.unsettled -= 1
            refusals = 0.3
        if chance < refusals:
            return ProducePartitionResponse(sent.index, self.rng.choice(BEFORE_APPEND))
        if (len(values) > 1 and len(data) > 300) or TOO_LARGE in values[0]:
            return ProducePartitionResponse(sent.index, ErrorCode.MESSAGE_TOO_LARGE)
        transaction = None
        if header.is_transactional:
            transaction = self._verified(header, (topic, sent.index))
            if transaction is None:
                return ProducePartitionResponse(sent.index, ErrorCode.INVALID_TXN_STATE)
        code, offset = log.append(header, values, transaction)
        if code == ErrorCode.NONE and chance < 2 * refusals:
            return ProducePartitionResponse(sent.index, self.rng.choice(AFTER_APPEND))
        return ProducePartitionResponse(sent.index, code, offset)

    def _verified(self, header: BatchHeader, where: Where) -> tuple[str, int] | None:
        """The transaction of a batch, as leaders ask the coordinator since Kafka 3.6."""
        for name, known in self.transactions.items():
            if known.producer_id == header.producer_id:
                is_current = known.is_open and header.producer_epoch == known.epoch
                return (name, known.number) if is_current and where in known.partitions else None
        return None

    # --- the coordinator --------------------------------------------------------------------

    def _ask_coordinator(self, key: int, body: Any, port: int) -> dict[str, object]:
        name = getattr(body, "transactional_id", None) or getattr(
            body, "v3_and_below_transactional_id", None
        )
        if name is not None and port != self.coordinator:
            return _refusal(key, body, ErrorCode.NOT_COORDINATOR)
        chance = self.rng.random()
        if chance < self.refusals / 20:
            nobodys = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return _refusal(key, body, nobodys if name else ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if chance < self.refusals:
            code = self.rng.choice(
                (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            )
            return _refusal(key, body, code)
        return self._coordinated[key](body)

    def _init_producer_id(self, body: Any) -> dict[str, object]:
        name = body.transactional_id
        if name is None or name not in self.transactions:
            self._producer_ids += 1
        if name is None:
            return {"producer_id": self._producer_ids, "producer_epoch": 0}
        known = self.transactions.setdefault(name, Transactions(self._producer_ids))
        if body.producer_id >= 0:
            return self._bump(known, body.producer_epoch)
        if known.is_open:
            self._fence(known)
        known.epoch, known.last_epoch = known.epoch + 1, -1
        return {"producer_id": known.producer_id, "producer_epoch": known.epoch}

    def _bump(self, known: Transactions, epoch: int) -> dict[str, object]:
        """The next epoch, for whoever has the last one. Its open transaction is in the way: it is
        aborted, and nobody's epoch is left then, as with Kafka."""
        if known.is_open and epoch in (known.epoch, known.last_epoch):
            self._fence(known)
        if epoch not in (known.epoch, known.last_epoch):
            return {"error_code": ErrorCode.PRODUCER_FENCED}
        if epoch == known.epoch:  # else it is asked again
            known.epoch, known.last_epoch = epoch + 1, epoch
        return {"producer_id": known.producer_id, "producer_epoch": known.epoch}

    def _note_owner(self, body: Any, client_id: str | None) -> None:
        if body.transactional_id is not None and body.producer_id < 0:
            self.transactions[body.transactional_id].owner = client_id

    def _fence(self, known: Transactions) -> None:
        known.epoch, known.last_epoch = known.epoch + 1, -1
        for where in known.partitions:
            state = self.logs[where].producers.get(known.producer_id)
            if state is not None:
                state.epoch, state.next_sequence = known.epoch, 0
                state.recent.clear()
        known.end(False)

    def _known(self, name: str, producer_id: int, epoch: int) -> Transactions | ErrorCode:
        known = self.transactions.get(name)
        if known is None or known.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return known if known.epoch == epoch else ErrorCode.PRODUCER_FENCED

    def _add_partitions(self, body: Any) -> dict[str, object]:
        known = self._known(
            body.v3_and_below_transactional_id,
            body.v3_and_below_producer_id,
            body.v3_and_below_producer_epoch,
        )
        if isinstance(known, ErrorCode):
            return _refusal(ADD_PARTITIONS, body, known)
        known.open()
        for topic in body.v3_and_below_topics:
            known.partitions |= {(topic.name, index) for index in topic.partitions}
        return _refusal(ADD_PARTITIONS, body, ErrorCode.NONE)

    def _add_offsets(self, body: Any) -> dict[str, object]:
        known = self._known(body.transactional_id, body.producer_id, body.producer_epoch)
        if isinstance(known, ErrorCode):
            return {"error_code": known}
        known.open()
        known.groups.add(body.group_id)
        return {}

    def _txn_offset_commit(self, body: Any) -> dict[str, object]:
        """Offsets are in the log of their group; whose transaction is not open there is refused."""
        known = self._known(body.transactional_id, body.producer_id, body.producer_epoch)
        if isinstance(known, ErrorCode):
            return _refusal(TXN_OFFSET_COMMIT, body, known)
        if not known.is_open or body.group_id not in known.groups:
            return _refusal(TXN_OFFSET_COMMIT, body, ErrorCode.INVALID_TXN_STATE)
        if self.rng.random() < 2 * self.refusals:
            return _refusal(TXN_OFFSET_COMMIT, body, self.rng.choice(NO_MEMBER))
        for topic in body.topics:
            for each in topic.partitions:
                commit = body.transactional_id, known.number
                self.commits.append((each.committed_offset, commit))
        return _refusal(TXN_OFFSET_COMMIT, body, ErrorCode.NONE)

    def _end_txn(self, body: Any) -> dict[str, object]:
        known = self._known(body.transactional_id, body.producer_id, body.producer_epoch)
        if isinstance(known, ErrorCode):
            return {"error_code": known}
        if known.is_open:
            known.end(body.committed)
        elif known.outcomes.get(known.number) is not body.committed:
            return {"error_code": ErrorCode.INVALID_TXN_STATE}
        return {}

    # --- what any broker knows --------------------------------------------------------------

    def _metadata(self, _body: Any, host: str) -> dict[str, object]:
        topics = [self._topic(each) for each in ALL_TOPICS]
        brokers = [{"node_id": each, "host": host, "port": each} for each in BROKERS]
        return {"brokers": brokers, "controller_id": 1, "topics": topics}

    def _topic(self, topic: str) -> dict[str, object]:
        if self.rng.random() < self.refusals:
            return {"name": topic, "error_code": self.rng.choice(NO_TOPIC), "partitions": []}
        partitions = [
            {
                "partition_index": index,
                "leader_id": log.leader,
                "leader_epoch": log.leader_epoch,
                "replica_nodes": list(BROKERS),
                "isr_nodes": list(BROKERS),
                "error_code": ErrorCode.LEADER_NOT_AVAILABLE if log.leader < 0 else 0,
            }
            for (name, index), log in self.logs.items()
            if name == topic
        ]
        return {"name": topic, "topic_id": self.topic_ids[topic], "partitions": partitions}

    def _find(self, body: Any, host: str) -> dict[str, object]:
        [name] = body.coordinator_keys
        found = {"key": name, "node_id": self.coordinator, "host": host, "port": self.coordinator}
        return {"coordinators": [found]}

    def _versions(self, _body: Any, _host: str) -> dict[str, object]:
        ranges = [
            {
                "api_key": api.key,
                "min_version": api.min_version,
                "max_version": self.newest.get(api.key, api.max_version),
            }
            for api in API_TABLE.values()
            if api.key in self.served
        ]
        return {"api_keys": ranges}


def _refusal(key: int, body: Any, code: ErrorCode) -> dict[str, object]:
    if key == TXN_OFFSET_COMMIT:
        return {"topics": [_refused_commits(topic, code) for topic in body.topics]}
    if key != ADD_PARTITIONS:
        return {"error_code": code}
    topics = [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": code}
                for index in topic.partitions
            ],
        }
        for topic in body.v3_and_below_topics
    ]
    return {"results_by_topic_v3_and_below": topics}


def _refused_commits(topic: Any, code: ErrorCode) -> dict[str, object]:
    partitions = [
        {"partition_index": each.partition_index, "error_code": code} for each in topic.partitions
    ]
    return {"name": topic.name, "partitions": partitions}


class Sent(NamedTuple):
    """A record that was taken: in which transaction, and what is told of it."""

    value: bytes
    transaction: int
    delivery: "asyncio.Future[Any]"
    index: int | None = None

    def place(self) -> RecordMetadata | None:
        """Where it is, if that is known and well."""
        if self.delivery.cancelled() or self.delivery.exception() is not None:
            return None
        result = self.delivery.result()
        return result if self.index is None else result[self.index]


class Life:
    """A producer and the tasks that use it."""

    def __init__(self, story: "Story", name: str, transactional_id: str | None) -> None:
        self.story = story
        self.name = name
        self.rng = random.Random(story.rng.random())
        settings = {
            **SETTINGS,
            "client.id": name,
            "linger.ms": self.rng.choice((0, 5, 50)),
            "batch.size": self.rng.choice((1, 150, 1_000)),
            "buffer.memory": self.rng.choice((400, 2_000, 100_000)),
            "max.in.flight.requests.per.connection": self.rng.choice((1, 2, 5)),
        }
        self.acks = "all"
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        elif self.rng.random() < 0.3:
            self.acks = self.rng.choice(("0", "1"))
            settings |= {"acks": self.acks, "enable.idempotence": False}
        self.transactional_id = transactional_id
        self.topics = ALL_TOPICS if transactional_id is None else TOPICS
        self.producer = Producer(
            ",".join(f"{name}:{each}" for each in BROKERS),
            settings,
            clock=LoopClock(asyncio.get_running_loop()),
            rng=random.Random(self.rng.random()),
        )
        self.sent: list[Sent] = []
        self.refused: set[bytes] = set()
        self.offsets: dict[int, set[int]] = {}  # that were taken, by transaction
        self.incomplete: set[int] = set()  # transactions of which something was refused
        self.meddled: set[int] = set()  # that a side task may have ended
        self.outcomes: dict[int, str] = {}
        self.numbers = 0
        self.is_ending = self.is_closed = False
        work = [self._send_on] if transactional_id is None else [self._transact]
        self.tasks = [asyncio.create_task(each("main")) for each in work]
        self.tasks += [asyncio.create_task(self._send_on(f"side{n}")) for n in range(2)]

    @property
    def life(self) -> Any:
        return self.producer._transactions.life

    # --- what its tasks do ------------------------------------------------------------------

    async def _send_on(self, task: str) -> None:
        while not (self.is_ending or self.is_closed):
            with suppress(KafkaError):
                await self._perhaps_cancelled(self._send_some(task))
            await asyncio.sleep(self.rng.random() * 0.3)

    async def _send_some(self, task: str) -> None:
        chance = self.rng.random()
        if self.transactional_id is not None and chance > 0.75:
            await self._send_offsets()
        elif self.transactional_id is not None and chance > 0.7 and task != "main":
            await self._meddle()
        elif self.transactional_id is not None and chance > 0.67 and task != "main":
            await self._open_beside(task)
        elif 0.66 < chance < 0.662 and task != "main":
            await self._close()
        elif chance < 0.1:
            await self.producer.flush()
        elif chance < 0.3:
            await self._send_many(task)
        else:
            await self._send(task)

    def _value(self, task: str) -> bytes:
        self.numbers += 1
        mark = TOO_LARGE if self.rng.random() < 0.02 and task != "last" else b""
        return b"%s/%s/%06d" % (self.name.encode(), task.encode(), self.numbers) + mark

    async def _send(self, task: str) -> None:
        value, number, is_open = self._value(task), self.life.number, self._is_open()
        topic, partition = self.rng.choice(self.topics), self.rng.choice((None, 0, 1))
        self.refused.add(value)
        try:
            delivery = await self.producer.send(topic, value, partition=partition)
        except asyncio.CancelledError:
            self.refused.discard(value)
            raise
        except KafkaError as error:
            self._lacks(number, error, was_begun=is_open)
            raise
        self.refused.discard(value)
        self._took(Sent(value, number, delivery))

    async def _send_many(self, task: str) -> None:
        values = [self._value(task) for _ in range(self.rng.randint(1, 6))]
        number = self.life.number
        self.refused.update(values)  # who is cancelled has sent a part: that is not committed
        delivery = await self.producer.send_many(self.rng.choice(self.topics), values)
        self.refused.difference_update(values)
        for index, value in enumerate(values):
            self._took(Sent(value, number, delivery, index), is_first=index == 0)

    async def _send_offsets(self) -> None:
        self.story.offsets += 1
        offset, number, is_open = self.story.offsets, self.life.number, self._is_open()
        offsets = {TopicPartition("in", 0): CommittedOffset(offset)}
        group = GroupMetadata(self.name)
        try:
            await self._in_time(self.producer.send_offsets_to_transaction(offsets, group))
        except (KafkaError, asyncio.CancelledError) as error:
            self._lacks(number, error, was_begun=is_open)
            raise
        self.offsets.setdefault(number, set()).add(offset)

    def _is_open(self) -> bool:
        return not self.is_closed and self.life.state is TransactionState.IN_TRANSACTION

    def _lacks(self, number: int, error: BaseException, *, was_begun: bool) -> None:
        """A call failed: its transaction is not to be committed, unless it had ended before, as it
        may have with whoever is fenced. Nothing is refused that was begun in it. A producer whose
        end was refused for good may have been the first to commit."""
        is_over = isinstance(error, UsageError) or self.life.state is TransactionState.FATAL
        is_late = is_over and not was_begun
        if not (is_late or isinstance(error, TransactionAborted | FencedError)):
            self.incomplete.add(number)

    async def _meddle(self) -> None:
        """Ends a transaction that another task has begun."""
        number, is_commit = self.life.number, self.rng.random() < 0.7
        self.meddled.add(number)
        if is_commit:
            await self.producer.commit_transaction()
        else:
            await self._in_time(self.producer.abort_transaction())
        self.outcomes[number] = "committed" if is_commit else "aborted"

    async def _in_time(self, work: Coroutine[Any, Any, None]) -> None:
        """A call of a transaction takes `max.block.ms` at most, whatever others do meanwhile."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        try:
            await work
        finally:
            took_ms = (loop.time() - begun_s) * 1000
            self.story.check(took_ms <= MAX_BLOCK_MS + SLACK_MS, f"{work} took {took_ms} ms")

    async def _open_beside(self, task: str) -> None:
        """Opens a transaction that the main task knows nothing of, as any task may end it."""
        self.producer.begin_transaction()
        self.meddled.add(self.life.number)
        for _ in range(self.rng.randrange(3)):
            await self.rng.choice((lambda: self._send(task), self._send_offsets))()
        await self._meddle()

    async def _close(self) -> None:
        """Ends the producer while its tasks go on."""
        self.is_closed = True
        loop = asyncio.get_running_loop()
        timeout_ms = self.rng.choice((None, 0, 500, 5_000))
        limit_ms = CLOSED_AFTER_MS if timeout_ms is None else timeout_ms + SLACK_MS
        begun_s = loop.time()
        await asyncio.shield(self.producer.close(timeout_ms=timeout_ms))
        took_ms = (loop.time() - begun_s) * 1000
        self.story.check(took_ms <= limit_ms, f"close({timeout_ms}) took {took_ms} ms")

    def _took(self, sent: Sent, *, is_first: bool = True) -> None:
        self.sent.append(sent)
        if is_first:
            loop = asyncio.get_running_loop()
            late_s = loop.time() + (DELIVERY_TIMEOUT_MS + SLACK_MS) / 1000
            sent.delivery.add_done_callback(
                lambda _: self.story.check(loop.time() <= late_s, f"{sent.value!r} ended late")
            )

    async def _perhaps_cancelled(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        if self.story.network.trouble and self.rng.random() < 0.1:
            await asyncio.wait([task], timeout=self.rng.random())
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def _transact(self, task: str) -> None:
        while not self.is_ending:
            await asyncio.sleep(self.rng.random() * 0.2)
            if self.is_closed or self.life.state is TransactionState.FATAL:
                return
            with suppress(KafkaError):
                if self.life.state in (
                    TransactionState.UNINITIALIZED,
                    TransactionState.INITIALIZING,
                ):
                    await self._perhaps_cancelled(self.producer.init_transactions())
                else:
                    await self._perhaps_cancelled(self._one_transaction(task))

    async def _one_transaction(self, task: str) -> None:
        number = -1
        try:
            async with self.producer.transaction():
                number = self.life.number
                for _ in range(self.rng.randrange(5)):
                    await self._send_some(task)
                    await asyncio.sleep(self.rng.random() * 0.2)
                if self.rng.random() < 0.2:
                    raise ZeroDivisionError
            self.outcomes[number] = "committed"
        except ZeroDivisionError:
            self._ended_badly(number)
        except (KafkaError, asyncio.CancelledError):
            self._ended_badly(number)
            raise

    def _ended_badly(self, number: int) -> None:
        # Whoever is fenced may have committed before that.
        unknown = (TransactionState.COMMITTING, TransactionState.FATAL)
        if number >= 0 and number not in self.meddled and self.life.state not in unknown:
            self.outcomes[number] = "aborted"

    async def end(self) -> None:
        """Its tasks come to their end, and all that was taken is decided."""
        self.is_ending = True
        await asyncio.gather(*self.tasks)
        await self.producer.flush()
        if self.transactional_id and self._may_go_on():
            try:
                if self.life.state is TransactionState.IN_TRANSACTION:
                    await self.producer.abort_transaction()
                async with self.producer.transaction():
                    number = self.life.number
                    await self._send("last")
                self.outcomes[number] = "committed"
            except KafkaError:
                # A leader that refuses its record may be the first to know that it was fenced.
                if self.life.state is not TransactionState.FATAL:
                    raise
        await self.producer.close()

    def check_fencing(self) -> None:
        """A producer that was fenced has a successor: none fences itself."""
        if isinstance(self.life.error, FencedError):
            owner = self.story.brokers.transactions[str(self.transactional_id)].owner
            self.story.check(owner != self.name, f"{self.name} fenced itself")

    def _may_go_on(self) -> bool:
        return not self.is_closed and self.life.state is not TransactionState.FATAL

    # --- what must hold ---------------------------------------------------------------------

    def check(self) -> None:
        self.check_fencing()
        logs, check = self.story.brokers.logs, self.story.check
        mine = f"{self.name}/".encode()
        values = [
            entry.value
            for log in logs.values()
            for entry in log.entries
            if entry.value.startswith(mine) and self.acks == "all"
        ]
        doubled = sorted({value for value in values if values.count(value) > 1})
        check(not doubled, f"there twice: {doubled}")
        for sent in self.sent:
            check(sent.delivery.done(), f"{sent.value!r} has no end")
            place = sent.place()
            if place is None or self.acks == "0":
                continue
            is_there = logs[place.topic, place.partition].has_had(sent.value, place.offset)
            check(is_there, f"{sent.value!r} is not at {place}")
        for where, log in logs.items():
            for task in ("main", "side0", "side1"):
                its = f"{self.name}/{task}/".encode()
                order = [e.value for e in log.entries if e.value.startswith(its)]
                holds = self.acks != "all" or order == sorted(order)
                check(holds, f"the order of {where}: {order}")
        if self.transactional_id is not None:
            self._check_transactions()

    def _check_transactions(self) -> None:
        brokers, check = self.story.brokers, self.story.check
        committed = set()
        for log in brokers.logs.values():
            for entry in log.entries:
                assert entry.transaction is not None or not entry.value.startswith(b"x"), entry
                if entry.transaction is not None:
                    name, number = entry.transaction
                    if brokers.transactions[name].outcomes.get(number):
                        committed.add(entry.value)
        check(not committed & self.refused, f"{committed & self.refused} were refused")
        commits = {
            offset
            for offset, (name, number) in brokers.commits
            if name == self.transactional_id and brokers.transactions[name].outcomes.get(number)
        }
        for number in {*self.offsets, *(sent.transaction for sent in self.sent)}:
            taken = {sent.value for sent in self.sent if sent.transaction == number}
            offsets = self.offsets.get(number, set())
            self._check_one(number, {*taken, *offsets}, {*taken & committed, *offsets & commits})

    def _check_one(self, number: int, taken: set[Any], seen: set[Any]) -> None:
        check, outcome = self.story.check, self.outcomes.get(number, "unknown")
        text = f"{self.name}: of transaction {number}, {outcome}, "
        text += f"{sorted(map(str, taken - seen))} are missing, {sorted(map(str, seen))} are there"
        check(seen in (taken, set()), text)
        check(outcome != "committed" or seen == taken, text)
        check(outcome != "aborted" or not seen, text)
        check(number not in self.incomplete or not seen, text)


class Story:
    """Producers, what happens to them, and the checker."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.brokers = Brokers(self.rng)
        self.network = Network(self.rng, self.brokers.serve)
        self.faults: list[str] = []
        self.lives: list[Life] = []
        self.offsets = 0

    def check(self, holds: bool, text: str) -> None:
        if not holds:
            self.faults.append(text)

    async def run(self, troubled_s: float) -> None:
        """Trouble, then peace in which everything comes to its end."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.network = self.network
        loop.set_exception_handler(lambda _, context: self.faults.append(str(context)))
        self.begin(None)
        self.begin(None)
        self.begin("x")
        self.network.trouble = self.brokers.refusals = self.rng.choice((0.01, 0.05))
        end_s = loop.time() + troubled_s
        while loop.time() < end_s and not self.faults:
            await asyncio.sleep(self.rng.random())
            self._misfortune()
            for life in self.lives:
                life.check_fencing()
            self._succeed()
        self.network.trouble = self.brokers.refusals = 0.0
        self.network.dead_brokers.clear()
        self.brokers.elect_all()
        async with asyncio.timeout(PEACE_S):
            await asyncio.gather(*(life.end() for life in self.lives))
        for life in self.lives:
            life.check()
        assert not self.faults, "\n".join(self.faults)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "no task is left"
        assert not self.network.connections, "no connection is left"

    def begin(self, transactional_id: str | None) -> None:
        name = f"{transactional_id or 'p'}{len(self.lives)}"
        self.lives.append(Life(self, name, transactional_id))

    def _succeed(self) -> None:
        """Begins another producer after one that was fenced or closed, or seldom at any time."""
        last = [life for life in self.lives if life.transactional_id][-1]
        is_over = last.is_closed or last.life.state is TransactionState.FATAL
        if is_over or self.rng.random() < 0.02:
            self.begin("x")

    def _misfortune(self) -> None:
        chance = self.rng.random()
        if chance < 0.3:
            self.brokers.move_leader()
        elif chance < 0.4:
            self.brokers.coordinator = self.rng.choice(BROKERS)
        elif chance < 0.45:
            self.network.kill_broker(self.rng.choice(BROKERS))
            asyncio.get_running_loop().call_later(
                self.rng.random() * 3, self.network.dead_brokers.clear
            )
        elif chance < 0.6:
            self.brokers.elect_all()
        elif chance < 0.7:
            self.brokers.make_anew(LOSING)
        elif chance < 0.78:
            self.brokers.lose_end(LOSING)


def play(seed: int, troubled_s: float = 15) -> Story:
    """A whole story; the same for the same seed."""

    async def scenario() -> Story:
        story = Story(seed)
        await story.run(troubled_s)
        return story

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scenario())
