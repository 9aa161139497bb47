"""Other people's clients log in by every mechanism, with a right password and a wrong one.

If one of these fails, a library cannot be used with a protected broker, or gets in without the
password.
"""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.deadlines import deadline_s
from tests.wire.java_tools import JavaTools

import odradek
from odradek.server.in_process.protected.login import Login

# Clients that were refused leave their sockets to the collector.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

WORDS: Final = ("tls", "mtls", "plain", "scram", "oauth", "plain+tls", "scram+tls", "oauth+tls")
WITH_PASSWORD: Final = ("plain", "scram", "scram+tls")
USERS: Final = {"alice": "secret", "Ālice": "ß", 'Ālice,=" ': 'p;"=\\ß'}
WRONG: Final = "no-password"
TIMEOUT_S: Final = deadline_s(60)


@pytest.fixture(scope="module")
def brokers() -> Iterator[Callable[[str], odradek.Broker]]:
    """One broker a word, which all clients share."""
    running: dict[str, odradek.Broker] = {}

    def broker(word: str) -> odradek.Broker:
        if word not in running:
            running[word] = odradek.Broker(security=word, users=USERS).start()
            running[word].create_topic("t")
        return running[word]

    yield broker
    for each in running.values():
        each.stop()


class Refused(Exception):
    """A client says that it was not let in."""


def by_confluent(login: Login, value: bytes) -> bytes:
    from confluent_kafka import Consumer, KafkaError, Producer

    errors: list[Any] = []
    quiet = {"error_cb": errors.append, "log_level": 0}
    producer = Producer({**login.confluent(), **quiet})
    producer.produce("t", value)
    while producer.flush(0.2):
        if any(each.code() == KafkaError._AUTHENTICATION for each in errors):
            producer.purge()
            raise Refused
    consumer = Consumer({**login.confluent(), "group.id": "c", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    try:
        while True:
            record = consumer.poll(TIMEOUT_S)
            assert record is not None
            if record.error() is None and record.value() == value:
                return bytes(record.value())
    finally:
        consumer.close()


def by_kafka_python(login: Login, value: bytes) -> bytes:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError

    settings = login.kafka_python()
    try:
        producer = KafkaProducer(**settings, max_block_ms=10_000)
    except KafkaError as error:
        raise Refused from error
    try:
        producer.send("t", value).get(deadline_s(15))
    except KafkaError as error:
        raise Refused from error
    finally:
        producer.close(1)
    consumer = KafkaConsumer("t", **settings, auto_offset_reset="earliest")
    try:
        return next(record.value for record in consumer if record.value == value)
    finally:
        consumer.close()


def by_aiokafka(login: Login, value: bytes) -> bytes:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import KafkaError

    async def work() -> bytes:
        settings = login.aiokafka()
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
        except KafkaError as error:
            await producer.stop()
            raise Refused from error
        await producer.send_and_wait("t", value)
        await producer.stop()
        consumer = AIOKafkaConsumer("t", **settings, auto_offset_reset="earliest")
        await consumer.start()
        try:
            async for record in consumer:
                if record.value == value:
                    return bytes(record.value)
        finally:
            await consumer.stop()
        raise AssertionError("a consumer does not end")

    return asyncio.run(asyncio.wait_for(work(), TIMEOUT_S))


CLIENTS: Final = (by_confluent, by_kafka_python, by_aiokafka)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("word", WORDS)
def test_a_client_comes_in(
    brokers: Callable[[str], odradek.Broker], word: str, client: Callable[[Login, bytes], bytes]
) -> None:
    value = f"{client.__name__} by {word}".encode()
    assert client(brokers(word).login("alice"), value) == value


@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("word", WITH_PASSWORD)
def test_a_client_with_a_wrong_password_does_not(
    brokers: Callable[[str], odradek.Broker], word: str, client: Callable[[Login, bytes], bytes]
) -> None:
    with pytest.raises(Refused):
        client(brokers(word).login("alice", WRONG), b"never")
    with pytest.raises(Refused):
        client(brokers(word).login("mallory", WRONG), b"never")
    assert b"never" not in [record.value for record in brokers(word).records("t")]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("word", ["plain", "scram"])
def test_names_and_passwords_of_all_signs(
    brokers: Callable[[str], odradek.Broker], word: str, client: Callable[[Login, bytes], bytes]
) -> None:
    value = f"{client.__name__} by {word} as another".encode()
    # kafka-python sends commas and equals signs of SCRAM's names as they are, which SCRAM forbids.
    name = "Ālice" if client is by_kafka_python else 'Ālice,=" '
    assert client(brokers(word).login(name), value) == value


@pytest.mark.parametrize("word", ["plain", "scram", "mtls"])
def test_kcat(
    brokers: Callable[[str], odradek.Broker], word: str, kcat: str, tmp_path: Path
) -> None:
    settings = brokers(word).login("alice").confluent()
    for name in [name for name in settings if name.endswith(".pem")]:
        path = tmp_path / name
        path.write_text(settings.pop(name))
        settings[name.replace(".pem", ".location")] = str(path)
    words = [word for each in settings.items() for word in ("-X", "=".join(each))]
    done = subprocess.run(
        [kcat, "-L", *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert 'topic "t"' in done.stdout, done.stderr


def test_kafka_s_own_tools(
    brokers: Callable[[str], odradek.Broker], java: str, kafka_class_path: str, tmp_path: Path
) -> None:
    with JavaTools(java, kafka_class_path, tmp_path) as tools:
        for word in WORDS:
            login = brokers(word).login("alice")
            path = tmp_path / "client.properties"
            properties = {name: text.replace("\\", "\\\\") for name, text in login.java().items()}
            lines = [
                f"{name}={text.strip()}".replace("\n", "\\n") for name, text in properties.items()
            ]
            path.write_text("\n".join(lines), encoding="utf-8")
            servers = ["--bootstrap-server", brokers(word).bootstrap_servers]
            done = tools("topics", [*servers, "--command-config", str(path), "--list"])
            assert "t" in done.output.split(), (word, done)
