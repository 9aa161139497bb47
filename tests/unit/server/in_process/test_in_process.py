"""`odradek.Broker`: start, stop, topics, threads, loops, clocks, and what goes wrong."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.clock import ManualClock
from odradek.config import ConfigError
from odradek.errors import BrokerError, ErrorCode
from odradek.server.errors import StartError
from odradek.timer import TimerTask


def port_of(broker: odradek.Broker) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])


def test_a_broker_in_a_thread() -> None:
    """Goal: the first line of the README: start, create, stop, and nothing is left."""
    before = set(threading.enumerate())
    with odradek.Broker() as broker:
        broker.create_topic("orders", partitions=3, config={"retention.ms": 60_000})
        assert broker.bootstrap_servers.startswith("127.0.0.1:")
        with pytest.raises(BrokerError) as refused:
            broker.create_topic("orders")
        assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        directory = broker._scratch.path  # type: ignore[union-attr]
        assert (Path(directory) / "orders-2").is_dir()
        with socket.create_connection(("127.0.0.1", port_of(broker))):
            pass
    assert not os.path.exists(directory)
    assert set(threading.enumerate()) <= before


def test_a_broker_on_the_running_loop() -> None:
    """Goal: `async with` shares the caller's loop, without a thread."""

    async def main() -> None:
        before = set(threading.enumerate())
        async with odradek.Broker() as broker:
            await broker.create_topic_async("orders")
            assert set(threading.enumerate()) <= before
            with pytest.raises(RuntimeError, match="create_topic_async"):
                broker.create_topic("more")

    asyncio.run(main())


def test_data_outlives_a_broker_with_a_directory(tmp_path: Path) -> None:
    """Goal: topics, the cluster's id and the directory are there after a restart."""
    broker = odradek.Broker(data_dir=str(tmp_path))
    with broker:
        broker.create_topic("kept")
        cluster_id = broker.cluster_id
    with broker:
        assert broker.cluster_id == cluster_id
        with pytest.raises(BrokerError, match="exists"):
            broker.create_topic("kept")


def test_a_data_directory_has_one_broker(tmp_path: Path) -> None:
    """Goal: two brokers never write one directory; the second says so and the first lives on."""
    with odradek.Broker(data_dir=str(tmp_path)) as first:
        with pytest.raises(StartError, match="in use by another broker"):
            odradek.Broker(data_dir=str(tmp_path)).start()
        first.create_topic("still-here")


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """The error would be the operating system's, with its number and without a word of ours."""
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file" / "data", tmp_path / "file"):
        with pytest.raises(StartError, match=rf"^Cannot use {directory}: Not a directory$"):
            odradek.Broker(data_dir=directory).start()


@pytest.mark.parametrize("maker", [odradek.Broker, lambda: odradek.Cluster(brokers=1)])
def test_who_starts_twice_is_told(maker: Callable[[], Any]) -> None:
    """The first would lose its thread, or its directory."""
    with maker() as broker, pytest.raises(RuntimeError, match=r"^it runs already; stop it before"):
        broker.start()

    async def main() -> None:
        async with maker() as broker:
            with pytest.raises(RuntimeError, match=r"^it runs already; stop it before"):
                await broker.start_async()

    asyncio.run(main())


def test_a_port_in_use_is_told() -> None:
    """Goal: the start fails with the address, and the temporary directory goes away."""
    with odradek.Broker() as first:
        second = odradek.Broker(listeners=[f"PLAINTEXT://127.0.0.1:{port_of(first)}"])
        told = "Address already in use; give another port, or port 0 for a free one$"
        with pytest.raises(StartError, match=told):
            second.start()
        assert second._scratch is None


def test_settings_are_checked_where_they_are_given() -> None:
    """Goal: a typing mistake is an error of the constructor's line."""
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes"):
        odradek.Broker(config={"log.segment.bytes": "many"})


@pytest.mark.parametrize("maker", [odradek.Broker, odradek.Cluster])
def test_an_unknown_setting_is_an_error_that_names_the_likely_one(maker: type) -> None:
    """A test would run with Kafka's default and nobody would see the mistyped name."""
    with pytest.raises(ValueError, match=r"setting num.partition .did you mean num.partitions"):
        maker(config={"num.partition": 3})
    with pytest.raises(ValueError, match=r"There is no broker setting no.such$"):
        maker(config={"no.such": "x"})
    maker(config={"listener.name.plaintext.max.connections": 3})


@pytest.mark.parametrize("maker", [odradek.Broker, odradek.Cluster])
def test_super_users_of_no_authorizer_are_refused(maker: type) -> None:
    """A suite would believe that it tests access rules."""
    with pytest.raises(ConfigError, match=r"without authorizer\.class\.name everybody is one"):
        maker(config={"super.users": "User:a"})


@pytest.mark.parametrize("maker", [odradek.Broker, odradek.Cluster])
@pytest.mark.parametrize(
    ("name", "value"),
    [("ssl.keystore.location", "/keys"), ("sasl.enabled.mechanisms", "SCRAM-SHA-256")],
)
def test_protection_that_no_listener_has_is_refused(maker: type, name: str, value: str) -> None:
    """A suite would believe that it tests TLS, or passwords."""
    with pytest.raises(ConfigError, match=f"{name} protects nothing, since no listener has"):
        maker(config={name: value})


@pytest.mark.parametrize("maker", [odradek.Broker, odradek.Cluster])
def test_an_authorizer_that_cannot_be_loaded_is_refused(maker: type) -> None:
    """A suite would believe that it tests the rules of a class of Java."""
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name"):
        maker(config={"authorizer.class.name": "com.example.Authorizer"})


def test_a_listener_without_what_it_needs_is_refused_at_the_start() -> None:
    """It would be open, or nobody could ever connect."""
    with pytest.raises(StartError, match=r"Listener SSL: there is neither ssl.keystore.location"):
        odradek.Broker(listeners="SSL://127.0.0.1:0").start()
    with pytest.raises(StartError, match=r"GSSAPI, which is Kerberos, is Kafka's default"):
        odradek.Broker(listeners="SASL_PLAINTEXT://127.0.0.1:0").start()


def test_brokers_of_a_cluster_say_as_whom_they_log_in() -> None:
    """They would refuse each other, and say so only when a replica falls behind."""
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    between = "sasl.mechanism.inter.broker.protocol"
    with pytest.raises(StartError, match=f"{between}: it must be one of sasl.enabled.mech"):
        odradek.Cluster(2, config=settings).start()
    with pytest.raises(StartError, match=r"scram-sha-256.sasl.jaas.config: .* as whom this broker"):
        odradek.Cluster(2, config={**settings, between: "SCRAM-SHA-256"}).start()
    line = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="b" unsecuredLoginLifetimeSeconds="long";'
    )
    tokens = {
        **settings,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        between: "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": line,
    }
    with pytest.raises(StartError, match=r"oauthbearer.sasl.jaas.config: .* is no number"):
        odradek.Cluster(2, config=tokens).start()


@pytest.mark.parametrize("maker", [odradek.Broker, odradek.Cluster])
def test_settings_without_effect_are_told(maker: type, caplog: pytest.LogCaptureFixture) -> None:
    """`odradek start` would say more than the broker of a test, which has to be believed."""
    maker(config={"num.io.threads": 4, "num.partitions": 3})
    assert [record.message for record in caplog.records] == [
        "Settings without effect: num.io.threads (has no meaning here: requests are handled on "
        "one event loop, without threads and queues of their own)"
    ]


def test_where_a_broker_listens() -> None:
    """An address that the command takes would be refused in a program, and a port need a URL around
    it."""
    with odradek.Broker() as taken:
        port = port_of(taken)
    for broker in (
        odradek.Broker(port=port),
        odradek.Broker(listeners=f"127.0.0.1:{port}"),
        odradek.Broker(listeners=[f"127.0.0.1:{port}"]),
        odradek.Broker(listeners=[f"PLAINTEXT://127.0.0.1:{port}"]),
    ):
        with broker:
            assert broker.bootstrap_servers == f"127.0.0.1:{port}"
    with pytest.raises(ConfigError, match="the port up to 65535"):
        odradek.Broker(port=65_536)
    with pytest.raises(ValueError, match="either listeners or port"):
        odradek.Broker(listeners=["127.0.0.1:9092"], port=9092)


def test_booleans_and_numbers_are_settings() -> None:
    """Goal: Python's values are taken as well as Kafka's text."""
    with odradek.Broker(config={"auto.create.topics.enable": False, "num.partitions": 4}) as broker:
        config = broker._running().config
        assert config.auto_create_topics_enable is False
        assert config.num_partitions == 4


def test_time_moves_only_when_the_test_moves_it() -> None:
    """Goal: R40: when `advance` returns, what became due has run, on the broker's thread."""
    clock = ManualClock()
    ran: list[tuple[int, str]] = []
    with odradek.Broker(clock=clock) as broker:
        timer = broker._running().timer

        def note() -> None:
            ran.append((clock.monotonic_ms(), threading.current_thread().name))

        timer.add_threadsafe(TimerTask(350, note))
        clock.advance(349)
        assert ran == []
        clock.advance(1)
        assert ran == [(350, "odradek-broker")]
    clock.advance(1000)


def test_a_stopped_broker_says_so() -> None:
    """Goal: no answer from a broker that is not there, and stopping twice is harmless."""
    broker = odradek.Broker()
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.bootstrap_servers
    broker.start()
    broker.stop()
    broker.stop()


def test_many_threads_create_topics() -> None:
    """Goal: the broker may be asked from any thread at once."""
    with odradek.Broker() as broker:
        threads = [
            threading.Thread(target=broker.create_topic, args=(f"topic-{number}",))
            for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(broker._running().metadata.image.topics) == 8


def test_many_brokers_leave_nothing_behind() -> None:
    """A run with a thousand tests would end for want of threads, descriptors or room."""
    threads = set(threading.enumerate())
    brokers = []
    with odradek.Broker() as first:
        descriptors = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            with odradek.Broker() as broker:
                brokers.append((port_of(broker), broker._scratch.path))  # type: ignore[union-attr]
                broker.produce("orders", b"spool")
        assert len(os.listdir("/proc/self/fd")) == descriptors
        assert first.topics() == {}
    assert set(threading.enumerate()) <= threads
    for port, directory in brokers:
        assert not os.path.exists(directory)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def test_what_there_is_can_be_found() -> None:
    """Somebody at a prompt would see a module without a broker in it."""
    done = subprocess.run(
        [sys.executable, "-c", "import odradek; print(*dir(odradek)); help(odradek)"],
        capture_output=True,
        text=True,
        check=True,
    )
    names = done.stdout.splitlines()[0].split()
    assert {"Broker", "Cluster", "ManualClock", "BrokerError", "ErrorCode", "StartError"} <= {
        *names
    }
    assert set(odradek.__all__) <= {*names}
    for name in odradek.__all__:
        assert getattr(odradek, name) is not None
    assert "with odradek.Broker() as broker:" in done.stdout
    assert "class Broker(" in done.stdout


def test_a_notebook_shows_topics_and_groups() -> None:
    """A cell that ends in a broker would show an address and nothing else."""
    broker = odradek.Broker()
    assert broker._repr_html_() == "<p><b>odradek.Broker</b>, not running</p>"
    with broker:
        broker.produce("orders", "spool")
        broker.reset("b&b", "latest", topics=["orders"])
        shown = broker._repr_html_()
        assert f"<code>{broker.bootstrap_servers}</code>" in shown
        assert "<tr><td>orders-0</td><td>1</td></tr>" in shown
        assert "<tr><td>b&amp;b</td><td>Empty</td></tr>" in shown


def test_a_data_directory_may_be_a_path(tmp_path: Path) -> None:
    """A test with `tmp_path` would have to turn it into text."""
    with odradek.Broker(tmp_path / "data") as broker:
        broker.create_topic("orders")
    assert (tmp_path / "data" / "orders-0").is_dir()


def remove_directory(log: Path) -> None:
    shutil.rmtree(log)


def remove_files(log: Path) -> None:
    for file in log.iterdir():
        file.unlink()


def remove_records(log: Path) -> None:
    for file in log.glob("*.log"):
        file.unlink()


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("remove", [remove_directory, remove_files, remove_records])
def test_a_restart_that_finds_its_records_gone_fails(
    remove: Callable[[Path], None], kept: bool, tmp_path: Path
) -> None:
    """It would pass, with topics that are empty."""
    with odradek.Broker(tmp_path if kept else None) as broker:
        broker.produce("orders", "spool")
        remove(Path(broker._running().config.log_dirs[0], "orders-0"))
        with pytest.raises(
            StartError, match=r"The records that the broker had are gone: .*orders-0"
        ):
            broker.restart()


@pytest.mark.parametrize("remove", [remove_directory, remove_files, remove_records])
def test_a_start_takes_a_directory_of_the_users_as_it_is(
    remove: Callable[[Path], None], tmp_path: Path
) -> None:
    """As Kafka's broker it makes the logs that are gone anew. An emptied directory between two
    starts, as between two runs of a program, would be refused."""
    with odradek.Broker(tmp_path) as broker:
        broker.produce("orders", "spool")
        broker.stop()
        remove(tmp_path / "orders-0")
        broker.start()
        assert broker.records("orders") == []
        broker.produce("orders", "thread")
        assert [each.value for each in broker.records("orders")] == [b"thread"]
        broker.stop()
        for each in tmp_path.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        broker.start()
        assert broker.topics() == {}


def test_a_broker_of_a_cluster_that_finds_its_records_gone_does_not_start() -> None:
    """As for one that is alone."""
    with odradek.Cluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        broker = cluster.broker(1)
        directory = broker.server.config.log_dirs[0]
        broker.stop()
        shutil.rmtree(directory)
        with pytest.raises(StartError, match="The records that the broker had are gone"):
            broker.start()
