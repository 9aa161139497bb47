"""The memory that waiting consumers cost: a broker with many long polls parked in it.

Every connection sends one Fetch that finds nothing and waits. The broker's resident memory is
read before the first and while all of them wait, then a record is produced and all are answered,
and it is read once more: what is left then is kept for nothing.
"""

import argparse
import asyncio
import json
import tempfile
from typing import Final

from benchmarks.process_usage import resident_mb
from odradek.protocol.direct.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
)
from odradek.protocol.direct.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    encode_produce_request,
)
from odradek.protocol.framing import encode_size
from odradek.protocol.header import encode_request_header
from odradek.protocol.messages import encode_request
from odradek.protocol.primitives import Buffer
from odradek.records.builder import RecordBatchBuilder
from odradek.records.compression import Compression
from odradek.testing.processes import BrokerProcess

PRODUCE: Final = 0
FETCH: Final = 1
CREATE_TOPICS: Final = 19
TOPIC: Final = "polled"
MAX_WAIT_MS: Final = 300_000
AT_ONCE: Final = 200

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def ask(pair: Pair, key: int, version: int, body: list[Buffer]) -> None:
    """Sends one request."""
    header: list[Buffer] = [encode_request_header(key, version, 1, "long-polls", 2)]
    frame = b"".join(header + body)
    pair[1].write(encode_size(len(frame)) + frame)
    await pair[1].drain()


async def answer(pair: Pair) -> bytes:
    """Reads one response."""
    size = int.from_bytes(await pair[0].readexactly(4), "big")
    return await pair[0].readexactly(size)


async def create_topic(pair: Pair) -> None:
    """A topic of one partition."""
    topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
    body = encode_request(CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 30_000})
    await ask(pair, CREATE_TOPICS, 5, [body])
    await answer(pair)


def fetch(max_wait_ms: int) -> list[Buffer]:
    """From the log's start, as consumers ask by default."""
    topics = [FetchTopic(TOPIC, None, [FetchPartition(0, 0, 1 << 20)])]
    return encode_fetch_request(FetchRequest(-1, max_wait_ms, 1, topics, max_bytes=50 << 20), 12)


def produce(value_bytes: int) -> list[Buffer]:
    """One record."""
    builder = RecordBatchBuilder(Compression.NONE)
    builder.append(1_700_000_000_000, None, b"v" * value_bytes)
    topics = [ProduceTopic(TOPIC, None, [ProducePartition(0, builder.build())])]
    return encode_produce_request(ProduceRequest(None, 1, 30_000, topics), 9)


async def connect(address: str) -> Pair:
    """A connection to the broker."""
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def park(address: str, count: int) -> list[Pair]:
    """So many connections, each with a fetch that waits in the broker."""
    pairs: list[Pair] = []
    while len(pairs) < count:
        some = await asyncio.gather(
            *(connect(address) for _ in range(min(AT_ONCE, count - len(pairs))))
        )
        for pair in some:
            # Answered at once, so that the next one has arrived when all are sent.
            await ask(pair, FETCH, 12, fetch(0))
            await answer(pair)
            await ask(pair, FETCH, 12, fetch(MAX_WAIT_MS))
        pairs += some
    return pairs


async def measure(address: str, pid: int, count: int, value_bytes: int) -> dict[str, float]:
    """The figures; the broker is idle and empty before."""
    control = await connect(address)
    await create_topic(control)
    before_mb = resident_mb(pid)
    pairs = await park(address, count)
    # The last of them is read by now: requests of other connections are served in turn.
    await ask(control, FETCH, 12, fetch(1000))
    await answer(control)
    parked_mb = resident_mb(pid)
    await ask(control, PRODUCE, 9, produce(value_bytes))
    await asyncio.gather(*(answer(pair) for pair in pairs))
    await answer(control)
    answered_mb = resident_mb(pid)
    for _, writer in [*pairs, control]:
        writer.close()
    return {
        "connections": count,
        "before_mb": round(before_mb, 1),
        "parked_mb": round(parked_mb, 1),
        "kib_per_long_poll": round((parked_mb - before_mb) * 1024 / count, 1),
        "answered_mb": round(answered_mb, 1),
    }


def main() -> None:
    """Measures one broker of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="for programs: the last line")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(folder) as broker:
        figures = asyncio.run(
            measure(
                broker.bootstrap_servers,
                broker.pid,
                arguments.connections,
                arguments.value_bytes,
            )
        )
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, figure in figures.items():
            print(f"{name:>20} {figure}")


if __name__ == "__main__":
    main()
