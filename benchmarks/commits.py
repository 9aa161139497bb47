"""How many offsets can be committed a second? Ours and another broker, in alternating rounds.

Every connection belongs to a group of its own and keeps 64 requests on their way, each of which
commits one partition; the next half is sent when half of the answers are there. The client
compares answers byte by byte and decodes none, so that it costs a fraction of either broker.
"""

import os
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.broker import Target
from odradek.protocol import messages
from odradek.protocol.header import encode_request_header

PIPELINED = 64
HALF = PIPELINED // 2
FIND_COORDINATOR, OFFSET_COMMIT = 10, 8
COORDINATOR_TIMEOUT_S = 60
RECEIVE_BYTES = 1 << 18


@dataclass
class Committer:
    """One connection, its request, and the one answer that is right."""

    connection: socket.socket
    request: bytes
    answer: bytes
    to_send: int = 0
    on_their_way: int = 0
    received: bytes = b""

    def send(self) -> None:
        """As many as there is room for."""
        count = min(self.to_send, PIPELINED - self.on_their_way)
        self.to_send -= count
        self.on_their_way += count
        self.connection.sendall(self.request * count)

    def receive(self) -> bool:
        """Takes what has come; whether it was the last."""
        data = self.connection.recv(RECEIVE_BYTES)
        assert data, "the broker closed the connection"
        self.received += data
        count = len(self.received) // len(self.answer)
        if count >= min(HALF, self.on_their_way):
            whole = count * len(self.answer)
            assert self.received[:whole] == self.answer * count, "a commit failed"
            self.received = self.received[whole:]
            self.on_their_way -= count
            self.send()
        return self.on_their_way == 0


def measure_commits(target: Target, commits: int, connections: int) -> None:
    """Notes commits a second, and what one costs the broker in CPU microseconds."""
    topic = target.new_topic()
    committers = [open_committer(target.bootstrap, topic, n) for n in range(connections)]
    for committer in committers:
        committer.to_send = commits // connections
    cpu, began = target.cpu_s(), time.perf_counter()
    run(committers)
    elapsed = time.perf_counter() - began
    target.note(f"commits_{connections}_per_s", commits / elapsed)
    target.note(f"commits_{connections}_cpu_us", 1e6 * (target.cpu_s() - cpu) / commits)
    for committer in committers:
        committer.connection.close()
    target.delete(topic)


def run(committers: list[Committer]) -> None:
    """Until all have sent and received everything."""
    with selectors.DefaultSelector() as selector:
        for committer in committers:
            selector.register(committer.connection, selectors.EVENT_READ, committer)
            committer.send()
        busy = len(committers)
        while busy:
            for key, _ in selector.select():
                if key.data.receive():
                    selector.unregister(key.data.connection)
                    busy -= 1


def open_committer(address: str, topic: str, number: int) -> Committer:
    """A connection whose group's coordinator has answered a first commit."""
    group_id = f"bench-{os.getpid()}-{number}"
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    fields = {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": topic, "partitions": [partition]}],
    }
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    find = frame_of(FIND_COORDINATOR, 4, 3, key_type=0, coordinator_keys=[group_id])
    commit = sized(frame_of(OFFSET_COMMIT, 8, 8, **fields))
    ask_until(connection, sized(find), lambda answer: group_id.encode() in answer)
    answer = ask_until(connection, commit, lambda answer: answer[-5:] == bytes(5))
    return Committer(connection, commit, sized(answer))


def ask_until(
    connection: socket.socket, request: bytes, is_right: Callable[[bytes], bool]
) -> bytes:
    """Asks until the answer is right: coordinators take their time to be made and loaded."""
    deadline = time.monotonic() + COORDINATOR_TIMEOUT_S
    while True:
        connection.sendall(request)
        answer = exactly(connection, int.from_bytes(exactly(connection, 4), "big"))
        if is_right(answer):
            return answer
        assert time.monotonic() < deadline, f"no coordinator: {answer.hex()}"
        time.sleep(0.05)


def exactly(connection: socket.socket, size: int) -> bytes:
    """The next bytes of the connection."""
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return data


def frame_of(api_key: int, version: int, flexible_from: int, **fields: object) -> bytes:
    """A request's bytes, without the size."""
    header_version = 2 if version >= flexible_from else 1
    header = encode_request_header(api_key, version, 1, "bench", header_version)
    return header + messages.encode_request(api_key, version, fields)


def sized(frame: bytes) -> bytes:
    """The frame behind its size."""
    return len(frame).to_bytes(4, "big") + frame
