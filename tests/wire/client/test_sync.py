"""The blocking clients. If these fail, they hang, answer otherwise than the asyncio ones, or call
users' code from a thread that users do not know of."""

import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import pytest
from tests.deadlines import deadline_s

from odradek.client.aio.admin import Admin as AsyncAdmin
from odradek.client.aio.consumer import Consumer as AsyncConsumer
from odradek.client.aio.producer import Producer as AsyncProducer
from odradek.client.core.admin_types import NewTopic
from odradek.client.errors import (
    ClientClosed,
    KafkaError,
    NotDelivered,
    RecordTooLarge,
    UsageError,
    WokenUp,
)
from odradek.client.sync import Admin, Consumer, Producer
from odradek.model import TopicPartition


def threads() -> int:
    return sum(each.name == "odradek-client" for each in threading.enumerate())


@pytest.mark.parametrize(
    ("blocking", "awaited"),
    [(Producer, AsyncProducer), (Consumer, AsyncConsumer), (Admin, AsyncAdmin)],
)
def test_names_arguments_and_defaults_are_those_of_asyncio(blocking: type, awaited: type) -> None:
    names = [name for name, _ in inspect.getmembers(awaited, callable) if not name.startswith("_")]
    assert names
    for name in names:
        theirs = inspect.signature(getattr(awaited, name)).parameters
        ours = inspect.signature(getattr(blocking, name)).parameters
        shape = {each: (what.kind, what.default) for each, what in ours.items()}
        assert shape == {each: (what.kind, what.default) for each, what in theirs.items()}, name


def test_records_go_and_come(servers: str, topic: str) -> None:
    with Admin(servers) as admin:
        assert list(admin.create_topics([NewTopic(topic, 1, 1)])) == [topic]
        with Producer(servers) as producer:
            deliveries = [producer.send(topic, b"%d" % number) for number in range(3)]
            assert [each.result(deadline_s(30)).offset for each in deliveries] == [0, 1, 2]
            assert producer.send_and_wait(topic, b"3").offset == 3
            many = producer.send_many(topic, [b"4", b"5"])
            producer.flush()
            assert [each.offset for each in many.result(0)] == [4, 5]
        with Consumer(servers, auto_offset_reset="earliest") as consumer:
            where = TopicPartition(topic, 0)
            consumer.assign([where])
            assert next(consumer).value == b"0"
            assert consumer.position(where) == 1
            found: list[bytes | None] = []
            while len(found) < 5:
                found += [each.value for each in consumer.poll(1000, 2).get(where, [])]
            assert found == [b"1", b"2", b"3", b"4", b"5"]
            consumer.seek(where, 4)
            columns = consumer.getmany(timeout_ms=20_000, columns=True)[where]
            assert columns.row_count == 2
            assert consumer.end_offsets([where]) == {where: 6}
            assert threads() == 1, "all share one"


def test_listeners_and_callbacks_are_called_by_the_thread_that_reads(
    bootstrap: str, topic: str, names: Callable[[str], str]
) -> None:
    """The listener may use the consumer meanwhile."""
    seen: list[tuple[str, threading.Thread]] = []
    where = TopicPartition(topic, 0)

    class Listener:
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            consumer.seek(where, 1)
            seen.append((f"assigned {len(partitions)}", threading.current_thread()))

        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            consumer.commit({where: 2})
            seen.append((f"revoked {len(partitions)}", threading.current_thread()))

    def committed(_: object, error: Exception | None) -> None:
        seen.append((f"committed, {error}", threading.current_thread()))

    with Producer(bootstrap) as producer:
        producer.send_many(topic, [b"0", b"1", b"2"]).result(deadline_s(30))
    settings = {"group_id": names("group"), "auto_offset_reset": "earliest"}
    with Consumer(bootstrap, enable_auto_commit=False, **settings) as consumer:
        consumer.subscribe([topic], listener=Listener())
        assert consumer.getone().value == b"1"
        consumer.commit_async(callback=committed)
        while len(seen) < 2:
            consumer.poll(20)
    assert seen == [
        (what, threading.current_thread())
        for what in ("assigned 1", "committed, None", "revoked 1")
    ]
    with Consumer(bootstrap, **settings) as consumer:
        found = consumer.committed([where])[where]
        assert found is not None
        assert found.offset == 2


def test_what_a_callback_raises_takes_no_record_along(
    bootstrap: str, topic: str, names: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    """The records read with it would be passed over, and committed past."""
    where = TopicPartition(topic, 0)
    values = [b"%d" % number for number in range(10)]

    def callback(*_: object) -> None:
        raise ZeroDivisionError

    with Producer(bootstrap) as producer:
        producer.send_many(topic, values, partition=0).result(deadline_s(30))
    with Consumer(bootstrap, group_id=names("group"), enable_auto_commit=False) as consumer:
        consumer.assign([where])
        consumer.seek(where, 0)
        found = consumer.poll(20_000, 2)[where]
        consumer.commit_async({where: 2}, callback)
        failures = 0
        while len(found) < len(values) or not failures:
            try:
                found += consumer.poll(100, 2).get(where, [])
            except ZeroDivisionError:
                failures += 1
        assert [each.value for each in found] == values
        assert failures == 1
        consumer.commit_async({where: 3}, callback)
    assert "the callback of a commit failed" in caplog.text


@pytest.mark.parametrize("failure", [ClientClosed("of another client"), StopIteration()])
def test_what_a_callback_raises_does_not_end_the_iteration(
    bootstrap: str, topic: str, failure: Exception
) -> None:
    """A loop over the records would end as if the consumer had been closed, without a word."""

    def callback() -> None:
        raise failure

    where = TopicPartition(topic, 0)
    with Producer(bootstrap) as producer:
        producer.send_many(topic, [b"0", b"1"], partition=0).result(deadline_s(30))
    with Consumer(bootstrap) as consumer:
        consumer.assign([where])
        consumer.seek(where, 0)
        consumer._todo.put(callback)
        assert next(consumer).value == b"0"
        with pytest.raises((ClientClosed, RuntimeError)):
            next(consumer)
        assert next(consumer).value == b"1"


def test_what_a_callback_raised_is_logged_once_on_closing(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Every further close would tell it again."""

    def callback() -> None:
        raise ZeroDivisionError

    consumer = Consumer(bootstrap)
    consumer._do(callback)
    consumer.close()
    consumer.close()
    assert caplog.text.count("the callback of a commit failed") == 1


class Interrupted:
    """The queue of a consumer's thread, which Ctrl-C reaches just when its read is done, once."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue
        self.is_done = False
        self.put = queue.put

    def get(self) -> object:
        task = self.queue.get()
        if task is None and not self.is_done:
            self.is_done = True
            raise KeyboardInterrupt
        return task


@pytest.mark.parametrize("how", ["poll", "getone", "columns"])
def test_who_is_interrupted_loses_no_record(
    bootstrap: str, topic: str, names: Callable[[str], str], how: str
) -> None:
    """Its position would be behind what it has never seen."""
    where = TopicPartition(topic, 0)

    def read() -> list[int]:
        if how == "getone":
            return [consumer.getone().offset]
        if how == "poll":
            return [each.offset for each in consumer.poll(20_000, 3).get(where, [])]
        columns = consumer.getmany(timeout_ms=20_000, columns=True)[where]
        return list(memoryview(columns.offset).cast("q"))

    with Producer(bootstrap) as producer:
        producer.send_many(topic, [b"x"] * 10, partition=0).result(deadline_s(30))
    with Consumer(bootstrap, group_id=names("group"), enable_auto_commit=False) as consumer:
        consumer.assign([where])
        consumer.seek(where, 1)
        consumer._todo = Interrupted(consumer._todo)
        with pytest.raises(KeyboardInterrupt):
            read()
        consumer.commit()
        assert consumer.committed([where])[where].offset == 1
        found: list[int] = []
        while len(found) < 9:
            found += read()
        assert found == list(range(1, 10))


@pytest.mark.parametrize("failure", [ZeroDivisionError, StopIteration])
def test_what_a_listener_raises_is_raised_by_the_read(
    bootstrap: str, topic: str, names: Callable[[str], str], failure: type[Exception]
) -> None:
    """The read would wait for ever for the end of a listener that asks an iterator for more than it
    has."""

    class Listener:
        def on_partitions_assigned(self, partitions: object) -> None:
            raise failure

    with Producer(bootstrap) as producer:
        producer.send_and_wait(topic, b"x")
    with Consumer(bootstrap, group_id=names("group"), auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic], listener=Listener())
        with pytest.raises(Exception, match=failure.__name__):
            consumer.getone()
        assert consumer.getone().value == b"x"


def test_a_listener_neither_reads_nor_waits_for_leaving(
    bootstrap: str, topic: str, names: Callable[[str], str]
) -> None:
    """The rebalance waits for the listener, which would wait for the rebalance."""
    refused: list[UsageError] = []

    class Listener:
        def on_partitions_assigned(self, partitions: object) -> None:
            for read in (consumer.getone, consumer.poll):
                with pytest.raises(UsageError, match="a listener cannot read") as failure:
                    read()
                refused.append(failure.value)

        def on_partitions_revoked(self, partitions: object) -> None:
            consumer.unsubscribe()

    with Producer(bootstrap) as producer:
        producer.send_and_wait(topic, b"x")
    with Consumer(bootstrap, group_id=names("group"), auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic], listener=Listener())
        assert consumer.getone().value == b"x"
        assert len(refused) == 2
        consumer.unsubscribe()
        assert not consumer.assignment()


def test_what_a_listener_raises_while_one_of_its_calls_leaves_is_raised_by_a_read(
    bootstrap: str, topic: str, names: Callable[[str], str]
) -> None:
    """The call of the listener is not waited for: the failure would be lost."""

    class Listener:
        def on_partitions_assigned(self, partitions: object) -> None:
            consumer.unsubscribe()

        def on_partitions_revoked(self, partitions: object) -> None:
            raise ValueError("on leaving")

    def read() -> None:
        for _ in range(300):
            consumer.poll(timeout_ms=100)

    with Producer(bootstrap) as producer:
        producer.send_and_wait(topic, b"x")
    with Consumer(bootstrap, group_id=names("group")) as consumer:
        consumer.subscribe([topic], listener=Listener())
        with pytest.raises(KafkaError, match="on leaving"):
            read()


def test_transactions(bootstrap: str, topic: str, names: Callable[[str], str]) -> None:
    with Producer(bootstrap, transactional_id=names("id")) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"kept")
        with pytest.raises(ZeroDivisionError):  # noqa: PT012, SIM117 - the block is what is tested
            with producer.transaction():
                producer.send_and_wait(topic, b"aborted")
                raise ZeroDivisionError
    settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with Consumer(bootstrap, **settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert consumer.getone().value == b"kept"
        assert consumer.poll(200) == {}


def test_errors_and_the_end(bootstrap: str, topic: str) -> None:
    before = threads()
    with pytest.raises(ValueError, match="acks"):
        Producer(bootstrap, acks="some")
    producer = Producer(bootstrap, max_request_size=1000)
    with pytest.raises(RecordTooLarge):
        producer.send(topic, b"x" * 1000)
    with pytest.raises(NotDelivered):
        producer.send_many(topic, [b"x" * 1000]).result(deadline_s(30))
    own_thread: list[BaseException | None] = []

    def calls_again(_: object) -> None:
        try:
            producer.flush()
        except UsageError as error:
            own_thread.append(error)

    producer.send(topic, b"x").add_done_callback(calls_again)
    producer.flush()
    assert len(own_thread) == 1
    senders = [
        threading.Thread(
            target=lambda: producer.send_many(topic, [b"y"] * 50).result(deadline_s(30))
        )
        for _ in range(4)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert producer.send_and_wait(topic, b"z").offset == 201
    consumer = Consumer(bootstrap)
    for client in (consumer, producer, producer):
        client.close()
    assert threads() == before, "the last one takes the thread with it"
    with pytest.raises(ClientClosed):
        producer.send(topic, b"x")
    assert list(consumer) == []


def test_who_closes_twice_does_not_end_the_loop_of_others(bootstrap: str) -> None:
    """Two threads that close one client at once count as one that moves out."""
    with Admin(bootstrap) as other:
        for _ in range(20):
            client = Consumer(bootstrap, group_id="g")
            client.subscribe(["t"])
            client.poll(timeout_ms=10)
            barrier = threading.Barrier(4)

            def close(client: Consumer = client, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                client.close()

            closing = [threading.Thread(target=close) for _ in range(3)]
            for each in closing:
                each.start()
            barrier.wait()
            for each in closing:
                each.join()
            client.close()
        assert other.describe_cluster().nodes


class ClosesAgain:
    """Closes the consumer that is telling it of its end."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.told = 0

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None: ...

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.told += 1
        self._consumer.close(timeout_ms=1_000)


def test_who_closes_within_closing_does_not_end_the_loop_of_others(
    bootstrap: str, topic: str
) -> None:
    """A listener, or a handler of a signal: it would wait for itself, and count as another client
    that moves out."""
    with Admin(bootstrap) as other:
        consumer = Consumer(bootstrap, group_id="closes-again")
        listener = ClosesAgain(consumer)
        consumer.subscribe([topic], listener=listener)
        while not consumer.assignment():
            consumer.poll(timeout_ms=100)
        consumer.close(timeout_ms=3_000)
        assert listener.told == 1
        assert other.describe_cluster().nodes


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("call", [Consumer.unsubscribe, Consumer.poll])
def test_a_listener_that_closes_does_not_wait_for_the_end(
    bootstrap: str,
    topic: str,
    names: Callable[[str], str],
    protocol: str,
    call: Callable[[Consumer], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Closing waits for what the listener is called by: until its time-out, of half a minute."""
    group = names("group")
    before = threads()
    consumer = Consumer(bootstrap, group_id=group, group_protocol=protocol)

    class Closes:
        told = 0

        def on_partitions_assigned(self, partitions: object) -> None:
            if call is Consumer.poll:
                consumer.close(timeout_ms=int(1000 * deadline_s(10)))

        def on_partitions_revoked(self, partitions: object) -> None:
            self.told += 1
            consumer.close(timeout_ms=int(1000 * deadline_s(10)))

    listener = Closes()
    consumer.subscribe([topic], listener=listener)
    with suppress(ClientClosed):
        while not consumer.assignment():
            consumer.poll(timeout_ms=100)
        call(consumer)
    assert listener.told == 1
    with pytest.raises(ClientClosed):
        consumer.poll()
    assert threads() == before
    assert "could not be left" not in caplog.text
    with Admin(bootstrap) as admin:
        assert not admin.describe_groups([group])[group].members


def test_a_blocked_reader_is_woken_by_another_thread(bootstrap: str) -> None:
    with Consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition("nowhere", 0)])

        def wake_once_it_waits() -> None:
            while not consumer._client._waking._waiting:
                time.sleep(0)
            consumer.wakeup()

        waking = threading.Thread(target=wake_once_it_waits)
        waking.start()
        with pytest.raises(WokenUp):
            consumer.poll(timeout_ms=100_000)
        waking.join()


FORKED = """
import asyncio, os, sys, warnings
from odradek.client import Admin, sync
from odradek.client.errors import UsageError

def refused(work):
    try:
        work()
    except UsageError as error:
        return "forked" in str(error)

warnings.simplefilter("ignore")
blocking = sync.Admin(sys.argv[1])
blocking.describe_cluster()
awaited = Admin(sys.argv[1])
if os.fork():
    _, status = os.wait()
    blocking.describe_cluster()
    blocking.close()
    sys.exit(os.waitstatus_to_exitcode(status))
is_told = refused(blocking.describe_cluster)
is_told = is_told and refused(lambda: asyncio.run(awaited.describe_cluster()))
os._exit(0 if is_told else 1)
"""


FORKED_IN_USE = """
import asyncio, os, sys, warnings
from odradek.client import Consumer, Producer, ShareConsumer
from odradek.client.errors import UsageError

warnings.simplefilter("ignore")
servers, topic = sys.argv[1:]
run = asyncio.new_event_loop().run_until_complete

async def begun():
    plain = Producer(servers)
    for _ in range(3):
        await plain.send_and_wait(topic, b"parent", partition=0)
    safe = Producer(servers, transactional_id="forked")
    await safe.init_transactions()
    safe.begin_transaction()
    await safe.send_and_wait(topic, b"parent", partition=0)
    reader = Consumer(servers, topics=[topic], group_id="forked", auto_offset_reset="earliest")
    while not await reader.getmany(timeout_ms=1000, max_records=1):
        pass
    sharing = ShareConsumer(servers, topics=[topic], group_id="forked-share")
    await sharing.getmany(timeout_ms=10)
    return plain, safe, reader, sharing

plain, safe, reader, sharing = run(begun())

async def sent(producer):
    await producer.send(topic, b"child")

async def begin():
    safe.begin_transaction()

async def many(producer):
    await producer.send_many(topic, [b"child"])

if os.fork():
    _, status = os.wait()
    run(safe.commit_transaction())
    run(reader.getone())
    for client in (plain, safe, reader, sharing):
        run(client.close())
    sys.exit(os.waitstatus_to_exitcode(status))

untold = []
for name, work in {
    "send": lambda: sent(plain), "send in a transaction": lambda: sent(safe),
    "send_many": lambda: many(plain), "flush": lambda: plain.flush(),
    "commit": lambda: safe.commit_transaction(), "abort": lambda: safe.abort_transaction(),
    "begin": lambda: begin(), "getmany": lambda: reader.getmany(),
    "columns": lambda: reader.getmany(columns=True), "getone": lambda: reader.getone(),
    "anext": lambda: anext(reader), "share getmany": lambda: sharing.getmany(),
    "share getone": lambda: sharing.getone(), "close": lambda: plain.close(),
    "close of a reader": lambda: reader.close(), "close of a sharer": lambda: sharing.close(),
}.items():
    async def limited():
        async with asyncio.timeout(5):
            await work()
    try:
        asyncio.run(limited())
        untold.append(f"{name}: nothing raised")
    except UsageError as error:
        if "forked" not in str(error):
            untold.append(f"{name}: {error!r}")
    except BaseException as error:
        untold.append(f"{name}: {error!r}")
if untold:
    print(untold, file=sys.stderr, flush=True)
os._exit(1 if untold else 0)
"""


FORKED_WITHIN = """
import asyncio, logging, os, sys, warnings
from odradek.client import Producer, sync

warnings.simplefilter("ignore")
logged = []

class Noting(logging.Handler):
    def emit(self, record):
        logged.append(record)

logging.getLogger("odradek.client").addHandler(Noting())
servers = sys.argv[1]

def within_blocking():
    with sync.Producer(servers, transactional_id="blocking") as producer:
        producer.init_transactions()
        with producer.transaction():
            if not os.fork():
                raise ZeroDivisionError

async def within_awaited():
    try:
        async with Producer(servers, transactional_id="awaited") as producer:
            await producer.init_transactions()
            async with producer.transaction():
                if not os.fork():
                    raise ZeroDivisionError
    except BaseException as error:
        os._exit(bool(logged) or not isinstance(error, ZeroDivisionError))

try:
    within_blocking()
except BaseException as error:
    with sync.Admin(servers) as admin:
        admin.describe_cluster()
    os._exit(bool(logged) or not isinstance(error, ZeroDivisionError))
blocking = os.wait()[1]
asyncio.run(within_awaited())
awaited = os.wait()[1]
print({"blocking": blocking, "awaited": awaited}, file=sys.stderr)
sys.exit(bool(blocking or awaited))
"""


FORKED_DESCRIPTORS = """
import os, socket, sys
from odradek.client import sync

host, port = sys.argv[1].rsplit(":", 1)
broker = (host, int(port))

def connections():
    found = 0
    for number in range(3, 512):
        try:
            with socket.socket(fileno=os.dup(number)) as one:
                found += one.getpeername()[:2] == broker
        except OSError:
            pass
    return found

with sync.Admin(sys.argv[1]) as admin:
    admin.describe_cluster()
    assert connections() == 1
    if not os.fork():
        os._exit(connections())
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_child_has_no_connection_of_its_parents_clients(bootstrap: str) -> None:
    """The broker would not see the end of the parent's clients while the child lives."""
    program = [sys.executable, "-c", FORKED_DESCRIPTORS, bootstrap]
    assert subprocess.run(program, timeout=deadline_s(60), check=False).returncode == 0


def test_a_child_leaves_the_blocks_of_its_parents_clients_alone(bootstrap: str) -> None:
    """The error that ends them there is told, and no other; a client of the child's own works."""
    program = [sys.executable, "-c", FORKED_WITHIN, bootstrap]
    assert subprocess.run(program, timeout=deadline_s(60), check=False).returncode == 0


def test_what_a_client_has_in_hand_is_not_given_out_after_a_fork(
    bootstrap: str, topic: str
) -> None:
    """Records would be read by child and parent, and those that the child sends wait for ever in
    batches that nobody takes."""
    program = [sys.executable, "-c", FORKED_IN_USE, bootstrap, topic]
    assert subprocess.run(program, timeout=deadline_s(100), check=False).returncode == 0


def test_a_client_that_is_used_after_a_fork_says_so(bootstrap: str) -> None:
    """It would wait for ever for a thread that the process has not, or read what is its parent's
    to read."""
    program = [sys.executable, "-c", FORKED, bootstrap]
    assert subprocess.run(program, timeout=deadline_s(60), check=False).returncode == 0
