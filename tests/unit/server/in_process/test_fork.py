"""A process that is forked from one with brokers in it: what it must leave alone, and may not ask.

Each test is a program of its own: a child has the threads, locks and descriptors of its parent only
half, which is none of pytest's business.
"""

import os
import subprocess
import sys
import textwrap

import pytest
from tests.deadlines import deadline_s

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")

BEGIN = """
import asyncio, os, sys, warnings
import odradek

warnings.simplefilter("error")
warnings.filterwarnings("ignore", "This process .* is multi-threaded")

def values(broker):
    return [record.value for record in broker.records("orders")]

def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def is_told(call):
    try:
        call()
    except RuntimeError as error:
        return "before this process was forked" in str(error)
    return False

def tell(calls):
    for number, call in enumerate(calls, 10):
        if not is_told(call):
            os._exit(number)
    os._exit(0)

def run(work):
    return lambda: asyncio.run(work())
"""


def succeeds(program: str) -> None:
    """Runs it to its end, which it reaches without a failed assertion and without words."""
    command = [sys.executable, "-c", BEGIN + textwrap.dedent(program)]
    done = subprocess.run(
        command, timeout=deadline_s(100), check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_that_ends_leaves_the_records_of_its_parent() -> None:
    """The end of a worker would remove all that the broker keeps, and a restart find nothing.
    Apache Kafka is a process of its own: no end of a process of its users removes a record.
    """
    succeeds(
        """
        with odradek.Broker() as broker:
            broker.produce("orders", "spool")
            snapshot = broker.snapshot()
            child = os.fork()
            if not child:
                sys.exit(7)
            assert ended(child) == 7
            broker.restart()
            assert values(broker) == [b"spool"]
            with odradek.Broker.from_snapshot(snapshot) as again:
                assert values(again) == [b"spool"]
        """
    )


def test_a_child_that_lives_holds_nothing_of_its_parent() -> None:
    """A broker could not come back to its ports or its directory before all workers have ended, and
    clients would not learn that it has stopped."""
    succeeds(
        """
        import socket, tempfile

        with tempfile.TemporaryDirectory() as directory, odradek.Broker(directory) as broker:
            broker.produce("orders", "spool")
            host, port = broker.bootstrap_servers.split(":")
            client = socket.create_connection((host, int(port)))
            broker.settle()
            reads, writes = os.pipe()
            child = os.fork()
            if not child:
                client.close()
                os.close(writes)
                os._exit(len(os.read(reads, 1)))
            broker.restart()
            assert client.recv(1) == b""
            client.close()
            assert values(broker) == [b"spool"]
            os.write(writes, b".")
            assert ended(child) == 1
        """
    )


def test_a_child_of_a_child_keeps_its_own_files() -> None:
    """A worker that closed what it was given, as daemons do, would have children whose files and
    connections lead nowhere: what they write would be lost without an error."""
    succeeds(
        """
        import tempfile

        null = os.open(os.devnull, os.O_RDWR)

        def leads_nowhere(number):
            try:
                return os.path.sameopenfile(number, null)
            except OSError:
                return False

        def dead_ends():
            return {number for number in range(256) if leads_nowhere(number)}

        with tempfile.TemporaryFile() as file, odradek.Broker() as broker:
            before = dead_ends()
            child = os.fork()
            if not child:
                given_up = dead_ends() - before
                assert len(given_up) == 2  # of the listener and of the lock
                for number in given_up:
                    os.dup2(file.fileno(), number)
                grandchild = os.fork()
                if not grandchild:
                    for number in given_up:
                        os.write(number, b"own")
                    os._exit(0)
                os._exit(ended(grandchild))
            assert ended(child) == 0
            assert os.fstat(file.fileno()).st_size == len(b"ownown")
        """
    )


def test_calls_in_a_child_are_refused_in_a_sentence() -> None:
    """They would wait for ever for a thread that only the parent has."""
    succeeds(
        """
        clock = odradek.ManualClock()
        with odradek.Broker(clock=clock) as broker:
            broker.produce("orders", "spool")
            child = os.fork()
            if not child:
                assert broker.bootstrap_servers in repr(broker)
                assert "before this process was forked" in broker.report()
                tell([
                    lambda: values(broker), broker.topics, broker.metrics, broker.waiting,
                    lambda: broker.produce("orders", "spool"), broker.pause, broker.snapshot,
                    lambda: broker.create_topic("more"), lambda: clock.advance(1),
                    broker.restart, broker.start, broker.stop, run(broker.topics_async),
                    lambda: broker.__exit__(None, None, None), broker.next_deadline,
                ])
            assert ended(child) == 0
            broker.stop()
            child = os.fork()
            if not child:
                tell([broker.start])  # it would write into the parent's files
            assert ended(child) == 0
            broker.start()
            assert values(broker) == [b"spool"]
        """
    )


def test_calls_of_a_cluster_in_a_child_are_refused_in_a_sentence() -> None:
    """As for one broker."""
    succeeds(
        """
        with odradek.Cluster(brokers=2) as cluster:
            cluster.create_topic("orders")
            broker = cluster.broker(2)
            child = os.fork()
            if not child:
                tell([
                    cluster.topics, cluster.waiting, cluster.heal, cluster.stop, cluster.start,
                    lambda: cluster.kill(1), broker.stop, broker.pause, run(broker.stop_async),
                    run(broker.start_async),
                ])
            assert ended(child) == 0
            broker.stop()
            broker.start()
        """
    )


def test_a_child_of_a_broker_on_its_own_loop_does_not_stop_it() -> None:
    """It would close the files of its parent in good order, with what it knows of them."""
    succeeds(
        """
        warnings.simplefilter("ignore", ResourceWarning)  # what the child drops

        async def main():
            async with odradek.Broker() as broker:
                await broker.produce_many_async("orders", ["spool"])
                child = os.fork()
                if not child:
                    try:
                        await broker.stop_async()
                    except RuntimeError:
                        # From 3.14 on no exception gets out of a loop in a child.
                        sys.exit(7) if sys.version_info < (3, 14) else os._exit(7)
                assert ended(child) == 7
                await broker.restart_async()
                assert len(await broker.records_async("orders")) == 1

        asyncio.run(main())
        """
    )


def test_what_did_not_run_when_the_process_was_forked_runs_in_a_child() -> None:
    """Workers would have no broker of their own that was described before they were made."""
    succeeds(
        """
        broker = odradek.Broker()
        child = os.fork()
        if not child:
            with broker:
                broker.produce("orders", "spool")
                assert values(broker) == [b"spool"]
                path = broker._scratch.path
            os._exit(os.path.exists(path))
        assert ended(child) == 0
        """
    )


def test_a_child_that_ends_leaves_the_metadata_of_its_parent() -> None:
    """It would fold the log of the metadata into the file and remove it: what the broker commits
    afterwards, and acknowledges, would be gone when the machine or the process dies."""
    succeeds(
        """
        import shutil, signal, tempfile

        async def serve(directory):
            async with odradek.Broker(directory) as broker:
                await broker.create_topic_async("before")
                child = os.fork()
                if not child:
                    # From 3.14 on no exception gets out of a loop in a child.
                    sys.exit(7) if sys.version_info < (3, 14) else os._exit(7)
                assert ended(child) == 7
                await broker.create_topic_async("after")
                os.kill(os.getpid(), signal.SIGKILL)

        directory = tempfile.mkdtemp()
        parent = os.fork()
        if not parent:
            warnings.simplefilter("ignore", ResourceWarning)  # what the child drops
            asyncio.run(serve(directory))
        assert ended(parent) == -signal.SIGKILL
        with odradek.Broker(directory) as again:
            assert sorted(again.topics()) == ["after", "before"]
        shutil.rmtree(directory)
        """
    )


def test_a_child_does_not_act_on_its_copy_of_a_broker() -> None:
    """It would expire the copy of a member, and write that into the parent's files."""
    succeeds(
        """
        clock = odradek.ManualClock()
        with odradek.Broker(clock=clock) as broker, odradek.Cluster(brokers=2) as cluster:
            cluster.create_topic("orders")
            child = os.fork()
            if not child:
                tell([
                    run(broker.settle_async), run(lambda: broker.expire_member_async("g", "m")),
                    lambda: cluster.controller, lambda: cluster.leader("orders"),
                    lambda: cluster.partition_state("orders", 0),
                ])
            assert ended(child) == 0
        """
    )


CLIENTS = """
from odradek.client import Producer, sync
from odradek.client.errors import UsageError

class Ended(BaseException):
    pass

def is_told(call):
    try:
        call()
    except UsageError as error:
        return "before its process was forked" in str(error)
    return False

def connections(broker):
    name = "kafka.server:type=socket-server-metrics,listener=PLAINTEXT,networkProcessor=0"
    return broker.metrics()[name]["connection-count"]
"""


def test_a_child_that_ends_within_blocks_of_clients_ends_as_it_meant_to() -> None:
    """Its status would be that of a client that cannot be closed there."""
    succeeds(
        CLIENTS
        + """
def write_and_fork(servers):
    with sync.Producer(servers, transactional_id="till") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_and_wait("orders", b"spool")
            child = os.fork()
            if not child:
                raise Ended
            assert ended(child) == 7

async def write_and_fork_async(servers):
    try:
        async with Producer(servers, transactional_id="till") as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send_and_wait("orders", b"spool")
                child = os.fork()
                if not child:
                    raise Ended
                assert ended(child) == 7
                await producer.send_and_wait("orders", b"thread")
    except Ended:
        os._exit(7)

with odradek.Broker() as broker:
    try:
        write_and_fork(broker.bootstrap_servers)
    except Ended:
        os._exit(7)
    asyncio.run(write_and_fork_async(broker.bootstrap_servers))
    kept = [one.value for one in broker.records("orders", read_committed=True)]
    assert kept == [b"spool", b"spool", b"thread"]
"""
    )


def test_calls_of_clients_in_a_child_are_refused_in_a_sentence() -> None:
    """They would wait for ever, or write into a transaction that the parent commits."""
    succeeds(
        CLIENTS
        + """
with odradek.Broker() as broker:
    with sync.Producer(broker.bootstrap_servers, transactional_id="till") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_and_wait("orders", b"spool")
        child = os.fork()
        if not child:
            tell([
                producer.commit_transaction, producer.abort_transaction, producer.flush,
                lambda: producer.send("orders", b"thread"), producer.close,
                lambda: producer.__exit__(None, None, None),
            ])
        assert ended(child) == 0
        producer.commit_transaction()
    assert [one.value for one in broker.records("orders", read_committed=True)] == [b"spool"]
"""
    )


def test_a_child_holds_no_connection_of_a_client_of_its_parents() -> None:
    """The broker would not learn that the client has gone; the child's end would take a socket from
    what the parent's loop looks at."""
    succeeds(
        CLIENTS
        + """
with odradek.Broker() as broker:
    reads, writes = os.pipe()
    producer = sync.Producer(broker.bootstrap_servers)
    producer.send_and_wait("orders", b"spool")
    child = os.fork()
    if not child:
        os.close(writes)
        os._exit(len(os.read(reads, 1)))
    assert connections(broker)
    producer.close()
    while connections(broker):
        pass
    os.write(writes, b".")
    assert ended(child) == 1
"""
    )
