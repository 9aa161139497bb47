"""The golden bytes of a controller's messages, asked of Kafka 3.9's own classes again."""

import base64
import json
import subprocess
from pathlib import Path
from uuid import UUID

import pytest
from tests.deadlines import deadline_s
from tests.unit.protocol.controller_frames import every_message, golden_frames
from tools import peers

SOURCE = Path(__file__).parents[1] / "java" / "ControllerMessages.java"
ODD_NAMES = {"is_kraft_controller": "isKRaftController"}


@pytest.mark.slow
def test_the_golden_bytes_are_kafkas():
    """Our tables would be held against our own mistakes."""
    assert ask_kafka() == [frame.hex() for frame in golden_frames()]


def ask_kafka():
    """Kafka's bytes of every message, in hexadecimal digits."""
    lines = []
    for _, _, version, schema, values in every_message():
        shown = json.dumps(_object(schema.fields, values, version))
        lines.append(f"{schema.name} {version} {shown}")
    jars = ":".join(map(str, peers.zookeeper_kafka_jars()))
    command = [peers.java(), "-XX:TieredStopAtLevel=1", "-cp", jars, str(SOURCE)]
    done = subprocess.run(
        command,
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=deadline_s(120),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def _object(fields, values, version):
    """The object that Kafka's JSON converter of that version takes."""
    present = [each for each in fields if each.since <= version <= each.until]
    named = {_camel(each.name): _value(each, values.get(each.name), version) for each in present}
    if "partitionEpoch" in named:
        named["zkVersion"] = named["partitionEpoch"]  # as UpdateMetadata calls it
    return named


def _value(each, value, version):
    if each.type == "[]struct":
        return [_object(each.fields, element, version) for element in value or []]
    if each.type == "uuid":
        return base64.urlsafe_b64encode((value or UUID(int=0)).bytes).decode().rstrip("=")
    if value is None and not each.type.endswith("?"):
        defaults = {"string": "", "bool": False}
        return defaults.get(each.type, 0) if each.default is None else each.default
    return value


def _camel(name):
    first, *rest = name.split("_")
    return ODD_NAMES.get(name) or first + "".join(part.capitalize() for part in rest)
