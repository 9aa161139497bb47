"""`App`: tasks by name, the topics that they live in, and the worker that runs them.

An app `billing` has four topics: `billing` has the calls to run, `billing.later` is a schedule
topic with the delayed calls, `billing.results` has the results that callers wait for, and
`billing.dead` the calls that failed for good. A call is run at least once: a worker commits a call
after it has run it, delayed it or sent it to `billing.dead`.
"""

import asyncio
import json
import logging
import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, ParamSpec, Self

from odradek.client.aio.admin import Admin
from odradek.client.aio.consumer import Consumer
from odradek.client.aio.producer import Producer
from odradek.client.core.admin_types import ConfigResource, NewTopic
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.errors import KafkaError
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.tasks.call import Call, decode, encode
from odradek.tasks.errors import DelaysUnsupported, UnreadableCall
from odradek.tasks.results import Results
from odradek.tasks.task import Options, Retries, Task

logger = logging.getLogger(__name__)

P = ParamSpec("P")

_TARGET: Final = "schedule.target.topic"
_LONGEST_ERROR: Final = 1000
"""Characters: an error of megabytes would not fit beside its call."""
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_NEVER_TAKEN: Final = _TOO_LARGE | {ErrorCode.INVALID_RECORD}
"""A record that is refused so is refused as often as it is sent."""


class App:
    """See the module.

        app = App("localhost:9092", "billing")

        @app.task(retries=5)
        def charge(order: str) -> None: ...

        async with app:
            await charge.send("4711")
            await app.work()

    `config` goes to all clients: security, and the like. `partitions` is how many workers can work
    at once, if the topic has to be made.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        name: str,
        *,
        partitions: int = 1,
        config: Mapping[str, object] = {},
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self.later = f"{name}.later"
        self.dead = f"{name}.dead"
        self.tasks: dict[str, Task[Any]] = {}
        self._servers = bootstrap_servers
        self._config = config
        self._partitions = partitions
        self._rng = random.Random() if rng is None else rng
        self._producer: Producer | None = None
        self._results = Results(f"{name}.results", lambda: Consumer(self._servers, self._config))
        self._can_delay = False
        # Several users may be inside `async with` of one app at a time.
        self._users = 0
        self._changing = asyncio.Lock()

    def task(
        self,
        *,
        name: str | None = None,
        retries: int = 0,
        backoff: str = "exponential",
        delay: timedelta = timedelta(seconds=1),
        longest_delay: timedelta = timedelta(hours=1),
    ) -> Callable[[Callable[P, Any]], Task[P]]:
        """Makes a function a task, under its own name if it is given none. When it raises it is run
        again, `retries` times at most: after `delay`, and then twice as long each time, or
        (`backoff="constant"`) always as long, but never longer than `longest_delay`.

        Raises:
            ValueError: there is a task of the name, or no such backoff.
        """

        def made(function: Callable[P, Any]) -> Task[P]:
            given = name or function.__name__
            if given in self.tasks:
                raise ValueError(f"there is a task {given!r} already")
            task = Task(self, given, function, Retries(retries, backoff, delay, longest_delay))
            self.tasks[given] = task
            return task

        return made

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Makes the topics that are not there. Its caller calls `stop`, too.

        Raises:
            DelaysUnsupported: a task has retries, and the broker does not deliver later.
            KafkaError: the broker cannot be reached, or does not let this client make topics.
        """
        async with self._changing:
            if self._producer is None:
                async with Admin(self._servers, self._config) as admin:
                    await self._make_topics(admin)
                    self._can_delay = await self._delivers_later(admin)
            retried = [task.name for task in self.tasks.values() if task.retries.count]
            if retried and not self._can_delay:
                names = ", ".join(retried)
                raise DelaysUnsupported(f"{self._why_not()}: {names} cannot be retried")
            if self._producer is None:
                self._producer = Producer(self._servers, self._config)
            self._users += 1

    async def stop(self) -> None:
        """Closes the connections, unless another caller has started it and not stopped it yet; the
        caller that started a worker cancels it before."""
        self._users = max(0, self._users - 1)
        async with self._changing:
            if self._users:
                return
            await self._results.close()
            producer, self._producer = self._producer, None
            if producer is not None:
                await producer.close()

    async def _make_topics(self, admin: Admin) -> None:
        target = await admin.create_topics(
            [
                NewTopic(self.name, self._partitions),
                NewTopic(self.dead, 1),
                NewTopic(self._results.topic, 1),
            ]
        )
        # Only now: its target has to be there.
        later = await admin.create_topics([NewTopic(self.later, 1, config={_TARGET: self.name})])
        for name, outcome in (target | later).items():
            if not isinstance(outcome, KafkaError):
                continue
            # Apache Kafka knows no such setting: see `_delivers_later`.
            is_unknown = name == self.later and outcome.code is ErrorCode.INVALID_CONFIG
            if outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS and not is_unknown:
                raise outcome

    async def _delivers_later(self, admin: Admin) -> bool:
        resource = ConfigResource.topic(self.later)
        found = (await admin.describe_configs([resource]))[resource]
        if isinstance(found, KafkaError):
            return False
        return _TARGET in found and found[_TARGET].value == self.name

    def _why_not(self) -> str:
        return (
            f"{self.later} does not deliver into {self.name} later: that takes Odradek's scheduled "
            f"delivery ({_TARGET}={self.name})"
        )

    def new_id(self) -> str:
        """An id for a call."""
        return f"{self._rng.getrandbits(128):032x}"

    # Calling

    async def send(self, call: Call, options: Options) -> None:
        """Sends a call, to be run now or later; see `Task.send`."""
        value, key = encode(call), call.id.encode()
        if not options.is_put_off:
            await self._started.send_and_wait(self.name, value, key=key)
            return
        if not self._can_delay:
            raise DelaysUnsupported(f"{self._why_not()}: {call.task} cannot be put off")
        headers: list[tuple[str, bytes | None]] = []
        if options.repeat is not None:
            headers.append(("repeat", options.repeat.encode()))
        if options.zone is not None:
            headers.append(("repeat-zone", options.zone.encode()))
        await self._started.send_and_wait(
            self.later,
            value,
            key=key,
            headers=headers,
            deliver_after=options.countdown,
            deliver_at=options.eta,
        )

    async def send_and_wait(self, call: Call, options: Options) -> Any:
        """Sends a call and waits for its result; see `Task.call`."""
        result = await self._results.expect(call.id)
        try:
            await self.send(call, options)
            return await result
        finally:
            result.cancel()

    async def cancel(self, id: str) -> None:
        """Cancels what is delayed under an id: a call, its next retry, or a repetition. A call that
        is already due still runs."""
        await self._started.send_and_wait(self.later, None, key=id.encode())

    @property
    def _started(self) -> Producer:
        if self._producer is None:
            raise RuntimeError(f"the app {self.name} is not started: `async with app:`")
        return self._producer

    # Working

    async def work(self, **settings: object) -> None:
        """Runs calls, one after another, until it is cancelled. As many workers as the topic has
        partitions can work at once; which has which partition is settled by the group `name`.
        `settings` are of the consumer, such as `max_poll_interval_ms`.

        Raises:
            ValueError: a setting is illegal.
            KafkaError: calls cannot be read, or what became of one cannot be written. It is run
                again then.
        """
        own = {name.replace("_", "."): value for name, value in settings.items()}
        consumer = Consumer(
            self._servers,
            {**self._config, **own},
            group_id=self.name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            topics=[self.name],
        )
        async with consumer:
            async for record in consumer:
                await self._handle(record)
                place = TopicPartition(record.topic, record.partition)
                try:
                    await consumer.commit({place: record.offset + 1})
                except KafkaError as error:
                    # Another worker has the partition by now, and runs the call again.
                    logger.warning(
                        "%s: the call at %d was not committed: %s", place, record.offset, error
                    )

    async def _handle(self, record: ConsumerRecord) -> None:
        try:
            call = decode(record)
        except UnreadableCall as error:
            await self._put_aside(record, str(error))
            return
        task = self.tasks.get(call.task)
        if task is None:
            await self._fail(record, call, f"there is no task {call.task!r}")
            return
        try:
            result = {"value": await task.run(call)}
            if call.wants_result:
                await self._answer(call, result)
        except Exception as error:  # noqa: BLE001 - whatever it is, other calls go on
            await self._on_raised(record, call, task, error)

    async def _answer(self, call: Call, outcome: dict[str, Any]) -> None:
        value, key = json.dumps(outcome).encode(), call.id.encode()
        await self._started.send_and_wait(self._results.topic, value, key=key)

    async def _on_raised(
        self, record: ConsumerRecord, call: Call, task: Task[Any], error: Exception
    ) -> None:
        logger.warning("%s %s, attempt %d: %r", call.task, call.id, call.attempt + 1, error)
        why = f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
        if call.attempt >= task.retries.count:
            await self._fail(record, call, why)
            return
        # Under the same id: should this worker die before it commits, there is one retry still.
        delay = task.retries.delay_after(call.attempt)
        try:
            await self.send(call._replace(attempt=call.attempt + 1), Options(countdown=delay))
        except (KafkaError, DelaysUnsupported, RecursionError) as refused:
            if isinstance(refused, KafkaError) and refused.code not in _NEVER_TAKEN:
                raise
            await self._fail(record, call, f"no retry: {refused}; {why}")

    async def _fail(self, record: ConsumerRecord, call: Call, why: str) -> None:
        why = why[:_LONGEST_ERROR]
        await self._put_aside(record, why)
        if call.wants_result:
            await self._answer(call, {"error": why})

    async def _put_aside(self, record: ConsumerRecord, why: str) -> None:
        why = why[:_LONGEST_ERROR]
        logger.error("the call at %d of %s is put aside: %s", record.offset, self.name, why)
        headers = [("error", why.encode(errors="replace"))]
        try:
            await self._started.send_and_wait(
                self.dead, record.value, key=record.key, headers=headers
            )
        except KafkaError as error:
            if error.code not in _TOO_LARGE:
                raise
            # With its error it is more than a record may be, or somebody else may send more: all
            # the workers would end with it, one after another.
            place = f"{record.topic}-{record.partition} at {record.offset}"
            why = f"too large to be put aside, it is still in {place}: {why}"
            headers = [("error", why.encode(errors="replace"))]
            await self._started.send_and_wait(self.dead, None, headers=headers)
