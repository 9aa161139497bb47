"""The shop against a real Kafka: what a user orders is announced, what is paid shows."""

import asyncio
import json
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from fastapi.testclient import TestClient
from shop import ORDERS, PAYMENTS, app

PATIENCE_S = 60


@pytest.fixture(scope="session", autouse=True)
def topics(kafka_bootstrap_servers: str) -> None:
    async def create() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap_servers)
        await admin.start()
        try:
            wanted = [NewTopic(ORDERS, 3, 1), NewTopic(PAYMENTS, 1, 1)]
            await admin.create_topics(wanted)
        finally:
            await admin.close()

    asyncio.run(create())


@pytest.fixture
def client(kafka_bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setenv("SHOP_KAFKA", kafka_bootstrap_servers)
    with TestClient(app) as client:
        yield client


async def announced(servers: str, order_id: str) -> dict[str, object]:
    consumer = AIOKafkaConsumer(ORDERS, bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for record in consumer:
                if record.key == order_id.encode():
                    found: dict[str, object] = json.loads(record.value)
                    return found
    finally:
        await consumer.stop()
    raise AssertionError("the consumer has ended")


async def pay(servers: str, order_id: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=servers)
    await producer.start()
    try:
        await producer.send_and_wait(PAYMENTS, b"{}", key=order_id.encode())
    finally:
        await producer.stop()


def test_an_order_is_announced(client: TestClient, kafka_bootstrap_servers: str) -> None:
    answer = client.post("/orders", json={"article": "thread", "count": 2})
    assert answer.status_code == 202
    order_id = answer.json()["id"]
    message = asyncio.run(announced(kafka_bootstrap_servers, order_id))
    assert message == {"id": order_id, "article": "thread", "count": 2}


def test_an_order_is_open_until_it_is_paid(
    client: TestClient, kafka_bootstrap_servers: str
) -> None:
    order_id = client.post("/orders", json={"article": "spool"}).json()["id"]
    assert client.get(f"/orders/{order_id}").json()["state"] == "open"
    asyncio.run(pay(kafka_bootstrap_servers, order_id))
    deadline = time.monotonic() + PATIENCE_S
    while client.get(f"/orders/{order_id}").json()["state"] != "paid":
        assert time.monotonic() < deadline, "the payment has not arrived"
        time.sleep(0.02)


def test_an_order_that_nobody_made(client: TestClient) -> None:
    assert client.get("/orders/none").status_code == 404
