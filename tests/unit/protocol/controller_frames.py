"""The messages of a controller of Kafka 3 in all versions, and the bytes that Kafka 3.9.2 makes of
them.

The bytes lie in `controller_frames.json`, in the order of `every_message`. They come from Kafka's
own classes: `tests/wire/interchange/test_controller_messages.py` asks them again.
"""

import json
from pathlib import Path
from uuid import UUID

from odradek.protocol.schemas.message_tables import MESSAGES

GOLDEN = Path(__file__).parent / "controller_frames.json"

STATE = {
    "controller_epoch": 7,
    "leader": 2,
    "leader_epoch": 5,
    "isr": [2, 3],
    "partition_epoch": 11,
    "replicas": [2, 3, 1],
}
REPLICA = {
    **STATE,
    "partition_index": 3,
    "adding_replicas": [1],
    "removing_replicas": [3],
    "is_new": True,
    "leader_recovery_state": 1,
}
SHOWN = {**STATE, "partition_index": 3, "offline_replicas": [3]}
REPLICA_ERRORS = [
    {"topic_name": "orders", "partition_index": 3, "error_code": 56},
    {"topic_name": "orders", "partition_index": 4, "error_code": 0},
]
TOPIC_ID = UUID("0190f5a2-7c35-7b8e-9d1f-5a6b7c8d9e0f")
DECREE = {"controller_id": 1, "controller_epoch": 7, "broker_epoch": 4_294_967_299}
ENDPOINTS = [
    {"port": 9092, "host": "eins.example", "listener": "PLAINTEXT", "security_protocol": 0},
    {"port": 9093, "host": "eins.example", "listener": "INTERN", "security_protocol": 0},
]
REQUESTS = {
    4: {
        **DECREE,
        "type": 1,
        "ungrouped_partition_states": [{"topic_name": "orders", **REPLICA}],
        "topic_states": [
            {"topic_name": "orders", "topic_id": TOPIC_ID, "partition_states": [REPLICA]},
            {"topic_name": "größe", "topic_id": None, "partition_states": []},
        ],
        "live_leaders": [{"broker_id": 2, "host_name": "zwei.example", "port": 9092}],
    },
    5: {
        **DECREE,
        "delete_partitions": True,
        "ungrouped_partitions": [{"topic_name": "orders", "partition_index": 3}],
        "topics": [{"name": "orders", "partition_indexes": [3, 4]}],
        "topic_states": [
            {
                "topic_name": "orders",
                "partition_states": [
                    {"partition_index": 3, "leader_epoch": 5, "delete_partition": True},
                    {"partition_index": 4, "leader_epoch": -2, "delete_partition": False},
                ],
            }
        ],
    },
    6: {
        **DECREE,
        "type": 2,
        "ungrouped_partition_states": [{"topic_name": "orders", **SHOWN}],
        "topic_states": [
            {"topic_name": "orders", "topic_id": TOPIC_ID, "partition_states": [SHOWN]}
        ],
        "live_brokers": [
            {
                "id": 1,
                "v0_host": "eins.example",
                "v0_port": 9092,
                "endpoints": ENDPOINTS,
                "rack": "links",
            },
            {"id": 2, "endpoints": ENDPOINTS[:1], "rack": None},
        ],
    },
    7: {"broker_id": 2, "broker_epoch": 4_294_967_299},
}
RESPONSES = {
    4: {
        "error_code": 11,
        "partition_errors": REPLICA_ERRORS,
        "topics": [{"topic_id": TOPIC_ID, "partition_errors": REPLICA_ERRORS}],
    },
    5: {"error_code": 77, "partition_errors": REPLICA_ERRORS},
    6: {"error_code": 11},
    7: {
        "error_code": 77,
        "remaining_partitions": [{"topic_name": "orders", "partition_index": 3}],
    },
}


def every_message():
    """API key, whether it is a request, version, the table of its fields, its values."""
    for key, pair in MESSAGES.items():
        for schema, values in ((pair.request, REQUESTS[key]), (pair.response, RESPONSES[key])):
            for version in range(schema.last_version + 1):
                yield key, schema is pair.request, version, schema, values


def golden_frames():
    """The bytes of every message."""
    return [bytes.fromhex(line) for line in json.loads(GOLDEN.read_text())]
