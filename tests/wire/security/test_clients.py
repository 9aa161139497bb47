"""Other people's clients log in by every mechanism, with a right password and a wrong one.

If one of these fails, a library cannot be used with a protected broker, or gets in without the
password.
"""

import asyncio
import subprocess
from collections.abc import Callable, Iterator, Mapping
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
Brokers = Callable[[str], odradek.Broker]
Client = Callable[[Login, bytes], bytes]


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
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


class ByKcat:
    """kcat, a process a call."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder

    def __call__(self, login: Login, value: bytes) -> bytes:
        settings = self._settings(login)
        self._run(settings, "-P", text=value)
        return self._run(settings, "-C", "-o", "-1", "-e", "-q").removesuffix(b"\n")

    def _settings(self, login: Login) -> dict[str, str]:
        settings = login.confluent()
        for name in [name for name in settings if name.endswith(".pem")]:
            path = self._folder / name
            path.write_text(settings.pop(name))
            settings[name.replace(".pem", ".location")] = str(path)
        if settings.pop("oauth_cb", None) is not None:
            settings["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
            settings["sasl.oauthbearer.config"] = f"principal={login.name}"
        return settings

    def _run(self, settings: Mapping[str, str], *words: str, text: bytes = b"") -> bytes:
        given = (word for each in settings.items() for word in ("-X", "=".join(each)))
        # It waits for a topic of a broker that refuses it.
        command = [self._program, *words, "-t", "t", "-m", "10", *given]
        done = subprocess.run(
            command, input=text, capture_output=True, timeout=TIMEOUT_S, check=False
        )
        if b"Authentication failed" in done.stderr:
            raise Refused
        assert done.returncode == 0, done.stderr
        return done.stdout


class ByJava:
    """Kafka's own tools."""

    def __init__(self, tools: JavaTools, folder: Path) -> None:
        self._tools = tools
        self._folder = folder

    def __call__(self, login: Login, value: bytes) -> bytes:
        path = str(self._folder / "client.properties")
        lines = [f"{name}={_escaped(text.strip())}" for name, text in login.java().items()]
        Path(path).write_text("\n".join(lines), encoding="ascii")
        servers = login.java()["bootstrap.servers"]
        words = ["--bootstrap-server", servers, "--command-config", path, "--topic", "t"]
        # The producer's tool says only in a log that it was refused.
        self._run("topics", [*words, "--describe"])
        self._run("console-producer", words, value.decode() + "\n")
        _, _, end = self._run("get-offsets", [*words, "--time", "latest"]).strip().split(":")
        last = ["--partition", "0", "--offset", str(int(end) - 1), "--max-messages", "1"]
        return self._run("console-consumer", [*words, *last]).strip().encode()

    def _run(self, tool: str, words: list[str], text: str = "") -> str:
        done = self._tools(tool, words, text)
        if "command : Authentication failed" in done.output + done.errors:
            raise Refused
        assert done.status == 0, done
        return done.output


def _escaped(text: str) -> str:
    """The text in a file of Java's properties, which is ISO-8859-1."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return "".join(each if each.isascii() else f"\\u{ord(each):04x}" for each in text)


@pytest.fixture(scope="module")
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """Writes a value to topic `t` and reads it there, or raises `Refused`."""
    folder = tmp_path_factory.mktemp("client")
    match request.param:
        case "kcat":
            yield ByKcat(request.getfixturevalue("kcat"), folder)
        case "java":
            programs = (request.getfixturevalue(name) for name in ("java", "kafka_class_path"))
            with JavaTools(*programs, folder) as tools:
                yield ByJava(tools, folder)
        case name:
            yield IN_PYTHON[name]


IN_PYTHON: Final = {
    "confluent": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}
CLIENTS: Final = (*IN_PYTHON, "kcat", "java")
of_each_client: Final = pytest.mark.parametrize("client", CLIENTS, indirect=True)


@of_each_client
@pytest.mark.parametrize("word", WORDS)
def test_a_client_comes_in(brokers: Brokers, word: str, client: Client) -> None:
    value = f"{client} by {word}".encode()
    assert client(brokers(word).login("alice"), value) == value


@of_each_client
@pytest.mark.parametrize("word", WITH_PASSWORD)
def test_a_client_with_a_wrong_password_does_not(
    brokers: Brokers, word: str, client: Client
) -> None:
    with pytest.raises(Refused):
        client(brokers(word).login("alice", WRONG), b"never")
    with pytest.raises(Refused):
        client(brokers(word).login("mallory", WRONG), b"never")
    assert b"never" not in [record.value for record in brokers(word).records("t")]


@of_each_client
@pytest.mark.parametrize("word", ["plain", "scram"])
def test_names_and_passwords_of_all_signs(brokers: Brokers, word: str, client: Client) -> None:
    value = f"{client} by {word} as another".encode()
    # kafka-python sends commas and equals signs of SCRAM's names as they are, which SCRAM forbids.
    name = "Ālice" if client is by_kafka_python else 'Ālice,=" '
    assert client(brokers(word).login(name), value) == value
