"""The messages of a controller and its brokers, byte for byte as those of Kafka 3.9."""

import pytest
from tests.unit.protocol.controller_frames import every_message, golden_frames

from odradek.protocol import messages
from odradek.protocol.primitives import ProtocolError

CASES = list(zip(every_message(), golden_frames(), strict=True))
NAMES = [f"{message[3].name}-{message[2]}" for message, _ in CASES]


@pytest.mark.parametrize(("message", "frame"), CASES, ids=NAMES)
def test_every_version_is_written_as_kafka_writes_it(message, frame):
    """A broker of Kafka would take our controller for garbage."""
    key, is_request, version, _, values = message
    encode = messages.encode_request if is_request else messages.encode_response
    assert encode(key, version, values).hex() == frame.hex()


@pytest.mark.parametrize(("message", "frame"), CASES, ids=NAMES)
def test_every_version_is_read(message, frame):
    """The commands of Kafka's controller would be misunderstood."""
    key, is_request, version, schema, values = message
    decode = messages.decode_request if is_request else messages.decode_response
    read = plain(decode(key, version, memoryview(frame), 0))
    present = {each.name for each in schema.fields if each.since <= version <= each.until}
    assert read.keys() == present
    for name in present & values.keys():
        assert contains(read[name], values[name]), name


@pytest.mark.parametrize(("message", "frame"), CASES, ids=NAMES)
def test_a_truncated_one_is_refused(message, frame):
    """Half a command would be carried out."""
    key, is_request, version, _, _ = message
    decode = messages.decode_request if is_request else messages.decode_response
    for length in range(len(frame)):
        with pytest.raises(ProtocolError):
            decode(key, version, memoryview(frame[:length]), 0)


def test_a_misspelt_name_is_asserted():
    """A field would silently be a default."""
    with pytest.raises(AssertionError, match="controller_ID"):
        messages.encode_request(4, 7, {"controller_ID": 1})


def plain(message):
    """Dictionaries and lists of a message; codes as numbers."""
    if hasattr(message, "__slots__") and hasattr(message, "__dataclass_fields__"):
        return {name: plain(getattr(message, name)) for name in message.__dataclass_fields__}
    if isinstance(message, tuple):
        return [plain(each) for each in message]
    return getattr(message, "value", message)


def contains(read, given):
    """Whether what was read is what was given, as far as its version has it."""
    if isinstance(read, dict):
        return all(contains(read[name], given[name]) for name in read.keys() & given.keys())
    if isinstance(read, list):
        pairs = zip(read, given, strict=True)
        return all(contains(one, other) for one, other in pairs)
    return read == given
