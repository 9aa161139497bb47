"""The rows of the page for those who come from other libraries, run as they are written there.

If one of these fails, somebody types what the page says takes the place of their call, and it is
refused, or does nothing. `test_coming_from` holds that the page names every call.
"""

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from tests.deadlines import deadline_s
from tests.wire.libraries.pages.test_coming_from import PAGE

import odradek
from odradek import client
from odradek.acl import AclOperation, PermissionType, ResourceType
from odradek.client import sync
from odradek.errors import ErrorCode

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
# Whose calls a table has, by its section and its first head, and whether they block.
TABLES: dict[tuple[str, str], tuple[str, bool]] = {
    ("Consumer", "kafka-python"): ("Consumer", False),
    ("Producer", "kafka-python"): ("Producer", False),
    ("Admin", "kafka-python `KafkaAdminClient`, aiokafka `AIOKafkaAdminClient`"): ("Admin", False),
    ("aiokafka, call by call", "`AIOKafkaConsumer`"): ("Consumer", False),
    ("aiokafka, call by call", "`AIOKafkaProducer`"): ("Producer", False),
    ("aiokafka, call by call", "`AIOKafkaAdminClient`"): ("Admin", False),
    ("confluent-kafka, call by call", "`confluent_kafka.Producer`"): ("Producer", True),
    ("confluent-kafka, call by call", "`confluent_kafka.Consumer`"): ("Consumer", True),
    ("confluent-kafka, call by call", "`confluent_kafka.ShareConsumer`"): ("ShareConsumer", True),
    ("confluent-kafka, call by call", "`confluent_kafka.admin.AdminClient`"): ("Admin", True),
    ("confluent-kafka, call by call", "`confluent_kafka.Message`"): ("ConsumerRecord", True),
    ("kafka-python, call by call", "`KafkaConsumer`"): ("Consumer", True),
    ("kafka-python, call by call", "`KafkaProducer`"): ("Producer", True),
    ("kafka-python, call by call", "`KafkaAdminClient`"): ("Admin", True),
}
# Tables of settings: `test_coming_from` looks at these.
SETTINGS_OF = ("settings of all three", "settings of kafka-python's")
# What is left out on the page.
FILLED = {
    "async for": "async for record in c:\n    break",
    "async for record in c": "async for record in c:\n    break",
    "assignors=[Assignor()]": "Consumer(servers, group_id=id, topics=[t], assignors=[Assignor()])",
    "Consumer({..})": "Consumer(config)",
    'Consumer(servers, topics=["t"], ..)': 'Consumer(servers, topics=["t"], group_id=id)',
    'Consumer(servers, topics=["a", "b"])': 'Consumer(servers, topics=["a", "b"], group_id=id)',
    "Producer({..})": "Producer(config)",
    "Producer(servers, ..)": "Producer(servers)",
    "Producer(.., on_delivery=f)": "Producer(servers, on_delivery=f)",
    "send(.., on_delivery=f)": "send(t, value, on_delivery=f)",
    "await send_and_wait(..)": "await send_and_wait(t, value)",
    "store_offsets(record, ..)": "store_offsets(record)",
    '{tp: CommittedOffset(7, "note")}': 'await commit({tp: CommittedOffset(7, "note")})',
    "offsets_for_times(..)": "await offsets_for_times({tp: ms})",
    "subscribe(listener=)": "subscribe(topics, listener=listener)",
    "subscribe(topics, pattern=, listener=)": "subscribe(topics, listener=listener)",
    "alter_configs({resource: [ConfigChange(..)]})": "alter_configs({resource: [change]})",
    "describe_scram_users([..])": "describe_scram_users([])",
    "create_topics([NewTopic(..)])": "create_topics([NewTopic(t, 3)])",
    "alter_scram_users(..)": 'alter_scram_users([ScramPassword("u", "SCRAM-SHA-256", "secret")])',
    ".result(10)": "send(t, value).result(10)",
}
# Theirs, or functions of a user's, which our own clients call.
NO_CALLS = {
    ".get(10)",
    "()",
    "f(error, metadata)",
    "f(key, partitions, available)",
    "assign(members, partition_counts)",
    "deserialize(topic, headers, data)",
    "serialize(topic, headers, value)",
}
# How calls are made that the page names without arguments.
ARGUMENTS = {
    "acknowledge": "(record)",
    "alter_configs": "({resource: [change]})",
    "alter_group_offsets": "(id, {tp: 7})",
    "assign": "([tp])",
    "beginning_offsets": "([tp])",
    "create_acls": "([binding])",
    "create_partitions": "({t: NewPartitions(3)})",
    "create_topics": "([NewTopic(t, 3)])",
    "delete_acls": "([AclFilter()])",
    "delete_groups": "(ids)",
    "delete_records": "({tp: 7})",
    "delete_topics": "([t])",
    "describe_configs": "([resource])",
    "describe_groups": "(ids)",
    "describe_topics": "([t])",
    "end_offsets": "([tp])",
    "getmany": "(timeout_ms=1000)",
    "highwater": "(tp)",
    "last_stable_offset": "(tp)",
    "list_group_offsets": "(ids)",
    "list_offsets": "({tp: LATEST})",
    "offsets_for_times": "({tp: ms})",
    "pause": "(tp)",
    "position": "(tp)",
    "resume": "(tp)",
    "seek": "(tp, 7)",
    "send": "(t, value)",
    "send_and_wait": "(t, value)",
    "send_offsets_to_transaction": "({tp: 7}, consumer.group_metadata())",
    "set_acknowledgement_commit_callback": "(callback)",
    "subscribe": "([t])",
}


class Row(NamedTuple):
    """One piece of code of the page, of a client's table."""

    table: tuple[str, str]
    code: str

    def __str__(self) -> str:
        return f"{self.table[1].strip('`')}: {self.code}"


def tables() -> Iterator[tuple[tuple[str, str], list[str]]]:
    """The tables of the page, by section and first head."""
    section = ""
    for block in PAGE.split("\n\n"):
        if block.startswith("## "):
            section = block[3:]
        elif block.startswith("|"):
            head, _, *rows = block.splitlines()
            yield (section, head.split(" | ")[0].lstrip("| ")), rows


def kind_of(table: tuple[str, str]) -> type:
    name, is_blocking = TABLES[table]
    found: type = getattr(sync if is_blocking and name != "ConsumerRecord" else client, name)
    return found


def has(table: tuple[str, str], name: str) -> bool:
    return hasattr(kind_of(table), name)


def code_in(table: tuple[str, str], row: str) -> Iterator[str]:
    """The code of a row's last cell; of calls that stay the same, those of the first."""
    first, _, last = row.strip("| ").partition(" | ")
    last = last.rpartition(" | ")[2] or last
    found = re.findall(r"`([^`]+)`", last)
    if last.startswith("the same"):
        found += re.findall(r"`([^`]+)`", first)
    for each in found:
        if "(" in each or each in FILLED:
            yield each
        elif each.isidentifier() and has(table, each):
            is_attribute = TABLES[table][0] == "ConsumerRecord"
            yield each if is_attribute else each + ARGUMENTS.get(each, "()")


def rows() -> list[Row]:
    """Every piece of code of the page, once a table."""
    found: list[Row] = []
    for table, lines in tables():
        if table[1] in SETTINGS_OF:
            continue
        for line in lines:
            codes = list(code_in(table, line))
            if len(codes) > 1 and codes[0].endswith(":") and codes[0].startswith("for "):
                codes = ["\n    ".join(codes)]
            found += [Row(table, each) for each in codes if each not in NO_CALLS]
    return list(dict.fromkeys(found))


def filled(code: str) -> str:
    """A piece of code with what the page leaves out."""
    code = FILLED.get(code, code)
    code = re.sub(r"(\w+)=(?:\.\.)?(?=[,)])", r"\1=\1", code)
    if code.startswith("transaction("):
        code = f"async with {code}:"
    return f"{code}\n    pass" if code.endswith(":") else code


class Listener:
    """A rebalance listener."""

    def on_partitions_assigned(self, partitions: object) -> None: ...

    def on_partitions_revoked(self, partitions: object) -> None: ...


def assignor() -> client.Assignor:
    """The assignor of the page."""
    names: dict[str, Any] = {}
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(example, names)
    made: client.Assignor = names["ToTheFirst"]()
    return made


class Names(dict[str, Any]):
    """The names that the code of a row may use: a client's calls are those that have no other
    meaning."""

    subject: Any = None

    def __missing__(self, name: str) -> Any:
        for each in (self.subject, self.get("consumer")):
            if hasattr(each, name):
                return getattr(each, name)
        raise KeyError(name)


async def settled(found: Any) -> Any:
    """The outcome of a call, awaited or not."""
    while inspect.isawaitable(found):
        found = await found
    return found


class World:
    """A broker with topics and a group, and clients that are closed at the end."""

    def __init__(self, broker: odradek.Broker, table: tuple[str, str]) -> None:
        self._servers = broker.bootstrap_servers
        self._module: Any = sync if TABLES[table][1] else client
        self._made: list[Any] = []
        for topic in ("t", "a", "b"):
            broker.create_topic(topic)
            for number in range(9):
                broker.produce(topic, f"{number}")
        self.names = Names(vars(client) | {each: getattr(client, each) for each in client.__all__})
        for kind in ("Consumer", "Producer", "Admin"):
            self.names[kind] = lambda *args, kind=kind, **given: self.make(kind, *args, **given)
        self.names.update(self._values())

    def _values(self) -> dict[str, Any]:
        tp = client.TopicPartition("t", 0)
        pattern = client.ResourcePattern(ResourceType.TOPIC, "t")
        entry = client.AccessControlEntry("User:u", "*", AclOperation.READ, PermissionType.ALLOW)
        return {
            "servers": self._servers,
            "config": {"bootstrap.servers": self._servers},
            "t": "t",
            "tp": tp,
            "tps": [tp],
            "topic": "t",
            "topics": ["t"],
            "offset": 7,
            "id": "g",
            "ids": ["g"],
            "ms": 0,
            "name": "new",
            "partitions": 3,
            "replication_factor": 1,
            "partition": 0,
            "timestamp_ms": 1,
            "max_records": 5,
            "timeout_ms": 1_000,
            "value": b"v",
            "key": b"k",
            "values": [b"1", b"2"],
            "keys": [b"1", b"2"],
            "headers": None,
            "timestamps_ms": [1, 2],
            "listener": Listener(),
            "callback": lambda *_: None,
            "f": lambda *_: None,
            "on_delivery": lambda *_: None,
            "offsets": {tp: 7},
            "Assignor": assignor,
            "resource": client.ConfigResource.topic("t"),
            "change": client.ConfigChange("retention.ms", "7000"),
            "binding": client.AclBinding(pattern, entry),
        }

    def make(self, kind: str, *args: Any, **given: Any) -> Any:
        made = getattr(self._module, kind)(*args, **given)
        self._made.append(made)
        return made

    async def close(self) -> None:
        for each in self._made:
            await settled(each.close())

    async def reader(self, code: str) -> Any:
        """A consumer of the group that has read a record and committed, unless it is to be told
        what to read."""
        stores = {"enable_auto_offset_store": "store_offsets" not in code}
        made = self.make(
            "Consumer", self._servers, group_id="g", auto_offset_reset="earliest", **stores
        )
        if not re.search(r"\bsubscribe|\bassign\(", code):
            made.assign([client.TopicPartition("t", 0)])
            self.names["record"] = self.names["m"] = await settled(made.getone())
            await settled(made.commit({client.TopicPartition("t", 0): 1}))
        self.names["consumer"] = made
        return made

    async def sharer(self, code: str) -> Any:
        begin = client.ConfigChange("share.auto.offset.reset", "earliest")
        with sync.Admin(self._servers) as admin:
            admin.alter_configs({client.ConfigResource.group("s"): [begin]})
        mode = {"share_acknowledgement_mode": "explicit"}
        made = self.make("ShareConsumer", self._servers, group_id="s", topics=["t"], **mode)
        if "record" in code:
            self.names["type"] = client.AcknowledgeType.ACCEPT
            self.names["record"] = next(made)
        return made

    async def writer(self, code: str) -> Any:
        if "consumer" in code:
            await self.reader("")
        needs = re.search(r"transaction", code)
        made = self.make("Producer", self._servers, **({"transactional_id": "x"} if needs else {}))
        if needs and "init_transactions" not in code:
            await settled(made.init_transactions())
            if not re.search(r"\bbegin_transaction|\btransaction\(", code):
                made.begin_transaction()
        return made

    async def admin(self, code: str) -> Any:
        reader = await self.reader("")
        await settled(reader.close())
        self.names["type"] = client.ElectionType.PREFERRED
        made = self.make("Admin", self._servers)
        if "create_topics" in code:
            await settled(made.delete_topics(["t"]))
        return made

    async def subject(self, table: tuple[str, str], code: str) -> Any:
        kind = TABLES[table][0]
        if kind == "ConsumerRecord":
            await self.reader("")
            return self.names["record"]
        makers = {
            "Consumer": self.reader,
            "Producer": self.writer,
            "Admin": self.admin,
            "ShareConsumer": self.sharer,
        }
        return await makers[kind](code)

    async def run(self, row: Row) -> Any:
        """The outcome of a row's code."""
        code = filled(row.code)
        self.names.subject = await self.subject(row.table, code)
        self.names["c"] = self.names["p"] = self.names.subject
        mode = "exec" if "\n" in code else "eval"
        compiled = compile(code, "the page", mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        found = await settled(eval(compiled, {}, self.names))
        if found in self._made:
            await settled(found.start())
        return found


def test_every_table_is_run() -> None:
    """A new one would not be."""
    assert {each for each, _ in tables() if each[1] not in SETTINGS_OF} == {*TABLES}


@pytest.mark.slow  # a broker each, hundreds of them
@pytest.mark.parametrize("row", rows(), ids=str)
def test_a_row_is_run(row: Row) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(deadline_s(60)):
            world = World(broker, row.table)
            try:
                found = await world.run(row)
            finally:
                await world.close()
        outcomes = found.values() if isinstance(found, dict) else [found]
        for each in outcomes:
            is_needless = getattr(each, "code", None) == ErrorCode.ELECTION_NOT_NEEDED
            assert not isinstance(each, client.KafkaError) or is_needless, row

    with odradek.Broker(config=SETTINGS) as broker:
        asyncio.run(scenario())
