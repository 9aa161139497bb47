"""Carries every record of one topic to another, exactly once; ends when it is killed.

Arguments: bootstrap servers, topic that is read, topic that is written, how many partitions both
have. The group and the transactional id are called like the topic that is written.

Whatever goes wrong, it forgets all it knows, begins as a new producer, and asks where the group
stands: that is what makes it right after a failure whose outcome it does not know.
"""

import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

CALL_TIMEOUT_S = 10
AT_ONCE = 10


def carry(bootstrap: str, source: str, target: str, partitions: int) -> None:
    """Until something fails."""
    address = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200, "log_level": 0}
    producer = Producer({**address, "transactional.id": target, "linger.ms": 0})
    producer.init_transactions(CALL_TIMEOUT_S)
    consumer = Consumer(
        {
            **address,
            "group.id": target,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
    )
    places = [TopicPartition(source, index) for index in range(partitions)]
    found = consumer.committed(places, CALL_TIMEOUT_S)
    for each in found:
        each.offset = max(each.offset, 0)
    consumer.assign(found)
    while True:
        taken = [each for each in consumer.consume(AT_ONCE, 0.05) if each.error() is None]
        if not taken:
            continue
        producer.begin_transaction()
        for each in taken:
            producer.produce(target, each.value(), partition=each.partition())
        offsets = [each for each in consumer.position(places) if each.offset >= 0]
        group = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(offsets, group, CALL_TIMEOUT_S)
        producer.commit_transaction(CALL_TIMEOUT_S)


def main() -> None:
    """For ever."""
    bootstrap, source, target, partitions = sys.argv[1:]
    while True:
        try:
            carry(bootstrap, source, target, int(partitions))
        except KafkaException as error:
            print(error, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
