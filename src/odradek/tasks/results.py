"""The results of tasks, for those who wait for them in this process."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from odradek.client.aio.consumer import Consumer
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.model import TopicPartition
from odradek.tasks.errors import TaskFailed


class Results:
    """Reads the topic of results from when it is first needed; hears only what is waited for."""

    def __init__(self, topic: str, new_consumer: Callable[[], Consumer]) -> None:
        self.topic = topic
        self._partition = TopicPartition(topic, 0)
        self._new_consumer = new_consumer
        self._consumer: Consumer | None = None
        self._reading: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        # Several may wait for the result of one id.
        self._waiting: dict[str, list[asyncio.Future[Any]]] = {}

    async def expect(self, name: str) -> asyncio.Future[Any]:
        """A future of the result of a call that is sent after this returns."""
        async with self._opening:
            if self._reading is None or self._reading.done():
                await self._open()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, []).append(future)
        future.add_done_callback(lambda ended: self._forget(name, ended))
        return future

    def _forget(self, name: str, ended: asyncio.Future[Any]) -> None:
        self._waiting[name].remove(ended)
        if not self._waiting[name]:
            del self._waiting[name]

    def _unanswered(self) -> list[asyncio.Future[Any]]:
        return [each for some in self._waiting.values() for each in some if not each.done()]

    async def _open(self) -> None:
        await self.close()
        self._consumer = consumer = self._new_consumer()
        consumer.assign([self._partition])
        await consumer.seek_to_end(self._partition)
        await consumer.position(self._partition)
        self._reading = asyncio.create_task(self._read(consumer))

    async def _read(self, consumer: Consumer) -> None:
        try:
            async for record in consumer:
                self._hear(record)
        except Exception as error:  # noqa: BLE001 - whoever waits has to hear of it
            for future in self._unanswered():
                future.set_exception(error)

    def _hear(self, record: ConsumerRecord) -> None:
        name = (record.key or b"").decode("utf-8", "replace")
        waiting = [each for each in self._waiting.get(name, ()) if not each.done()]
        if not waiting:
            return
        try:
            outcome = json.loads(record.value)
        except (TypeError, ValueError):
            outcome = None
        if not isinstance(outcome, dict):
            return  # it was written by somebody else
        for future in waiting:
            if "error" in outcome:
                future.set_exception(TaskFailed(outcome["error"]))
            else:
                future.set_result(outcome.get("value"))

    async def close(self) -> None:
        """Stops reading; callers that wait are cancelled."""
        consumer, self._consumer = self._consumer, None
        reading, self._reading = self._reading, None
        if consumer is not None:
            await consumer.close()
        if reading is not None:
            await reading
        for future in self._unanswered():
            future.cancel()
