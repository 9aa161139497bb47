"""`odradek configs` of users and clients beside Kafka's `kafka-configs`, each on a broker of its
own."""

import pytest
from tests.wire.client.tools.answers import Ours
from tests.wire.java_tools import Done, JavaTools

import odradek

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

LINES = (
    "--describe --entity-type clients",
    "--alter --entity-type clients --entity-name x --add-config producer_byte_rate=1024",
    "--alter --client x --add-config consumer_byte_rate=10000000,controller_mutation_rate=0.5",
    "--alter --entity-type clients --entity-default --add-config producer_byte_rate=2048",
    "--alter --user alice --client-defaults --add-config consumer_byte_rate=5",
    "--alter --entity-type users --entity-name alice --entity-type clients --entity-name x "
    "--add-config consumer_byte_rate=6",
    "--describe --entity-type clients",
    "--describe --client x",
    "--describe --client-defaults",
    "--describe --entity-type users --entity-type clients",
    "--describe --entity-type users --entity-name alice --entity-type clients --entity-default",
    "--alter --client x --delete-config producer_byte_rate",
    "--describe --client x",
    "--alter --client x --delete-config producer_byte_rate",
    # Mistakes
    "--alter --client x --add-config no.such.rate=1",
    "--alter --client x --add-config producer_byte_rate=many",
    "--alter --client x",
)


def told(done: Done) -> list[str]:
    """What was printed, each line's words in one order: Kafka's is that of hash tables."""
    lines = (line.strip().replace(",", "") for line in done.output.splitlines())
    return sorted(" ".join(sorted(line.split())) for line in lines if line)


def test_the_same_is_printed(ours: Ours, java_tools: JavaTools) -> None:
    """A script that reads what `kafka-configs` prints would break."""
    found = []
    with odradek.Broker() as mine, odradek.Broker() as theirs:
        for line in LINES:
            words = line.split()
            done = ours("configs", ["--bootstrap-server", mine.bootstrap_servers, *words], "")
            kafkas = java_tools("configs", ["--bootstrap-server", theirs.bootstrap_servers, *words])
            if bool(done.status) != bool(kafkas.status) or told(done) != told(kafkas):
                found.append(f"{line}\n{done}\nKafka's\n{kafkas}"[:1500])
    assert not found, "\n\n".join(found)
