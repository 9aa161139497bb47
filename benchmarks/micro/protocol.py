"""What does the wire cost per request: decoding a produce or fetch, encoding their answers?

`python -m benchmarks.micro.protocol` prints nanoseconds per call, best of several rounds, and
whether the codecs in use are compiled; run it with ODRADEK_PURE=1 for the other figure.
"""

import argparse
import json
from time import perf_counter_ns
from uuid import UUID

from odradek.protocol import framing, header, primitives
from odradek.protocol.direct import fetch, list_offsets, produce

TOPIC_ID = UUID(int=0x1234)
RECORDS = bytes(16 * 1024)
FLEXIBLE_FROM = {0: 9, 1: 12, 2: 6}


def joined(buffers):
    return b"".join(bytes(buffer) for buffer in buffers)


def produce_frame(version):
    partition = produce.ProducePartition(0, RECORDS)
    topic = produce.ProduceTopic("orders", TOPIC_ID, [partition])
    request = produce.ProduceRequest(None, 1, 30_000, [topic])
    return joined(produce.encode_produce_request(request, version))


def produce_response(version):
    answer = produce.ProducePartitionResponse(0, 0, 123_456, -1, 0)
    topic = produce.ProduceTopicResponse("orders", TOPIC_ID, [answer])
    response = produce.ProduceResponse([topic])
    return lambda: produce.encode_produce_response(response, version, 7)


def fetch_frame(version, partitions):
    topic = fetch.FetchTopic(
        "orders", TOPIC_ID, [fetch.FetchPartition(n, 123_456, 1 << 20) for n in range(partitions)]
    )
    request = fetch.FetchRequest(-1, 500, 1, [topic], session_id=1, session_epoch=2)
    return joined(fetch.encode_fetch_request(request, version))


def fetch_response(version):
    answer = fetch.FetchPartitionResponse(0, 0, 123_456, 123_456, 0, None, -1, [RECORDS])
    response = fetch.FetchResponse([fetch.FetchTopicResponse("orders", TOPIC_ID, [answer])])
    return lambda: fetch.encode_fetch_response(response, version, 7)


def list_offsets_frame(version):
    topic = list_offsets.ListOffsetsTopic("orders", [list_offsets.ListOffsetsPartition(0, -1)])
    request = list_offsets.ListOffsetsRequest(-1, [topic])
    return joined(list_offsets.encode_list_offsets_request(request, version))


def decoding(decode, frame, version):
    view = memoryview(frame)
    return lambda: decode(view, version, 0)


def cases():
    head = memoryview(header.encode_request_header(0, 9, 7, "producer-1", 2))
    sized = bytearray(framing.encode_size(60))
    produced = decoding(produce.decode_produce_request, produce_frame(9), 9)
    by_id = decoding(produce.decode_produce_request, produce_frame(13), 13)
    fetched = decoding(fetch.decode_fetch_request, fetch_frame(17, 1), 17)
    many = decoding(fetch.decode_fetch_request, fetch_frame(12, 100), 12)
    listed = decoding(list_offsets.decode_list_offsets_request, list_offsets_frame(7), 7)
    return {
        "read a frame's size": lambda: framing.frame_size(sized, 0, 1 << 20),
        "decode request header": lambda: header.decode_request_header(head, FLEXIBLE_FROM),
        "decode produce v9, 16 KiB": produced,
        "decode produce v13, 16 KiB": by_id,
        "encode produce response v9": produce_response(9),
        "decode fetch v17, 1 partition": fetched,
        "decode fetch v12, 100 partitions": many,
        "encode fetch response v12": fetch_response(12),
        "decode list offsets v7": listed,
    }


def nanoseconds(call, rounds=7, calls=5_000):
    best = None
    for _ in range(rounds):
        begin = perf_counter_ns()
        for _ in range(calls):
            call()
        spent = (perf_counter_ns() - begin) / calls
        best = spent if best is None else min(best, spent)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object as well")
    options = parser.parse_args()
    compiled = not primitives.__file__.endswith(".py")
    print("compiled" if compiled else "uncompiled")
    results = {name: round(nanoseconds(call)) for name, call in cases().items()}
    for name, spent in results.items():
        print(f"{name:36} {spent:8} ns")
    if options.json:
        print(json.dumps({"compiled": compiled, "ns": results}))


if __name__ == "__main__":
    main()
