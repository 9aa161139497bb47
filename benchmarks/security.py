"""What do TLS, logins, ACLs and quotas cost a broker?

    python -m benchmarks.security [--rounds 5] [--records 500000] [--json]

One broker of ours has a listener each in plain text, with SASL (SCRAM) and with TLS 1.3; another
one has an authorizer and 10 000 ACLs; an Apache Kafka 4.3 has one in plain text and one with TLS.
Rounds go through them all, every other one backwards, and librdkafka produces and reads records of
1 KiB. Figures are medians, with the broker's own CPU seconds a GB. Ratios: TLS over Kafka's, and
the rest over ours in plain text.

Besides: what 3 000 TLS handshakes cost a broker, one after the other, on connections that stay
open; and what a broker keeps of 10 000 client ids that have produced, with quotas and without.
"""

import argparse
import contextlib
import json
import resource
import socket
import ssl
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from tools import kafka_node
from tools.free_port import free_port

from benchmarks.broker import RECORD_BYTES, Target, consume, in_turn, measured, produce, warm_up
from benchmarks.process_usage import cpu_seconds, resident_mb
from odradek.client.core.admin_types import QuotaChange, QuotaEntity
from odradek.client.sync import Admin
from odradek.security.jaas import jaas_text
from odradek.server.in_process.protected.authority import HOSTS, CertificateAuthority
from odradek.testing.processes import BrokerProcess

MECHANISM: Final = "SCRAM-SHA-256"
USER: Final = {"username": "alice", "password": "secret"}
ACLS: Final = 10_000
HANDSHAKES: Final = 3_000
CLIENT_IDS: Final = 10_000
# More than anyone produces here: quotas are counted, and nobody waits.
QUOTA: Final = 1e12
