"""`kill -9` under load, with compaction and retention at work: what was acknowledged is there.

An idempotent producer of librdkafka sends numbered records with acks=all to three topics (one
kept whole, one compacted, one that retention cuts) while the broker is killed and started again
on the same port and directory, round after round. After every start all of it is read: nothing
acknowledged is missing, no offset has two contents, nothing is there twice. At the end `fsck`
has nothing to say. The rounds are 15; `./test --rounds` changes that.
"""

import random
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadlines import deadline_s
from tests.rounds import rounds
from tests.system.processes import CheckedBroker
from tools.free_port import free_port

ROUNDS = rounds(15)
FLUSH_S = deadline_s(120)
READ_S = deadline_s(60)
KEYS = 40
# Enough for a segment or two of each topic.
ROUND_RECORDS = 600
ROUND_S = 0.4
PATIENCE_S = deadline_s(120)
WHOLE, TABLE, TAIL = "whole", "table", "tail"
PARTITIONS = [(WHOLE, 0), (WHOLE, 1), (TABLE, 0), (TAIL, 0)]
CONFIGS = {
    WHOLE: {"segment.bytes": "65536"},
    TABLE: {
        "segment.bytes": "8192",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
    },
    TAIL: {"segment.bytes": "8192", "retention.bytes": "16384"},
}
BUSY_HOUSEKEEPING = [
    *("--set", "log.cleaner.backoff.ms=20"),
    *("--set", "log.retention.check.interval.ms=50"),
    *("--set", "log.flush.offset.checkpoint.interval.ms=100"),
    *("--set", "log.segment.delete.delay.ms=10"),
]

Place = tuple[str, int]


class Contents(NamedTuple):
    """The records that a reader got of a partition, and where that began and ended when it was
    through."""

    found: dict[int, int]
    start: int
    end: int


class Ledger:
    """The producer's answers, and the records ever seen at an offset."""

    def __init__(self) -> None:
        self.contents: dict[Place, dict[int, int]] = {place: {} for place in PARTITIONS}
        self.acknowledged: dict[Place, dict[int, int]] = {place: {} for place in PARTITIONS}
        self.failed: list[str] = []
        self.count = 0

    def on_delivery(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        self.count += 1
        place = message.topic(), message.partition()
        self.acknowledged[place][message.offset()] = int(message.value())
        self.note(place, message.offset(), int(message.value()))

    def note(self, place: Place, offset: int, value: int) -> None:
        known = self.contents[place].setdefault(offset, value)
        assert known == value, f"offset {offset} of {place} was {known} and is {value}"

    def check(self, place: Place, contents: Contents) -> None:
        """Compares what was read with what was said before."""
        found, start, end = contents
        for offset, value in found.items():
            self.note(place, offset, value)
        acknowledged = self.acknowledged[place]
        assert max(acknowledged, default=-1) < end, f"{place} ends at {end}"
        if place[0] == TABLE:
            newest = {value % KEYS: value for value in acknowledged.values()}
            held = {value % KEYS: value for value in found.values()}
            lost = [value for key, value in newest.items() if held.get(key, -1) < value]
        else:
            lost = [offset for offset in acknowledged if start <= offset and offset not in found]
        assert not lost, f"{place} lost {sorted(lost)[:5]}..."
        doubled = [value for value, times in Counter(found.values()).items() if times > 1]
        assert not doubled, f"{place} holds {doubled[:5]}... twice"
        assert list(found.values()) == sorted(found.values()), f"{place} is out of order"


def read(bootstrap_servers: str, starts: dict[Place, int]) -> dict[Place, Contents]:
    """The contents of each partition from its `starts` on."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(*place, start) for place, start in starts.items()])
    found: dict[Place, dict[int, int]] = {place: {} for place in starts}
    ends: dict[Place, int] = {}
    while len(ends) < len(starts):
        message = consumer.poll(READ_S)
        assert message is not None, f"the broker does not give its records: {ends}"
        place = message.topic(), message.partition()
        if message.error() is not None:
            ends[place] = message.offset()
        elif place not in ends:
            found[place][message.offset()] = int(message.value())
    contents = {}
    for place, asked in starts.items():
        # Retention goes on meanwhile: what is there at the end was there all the time.
        start, _ = consumer.get_watermark_offsets(TopicPartition(*place), READ_S)
        contents[place] = Contents(found[place], max(asked, start), ends[place])
    consumer.close()
    return contents


def create_topics(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    counts = Counter(topic for topic, _ in PARTITIONS)
    topics = [NewTopic(topic, counts[topic], 1, config=CONFIGS[topic]) for topic in counts]
    for created in admin.create_topics(topics).values():
        created.result(deadline_s(60))


def send_until_killed(producer: Producer, ledger: Ledger, sent: int, target: int) -> int:
    """Sends until so many are acknowledged or the round is over; returns how many were sent.

    A round is not over before something was acknowledged: on a slow machine clients take their
    time to come back.
    """
    before, began = ledger.count, time.monotonic()
    while ledger.count < target:
        waited_s = time.monotonic() - began
        assert waited_s < PATIENCE_S, "nothing is acknowledged any more"
        if waited_s > ROUND_S and ledger.count > before:
            break
        topic, partition = PARTITIONS[sent % len(PARTITIONS)]
        # A key comes again every KEYS values, in whichever partition.
        producer.produce(
            topic,
            b"%0100d" % sent,
            key=b"%d" % (sent % KEYS),
            partition=partition,
            on_delivery=ledger.on_delivery,
        )
        sent += 1
        producer.poll(0.01 if len(producer) > ROUND_RECORDS else 0)
    return sent


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_and_nothing_is_doubled(tmp_path: Path) -> None:
    """Goal: an acknowledgement with acks=all outlives the process that gave it, whatever the
    cleaner and retention were doing."""
    rng = random.Random(20131231)
    port = free_port()
    ledger = Ledger()
    # What cannot change any more is read once.
    starts = dict.fromkeys(PARTITIONS, 0)
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 1,
            "batch.num.messages": 50,
            "message.timeout.ms": 300_000,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 10,
            "log_level": 0,
        }
    )
    with CheckedBroker(tmp_path, port) as first:
        create_topics(first.bootstrap_servers)
        # With a producer id: the client takes its time to ask for it again.
        sent = send_until_killed(producer, ledger, 0, 1)
        assert producer.flush(FLUSH_S) == 0, "the producer could not begin"
        assert first.stop() == 0
    for _ in range(ROUNDS):
        with CheckedBroker(tmp_path, port, *BUSY_HOUSEKEEPING) as broker:
            for place, contents in read(broker.bootstrap_servers, starts).items():
                ledger.check(place, contents)
                starts[place] = contents.end if place[0] == WHOLE else 0
            target = ledger.count + rng.randrange(50, ROUND_RECORDS)
            sent = send_until_killed(producer, ledger, sent, target)
            broker.kill()
    with CheckedBroker(tmp_path, port, *BUSY_HOUSEKEEPING) as last:
        assert producer.flush(FLUSH_S) == 0, "the producer could not go on after a restart"
        final = read(last.bootstrap_servers, dict.fromkeys(PARTITIONS, 0))
        assert last.stop() == 0
    assert not ledger.failed
    for place, contents in final.items():
        ledger.check(place, contents)
    whole = sum(len(contents.found) for (topic, _), contents in final.items() if topic == WHOLE)
    assert whole == sum(PARTITIONS[n % len(PARTITIONS)][0] == WHOLE for n in range(sent))
    assert final[TAIL, 0].start > 0, "retention never took anything"
    assert len(final[TABLE, 0].found) < len(ledger.acknowledged[TABLE, 0]), "nothing compacted"
    assert "Traceback" not in (tmp_path / "stderr.log").read_text()
