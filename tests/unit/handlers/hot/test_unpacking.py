"""Heavy batches are unpacked off the loop: what comes to the log is the same, in the same order."""

import random

import pytest
from tests.late_background import LateBackground

from odradek.background import InlineBackground
from odradek.errors import ErrorCode
from odradek.handlers.dispatcher import Dispatcher
from odradek.handlers.records.unpacking import (
    HEAVY_BYTES,
    HEAVY_GZIP_BYTES,
    HEAVY_UNPACKED_BYTES,
    Unpacking,
    is_heavy,
)
from odradek.model import TopicPartition
from odradek.records.compression import Compression

NOISE = random.Random(0).randbytes(2 * HEAVY_BYTES)
BOMB = bytes(HEAVY_UNPACKED_BYTES + 1)
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]


@pytest.fixture
def background():
    return LateBackground()


@pytest.fixture
def heavy_broker(broker, background):
    """A broker that unpacks in the background, with one topic."""
    broker.create("orders")
    step = Unpacking(broker.replicas, background, broker.clock)
    broker.cluster.replace(before_append=(step,))
    broker.dispatcher = Dispatcher(broker.context)
    return broker


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_heavy(batch, codec):
    """The loop would stand still, or every small batch pay for a thread."""
    assert is_heavy(memoryview(batch(NOISE, codec=codec)))
    assert not is_heavy(memoryview(batch(NOISE[:1000], codec=codec)))
    assert not is_heavy(memoryview(batch(NOISE)))
    edge = HEAVY_GZIP_BYTES if codec is Compression.GZIP else HEAVY_BYTES
    assert not is_heavy(memoryview(batch(NOISE[: edge // 2], codec=codec)))


@pytest.mark.parametrize("size_bytes", [1, 61, 62, 70])
def test_damage_is_not_heavy(batch, size_bytes):
    """A truncated batch would raise where nobody answers it."""
    for codec in (0, *CODECS):
        assert not is_heavy(memoryview(batch(b"value", codec=codec))[:size_bytes])


def test_a_few_bytes_of_zstd_may_be_heavy(batch):
    """Kilobytes that unpack to 256 MiB would stop every other client."""
    bomb = batch(BOMB, codec=Compression.ZSTD)
    assert len(bomb) < 1000
    assert is_heavy(memoryview(bomb))


@pytest.mark.parametrize("codec", CODECS)
def test_the_log_holds_the_same_as_when_unpacked_on_the_loop(
    heavy_broker, broker, background, batch, codec
):
    """Offsets, timestamps or the checksum would be wrong in what was prepared."""
    heavy, light = batch(NOISE, codec=codec), batch(b"light")
    first = heavy_broker.send_produce(heavy)
    assert not first.batched
    background.run()
    assert heavy_broker.produced(first).base_offset == 0
    heavy_broker.produce(light)
    stored = b"".join(map(bytes, heavy_broker.fetch_one().records))
    heavy_broker.cluster.replace(before_append=())
    heavy_broker.dispatcher = Dispatcher(heavy_broker.context)
    heavy_broker.create("plain")
    heavy_broker.produce(batch(NOISE, codec=codec), topic="plain")
    heavy_broker.produce(light, topic="plain")
    plain = b"".join(map(bytes, heavy_broker.fetch_one(topic="plain").records))
    assert stored == plain


def test_a_topic_that_packs_anew_has_it_done_in_the_background(heavy_broker, background, batch):
    """Packing costs ten times as much as unpacking."""
    heavy_broker.create("packed", **{"compression.type": "gzip"})
    exchange = heavy_broker.send_produce(batch(NOISE, codec=Compression.LZ4), topic="packed")
    background.run()
    assert heavy_broker.produced(exchange).error_code == ErrorCode.NONE
    (records,) = heavy_broker.fetch_one(topic="packed").records
    assert records[22] & 7 == Compression.GZIP


def test_what_is_wrong_with_it_is_answered(heavy_broker, background, batch):
    """A damaged heavy batch would never be answered, or enter the log."""
    damaged = bytearray(batch(NOISE, codec=Compression.ZSTD))
    damaged[-1] ^= 1
    exchange = heavy_broker.send_produce(bytes(damaged))
    background.run()
    assert heavy_broker.produced(exchange).error_code == ErrorCode.CORRUPT_MESSAGE
    assert heavy_broker.log().log_end_offset == 0


def test_settings_that_changed_meanwhile_count(heavy_broker, background, batch):
    """Records would be in the log that the topic's settings of now forbid."""
    exchange = heavy_broker.send_produce(batch(NOISE, codec=Compression.ZSTD))
    log = heavy_broker.log()
    config = {"name": "max.message.bytes", "config_operation": 0, "value": "1000"}
    resource = {"resource_type": 2, "resource_name": "orders", "configs": [config]}
    heavy_broker.cluster.ask(44, 1, resources=[resource])
    assert log.config.max_message_bytes == 1000
    background.run()
    assert heavy_broker.produced(exchange).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_partition_that_is_not_here_is_refused_as_ever(heavy_broker, background, batch):
    """Its rules are unknown: nothing can be prepared."""
    exchange = heavy_broker.send_produce(batch(NOISE, codec=Compression.ZSTD), partition=7)
    assert not background.work
    heavy_broker.dispatcher.end_of_read()
    assert heavy_broker.produced(exchange).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_mistake_in_the_background_is_answered(heavy_broker, batch):
    """The producer would wait for its time-out."""

    class Broken(InlineBackground):
        def submit(self, work, on_done, on_error):
            on_error(TypeError("ours"))

    step = Unpacking(heavy_broker.replicas, Broken(), heavy_broker.clock)
    heavy_broker.cluster.replace(before_append=(step,))
    heavy_broker.dispatcher = Dispatcher(heavy_broker.context)
    exchange = heavy_broker.send_produce(batch(NOISE, codec=Compression.ZSTD))
    heavy_broker.dispatcher.end_of_read()
    assert heavy_broker.produced(exchange).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_it_knows_no_other_partition(heavy_broker, background, batch):
    """The light batch of a request would be prepared by the rules of another topic."""
    heavy_broker.create("two", 2)
    exchange = heavy_broker.send_produce(batch(NOISE, codec=Compression.LZ4), topic="two")
    background.run()
    assert heavy_broker.produced(exchange).base_offset == 0
    assert heavy_broker.log_manager.get(TopicPartition("two", 1)).log_end_offset == 0
