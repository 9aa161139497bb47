"""A small shop: takes orders over HTTP, announces them in Kafka, follows the payments."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

ORDERS = "shop.orders"
PAYMENTS = "shop.payments"


class NewOrder(BaseModel):
    article: str
    count: int = 1


async def follow_payments(app: FastAPI) -> None:
    async for record in app.state.payments:
        order_id = record.key.decode()
        if order_id in app.state.orders:
            app.state.orders[order_id]["state"] = "paid"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    servers = os.environ["SHOP_KAFKA"]
    app.state.orders = {}
    app.state.producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
    app.state.payments = AIOKafkaConsumer(
        PAYMENTS,
        bootstrap_servers=servers,
        group_id=f"shop-{uuid4()}",
        auto_offset_reset="earliest",
    )
    await app.state.producer.start()
    await app.state.payments.start()
    following = asyncio.create_task(follow_payments(app))
    yield
    following.cancel()
    await app.state.payments.stop()
    await app.state.producer.stop()


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def take_order(order: NewOrder) -> dict[str, str]:
    order_id = str(uuid4())
    app.state.orders[order_id] = {**order.model_dump(), "state": "open"}
    body = json.dumps({"id": order_id, **order.model_dump()}).encode()
    await app.state.producer.send_and_wait(ORDERS, body, key=order_id.encode())
    return {"id": order_id}


@app.get("/orders/{order_id}")
async def show_order(order_id: str) -> dict[str, object]:
    if order_id not in app.state.orders:
        raise HTTPException(404, "there is no such order")
    found: dict[str, object] = app.state.orders[order_id]
    return found
