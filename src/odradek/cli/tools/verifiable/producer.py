"""`kafka-verifiable-producer.sh`: sends ascending numbers, and prints an event for each that was
acknowledged or failed.
"""

import argparse
import asyncio
import sys
import time
from functools import partial
from itertools import count
from typing import Final

from odradek.cli.tools.client_properties import partitioner_of
from odradek.cli.tools.connection import client_config, given_properties, run_async
from odradek.cli.tools.verifiable.events import (
    Ending,
    add_shared_arguments,
    check_arguments,
    tell,
)
from odradek.cli.tools.wording.java_names import java_name, java_sentence
from odradek.cli.tools.wording.java_values import converted
from odradek.client import Producer
from odradek.client.errors import KafkaError
from odradek.client.record_metadata import RecordMetadata
from odradek.client.settings import PRODUCER_SETTINGS
from odradek.errors import text_of

_SERVERS: Final = "bootstrap.servers"
_ACKS: Final = (0, 1, -1)
_NOW: Final = -1
# The result of a record that waits for metadata, or for room, when the tool ends.
_CLOSED: Final = (
    "org.apache.kafka.common.KafkaException",
    "Producer closed while send in progress",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_shared_arguments(parser, "--producer.config")
    number, long = converted("Integer"), converted("Long")
    parser.add_argument(
        "--throughput", type=number, default=-1, metavar="N", help="records a second; -1: any"
    )
    parser.add_argument("--acks", type=_acks, default=-1, metavar="0|1|-1")
    parser.add_argument(
        "--message-create-time",
        type=long,
        default=_NOW,
        metavar="MS",
        help="the time of the first record",
    )
    parser.add_argument(
        "--value-prefix", type=number, metavar="N", help="values are N.0, N.1 and so on"
    )
    parser.add_argument(
        "--repeating-keys", type=number, metavar="N", help="keys are 0 to N-1, again and again"
    )


def run(arguments: argparse.Namespace) -> int:
    """Sends until all records are sent, or until it is stopped."""
    check_arguments(arguments, "topic")
    return run_async(
        partial(_work, arguments),
        lambda error: print(text_of(error), file=sys.stderr),
        shows_log=True,
    )


def _acks(text: str) -> int:
    number = converted("Integer")(text)
    if number not in _ACKS:
        choices = ",".join(map(str, _ACKS))
        raise argparse.ArgumentTypeError(f"invalid choice: '{text}' (choose from {{{choices}}})")
    return number


async def _work(arguments: argparse.Namespace) -> int:
    partitioner = partitioner_of(given_properties(arguments))
    producer = Producer(config=_config(arguments), partitioner=partitioner)
    ending = Ending()
    sending = _Sending(producer, arguments, ending)
    try:
        await ending.cut_short(sending.run())
    finally:
        await producer.close()
        await asyncio.sleep(0)  # the last callbacks
        tell("shutdown_complete")
        sending.tell_totals()
    return ending.status


def _config(arguments: argparse.Namespace) -> dict[str, object]:
    """Returns the settings: a file overrides the flags, as in Kafka's. A record is tried once."""
    config = {"acks": arguments.acks, "retries": 0, **client_config(arguments, PRODUCER_SETTINGS)}
    return config | {
        name: value for name, value in given_properties(arguments).items() if name == _SERVERS
    }


class _Sending:
    """The records of one run, and their results."""

    def __init__(self, producer: Producer, arguments: argparse.Namespace, ending: Ending) -> None:
        self._producer = producer
        self._arguments = arguments
        self._ending = ending
        self._created_ms: int = arguments.message_create_time
        self._sent = self._acked = 0
        self._began_s = time.perf_counter()

    async def run(self) -> None:
        """Sends all records."""
        tell("startup_complete")
        most = self._arguments.max_messages
        for number in count() if most < 0 else range(most):
            await self._send(self._key(number), self._value(number), self._creation_time())
            await self._pace(number)

    def tell_totals(self) -> None:
        """Prints the event that counts."""
        tell(
            "tool_data",
            sent=self._sent,
            acked=self._acked,
            target_throughput=self._arguments.throughput,
            avg_throughput=self._acked / (time.perf_counter() - self._began_s),
        )

    def _key(self, number: int) -> str | None:
        keys: int | None = self._arguments.repeating_keys
        if keys is None:
            return None
        return str(number % keys if keys > 0 else number)

    def _value(self, number: int) -> str:
        prefix = self._arguments.value_prefix
        return str(number) if prefix is None else f"{prefix}.{number}"

    def _creation_time(self) -> int | None:
        """Returns the time of the next record, if times are set. Each is later than the one before
        by the age of this run, as in Kafka's tool.
        """
        if self._arguments.message_create_time == _NOW:
            return None
        created_ms = self._created_ms
        self._created_ms += int((time.perf_counter() - self._began_s) * 1000)
        return created_ms

    async def _pace(self, number: int) -> None:
        """Waits until the next record may be sent. If the rate allows none, it waits a second, as
        in Kafka's tool.
        """
        throughput = self._arguments.throughput
        if throughput == 0 and number:
            await asyncio.get_running_loop().create_future()
        early_s = self._began_s + number / throughput - time.perf_counter() if throughput > 0 else 0
        await asyncio.sleep(max(0, early_s))

    async def _send(self, key: str | None, value: str, created_ms: int | None) -> None:
        told = {"key": key, "value": value}
        self._sent += 1
        try:
            delivery = await self._producer.send(
                self._arguments.topic,
                value.encode(),
                key=None if key is None else key.encode(),
                timestamp_ms=created_ms,
            )
            delivery.add_done_callback(partial(self._delivered, told))
        except KafkaError as error:
            self._tell_error(told, java_name(error), java_sentence(error))
        except asyncio.CancelledError:
            self._tell_error(told, *_CLOSED)
            raise

    def _delivered(
        self, told: dict[str, str | None], delivery: "asyncio.Future[RecordMetadata]"
    ) -> None:
        """Prints the result of a record. If the output is closed the tool ends; its last lines fail
        too, and report that.
        """
        error = delivery.exception()
        try:
            if isinstance(error, KafkaError):
                self._tell_error(told, java_name(error), java_sentence(error))
            else:
                self._tell_success(told, delivery.result())
        except OSError:
            self._ending.ask(1)

    def _tell_success(self, told: dict[str, str | None], place: RecordMetadata) -> None:
        self._acked += 1
        where = {"offset": place.offset, "topic": place.topic, "partition": place.partition}
        tell("producer_send_success", **told, **where)

    def _tell_error(self, told: dict[str, str | None], name: str, sentence: str) -> None:
        why = {"exception": f"class {name}", "message": sentence}
        tell("producer_send_error", topic=self._arguments.topic, **told, **why)
