"""If these fail, a client takes one broker's answer for another's, or waits for ever."""

import pytest

from odradek.client.apis import API_VERSIONS, FETCH, METADATA, PRODUCE
from odradek.client.core.network.connection import Answer, ConnectionCore, ConnectionState
from odradek.client.core.network.frames import HANDSHAKE_MAX_BYTES
from odradek.client.errors import KafkaError, UnsupportedVersion
from odradek.errors import ErrorCode
from odradek.protocol import messages
from odradek.protocol.framing import encode_size
from odradek.protocol.header import decode_request_header
from odradek.protocol.primitives import ProtocolError

FLEXIBLE_FROM = {api.key: api.flexible_from for api in (API_VERSIONS, METADATA, FETCH, PRODUCE)}


def receive(core: ConnectionCore, frame: bytes) -> list:
    data = encode_size(len(frame)) + frame
    core.get_buffer()[: len(data)] = data
    return core.buffer_updated(len(data))


def sent(core: ConnectionCore) -> list:
    """The headers of what the core wants written."""
    data = b"".join(core.take_outgoing())
    headers = []
    while data:
        size = int.from_bytes(data[:4], "big")
        headers.append(decode_request_header(memoryview(data[4 : 4 + size]), FLEXIBLE_FROM))
        data = data[4 + size :]
    return headers


def versions_answer(correlation_id: int, version: int, error: int = 0, **ranges: tuple) -> bytes:
    keys = [
        {"api_key": int(key[1:]), "min_version": low, "max_version": high}
        for key, (low, high) in ranges.items()
    ]
    body = {"error_code": error, "api_keys": keys}
    head = correlation_id.to_bytes(4, "big")
    return head + messages.encode_response(API_VERSIONS.key, version, body)


def ready() -> ConnectionCore:
    core = ConnectionCore("me")
    core.connected()
    core.take_outgoing()
    assert receive(core, versions_answer(0, 4, _1=(4, 12), _3=(0, 99))) == []
    return core


def test_a_connection_asks_for_versions_first() -> None:
    core = ConnectionCore("me")
    core.connected()
    [header] = sent(core)
    assert (header.api_key, header.api_version, header.client_id) == (18, 4, "me")
    assert core.state is ConnectionState.HANDSHAKE
    assert receive(core, versions_answer(0, 4, _1=(4, 12), _3=(0, 99))) == []
    assert core.state is ConnectionState.READY
    assert core.agree(FETCH) == 12
    assert core.agree(METADATA) == METADATA.max_version
    with pytest.raises(UnsupportedVersion, match="Produce"):
        core.agree(PRODUCE)


def test_an_older_broker_is_asked_in_its_version() -> None:
    core = ConnectionCore("me")
    core.connected()
    sent(core)
    refusal = versions_answer(0, 0, ErrorCode.UNSUPPORTED_VERSION, _18=(0, 2))
    assert receive(core, refusal) == []
    assert [header.api_version for header in sent(core)] == [2]
    receive(core, versions_answer(1, 2, _1=(0, 11)))
    assert core.state is ConnectionState.READY


def test_a_broker_that_knows_nothing_newer_is_asked_in_version_0() -> None:
    core = ConnectionCore("me")
    core.connected()
    sent(core)
    receive(core, versions_answer(0, 0, ErrorCode.UNSUPPORTED_VERSION))
    assert [header.api_version for header in sent(core)] == [0]


def test_a_broker_that_refuses_the_handshake_is_heard() -> None:
    core = ConnectionCore("me")
    core.connected()
    with pytest.raises(KafkaError) as caught:
        receive(core, versions_answer(0, 4, ErrorCode.ILLEGAL_SASL_STATE))
    assert caught.value.code == ErrorCode.ILLEGAL_SASL_STATE


def test_answers_find_their_askers_in_order() -> None:
    core = ready()
    core.send(METADATA, 12, [b"a"], "first")
    core.send(PRODUCE, 9, [b"b"], None, is_answered=False)
    core.send(FETCH, 4, [b"c"], "second")
    assert [header.correlation_id for header in sent(core)] == [1, 2, 3]
    assert core.in_flight_count == 2
    first = receive(core, b"\0\0\0\1\0xyz")
    assert [(one.context, bytes(one.answer.frame[one.answer.position :])) for one in first] == [
        ("first", b"xyz")
    ]
    [second] = receive(core, b"\0\0\0\3xyz")
    assert second.context == "second"
    assert second.answer == Answer(memoryview(b"\0\0\0\3xyz"), 4)


@pytest.mark.parametrize("answer", [b"\0\0\0\7\0", b"\0\0\0"])
def test_what_is_no_answer_ends_the_connection(answer: bytes) -> None:
    core = ready()
    core.send(METADATA, 12, [b"a"], "first")
    with pytest.raises(ProtocolError):
        receive(core, answer)
    assert core.lost() == ["first"], "its asker is told, too"
    assert core.state is ConnectionState.CLOSED


def test_an_answer_without_a_question_ends_the_connection() -> None:
    with pytest.raises(ProtocolError, match="without a request"):
        receive(ready(), b"\0\0\0\1\0")


def test_whoever_waits_is_given_back_when_the_connection_is_lost() -> None:
    core = ready()
    core.send(METADATA, 12, [b"a"], "first")
    core.send(FETCH, 4, [b"c"], "second")
    assert core.lost() == ["first", "second"]
    assert core.lost() == []
    with pytest.raises(AssertionError, match="closed"):
        core.send(METADATA, 12, [b"a"], "third")


def test_answers_may_be_large_when_it_is_known_who_gives_them() -> None:
    """The listener may be no broker, and its first bytes the size of all memory."""
    core = ConnectionCore("me")
    core.connected()
    core.get_buffer()[:4] = encode_size(HANDSHAKE_MAX_BYTES + 1)
    with pytest.raises(ProtocolError):
        core.buffer_updated(4)
    core = ready()
    core.get_buffer()[:4] = encode_size(HANDSHAKE_MAX_BYTES + 1)
    assert core.buffer_updated(4) == []
    assert len(core.get_buffer()) == HANDSHAKE_MAX_BYTES + 1
