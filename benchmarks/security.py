"""What do TLS, logins, ACLs and quotas cost a broker?

    python -m benchmarks.security [--rounds 5] [--records 300000] [--json]

One broker of ours has a listener each in plain text, with SASL (SCRAM) and with TLS 1.3; another
one has an authorizer and 10 000 ACLs, and lets its user in by one of them; an Apache Kafka 4.3 has
a listener in plain text and one with TLS. Rounds go through them all, every other one backwards;
librdkafka produces and reads records of 1 KiB, and so does Java's producer in large batches: over
TLS librdkafka sends a record of TLS for each of them, Java one for 16 KiB. Figures are medians,
with the broker's own CPU seconds a GB. Ratios are those of ours with TLS over Kafka's, and of the
others over ours in plain text.

Besides: what 3 000 TLS handshakes, one after the other, on connections that stay open, cost a
broker; and the memory that a broker needs for 10 000 client ids that have produced, beside one
whose quotas are off.
"""

import argparse
import asyncio
import contextlib
import json
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tools import kafka_node, peers
from tools.free_port import free_port
from tools.java_server import java, write_properties
from tools.pem_stores import pem_stores

from benchmarks.broker import (
    RECORD_BYTES,
    Target,
    consume,
    in_turn,
    measured,
    produce,
    ratios,
    table,
)
from benchmarks.process_usage import cpu_seconds, resident_mb
from odradek.acl import (
    ANY_HOST,
    ANY_USER,
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.client import Producer
from odradek.client.sync import Admin
from odradek.model import AclOperation, ResourceType
from odradek.server.in_process.protected.authority import CertificateAuthority
from odradek.testing.processes import BrokerProcess

TLS: Final = {"ssl.enabled.protocols": "TLSv1.3"}
MECHANISM: Final = "SCRAM-SHA-256"
NAME, PASSWORD = "alice", "secret"
# What has no ACLs is open: the benchmark adds them, and its topics have those of all topics.
GUARDED: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
ACLS: Final = 10_000
ACLS_PER_CALL: Final = 1_000
HANDSHAKES: Final = 3_000
CLIENT_IDS: Final = 10_000
WARM_UP: Final = 50_000
KAFKA_PROTOCOLS: Final = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL"
_PERFORMANCE: Final = "org.apache.kafka.tools.ProducerPerformance"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
# More than anyone produces: quotas are counted, and nobody waits.
QUOTA: Final = 1e12


@contextlib.contextmanager
def broker(*words: str, **settings: str) -> Iterator[BrokerProcess]:
    """A broker of ours in a folder of its own."""
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with (
        tempfile.TemporaryDirectory(prefix="odradek-benchmark-") as folder,
        BrokerProcess(folder, *words, *given) as running,
    ):
        yield running


def add_acls(bootstrap: str, count: int) -> None:
    """Adds so many ACLs of topics: one lets everybody do everything, the others are of others."""
    everybody = AccessControlEntry(ANY_USER, ANY_HOST, AclOperation.ALL, PermissionType.ALLOW)
    bindings = [AclBinding(_topic(WILDCARD), everybody)] + [
        AclBinding(
            _topic(f"topic-{number}"),
            AccessControlEntry(
                f"User:user-{number}", ANY_HOST, AclOperation.READ, PermissionType.ALLOW
            ),
        )
        for number in range(count - 1)
    ]
    with Admin(bootstrap) as admin:
        for start in range(0, count, ACLS_PER_CALL):
            outcomes = admin.create_acls(bindings[start : start + ACLS_PER_CALL])
            assert not any(outcomes.values()), "an ACL was refused"


def _topic(name: str) -> ResourcePattern:
    return ResourcePattern(ResourceType.TOPIC, name, PatternType.LITERAL)


@contextlib.contextmanager
def targets(home: Path) -> Iterator[list[Target]]:
    """All brokers, each listener of which is one to be measured."""
    authority = CertificateAuthority(datetime.now(UTC))
    own = {**pem_stores(authority, home), **TLS}
    tls = {"security.protocol": "ssl", "ssl.ca.location": own["ssl.truststore.location"]}
    sasl = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": MECHANISM,
        "sasl.username": NAME,
        "sasl.password": PASSWORD,
    }
    ports = {name: free_port() for name in ("SSL", "SASL_PLAINTEXT", "KAFKA")}
    at = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(
            broker(
                *("--listener", f"SSL://{at['SSL']}"),
                *("--listener", f"SASL_PLAINTEXT://{at['SASL_PLAINTEXT']}"),
                f"--add-scram={MECHANISM}=[name={NAME},password={PASSWORD}]",
                **{"sasl.enabled.mechanisms": MECHANISM, **own},
            )
        )
        guarded = stack.enter_context(broker(**GUARDED))
        add_acls(guarded.bootstrap_servers, ACLS)
        kafka = stack.enter_context(
            kafka_node.kafka_node(
                settings={**own, "listener.security.protocol.map": KAFKA_PROTOCOLS},
                listeners=[f"SSL://{at['KAFKA']}"],
            )
        )
        plain = ours.bootstrap_servers
        yield [
            Target("odradek", plain, ours.pid),
            Target("SASL", at["SASL_PLAINTEXT"], ours.pid, security=sasl),
            Target("TLS", at["SSL"], ours.pid, security=tls),
            Target("ACLs", guarded.bootstrap_servers, guarded.pid),
            Target("Kafka", kafka.bootstrap_servers, kafka.pid),
            Target("Kafka TLS", at["KAFKA"], kafka.pid, security=tls),
        ]


def run_round(target: Target, records: int) -> None:
    """Produces in large and in small batches, and reads what the large ones brought."""
    megabytes = records * RECORD_BYTES / 1e6
    at, security = target.bootstrap, target.security
    for name, batch_bytes in (("produce_large", 1_000_000), ("produce_16k", 16_384)):
        topic = target.new_topic()

        def send(topic: str = topic, batch_bytes: int = batch_bytes) -> None:
            produce(at, topic, records, batch_bytes, security=security)

        measured(target, name, megabytes, send)
        if name == "produce_large":
            measured(
                target,
                "produce_java",
                megabytes,
                lambda topic=topic: produce_java(target, topic, records),
            )
            measured(
                target,
                "consume",
                megabytes,
                lambda topic=topic: consume(at, topic, records, security),
            )
        target.delete(topic)


def produce_java(target: Target, topic: str, records: int) -> None:
    """Sends large batches with Kafka's own tool, whose start is part of it, but for the CPU."""
    settings = {
        "bootstrap.servers": target.bootstrap,
        "batch.size": "1000000",
        "linger.ms": "5",
        "acks": "1",
        **_as_java_knows(target.security),
    }
    command = [*java(peers.kafka_jars(), "-Xmx512m"), _PERFORMANCE, "--topic", topic]
    size = ["--num-records", str(records), "--record-size", str(RECORD_BYTES), "--throughput", "-1"]
    with tempfile.TemporaryDirectory(prefix="odradek-benchmark-") as folder:
        file = write_properties(Path(folder) / "producer.properties", settings)
        subprocess.run(
            [*command, *size, "--producer.config", file],
            check=True,
            timeout=600,
            stdout=subprocess.DEVNULL,
        )


def _as_java_knows(security: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's settings under the names of Java."""
    settings = {"security.protocol": security.get("security.protocol", "plaintext").upper()}
    if authority := security.get("ssl.ca.location"):
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    if mechanism := security.get("sasl.mechanism"):
        login = f'username="{security["sasl.username"]}" password="{security["sasl.password"]}";'
        settings |= {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{_SCRAM} required {login}"}
    return settings


def handshakes(home: Path) -> dict[str, float]:
    """A broker's CPU and memory for `HANDSHAKES` connections that stay open."""
    authority = CertificateAuthority(datetime.now(UTC))
    context = ssl.create_default_context(cadata=authority.certificate)
    port = free_port()
    listener = f"SSL://127.0.0.1:{port}"
    with broker("--listener", listener, **pem_stores(authority, home), **TLS) as running:
        held = []
        cpu, mb = cpu_seconds(running.pid), resident_mb(running.pid)
        for _ in range(HANDSHAKES):
            plain = socket.create_connection(("127.0.0.1", port))
            held.append(context.wrap_socket(plain, server_hostname="127.0.0.1"))
        figures = {
            "handshakes": HANDSHAKES,
            "handshakes_cpu_s": cpu_seconds(running.pid) - cpu,
            "handshakes_mb": resident_mb(running.pid) - mb,
        }
        for each in held:
            each.close()
    return figures


def memory_of_client_ids(**quotas: float) -> float:
    """The memory, in MB, that a broker needs for `CLIENT_IDS` that have produced a record each."""
    with broker() as running:
        if quotas:
            with Admin(running.bootstrap_servers) as admin:
                outcomes = admin.alter_client_quotas({(("client-id", None),): quotas})
                assert not any(outcomes.values()), "a quota was refused"
        asyncio.run(produce_as(running.bootstrap_servers, ["warm"]))
        before = resident_mb(running.pid)
        client_ids = [f"client-{number}" for number in range(CLIENT_IDS)]
        asyncio.run(produce_as(running.bootstrap_servers, client_ids))
        return resident_mb(running.pid) - before


async def produce_as(bootstrap: str, client_ids: list[str]) -> None:
    """Sends a record under each client id, over a connection of its own."""
    for client_id in client_ids:
        async with Producer(bootstrap, client_id=client_id, linger_ms=0) as producer:
            await producer.send_and_wait("t", b"1")


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.security", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=300_000, help="of 1 KiB, a workload")
    parser.add_argument("--warm-up", type=int, default=1_000_000, help="records, for the JVM")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Runs the rounds and prints the tables."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="odradek-benchmark-") as folder:
        home = Path(folder)
        costs = handshakes(home)
        costs["client_ids_mb"] = memory_of_client_ids()
        costs["client_ids_with_quotas_mb"] = memory_of_client_ids(producer_byte_rate=QUOTA)
        for name, value in costs.items():
            print(f"{name:28}{value:14.3f}")
        with targets(home) as measured_targets:
            ours, sasl, tls, acls, kafka, kafka_tls = measured_targets
            for target in measured_targets:
                is_java = target in (kafka, kafka_tls)
                run_round(target, options.warm_up if is_java else WARM_UP)
                target.figures.clear()
            for number in range(options.rounds):
                print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
                for target in in_turn(measured_targets, number):
                    run_round(target, options.records)
    pairs = [(tls, kafka_tls), (ours, kafka), (sasl, ours), (acls, ours), (tls, ours)]
    for one, other in pairs:
        print(f"\n{one.name} over {other.name}\n{table([one, other], ratios(one, other))}")
    if options.json:
        medians = {target.name: target.medians() for target in measured_targets}
        print(json.dumps({"rounds": options.rounds, "costs": costs, **medians}))
    return 0


if __name__ == "__main__":
    # Both ends of the handshakes are of this machine, one of them of this process.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sys.exit(main(sys.argv[1:]))
