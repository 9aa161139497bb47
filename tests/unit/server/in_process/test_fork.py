"""A process that is forked from one with brokers in it: what it must leave alone, and may not ask.

Each test is a program of its own: a child has the threads, locks and descriptors of its parent only
half, which is none of pytest's business.
"""

import os
import subprocess
import sys
import textwrap

import pytest

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
    done = subprocess.run(command, timeout=100, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_that_ends_leaves_the_records_of_its_parent() -> None:
    """The end of a worker would remove all that the broker keeps, and a restart find nothing."""
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
