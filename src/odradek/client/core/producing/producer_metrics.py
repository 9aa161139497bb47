"""The metrics of a producer's batches and requests, under Kafka's names. Compiled: every batch is
recorded."""

from collections.abc import Sequence
from typing import Final

from odradek.client.core.metrics import Average, ClientMetrics, Meter
from odradek.client.core.producing.accumulator import ProducerBatch

TOPIC_GROUP: Final = "producer-topic-metrics"


class _TopicMetrics:
    def __init__(self, metrics: ClientMetrics, topic: str) -> None:
        group = f"{TOPIC_GROUP}.{topic}"
        self.sends: Meter = metrics.meter("record-send", group)
        self.bytes: Meter = metrics.meter("byte", group)
        self.retries: Meter = metrics.meter("record-retry", group)
        self.errors: Meter = metrics.meter("record-error", group)


class ProducerMetrics:
    """The measurements of one producer's sender."""

    def __init__(self, metrics: ClientMetrics) -> None:
        self._metrics = metrics
        self._topics: dict[str, _TopicMetrics] = {}
        self.splits: Meter = metrics.meter("batch-split")
        self._sends: Meter = metrics.meter("record-send")
        self._retries: Meter = metrics.meter("record-retry")
        self._errors: Meter = metrics.meter("record-error")
        self._queue_time: Average = metrics.average("record-queue-time")
        self._batch_size: Average = metrics.average("batch-size")
        self._record_size: Average = metrics.average("record-size")
        self._compression: Average = metrics.average("compression-rate", has_maximum=False)
        self._records: Average = metrics.average("records-per-request", has_maximum=False)
        self._latency: Average = metrics.average("request-latency")
        self._throttling: Average = metrics.average("produce-throttle-time")

    def sent(self, batches: Sequence[ProducerBatch]) -> None:
        """A request with these batches leaves."""
        record_count = 0
        for batch in batches:
            record_count += batch.record_count
            self._queue_time.add(batch.drained_ms - batch.created_ms)
            self._batch_size.add(batch.encoded_bytes)
            self._record_size.add(batch.size_bytes / batch.record_count)
            self._compression.add(batch.encoded_bytes / batch.builder.size_bytes)
            topic = self._topic(batch)
            topic.sends.add(batch.record_count)
            topic.bytes.add(batch.encoded_bytes)
        self._sends.add(record_count)
        self._records.add(record_count)

    def answered(self, latency_ms: int, throttle_time_ms: int) -> None:
        """A request was answered."""
        self._latency.add(latency_ms)
        self._throttling.add(throttle_time_ms)

    def tried_again(self, batch: ProducerBatch) -> None:
        """A batch is to be sent again."""
        self._retries.add(batch.record_count)
        self._topic(batch).retries.add(batch.record_count)

    def failed(self, batch: ProducerBatch) -> None:
        """The records of a batch were not delivered."""
        self._errors.add(batch.record_count)
        self._topic(batch).errors.add(batch.record_count)

    def _topic(self, batch: ProducerBatch) -> _TopicMetrics:
        name = batch.partition.topic
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = _TopicMetrics(self._metrics, name)
        return topic
