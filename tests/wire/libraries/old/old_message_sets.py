"""A program for a process whose `kafka` is one of 2017: message sets of its producers.

Prints "magic codec set-in-hex" for each. The records are on standard input, as in
`record_lines.py`. No Python of today can parse that package's clients, so that its codecs and
encoders are imported without the packages around them.
"""

import importlib.util
import io
import sys
import types

FIRST_TIME_MS = 1_700_000_000_000
BATCH_BYTES = 1 << 20
CODECS = [None, "gzip", "snappy", "lz4"]


def enter(name: str, folder: str) -> None:
    """Lets the modules in `folder` be imported as those of package `name`, which is not run."""
    package = types.ModuleType(name)
    package.__path__ = [folder]
    sys.modules[name] = package


def main() -> None:
    spec = importlib.util.find_spec("kafka")
    folder = spec.submodule_search_locations[0]
    enter("kafka", folder)
    enter("kafka.producer", f"{folder}/producer")
    # Only now do these find the hollow packages.
    from kafka.producer.buffer import MessageSetBuffer
    from kafka.protocol import KafkaProtocol, create_message_set
    from kafka.protocol.message import Message
    from record_lines import read_records

    records = read_records()
    for magic in (0, 1):
        for codec, name in enumerate(CODECS):
            buffer = MessageSetBuffer(io.BytesIO(), BATCH_BYTES, name, message_version=magic)
            for number, (key, value) in enumerate(records):
                timestamp_ms = FIRST_TIME_MS + number if magic else None
                buffer.append(number, Message(value, key, magic, timestamp=timestamp_ms))
            buffer.close()
            sized = buffer.buffer().read()
            size = int.from_bytes(sized[:4], "big")
            print(magic, codec, sized[4 : 4 + size].hex())
    # The producer of Kafka 0.8's days, which gave every message inside a wrapper its own count.
    for codec in range(3):
        messages = create_message_set([(value, key) for key, value in records], codec)
        print(0, codec, KafkaProtocol._encode_message_set(messages).hex())


if __name__ == "__main__":
    main()
