"""Members of groups by other people's clients and ours, each in a thread or process of its own.

Every reader notes what it has read only once that is committed, and gives partitions back only
after it has committed, so that nothing may be lost or read twice, whatever happens to the group.
"""

import asyncio
import os
import subprocess
import threading
import time
from typing import IO

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from kafka import KafkaConsumer
from tests.deadlines import deadline_s
from tools import peers

from odradek.client import Consumer as OurConsumer

DEADLINE_S = deadline_s(180)
# Longer than a busy machine keeps a client from its processor; nothing here is about silence.
SESSION_TIMEOUT_MS = 60_000
HEARTBEAT_INTERVAL_MS = 300


IN_A_REBALANCE = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.REBALANCE_IN_PROGRESS,
)


def commit_own(consumer: Consumer, message: Message) -> None:
    """Commits what was read, also while the group rebalances, which librdkafka reads on in.

    The commit may be of the generation before. What was read stays its reader's own until it
    polls again, so it commits until it may.
    """
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            consumer.commit(message, asynchronous=False)
            return
        except KafkaException as refused:
            if refused.args[0].code() not in IN_A_REBALANCE or time.monotonic() > deadline:
                raise


class Reader(threading.Thread):
    """A member of a group in a thread of its own; `read` is what it has read and committed.

    `needs` names the fixtures without which there is no such client on this machine.
    """

    needs: tuple[str, ...] = ()

    def __init__(
        self, bootstrap: str, topic: str, group_id: str, instance_id: str | None = None
    ) -> None:
        super().__init__(daemon=True)
        self.instance_id = instance_id
        self.bootstrap = bootstrap
        self.topic = topic
        self.group_id = group_id
        self.read: list[bytes] = []
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def __repr__(self) -> str:
        state = "runs" if self.is_alive() else "has ended"
        instance = f" as {self.instance_id}" if self.instance_id else ""
        return (
            f"{type(self).__name__}{instance} {state}, was asked to stop: {self.stopping.is_set()},"
            f" has read {len(self.read)}, error: {self.error!r}"
        )

    def run(self) -> None:
        try:
            self.consume()
        except BaseException as error:  # noqa: BLE001 - raised again where it is looked at
            self.error = error

    def consume(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        self.stopping.set()
        self.join(DEADLINE_S)
        assert not self.is_alive(), f"{type(self).__name__} does not stop"
        if self.error is not None:
            raise self.error


class ConfluentReader(Reader):
    strategy = "range"

    def of_the_protocol(self) -> dict[str, object]:
        """Settings that the broker has, not the member, with the newer protocol."""
        return {
            "partition.assignment.strategy": self.strategy,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
        }

    def consume(self) -> None:
        settings: dict[str, object] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **self.of_the_protocol(),
        }
        if self.instance_id:
            settings["group.instance.id"] = self.instance_id
        consumer = Consumer(settings)
        consumer.subscribe([self.topic])
        try:
            while not self.stopping.is_set():
                for message in consumer.consume(50, 0.1):
                    assert not message.error(), message.error()
                    commit_own(consumer, message)
                    self.read.append(message.value())
        finally:
            consumer.close()


class CooperativeReader(ConfluentReader):
    strategy = "cooperative-sticky"


class ConfluentNewerReader(ConfluentReader):
    """By the newer protocol."""

    def of_the_protocol(self) -> dict[str, object]:
        return {"group.protocol": "consumer"}


class KafkaPythonReader(Reader):
    def consume(self) -> None:
        consumer = KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            group_instance_id=self.instance_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        )
        try:
            while not self.stopping.is_set():
                batches = consumer.poll(timeout_ms=100)
                if batches:
                    consumer.commit()
                    for batch in batches.values():
                        self.read += [record.value for record in batch]
        finally:
            consumer.close(autocommit=False)


class AiokafkaReader(Reader):
    def consume(self) -> None:
        asyncio.run(self.consume_async())

    async def consume_async(self) -> None:
        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            group_instance_id=self.instance_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        await consumer.start()
        try:
            while not self.stopping.is_set():
                batches = await consumer.getmany(timeout_ms=100)
                if batches:
                    await consumer.commit()
                    for batch in batches.values():
                        self.read += [record.value for record in batch]
        finally:
            await consumer.stop()


class OurReader(Reader):
    """Our own client."""

    strategy = "range"
    protocol = "classic"

    def consume(self) -> None:
        asyncio.run(self.consume_async())

    async def consume_async(self) -> None:
        settings = {
            "group.id": self.group_id,
            "group.protocol": self.protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "group.instance.id": self.instance_id or "",
            "partition.assignment.strategy": self.strategy,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
        }
        async with OurConsumer(self.bootstrap, settings) as consumer:
            consumer.subscribe([self.topic])
            while not self.stopping.is_set():
                batches = await consumer.getmany(timeout_ms=100)
                if batches:
                    await consumer.commit()
                    for batch in batches.values():
                        self.read += [record.value for record in batch]


class OurCooperativeReader(OurReader):
    strategy = "cooperative-sticky"


class OurNewerReader(OurReader):
    """By the newer protocol."""

    protocol = "consumer"


class ProcessReader(Reader):
    """A member in a process that prints every value on a line once it is committed, or before
    it commits in good order, and leaves the group when it is terminated."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    def consume(self) -> None:
        process = subprocess.Popen(
            self.command(),
            env={**os.environ, **self.environment()},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        stopper = threading.Thread(target=self._stop_when_asked, args=(process,), daemon=True)
        stopper.start()
        try:
            self._note_lines(process.stdout)
        finally:
            self.stopping.set()
            stopper.join()
            errors = process.stderr.read()
            process.stdout.close()
            process.stderr.close()
        assert process.wait() in (0, 143, -15), errors.decode(errors="replace")

    def _note_lines(self, output: IO[bytes]) -> None:
        for line in output:
            self.read.append(line.strip())

    def _stop_when_asked(self, process: "subprocess.Popen[bytes]") -> None:
        self.stopping.wait()
        process.terminate()


class JavaReader(ProcessReader):
    """Kafka's console consumer, which commits what it has printed when it gives partitions back."""

    needs = ("java", "kafka_class_path")
    properties: tuple[str, ...] = (
        "group.protocol=classic",
        "partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor",
        f"session.timeout.ms={SESSION_TIMEOUT_MS}",
        f"heartbeat.interval.ms={HEARTBEAT_INTERVAL_MS}",
    )

    def command(self) -> list[str]:
        class_path = os.pathsep.join(map(str, peers.kafka_jars()))
        options = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path]
        command = [peers.java(), *options, "org.apache.kafka.tools.consumer.ConsoleConsumer"]
        command += ["--bootstrap-server", self.bootstrap, "--topic", self.topic]
        command += ["--group", self.group_id, "--from-beginning"]
        static = (f"group.instance.id={self.instance_id}",) if self.instance_id else ()
        for text in ("metadata.max.age.ms=500", *self.properties, *static):
            command += ["--command-property", text]
        return command


class JavaCooperativeReader(JavaReader):
    properties = (
        "group.protocol=classic",
        "partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        f"session.timeout.ms={SESSION_TIMEOUT_MS}",
        f"heartbeat.interval.ms={HEARTBEAT_INTERVAL_MS}",
    )


class JavaConsumerReader(JavaReader):
    properties = ("group.protocol=consumer",)


KAFKAJS = """
const { Kafka, AssignerProtocol, logLevel } = require('kafkajs');
const { MemberMetadata, MemberAssignment } = AssignerProtocol;
const [bootstrap, topic, groupId, sessionTimeout, heartbeatInterval] = process.argv.slice(1);
// kafkajs' own assignor has a name that no other library knows.
const range = ({ cluster }) => ({
  name: 'range',
  version: 0,
  async assign({ members }) {
    const ids = members.map((member) => member.memberId).sort();
    const count = cluster.findTopicPartitionMetadata(topic).length;
    return ids.map((memberId, index) => {
      const share = Array.from({ length: count }, (_, n) => n).filter(
        (n) => Math.floor((n * ids.length) / count) === index);
      const assignment = { [topic]: share };
      const memberAssignment = MemberAssignment.encode({ version: 0, assignment });
      return { memberId, memberAssignment };
    });
  },
  protocol({ topics }) {
    return { name: 'range', metadata: MemberMetadata.encode({ version: 0, topics }) };
  },
});
const kafka = new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.NOTHING });
const consumer = kafka.consumer({
  groupId, partitionAssigners: [range],
  sessionTimeout: Number(sessionTimeout), heartbeatInterval: Number(heartbeatInterval),
  maxWaitTimeInMs: 200,
});
process.on('SIGTERM', async () => { await consumer.disconnect(); process.exit(0); });
(async () => {
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch }) => {
      const { topic, partition, messages } = batch;
      const offset = (BigInt(messages[messages.length - 1].offset) + 1n).toString();
      await consumer.commitOffsets([{ topic, partition, offset }]);
      process.stdout.write(messages.map((each) => `${each.value}\\n`).join(''));
    },
  });
})().catch((error) => { console.error(error); process.exit(1); });
"""


class KafkajsReader(ProcessReader):
    needs = ("kafkajs_folder",)

    def environment(self) -> dict[str, str]:
        return {"NODE_PATH": str(peers.kafkajs() / "node_modules")}

    def command(self) -> list[str]:
        node = peers.program("node", "nodejs")
        times = [str(SESSION_TIMEOUT_MS), str(HEARTBEAT_INTERVAL_MS)]
        return [node, "-e", KAFKAJS, self.bootstrap, self.topic, self.group_id, *times]
